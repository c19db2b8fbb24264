//! [`LoomWord`]: a word as the model checker sees it, and [`Weakening`]: what it does instead of what it was told.

use std::cell::Cell;
use std::fmt::Debug;
use std::marker::PhantomData;
use std::sync::atomic::Ordering::{self, Relaxed, SeqCst};

use ::loom::sync::atomic::{AtomicU64, fence};
use ::loom::thread;
use cuframes_core::shm::layout::INVALID_SEQ;
use cuframes_core::shm::{HeaderWords, Region, SlotWords, SubscriberWords, Word};

/// The words of a region. Only those that a small ring needs exist, because every execution makes them anew.
#[derive(Debug)]
pub struct LoomRegion<K> {
    header: HeaderWords<LoomWord<K>>,
    slots: Vec<SlotWords<LoomWord<K>>>,
    /// Stands for all slots that the ring does not have.
    no_slot: SlotWords<LoomWord<K>>,
    subscribers: Vec<SubscriberWords<LoomWord<K>>>,
    /// Stands for all other subscribers.
    no_subscriber: SubscriberWords<LoomWord<K>>,
}

/// A word of a region, of a frame, or of one side's own memory.
#[derive(Debug)]
pub struct LoomWord<K> {
    field: Field,
    memory: Memory,
    weakening: PhantomData<K>,
}

/// What a word is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "most are named as in the region")]
#[non_exhaustive]
pub enum Field {
    GlobalSeq,
    ShutdownFlag,
    PublisherParked,
    Seq,
    PtsNs,
    AckBitmap,
    WrittenBytes,
    LeaseBitmap,
    State,
    Term,
    LastSeenSeq,
    WakeMode,
    Parked,
    /// Another word of the region.
    Other,
    /// A word of the membership, in the publisher's memory.
    Own,
    /// A word of a seat, in the subscriber's memory.
    Seat,
    /// A word of a frame.
    Frame,
}

/// What was done to a word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Access {
    /// [`Word::load`].
    Load,
    /// [`Word::store`].
    Store,
    /// [`Word::fetch_or`].
    SetBits,
    /// [`Word::fetch_and`].
    ClearBits,
    /// [`Word::compare_exchange`].
    Exchange,
}

/// One step of a thread: what it did to which word.
pub type Step = (Field, Access);

/// Makes a seat.
pub(super) fn seat<S>(make: impl FnOnce() -> S) -> S {
    NEW.set(Field::Seat);
    let seat = make();
    NEW.set(Field::Own);
    seat
}

/// What is done in place of a step of the shipped code. By default the step itself.
pub trait Weakening: Debug + Send + Sync + Sized + 'static {
    /// [`Word::LOOKS`]: by default until the other side has moved on.
    const LOOKS: u32 = u32::MAX;

    /// [`Word::pause`]: by default until another thread has done something.
    fn pause() {
        thread::yield_now();
    }

    /// The value that is written, or the bits that are set or kept, and the order; `None` leaves the write out.
    #[must_use]
    fn write(step: Step, value: u64, order: Ordering) -> Option<(u64, Ordering)> {
        let _ = step;
        Some((value, order))
    }

    /// The order of a fence; `None` leaves it out.
    #[must_use]
    fn fence(after: Step, order: Ordering) -> Option<Ordering> {
        let _ = after;
        Some(order)
    }
}

/// No step is changed.
#[derive(Debug)]
pub struct AsShipped;

impl Weakening for AsShipped {}

impl<K: Weakening> LoomWord<K> {
    /// A word of a frame.
    pub(super) fn of_frame() -> Self {
        Self { field: Field::Frame, memory: Memory::Modelled(AtomicU64::new(0)), weakening: PhantomData }
    }

    /// A word of the region.
    fn of_region(field: Field, value: u64, modelled: &[Field]) -> Self {
        let memory = if modelled.contains(&field) {
            Memory::Modelled(AtomicU64::new(value))
        } else {
            Memory::still(value)
        };
        Self { field, memory, weakening: PhantomData }
    }

    fn accessed(&self, access: Access) {
        LAST.set((self.field, access));
    }
}

impl<K: Weakening> LoomRegion<K> {
    /// A region in which nothing was published, with words for `slots` slots and for subscribers 1 and 2. Those of the
    /// fields in `modelled` are the checker's; each of them costs time.
    pub(super) fn new(slots: u8, modelled: &[Field]) -> Self {
        let word = |field, value| LoomWord::of_region(field, value, modelled);
        let slot = |_| SlotWords {
            seq: word(Field::Seq, INVALID_SEQ),
            pts_ns: word(Field::PtsNs, 0),
            ack_bitmap: word(Field::AckBitmap, 0),
            written_bytes: word(Field::WrittenBytes, 0),
            lease_bitmap: word(Field::LeaseBitmap, 0),
            ..SlotWords::zeroed()
        };
        let subscriber = |_| SubscriberWords {
            state: word(Field::State, 0),
            last_seen_seq: word(Field::LastSeenSeq, 0),
            wake_mode: word(Field::WakeMode, 0),
            parked: word(Field::Parked, 0),
            term: word(Field::Term, 0),
            ..SubscriberWords::zeroed()
        };
        NEW.set(Field::Other);
        let header = HeaderWords {
            global_seq: word(Field::GlobalSeq, 0),
            shutdown_flag: word(Field::ShutdownFlag, 0),
            publisher_parked: word(Field::PublisherParked, 0),
            ..HeaderWords::zeroed()
        };
        let region = Self {
            header,
            slots: (0..slots).map(slot).collect(),
            no_slot: SlotWords::zeroed(),
            subscribers: (1..=2).map(subscriber).collect(),
            no_subscriber: SubscriberWords::zeroed(),
        };
        NEW.set(Field::Own);
        region
    }
}

