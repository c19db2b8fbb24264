//! The directory that the processes of a test share, and who they are: [`Session`] and [`Identity`].
//!
//! ```text
//! <session>/<pid>-<nonce>/used      bytes of each device that this process has; locked as long as it lives
//!                        /m<id>     a block of device memory; importers hold a shared lock on it
//!                        /e<id>     the words of an interprocess event
//!                        /e<id>.w   importers hold a shared lock on it while they wait
//! ```
//!
//! All locks are by `flock`, so a process that is killed leaves none. What a process has is gone when it ends well.

use std::collections::hash_map::RandomState;
use std::fs::{self, File, OpenOptions};
use std::hash::{BuildHasher, Hasher};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::code::{Code, Result};

/// Which process something belongs to. Handles carry it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_structs, reason = "tests make other processes up")]
pub struct Identity {
    /// Its pid, as it sees itself.
    pub pid: u32,
    /// When it started, in ticks since the machine did (field 22 of `/proc/PID/stat`).
    pub start: u64,
    /// Tells drivers in one process apart.
    pub nonce: u64,
}

impl Identity {
    pub(crate) fn of_this_process() -> Self {
        let pid = process::id();
        let start = stat(pid).map_or(0, |stat| stat.start);
        Self { pid, start, nonce: RandomState::new().build_hasher().finish() }
    }

    /// Whether `/proc` shows this process. It does not if it ended (a zombie has ended), or if it is in a pid namespace
    /// that we can't see: then its pid is somebody else's here, or nobody's.
    pub(crate) fn is_visible(&self) -> bool {
        stat(self.pid).is_some_and(|stat| stat.start == self.start && !matches!(stat.state, 'Z' | 'X'))
    }

    fn dir_name(&self) -> String {
        format!("{}-{:016x}", self.pid, self.nonce)
    }
}

/// One process's part of the shared directory.
#[derive(Debug)]
pub(crate) struct Session {
    root: PathBuf,
    /// Whether the root is the usual one, which goes with the last process.
    usual_root: bool,
    dir: PathBuf,
    used_file: File,
    used: Mutex<Vec<u64>>,
}

impl Session {
    /// Makes this process's part. `devices` is how many the machine has.
    pub(crate) fn open(root: Option<&Path>, identity: &Identity, devices: usize) -> io::Result<Self> {
        let usual = || PathBuf::from(format!("/dev/shm/fake-cuda-{}", rustix::process::getuid().as_raw()));
        let usual_root = root.is_none();
        let root = root.map_or_else(usual, Path::to_path_buf);
        let dir = root.join(identity.dir_name());
        let mut attempts = 0;
        loop {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(&root)?;
            match fs::DirBuilder::new().mode(0o700).create(&dir) {
                // The last of the others took the usual directory away in between.
                Err(error) if error.kind() == io::ErrorKind::NotFound && attempts < 100 => attempts += 1,
                result => break result?,
            }
        }
        let used_file = new_file(&dir.join("used"))?;
        // Another process may be looking at it just now.
        flock(&used_file, FlockOperation::LockExclusive)?;
        Ok(Self { root, usual_root, dir, used_file, used: Mutex::new(vec![0; devices]) })
    }

    /// A file of this process's.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// A file of another process's.
    pub(crate) fn path_of(&self, owner: &Identity, name: &str) -> PathBuf {
        self.root.join(owner.dir_name()).join(name)
    }

    /// Takes memory of a device that has `total` bytes.
    ///
    /// # Errors
    /// [`Code::OUT_OF_MEMORY`] if all living processes together would have more.
    pub(crate) fn claim(self: &Arc<Self>, device: usize, bytes: u64, total: u64) -> Result<Claim> {
        let _all = self.lock_all()?;
        let taken = self.used_by_all(device)?;
        if taken.checked_add(bytes).is_none_or(|sum| sum > total) {
            return Err(Code::OUT_OF_MEMORY);
        }
        self.change(device, |used| used.saturating_add(bytes))?;
        Ok(Claim { session: Arc::clone(self), device, bytes })
    }

    /// Bytes of a device that all living processes have together.
    pub(crate) fn used(&self, device: usize) -> Result<u64> {
        let _all = self.lock_all()?;
        Ok(self.used_by_all(device)?)
    }

    /// Takes everything of this process away.
    pub(crate) fn remove(&self) {
        // Somebody may have taken the whole directory away before.
        let _ = fs::remove_dir_all(&self.dir);
        if self.usual_root {
            let _ = fs::remove_dir(&self.root);
        }
    }

    fn lock_all(&self) -> Result<File> {
        let root = File::open(&self.root)?;
        flock(&root, FlockOperation::LockExclusive)?;
        Ok(root)
    }

    fn used_by_all(&self, device: usize) -> io::Result<u64> {
        let mut sum = 0_u64;
        for entry in fs::read_dir(&self.root)? {
            let Ok(file) = File::open(entry?.path().join("used")) else { continue };
            let mut word = [0; 8];
            if is_locked(&file)? && file.read_exact_at(&mut word, word_at(device)).is_ok() {
                sum = sum.saturating_add(u64::from_le_bytes(word));
            }
        }
        Ok(sum)
    }

    fn change(&self, device: usize, change: impl FnOnce(u64) -> u64) -> io::Result<()> {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bytes) = used.get_mut(device) {
            *bytes = change(*bytes);
            self.used_file.write_all_at(&bytes.to_le_bytes(), word_at(device))?;
        }
        Ok(())
    }
}

/// Memory of a device that is taken until this is dropped.
#[derive(Debug)]
pub(crate) struct Claim {
    session: Arc<Session>,
    device: usize,
    bytes: u64,
}

impl Drop for Claim {
    fn drop(&mut self) {
        // Only fails if the file system does, and then the test has other troubles.
        let _ = self.session.change(self.device, |used| used.saturating_sub(self.bytes));
    }
}

/// A new file that only this user may open.
pub(crate) fn new_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path)
}

/// A file of another process, on which a shared lock says that we use it.
pub(crate) fn open_shared(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    flock(&file, FlockOperation::LockShared)?;
    Ok(file)
}

/// Whether somebody else has a lock on it.
pub(crate) fn is_locked(file: &File) -> io::Result<bool> {
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {
            flock(file, FlockOperation::Unlock)?;
            Ok(false)
        }
        Err(Errno::WOULDBLOCK) => Ok(true),
        Err(errno) => Err(errno.into()),
    }
}

/// As [`is_locked`], but it must be so for a while. A child that another thread starts right now has copies of all
/// descriptors until it executes its program, and with them locks that we gave up.
pub(crate) fn stays_locked(file: &File) -> io::Result<bool> {
    for _ in 0..CHILD_STARTS {
        if !is_locked(file)? {
            return Ok(false);
        }
        thread::sleep(Duration::from_millis(5));
    }
    Ok(true)
}

struct Stat {
    state: char,
    start: u64,
}

fn stat(pid: u32) -> Option<Stat> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is the program's name in parentheses, which may contain anything.
    let (_, rest) = text.rsplit_once(')')?;
    let mut fields = rest.split_whitespace();
    let state = fields.next()?.chars().next()?;
    let start = fields.nth(18)?.parse().ok()?;
    Some(Stat { state, start })
}

fn word_at(device: usize) -> u64 {
    u64::try_from(device).unwrap_or(u64::MAX).saturating_mul(8)
}

/// How often a lock is looked at before it is believed.
const CHILD_STARTS: u32 = 10;
