//! [`Observer`]: sees the streams of a machine, and touches nothing.
//!
//! It connects to nobody, locks nothing and maps nothing: files are opened read-only and read, so that no publisher notices,
//! and a region that is garbage, too short or gone in the next moment is a result like any other. Who lives is told by the
//! kernel's list of locks, because asking a lock means to hold it for a moment (D-13).

use std::collections::BTreeMap;
use std::fs::{self, File, Metadata};
use std::io::Read;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use cuframes_core::error::{Place, Problem};
use cuframes_core::shm::Snapshot;
use cuframes_core::shm::layout::REGION_SIZE;
use cuframes_core::{Key, Violation};
use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::error::{Distrust, Error};
use crate::liveness::is_dead;
use crate::rundir::{Places, RunDir};
use crate::shm::{open_region, region_path, to_u64};
use locks::Locks;

mod locks;

/// Looks at the streams of this machine: those in the run directories, and those whose regions are in this `/dev/shm`.
#[derive(Clone, Debug)]
pub struct Observer {
    places: Places,
}

/// A stream, or what has the name of one.
#[derive(Debug)]
#[non_exhaustive]
pub struct Sighting {
    /// Its key.
    pub key: Key,
    /// Where its socket is; `None` if it is in none of the run directories: its publisher has another one, or is gone.
    pub socket: Option<PathBuf>,
    /// Where its region is, or would be.
    pub region: PathBuf,
    /// What its region says.
    ///
    /// # Errors
    /// There is none in this `/dev/shm` ([`Error::Io`], not found), it may not be read, or it is none.
    pub snapshot: Result<Snapshot, Error>,
    /// Whether its publisher lives.
    pub publisher: Liveness,
    /// The user who owns the region, or else the socket.
    pub owner: Option<u32>,
    /// When the region was made.
    pub since: Option<SystemTime>,
}

/// Whether a publisher lives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Liveness {
    /// It holds its locks, or is another implementation's and its process lives.
    Alive,
    /// Nobody holds its locks, or its process is gone: its files are left over.
    Dead,
    /// It can't be seen from here: it may be in another pid namespace.
    Unknown,
}

impl Observer {
    /// Looks where subscribers look: in `run_dir` alone, or else in `$CUFRAMES_RUN_DIR`, or else in the default directories.
    #[must_use]
    pub fn new(run_dir: Option<&Path>) -> Self {
        Self { places: Places::from_environment(run_dir) }
    }

    /// The run directories.
    pub fn run_dirs(&self) -> impl Iterator<Item = &Path> {
        self.places.candidates().map(RunDir::path)
    }

    /// Every stream, by key. A directory that is not there has none; one that may not be read, or that somebody else may
    /// control (D-14), is passed over, and named in the second result.
    #[must_use]
    pub fn streams(&self) -> (Vec<Sighting>, Vec<Error>) {
        let mut troubles = Vec::new();
        let mut found: BTreeMap<Key, Option<PathBuf>> = BTreeMap::new();
        for dir in self.places.candidates() {
            match sockets(dir) {
                // The first directory that has a key is where subscribers find it.
                Ok(sockets) => {
                    for (key, path) in sockets {
                        found.entry(key).or_insert(Some(path));
                    }
                }
                Err(error) => troubles.push(error),
            }
        }
        match regions(&self.places.shm) {
            Ok(keys) => {
                for key in keys {
                    found.entry(key).or_insert(None);
                }
            }
            Err(error) => troubles.push(error),
        }
        let locks = Locks::read();
        let streams = found.into_iter().map(|(key, socket)| self.sight(key, socket, &locks));
        (streams.collect(), troubles)
    }

    /// One stream. `None` if there is neither a socket nor a region with its name.
    #[must_use]
    pub fn stream(&self, key: &Key) -> Option<Sighting> {
        let socket =
            self.places.candidates().filter(|dir| matches!(dir.exists(), Ok(true))).find_map(|dir| {
                let path = dir.socket_path(key).ok()?;
                is_socket(&path).then_some(path)
            });
        let sighting = self.sight(key.clone(), socket, &Locks::read());
        let is_missing = matches!(&sighting.snapshot, Err(error) if is_missing(error));
        (sighting.socket.is_some() || !is_missing).then_some(sighting)
    }

