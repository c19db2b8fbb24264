//! [`Dsp`]: all that there is to write for frames in the memory of a device of one's own.

use std::convert::Infallible;
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::time::Duration;

use cuframes_mio::core::gpu::{Call, Device, EventHandle, Export, Import, MemHandle};
use cuframes_mio::core::shm::SlotMemory;
use cuframes_mio::core::wire::FdPurpose;
use cuframes_mio::core::wire::control::EventFd;
use cuframes_mio::core::{Backend, RingSize};

use crate::device::{Pool, View};
use crate::failed::{Failed, failed};

/// The device, for publishers and for subscribers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dsp;

impl Device for Dsp {
    type Stream = ();
    type Event = ();
    type Fd = OwnedFd;
    type Error = Failed;
    /// Each call has done its work when it returns. So there are no streams, and no events to wait for.
    const STREAMS: bool = false;

    fn backend(&self) -> Backend {
        Backend(0x1000) // any number that is not taken, and the same on both sides
    }
    fn open_event(&self, handle: &EventHandle) -> Result<(), Failed> {
        if *handle == EventHandle::NONE {
            Ok(())
        } else {
            Err(failed(Call::OpenEvent)(ErrorKind::InvalidInput))
        }
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

impl Export for Dsp {
    type Pool = Pool;
    type External = Infallible;

    fn alloc_pool(&self, slots: RingSize, frame_size: u64) -> Result<Pool, Failed> {
        Pool::alloc(slots.get().into(), frame_size).map_err(failed(Call::AllocPool))
    }
    fn register_external(&self, _: Vec<Infallible>, _: u64) -> Result<Pool, Failed> {
        Err(failed(Call::RegisterExternal)(ErrorKind::Unsupported))
    }
    fn export_mem(&self, pool: &Pool, slot: usize) -> Result<SlotMemory, Failed> {
        let address = pool.address(slot).ok_or(ErrorKind::InvalidInput).map_err(failed(Call::ExportMem))?;
        let handle = MemHandle::tagged(TAG, address, pool.frame_size);
        Ok(SlotMemory { handle, ptr_external: [0; 32], offset: 0 })
    }
    fn export_fds(&self, pool: &Pool) -> Result<Vec<(EventFd, OwnedFd)>, Failed> {
        let fd = pool.share().map_err(failed(Call::ExportFds))?;
        Ok(vec![(EventFd::single(FdPurpose::HOST_POOL), fd)])
    }
    fn create_event(&self) -> Result<((), EventHandle), Failed> {
        Ok(((), EventHandle::NONE))
    }
    fn record_event(&self, (): &(), (): &()) -> Result<(), Failed> {
        Ok(())
    }
    fn pool_ptr(&self, pool: &Pool, slot: usize) -> Option<u64> {
        pool.address(slot)
    }
    fn copy_in(&self, (): &(), pool: &mut Pool, slot: usize, bytes: &[u8]) -> Result<(), Failed> {
        pool.write(slot, bytes).map_err(failed(Call::CopyIn))
    }
}

impl Import for Dsp {
    type Mapping = View;

    fn open_mem(&self, memory: &SlotMemory, len: u64, fds: &[OwnedFd]) -> Result<View, Failed> {
        let (tag, address, frame_size) = memory.handle.parts();
        let fd = fds.first().filter(|_| tag == TAG && memory.offset == 0 && len <= frame_size);
        let fd = fd.ok_or(ErrorKind::InvalidInput).map_err(failed(Call::OpenMem))?;
        View::open(fd, address, len).map_err(failed(Call::OpenMem))
    }
    fn mapping_ptr(&self, view: &View) -> u64 {
        view.address
    }
    fn copy_out(&self, (): &(), view: &View, out: &mut [u8], _: Duration) -> Result<(), Failed> {
        view.read(out).map_err(failed(Call::CopyOut))
    }
}

/// What a handle of this backend begins with.
const TAG: [u8; 8] = *b"EXAMPLE1";
