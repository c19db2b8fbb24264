//! Taking a key, also from a publisher that died (§1, D-13).
//!
//! Two files decide, both locked with `flock` for the publisher's life: `<run dir>/<key>.lock` for the socket, and
//! `/dev/shm/cuframes-<key>.lock` for the region ([`RegionLock`]), whose name all run directories share. Unlike a pid they
//! are right across pid namespaces and after the number is used again, and unlike the region no subscriber can get at
//! them. What the region says, and who has locked it, counts only where its lock file tells nothing of it. Invariants:
//!
//! 1. What is alive is never unlinked.
//! 2. The region's name never means half a region: it is complete and locked before it gets the name.
//! 3. The locked descriptor never leaves this process and maps nothing: a lock lives as long as the last copy of its
//!    descriptor, so one that a subscriber had would outlive the publisher.

use std::ffi::OsStr;
use std::fs::{self, File, Metadata};
use std::io;
use std::mem::offset_of;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use cuframes_core::Key;
use cuframes_core::shm::layout::{HeaderWords, MAGIC, REGION_SIZE};
use rustix::fs::{FlockOperation, Mode, OFlags, flock, open};
use rustix::io::Errno;
use rustix::process::geteuid;

use crate::error::{Error, Holder};
use crate::listen::{listen, probe};
use crate::liveness::is_dead;
use crate::name::{Inode, OwnedName};
use crate::rundir::{Access, RunDir};
use crate::shm::{Home, MappedRegion, REGION_BYTES, allocate, open_region, region_path};
use region_lock::RegionLock;

/// A key that is ours: its locks, its region and its socket. Dropping it removes the files and then releases the locks.
#[derive(Debug)]
pub(crate) struct Claimed {
    // Dropped in this order: the names before the locks that protect them.
    socket: OwnedName,
    region: OwnedRegion,
    _region_lock: RegionLock,
    _key_lock: Locked,
}

impl Claimed {
    /// Takes `key`, unless a publisher that lives has it. `initialise` fills the region before anybody can see it. The
    /// listener does not block, and peers can connect from now on.
    ///
    /// # Errors
    /// [`Error::AlreadyExists`] with what shows it, or what else is in the way. Nothing of ours is left behind then.
    pub(crate) fn take(
        run_dir: &RunDir,
        shm: &Path,
        key: &Key,
        access: Access,
        home: &Home,
        initialise: impl FnOnce(&MappedRegion),
    ) -> Result<(Self, UnixListener), Error> {
        let socket_path = run_dir.socket_path(key)?;
        let key_lock = lock_key(&run_dir.lock_path(key), key, home)?;
        probe(&socket_path, key)?;
        let region_lock = RegionLock::take(shm, key, home)?;
        let mut region = OwnedRegion::create(shm, key, access, home, initialise)?;
        region_lock.tell(&region.shared)?;
        region.publish(&region_path(shm, key), key, home)?;
        let (socket, listener) = listen(&socket_path, key, access, home)?;
        Ok((Self { socket, region, _region_lock: region_lock, _key_lock: key_lock }, listener))
    }

    /// The region.
    pub(crate) fn region(&self) -> &Arc<MappedRegion> {
        &self.region.map
    }

    /// The region's file: `shm_path` of `HELLO_RESP` (D-14).
    pub(crate) fn region_path(&self) -> &Path {
        self.region.name.path()
    }

    /// The socket's file.
    pub(crate) fn socket_path(&self) -> &Path {
        self.socket.path()
    }

    /// Whether somebody has deleted or replaced the region's file (P-21).
    pub(crate) fn is_region_lost(&self) -> bool {
        !self.region.name.is_there()
    }

    /// Whether somebody has deleted or replaced the socket's file.
    pub(crate) fn is_socket_lost(&self) -> bool {
        !self.socket.is_there()
    }

    /// The region for a subscriber, which is not the locked descriptor.
    pub(crate) fn region_fd(&self) -> BorrowedFd<'_> {
        self.region.shared.as_fd()
    }
}

/// A region of ours.
#[derive(Debug)]
struct OwnedRegion {
    // Dropped in this order: the name before the lock that protects it.
    name: OwnedName,
    map: Arc<MappedRegion>,
    /// The file, opened a second time: what is mapped and what subscribers get.
    shared: File,
    _lock: Locked,
}

impl OwnedRegion {
    /// A complete and locked region under a name that no key has.
    fn create(
        shm: &Path,
        key: &Key,
        access: Access,
        home: &Home,
        initialise: impl FnOnce(&MappedRegion),
    ) -> Result<Self, Error> {
        remove_abandoned(shm, key, home);
        let hidden = Hidden::create(shm, key, home)?;
        let path = hidden.name.path();
        allocate(&hidden.lock.file, REGION_SIZE, path)?;
        access.widen(path, 0o660)?;
        let shared =
            open_region(path, OFlags::RDWR).map_err(|errno| Error::io("open the new region", path, errno))?;
        let map = Arc::new(MappedRegion::map(&shared, path)?);
        initialise(&map);
        let Hidden { name, lock } = hidden;
        Ok(Self { name, map, shared, _lock: lock })
    }

