//! Memory of the caller's own: [`Buffer`] is some, [`External`] says where a frame lies in it.

use std::fmt;
use std::sync::Arc;

use cuframes_core::gpu::Call;

use crate::device::Cuda;
use crate::error::{Cause, CudaError, result};
use crate::ffi::{Allocation, DeviceMemory, Failed, Lent, PointerAttribute, Range};

/// Device memory from `cuMemAlloc`, which has legacy IPC handles (C-1); all zero at birth, freed when it is dropped.
#[derive(Debug)]
pub struct Buffer {
    memory: Allocation,
    len: u64,
}

impl Cuda {
    /// `len` bytes of device memory, in an allocation of their own: whoever opens its handle sees nobody else's (C-2).
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for no bytes, or what the driver reports, with [`Call::AllocPool`].
    pub fn alloc(&self, len: u64) -> Result<Buffer, CudaError> {
        let call = Call::AllocPool;
        self.check_process(call)?;
        let memory = self.allocate(call, len, len)?;
        self.zero(call, [memory.place()])?;
        Ok(Buffer { memory, len })
    }
}

impl Buffer {
    /// Where it is: a `CUdeviceptr`.
    #[must_use]
    pub const fn address(&self) -> u64 {
        self.memory.address()
    }

    /// Its length in bytes.
    #[must_use]
    pub const fn size(&self) -> u64 {
        self.len
    }
}

/// A frame's place in memory that somebody else owns, for [`register_external`](cuframes_core::gpu::Export::register_external).
/// It keeps the owner alive until the pool is freed.
#[derive(Clone)]
pub struct External {
    owner: Arc<dyn DeviceMemory>,
    offset: u64,
}

impl External {
    /// The frame that starts `offset` bytes into `memory`. Whether it lies inside the allocation, and can be exported at all,
    /// is checked when it is registered.
    #[must_use]
    pub fn new<M: DeviceMemory>(memory: Arc<M>, offset: u64) -> Self {
        Self { owner: memory, offset }
    }

    /// Where it is: a `CUdeviceptr`. This asks the owner, who may take time: a slice of cudarc's waits for its streams, and
    /// makes its context current.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.owner.device_ptr().wrapping_add(self.offset)
    }

    /// Asks its owner where it is, once, and gives that and the frame's place in it.
    pub(crate) fn lend(self, cuda: &Cuda) -> Result<(Lent, u64), CudaError> {
        let lent =
            Lent::new(cuda.context(), self.owner).map_err(CudaError::during(Call::RegisterExternal))?;
        Ok((lent, self.offset))
    }
}

/// Where the frame is that starts `offset` bytes into `memory`.
pub(crate) fn start(memory: &Lent, offset: u64) -> u64 {
    memory.address().wrapping_add(offset)
}

/// Checks that a frame of `frame_size` bytes can be exported from there, and gives the allocation that it lies in.
pub(crate) fn check(
    cuda: &Cuda,
    slot: usize,
    memory: &Lent,
    offset: u64,
    frame_size: u64,
) -> Result<Range, CudaError> {
    let call = Call::RegisterExternal;
    let refuse = |why| CudaError::new(call, Cause::External { slot, why });
    let address = start(memory, offset);
    let ask = |attribute| {
        let asked = cuda.context().pointer_attribute(address, attribute);
        asked.map_err(|failed| match failed {
            Failed { result: result::INVALID_VALUE, .. } => refuse(UNKNOWN),
            _ => CudaError::new(call, failed.into()),
        })
    };
    let kind = Kind {
        memory_type: ask(PointerAttribute::MemoryType)?,
        is_managed: ask(PointerAttribute::IsManaged)? & 0xFF != 0,
        is_ipc_capable: ask(PointerAttribute::IsIpcCapable)? & 0xFF != 0,
    };
    if let Some(why) = kind.fault() {
        return Err(refuse(why));
    }
    cuda.check_device(call, ask(PointerAttribute::DeviceOrdinal)?)?;
    let range = cuda.context().range_of(address).map_err(CudaError::during(call))?;
    if range.size == 0 || !range.size.is_multiple_of(PAGE) {
        return Err(refuse(SHARES));
    }
    let owned = memory.byte_len().unwrap_or(u64::MAX);
    let is_owned = offset.checked_add(frame_size).is_some_and(|end| end <= owned);
    if !is_owned || range.from(address).is_none_or(|size| size < frame_size) {
        return Err(refuse("ends before the frame does"));
    }
    Ok(range)
}

impl fmt::Debug for External {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "External({:#x} bytes into {:?})", self.offset, self.owner)
    }
}

impl Cuda {
    /// Checks that memory is on this device. `ordinal` is the number that this process has for the memory's.
    pub(crate) fn check_device(&self, call: Call, ordinal: u32) -> Result<(), CudaError> {
        let table = self.context().table();
        let ordinal = i32::try_from(ordinal).unwrap_or(-1);
        if ordinal == self.ordinal() {
            return Ok(());
        }
        let theirs = table.device(ordinal).and_then(|device| table.device_uuid(device));
        match theirs.map_err(CudaError::during(call))? {
            // The same one, seen twice.
            theirs if theirs == self.uuid() => Ok(()),
            theirs => Err(CudaError::new(call, Cause::OtherDevice { ours: self.uuid(), theirs })),
        }
    }
}

/// What the driver says about an address.
#[derive(Clone, Copy, Debug)]
struct Kind {
    /// A `CUmemorytype`.
    memory_type: u32,
    is_managed: bool,
    is_ipc_capable: bool,
}

impl Kind {
    /// Why it can't be exported, and what to do instead.
    const fn fault(self) -> Option<&'static str> {
        if self.is_managed {
            return Some(
                "is managed memory (cuMemAllocManaged), which has no IPC handle: allocate it with cuMemAlloc",
            );
        }
        if self.memory_type != DEVICE {
            return Some("is not on the device: allocate it with cuMemAlloc");
        }
        if !self.is_ipc_capable {
            return Some(
                "has no IPC handle, because it is of a pool (cuMemAllocAsync, as cudarc's slices are) or from cuMemCreate: allocate it with cuMemAlloc",
            );
        }
        None
    }
}

/// What is said about an address that means nothing.
const UNKNOWN: &str = "has an address that the driver does not know";
/// What is said about an allocation that has a page not for itself.
const SHARES: &str = "is not a multiple of 2 MiB and may share its page with other memory, which subscribers would see, or see instead: allocate a multiple of 2 MiB";
/// Bytes of the pages in which the driver gives memory away. A handle is of whole pages, so an allocation that ends within one may
/// give away what others have there (C-2).
const PAGE: u64 = 2 << 20;
/// `CU_MEMORYTYPE_DEVICE`
const DEVICE: u32 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_has_no_handle_is_refused_with_the_cause_and_the_remedy() {
        let good = Kind { memory_type: DEVICE, is_managed: false, is_ipc_capable: true };
        assert_eq!(good.fault(), None);
        for (kind, cause) in [
            (Kind { is_ipc_capable: false, ..good }, "cuMemAllocAsync"),
            (Kind { is_managed: true, ..good }, "cuMemAllocManaged"),
            (Kind { memory_type: 1, ..good }, "not on the device"),
        ] {
            let fault = kind.fault().unwrap();
            assert!(fault.contains(cause) && fault.ends_with("allocate it with cuMemAlloc"), "{fault}");
        }
    }
}
