//! The "device", whose memory the processor can't address, only copy to and from. Here it is a file without a name; the library
//! of a DSP, or of another vendor's GPU, takes the place of all this.

use std::fs::File;
use std::io::{Error, ErrorKind, Result};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;

use rustix::fs::{MemfdFlags, memfd_create};

/// Memory of a ring's frames, which are all zero at first.
#[derive(Debug)]
pub(crate) struct Pool {
    file: File,
    slots: u64,
    pub(crate) frame_size: u64,
}

impl Pool {
    pub(crate) fn alloc(slots: u64, frame_size: u64) -> Result<Self> {
        let size = frame_size.checked_mul(slots + 1).filter(|size| *size <= CAPACITY);
        let size = size.ok_or(ErrorKind::OutOfMemory)?;
        if frame_size == 0 {
            return Err(ErrorKind::InvalidInput.into());
        }
        let file = File::from(memfd_create("device-memory", MemfdFlags::CLOEXEC)?);
        file.set_len(size)?;
        Ok(Self { file, slots, frame_size })
    }

    /// Where a slot is. Nothing is at 0, so the first one is where the second would be.
    pub(crate) fn address(&self, slot: usize) -> Option<u64> {
        let slot = u64::try_from(slot).ok().filter(|slot| *slot < self.slots)?;
        Some(self.frame_size * (slot + 1))
    }

    pub(crate) fn write(&self, slot: usize, bytes: &[u8]) -> Result<()> {
        let address = self.address(slot).filter(|_| fits(bytes, self.frame_size));
        self.file.write_all_at(bytes, address.ok_or(ErrorKind::InvalidInput)?)
    }

    /// A descriptor for another process, which can't write with it: it is opened anew for that.
    pub(crate) fn share(&self) -> Result<OwnedFd> {
        File::open(format!("/proc/self/fd/{}", self.file.as_raw_fd())).map(OwnedFd::from)
    }
}

/// Memory of one frame, in another process.
#[derive(Debug)]
pub(crate) struct View {
    file: File,
    pub(crate) address: u64,
    len: u64,
}

impl View {
    pub(crate) fn open(fd: impl AsFd, address: u64, len: u64) -> Result<Self> {
        let file = File::from(fd.as_fd().try_clone_to_owned()?);
        // Nothing that another process says is believed.
        match address.checked_add(len) {
            Some(end) if end <= file.metadata()?.len() => Ok(Self { file, address, len }),
            _ => Err(ErrorKind::InvalidInput.into()),
        }
    }

    pub(crate) fn read(&self, out: &mut [u8]) -> Result<()> {
        if !fits(out, self.len) {
            return Err(Error::from(ErrorKind::InvalidInput));
        }
        self.file.read_exact_at(out, self.address)
    }
}

fn fits(bytes: &[u8], size: u64) -> bool {
    u64::try_from(bytes.len()).is_ok_and(|len| len <= size)
}

/// Bytes that the device has.
const CAPACITY: u64 = 1 << 30;
