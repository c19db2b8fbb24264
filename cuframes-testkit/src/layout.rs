//! Every word of a region at the offset that §2 of the protocol gives it, written down from the document and not from the
//! code.

use std::array::from_ref;

use cuframes_core::shm::layout::{SLOTS, SUBSCRIBERS};
use cuframes_core::shm::{HeaderWords, Region, SlotWords, SubscriberWords, Word};

/// Bytes of a region (D-1).
pub const SIZE: usize = 0x1D00;
/// Where `global_seq` lies.
pub const GLOBAL_SEQ: usize = 0xC0;
/// Where `subscriber_bitmap` lies.
pub const SUBSCRIBER_BITMAP: usize = 0xC8;
/// Where `shutdown_flag` lies.
pub const SHUTDOWN_FLAG: usize = 0xD0;
/// Where `features` lies.
pub const FEATURES: usize = 0xD8;

/// Where the descriptor of a slot begins (§2.2).
#[must_use]
pub const fn slot(index: usize) -> usize {
    0x100 + 0xC0 * index
}

/// Where the subscriber slot of a bit begins (§2.3).
#[must_use]
pub const fn subscriber(bit: usize) -> usize {
    0xD00 + 0x80 * bit
}

/// All words of a region with their offsets, in ascending order.
pub fn words<R: Region>(region: &R) -> Vec<(usize, &R::Word)> {
    let slots = (0..SLOTS).flat_map(|index| at(slot(index), slot_fields(region.slot(index))));
    let subscribers =
        (0..SUBSCRIBERS).flat_map(|bit| at(subscriber(bit), subscriber_fields(region.subscriber(bit))));
    at(0, header_fields(region.header())).chain(slots).chain(subscribers).collect()
}

/// The word at an offset.
///
/// # Panics
/// If there is none.
pub fn word<R: Region>(region: &R, offset: usize) -> &R::Word {
    let found = words(region).into_iter().find(|(at, _)| *at == offset);
    found.unwrap_or_else(|| panic!("no word at {offset:#06x}")).1
}

/// A field of one or more words, and where it begins in its structure.
type Field<'a, W> = (usize, &'a [W]);

fn header_fields<W: Word>(header: &HeaderWords<W>) -> Vec<Field<'_, W>> {
    vec![
        (0x00, from_ref(&header.magic_version)),
        (0x08, from_ref(&header.lib_major_minor)),
        (0x10, from_ref(&header.lib_patch)),
        (0x18, from_ref(&header.producer_pid)),
        (0x20, from_ref(&header.ring_size)),
        (0x28, from_ref(&header.ownership_mode)),
        (0x30, from_ref(&header.policy)),
        (0x38, from_ref(&header.max_subscribers)),
        (0x40, &header.meta),
        (0x80, &header.ipc_event_handle),
        (0xC0, from_ref(&header.global_seq)),
        (0xC8, from_ref(&header.subscriber_bitmap)),
        (0xD0, from_ref(&header.shutdown_flag)),
        (0xD8, from_ref(&header.features)),
        (0xE0, from_ref(&header.backend)),
        (0xE8, from_ref(&header.epoch)),
        (0xF0, from_ref(&header.publisher_parked)),
        (0xF8, from_ref(&header.reserved_b)),
    ]
}

fn slot_fields<W: Word>(slot: &SlotWords<W>) -> Vec<Field<'_, W>> {
    vec![
        (0x00, from_ref(&slot.seq)),
        (0x08, from_ref(&slot.pts_ns)),
        (0x10, from_ref(&slot.ack_bitmap)),
        (0x18, from_ref(&slot.written_bytes)),
        (0x20, &slot.mem_handle),
        (0x60, &slot.cuda_ptr_external),
        (0x80, from_ref(&slot.lease_bitmap)),
        (0x88, from_ref(&slot.reserved_a)),
        (0x90, from_ref(&slot.mem_offset)),
        (0x98, &slot.reserved_b),
    ]
}

fn subscriber_fields<W: Word>(subscriber: &SubscriberWords<W>) -> Vec<Field<'_, W>> {
    vec![
        (0x00, from_ref(&subscriber.state)),
        (0x08, from_ref(&subscriber.consumer_pid)),
        (0x10, from_ref(&subscriber.last_seen_seq)),
        (0x18, from_ref(&subscriber.last_ack_ns)),
        (0x20, &subscriber.consumer_name),
        (0x40, from_ref(&subscriber.wake_mode)),
        (0x48, from_ref(&subscriber.parked)),
        (0x50, from_ref(&subscriber.term)),
        (0x58, &subscriber.reserved),
    ]
}

/// The words of the fields of a structure that begins at `base`.
fn at<W>(base: usize, fields: Vec<Field<'_, W>>) -> impl Iterator<Item = (usize, &W)> {
    fields.into_iter().flat_map(move |(offset, words)| (base + offset..).step_by(8).zip(words))
}
