//! [`Seat`]: a subscriber's place in the ring, from where frames are acknowledged and released (§5.4, D-4, D-5, X-2, X-3, X-6).

use alloc::sync::Arc;
use core::fmt;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use super::frame::FrameLost;
use crate::config::{Features, RingSize, SubscriberBit};
use crate::shm::layout::{INVALID_SEQ, subscriber_state};
use crate::shm::{Region, Word};
use crate::time::Instant;

/// What a frame needs of the driver when it is released, on whatever thread that happens.
pub trait Outside: fmt::Debug + Send + Sync {
    /// The time, for the informative `last_ack_ns`.
    fn now(&self) -> Instant;
    /// Wakes the publisher, who sleeps until somebody acknowledges or releases.
    fn wake_publisher(&self);
    /// A frame was released that may not have been that frame all the time: for those who count.
    fn frame_lost(&self, lost: FrameLost) {
        let _ = lost;
    }
    /// Whether the seat belongs to this process: not to a child that was forked with a copy of it (P-20).
    fn is_here(&self) -> bool {
        true
    }
    /// What the publisher says about `slot` where nobody else can write; `None` without WITNESS. Every load may be
    /// relaxed.
    fn testimony(&self, _slot: usize) -> Option<Testimony> {
        None
    }
    /// The frame in `slot` and its testimony are needed soon: a hint, as [`Region::prefetch_lease`].
    #[inline]
    fn prefetch(&self, slot: usize) {
        let _ = slot;
    }
    /// What the publisher says there about who has `bit`; as [`testimony`](Self::testimony).
    fn standing(&self, _bit: SubscriberBit) -> Option<Standing> {
        None
    }
}

/// What a witness says about a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(clippy::exhaustive_structs, reason = "the driver makes it, out of a slot's words")]
pub struct Testimony {
    /// The word `seq`.
    pub seq: u64,
    /// The word `pts_ns`.
    pub pts_ns: u64,
    /// The word `written_bytes`.
    pub written_bytes: u64,
}

/// What a witness says about a subscriber's bit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(clippy::exhaustive_structs, reason = "the driver makes it, out of a subscriber's words")]
pub struct Standing {
    /// The word `state`.
    pub state: u64,
    /// The word `term`.
    pub term: u64,
}

/// A subscriber's place in the ring, shared by its reader and by every frame that it holds.
#[derive(Debug)]
pub struct Seat<R: Region, O> {
    pub(super) region: R,
    pub(super) outside: O,
    pub(super) ring_size: RingSize,
    pub(super) bit: SubscriberBit,
    pub(super) initial_seq: u64,
    features: Features,
    /// The publisher knows no extension: it judges acknowledgements by their bits (D-5).
    pub(super) plain: bool,
    /// `term` when we attached: while it stands where the publisher writes it the bit is ours.
    term: u64,
    /// 1 once the connection is gone: frames then leave the region alone.
    detached: R::Word,
    /// The newest frame that we are done with. Our own copy, because others can write `last_seen_seq`.
    done: R::Word,
    /// Bit per slot: a frame there is held under a lease. Our own copy, because others can write `lease_bitmap`.
    held: R::Word,
    /// For fences.
    scratch: R::Word,
}

impl<R: Region, O: Outside> Seat<R, O> {
    /// Takes the seat that SUBSCRIBE_RESP assigned; with WAKE_HINT it sets `wake_mode`.
    ///
    /// `features` are those in force on the connection, `plain` says that the region's epoch is 0.
    pub fn new(
        region: R,
        outside: O,
        ring_size: RingSize,
        bit: SubscriberBit,
        initial_seq: u64,
        features: Features,
        plain: bool,
    ) -> Arc<Self> {
        let words = region.subscriber(bit.get().into());
        let term = outside.standing(bit).map_or_else(|| words.term.load(Acquire), |said| said.term);
        words.parked.store(0, Relaxed);
        let seat = Self {
            region,
            outside,
            ring_size,
            bit,
            initial_seq,
            features,
            plain,
            term,
            detached: R::Word::new(0),
            done: R::Word::new(initial_seq),
            held: R::Word::new(0),
            scratch: R::Word::new(0),
        };
        seat.region.subscriber(bit.get().into()).wake_mode.store(seat.wake_mode(), Release);
        Arc::new(seat)
    }

