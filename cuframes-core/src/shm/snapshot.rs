//! [`Snapshot`]: a copy of a region, decoded for programs that only look (§2).
//!
//! Such a program reads the file and maps nothing: it can't disturb anybody, and a region that is shortened meanwhile is an
//! error like any other. The words of a copy were not all read at one moment; what a [`Fault`] says of a stream that
//! flows may be over already, so look twice.

use alloc::string::String;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

use super::header::{SlotMemory, StreamHeader};
use super::layout::{INVALID_SEQ, REGION_SIZE, RegionWords, SUBSCRIBERS, copy_out, subscriber_state};
use super::region::Region;
use crate::config::RingSize;
use crate::error::{Place, Problem, Violation};
use crate::number::to_u64;

mod faults;
mod words;

pub use faults::{Fault, Part};
pub use words::NamedWord;

/// A copy of a region.
#[derive(Debug)]
pub struct Snapshot {
    words: RegionWords<AtomicU64>,
}

/// What a region says about a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct SlotState {
    /// Which slot, from 0.
    pub slot: usize,
    /// The number of its frame; `None` if there is none, or it is being written.
    pub seq: Option<u64>,
    /// The frame's time stamp in nanoseconds.
    pub pts_ns: i64,
    /// Valid bytes of the frame (D-35).
    pub written_bytes: u64,
    /// Bit per subscriber that is done with the frame, where acknowledgements are bits (D-5).
    pub acks: u64,
    /// Bit per subscriber that holds a lease of it.
    pub leases: u64,
    /// Where its memory is.
    pub memory: SlotMemory,
}

/// What a region says about a subscriber.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct SubscriberState {
    /// Its bit.
    pub bit: u8,
    /// One of [`subscriber_state`]; not `FREE`.
    pub state: u64,
    /// Its process, in the publisher's pid namespace; 0 if that can't see it (D-9).
    pub pid: u64,
    /// Its name (D-16).
    pub name: String,
    /// The newest frame that it is done with (D-5).
    pub last_seen: u64,
    /// When it said so last, in nanoseconds of `CLOCK_MONOTONIC` and no newer than that; 0 if it never did (D-8).
    pub last_ack_ns: u64,
    /// Whether it says when it sleeps.
    pub says_when_it_sleeps: bool,
    /// Whether it sleeps.
    pub is_parked: bool,
    /// How often its bit was assigned.
    pub term: u64,
}

impl SubscriberState {
    /// Whether it is subscribed: not about to be, and not about to be forgotten.
    #[must_use]
    pub const fn is_active(&self) -> bool {
        self.state == subscriber_state::ACTIVE
    }

    /// Its bit in the bitmaps.
    #[must_use]
    pub const fn mask(&self) -> u64 {
        1 << self.bit
    }
}

impl Snapshot {
    /// The first bytes of a region's file.
    ///
    /// # Errors
    /// There are fewer than a region has.
    pub fn of(bytes: &[u8]) -> Result<Self, Violation> {
        let Some(bytes) = bytes.get(..REGION_SIZE) else {
            let problem = Problem::Truncated { needed: to_u64(REGION_SIZE), available: to_u64(bytes.len()) };
            return Err(Violation { place: Place::Region, field: "size", problem });
        };
        let (words, _) = bytes.as_chunks();
        Ok(Self { words: RegionWords::of(&mut words.iter().copied().map(u64::from_le_bytes)) })
    }

    /// The static part.
    ///
    /// # Errors
    /// As [`StreamHeader::read`].
    pub fn header(&self) -> Result<StreamHeader, Violation> {
        StreamHeader::read(&self.words)
    }

    /// The number of the newest frame, 0 before the first.
    #[must_use]
    pub fn newest(&self) -> u64 {
        self.words.header.global_seq.load(Relaxed)
    }

    /// Bit per active subscriber.
    #[must_use]
    pub fn active(&self) -> u64 {
        self.words.header.subscriber_bitmap.load(Relaxed)
    }

    /// Whether the publisher is shutting down.
    #[must_use]
    pub fn is_shutting_down(&self) -> bool {
        self.words.header.shutdown_flag.load(Relaxed) != 0
    }

    /// Whether the publisher sleeps until somebody acknowledges or releases.
    #[must_use]
    pub fn is_publisher_parked(&self) -> bool {
        self.words.header.publisher_parked.load(Relaxed) == 1
    }

    /// The slots in use; all that there are, if the header does not say how many.
    pub fn slots(&self) -> impl Iterator<Item = SlotState> {
        let ring_size = RingSize::new(self.words.header.ring_size.load(Relaxed));
        let slots = ring_size.map_or(self.words.slots.len(), |size| size.get().into());
        self.words.slots.iter().take(slots).enumerate().map(|(slot, words)| SlotState {
            slot,
            seq: Some(words.seq.load(Relaxed)).filter(|seq| *seq != INVALID_SEQ),
            pts_ns: words.pts_ns.load(Relaxed).cast_signed(),
            written_bytes: words.written_bytes.load(Relaxed),
            acks: words.ack_bitmap.load(Relaxed),
            leases: words.lease_bitmap.load(Relaxed),
            memory: SlotMemory::read(&self.words, slot),
        })
    }

    /// The newest frame's slot.
    #[must_use]
    pub fn newest_slot(&self) -> Option<SlotState> {
        self.slots().filter(|slot| slot.seq.is_some()).max_by_key(|slot| slot.seq)
    }

    /// The subscribers, in whatever state; those whose bit is free are none.
    pub fn subscribers(&self) -> impl Iterator<Item = SubscriberState> {
        (0..SUBSCRIBERS).zip(0_u8..).filter_map(|(index, bit)| {
            let words = self.words.subscriber(index);
            let state = words.state.load(Relaxed);
            let mut name = [0; 32];
            copy_out(&words.consumer_name, &mut name);
            (state != subscriber_state::FREE).then(|| SubscriberState {
                bit,
                state,
                pid: words.consumer_pid.load(Relaxed),
                name: text(&name),
                last_seen: words.last_seen_seq.load(Relaxed),
                last_ack_ns: words.last_ack_ns.load(Relaxed),
                says_when_it_sleeps: words.wake_mode.load(Relaxed) == 1,
                is_parked: words.parked.load(Relaxed) == 1,
                term: words.term.load(Relaxed),
            })
        })
    }

    /// How many slots a subscriber holds a lease of.
    #[must_use]
    pub fn leases_of(&self, subscriber: &SubscriberState) -> usize {
        self.slots().filter(|slot| slot.leases & subscriber.mask() != 0).count()
    }

    /// How many frames a subscriber is behind the newest one; `None` if it has acknowledged nothing since it joined, as one
    /// that takes frames by their numbers only.
    #[must_use]
    pub fn lag_of(&self, subscriber: &SubscriberState) -> Option<u64> {
        (subscriber.last_ack_ns != 0).then(|| self.newest().saturating_sub(subscriber.last_seen))
    }
}

/// A name up to the zero at its end; what is no printable ASCII is `?`, since it goes to terminals.
fn text(bytes: &[u8]) -> String {
    let printable = |byte: &u8| if matches!(byte, b' '..=b'~') { char::from(*byte) } else { '?' };
    bytes.iter().take_while(|byte| **byte != 0).map(printable).collect()
}

#[cfg(test)]
mod tests;
