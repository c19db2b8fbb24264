//! [`Place`]: where a demo has its files, and what is left of demos that were killed.

use std::fs::{self, Permissions};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::{env, io};

use cuframes_core::Key;
use rustix::fs::{FlockOperation, Mode, OFlags, flock, fstat, open};
use rustix::io::Errno;
use rustix::process::geteuid;
use tempfile::TempDir;

/// A directory that only we may enter, and a key that is as unique as the directory's name, because the regions of all run
/// directories are in one place. Everything of both is deleted on drop, even what processes that were killed have left.
///
/// The directory is locked as long as its demo lives. The next demo of the same user deletes those that are not.
#[derive(Debug)]
pub(crate) struct Place {
    key: Key,
    run_dir: PathBuf,
    // Dropped last, and in this order: nobody else deletes what is locked.
    dir: TempDir,
    _lock: Option<OwnedFd>,
}

impl Place {
    /// Makes a place whose sockets are in `run_dir`, or else in its own directory.
    pub(crate) fn make(run_dir: Option<&Path>) -> io::Result<Self> {
        delete_leftovers();
        loop {
            let dir = tempfile::Builder::new()
                .prefix(PREFIX)
                .permissions(Permissions::from_mode(0o700))
                .tempdir()?;
            let lock = match lock(dir.path(), OFlags::DIRECTORY) {
                // Another demo took it for a leftover before it was locked.
                Err(Errno::WOULDBLOCK | Errno::NOENT) => continue,
                lock => lock.ok(),
            };
            if !dir.path().exists() {
                continue;
            }
            let name = dir.path().file_name().unwrap_or_default().to_string_lossy();
            let key = key(name.trim_start_matches(PREFIX)).ok_or(io::ErrorKind::InvalidFilename)?;
            let run_dir = run_dir.unwrap_or_else(|| dir.path()).to_path_buf();
            return Ok(Self { key, run_dir, dir, _lock: lock });
        }
    }

    pub(crate) fn key(&self) -> &Key {
        &self.key
    }

    pub(crate) fn run_dir(&self) -> &Path {
        &self.run_dir
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        shared_files(&self.key).into_iter().for_each(delete);
        if self.run_dir != self.dir.path() {
            // Nobody else will ever use the key, so the lock file need not stay.
            delete(self.run_dir.join(self.key.socket_file()));
            delete(self.run_dir.join(format!("{}.lock", self.key)));
        }
    }
}

/// Deletes what demos of this user have left that were killed.
fn delete_leftovers() {
    for entry in fs::read_dir(env::temp_dir()).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(unique) = name.as_bytes().strip_prefix(PREFIX.as_bytes()) else { continue };
        let Ok(_lock) = lock(&entry.path(), OFlags::DIRECTORY) else { continue };
        let _ = fs::remove_dir_all(entry.path());
        let Some(key) = str::from_utf8(unique).ok().and_then(key) else { continue };
        let [region, region_lock] = shared_files(&key);
        // A process of that demo may still be about to end: then it holds the lock, and deletes both.
        if let Ok(_lock) = lock(&region_lock, OFlags::empty()) {
            delete(region);
            delete(region_lock);
        }
    }
}

/// Locks a file or directory that is ours.
fn lock(path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    let file = open(path, flags | FLAGS, Mode::empty())?;
    if fstat(&file)?.st_uid != geteuid().as_raw() {
        return Err(Errno::PERM);
    }
    flock(file.as_fd(), FlockOperation::NonBlockingLockExclusive)?;
    Ok(file)
}

/// The key of the demo whose directory has this name after the [`PREFIX`].
fn key(unique: &str) -> Option<Key> {
    format!("demo-{unique}").parse().ok()
}

/// What a publisher has outside of its run directory: the region, and the lock that says whether it lives.
fn shared_files(key: &Key) -> [PathBuf; 2] {
    [key.region_file(), key.region_lock_file()].map(|file| Path::new("/dev/shm").join(file))
}

/// Deletes a file, unless it is gone already.
fn delete(path: PathBuf) {
    let _ = fs::remove_file(path);
}

/// Whatever has the name, opening it does not wait.
const FLAGS: OFlags = OFlags::RDONLY.union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK).union(OFlags::CLOEXEC);

const PREFIX: &str = "cuframes-demo-";
