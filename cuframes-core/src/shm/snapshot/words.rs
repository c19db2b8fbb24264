//! [`NamedWord`]: every word of a region, with its place and its name.

use alloc::vec::Vec;
use core::mem::offset_of;
use core::slice;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

use super::{Part, Snapshot};
use crate::shm::layout::{HeaderWords, RegionWords, SlotWords, SubscriberWords};

/// A word of a region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct NamedWord {
    /// Where it is in the region, in bytes from its start.
    pub offset: usize,
    /// Slot or subscriber that it is of; `None` in the header.
    pub of: Option<(Part, usize)>,
    /// Its field as the document names it; two where a word has two.
    pub field: &'static str,
    /// Its value.
    pub value: u64,
}

/// A field as the words that it has.
trait Field {
    fn words(&self) -> &[AtomicU64];
}

impl Field for AtomicU64 {
    fn words(&self) -> &[AtomicU64] {
        slice::from_ref(self)
    }
}

impl<const N: usize> Field for [AtomicU64; N] {
    fn words(&self) -> &[AtomicU64] {
        self
    }
}

/// The words of the fields of `words`, which begins at `base`.
macro_rules! named {
    ($base:expr, $of:expr, $words:ident: $type:ident { $($field:ident => $name:literal),* $(,)? }) => {
        [$(
            ($base + offset_of!($type<AtomicU64>, $field), $of, $name, Field::words(&$words.$field)),
        )*]
        .into_iter()
        .flat_map(|(offset, of, field, words)| {
            (offset..).step_by(size_of::<u64>()).zip(words).map(move |(offset, word)| {
                NamedWord { offset, of, field, value: word.load(Relaxed) }
            })
        })
    };
}

impl Snapshot {
    /// Every word, in order.
    #[must_use]
    pub fn words(&self) -> Vec<NamedWord> {
        let RegionWords { header, slots, subscribers } = &self.words;
        let mut words = Vec::new();
        words.extend(named!(offset_of!(RegionWords<AtomicU64>, header), None, header: HeaderWords {
            magic_version => "magic, proto_version",
            lib_major_minor => "lib_version_major, lib_version_minor",
            lib_patch => "lib_version_patch",
            producer_pid => "producer_pid",
            ring_size => "ring_size",
            ownership_mode => "ownership_mode",
            policy => "policy",
            max_subscribers => "max_subscribers",
            meta => "meta",
            ipc_event_handle => "ipc_event_handle",
            global_seq => "global_seq",
            subscriber_bitmap => "subscriber_bitmap",
            shutdown_flag => "shutdown_flag",
            features => "features",
            backend => "backend",
            epoch => "epoch",
            publisher_parked => "publisher_parked",
            reserved_b => "reserved",
        }));
        for (index, slot) in slots.iter().enumerate() {
            let base = offset_of!(RegionWords<AtomicU64>, slots) + index * size_of::<SlotWords<AtomicU64>>();
            words.extend(named!(base, Some((Part::Slot, index)), slot: SlotWords {
                seq => "seq",
                pts_ns => "pts_ns",
                ack_bitmap => "ack_bitmap",
                written_bytes => "written_bytes",
                mem_handle => "cuda_mem_handle",
                cuda_ptr_external => "cuda_ptr_external",
                lease_bitmap => "lease_bitmap",
                reserved_a => "reserved",
                mem_offset => "mem_offset",
                reserved_b => "reserved",
            }));
        }
        for (bit, subscriber) in subscribers.iter().enumerate() {
            let base = offset_of!(RegionWords<AtomicU64>, subscribers)
                + bit * size_of::<SubscriberWords<AtomicU64>>();
            words.extend(named!(base, Some((Part::Subscriber, bit)), subscriber: SubscriberWords {
                state => "state",
                consumer_pid => "consumer_pid",
                last_seen_seq => "last_seen_seq",
                last_ack_ns => "last_ack_ns",
                consumer_name => "consumer_name",
                wake_mode => "wake_mode",
                parked => "parked",
                term => "term",
                reserved => "reserved",
            }));
        }
        words
    }
}
