//! Pinned host memory, of `cuMemAllocHost`: [`PinnedSlice`]. It is made of atomic bytes, because work on a stream reads and
//! writes it when it runs, whatever the program does to it meanwhile.

use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use crate::code::{Code, Result};
use crate::driver::Call;
use crate::memory::NEW_MEMORY;
use crate::storage::{u64_of, usize_of};

/// A part of pinned host memory.
#[derive(Clone, Debug)]
pub struct PinnedSlice {
    pages: Arc<[Page]>,
    start: usize,
    len: usize,
}

impl PinnedSlice {
    /// Its address, which the host may use.
    #[must_use]
    pub fn address(&self) -> u64 {
        u64_of(self.pages.as_ptr().expose_provenance() + self.start)
    }

    /// As [`PinnedSlice::address`], as what C wants.
    pub(crate) fn as_ptr(&self) -> *mut std::ffi::c_void {
        ptr::with_exposed_provenance_mut(self.pages.as_ptr().expose_provenance() + self.start)
    }

    /// Its bytes.
    pub(crate) fn len(&self) -> u64 {
        u64_of(self.len)
    }

    /// Writes from `offset` on; what does not fit is left out.
    pub fn write(&self, offset: u64, bytes: &[u8]) {
        for (cell, byte) in self.cells().skip(usize_of(offset)).zip(bytes) {
            cell.store(*byte, Ordering::Relaxed);
        }
    }

    /// Reads up to `len` bytes from `offset` on.
    #[must_use]
    pub fn read(&self, offset: u64, len: u64) -> Vec<u8> {
        let cells = self.cells().skip(usize_of(offset)).take(usize_of(len));
        cells.map(|cell| cell.load(Ordering::Relaxed)).collect()
    }

    fn cells(&self) -> impl Iterator<Item = &AtomicU8> {
        self.pages.iter().flat_map(|page| &page.0).skip(self.start).take(self.len)
    }
}

/// One allocation.
#[derive(Debug)]
pub(crate) struct Pinned {
    /// A number that no other memory of this process ever has.
    pub(crate) id: u64,
    /// Ordinal of the device whose context it belongs to.
    pub(crate) device: usize,
    whole: PinnedSlice,
}

impl Pinned {
    /// Bytes.
    pub(crate) fn size(&self) -> u64 {
        self.whole.len()
    }
}

/// As the operating system hands memory out: aligned for everything.
#[derive(Debug)]
#[repr(align(4096))]
struct Page([AtomicU8; PAGE]);

impl Call<'_> {
    /// `cuMemAllocHost`.
    ///
    /// # Errors
    /// [`Code::INVALID_VALUE`] for 0 bytes.
    pub fn mem_alloc_host(&self, size: u64) -> Result<PinnedSlice> {
        if size == 0 {
            return Err(Code::INVALID_VALUE);
        }
        let len = usize_of(size);
        let pages = (0..len.div_ceil(PAGE)).map(|_| Page([const { AtomicU8::new(NEW_MEMORY) }; PAGE]));
        let whole = PinnedSlice { pages: pages.collect(), start: 0, len };
        let mut state = self.state();
        let pinned = Pinned { id: state.new_id(), device: self.current, whole: whole.clone() };
        state.pinned.insert(whole.address(), pinned);
        Ok(whole)
    }

    /// `cuMemFreeHost`, which waits for the device. It is a violation to free what work on a stream uses.
    ///
    /// # Errors
    /// [`Code::INVALID_VALUE`] for what is not of `cuMemAllocHost`, [`Code::TIMEOUT`] if a stream does not get on.
    pub fn mem_free_host(&self, address: u64) -> Result<()> {
        let refuse = || {
            self.violation(&format!("{address:#x} is not pinned host memory"));
            Code::INVALID_VALUE
        };
        let state = self.state();
        let found = state.pinned.get(&address);
        let found = found.map(|pinned| (pinned.device, Arc::strong_count(&pinned.whole.pages) > 1));
        drop(state);
        let (device, is_in_use) = found.ok_or_else(refuse)?;
        if is_in_use {
            self.violation(&format!("{address:#x} while work on a stream uses it"));
        }
        self.wait_for_device(device)?;
        self.state().pinned.remove(&address).map(drop).ok_or_else(refuse)
    }

    /// The pinned memory that begins at this address, if it is pinned.
    ///
    /// # Errors
    /// [`Code::INVALID_VALUE`] if it is too short.
    pub fn pinned(&self, address: u64, len: u64) -> Result<Option<PinnedSlice>> {
        let state = self.state();
        let Some((base, pinned)) = state.pinned.range(..=address).next_back() else { return Ok(None) };
        let start = usize_of(address - base);
        if start >= pinned.whole.len {
            return Ok(None);
        }
        if usize_of(len) > pinned.whole.len - start {
            self.violation(&format!("{len} bytes at {address:#x} end behind the pinned memory"));
            return Err(Code::INVALID_VALUE);
        }
        Ok(Some(PinnedSlice { start, len: usize_of(len), ..pinned.whole.clone() }))
    }
}

const PAGE: usize = 4096;
