//! [`RegionLock`]: who may replace the region of a key (§1, D-13).
//!
//! Subscribers get the region itself: they can write it, shorten it and lock it. So nothing of it says whether its
//! publisher lives. Its lock file does, which nobody but the publisher's user can open: it is locked while the publisher
//! lives, and names the region that its last holder made. Who has the lock and finds that region knows that it is stale,
//! and that nobody else is about to replace it.

use std::fs::{self, File, Metadata};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::time::UNIX_EPOCH;

use cuframes_core::Key;
use rustix::process::geteuid;

use super::{Locked, open_lock};
use crate::error::{Distrust, Error};
use crate::name::{Inode, OwnedName};
use crate::shm::{Home, allocate, region_path};

/// The lock of the region of a key. Dropping it removes the file and releases the lock.
#[derive(Debug)]
pub(super) struct RegionLock {
    // Dropped in this order: the name before the lock that protects it.
    name: OwnedName,
    lock: Locked,
}

impl RegionLock {
    /// Takes the lock, and removes the region that the last holder left: it is dead, whatever its region says and whoever
    /// has locked that.
    ///
    /// # Errors
    /// [`Error::AlreadyExists`] if another publisher holds it, or an error of the operating system.
    pub(super) fn take(shm: &Path, key: &Key, home: &Home) -> Result<Self, Error> {
        let path = shm.join(key.region_lock_file());
        loop {
            let file = open_lock(&path, key, "mount a tmpfs at /dev/shm")?;
            let failed = |error| Error::io("look at the lock", &path, error);
            let metadata = file.metadata().map_err(failed)?;
            let (owner, user) = (metadata.uid(), geteuid());
            if owner != user.as_raw() && !user.is_root() {
                let problem = Distrust::Owner { found: owner, expected: user.as_raw() };
                return Err(Error::Untrusted { path, problem });
            }
            let lock = Locked::new(file, &path, key, home)?;
            // Who had the lock before us may have removed the file; who has it now is the only one who may.
            if !Inode::of(&metadata).is_named(&path) {
                continue;
            }
            let name = OwnedName::adopt(path.clone(), home).map_err(failed)?;
            let taken = Self { name, lock };
            return match taken.remove_left(&region_path(shm, key)) {
                Ok(()) => Ok(taken),
                Err(error) => {
                    // It still tells who left the region.
                    taken.name.abandon();
                    Err(error)
                }
            };
        }
    }

    /// Names the region that we made, before it gets its name.
    ///
    /// # Errors
    /// [`Error::NoSpace`], or another error of the operating system.
    pub(super) fn tell(&self, region: &File) -> Result<(), Error> {
        let (file, path) = (&self.lock.file, self.name.path());
        let failed = |error| Error::io("write the lock", path, error);
        let Birth { number, born } = Birth::of(&region.metadata().map_err(failed)?);
        // Always as long, so that nothing is left of what was there.
        let told = format!("{number:020} {born:020}\n");
        allocate(file, told.len(), path)?;
        file.write_all_at(told.as_bytes(), 0).map_err(failed)
    }

    fn remove_left(&self, region: &Path) -> Result<(), Error> {
        // Not opened: somebody could have a lease on it.
        let Ok(metadata) = fs::symlink_metadata(region) else { return Ok(()) };
        if metadata.is_file() && self.made(&metadata) {
            fs::remove_file(region).map_err(|error| Error::io("remove the stale region", region, error))?;
        }
        Ok(())
    }

    /// Whether a holder of the lock made this file: the user who owns it says so.
    fn made(&self, metadata: &Metadata) -> bool {
        let is_word_of_owner =
            |lock: Metadata| lock.uid() == metadata.uid() && lock.mode() & WRITABLE_BY_OTHERS == 0;
        self.lock.file.metadata().is_ok_and(is_word_of_owner)
            && self.told().is_some_and(|told| told == Birth::of(metadata))
    }

    /// The region that the last holder named.
    fn told(&self) -> Option<Birth> {
        let mut told = [0; TOLD];
        self.lock.file.read_exact_at(&mut told, 0).ok()?;
        let (number, born) = str::from_utf8(&told).ok()?.trim_end().split_once(' ')?;
        Some(Birth { number: number.parse().ok()?, born: born.parse().ok()? })
    }
}

/// A file of one file system: the number of its inode and, because that may be used again, when it was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Birth {
    number: u64,
    /// In nanoseconds since 1970; 0 where the system doesn't say. Nobody can change it.
    born: u64,
}

impl Birth {
    fn of(metadata: &Metadata) -> Self {
        let born = metadata.created().ok().and_then(|born| born.duration_since(UNIX_EPOCH).ok());
        let born = born.and_then(|born| u64::try_from(born.as_nanos()).ok()).unwrap_or(0);
        Self { number: metadata.ino(), born }
    }
}

/// Two numbers of 20 digits, and what is between and behind them.
const TOLD: usize = 42;
const WRITABLE_BY_OTHERS: u32 = 0o022;
