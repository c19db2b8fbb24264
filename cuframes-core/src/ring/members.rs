//! [`Members`]: who takes part in the ring, in the publisher's own memory (D-23).
//!
//! The roster (control plane) writes it, the writer (hot path) reads it, possibly on another thread; the region is never
//! asked who is a member. The writer never evicts anybody itself: it accuses, and the roster decides, so that an
//! accusation that comes late cannot hit the next holder of the bit.

use alloc::sync::Arc;
use core::array;
use core::ops::RangeInclusive;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crate::config::{Features, SubscriberBit};
use crate::shm::layout::SUBSCRIBERS;
use crate::shm::{Region, Word};

/// Membership of one stream, shared by its roster and its writer.
#[derive(Debug)]
pub struct Members<W> {
    /// Bit per active subscriber; and again, 32 bits higher, per active subscriber that takes leases.
    active: W,
    /// Bit per active subscriber that wakes a parked publisher.
    waking: W,
    /// The newest published number.
    newest: W,
    /// Per bit: `initial_seq`, or [`NONE_REQUIRED`]; while it joins, that of its last holder, or another number that is no
    /// greater.
    joined: [W; SUBSCRIBERS],
    /// Per bit: how often it was assigned.
    term: [W; SUBSCRIBERS],
    /// Bit per subscriber that the writer wants evicted: for a missing acknowledgement, for a lease.
    accused: [W; 2],
    /// Per bit: the term that the accusation means.
    accused_term: [W; SUBSCRIBERS],
    /// For fences.
    scratch: W,
}

/// What a subscriber is evicted for (D-31).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Accusation {
    /// It did not acknowledge a frame in time.
    Ack,
    /// It held a lease for too long.
    Lease,
}

