//! Where each field of the region lies (§2), generic over the word; the asserts below check every offset and size.
//!
//! Pairs of 32-bit fields share one word: the first is the low half (little-endian). `slots` always has 16 entries (D-1).

use core::array;
use core::iter;
use core::mem::{offset_of, size_of};
use core::sync::atomic::{AtomicU64, Ordering};

use super::word::Word;

/// Bytes of a region of version 1 (D-1).
pub const REGION_SIZE: usize = 0x1D00;
/// Words of a region.
pub const REGION_WORDS: usize = REGION_SIZE / size_of::<u64>();
/// Slots in a region, used or not (D-1).
pub const SLOTS: usize = 16;
/// Subscriber slots in a region; number 0 is never assigned (§2.3).
pub const SUBSCRIBERS: usize = 32;
/// First bytes of a region (§2).
pub const MAGIC: u32 = 0xCC7C_1DCC;
/// `slot.seq` of a slot without a frame (§2.2).
pub const INVALID_SEQ: u64 = u64::MAX;

/// The whole region (§2).
#[derive(Debug)]
#[repr(C)]
pub struct RegionWords<W> {
    /// The header.
    pub header: HeaderWords<W>,
    /// Slot descriptors; those from `ring_size` on are not used (D-1).
    pub slots: [SlotWords<W>; SLOTS],
    /// Subscriber slots, by bit.
    pub subscribers: [SubscriberWords<W>; SUBSCRIBERS],
}

/// The header (§2), 256 bytes.
#[derive(Debug)]
#[repr(C)]
pub struct HeaderWords<W> {
    /// `magic`, `proto_version`.
    pub magic_version: W,
    /// `lib_version_major`, `lib_version_minor`.
    pub lib_major_minor: W,
    /// `lib_version_patch`, `reserved_a`.
    pub lib_patch: W,
    /// `producer_pid`.
    pub producer_pid: W,
    /// `ring_size`, 1..=16.
    pub ring_size: W,
    /// `ownership_mode`.
    pub ownership_mode: W,
    /// `policy`.
    pub policy: W,
    /// `max_subscribers`, 32.
    pub max_subscribers: W,
    /// `meta` (§2.1).
    pub meta: [W; 8],
    /// `ipc_event_handle`, 64 opaque bytes.
    pub ipc_event_handle: [W; 8],
    /// `global_seq`: the newest published sequence number, 0 before the first.
    pub global_seq: W,
    /// `subscriber_bitmap`: bit per active subscriber.
    pub subscriber_bitmap: W,
    /// `shutdown_flag`: 1 while the publisher shuts down.
    pub shutdown_flag: W,
    /// X: features that the publisher honours.
    pub features: W,
    /// X: where frames live.
    pub backend: W,
    /// X: random non-zero number of this publisher.
    pub epoch: W,
    /// 1 while the publisher sleeps until somebody acknowledges or releases.
    pub publisher_parked: W,
    /// Written 0.
    pub reserved_b: W,
}

/// A slot descriptor (§2.2), 192 bytes.
#[derive(Debug)]
#[repr(C)]
pub struct SlotWords<W> {
    /// `seq` of the frame in the slot, [`INVALID_SEQ`] if there is none.
    pub seq: W,
    /// `pts_ns`, signed.
    pub pts_ns: W,
    /// `ack_bitmap`: bit per subscriber that is done with the frame.
    pub ack_bitmap: W,
    /// `written_bytes`: valid bytes of this frame (D-35).
    pub written_bytes: W,
    /// `cuda_mem_handle`, 64 opaque bytes.
    pub mem_handle: [W; 8],
    /// `cuda_ptr_external`, informative.
    pub cuda_ptr_external: [W; 4],
    /// bit per subscriber that holds a lease of the slot.
    pub lease_bitmap: W,
    /// Written 0.
    pub reserved_a: W,
    /// where the frame starts in the allocation, in bytes.
    pub mem_offset: W,
    /// Written 0.
    pub reserved_b: [W; 5],
}