    /// What we write to `wake_mode`: 1 if we say when we sleep.
    fn wake_mode(&self) -> u64 {
        self.features.contains(Features::WAKE_HINT).into()
    }

    /// The connection is gone: from now on releasing a frame leaves the region alone and reports the loss.
    pub fn detach(&self) {
        self.detached.store(1, Release);
    }

    /// Whether the bit is still ours.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.detached.load(Acquire) == 0 && self.outside.is_here() && self.is_assigned()
    }

    /// Whether the publisher says that the bit is ours: the witness if there is one, because others can write the region.
    fn is_assigned(&self) -> bool {
        // SYNC POINT: seat. The state first: who sees that of the bit's next holder sees its term.
        let Some(said) = self.outside.standing(self.bit) else {
            let words = self.region.subscriber(self.bit.get().into());
            return self.plain
                || words.state.load(Acquire) == subscriber_state::ACTIVE
                    && words.term.load(Relaxed) == self.term;
        };
        R::Word::fence(Acquire);
        said.state == subscriber_state::ACTIVE
            && self.outside.standing(self.bit).is_some_and(|said| said.term == self.term)
    }

    /// As [`Members::full_fence`](super::Members::full_fence).
    #[inline]
    pub(super) fn full_fence(&self) {
        self.scratch.full_fence();
    }

    /// The region.
    pub const fn region(&self) -> &R {
        &self.region
    }

    /// The assigned bit.
    pub const fn bit(&self) -> SubscriberBit {
        self.bit
    }

    /// What the driver supplied.
    pub const fn outside(&self) -> &O {
        &self.outside
    }

    /// Whether frames of this seat are leases.
    pub const fn leases(&self) -> bool {
        self.features.contains(Features::LEASE)
    }

    /// Says that this subscriber is done with frame `seq` in `slot` (§5 step 4 and 5).
    pub(super) fn ack(&self, slot: usize, seq: u64) {
        if self.plain {
            self.set_ack_bit(slot, seq);
        }
        self.note_done(seq);
        self.say_done_now();
    }

    /// As [`say_done`](Self::say_done), and when that was.
    pub(super) fn say_done_now(&self) {
        self.say_done();
        let words = self.region.subscriber(self.bit.get().into());
        words.last_ack_ns.store(self.outside.now().as_nanos().cast_unsigned(), Relaxed);
    }

    /// Remembers that we are done with frame `seq`. Frames may be released in any order and on any thread: it only grows.
    pub(super) fn note_done(&self, seq: u64) {
        let mut done = self.done.load(Relaxed);
        while done < seq {
            // Not relaxed: whoever says a greater number to the publisher says it for this frame, too.
            match self.done.compare_exchange(done, seq, AcqRel, Relaxed) {
                Ok(_) => break,
                Err(found) => done = found,
            }
        }
    }

    /// Makes `last_seen_seq` the newest frame that we are done with, whatever somebody else wrote there; says whether it
    /// was something else.
    pub(super) fn say_done(&self) -> bool {
        let word = &self.region.subscriber(self.bit.get().into()).last_seen_seq;
        for _ in 0..ROUNDS {
            // SYNC POINT: ack. The word first: what one of us has stored there it had noted before, so what we find noted
            // is no less, and the word never goes back but from what is not ours (I5).
            let said = word.load(Relaxed);
            R::Word::fence(Acquire);
            let done = self.done.load(Acquire);
            if said == done {
                return false;
            }
            // Whoever notes a greater number from here on says it, too.
            if word.compare_exchange(said, done, Release, Relaxed).is_ok() {
                return true;
            }
        }
        true
    }

    /// Acknowledges by bit, towards a publisher that judges by bits; never a frame from before we joined (D-5).
    pub(super) fn set_ack_bit(&self, slot: usize, seq: u64) {
        let words = self.region.slot(slot);
        if seq > self.initial_seq && words.seq.load(Acquire) == seq {
            words.ack_bitmap.fetch_or(self.bit.mask(), Release);
        }
    }

    /// Whether `slot` has held frame `seq` during everything that was read from it up to now (D-4).
    pub(super) fn is_intact(&self, slot: usize, seq: u64) -> bool {
        // SYNC POINT: slot-validity. The fence keeps these loads after the loads of the frame's bytes.
        R::Word::fence(Acquire);
        // The writer leaves it alone while it puts a number back.
        if let Some(testimony) = self.outside.testimony(slot) {
            return testimony.seq == seq;
        }
        match self.region.slot(slot).seq.load(Relaxed) {
            // The writer wanted the slot and is putting the number back. It writes only if our lease does not count any
            // more, and then the slot of this subscriber said so before.
            INVALID_SEQ if self.leases() => self.is_held(),
            found => found == seq,
        }
    }

    /// Sets the lease bit of `slot`; `false` if a frame there is still held. For the reader only: nobody else takes leases.
    pub(super) fn set_lease(&self, slot: usize) -> bool {
        // The writer does not overwrite a frame that we hold, so another one is there only if somebody else gave the lease
        // back. Two would share one bit, and the release of the one would end the lease of the other.
        if self.holds(slot) {
            return false;
        }
        self.held.fetch_or(1 << slot, Relaxed);
        // If it is set already, somebody else has set it: from now on it is our lease.
        self.region.slot(slot).lease_bitmap.fetch_or(self.bit.mask(), AcqRel);
        true
    }

    /// Gives the lease of `slot` back.
    pub(super) fn clear_lease(&self, slot: usize) {
        // SYNC POINT: release
        self.region.slot(slot).lease_bitmap.fetch_and(!self.bit.mask(), Release);
        // Only now: once the reader knows, it may set the bit for the next frame.
        self.forget_lease(slot);
    }

    /// The frame in `slot` is not held any more, but its lease bit is left as it is: if that is ours after all the reader
    /// [clears](Self::tidy) it.
    pub(super) fn forget_lease(&self, slot: usize) {
        self.held.fetch_and(!(1 << slot), Release);
    }

    /// Whether a frame in `slot` is held under a lease; if not, its lease was given back before.
    pub(super) fn holds(&self, slot: usize) -> bool {
        self.held.load(Acquire) & 1 << slot != 0
    }

    /// Puts right what others have written in our name and nobody else would: a wrong `last_seen_seq` would keep the writer
    /// waiting or make it overwrite what we still want, a wrong `wake_mode` would cost it a system call for each frame, and
    /// lease bits of slots in which no frame is held would keep it out for as long as we live.
    ///
    /// For the reader only. Frames may be released on other threads meanwhile, but no lease is taken: a slot that is not
    /// held stays so.
    pub(super) fn tidy(&self) {
        // A plain publisher knows nothing of leases, and judges by ack bits.
        if self.plain || !self.is_held() {
            return;
        }
        self.region.subscriber(self.bit.get().into()).wake_mode.store(self.wake_mode(), Relaxed);
        let mut changed = self.say_done();
        let slots = if self.leases() { self.ring_size.get() } else { 0 };
        for slot in 0..slots.into() {
            let leases = &self.region.slot(slot).lease_bitmap;
            if !self.holds(slot) && leases.load(Relaxed) & self.bit.mask() != 0 {
                // SYNC POINT: release. It may be that of a frame whose bit did not look ours when it was released.
                leases.fetch_and(!self.bit.mask(), Release);
                changed = true;
            }
        }
        if changed {
            self.wake_publisher();
        }
    }

    /// After an acknowledgement or a release: wakes the publisher if it sleeps.
    pub(super) fn wake_publisher(&self) {
        if self.features.contains(Features::WAKE_HINT) {
            // SYNC POINT: publisher-wake-up. Either the parked writer's next claim sees what we did, or we see that it
            // parked.
            self.full_fence();
            if self.region.header().publisher_parked.load(Relaxed) == 1 {
                self.outside.wake_publisher();
            }
        }
    }
}

/// How often an acknowledgement is said again because the word was found changed. Our own threads end far earlier; who
/// writes there all the time must not keep us, and what is not said then the reader says before it parks.
const ROUNDS: u32 = 32;
