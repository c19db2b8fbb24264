//! What a claim and a commit do, as the model sees it (§5, D-5, D-6, X-2).

use std::mem::offset_of;
use std::sync::atomic::Ordering::Relaxed;

use cuframes_core::Policy;
use cuframes_core::ring::Stalled;
use cuframes_core::shm::Region;
use cuframes_core::shm::layout::{HeaderWords, INVALID_SEQ, SLOTS, SlotWords, SubscriberWords};

use super::{Stage, Subscriber, Trust};
use crate::model::Waits;

impl Stage {
    /// Whether the model knows everything that the writer goes by.
    pub(in crate::model) fn is_predictable(&self) -> bool {
        self.trust != Trust::Nothing && !self.subscribers.iter().any(|subscriber| subscriber.hostile)
    }

    /// The number that a claim gets, or the bits that are in its way: acknowledgements, leases. Those who are hostile are
    /// left out.
    pub(in crate::model) fn claim(&self) -> Result<u64, Waits> {
        if self.policy == Policy::STRICT_WAIT {
            let old = self.wanted();
            let acks = self.honest(|s| s.needs(old));
            let slot = self.slot(self.newest + 1);
            let leases = self.honest(|s| s.holds_slot(slot));
            return if acks | leases == 0 { Ok(self.newest + 1) } else { Err((acks, leases)) };
        }
        let free = |seq: &u64| self.honest(|s| s.holds_slot(self.slot(*seq))) == 0;
        (self.newest + 1..=self.newest + self.size).find(free).ok_or_else(|| (0, self.honest_leases()))
    }

    /// The bits of everybody honest who holds a lease.
    fn honest_leases(&self) -> u64 {
        self.honest(|s| s.wants.lease && s.held() > 0)
    }

    /// The bits of everybody honest for whom this is true.
    fn honest(&self, is: impl Fn(&Subscriber) -> bool) -> u64 {
        let bits = self.subscribers.iter().filter(|s| !s.hostile && is(s)).map(|s| s.bit.mask());
        bits.fold(0, |bits, bit| bits | bit)
    }

    /// The frame that a STRICT_WAIT writer has to overwrite next, 0 if there is none.
    pub(in crate::model) fn wanted(&self) -> u64 {
        match self.policy {
            Policy::STRICT_WAIT => self.slots.get(self.slot(self.newest + 1)).copied().unwrap_or(0),
            _ => 0,
        }
    }

    /// A claim succeeded.
    pub(in crate::model) fn check_claim(&self, seq: u64, slot: usize, expected: Result<u64, Waits>) {
        assert_eq!(slot, self.slot(seq));
        let range =
            self.newest + 1..=self.newest + if self.policy == Policy::STRICT_WAIT { 1 } else { self.size };
        assert!(range.contains(&seq), "{seq} after {}", self.newest);
        let words = self.region.slot(slot);
        assert_eq!(words.seq.load(Relaxed), INVALID_SEQ);
        let leasing =
            self.subscribers.iter().filter(|s| s.wants.lease).fold(0, |bits, s| bits | s.bit.mask());
        assert_eq!(words.lease_bitmap.load(Relaxed) & leasing, 0, "the slot is leased");
        if self.is_predictable() {
            assert_eq!(Ok(seq), expected);
        } else if self.trust != Trust::Nothing {
            assert_eq!(self.honest(|s| s.holds_slot(slot)), 0, "the slot is leased");
            assert!(expected.is_ok(), "somebody who did nothing wrong was not waited for: {expected:?}");
        }
    }

    /// A claim failed.
    pub(in crate::model) fn check_stall(&self, stalled: &Stalled, expected: Result<u64, Waits>) {
        let &Stalled { waiting_for_acks: acks, waiting_for_leases: leases, .. } = stalled;
        assert!(stalled.bits() != 0 && stalled.bits() & !self.active() == 0);
        if self.trust == Trust::Nothing {
            return;
        }
        if self.is_predictable() {
            assert_eq!(Err((acks, leases)), expected);
            return;
        }
        // Somebody hostile may be in the way as well.
        let honest = self.honest(|_| true);
        let (expected_acks, expected_leases) = expected.err().unwrap_or_default();
        assert_eq!(acks & honest, expected_acks);
        let expected_leases =
            if self.policy == Policy::STRICT_WAIT { expected_leases } else { self.honest_leases() };
        assert_eq!(leases & honest, expected_leases);
        assert!(stalled.bits() & !honest != 0 || expected.is_err());
    }

    pub(in crate::model) fn invalidate(&mut self, slot: usize) {
        self.publisher_parked = false;
        *self.slots.get_mut(slot).unwrap() = 0;
    }

    pub(in crate::model) fn committed(&mut self, seq: u64, wake: u64) {
        *self.slots.get_mut(usize::try_from(seq % self.size).unwrap()).unwrap() = seq;
        self.newest = seq;
        assert_eq!(wake & !self.active(), 0);
        if self.trust != Trust::Nothing {
            assert_eq!(wake & self.honest(|_| true), self.honest(|s| !s.wants.hint || s.parked));
        }
    }

    pub(in crate::model) const fn set_publisher_parked(&mut self) {
        self.publisher_parked = true;
    }
}

/// Whether the writer or a reader's seat has to believe word `number` of the region, because only the other side can
/// know: leases and acknowledgements, and a subscriber's own words.
pub(super) fn is_believed(number: usize) -> bool {
    type Slot = SlotWords<u64>;
    type Own = SubscriberWords<u64>;
    let slots = size_of::<HeaderWords<u64>>();
    let subscribers = slots + SLOTS * size_of::<Slot>();
    let at = number * size_of::<u64>();
    if let Some(at) = at.checked_sub(subscribers) {
        let own = [offset_of!(Own, last_seen_seq), offset_of!(Own, wake_mode), offset_of!(Own, parked)];
        let seat = [offset_of!(Own, state), offset_of!(Own, term)];
        return own.into_iter().chain(seat).any(|word| at % size_of::<Own>() == word);
    }
    let bitmaps = [offset_of!(Slot, ack_bitmap), offset_of!(Slot, lease_bitmap)];
    at.checked_sub(slots).is_some_and(|at| bitmaps.contains(&(at % size_of::<Slot>())))
}
