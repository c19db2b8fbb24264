//! [`Fault`]: what in a region breaks the document.

use alloc::vec::Vec;
use core::fmt;
use core::mem::offset_of;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

use super::Snapshot;
use crate::config::RingSize;
use crate::number::to_u64;
use crate::shm::Word;
use crate::shm::layout::{
    HeaderWords, INVALID_SEQ, RegionWords, SUBSCRIBERS, SlotWords, SubscriberWords, subscriber_state,
};

/// A word of a region that has no such value by the document, or contradicts another one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Fault {
    /// Where it is in the region, in bytes from its start.
    pub offset: usize,
    /// Slot or subscriber that it is of; `None` in the header.
    pub of: Option<(Part, usize)>,
    /// The field as the document names it.
    pub field: &'static str,
    /// What was found.
    pub value: u64,
    /// What must be there.
    pub must: &'static str,
}

/// What a region has several of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Part {
    /// Slots (§2.2).
    Slot,
    /// Subscribers (§2.3).
    Subscriber,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { offset, of, field, value, must } = self;
        match of {
            None => {}
            Some((Part::Slot, index)) => write!(f, "slot {index}: ")?,
            Some((Part::Subscriber, bit)) => write!(f, "subscriber {bit}: ")?,
        }
        write!(f, "{field} at {offset:#06x} is {value:#x}: must be {must}")
    }
}

/// Collects faults of one header, slot or subscriber.
struct Finder<'a> {
    faults: &'a mut Vec<Fault>,
    of: Option<(Part, usize)>,
    /// Where the words begin.
    base: usize,
}

impl Finder<'_> {
    fn check(&mut self, is_good: bool, offset: usize, field: &'static str, value: u64, must: &'static str) {
        if !is_good {
            let Self { of, base, .. } = *self;
            self.faults.push(Fault { offset: base + offset, of, field, value, must });
        }
    }

    /// Reserved words are zero (§6.3).
    fn zeros(&mut self, words: &[AtomicU64], offset: usize) {
        for (at, word) in (offset..).step_by(size_of::<u64>()).zip(words) {
            let value = Word::load(word, Relaxed);
            self.check(value == 0, at, "reserved", value, "0");
        }
    }
}

/// Checks a word: `check!(finder, words: HeaderWords.field, "what it must be", |value| whether it is)`.
macro_rules! check {
    ($finder:ident, $words:ident: $type:ident . $field:ident, $must:literal, |$value:ident| $good:expr) => {{
        let $value = $words.$field.load(Relaxed);
        let at = offset_of!($type<AtomicU64>, $field);
        $finder.check($good, at, stringify!($field), $value, $must);
    }};
}

impl Snapshot {
    /// What breaks the document, in the order of the words. The [header](Self::header) tells what is wrong with the geometry.
    #[must_use]
    pub fn faults(&self) -> Vec<Fault> {
        let mut faults = Vec::new();
        self.header_faults(&mut faults);
        self.slot_faults(&mut faults);
        self.subscriber_faults(&mut faults);
        faults
    }

    fn header_faults(&self, faults: &mut Vec<Fault>) {
        let words = &self.words.header;
        let mut finder = Finder { faults, of: None, base: offset_of!(RegionWords<AtomicU64>, header) };
        check!(finder, words: HeaderWords.ring_size, "1 to 16", |n| RingSize::new(n).is_some());
        check!(finder, words: HeaderWords.max_subscribers, "32", |n| n == to_u64(SUBSCRIBERS));
        check!(finder, words: HeaderWords.global_seq, "the number of a frame", |seq| seq != INVALID_SEQ);
        check!(finder, words: HeaderWords.subscriber_bitmap, "bits 1 to 31", |bits| bits & !BITS == 0);
        check!(finder, words: HeaderWords.shutdown_flag, "0 or 1", |flag| flag <= 1);
        check!(finder, words: HeaderWords.publisher_parked, "0 or 1", |flag| flag <= 1);
        finder
            .zeros(core::slice::from_ref(&words.reserved_b), offset_of!(HeaderWords<AtomicU64>, reserved_b));
    }

    fn slot_faults(&self, faults: &mut Vec<Fault>) {
        let header = self.header().ok();
        let (newest, live) = (self.newest(), self.live());
        for (index, words) in self.words.slots.iter().enumerate() {
            let base = offset_of!(RegionWords<AtomicU64>, slots) + index * size_of::<SlotWords<AtomicU64>>();
            let mut finder = Finder { faults, of: Some((Part::Slot, index)), base };
            let is_used = header.is_none_or(|header| index < header.ring_size.get().into());
            if !is_used {
                check!(finder, words: SlotWords.seq, "no frame: the ring is smaller", |seq| seq == INVALID_SEQ);
                continue;
            }
            let has_frame = words.seq.load(Relaxed) != INVALID_SEQ;
            if has_frame {
                check!(finder, words: SlotWords.seq, "1 or more, and not newer than global_seq", |seq| (1..=newest).contains(&seq));
            }
            if let Some(header) = header.filter(|_| has_frame) {
                let (size, ring_size) = (header.meta.frame_size_bytes, header.ring_size.get());
                check!(finder, words: SlotWords.seq, "such that seq % ring_size is the slot", |seq| seq % u64::from(ring_size) == to_u64(index) || header.epoch == 0);
                check!(finder, words: SlotWords.written_bytes, "at most frame_size_bytes", |bytes| bytes <= size);
            }
            check!(finder, words: SlotWords.ack_bitmap, "bits 1 to 31", |bits| bits & !BITS == 0);
            check!(finder, words: SlotWords.lease_bitmap, "bits of subscribers", |bits| bits & !live == 0);
            finder.zeros(
                core::slice::from_ref(&words.reserved_a),
                offset_of!(SlotWords<AtomicU64>, reserved_a),
            );
            finder.zeros(&words.reserved_b, offset_of!(SlotWords<AtomicU64>, reserved_b));
        }
    }

    fn subscriber_faults(&self, faults: &mut Vec<Fault>) {
        let (newest, active) = (self.newest(), self.active());
        for (bit, words) in self.words.subscribers.iter().enumerate() {
            let base = offset_of!(RegionWords<AtomicU64>, subscribers)
                + bit * size_of::<SubscriberWords<AtomicU64>>();
            let mut finder = Finder { faults, of: Some((Part::Subscriber, bit)), base };
            check!(finder, words: SubscriberWords.state, "0 to 3", |state| state <= subscriber_state::DRAINING);
            if bit == 0 {
                check!(finder, words: SubscriberWords.state, "0: this bit is never assigned", |state| state == 0);
            }
            let is_active = (active & BITS) >> bit & 1 == 1;
            check!(finder, words: SubscriberWords.state, "2 if and only if the bit is in subscriber_bitmap", |state| (state == subscriber_state::ACTIVE) == is_active);
            if is_active {
                check!(finder, words: SubscriberWords.last_seen_seq, "not newer than global_seq", |seq| seq <= newest);
            }
            check!(finder, words: SubscriberWords.wake_mode, "0 or 1", |mode| mode <= 1);
            check!(finder, words: SubscriberWords.parked, "0 or 1", |parked| parked <= 1);
            finder.zeros(&words.reserved, offset_of!(SubscriberWords<AtomicU64>, reserved));
        }
    }

    /// Bit per subscriber that is there, also one whose bit is not free yet.
    fn live(&self) -> u64 {
        self.subscribers().map(|subscriber| subscriber.mask()).fold(0, |bits, mask| bits | mask)
    }
}

/// The bits that are assigned (§2.3).
const BITS: u64 = (1 << SUBSCRIBERS) - 2;
