//! The static part of the region (§2): written once by the publisher, copied out and validated once by a subscriber.
//!
//! After that copy a subscriber never looks at the static part again, so a peer that scribbles over it changes nothing
//! (D-23).

use core::sync::atomic::Ordering::Relaxed;

use super::layout::{INVALID_SEQ, MAGIC, SLOTS, SUBSCRIBERS, copy_out, restore, restore_bytes};
use super::region::Region;
use super::word::Word;
use crate::config::{Backend, Features, Ownership, Policy, RingSize};
use crate::error::{Place, Problem, Violation};
use crate::gpu::{EventHandle, MemHandle};
use crate::number::to_u64;
use crate::wire::PROTO_VERSION;
use crate::wire::meta::FrameMeta;

/// What a region says about its stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StreamHeader {
    /// Version of the publisher's library: major, minor, patch; informative (§6.2).
    pub lib_version: [u32; 3],
    /// The publisher's process.
    pub producer_pid: u64,
    /// Slots in use.
    pub ring_size: RingSize,
    /// Who allocated the frames.
    pub ownership: Ownership,
    /// What the publisher does about slow subscribers.
    pub policy: Policy,
    /// Geometry of every frame.
    pub meta: FrameMeta,
    /// The publisher's event, if its backend has one.
    pub ipc_event_handle: EventHandle,
    /// Features that the publisher honours; none from a plain v1 publisher.
    pub features: Features,
    /// Where frames live.
    pub backend: Backend,
    /// Random number of this publisher; 0 from a plain v1 publisher.
    pub epoch: u64,
}

/// How a subscriber reaches the memory of one slot (§2.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SlotMemory {
    /// `cuda_mem_handle`: what it means depends on the backend.
    pub handle: MemHandle,
    /// `cuda_ptr_external`, informative.
    pub ptr_external: [u8; 32],
    /// where the frame starts in what the handle opens, in bytes.
    pub offset: u64,
}

impl StreamHeader {
    /// Writes the header of a fresh region, all zero until now; every slot becomes invalid (D-1).
    pub fn write(&self, region: &impl Region) {
        for slot in 0..SLOTS {
            region.slot(slot).seq.store(INVALID_SEQ, Relaxed);
        }
        self.restore(region);
    }

    /// Writes the header again where somebody has written over it, and returns how many words that were: others may
    /// write the region, and whoever attaches later needs a good one (D-23).
    pub fn restore(&self, region: &impl Region) -> usize {
        let header = region.header();
        let [major, minor, patch] = self.lib_version;
        let words = [
            (&header.lib_major_minor, pair(major, minor)),
            (&header.lib_patch, pair(patch, 0)),
            (&header.producer_pid, self.producer_pid),
            (&header.ring_size, self.ring_size.get().into()),
            (&header.ownership_mode, self.ownership.0.into()),
            (&header.policy, self.policy.0),
            (&header.max_subscribers, to_u64(SUBSCRIBERS)),
            (&header.features, self.features.0.into()),
            (&header.backend, self.backend.0),
            (&header.epoch, self.epoch),
            // Last: who finds it finds the rest.
            (&header.magic_version, pair(MAGIC, PROTO_VERSION)),
        ];
        restore_bytes(&header.meta, &self.meta.to_bytes())
            + restore_bytes(&header.ipc_event_handle, &self.ipc_event_handle.0)
            + words.into_iter().map(|(word, value)| restore(word, value)).sum::<usize>()
    }

    /// Copies the header out of a region and validates the copy.
    ///
    /// # Errors
    /// The [`Violation`] names the field: wrong magic or version, a ring size outside 1..=16, a geometry that does not
    /// hold together. An unknown policy, ownership or backend is returned as it is.
    pub fn read(region: &impl Region) -> Result<Self, Violation> {
        let header = region.header();
        let (magic, version) = halves(header.magic_version.load(Relaxed));
        expect("magic", magic, MAGIC)?;
        expect("proto_version", version, PROTO_VERSION)?;
        let ring_size = header.ring_size.load(Relaxed);
        let ring_size = RingSize::new(ring_size).ok_or_else(|| wrong("ring_size", ring_size))?;
        let mut meta = [0; 64];
        copy_out(&header.meta, &mut meta);
        let meta = FrameMeta::from_bytes(&meta);
        meta.validate().map_err(|error| error.violation(Place::Region))?;
        let mut ipc_event_handle = EventHandle::NONE;
        copy_out(&header.ipc_event_handle, &mut ipc_event_handle.0);
        let (major, minor) = halves(header.lib_major_minor.load(Relaxed));
        Ok(Self {
            lib_version: [major, minor, halves(header.lib_patch.load(Relaxed)).0],
            producer_pid: header.producer_pid.load(Relaxed),
            ring_size,
            ownership: Ownership(halves(header.ownership_mode.load(Relaxed)).0),
            policy: Policy(header.policy.load(Relaxed)),
            meta,
            ipc_event_handle,
            features: Features(halves(header.features.load(Relaxed)).0),
            backend: Backend(header.backend.load(Relaxed)),
            epoch: header.epoch.load(Relaxed),
        })
    }
}

impl SlotMemory {
    /// Writes the static part of slot `index` of a fresh region.
    pub fn write(&self, region: &impl Region, index: usize) {
        self.restore(region, index);
    }

    /// As [`StreamHeader::restore`], for the static part of slot `index`.
    pub fn restore(&self, region: &impl Region, index: usize) -> usize {
        let slot = region.slot(index);
        restore_bytes(&slot.mem_handle, &self.handle.0)
            + restore_bytes(&slot.cuda_ptr_external, &self.ptr_external)
            + restore(&slot.mem_offset, self.offset)
    }

    /// Copies the static part of slot `index` out; nothing in it is validated here.
    pub fn read(region: &impl Region, index: usize) -> Self {
        let slot = region.slot(index);
        let (mut handle, mut ptr_external) = ([0; 64], [0; 32]);
        copy_out(&slot.mem_handle, &mut handle);
        copy_out(&slot.cuda_ptr_external, &mut ptr_external);
        Self { handle: MemHandle(handle), ptr_external, offset: slot.mem_offset.load(Relaxed) }
    }
}

/// Two 32-bit fields in one word, little-endian.
fn pair(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

#[expect(clippy::as_conversions, reason = "takes the two halves of the word")]
const fn halves(word: u64) -> (u32, u32) {
    (word as u32, (word >> 32) as u32)
}

fn expect(field: &'static str, found: u32, expected: u32) -> Result<(), Violation> {
    if found == expected {
        return Ok(());
    }
    let problem = Problem::Mismatch { found: found.into(), expected: expected.into() };
    Err(Violation { place: Place::Region, field, problem })
}

const fn wrong(field: &'static str, value: u64) -> Violation {
    Violation { place: Place::Region, field, problem: Problem::Value { value } }
}
