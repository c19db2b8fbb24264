//! Frames in host memory: one sealed memfd with a slot per frame.
//!
//! [`HostPool`] is the publisher's side. It maps the memory first and then seals it: nobody can make it shorter, so no
//! reader is hit by a SIGBUS, and nobody else can write a frame (P-14). [`HostView`] is the subscriber's side. It takes
//! nothing on trust but one thing: that the publisher leaves a leased frame alone. [`HostMemory`] is both of them
//! as a backend.

mod copy;
mod memory;
mod or;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cuframes_core::error::{Place, Problem};
use cuframes_core::gpu::MemHandle;
use cuframes_core::shm::header::SlotMemory;
use cuframes_core::{Key, Misuse, RingSize, Violation};
use memmap2::{MmapOptions, MmapRaw};
use rustix::param::page_size;

use self::copy::Route;
use crate::error::Error;
use crate::memfd;
use crate::shm::to_u64;

pub use memory::{HostError, HostMemory};
pub use or::{HostOr, HostOrError, HostOrMapping};

/// The publisher's frames. Nobody else can write them.
#[derive(Debug)]
pub struct HostPool {
    fd: OwnedFd,
    map: MmapRaw,
    frame_size: usize,
    /// Bytes from one slot to the next: a multiple of the page size.
    stride: usize,
    slots: usize,
    route: Route,
}

impl HostPool {
    /// A pool of `ring_size` frames of `frame_size` bytes, all zero.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if memory is short, [`Error::Misuse`] if no memory could hold the frames, or an error of the
    /// operating system.
    pub(crate) fn create(key: &Key, frame_size: u64, ring_size: RingSize) -> Result<Self, Error> {
        let slots = usize::from(ring_size.get());
        let sizes = || {
            let frame_size = usize::try_from(frame_size).ok()?;
            let stride = frame_size.max(1).checked_next_multiple_of(page_size())?;
            Some((frame_size, stride, stride.checked_mul(slots)?))
        };
        let (frame_size, stride, len) = sizes().ok_or_else(|| Error::Misuse {
            key: key.clone(),
            misuse: Misuse::Argument { name: "frame_size", must: "such that ring_size frames fit in memory" },
        })?;

        let (fd, path) = memfd::create(&format!("cuframes-{key}"), len)?;
        // All at once, not page by page when the first frames are written.
        let map = MmapOptions::new()
            .len(len)
            .populate()
            .map_raw(&fd)
            .map_err(|error| Error::io("map", &path, error))?;
        memfd::seal(&fd, &path)?;
        Ok(Self { fd, map, frame_size, stride, slots, route: Route::of_ring(len) })
    }

    /// The memory, for subscribers (`EVENT_FD` with purpose 3).
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Where the frame of a slot is. Slots are counted modulo the ring's size.
    pub(crate) fn memory(&self, slot: usize) -> SlotMemory {
        let handle = HostHandle { offset: self.offset(slot), len: self.frame_size }.encode();
        SlotMemory { handle, ptr_external: [0; 32], offset: 0 }
    }

    /// The frame of a slot, to be written once the ring has given the slot to the writer: until then subscribers may be
    /// reading it. Slots are counted modulo the ring's size.
    pub(crate) fn slot_bytes_mut(&mut self, slot: usize) -> &mut [u8] {
        let start = self.map.as_mut_ptr().wrapping_add(self.offset(slot));
        // SAFETY: the map has `slots * stride` bytes, which did not overflow; `offset` is at most `(slots - 1) * stride`
        // and `frame_size` at most `stride`, so these bytes are inside one map, which lives as long as `self` and whose
        // file can't shrink (sealed). They are readable, writable and initialised (the kernel gives zeros). No other
        // reference to them exists: only this function makes references into the map, and it borrows the pool mutably.
        // Nobody else can write them: the seals refuse every other writable map. Subscribers read them through maps of
        // their own, which is no access that this program can observe.
        unsafe { slice::from_raw_parts_mut(start, self.frame_size) }
    }

    /// Where the frame of a slot is in this process.
    fn address(&self, slot: usize) -> u64 {
        to_u64(self.map.as_mut_ptr().wrapping_add(self.offset(slot)).addr())
    }

    fn offset(&self, slot: usize) -> usize {
        // `slots` is not 0: it was a `RingSize`.
        slot % self.slots * self.stride
    }
}

/// The subscriber's view of the memory of one slot. Those of a ring share one map.
#[derive(Clone, Debug)]
pub struct HostView {
    map: Arc<MmapRaw>,
    frame_size: usize,
    /// Where the frame starts in the map: a multiple of 8.
    offset: usize,
}

impl HostView {
    /// Maps the pool that came over the socket. `handles` are those of slots, in order.
    ///
    /// # Errors
    /// [`Error::Violation`] if the memory is not sealed or a handle does not mean a frame inside it, or an error of the
    /// operating system.
    pub(crate) fn open(
        key: &Key,
        fd: &OwnedFd,
        frame_size: u64,
        handles: impl Iterator<Item = MemHandle>,
    ) -> Result<Vec<Self>, Error> {
        let path = Path::new("the publisher's frames");
        let size = memfd::sealed_size(key, fd, path, "seals of the host pool")?;
        let size = usize::try_from(size).unwrap_or(0);
        let frame_size = usize::try_from(frame_size).unwrap_or(usize::MAX);
        let offsets: Result<Vec<usize>, Violation> = handles
            .map(|handle| HostHandle::decode(&handle)?.check(frame_size, size).map(|handle| handle.offset))
            .collect();
        let offsets = offsets.map_err(|violation| Error::violation(key, violation))?;
        // Only what the handles mean is mapped, which may be one frame of many.
        let first = offsets.iter().copied().min().unwrap_or(0);
        let end = offsets.iter().map(|offset| offset + frame_size).max().unwrap_or(0);
        let map = MmapOptions::new().offset(to_u64(first)).len(end - first).map_raw_read_only(fd);
        let map = Arc::new(map.map_err(|error| Error::io("map", path, error))?);
        let view = |offset| Self { map: Arc::clone(&map), frame_size, offset: offset - first };
        Ok(offsets.into_iter().map(view).collect())
    }

