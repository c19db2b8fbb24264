//! The publisher's side: [`Pool`], the memory of a ring.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use cuframes_core::RingSize;
use cuframes_core::gpu::{Call, EventHandle, Export, MemHandle};
use cuframes_core::shm::header::SlotMemory;
use cuframes_core::wire::FdPurpose;
use cuframes_core::wire::control::EventFd;

use crate::device::{Cuda, Event};
use crate::error::{Cause, CudaError};
use crate::exports::Exported;
use crate::external::{External, check, start};
use crate::ffi::{self, Access, Allocation, Block, Context, Failed, Lent, Mapped, Place, Watch};
use crate::stream::Stream;
use crate::wait::Patience;

/// The memory of all slots of a ring.
#[derive(Debug)]
pub struct Pool {
    context: Arc<Context>,
    frames: Vec<Frame>,
    frame_size: u64,
}

/// The memory of one slot.
#[derive(Debug)]
enum Frame {
    /// Backend 0: an allocation of its own, because the handle names all of it (C-2).
    Legacy { memory: Allocation, exported: Exported },
    /// Backend 2: the memory behind a descriptor, and where we see it.
    Vmm { block: Block, mapped: Mapped },
    /// The caller's, where it starts at `at`, and in whose allocation at `offset`.
    External { memory: Lent, at: u64, offset: u64, exported: Exported },
}

impl Frame {
    fn legacy(cuda: &Cuda, frame_size: u64, all: u64) -> Result<Self, CudaError> {
        let call = Call::AllocPool;
        let failed = CudaError::during(call);
        let memory = cuda.allocate(call, frame_size, all)?;
        let range = cuda.context().range_of(memory.address()).map_err(failed)?;
        if range.base != memory.address() || range.size < frame_size {
            // A subscriber would see another's bytes.
            let why = "the driver did not make an allocation of its own for the slot";
            return Err(CudaError::new(call, Cause::Unsupported { why }));
        }
        let handle = cuda.context().ipc_handle(memory.address()).map_err(failed)?;
        Ok(Self::Legacy { memory, exported: Exported::memory(handle) })
    }

    fn vmm(cuda: &Cuda, size: usize, all: u64) -> Result<Self, CudaError> {
        let create = || {
            let block = Block::create(cuda.context(), size)?;
            let mapped = Mapped::new(&block, size)?;
            mapped.allow(Access::ReadWrite)?;
            Ok(Self::Vmm { block, mapped })
        };
        create().map_err(CudaError::allocating(Call::AllocPool, all))
    }

    fn external(
        cuda: &Cuda,
        slot: usize,
        (memory, at): (Lent, u64),
        frame_size: u64,
    ) -> Result<Self, CudaError> {
        let range = check(cuda, slot, &memory, at, frame_size)?;
        let handle =
            cuda.context().ipc_handle(range.base).map_err(CudaError::during(Call::RegisterExternal))?;
        let offset = start(&memory, at) - range.base;
        Ok(Self::External { memory, at, offset, exported: Exported::memory(handle) })
    }

    /// Everything that is ours to write.
    fn place(&self, frame_size: usize) -> Option<Place<'_>> {
        match self {
            Self::Legacy { memory, .. } => Some(memory.place()),
            Self::Vmm { mapped, .. } => Some(mapped.place()),
            Self::External { memory, at, .. } => {
                let at = usize::try_from(*at).ok()?;
                memory.place(at.checked_add(frame_size)?).part(at, frame_size)
            }
        }
    }

    fn address(&self) -> u64 {
        match self {
            Self::Legacy { memory, .. } => memory.address(),
            Self::Vmm { mapped, .. } => mapped.address(),
            Self::External { memory, at, .. } => start(memory, *at),
        }
    }

    fn free(self) -> Result<(), Failed> {
        match self {
            Self::Legacy { memory, .. } => memory.free(),
            Self::Vmm { mapped, .. } => mapped.unmap(),
            Self::External { .. } => Ok(()),
        }
    }
}

impl Pool {
    fn frame(&self, call: Call, slot: usize) -> Result<&Frame, CudaError> {
        self.frames.get(slot).ok_or_else(|| CudaError::argument(call, "slot", "one that the pool has"))
    }
}