    /// Gives it the name by which it is found. What has that name already is removed if it is stale.
    fn publish(&mut self, path: &Path, key: &Key, home: &Home) -> Result<(), Error> {
        loop {
            match self.name.rename(path) {
                Ok(()) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => remove_stale(path, key, home)?,
                Err(error) => return Err(Error::io("rename the new region to", path, error)),
            }
        }
    }
}

/// A file that we hold the lock of.
#[derive(Debug)]
struct Locked {
    file: File,
    /// The process that locked it: a child that was forked shares the lock, and must not end it (P-20).
    home: Home,
}

impl Locked {
    /// Locks `file`; `path` is its name.
    ///
    /// # Errors
    /// [`Error::AlreadyExists`] if another publisher of `key` holds the lock.
    fn new(file: File, path: &Path, key: &Key, home: &Home) -> Result<Self, Error> {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Self { file, home: home.clone() }),
            Err(Errno::WOULDBLOCK) => Err(Error::already_exists(key, Holder::Lock(path.to_path_buf()))),
            Err(errno) => Err(Error::io("lock", path, errno)),
        }
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        // To close it is not enough: if another thread is just starting a program, the child has a copy of every
        // descriptor until it calls exec, and the lock lives as long as the last copy.
        if self.home.is_here() {
            let _ = flock(&self.file, FlockOperation::Unlock);
        }
    }
}

/// Locks the key in its run directory. This file is never unlinked: then two starters could hold the locks of two files
/// that had the same name.
fn lock_key(path: &Path, key: &Key, home: &Home) -> Result<Locked, Error> {
    Locked::new(open_lock(path, key, "use a run directory that files can be created in")?, path, key, home)
}

/// Opens a lock file, and makes it if it is missing. `remedy` says what to do where files can't be made.
///
/// # Errors
/// [`Error::AlreadyExists`] if something has the name that is no lock file.
fn open_lock(path: &Path, key: &Key, remedy: &'static str) -> Result<File, Error> {
    let is_lock = |metadata: Metadata| metadata.is_file() && metadata.nlink() <= 1;
    loop {
        // Not with CREATE at once: in a directory like /tmp it fails on a file that another user has made.
        let opened = match open_region(path, OFlags::RDWR) {
            Err(Errno::NOENT) => {
                let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
                match open(path, flags, Mode::RUSR | Mode::WUSR) {
                    // Somebody was faster, or it is a symbolic link that leads nowhere.
                    Err(Errno::EXIST) if !path.is_symlink() => continue,
                    Err(Errno::EXIST) => Err(Errno::LOOP),
                    created => created.map(File::from),
                }
            }
            opened => opened,
        };
        return match opened {
            Ok(file) if file.metadata().is_ok_and(is_lock) => Ok(file),
            Ok(_) => Err(Error::already_exists(key, Holder::Foreign(path.to_path_buf()))),
            Err(errno) if is_no_file(errno) => {
                Err(Error::already_exists(key, Holder::Foreign(path.to_path_buf())))
            }
            // Somebody has a lease on it (`F_SETLEASE`).
            Err(Errno::WOULDBLOCK) => Err(Error::already_exists(key, Holder::Lock(path.to_path_buf()))),
            Err(errno) => Err(Error::io("open the lock", path, errno)
                .hint(io::ErrorKind::NotFound, remedy)
                .hint(io::ErrorKind::NotADirectory, remedy)
                .hint(io::ErrorKind::ReadOnlyFilesystem, remedy)),
        };
    }
}

/// Whether opening failed because there is something else than a file: a symbolic link, a directory, a socket, a device.
const fn is_no_file(errno: Errno) -> bool {
    matches!(errno, Errno::LOOP | Errno::ISDIR | Errno::NXIO | Errno::NODEV)
}

/// The file of a new region, under a name that no key has.
///
/// Whoever removes a name of this kind holds the lock of its file: otherwise it could remove what somebody else has put
/// there since it looked.
#[derive(Debug)]
struct Hidden {
    // Dropped in this order: the name before the lock that protects it.
    name: OwnedName,
    lock: Locked,
}