    /// What publishers have left that were killed while they started, by key: the lock of a region, and regions that were
    /// never completed, where there is no region with its name. What is locked is no such thing: its publisher starts now.
    /// As with [`Liveness::Unknown`], a lock in another pid namespace is not seen; [`remove_leftovers`] tries it.
    ///
    /// [`remove_leftovers`]: crate::remove_leftovers
    #[must_use]
    pub fn unfinished(&self) -> BTreeMap<Key, Vec<PathBuf>> {
        let mut found: BTreeMap<Key, Vec<PathBuf>> = BTreeMap::new();
        // `streams` tells of a directory that can't be listed.
        for entry in fs::read_dir(&self.places.shm).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let parts = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.split_once('.'));
            let Some((Ok(key), end)) = parts.map(|(key, end)| (key.parse::<Key>(), end)) else { continue };
            if end == "lock" || end.starts_with("new") {
                found.entry(key).or_default().push(entry.path());
            }
        }
        let locks = Locks::read();
        found.retain(|key, paths| {
            paths.sort();
            let has_region = fs::symlink_metadata(region_path(&self.places.shm, key)).is_ok();
            !has_region && !paths.iter().any(|path| locks.is_held(path))
        });
        found
    }

    fn sight(&self, key: Key, socket: Option<PathBuf>, locks: &Locks) -> Sighting {
        let region = region_path(&self.places.shm, &key);
        let metadata = fs::symlink_metadata(&region).ok();
        let snapshot = read(&key, &region);
        let lock_files = [
            Some(self.places.shm.join(key.region_lock_file())),
            socket.as_ref().map(|socket| socket.with_file_name(format!("{key}.lock"))),
        ];
        let is_locked = lock_files.iter().flatten().any(|path| locks.is_held(path));
        let publisher = liveness(is_locked, locks, snapshot.as_ref().ok());
        let owner = metadata.as_ref().map(Metadata::uid).or_else(|| {
            let socket = fs::symlink_metadata(socket.as_ref()?).ok()?;
            Some(socket.uid())
        });
        let since =
            metadata.as_ref().and_then(|metadata| metadata.created().or_else(|_| metadata.modified()).ok());
        Sighting { key, socket, region, snapshot, publisher, owner, since }
    }
}

fn liveness(is_locked: bool, locks: &Locks, snapshot: Option<&Snapshot>) -> Liveness {
    if is_locked {
        return Liveness::Alive;
    }
    let header = snapshot.and_then(|snapshot| snapshot.header().ok());
    match header {
        // Another implementation's takes no lock (D-13).
        Some(header) if header.epoch == 0 => match u32::try_from(header.producer_pid) {
            Ok(pid) if pid != 0 && !is_dead(pid) => Liveness::Alive,
            Ok(pid) if pid != 0 && locks.are_all() => Liveness::Dead,
            _ => Liveness::Unknown,
        },
        _ if locks.are_all() => Liveness::Dead,
        _ => Liveness::Unknown,
    }
}

/// The streams with sockets in a run directory.
fn sockets(dir: &RunDir) -> Result<Vec<(Key, PathBuf)>, Error> {
    if !dir.exists()? {
        return Ok(Vec::new());
    }
    let entries = fs::read_dir(dir.path()).map_err(|error| Error::io("list", dir.path(), error))?;
    let key = |path: &Path| path.file_name()?.to_str()?.strip_suffix(".sock")?.parse().ok();
    let sockets = entries.filter_map(|entry| {
        let path = entry.ok()?.path();
        Some((key(&path)?, path))
    });
    Ok(sockets.filter(|(_, path)| is_socket(path)).collect())
}

/// The streams with regions, or what has the name of one.
fn regions(shm: &Path) -> Result<Vec<Key>, Error> {
    let entries = fs::read_dir(shm).map_err(|error| Error::io("list", shm, error))?;
    // A key has no dot in it, as locks and regions that are not complete yet have in their names.
    let key = |name: &str| name.strip_prefix(PREFIX)?.parse::<Key>().ok();
    Ok(entries.filter_map(|entry| key(entry.ok()?.file_name().to_str()?)).collect())
}

/// How the names of all files of ours in `/dev/shm` begin (§1).
const PREFIX: &str = "cuframes-";

fn is_socket(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|metadata| metadata.file_type().is_socket())
}

/// A copy of a region. It is read, not mapped: it may be anything, and be shortened at any moment.
fn read(key: &Key, path: &Path) -> Result<Snapshot, Error> {
    let foreign = || Error::Untrusted { path: path.into(), problem: Distrust::NotARegularFile };
    let file = match open_region(path, OFlags::RDONLY) {
        Ok(file) => file,
        Err(Errno::LOOP | Errno::NXIO | Errno::NODEV) => return Err(foreign()),
        Err(errno) => return Err(Error::io("open the region", path, errno)),
    };
    let failed = |error| Error::io("read the region", path, error);
    if !file.metadata().map_err(failed)?.is_file() {
        return Err(foreign());
    }
    let mut bytes = Vec::with_capacity(REGION_SIZE);
    File::take(file, to_u64(REGION_SIZE)).read_to_end(&mut bytes).map_err(failed)?;
    Snapshot::of(&bytes).map_err(|violation| Error::violation(key, violation))
}

/// Whether there is no region.
fn is_missing(error: &Error) -> bool {
    matches!(error, Error::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound)
}

impl Sighting {
    /// Why what has the name of the stream's region is none; `None` if it is one, or there is nothing, or it may not be read.
    #[must_use]
    pub fn foreign(&self) -> Option<String> {
        match &self.snapshot {
            Ok(snapshot) => snapshot.header().err().map(|violation| violation.to_string()),
            Err(Error::Violation { violation: Violation { place: Place::Region, problem, .. }, .. }) => {
                Some(Problem::to_string(problem))
            }
            Err(error @ Error::Untrusted { .. }) => Some(error.to_string()),
            Err(_) => None,
        }
    }
}