impl Cuda {
    /// An allocation of `len` bytes that shares no page with another. `all` is what the caller needs in all, for the error.
    pub(crate) fn allocate(&self, call: Call, len: u64, all: u64) -> Result<Allocation, CudaError> {
        let size = rounded(call, len, PAGE)?;
        Allocation::new(self.context(), size).map_err(CudaError::allocating(call, all))
    }

    /// Makes all bytes zero, and waits until they are.
    pub(crate) fn zero<'a>(
        &self,
        call: Call,
        places: impl IntoIterator<Item = Place<'a>>,
    ) -> Result<(), CudaError> {
        let failed = CudaError::during(call);
        // Of its own: what the caller's streams have to do may take any time.
        let stream = ffi::Stream::create(self.context()).map_err(failed)?;
        let mut places = places.into_iter();
        let patience = Patience::new(ZEROING);
        let wait = || self.wait_for(call, &stream, patience);
        let zeroed = places.try_for_each(|place| place.zero(&stream)).map_err(failed).and_then(|()| wait());
        // The memory is freed then, and what was enqueued must be over before.
        if zeroed.is_err() && wait().is_err() {
            self.context().watch(Watch::Stream(stream));
        }
        zeroed
    }
}

impl Export for Cuda {
    type Pool = Pool;
    type External = External;

    fn alloc_pool(&self, slots: RingSize, frame_size: u64) -> Result<Pool, CudaError> {
        let call = Call::AllocPool;
        self.check_process(call)?;
        if frame_size == 0 {
            return Err(CudaError::argument(call, "frame_size", "1 or more"));
        }
        let is_vmm = self.is_vmm();
        let granularity =
            if is_vmm { ffi::granularity(self.context()).map_err(CudaError::during(call))? } else { PAGE };
        let size = rounded(call, frame_size, granularity)?;
        let all = u64::try_from(size).unwrap_or(u64::MAX).saturating_mul(u64::from(slots.get()));
        let frame =
            |_| if is_vmm { Frame::vmm(self, size, all) } else { Frame::legacy(self, frame_size, all) };
        let frames = (0..slots.get()).map(frame).collect::<Result<Vec<_>, _>>()?;
        if let Some(Frame::Vmm { block, .. }) = frames.first() {
            // Better now than in every subscriber.
            self.try_descriptor(block, size).map_err(CudaError::during(call))?;
        }
        self.zero(call, frames.iter().filter_map(|frame| frame.place(size)))?;
        Ok(Pool { context: Arc::clone(self.context()), frames, frame_size })
    }

    fn register_external(&self, frames: Vec<External>, frame_size: u64) -> Result<Pool, CudaError> {
        let call = Call::RegisterExternal;
        self.check_process(call)?;
        if self.is_vmm() {
            let why = "memory of the caller's own has legacy handles only: use backend cuda for it";
            return Err(CudaError::new(call, Cause::Unsupported { why }));
        }
        if frame_size == 0 {
            return Err(CudaError::argument(call, "frame_size", "1 or more"));
        }
        if !(1..=RingSize::MAX.into()).contains(&frames.len()) {
            return Err(CudaError::argument(call, "frames", "1 to 16 pieces of memory"));
        }
        let lent = frames.into_iter().map(|memory| memory.lend(self)).collect::<Result<Vec<_>, _>>()?;
        let mut starts: Vec<u64> = lent.iter().map(|(memory, at)| start(memory, *at)).collect();
        starts.sort_unstable();
        if starts.iter().zip(starts.iter().skip(1)).any(|(one, next)| next - one < frame_size) {
            return Err(CudaError::argument(call, "frames", "apart: two of them overlap"));
        }
        let register = |(slot, memory)| Frame::external(self, slot, memory, frame_size);
        let frames = lent.into_iter().enumerate().map(register).collect::<Result<_, _>>()?;
        Ok(Pool { context: Arc::clone(self.context()), frames, frame_size })
    }