impl Hidden {
    fn create(shm: &Path, key: &Key, home: &Home) -> Result<Self, Error> {
        let mut number: u32 = 0;
        loop {
            let path = shm.join(format!("{}{number}", hidden_prefix(key)));
            number = number.wrapping_add(1);
            let (name, file) = match OwnedName::create(path.clone(), home) {
                Ok(created) => created,
                // It is that of a starter in another run directory, or of another user.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                Err(error) => return Err(Error::io("create the new region", &path, error)),
            };
            match Locked::new(file, &path, key, home) {
                Ok(lock) if name.is_there() => return Ok(Self { name, lock }),
                // Before it had the lock, another starter took it for abandoned, and has removed it.
                Ok(_) => {}
                // The same, and it is about to remove it.
                Err(Error::AlreadyExists { .. }) => name.abandon(),
                Err(error) => {
                    name.abandon();
                    return Err(error);
                }
            }
        }
    }
}

/// Removes what starters of this user left that were killed before their region got its name: what nobody has the lock
/// of. If it can't be removed it only takes memory. Returns what is removed.
fn remove_abandoned(shm: &Path, key: &Key, home: &Home) -> Vec<PathBuf> {
    let mut removed = Vec::new();
    let prefix = hidden_prefix(key);
    let is_hidden = |path: &PathBuf| {
        path.file_name().and_then(OsStr::to_str).is_some_and(|name| name.starts_with(&prefix))
    };
    let paths = fs::read_dir(shm).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()));
    for path in paths.filter(is_hidden) {
        let Ok(file) = open_region(&path, OFlags::RDONLY) else { continue };
        let Ok(lock) = Locked::new(file, &path, key, home) else { continue };
        let is_ours = |metadata: &Metadata| metadata.is_file() && metadata.uid() == geteuid().as_raw();
        let metadata = lock.file.metadata();
        let is_left =
            metadata.is_ok_and(|metadata| is_ours(&metadata) && Inode::of(&metadata).is_named(&path));
        if is_left && fs::remove_file(&path).is_ok() {
            removed.push(path);
        }
    }
    removed
}

/// How the names of regions begin that are not complete yet. A key has no dot in it, so they are not those of another.
fn hidden_prefix(key: &Key) -> String {
    format!("{}.new", key.region_file())
}

/// Removes the region at `path`, of which no lock file tells, if its publisher is dead. Succeeds too if somebody else
/// removed or replaced it: the caller tries again anyway.
fn remove_stale(path: &Path, key: &Key, home: &Home) -> Result<(), Error> {
    let file = match open_region(path, OFlags::RDONLY) {
        Ok(file) => file,
        Err(Errno::NOENT) => return Ok(()),
        Err(errno) if is_no_file(errno) => {
            return Err(Error::already_exists(key, Holder::Foreign(path.to_path_buf())));
        }
        Err(Errno::WOULDBLOCK) => return Err(Error::already_exists(key, Holder::Lock(path.to_path_buf()))),
        Err(errno) => return Err(Error::io("look at the region", path, errno)),
    };
    let stale = Locked::new(file, path, key, home)?;
    // Who locked this file before us may have replaced it, and then the name means another region.
    if !stale.file.metadata().is_ok_and(|metadata| Inode::of(&metadata).is_named(path)) {
        return Ok(());
    }
    if let Some(holder) = holder(&stale.file, path) {
        return Err(Error::already_exists(key, holder));
    }
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(Error::io("remove the stale region", path, error))
        }
        _ => Ok(()),
    }
}

/// Who holds a region that is not locked, as far as its words can be believed. If one of our publishers made it, then nobody: that one holds the lock for
/// life. Another implementation's publisher takes no lock, so it must be dead for certain.
fn holder(file: &File, path: &Path) -> Option<Holder> {
    let Some((epoch, pid)) = epoch_and_pid(file) else { return Some(Holder::Foreign(path.to_path_buf())) };
    match u32::try_from(pid) {
        _ if epoch != 0 => None,
        // 0 is a publisher that has not written its pid yet.
        Ok(pid) if pid != 0 && is_dead(pid) => None,
        _ => Some(Holder::Process { region: path.to_path_buf(), pid }),
    }
}

/// `epoch` and `producer_pid` of a region; `None` if the file is none. It is read, not mapped: it may be anything.
fn epoch_and_pid(file: &File) -> Option<(u64, u64)> {
    let mut header = [0; size_of::<HeaderWords<AtomicU64>>()];
    file.read_exact_at(&mut header, 0).ok()?;
    let word = |offset: usize| header.get(offset..)?.first_chunk().copied().map(u64::from_le_bytes);
    let magic = word(offset_of!(HeaderWords<AtomicU64>, magic_version))? & u64::from(u32::MAX);
    let is_region = magic == u64::from(MAGIC) && file.metadata().ok()?.len() >= REGION_BYTES;
    let epoch = word(offset_of!(HeaderWords<AtomicU64>, epoch))?;
    let pid = word(offset_of!(HeaderWords<AtomicU64>, producer_pid))?;
    is_region.then_some((epoch, pid))
}

mod leftovers;
mod region_lock;

pub use leftovers::remove_leftovers;

#[cfg(test)]
mod tests;
