//! What a claim and a commit do, as the model sees it (§5, D-5, D-6, X-2).

use std::mem::offset_of;
use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;

use cuframes_core::Policy;
use cuframes_core::ring::Stalled;
use cuframes_core::shm::Region;
use cuframes_core::shm::layout::{HeaderWords, INVALID_SEQ, SLOTS, SlotWords, SubscriberWords};

use super::{Stage, Subscriber, Trust};
use crate::model::{Blocked, Waits};

impl Stage {
    /// Whether the model knows everything that the writer goes by.
    pub(in crate::model) fn is_predictable(&self) -> bool {
        self.trust != Trust::Nothing && !self.subscribers.iter().any(|subscriber| subscriber.hostile)
    }

    /// The number that a claim gets, of any number or of this one, or what is in its way. Those who are hostile are left out.
    pub(in crate::model) fn claim(&self, number: Option<u64>) -> Result<u64, Blocked> {
        if number.is_some_and(|number| number <= self.newest) {
            return Err(Blocked::Passed);
        }
        let numbers = self.candidates(number);
        if numbers.is_empty() {
            return Err(Blocked::NoNumber);
        }
        if self.policy == Policy::STRICT_WAIT {
            let slot = self.slot(numbers.start);
            let wanted = self.slots.get(slot).copied().unwrap_or(0);
            let behind = self.honest(|s| s.needs(wanted));
            let leases = self.honest(|s| s.holds_slot(slot));
            if behind | leases == 0 {
                return Ok(numbers.start);
            }
            // First of all those are waited for who have the oldest frame to read.
            let frames = self.slots.iter().copied().filter(|frame| *frame != 0 && *frame <= wanted);
            let needs = frames.map(|frame| (frame, behind & self.honest(|s| s.needs(frame))));
            let (frame, acks) = needs.filter(|(_, bits)| *bits != 0).min().unwrap_or((wanted, 0));
            return Err(Blocked::Waits(Waits { acks, leases, frame }));
        }
        let free = |seq: &u64| self.honest(|s| s.holds_slot(self.slot(*seq))) == 0;
        numbers
            .clone()
            .find(free)
            .ok_or_else(|| Blocked::Waits(Waits { acks: 0, leases: self.honest_leases(numbers), frame: 0 }))
    }

    /// The numbers that a claim may get, if it is not given one.
    fn candidates(&self, number: Option<u64>) -> Range<u64> {
        match number {
            Some(number) => number..number + 1,
            None if self.policy == Policy::STRICT_WAIT => self.newest + 1..self.newest.saturating_add(2),
            None => self.newest + 1..self.newest.saturating_add(1 + self.size),
        }
    }

    /// The bits of everybody honest who holds a lease of the slot of one of `numbers`.
    fn honest_leases(&self, numbers: Range<u64>) -> u64 {
        numbers.fold(0, |bits, seq| bits | self.honest(|s| s.holds_slot(self.slot(seq))))
    }

    /// The bits of everybody honest for whom this is true.
    fn honest(&self, is: impl Fn(&Subscriber) -> bool) -> u64 {
        let bits = self.subscribers.iter().filter(|s| !s.hostile && is(s)).map(|s| s.bit.mask());
        bits.fold(0, |bits, bit| bits | bit)
    }

    /// The newest published number, 0 before the first.
    #[must_use]
    pub const fn newest(&self) -> u64 {
        self.newest
    }

    /// A claim succeeded.
    pub(in crate::model) fn check_claim(
        &self,
        number: Option<u64>,
        seq: u64,
        slot: usize,
        expected: Result<u64, Blocked>,
    ) {
        assert_eq!(slot, self.slot(seq));
        assert!(self.candidates(number).contains(&seq), "{seq} after {}", self.newest);
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
    pub(in crate::model) fn check_stall(
        &self,
        number: Option<u64>,
        stalled: &Stalled,
        expected: Result<u64, Blocked>,
    ) {
        let found = Waits::from(stalled);
        assert!(stalled.bits() != 0 && stalled.bits() & !self.active() == 0);
        if self.trust == Trust::Nothing {
            return;
        }
        if self.is_predictable() {
            assert_eq!(Err(Blocked::Waits(found)), expected);
            return;
        }
        // Somebody hostile may be in the way as well, and further behind.
        let honest = self.honest(|_| true);
        let expected = match expected {
            Ok(_) => Waits::default(),
            Err(Blocked::Waits(expected)) => expected,
            Err(other) => panic!("{found:?}, expected {other:?}"),
        };
        let acks = if found.acks != 0 && found.frame < expected.frame { 0 } else { expected.acks };
        assert_eq!(found.acks & honest, acks);
        let is_strict = self.policy == Policy::STRICT_WAIT;
        let leases = if is_strict { expected.leases } else { self.honest_leases(self.candidates(number)) };
        assert_eq!(found.leases & honest, leases);
        assert!(stalled.bits() & !honest != 0 || expected != Waits::default());
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
