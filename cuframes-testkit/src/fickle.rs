//! [`FickleWord`]: a word of a region whose other side writes whatever it likes, at any moment.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

use cuframes_core::shm::layout::REGION_WORDS;
use cuframes_core::shm::{RegionWords, Word};

/// An `AtomicU64` that somebody else may change right before each access, if it is [shared](fickle_region). Which access
/// sees which value is given by [`while_fickle`]: what others wrote to a word matters only when it is looked at, so this
/// is every possible peer.
#[derive(Debug)]
pub struct FickleWord {
    value: AtomicU64,
    /// Where it lies in the region, counted in words, if others can reach it.
    index: Option<usize>,
}

/// What happened while a region was fickle.
#[derive(Debug)]
pub struct Seen<R> {
    /// What the access returned.
    pub result: R,
    /// How many accesses to shared words it made.
    pub accesses: usize,
    /// Which shared words it changed.
    pub writes: Vec<Write>,
}

/// A change of a shared word.
#[derive(Clone, Copy, Debug)]
pub struct Write {
    /// Where the word lies in the region, counted in words.
    pub index: usize,
    /// Its value before.
    pub before: u64,
    /// Its value after.
    pub after: u64,
}

/// A region of zeros that others can reach. Words that are made elsewhere are a process's own.
#[must_use]
pub fn fickle_region() -> RegionWords<FickleWord> {
    // Words are made in the order in which they lie there.
    NEXT_INDEX.set(Some(0));
    let region = RegionWords::zeroed();
    assert_eq!(NEXT_INDEX.take(), Some(REGION_WORDS));
    region
}

/// Runs `access` while somebody else writes: each of `changes` lets so many accesses to any word pass, then changes the
/// word of the next one to this value.
pub fn while_fickle<R>(changes: VecDeque<(u8, u64)>, access: impl FnOnce() -> R) -> Seen<R> {
    PEER.set(Peer { changes, accesses: 0, writes: Vec::new() });
    let result = access();
    let Peer { accesses, writes, .. } = PEER.take();
    Seen { result, accesses, writes }
}

/// The other side, and what it sees.
#[derive(Default)]
struct Peer {
    changes: VecDeque<(u8, u64)>,
    accesses: usize,
    writes: Vec<Write>,
}

thread_local! {
    static PEER: RefCell<Peer> = RefCell::default();
    static NEXT_INDEX: Cell<Option<usize>> = const { Cell::new(None) };
}

impl FickleWord {
    /// The value, which nobody changes meanwhile.
    pub fn value(&self) -> u64 {
        self.value.load(Ordering::Relaxed)
    }

    /// Changes the value as the other side.
    pub fn set(&self, value: u64) {
        self.value.store(value, Ordering::Relaxed);
    }

    /// Makes an access, after whatever happens before it.
    fn access<R>(&self, access: impl FnOnce(&AtomicU64) -> R) -> R {
        let Some(index) = self.index else { return access(&self.value) };
        PEER.with_borrow_mut(|peer| {
            peer.accesses += 1;
            match peer.changes.front_mut() {
                Some((0, value)) => {
                    self.set(*value);
                    peer.changes.pop_front();
                }
                Some((wait, _)) => *wait -= 1,
                None => {}
            }
            let before = self.value();
            let result = access(&self.value);
            let after = self.value();
            if before != after {
                peer.writes.push(Write { index, before, after });
            }
            result
        })
    }
}

impl Word for FickleWord {
    const LOOKS: u32 = 4;

    fn new(value: u64) -> Self {
        let index = NEXT_INDEX.get();
        NEXT_INDEX.set(index.map(|index| index + 1));
        Self { value: AtomicU64::new(value), index }
    }

    fn load(&self, order: Ordering) -> u64 {
        self.access(|word| word.load(order))
    }

    fn store(&self, value: u64, order: Ordering) {
        self.access(|word| word.store(value, order));
    }

    fn fetch_or(&self, bits: u64, order: Ordering) -> u64 {
        self.access(|word| word.fetch_or(bits, order))
    }

    fn fetch_and(&self, bits: u64, order: Ordering) -> u64 {
        self.access(|word| word.fetch_and(bits, order))
    }

    fn compare_exchange(
        &self,
        current: u64,
        new: u64,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u64, u64> {
        self.access(|word| word.compare_exchange(current, new, success, failure))
    }

    fn fence(order: Ordering) {
        std::sync::atomic::fence(order);
    }

    fn pause() {}
}
