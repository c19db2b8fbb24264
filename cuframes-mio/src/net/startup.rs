//! [`Startup`]: who may make a Unix socket at a path, one at a time.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;

use crate::name::{Inode, OwnedName};
use crate::shm::{Home, open_region};

/// Held while a socket that nobody listens on is replaced, until there is one that somebody listens on.
///
/// A socket refuses connections between `bind` and `listen`, as one that was left behind does. So without this two starters could each
/// take the other's for stale and remove it. It is a file beside the socket, locked with `flock`, that is removed while it is locked: who
/// gets the lock of a file that has not the name any more tries again. One that was left by a starter that was killed is nobody's.
#[derive(Debug)]
pub(super) struct Startup {
    // Dropped in this order: the name before the lock that protects it.
    _name: OwnedName,
    _lock: Lock,
}

impl Startup {
    /// Begins. `None`: somebody else is just starting there.
    ///
    /// # Errors
    /// The file can't be made, or something else has its name: that is `AlreadyExists`.
    pub(super) fn begin(socket: &Path, home: &Home) -> io::Result<Option<Self>> {
        let path = path(socket);
        loop {
            let file = match OwnedName::create(path.clone(), home) {
                Ok((name, file)) => {
                    // Whoever has the lock removes it: perhaps somebody else was faster.
                    name.abandon();
                    file
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    match open_region(&path, OFlags::RDWR) {
                        Ok(file) => file,
                        Err(Errno::NOENT) => continue,
                        Err(errno) => return Err(errno.into()),
                    }
                }
                Err(error) => return Err(error),
            };
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(Errno::WOULDBLOCK) => return Ok(None),
                Err(errno) => return Err(errno.into()),
            }
            let lock = Lock { file, home: home.clone() };
            let metadata = lock.file.metadata()?;
            if !metadata.is_file() || metadata.len() != 0 || metadata.nlink() > 1 {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            if Inode::of(&metadata).is_named(&path) {
                return Ok(Some(Self { _name: OwnedName::adopt(path, home)?, _lock: lock }));
            }
        }
    }
}

/// A lock that we have.
#[derive(Debug)]
struct Lock {
    file: File,
    /// The process that locked it: a child that was forked shares the lock, and must not end it (P-20).
    home: Home,
}

impl Drop for Lock {
    fn drop(&mut self) {
        if self.home.is_here() {
            // To close it is not enough while a child that another thread is just starting has a copy of it.
            let _ = flock(&self.file, FlockOperation::Unlock);
        }
    }
}

/// The name of the file that is locked.
fn path(socket: &Path) -> PathBuf {
    let mut path = OsString::from(socket);
    path.push(".starting");
    path.into()
}
