//! Memory behind file descriptors: [`Block`] is the memory, [`Mapped`] the addresses where it is seen.

use std::ffi::c_int;
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;
use std::sync::Arc;

use cudarc::driver::sys::{
    CUmemAccess_flags, CUmemAccessDesc, CUmemAllocationGranularity_flags, CUmemAllocationHandleType,
    CUmemAllocationProp, CUmemAllocationProp_st__bindgen_ty_1, CUmemAllocationType,
    CUmemGenericAllocationHandle, CUmemLocation, CUmemLocationType,
};

use super::unfinished::Remains;
use super::{Context, Failed};

/// What may be done with mapped memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Access {
    Read,
    ReadWrite,
}

/// Bytes of which sizes must be multiples.
pub(crate) fn granularity(context: &Context) -> Result<usize, Failed> {
    let _bound = context.bind()?;
    let entry = &context.table.cuMemGetAllocationGranularity;
    let (mut granularity, properties) = (0, properties(context.device()));
    let minimum = CUmemAllocationGranularity_flags::CU_MEM_ALLOC_GRANULARITY_MINIMUM;
    // SAFETY: the properties are complete, and the driver writes a number where there is room for one.
    entry.check(unsafe { (entry.call)(&raw mut granularity, &raw const properties, minimum) })?;
    Ok(granularity.max(1))
}

/// Memory without an address.
#[derive(Debug)]
pub(crate) struct Block {
    context: Arc<Context>,
    raw: CUmemGenericAllocationHandle,
}

impl Block {
    /// New memory; `size` is a multiple of the [`granularity`].
    pub(crate) fn create(context: &Arc<Context>, size: usize) -> Result<Self, Failed> {
        let _bound = context.bind()?;
        let entry = &context.table.cuMemCreate;
        let (mut raw, properties) = (0, properties(context.device()));
        // SAFETY: the properties are complete, and the driver writes a handle where there is room for one.
        entry.check(unsafe { (entry.call)(&raw mut raw, size, &raw const properties, 0) })?;
        Ok(Self { context: Arc::clone(context), raw })
    }

    /// The memory that another process gave away. The descriptor is not needed any more afterwards.
    pub(crate) fn import(context: &Arc<Context>, fd: BorrowedFd<'_>) -> Result<Self, Failed> {
        let _bound = context.bind()?;
        let entry = &context.table.cuMemImportFromShareableHandle;
        let mut raw = 0;
        let descriptor = ptr::without_provenance_mut(usize::try_from(fd.as_raw_fd()).unwrap_or_default());
        // SAFETY: for this type of handle the pointer is the descriptor's number, which is never followed; whatever is
        // behind an open descriptor may be tried. The driver writes a handle where there is room for one.
        entry.check(unsafe { (entry.call)(&raw mut raw, descriptor, POSIX_FD) })?;
        Ok(Self { context: Arc::clone(context), raw })
    }

    /// A new descriptor for the memory, which programs that are started do not inherit.
    pub(crate) fn export(&self) -> Result<OwnedFd, Failed> {
        let _bound = self.context.bind()?;
        let entry = &self.context.table.cuMemExportToShareableHandle;
        let mut fd: c_int = -1;
        // SAFETY: the memory lives as long as `self`, and for this type of handle the driver writes a descriptor's number.
        entry.check(unsafe { (entry.call)((&raw mut fd).cast(), self.raw, POSIX_FD, 0) })?;
        // SAFETY: the driver made the descriptor for us, and nobody else has it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        // CUDA does not say that programs that are started do not inherit it. A copy is not inherited.
        fd.try_clone().map_err(|_| Failed { function: entry.name, result: OPERATING_SYSTEM })
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        let Ok(_bound) = self.context.bind_to_close() else { return };
        let entry = &self.context.table.cuMemRelease;
        // SAFETY: it was made or imported for `self`, and is released once. The driver keeps it while it is mapped.
        let released = entry.check(unsafe { (entry.call)(self.raw) });
        // There is nobody to tell.
        released.unwrap_or_default();
    }
}

