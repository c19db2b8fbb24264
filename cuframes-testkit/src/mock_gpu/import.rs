//! A subscriber's side: [`MockMapping`], and work that reads it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use cuframes_core::Backend;
use cuframes_core::gpu::{Call, Import};
use cuframes_core::shm::header::SlotMemory;

use super::Shared;
use super::device::MockDevice;
use super::export::{MEM_TAG, VMM_TAG, address};
use super::finding::{MockError, result};
use super::stream::{MockStream, Sink, Work, drain, halves};
use super::world::{Mapped, State, World, add};

/// The memory of one slot, open in another process.
#[derive(Debug)]
pub struct MockMapping {
    shared: Shared,
    process: usize,
    id: usize,
    len: usize,
}

/// What a kernel read.
#[derive(Clone, Debug)]
pub struct Reading(Sink);

impl MockDevice {
    /// Enqueues a kernel that reads a whole frame, in two steps.
    ///
    /// # Panics
    /// If stream or mapping belong to another process.
    #[must_use]
    pub fn launch_read(&self, stream: &MockStream, mapping: &MockMapping) -> Reading {
        assert_eq!(self.process, mapping.process, "it belongs to another process");
        let sink = Arc::new(Mutex::new((Vec::new(), mapping.len)));
        let work = halves(mapping.len).map(|(at, len)| {
            let to = Arc::clone(&sink);
            Work::Read { mapping: mapping.id, at, len, to }
        });
        // The trait has no such call; it can only fail as another one would.
        self.shared.with(|world| world.enqueue(Call::CopyOut, self.process, stream.id, work)).unwrap();
        Reading(sink)
    }
}

impl Reading {
    /// The bytes, once the kernel is done.
    #[must_use]
    pub fn bytes(&self) -> Option<Vec<u8>> {
        let sink = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        (sink.1 == 0).then(|| sink.0.clone())
    }
}

impl Drop for MockMapping {
    fn drop(&mut self) {
        self.shared.with(|world| {
            if world.is_open(self.id) {
                world.check_thread(self.process, Call::CloseMem).unwrap_or_default();
                world.close_mapping(self.id);
            }
        });
    }
}

impl World {
    fn is_open(&self, mapping: usize) -> bool {
        self.mappings.get(mapping).unwrap().open
    }

    fn close_mapping(&mut self, mapping: usize) {
        self.mappings.get_mut(mapping).unwrap().open = false;
    }

    /// The allocation that a handle opens in `process`.
    fn resolve(&self, process: usize, memory: &SlotMemory, fds: &[u32]) -> Result<usize, MockError> {
        let refuse = |result, why| Err(MockError { call: Call::OpenMem, result, why });
        let (tag, number, second) = memory.handle.parts();
        let number = usize::try_from(number).unwrap();
        if self.backend == Backend::CUDA_VMM {
            let fd = fds.get(number).filter(|_| tag == VMM_TAG);
            let allocation = fd.and_then(|fd| self.fds.get(usize::try_from(*fd).unwrap()));
            return match allocation {
                Some(allocation) => Ok(*allocation),
                None => refuse(result::INVALID_VALUE, "the handle means no descriptor that came"),
            };
        }
        let known = self.allocations.get(number).filter(|_| (tag, second) == (MEM_TAG, self.nonce));
        let Some(allocation) = known.filter(|allocation| allocation.state == State::Live) else {
            return refuse(result::INVALID_VALUE, "the handle means no allocation");
        };
        if allocation.process == process {
            return refuse(result::INVALID_CONTEXT, "this process exported it");
        }
        Ok(number)
    }
}

impl Import for MockDevice {
    type Mapping = MockMapping;

    fn open_mem(&self, memory: &SlotMemory, len: u64, fds: &[u32]) -> Result<MockMapping, MockError> {
        let refuse = |result, why| Err(MockError { call: Call::OpenMem, result, why });
        let (id, len) = self.shared.with(|world| {
            world.enter(self.process, Call::OpenMem)?;
            let id = world.resolve(self.process, memory, fds)?;
            let allocation = world.allocations.get(id).unwrap();
            if world.device_of(allocation.process) != world.device_of(self.process) {
                return refuse(result::PEER_ACCESS_UNSUPPORTED, "it is on another device");
            }
            let size = u64::try_from(allocation.bytes.len()).unwrap();
            if memory.offset.saturating_add(len) > size {
                return refuse(result::INVALID_VALUE, "the frame is not inside what the handle opens");
            }
            let (start, len) = (usize::try_from(memory.offset).unwrap(), usize::try_from(len).unwrap());
            let mapped = Mapped { process: self.process, allocation: id, start, open: true };
            Ok((add(&mut world.mappings, mapped), len))
        })?;
        Ok(MockMapping { shared: self.shared.clone(), process: self.process, id, len })
    }

    fn mapping_ptr(&self, mapping: &MockMapping) -> u64 {
        self.shared.with(|world| {
            let Mapped { allocation, start, .. } = *world.mappings.get(mapping.id).unwrap();
            address(allocation, u64::try_from(start).unwrap())
        })
    }

    fn copy_out(
        &self,
        stream: &MockStream,
        mapping: &MockMapping,
        out: &mut [u8],
        _timeout: Duration,
    ) -> Result<(), MockError> {
        let call = Call::CopyOut;
        let refuse = |result, why| Err(MockError { call, result, why });
        self.shared.with(|world| {
            world.enter(self.process, call)?;
            world.check_owner(call, self.process, mapping.process)?;
            world.enqueue(call, self.process, stream.id, None)?;
            if out.len() > mapping.len {
                return refuse(result::INVALID_VALUE, "longer than the frame");
            }
            Ok(())
        })?;
        drain(&self.shared, stream.id, call)?;
        match self.shared.with(|world| world.read(self.process, mapping.id, 0, out.len())) {
            Some(bytes) => {
                out.copy_from_slice(&bytes);
                Ok(())
            }
            None => refuse(result::UNKNOWN, "the memory is freed or closed"),
        }
    }

    fn close_mem(&self, mapping: MockMapping) -> Result<(), MockError> {
        self.shared.with(|world| {
            let entered = world.enter(self.process, Call::CloseMem);
            let checked = world.check_owner(Call::CloseMem, self.process, mapping.process);
            world.close_mapping(mapping.id);
            entered.and(checked)
        })
    }
}
