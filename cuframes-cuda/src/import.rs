//! A subscriber's side: [`Mapping`], the memory of one slot.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use cuframes_core::Backend;
use cuframes_core::gpu::{Call, Import};
use cuframes_core::shm::header::SlotMemory;

use crate::device::{Cuda, is_ours};
use crate::error::{Cause, CudaError};
use crate::export::{VMM_TAG, rounded};
use crate::exports::Exported;
use crate::ffi::{self, Access, Block, Context, Mapped, Place, PointerAttribute};
use crate::imports::Shared;
use crate::stream::Stream;
use crate::wait::Patience;

/// The frame memory of one slot of a publisher's. It can't be written where it came over a descriptor.
#[derive(Debug)]
pub struct Mapping {
    context: Arc<Context>,
    memory: Memory,
    /// Where the frame starts in what is open.
    offset: usize,
    /// Bytes of a frame.
    len: usize,
}

#[derive(Debug)]
enum Memory {
    /// Backend 0.
    Legacy(Shared, usize),
    /// Backend 2.
    Vmm(Mapped),
}

impl Mapping {
    fn place(&self) -> Option<Place<'_>> {
        let all = match &self.memory {
            Memory::Legacy(shared, size) => shared.place(*size)?,
            Memory::Vmm(mapped) => mapped.place(),
        };
        all.part(self.offset, self.len)
    }
}

impl Cuda {
    fn open_one(
        &self,
        backend: Backend,
        memory: &SlotMemory,
        len: u64,
        fds: &[OwnedFd],
    ) -> Result<Mapping, CudaError> {
        let call = Call::OpenMem;
        self.check_process(call)?;
        if len == 0 {
            return Err(CudaError::argument(call, "len", "1 or more"));
        }
        match backend {
            Backend::CUDA_IPC => self.open_legacy(memory, len),
            Backend::CUDA_VMM => self.open_vmm(memory, len, fds),
            _ => Err(CudaError::argument(call, "backend", "cuda or cuda-vmm")),
        }
    }

    fn open_legacy(&self, memory: &SlotMemory, len: u64) -> Result<Mapping, CudaError> {
        let call = Call::OpenMem;
        if Exported::has_memory(&memory.handle.0) {
            return Err(CudaError::new(call, Cause::OwnHandle));
        }
        let shared = Shared::open(self.context(), &memory.handle.0)?;
        self.check_address(shared.address())?;
        let range = self.context().range_of(shared.address()).map_err(CudaError::during(call))?;
        let size = range.from(shared.address()).filter(|size| {
            let end = memory.offset.checked_add(len);
            end.is_some_and(|end| end <= *size)
        });
        let size = size.ok_or_else(|| CudaError::peer(call, "opens less memory than a frame needs"))?;
        let too_long = |_| CudaError::peer(call, "opens more memory than there are addresses");
        let size = usize::try_from(size).map_err(too_long)?;
        let offset = usize::try_from(memory.offset).map_err(too_long)?;
        let len = usize::try_from(len).map_err(too_long)?;
        Ok(Mapping { context: Arc::clone(self.context()), memory: Memory::Legacy(shared, size), offset, len })
    }

    fn open_vmm(&self, memory: &SlotMemory, len: u64, fds: &[OwnedFd]) -> Result<Mapping, CudaError> {
        let call = Call::OpenMem;
        let failed = CudaError::during(call);
        let (tag, index, bytes) = memory.handle.parts();
        if tag != VMM_TAG {
            return Err(CudaError::peer(call, "is none of cuda-vmm"));
        }
        if memory.offset != 0 {
            // X-5 is for the caller's own memory, which has legacy handles.
            return Err(CudaError::peer(call, "has an offset, which there is not in cuda-vmm"));
        }
        if bytes < len {
            return Err(CudaError::peer(call, "means less memory than a frame needs"));
        }
        let fd = usize::try_from(index).ok().and_then(|index| fds.get(index));
        let fd = fd.ok_or_else(|| CudaError::peer(call, "names a descriptor that did not come"))?;
        let granularity = ffi::granularity(self.context()).map_err(failed)?;
        let size = rounded(call, len, granularity)?;
        let block = Block::import(self.context(), fd.as_fd()).map_err(failed)?;
        // The driver refuses if the memory is smaller.
        let mapped = Mapped::new(&block, size).map_err(failed)?;
        let allowed = mapped.allow(Access::Read).map_err(failed);
        // If it is refused because of the device, then say so.
        self.check_address(mapped.address()).and(allowed)?;
        let len = usize::try_from(len).unwrap_or(size);
        Ok(Mapping { context: Arc::clone(self.context()), memory: Memory::Vmm(mapped), offset: 0, len })
    }

    /// Checks that memory that was opened is on this device (C-13).
    fn check_address(&self, address: u64) -> Result<(), CudaError> {
        let call = Call::OpenMem;
        let asked = self.context().pointer_attribute(address, PointerAttribute::DeviceOrdinal);
        self.check_device(call, asked.map_err(CudaError::during(call))?)
    }
}