impl<K: Weakening> Region for LoomRegion<K> {
    type Word = LoomWord<K>;

    fn header(&self) -> &HeaderWords<LoomWord<K>> {
        &self.header
    }

    fn slot(&self, index: usize) -> &SlotWords<LoomWord<K>> {
        self.slots.get(index).unwrap_or(&self.no_slot)
    }

    fn subscriber(&self, bit: usize) -> &SubscriberWords<LoomWord<K>> {
        bit.checked_sub(1).and_then(|index| self.subscribers.get(index)).unwrap_or(&self.no_subscriber)
    }
}

impl<K: Weakening> Word for LoomWord<K> {
    fn new(value: u64) -> Self {
        let field = NEW.get();
        let memory = match field {
            Field::Other => Memory::still(value),
            _ => Memory::Modelled(AtomicU64::new(value)),
        };
        Self { field, memory, weakening: PhantomData }
    }

    fn load(&self, order: Ordering) -> u64 {
        if (self.field, order) == (Field::LastSeenSeq, Relaxed) {
            // A subscriber's look at its own word before it changes it. The checker only remembers the last access of a
            // word, so after this load it would not try the change before the writer's loads (tokio-rs/loom#166).
            return self.fetch_or(0, order);
        }
        let value = self.memory.load(order);
        self.accessed(Access::Load);
        value
    }

    fn store(&self, value: u64, order: Ordering) {
        if let Some((value, order)) = K::write((self.field, Access::Store), value, order) {
            match &self.memory {
                Memory::Modelled(word) => word.store(value, order),
                Memory::Still(word) => word.store(value, SeqCst),
            }
            self.accessed(Access::Store);
        }
    }

    fn fetch_or(&self, bits: u64, order: Ordering) -> u64 {
        let Some((bits, order)) = K::write((self.field, Access::SetBits), bits, order) else {
            return self.memory.load(order);
        };
        let before = match &self.memory {
            Memory::Modelled(word) => word.fetch_or(bits, order),
            Memory::Still(word) => word.fetch_or(bits, SeqCst),
        };
        self.accessed(Access::SetBits);
        before
    }

    fn fetch_and(&self, bits: u64, order: Ordering) -> u64 {
        let Some((bits, order)) = K::write((self.field, Access::ClearBits), bits, order) else {
            return self.memory.load(order);
        };
        let before = match &self.memory {
            Memory::Modelled(word) => word.fetch_and(bits, order),
            Memory::Still(word) => word.fetch_and(bits, SeqCst),
        };
        self.accessed(Access::ClearBits);
        before
    }

    fn compare_exchange(
        &self,
        current: u64,
        new: u64,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u64, u64> {
        let Some((new, success)) = K::write((self.field, Access::Exchange), new, success) else {
            return Ok(current);
        };
        let result = match &self.memory {
            Memory::Modelled(word) => word.compare_exchange(current, new, success, failure),
            Memory::Still(word) => word.compare_exchange(current, new, SeqCst, SeqCst),
        };
        self.accessed(Access::Exchange);
        result
    }

    fn fence(order: Ordering) {
        // The checker never switches threads between an access and the fence after it.
        if let Some(order) = K::fence(LAST.get(), order) {
            fence(order);
        }
    }

    fn pause() {
        K::pause();
    }

    const LOOKS: u32 = K::LOOKS;
}

/// Where a word's value is.
#[derive(Debug)]
enum Memory {
    /// With the checker, who remembers what each thread may still see of it.
    Modelled(AtomicU64),
    /// A word that the model does not ask about: everybody sees the same.
    Still(std::sync::atomic::AtomicU64),
}

impl Memory {
    const fn still(value: u64) -> Self {
        Self::Still(std::sync::atomic::AtomicU64::new(value))
    }

    fn load(&self, order: Ordering) -> u64 {
        match self {
            Self::Modelled(word) => word.load(order),
            Self::Still(word) => word.load(SeqCst),
        }
    }
}

thread_local! {
    // All threads of a model are one thread of the operating system.
    /// The last access of the running thread.
    static LAST: Cell<Step> = const { Cell::new((Field::Other, Access::Load)) };
    /// What new words are.
    static NEW: Cell<Field> = const { Cell::new(Field::Own) };
}
