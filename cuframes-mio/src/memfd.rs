//! Memory without a name that only the publisher can write: a memfd that is mapped first and sealed afterwards.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use cuframes_core::error::Problem;
use cuframes_core::wire::MessageType;
use cuframes_core::{Key, Violation};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, memfd_create};

use crate::error::Error;
use crate::shm::allocate;

/// A new one of `len` bytes, all zero; and what errors and `/proc` call it.
///
/// # Errors
/// [`Error::NoSpace`] if memory is short, or an error of the operating system.
pub(crate) fn create(name: &str, len: usize) -> Result<(OwnedFd, PathBuf), Error> {
    let path = PathBuf::from(format!("memfd:{name}"));
    let fd = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
        .map_err(|errno| Error::io("create", &path, errno))?;
    allocate(&fd, len, &path)?;
    Ok((fd, path))
}

/// Seals one that is mapped: from here on not even we can map it writable, or change the seals.
pub(crate) fn seal(fd: &OwnedFd, path: &Path) -> Result<(), Error> {
    let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::FUTURE_WRITE | SealFlags::SEAL;
    fcntl_add_seals(fd, seals).map_err(|errno| {
        Error::io("seal", path, errno).hint(io::ErrorKind::InvalidInput, "Linux 5.1 or later is needed")
    })
}

/// The size of one that came over the socket, in bytes. It is sealed, so it can only be more than that later.
///
/// # Errors
/// [`Error::Violation`] if it is not sealed, naming `field`; or an error of the operating system on `path`.
pub(crate) fn sealed_size(key: &Key, fd: &OwnedFd, path: &Path, field: &'static str) -> Result<u64, Error> {
    check_seals(fd, field).map_err(|violation| Error::violation(key, violation))?;
    let size = fstat(fd).map_err(|errno| Error::io("look at", path, errno))?.st_size;
    Ok(u64::try_from(size).unwrap_or(0))
}

/// Checks that nobody can make the memory shorter, and nobody but those who have mapped it already can write it (P-14).
/// Only a memfd can have these seals.
fn check_seals(fd: &OwnedFd, field: &'static str) -> Result<(), Violation> {
    let seals = fcntl_get_seals(fd).unwrap_or(SealFlags::empty());
    let no_writer = SealFlags::FUTURE_WRITE | SealFlags::WRITE;
    if seals.contains(SealFlags::SHRINK) && seals.intersects(no_writer) {
        return Ok(());
    }
    let expected = u64::from((SealFlags::SHRINK | SealFlags::FUTURE_WRITE).bits());
    let problem = Problem::Mismatch { found: u64::from(seals.bits()), expected };
    Err(Violation::new(MessageType::EVENT_FD, field, problem))
}