    fn export_mem(&self, pool: &Pool, slot: usize) -> Result<SlotMemory, CudaError> {
        let call = Call::ExportMem;
        self.check_owner(call, &pool.context, "pool")?;
        let mut ptr_external = [0; 32];
        let (handle, offset) = match pool.frame(call, slot)? {
            Frame::Legacy { exported, .. } => (MemHandle(*exported.handle()), 0),
            Frame::Vmm { .. } => {
                let index = u64::try_from(slot).unwrap_or(u64::MAX);
                (MemHandle::tagged(VMM_TAG, index, pool.frame_size), 0)
            }
            Frame::External { memory, at, offset, exported } => {
                let address = start(memory, *at).to_le_bytes();
                ptr_external.iter_mut().zip(address).for_each(|(to, from)| *to = from);
                (MemHandle(*exported.handle()), *offset)
            }
        };
        Ok(SlotMemory { handle, ptr_external, offset })
    }

    fn export_fds(&self, pool: &Pool) -> Result<Vec<(EventFd, OwnedFd)>, CudaError> {
        let call = Call::ExportFds;
        self.check_owner(call, &pool.context, "pool")?;
        let count = u32::try_from(pool.frames.len()).unwrap_or(u32::MAX);
        let blocks = pool.frames.iter().filter_map(|frame| match frame {
            Frame::Vmm { block, .. } => Some(block),
            _ => None,
        });
        let export = |(index, block): (u32, &Block)| {
            let fd = block.export().map_err(CudaError::during(call))?;
            Ok((EventFd { purpose: FdPurpose::CUDA_VMM, index, count }, fd))
        };
        (0..count).zip(blocks).map(export).collect()
    }

    fn create_event(&self) -> Result<(Event, EventHandle), CudaError> {
        Event::create(self)
    }

    fn record_event(&self, stream: &Stream, event: &Event) -> Result<(), CudaError> {
        let call = Call::RecordEvent;
        self.check_stream(call, stream)?;
        match event.on(call, self)? {
            Some(event) => event.record(stream.raw()).map_err(CudaError::during(call)),
            None => Err(CudaError::argument(call, "event", "one that this process created")),
        }
    }

    fn pool_ptr(&self, pool: &Pool, slot: usize) -> Option<u64> {
        pool.frames.get(slot).map(Frame::address)
    }

    fn copy_in(&self, stream: &Stream, pool: &mut Pool, slot: usize, bytes: &[u8]) -> Result<(), CudaError> {
        let call = Call::CopyIn;
        self.check_stream(call, stream)?;
        self.check_owner(call, &pool.context, "pool")?;
        let too_long = CudaError::argument(call, "bytes", "at most as long as a frame");
        let frame = pool.frame(call, slot)?;
        let frame_size = usize::try_from(pool.frame_size).map_err(|_| too_long.clone())?;
        let place = frame.place(frame_size).filter(|_| bytes.len() <= frame_size);
        let place = place.ok_or(too_long)?;
        if bytes.is_empty() {
            return Ok(());
        }
        let failed = CudaError::during(call);
        let mut buffer = self.staging().take(self.context(), frame_size).map_err(failed)?;
        let sent = buffer.send(bytes, place, stream.raw()).map_err(failed);
        self.staging().put(buffer);
        sent
    }

    fn free_pool(&self, pool: Pool) -> Result<(), CudaError> {
        let call = Call::FreePool;
        let checked = self.check_owner(call, &pool.context, "pool");
        // All of them, whatever the first says.
        let freed = pool.frames.into_iter().map(Frame::free).fold(Ok(()), Result::and);
        let freed = freed.map_err(CudaError::during(call));
        if checked.is_ok() {
            self.staging().trim();
        }
        checked.and(freed)
    }
}

/// `len` rounded up to whole pieces of `granularity` bytes.
pub(crate) fn rounded(call: Call, len: u64, granularity: usize) -> Result<usize, CudaError> {
    let size = usize::try_from(len).ok().filter(|len| *len > 0);
    let size = size.and_then(|len| len.checked_next_multiple_of(granularity));
    size.ok_or_else(|| CudaError::argument(call, "length", "1 or more, and less than there are addresses"))
}

/// First bytes of a handle that names a slot's descriptor.
pub(crate) const VMM_TAG: [u8; 8] = *b"CUFVMM01";
/// Bytes of the pages in which the driver gives memory away: what is smaller shares one with others (C-2).
pub(crate) const PAGE: usize = 2 << 20;
/// How long zeroing a pool may take. It takes a millisecond.
const ZEROING: Duration = Duration::from_secs(10);