/// Memory with an address.
#[derive(Debug)]
pub(crate) struct Mapped {
    context: Arc<Context>,
    ptr: u64,
    size: usize,
    state: State,
}

/// How far a [`Mapped`] has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Reserved,
    Mapped,
    Gone,
}

impl Mapped {
    /// Maps the first `size` bytes, which are a multiple of the [`granularity`]. It stays mapped when the block is dropped.
    /// Nothing can be done with it before that is [allowed](Self::allow).
    pub(crate) fn new(block: &Block, size: usize) -> Result<Self, Failed> {
        let context = &block.context;
        let _bound = context.bind()?;
        let entry = &context.table.cuMemAddressReserve;
        let mut ptr = 0;
        // SAFETY: the driver finds a place, and writes its address where there is room for one.
        entry.check(unsafe { (entry.call)(&raw mut ptr, size, 0, 0, 0) })?;
        // From here on whatever fails is undone when this is dropped.
        let mut mapped = Self { context: Arc::clone(context), ptr, size, state: State::Reserved };
        let entry = &context.table.cuMemMap;
        // SAFETY: the range was reserved for `mapped`, and nothing is mapped there. The driver checks that the memory has as
        // many bytes.
        entry.check(unsafe { (entry.call)(ptr, size, 0, block.raw, 0) })?;
        mapped.state = State::Mapped;
        Ok(mapped)
    }

    /// Lets the context's device read it, or write it too.
    pub(crate) fn allow(&self, access: Access) -> Result<(), Failed> {
        let context = &self.context;
        let _bound = context.bind()?;
        let flags = match access {
            Access::Read => CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READ,
            Access::ReadWrite => CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
        };
        let access = CUmemAccessDesc { location: location(context.device()), flags };
        let entry = &context.table.cuMemSetAccess;
        // SAFETY: the whole range is mapped, and there is one description.
        entry.check(unsafe { (entry.call)(self.ptr, self.size, &raw const access, 1) })
    }

    pub(crate) const fn address(&self) -> u64 {
        self.ptr
    }

    pub(crate) const fn size(&self) -> usize {
        self.size
    }

    /// Unmaps it, or keeps it while the context has unfinished work. The driver waits for all streams.
    pub(crate) fn unmap(mut self) -> Result<(), Failed> {
        self.end()
    }

    fn end(&mut self) -> Result<(), Failed> {
        let state = mem::replace(&mut self.state, State::Gone);
        if state == State::Gone || !self.context.is_here() {
            return Ok(());
        }
        let Self { context, ptr, size, .. } = &*self;
        if state == State::Mapped && !context.is_settled() {
            let kept = Self { context: Arc::clone(context), ptr: *ptr, size: *size, state };
            context.keep(Remains::Mapped(kept));
            return Ok(());
        }
        let _bound = self.context.bind_to_close()?;
        if state == State::Mapped {
            let entry = &self.context.table.cuMemUnmap;
            // SAFETY: this is the whole range that was mapped for `self`.
            entry.check(unsafe { (entry.call)(self.ptr, self.size) })?;
        }
        let entry = &self.context.table.cuMemAddressFree;
        // SAFETY: this is the whole range that was reserved for `self`, and nothing is mapped there any more.
        entry.check(unsafe { (entry.call)(self.ptr, self.size) })
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // There is nobody to tell.
        self.end().unwrap_or_default();
    }
}

/// Plain memory of a device that can be given away as a file descriptor.
const fn properties(device: c_int) -> CUmemAllocationProp {
    CUmemAllocationProp {
        type_: CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
        requestedHandleTypes: POSIX_FD,
        location: location(device),
        win32HandleMetaData: ptr::null_mut(),
        allocFlags: CUmemAllocationProp_st__bindgen_ty_1 {
            compressionType: 0,
            gpuDirectRDMACapable: 0,
            usage: 0,
            reserved: [0; 4],
        },
    }
}

const fn location(device: c_int) -> CUmemLocation {
    CUmemLocation { type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id: device }
}

/// `CUDA_ERROR_OPERATING_SYSTEM`
const OPERATING_SYSTEM: i32 = 304;
/// File descriptors.
const POSIX_FD: CUmemAllocationHandleType =
    CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