/// A subscriber slot (§2.3), 128 bytes.
#[derive(Debug)]
#[repr(C)]
pub struct SubscriberWords<W> {
    /// `state`: see [`subscriber_state`].
    pub state: W,
    /// `consumer_pid`, from the socket's peer credentials (D-9).
    pub consumer_pid: W,
    /// `last_seen_seq`: the newest frame the subscriber is done with (D-5).
    pub last_seen_seq: W,
    /// `last_ack_ns`, CLOCK_MONOTONIC, informative (D-8).
    pub last_ack_ns: W,
    /// `consumer_name`: ASCII, at most 31 bytes and a zero.
    pub consumer_name: [W; 4],
    /// 1 if the subscriber sets `parked` before it sleeps.
    pub wake_mode: W,
    /// 1 while the subscriber sleeps.
    pub parked: W,
    /// how often the bit was assigned: whose bit it is now.
    pub term: W,
    /// Written 0.
    pub reserved: [W; 5],
}

/// Values of a subscriber slot's `state` (§2.3).
pub mod subscriber_state {
    /// Not assigned.
    pub const FREE: u64 = 0;
    /// SUBSCRIBE_REQ was accepted (D-26).
    pub const CONNECTING: u64 = 1;
    /// SUBSCRIBE_RESP is about to be sent or was sent (D-26).
    pub const ACTIVE: u64 = 2;
    /// The subscriber left and its bit may still be written (D-19).
    pub const DRAINING: u64 = 3;
}

impl<W: Word> RegionWords<W> {
    /// A region as fresh memory: all zero.
    #[must_use]
    pub fn zeroed() -> Self {
        Self::of(&mut iter::repeat(0))
    }

    /// A region of these values, in the order of the words; zero where there are no more.
    #[must_use]
    pub fn of(values: &mut impl Iterator<Item = u64>) -> Self {
        Self {
            header: HeaderWords::of(values),
            slots: array::from_fn(|_| SlotWords::of(values)),
            subscribers: array::from_fn(|_| SubscriberWords::of(values)),
        }
    }
}

impl<W: Word> HeaderWords<W> {
    /// A header of zeros.
    #[must_use]
    pub fn zeroed() -> Self {
        Self::of(&mut iter::repeat(0))
    }

    /// These values, in the order of the words; zero where there are no more.
    fn of(values: &mut impl Iterator<Item = u64>) -> Self {
        Self {
            magic_version: next(values),
            lib_major_minor: next(values),
            lib_patch: next(values),
            producer_pid: next(values),
            ring_size: next(values),
            ownership_mode: next(values),
            policy: next(values),
            max_subscribers: next(values),
            meta: nexts(values),
            ipc_event_handle: nexts(values),
            global_seq: next(values),
            subscriber_bitmap: next(values),
            shutdown_flag: next(values),
            features: next(values),
            backend: next(values),
            epoch: next(values),
            publisher_parked: next(values),
            reserved_b: next(values),
        }
    }
}

impl<W: Word> SlotWords<W> {
    /// A slot of zeros.
    #[must_use]
    pub fn zeroed() -> Self {
        Self::of(&mut iter::repeat(0))
    }

    /// These values, in the order of the words; zero where there are no more.
    fn of(values: &mut impl Iterator<Item = u64>) -> Self {
        Self {
            seq: next(values),
            pts_ns: next(values),
            ack_bitmap: next(values),
            written_bytes: next(values),
            mem_handle: nexts(values),
            cuda_ptr_external: nexts(values),
            lease_bitmap: next(values),
            reserved_a: next(values),
            mem_offset: next(values),
            reserved_b: nexts(values),
        }
    }
}

impl<W: Word> SubscriberWords<W> {
    /// A subscriber slot of zeros.
    #[must_use]
    pub fn zeroed() -> Self {
        Self::of(&mut iter::repeat(0))
    }

    /// These values, in the order of the words; zero where there are no more.
    fn of(values: &mut impl Iterator<Item = u64>) -> Self {
        Self {
            state: next(values),
            consumer_pid: next(values),
            last_seen_seq: next(values),
            last_ack_ns: next(values),
            consumer_name: nexts(values),
            wake_mode: next(values),
            parked: next(values),
            term: next(values),
            reserved: nexts(values),
        }
    }
}

