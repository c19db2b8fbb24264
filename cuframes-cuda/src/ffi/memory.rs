//! Device memory: our own allocations, what a legacy IPC handle opens, and places in either.

use std::ffi::c_uint;
use std::marker::PhantomData;
use std::sync::Arc;

use cudarc::driver::sys::CUipcMemHandle;

use super::unfinished::Remains;
use super::{Context, Failed, Mapped, Stream, from_c, to_c};

/// Bytes of device memory that are there as long as what they belong to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'a> {
    ptr: u64,
    len: usize,
    owner: PhantomData<&'a ()>,
}

impl<'a> Place<'a> {
    pub(super) const fn new(ptr: u64, len: usize) -> Self {
        Self { ptr, len, owner: PhantomData }
    }

    /// Where it starts.
    pub(crate) const fn address(self) -> u64 {
        self.ptr
    }

    pub(crate) const fn len(self) -> usize {
        self.len
    }

    /// `len` bytes of it, from `offset`.
    pub(crate) fn part(self, offset: usize, len: usize) -> Option<Self> {
        (offset.checked_add(len)? <= self.len).then_some(())?;
        Some(Self::new(self.ptr.checked_add(u64::try_from(offset).ok()?)?, len))
    }

    /// Enqueues that all bytes become zero.
    pub(crate) fn zero(self, stream: &Stream) -> Result<(), Failed> {
        let context = stream.context();
        let _bound = context.bind()?;
        let entry = &context.table.cuMemsetD8Async;
        // SAFETY: these are bytes of device memory, and freeing or unmapping them waits, or is the caller's to time; the
        // stream lives as long as its value.
        entry.check(unsafe { (entry.call)(self.ptr, 0, self.len, stream.raw()) })
    }
}

/// Memory from `cuMemAlloc`. Nobody else sees it unless it is exported.
#[derive(Debug)]
pub(crate) struct Allocation {
    context: Arc<Context>,
    ptr: u64,
    len: usize,
    is_freed: bool,
}

impl Allocation {
    pub(crate) fn new(context: &Arc<Context>, len: usize) -> Result<Self, Failed> {
        let _bound = context.bind()?;
        let entry = &context.table.cuMemAlloc_v2;
        let mut ptr = 0;
        // SAFETY: a context is current, and the driver writes an address where there is room for one.
        entry.check(unsafe { (entry.call)(&raw mut ptr, len) })?;
        Ok(Self { context: Arc::clone(context), ptr, len, is_freed: false })
    }

    pub(crate) const fn address(&self) -> u64 {
        self.ptr
    }

    pub(crate) const fn place(&self) -> Place<'_> {
        Place::new(self.ptr, self.len)
    }

    /// Frees it, or keeps it while the context has unfinished work. The driver waits for all streams.
    pub(crate) fn free(mut self) -> Result<(), Failed> {
        self.end()
    }

    fn end(&mut self) -> Result<(), Failed> {
        if std::mem::replace(&mut self.is_freed, true) || !self.context.is_here() {
            return Ok(());
        }
        let Self { context, ptr, len, .. } = &*self;
        if !context.is_settled() {
            let kept = Self { context: Arc::clone(context), ptr: *ptr, len: *len, is_freed: false };
            context.keep(Remains::Allocation(kept));
            return Ok(());
        }
        let _bound = self.context.bind_to_close()?;
        let entry = &self.context.table.cuMemFree_v2;
        // SAFETY: it was allocated for `self`, and is freed once.
        entry.check(unsafe { (entry.call)(self.ptr) })
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        // There is nobody to tell.
        self.end().unwrap_or_default();
    }
}

/// Memory of another process, opened by its legacy IPC handle. It is not ours to free, only to close (C-9).
#[derive(Debug)]
pub(crate) struct Imported {
    context: Arc<Context>,
    ptr: u64,
    is_closed: bool,
}

impl Imported {
    pub(crate) fn open(context: &Arc<Context>, handle: &[u8; 64]) -> Result<Self, Failed> {
        let _bound = context.bind()?;
        let entry = &context.table.cuIpcOpenMemHandle_v2;
        let mut ptr = 0;
        let handle = CUipcMemHandle { reserved: handle.map(to_c) };
        // SAFETY: any 64 bytes may be tried, and the driver writes an address where there is room for one.
        entry.check(unsafe { (entry.call)(&raw mut ptr, handle, LAZY_ENABLE_PEER_ACCESS) })?;
        Ok(Self { context: Arc::clone(context), ptr, is_closed: false })
    }

    pub(crate) const fn address(&self) -> u64 {
        self.ptr
    }

    pub(crate) const fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// All of it, which is `size` bytes.
    pub(crate) fn place(&self, size: usize) -> Place<'_> {
        Place::new(self.ptr, size)
    }

    /// Closes it, or keeps it while the context has unfinished work. The driver waits for all streams.
    pub(crate) fn close(mut self) -> Result<(), Failed> {
        self.end()
    }

    fn end(&mut self) -> Result<(), Failed> {
        if std::mem::replace(&mut self.is_closed, true) || !self.context.is_here() {
            return Ok(());
        }
        let Self { context, ptr, .. } = &*self;
        if !context.is_settled() {
            let kept = Self { context: Arc::clone(context), ptr: *ptr, is_closed: false };
            context.keep(Remains::Imported(kept));
            return Ok(());
        }
        let _bound = self.context.bind_to_close()?;
        let entry = &self.context.table.cuIpcCloseMemHandle;
        // SAFETY: it was opened for `self`, and is closed once.
        entry.check(unsafe { (entry.call)(self.ptr) })
    }
}

impl Drop for Imported {
    fn drop(&mut self) {
        // There is nobody to tell.
        self.end().unwrap_or_default();
    }
}

/// A whole allocation, as the driver knows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Range {
    pub(crate) base: u64,
    /// In bytes.
    pub(crate) size: u64,
}

impl Range {
    /// How many bytes of it there are from an address on that lies in it.
    ///
    /// What a legacy handle opens usually starts where the range does. If a driver opens a part of an allocation, the part
    /// starts inside.
    pub(crate) fn from(self, address: u64) -> Option<u64> {
        self.size.checked_sub(address.checked_sub(self.base)?)
    }
}

impl Context {
    /// The allocation that an address lies in.
    pub(crate) fn range_of(&self, address: u64) -> Result<Range, Failed> {
        let _bound = self.bind()?;
        let entry = &self.table.cuMemGetAddressRange_v2;
        let (mut base, mut size) = (0, 0);
        // SAFETY: any number may be asked about, and the driver writes two where there is room for them.
        entry.check(unsafe { (entry.call)(&raw mut base, &raw mut size, address) })?;
        Ok(Range { base, size: u64::try_from(size).unwrap_or(u64::MAX) })
    }

    /// What opens, in other processes, the allocation that an address lies in.
    pub(crate) fn ipc_handle(&self, address: u64) -> Result<[u8; 64], Failed> {
        let _bound = self.bind()?;
        let entry = &self.table.cuIpcGetMemHandle;
        let mut handle = CUipcMemHandle { reserved: [0; 64] };
        // SAFETY: any number may be asked about, and the driver writes 64 bytes where there is room for them.
        entry.check(unsafe { (entry.call)(&raw mut handle, address) })?;
        Ok(handle.reserved.map(from_c))
    }
}

impl Mapped {
    pub(crate) const fn place(&self) -> Place<'_> {
        Place::new(self.address(), self.size())
    }
}

/// `CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS`, the only flag there is, and the driver wants it.
const LAZY_ENABLE_PEER_ACCESS: c_uint = 1;
