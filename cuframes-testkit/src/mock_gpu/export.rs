//! The publisher's side: [`MockPool`], and memory of the caller's own.

use cuframes_core::gpu::{Call, EventHandle, Export, MemHandle};
use cuframes_core::shm::header::SlotMemory;
use cuframes_core::wire::FdPurpose;
use cuframes_core::wire::control::EventFd;
use cuframes_core::{Backend, RingSize};

use super::Shared;
use super::device::{EVENT_TAG, MockDevice, MockEvent, record};
use super::finding::{MockError, result};
use super::stream::{MockStream, Work, halves};
use super::world::{State, World, add};

/// The memory of a ring.
#[derive(Debug)]
pub struct MockPool {
    shared: Shared,
    process: usize,
    frames: Vec<MockPointer>,
    frame_size: u64,
    /// Whether the memory is the caller's own.
    external: bool,
}

/// A pointer to device memory, wherever in its allocation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MockPointer {
    allocation: usize,
    offset: u64,
}

impl MockPointer {
    /// The pointer so many bytes behind this one.
    #[must_use]
    pub const fn plus(self, bytes: u64) -> Self {
        Self { allocation: self.allocation, offset: self.offset + bytes }
    }
}

impl MockDevice {
    /// Memory of the caller's own, as from `cuMemAlloc`.
    ///
    /// # Panics
    /// If there is not enough.
    #[must_use]
    pub fn malloc(&self, len: u64) -> MockPointer {
        self.allocate(len, false)
    }

    /// Memory of a pool, as from `cuMemAllocAsync`.
    ///
    /// # Panics
    /// If there is not enough.
    #[must_use]
    pub fn malloc_async(&self, len: u64) -> MockPointer {
        self.allocate(len, true)
    }

    /// Frees the allocation that `pointer` points into.
    pub fn free(&self, pointer: MockPointer) {
        self.shared.with(|world| world.free(pointer.allocation));
    }

    fn allocate(&self, len: u64, pooled: bool) -> MockPointer {
        let allocation = self.shared.with(|world| world.allocate(self.process, len, pooled)).unwrap();
        MockPointer { allocation, offset: 0 }
    }

    fn pool(&self, frames: Vec<MockPointer>, frame_size: u64, external: bool) -> MockPool {
        MockPool { shared: self.shared.clone(), process: self.process, frames, frame_size, external }
    }
}

impl MockPool {
    /// Where the frame of a slot is.
    fn frame(&self, call: Call, slot: usize) -> Result<MockPointer, MockError> {
        let why = "the pool has no such slot";
        self.frames.get(slot).copied().ok_or(MockError { call, result: result::INVALID_VALUE, why })
    }

    /// Frees what is the pool's own, once.
    fn free(&mut self) {
        let owned = if self.external { Vec::new() } else { std::mem::take(&mut self.frames) };
        self.shared.with(|world| owned.iter().for_each(|frame| world.free(frame.allocation)));
    }
}

impl Drop for MockPool {
    fn drop(&mut self) {
        self.shared.with(|world| world.check_thread(self.process, Call::FreePool)).unwrap_or_default();
        self.free();
    }
}

impl Export for MockDevice {
    type Pool = MockPool;
    type External = MockPointer;

    fn alloc_pool(&self, slots: RingSize, frame_size: u64) -> Result<MockPool, MockError> {
        let call = Call::AllocPool;
        let frames = self.shared.with(|world| {
            world.enter(self.process, call)?;
            if frame_size == 0 {
                return Err(MockError { call, result: result::INVALID_VALUE, why: "frames of no bytes" });
            }
            let mut frames = Vec::new();
            for _ in 0..slots.get() {
                let Some(allocation) = world.allocate(self.process, frame_size, false) else {
                    frames.iter().for_each(|frame: &MockPointer| world.free(frame.allocation));
                    return Err(MockError { call, result: result::OUT_OF_MEMORY, why: "the device is full" });
                };
                frames.push(MockPointer { allocation, offset: 0 });
            }
            Ok(frames)
        })?;
        Ok(self.pool(frames, frame_size, false))
    }

    fn register_external(&self, frames: Vec<MockPointer>, frame_size: u64) -> Result<MockPool, MockError> {
        let call = Call::RegisterExternal;
        self.shared.with(|world| {
            world.enter(self.process, call)?;
            if world.backend == Backend::CUDA_VMM {
                let why = "only legacy handles can name the caller's own memory";
                return Err(MockError { call, result: result::NOT_SUPPORTED, why });
            }
            let refuse = |why| Err(MockError { call, result: result::INVALID_VALUE, why });
            if frame_size == 0 || !(1..=RingSize::MAX.into()).contains(&frames.len()) {
                return refuse("a pool has 1 to 16 frames of at least one byte");
            }
            for frame in &frames {
                let allocation = world.allocation(frame.allocation);
                if allocation.pooled {
                    return refuse("memory of a pool (cuMemAllocAsync) can't be exported: use cuMemAlloc");
                }
                let len = u64::try_from(allocation.bytes.len()).unwrap();
                let (owner, live) = (allocation.process, allocation.state == State::Live);
                if !live || len < frame.offset.saturating_add(frame_size) {
                    return refuse("the frame is not inside its allocation");
                }
                world.check_owner(call, self.process, owner)?;
            }
            Ok(())
        })?;
        Ok(self.pool(frames, frame_size, true))
    }