impl<W: Word> Members<W> {
    /// Nobody, and nothing published.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            active: W::new(0),
            waking: W::new(0),
            newest: W::new(0),
            joined: array::from_fn(|_| W::new(0)),
            term: array::from_fn(|_| W::new(0)),
            accused: array::from_fn(|_| W::new(0)),
            accused_term: array::from_fn(|_| W::new(0)),
            scratch: W::new(0),
        })
    }

    /// What is stored before this is visible before anything is loaded after it.
    #[inline]
    pub(super) fn full_fence(&self) {
        self.scratch.full_fence();
    }

    /// Bit per active subscriber.
    #[must_use]
    pub fn active(&self) -> u64 {
        self.active.load(Acquire) & ((1 << SUBSCRIBERS) - 1)
    }

    /// Bit per active subscriber that takes leases. Lease bits of others were written by somebody else: they would not
    /// take them away either.
    pub(super) fn leasing(&self) -> u64 {
        self.active.load(Acquire) >> SUBSCRIBERS
    }

    /// The newest published number, 0 before the first.
    #[must_use]
    pub fn newest(&self) -> u64 {
        self.newest.load(Acquire)
    }

    /// Whether one of `bits` never wakes a parked publisher, who then has to look again by itself.
    #[must_use]
    pub fn any_silent(&self, bits: u64) -> bool {
        self.silent(bits) != 0
    }

    /// Those of `bits` without WAKE_HINT: they never say when they sleep, and never wake a parked publisher.
    pub(super) fn silent(&self, bits: u64) -> u64 {
        bits & !self.waking.load(Acquire)
    }

    /// Begins the next term of `bit`; the first is 1. Roster only, before [`join`](Self::join).
    pub(crate) fn begin_term(&self, bit: SubscriberBit) {
        get(&self.term, bit).store(self.term(bit) + 1, Relaxed);
    }

    /// Makes `bit` active and returns its `initial_seq`; its slot in the region says `last_seen_seq = initial_seq`.
    ///
    /// Roster only. From the moment the bit is active no frame newer than the result is overwritten before it is done,
    /// unless it asked for NO_ACK.
    pub(crate) fn join(&self, region: &impl Region<Word = W>, bit: SubscriberBit, features: Features) -> u64 {
        if features.contains(Features::WAKE_HINT) {
            self.waking.fetch_or(bit.mask(), AcqRel);
        } else {
            self.waking.fetch_and(!bit.mask(), AcqRel);
        }
        let joined = get(&self.joined, bit);
        if joined.load(Relaxed) == NONE_REQUIRED {
            // That was its last holder. Of this one frames are required from the moment on when it is active.
            joined.store(self.newest(), Relaxed);
        }
        // SYNC POINT: join. Either the writer's next look at `active` sees the bit, or we see the number it published
        // before that look, and then the subscriber was not promised that frame.
        let leasing = if features.contains(Features::LEASE) { bit.mask() << SUBSCRIBERS } else { 0 };
        self.active.fetch_or(bit.mask() | leasing, AcqRel);
        self.full_fence();
        let initial = self.newest.load(Acquire);
        region.subscriber(bit.get().into()).last_seen_seq.store(initial, Relaxed);
        joined.store(if features.contains(Features::NO_ACK) { NONE_REQUIRED } else { initial }, Release);
        initial
    }

    /// Takes `bit` out: it is not waited for, and its leases no longer count. Roster only.
    pub(crate) fn leave(&self, bit: SubscriberBit) {
        self.active.fetch_and(!(bit.mask() | bit.mask() << SUBSCRIBERS), AcqRel);
    }

    /// Records a publication. Writer only.
    pub(super) fn published(&self, seq: u64) {
        // SYNC POINT: join
        self.newest.store(seq, Release);
    }

    /// Bit per active subscriber that must be done with frame `seq` in slot `slot`, and is not (D-5, X-7).
    pub(super) fn not_done(&self, region: &impl Region<Word = W>, slot: usize, seq: u64) -> u64 {
        let (mut waiting, newest) = (0, self.newest.load(Relaxed));
        for bit in SubscriberBit::in_bitmap(self.active()) {
            let joined = get(&self.joined, bit).load(Acquire);
            if seq > joined && !is_done(region, slot, seq..=newest, bit, joined) {
                waiting |= bit.mask();
            }
        }
        waiting
    }

    /// How often `bit` was assigned.
    pub(crate) fn term(&self, bit: SubscriberBit) -> u64 {
        get(&self.term, bit).load(Relaxed)
    }

    /// Asks the roster to evict `bit`, if it is still held by whoever held it in `term`. Writer only.
    pub(super) fn accuse(&self, bit: SubscriberBit, term: u64, of: Accusation) {
        get(&self.accused_term, bit).store(term, Relaxed);
        self.accused_of(of).fetch_or(bit.mask(), Release);
    }

    /// The accusations made since the last call. Roster only.
    pub(crate) fn take_accused(&self, of: Accusation) -> impl Iterator<Item = SubscriberBit> {
        let accused = self.accused_of(of);
        let bits = if accused.load(Relaxed) == 0 { 0 } else { accused.fetch_and(0, Acquire) & self.active() };
        SubscriberBit::in_bitmap(bits)
            .filter(|bit| get(&self.accused_term, *bit).load(Relaxed) == self.term(*bit))
    }

    fn accused_of(&self, of: Accusation) -> &W {
        let [ack, lease] = &self.accused;
        match of {
            Accusation::Ack => ack,
            Accusation::Lease => lease,
        }
    }
}

/// Instead of `initial_seq` of a subscriber with NO_ACK: no frame comes after it.
const NONE_REQUIRED: u64 = u64::MAX;

/// Whether `bit` is done with the first of `frames`, of which the last is the newest: its `last_seen_seq` is one of them,
/// or the word has never moved from `initial_seq` and its ack bit is set (D-5: only then can the bit not be a late one). A
/// number that was not published yet acknowledges nothing.
fn is_done(
    region: &impl Region,
    slot: usize,
    frames: RangeInclusive<u64>,
    bit: SubscriberBit,
    joined: u64,
) -> bool {
    // SYNC POINT: ack. The bit first: whoever sets it late has moved the word before, and then we see that.
    let acknowledged = region.slot(slot).ack_bitmap.load(Acquire) & bit.mask() != 0;
    let last_seen = region.subscriber(bit.get().into()).last_seen_seq.load(Acquire);
    if last_seen == joined { acknowledged } else { frames.contains(&last_seen) }
}

#[expect(clippy::indexing_slicing, reason = "a bit is at most 31, the array has 32 words")]
fn get<W>(words: &[W; SUBSCRIBERS], bit: SubscriberBit) -> &W {
    &words[usize::from(bit.get())]
}
