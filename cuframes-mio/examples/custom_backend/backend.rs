//! [`FileMemory`]: a "device" whose memory the processor can't address, only copy to and from. Here it is a file without a
//! name; for a DSP, or another vendor's GPU, its driver takes the place of the calls on the file.

use std::convert::Infallible;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::time::Duration;

use cuframes_mio::core::gpu::{Call, Device, EventHandle, Export, Import, MemHandle};
use cuframes_mio::core::shm::SlotMemory;
use cuframes_mio::core::wire::{FdPurpose, control::EventFd};
use cuframes_mio::core::{Backend, RingSize};
use rustix::fs::{MemfdFlags, memfd_create};

use crate::failed::{Failed, failed};

/// The device, for publishers and subscribers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FileMemory;

/// The memory of a slot; or of all slots, one after the other.
#[derive(Debug)]
pub(crate) struct Memory {
    file: File,
    offset: u64,
    frame_size: u64,
}

impl Device for FileMemory {
    type Stream = ();
    type Event = ();
    type Fd = OwnedFd;
    type Error = Failed;
    /// Each call has done its work when it returns: there are no streams, and no events to wait for.
    const STREAMS: bool = false;

    fn backend(&self) -> Backend {
        Backend(0x1000) // any number that is not taken; both sides must mean the same by it
    }
    fn open_event(&self, _: &EventHandle) -> Result<(), Failed> {
        Ok(())
    }
    fn wait_event(&self, (): &(), (): &()) -> Result<(), Failed> {
        Ok(())
    }
    fn synchronize(&self, (): &(), _: Duration) -> Result<(), Failed> {
        Ok(())
    }
    fn notify(&self, (): &(), call: Box<dyn FnOnce() + Send>) -> Result<(), Failed> {
        call();
        Ok(())
    }
}

impl Export for FileMemory {
    type Pool = Memory;
    type External = Infallible;

    fn alloc_pool(&self, slots: RingSize, frame_size: u64) -> Result<Memory, Failed> {
        let file = File::from(memfd_create("frames", MemfdFlags::CLOEXEC).map_err(failed(Call::AllocPool))?);
        file.set_len(frame_size * u64::from(slots.get())).map_err(failed(Call::AllocPool))?;
        Ok(Memory { file, offset: 0, frame_size })
    }
    fn register_external(&self, _: Vec<Infallible>, _: u64) -> Result<Memory, Failed> {
        Err(io::ErrorKind::Unsupported).map_err(failed(Call::RegisterExternal))
    }
    fn export_mem(&self, pool: &Memory, slot: usize) -> Result<SlotMemory, Failed> {
        let offset = self.pool_ptr(pool, slot).unwrap_or(u64::MAX);
        let handle = MemHandle::tagged(TAG, offset, pool.frame_size);
        Ok(SlotMemory { handle, ptr_external: [0; 32], offset: 0 })
    }
    fn export_fds(&self, pool: &Memory) -> Result<Vec<(EventFd, OwnedFd)>, Failed> {
        // Opened once more, because subscribers get one that can only be read.
        let file = File::open(format!("/proc/self/fd/{}", pool.file.as_raw_fd()));
        let file = file.map_err(failed(Call::ExportFds))?;
        Ok(vec![(EventFd::single(FdPurpose::HOST_POOL), file.into())])
    }
    fn create_event(&self) -> Result<((), EventHandle), Failed> {
        Ok(((), EventHandle::NONE))
    }
    fn record_event(&self, (): &(), (): &()) -> Result<(), Failed> {
        Ok(())
    }
    fn pool_ptr(&self, pool: &Memory, slot: usize) -> Option<u64> {
        Some(pool.frame_size * u64::try_from(slot).ok()?)
    }
    fn copy_in(&self, (): &(), pool: &mut Memory, slot: usize, bytes: &[u8]) -> Result<(), Failed> {
        let offset = self.pool_ptr(pool, slot).unwrap_or(u64::MAX);
        pool.file.write_all_at(bytes, offset).map_err(failed(Call::CopyIn))
    }
}

impl Import for FileMemory {
    type Mapping = Memory;

    fn open_mem(&self, memory: &SlotMemory, len: u64, fds: &[OwnedFd]) -> Result<Memory, Failed> {
        let wrong = || failed(Call::OpenMem)(io::ErrorKind::InvalidData);
        let file = File::from(fds.first().ok_or_else(wrong)?.try_clone().map_err(failed(Call::OpenMem))?);
        // Nothing that a publisher says is believed: the frame must lie inside the file.
        let size = file.metadata().map_err(failed(Call::OpenMem))?.len();
        let (tag, offset, frame_size) = memory.handle.parts();
        let is_inside = offset.checked_add(len).is_some_and(|end| end <= size);
        if tag == TAG && len <= frame_size && is_inside {
            Ok(Memory { file, offset, frame_size: len })
        } else {
            Err(wrong())
        }
    }
    fn mapping_ptr(&self, mapping: &Memory) -> u64 {
        mapping.offset
    }
    fn copy_out(&self, (): &(), from: &Memory, out: &mut [u8], _: Duration) -> Result<(), Failed> {
        from.file.read_exact_at(out, from.offset).map_err(failed(Call::CopyOut))
    }
}

const TAG: [u8; 8] = *b"EXAMPLE1";