    fn export_mem(&self, pool: &MockPool, slot: usize) -> Result<SlotMemory, MockError> {
        let frame = pool.frame(Call::ExportMem, slot);
        self.shared.with(|world| {
            enter_with(world, self, Call::ExportMem, pool)?;
            let MockPointer { allocation, offset } = frame?;
            let handle = match world.backend {
                // The slot's descriptor, whichever numbers it gets in other processes.
                Backend::CUDA_VMM => {
                    MemHandle::tagged(VMM_TAG, u64::try_from(slot).unwrap(), pool.frame_size)
                }
                _ => MemHandle::tagged(MEM_TAG, u64::try_from(allocation).unwrap(), world.nonce),
            };
            let mut ptr_external = [0; 32];
            if pool.external {
                let pointer = address(allocation, offset);
                ptr_external.iter_mut().zip(pointer.to_le_bytes()).for_each(|(to, from)| *to = from);
            }
            Ok(SlotMemory { handle, ptr_external, offset })
        })
    }

    fn export_fds(&self, pool: &MockPool) -> Result<Vec<(EventFd, u32)>, MockError> {
        self.shared.with(|world| {
            enter_with(world, self, Call::ExportFds, pool)?;
            if world.backend != Backend::CUDA_VMM {
                return Ok(Vec::new());
            }
            let count = u32::try_from(pool.frames.len()).unwrap();
            let fds = (0..count).zip(&pool.frames).map(|(index, frame)| {
                let fd = u32::try_from(add(&mut world.fds, frame.allocation)).unwrap();
                (EventFd { purpose: FdPurpose::CUDA_VMM, index, count }, fd)
            });
            Ok(fds.collect())
        })
    }

    fn create_event(&self) -> Result<(MockEvent, EventHandle), MockError> {
        self.shared.with(|world| {
            world.enter(self.process, Call::CreateEvent)?;
            let source = world.add_source(self.process);
            let handle = match world.backend {
                Backend::CUDA_VMM => EventHandle::NONE,
                _ => EventHandle(MemHandle::tagged(EVENT_TAG, u64::try_from(source).unwrap(), world.nonce).0),
            };
            Ok((self.event(world.add_event(self.process, source)), handle))
        })
    }

    fn record_event(&self, stream: &MockStream, event: &MockEvent) -> Result<(), MockError> {
        record(&self.shared, self.process, stream.id, event.id)
    }

    fn pool_ptr(&self, pool: &MockPool, slot: usize) -> Option<u64> {
        pool.frames.get(slot).map(|frame| address(frame.allocation, frame.offset))
    }

    fn copy_in(
        &self,
        stream: &MockStream,
        pool: &mut MockPool,
        slot: usize,
        bytes: &[u8],
    ) -> Result<(), MockError> {
        let call = Call::CopyIn;
        let frame = pool.frame(call, slot);
        self.shared.with(|world| {
            enter_with(world, self, call, pool)?;
            let MockPointer { allocation, offset } = frame?;
            if u64::try_from(bytes.len()).unwrap() > pool.frame_size {
                return Err(MockError { call, result: result::INVALID_VALUE, why: "longer than a frame" });
            }
            let start = usize::try_from(offset).unwrap();
            let work = halves(bytes.len()).map(|(at, len)| Work::Write {
                allocation,
                at: start + at,
                bytes: bytes.iter().skip(at).take(len).copied().collect(),
            });
            world.enqueue(call, self.process, stream.id, work)
        })
    }

    fn free_pool(&self, mut pool: MockPool) -> Result<(), MockError> {
        let entered = self.shared.with(|world| enter_with(world, self, Call::FreePool, &pool));
        pool.free();
        entered
    }
}

/// A call about a pool begins.
fn enter_with(world: &mut World, device: &MockDevice, call: Call, pool: &MockPool) -> Result<(), MockError> {
    world.enter(device.process, call)?;
    world.check_owner(call, device.process, pool.process)
}

/// Where memory is in the address space of the device, which is the same in every process.
pub(super) fn address(allocation: usize, offset: u64) -> u64 {
    u64::try_from(allocation + 1).unwrap() << 32 | offset
}

/// First bytes of a handle that names an allocation.
pub(super) const MEM_TAG: [u8; 8] = *b"MOCK-IPC";
/// First bytes of a handle that names a slot's descriptor.
pub(super) const VMM_TAG: [u8; 8] = *b"CUFVMM01";