    /// At most `len` bytes of the frame, which the caller holds a lease of. Without one this would be a reference
    /// into memory that changes; then only [`HostView::copy_to`] will do.
    pub(crate) fn bytes(&self, len: u64) -> &[u8] {
        let len = usize::try_from(len).map_or(self.frame_size, |len| len.min(self.frame_size));
        // SAFETY: `open` checked that `frame_size` bytes from the offset are inside the file, and mapped them for as long as
        // `map`; the file can't shrink (sealed), so there is memory behind all of them.
        // They are readable, and initialised as file contents always are. That they don't change while the reference
        // lives is the one thing that rests on the publisher: the pool is sealed against every other writer, and the
        // publisher does not write a slot that is leased. It does so only after it has taken the lease back from a
        // subscriber that kept it waiting for too long (D-31). Then the bytes may differ between two reads, every value of
        // a byte is valid, and releasing the frame says that what was read is worth nothing.
        unsafe { slice::from_raw_parts(self.start(), len) }
    }

    /// Copies the start of the frame into `out` and says how many bytes: as many as both have. For a frame without a
    /// lease: the publisher may write meanwhile, so the caller must ask the ring afterwards whether the frame was intact.
    pub(crate) fn copy_to(&self, out: &mut [u8]) -> usize {
        let words = self.words();
        let len = out.len().min(self.frame_size);
        // SYNC POINT: slot-validity. The fence of the check afterwards keeps these loads before it.
        let (chunks, tail) = out.split_at_mut(len).0.as_chunks_mut();
        for (chunk, word) in chunks.iter_mut().zip(words) {
            *chunk = word.load(Ordering::Relaxed).to_ne_bytes();
        }
        if let Some(word) = words.get(chunks.len()) {
            for (to, from) in tail.iter_mut().zip(word.load(Ordering::Relaxed).to_ne_bytes()) {
                *to = from;
            }
        }
        len
    }

    /// The words of the frame; the last one may go beyond it.
    fn words(&self) -> &[AtomicU64] {
        let start = self.start().cast::<AtomicU64>();
        let len = self.frame_size.div_ceil(size_of::<u64>());
        // SAFETY: the bytes of the frame are mapped and backed as in `bytes`. A frame starts at a multiple of 8 in
        // the file, which is mapped by whole pages: so the pointer is aligned, and the last word is in the same page as
        // its first byte. After the end of the file a page holds zeros. Any bit pattern is a valid `AtomicU64`. The map
        // is read-only, but relaxed loads of a pointer's size are allowed there (see "Atomic accesses to read-only
        // memory" in `std::sync::atomic`), and nothing else is done with these words.
        unsafe { slice::from_raw_parts(start, len) }
    }

    fn start(&self) -> *const u8 {
        self.map.as_ptr().wrapping_add(self.offset)
    }

    /// Where the frame is in this process.
    fn address(&self) -> u64 {
        to_u64(self.start().addr())
    }
}

/// Where a frame is in the pool: `cuda_mem_handle` of its slot with backend 1. In bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct HostHandle {
    offset: usize,
    len: usize,
}

impl HostHandle {
    /// `CUFHOST1`, offset, length, and zeros.
    fn encode(self) -> MemHandle {
        MemHandle::tagged(TAG, to_u64(self.offset), to_u64(self.len))
    }

    /// Reads a handle.
    ///
    /// # Errors
    /// It is a handle of another backend.
    fn decode(handle: &MemHandle) -> Result<Self, Violation> {
        let (tag, offset, len) = handle.parts();
        if tag != TAG {
            let (found, expected) = (u64::from_le_bytes(tag), u64::from_le_bytes(TAG));
            return Err(handle_violation(Problem::Mismatch { found, expected }));
        }
        let number = |n| usize::try_from(n).unwrap_or(usize::MAX);
        Ok(Self { offset: number(offset), len: number(len) })
    }

    /// Checks that it means a frame of `frame_size` bytes inside a pool of `size` bytes.
    fn check(self, frame_size: usize, size: usize) -> Result<Self, Violation> {
        let truncated = |needed, available| {
            Err(handle_violation(Problem::Truncated { needed: to_u64(needed), available: to_u64(available) }))
        };
        let end = self.offset.saturating_add(self.len);
        if self.len < frame_size {
            return truncated(frame_size, self.len);
        }
        if end > size {
            return truncated(end, size);
        }
        // Unleased frames are read as words.
        if !self.offset.is_multiple_of(align_of::<AtomicU64>()) {
            return Err(handle_violation(Problem::Value { value: to_u64(self.offset) }));
        }
        Ok(self)
    }
}

fn handle_violation(problem: Problem) -> Violation {
    Violation { place: Place::Region, field: "cuda_mem_handle", problem }
}

/// First bytes of a handle (backend 1).
const TAG: [u8; 8] = *b"CUFHOST1";

#[cfg(test)]
mod tests;