/// Copies words out as little-endian bytes, one relaxed load each.
pub fn copy_out<W: Word, const N: usize>(words: &[W; N], bytes: &mut [u8]) {
    for (word, chunk) in words.iter().zip(bytes.chunks_exact_mut(size_of::<u64>())) {
        chunk.copy_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
    }
}

/// Stores little-endian bytes into words, one relaxed store each; missing bytes are zero.
pub fn copy_in<W: Word, const N: usize>(words: &[W; N], bytes: &[u8]) {
    for (word, value) in words.iter().zip(values(bytes)) {
        word.store(value, Ordering::Relaxed);
    }
}

/// Stores `value` where it does not stand already; 1 if it did not.
pub(crate) fn restore<W: Word>(word: &W, value: u64) -> usize {
    if word.load(Ordering::Relaxed) == value {
        return 0;
    }
    word.store(value, Ordering::Release);
    1
}

/// As [`restore`], for little-endian bytes; missing ones are zero. How many words were wrong.
pub(crate) fn restore_bytes<W: Word, const N: usize>(words: &[W; N], bytes: &[u8]) -> usize {
    words.iter().zip(values(bytes)).map(|(word, value)| restore(word, value)).sum()
}

/// Little-endian bytes as the values of words, and zeros after them.
fn values(bytes: &[u8]) -> impl Iterator<Item = u64> {
    let mut chunks = bytes.chunks(size_of::<u64>());
    iter::repeat_with(move || {
        let mut value = [0; size_of::<u64>()];
        for (to, from) in value.iter_mut().zip(chunks.next().unwrap_or_default()) {
            *to = *from;
        }
        u64::from_le_bytes(value)
    })
}

fn next<W: Word>(values: &mut impl Iterator<Item = u64>) -> W {
    W::new(values.next().unwrap_or(0))
}

fn nexts<W: Word, const N: usize>(values: &mut impl Iterator<Item = u64>) -> [W; N] {
    array::from_fn(|_| next(values))
}

/// Asserts a structure's offsets, in the document's order, and its size.
macro_rules! assert_layout {
    ($type:ty, $size:literal, { $($field:ident: $offset:literal),* $(,)? }) => {
        const _: () = {
            $( assert!(offset_of!($type, $field) == $offset, concat!(stringify!($field), " is not where §2 puts it")); )*
            assert!(size_of::<$type>() == $size);
        };
    };
}

assert_layout!(HeaderWords<AtomicU64>, 0x100, {
    magic_version: 0x00, lib_major_minor: 0x08, lib_patch: 0x10, producer_pid: 0x18, ring_size: 0x20,
    ownership_mode: 0x28, policy: 0x30, max_subscribers: 0x38, meta: 0x40, ipc_event_handle: 0x80, global_seq: 0xC0,
    subscriber_bitmap: 0xC8, shutdown_flag: 0xD0, features: 0xD8, backend: 0xE0, epoch: 0xE8, publisher_parked: 0xF0,
    reserved_b: 0xF8,
});
assert_layout!(SlotWords<AtomicU64>, 0xC0, {
    seq: 0x00, pts_ns: 0x08, ack_bitmap: 0x10, written_bytes: 0x18, mem_handle: 0x20, cuda_ptr_external: 0x60,
    lease_bitmap: 0x80, reserved_a: 0x88, mem_offset: 0x90, reserved_b: 0x98,
});
assert_layout!(SubscriberWords<AtomicU64>, 0x80, {
    state: 0x00, consumer_pid: 0x08, last_seen_seq: 0x10, last_ack_ns: 0x18, consumer_name: 0x20, wake_mode: 0x40,
    parked: 0x48, term: 0x50, reserved: 0x58,
});
assert_layout!(RegionWords<AtomicU64>, 0x1D00, { header: 0x00, slots: 0x100, subscribers: 0xD00 });
const _: () = assert!(size_of::<RegionWords<AtomicU64>>() == REGION_SIZE && cfg!(target_endian = "little"));