impl Import for Cuda {
    type Mapping = Mapping;

    fn open_mem(&self, memory: &SlotMemory, len: u64, fds: &[OwnedFd]) -> Result<Mapping, CudaError> {
        self.open_one(self.kind(), memory, len, fds)
    }

    fn open_ring(
        &self,
        backend: Backend,
        slots: &[SlotMemory],
        len: u64,
        fds: &[OwnedFd],
    ) -> Result<Vec<Mapping>, CudaError> {
        // What was opened before one that fails is closed when it is dropped.
        slots.iter().map(|memory| self.open_one(backend, memory, len, fds)).collect()
    }

    /// Both kinds of CUDA memory, whichever its own pools have.
    fn opens(&self, backend: Backend) -> bool {
        is_ours(backend)
    }

    fn mapping_ptr(&self, mapping: &Mapping) -> u64 {
        mapping.place().map_or(0, Place::address)
    }

    fn copy_out(
        &self,
        stream: &Stream,
        mapping: &Mapping,
        out: &mut [u8],
        timeout: Duration,
    ) -> Result<(), CudaError> {
        let call = Call::CopyOut;
        self.check_stream(call, stream)?;
        self.check_owner(call, &mapping.context, "mapping")?;
        let place = mapping.place().and_then(|place| place.part(0, out.len()));
        let place = place.ok_or_else(|| CudaError::argument(call, "out", "at most as long as a frame"))?;
        let patience = Patience::new(timeout);
        // First for the frame, which may never come; then nothing is enqueued, and the memory can be closed.
        self.wait_for(call, stream.raw(), patience)?;
        if out.is_empty() {
            return Ok(());
        }
        let failed = CudaError::during(call);
        let mut buffer = self.staging().take(self.context(), mapping.len).map_err(failed)?;
        // On the caller's stream all the same: it may have got more to wait for meanwhile (C-14).
        let mut copied = buffer.fetch(place, stream.raw()).map_err(failed);
        if copied.is_ok() {
            copied = patience.wait(call, || buffer.is_done());
            if copied.is_err() {
                buffer.give_up();
            }
        }
        if copied.is_ok() {
            buffer.read(out);
        }
        // After a timeout the device may still write it: it is not used before that is over.
        self.staging().put(buffer);
        copied
    }

    fn close_mem(&self, mapping: Mapping) -> Result<(), CudaError> {
        let call = Call::CloseMem;
        let checked = self.check_owner(call, &mapping.context, "mapping");
        let closed = match mapping.memory {
            Memory::Legacy(shared, _) => shared.close(),
            Memory::Vmm(mapped) => mapped.unmap(),
        };
        let closed = closed.map_err(CudaError::during(call));
        if checked.is_ok() {
            self.staging().trim();
        }
        checked.and(closed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cuframes_core::RingSize;
    use cuframes_core::gpu::Export as _;
    use std::env;
    use std::process::Command;

    #[test]
    fn what_opens_inside_an_allocation_reaches_to_its_end() {
        let range = ffi::Range { base: 1000, size: 500 };
        assert_eq!(range.from(1000), Some(500));
        assert_eq!(range.from(1400), Some(100));
        assert_eq!(range.from(1500), Some(0));
        assert_eq!([999, 1501].map(|address| range.from(address)), [None; 2]);
    }

    /// Nothing in the public interface writes what was opened, so this looks from inside, in a process that finds the driver
    /// double.
    #[test]
    fn a_subscriber_can_not_write_what_came_over_a_descriptor() {
        if env::var_os("FAKE_CUDA_DIR").is_none() {
            let dir = tempfile::tempdir().unwrap();
            let double = fake_cuda::Installation::new(dir.path()).unwrap();
            let mut command = Command::new(env::current_exe().unwrap());
            command
                .args(["import::tests::a_subscriber_can_not_write_what_came_over_a_descriptor", "--exact"]);
            let output = double.set_up(&mut command).output().unwrap();
            assert!(output.status.success(), "{output:?}");
            let reports = double.reports().unwrap();
            let violations: Vec<_> = reports.iter().flat_map(|report| &report.violations).collect();
            assert!(matches!(violations[..], [text] if text.contains("cuMemsetD8")), "{violations:?}");
            return;
        }
        let cuda = Cuda::open_as(0, Backend::CUDA_VMM).unwrap();
        let pool = cuda.alloc_pool(RingSize::new(1).unwrap(), 10).unwrap();
        let fds: Vec<_> = cuda.export_fds(&pool).unwrap().into_iter().map(|(_, fd)| fd).collect();
        let mapping = cuda.open_mem(&cuda.export_mem(&pool, 0).unwrap(), 10, &fds).unwrap();
        let stream = cuda.stream().unwrap();
        let refused = mapping.place().unwrap().zero(stream.raw()).unwrap_err();
        assert_eq!(refused.function, "cuMemsetD8Async");
        cuda.close_mem(mapping).unwrap();
        cuda.free_pool(pool).unwrap();
    }
}
