//! The run directory: where a stream's socket and its lock are, and who may enter (D-14, D-15).

use std::collections::BTreeSet;
use std::env;
use std::fs::{self, DirBuilder, Metadata, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, lchown};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use cuframes_core::Key;
use rustix::fs::{AtFlags, CWD, accessat};
use rustix::process::geteuid;
use tracing::warn;

use crate::error::{Distrust, Error};
use crate::lock::lock;

/// The directories that this process uses, as the environment says.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    /// Run directories in the order they are tried; `last` follows them.
    first: Vec<RunDir>,
    last: RunDir,
    /// Where regions are.
    pub(crate) shm: PathBuf,
}

impl Places {
    /// Reads the environment: the only place that does. `explicit` is a run directory that the caller chose; it goes
    /// before `$CUFRAMES_RUN_DIR`.
    pub(crate) fn from_environment(explicit: Option<&Path>) -> Self {
        let variable = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let uid = geteuid().as_raw();
        Self::new(
            explicit.map(Path::to_path_buf).or_else(|| variable("CUFRAMES_RUN_DIR")),
            [(Some(PathBuf::from("/run")), Trust::System), (variable("XDG_RUNTIME_DIR"), Trust::User(uid))],
            RunDir { path: format!("/tmp/cuframes-{uid}").into(), trust: Trust::Alone(uid) },
        )
    }

    /// `chosen` alone, or else `cuframes` inside each of `parents` and then `fallback`.
    pub(crate) fn new(
        chosen: Option<PathBuf>,
        parents: [(Option<PathBuf>, Trust); 2],
        fallback: RunDir,
    ) -> Self {
        let (first, last) = match chosen {
            Some(path) => (Vec::new(), RunDir { path, trust: Trust::Chosen }),
            None => {
                let below = |(parent, trust): (Option<PathBuf>, Trust)| {
                    Some(RunDir { path: parent?.join("cuframes"), trust })
                };
                (parents.into_iter().filter_map(below).collect(), fallback)
            }
        };
        Self { first, last, shm: "/dev/shm".into() }
    }

    /// Where a subscriber looks, in this order.
    pub(crate) fn candidates(&self) -> impl Iterator<Item = &RunDir> {
        self.first.iter().chain([&self.last])
    }

    /// Where the publisher of `key` puts its socket: the first directory that is there, or can be made, can be trusted, and
    /// lets us create files.
    ///
    /// # Errors
    /// What is wrong with the last one: the one that was chosen, or the fallback in /tmp that should always work.
    pub(crate) fn for_publisher(&self, key: &Key, access: Access) -> Result<&RunDir, Error> {
        for dir in &self.first {
            match dir.prepare(access) {
                Ok(()) => return Ok(dir),
                Err(cause @ Error::Untrusted { .. }) => {
                    warn!(%key, %cause, "a run directory was passed over");
                }
                Err(_) => {}
            }
        }
        self.last.prepare(access)?;
        self.warn(key);
        Ok(&self.last)
    }

    /// Says so, once for each directory, if others can replace what is in the run directory that somebody chose.
    pub(crate) fn warn(&self, key: &Key) {
        static SAID: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
        let Some(problem) = self.last.looseness() else { return };
        let path = self.last.path();
        if lock(&SAID).insert(path.to_path_buf()) {
            warn!(%key, path = %path.display(), %problem, "the run directory is not safe from others");
        }
    }
}

/// A run directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct RunDir {
    path: PathBuf,
    trust: Trust,
}

/// What makes a run directory one that nobody else controls, which depends on who can make it (D-14).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Trust {
    /// Somebody chose it, and answers for it.
    Chosen,
    /// Only the administrator can make it, for whom he likes; but not everybody may write in it.
    System,
    /// It is inside the directory of this user: it belongs to that user or root, and not everybody may write in it.
    User(u32),
    /// Anybody can make it: it belongs to this user, who alone may write in it.
    Alone(u32),
}

impl RunDir {
    /// The directory.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The stream's socket (§1).
    ///
    /// # Errors
    /// The path is longer than the address of a socket may be.
    pub(crate) fn socket_path(&self, key: &Key) -> Result<PathBuf, Error> {
        let path = self.path.join(key.socket_file());
        if path.as_os_str().len() > MAX_SOCKET_PATH {
            return Err(Error::PathTooLong { path, max: MAX_SOCKET_PATH });
        }
        Ok(path)
    }

    /// The lock of the stream's socket (D-13).
    pub(crate) fn lock_path(&self, key: &Key) -> PathBuf {
        self.path.join(format!("{key}.lock"))
    }

    /// Whether the directory is there. To be asked before anything in it is opened.
    ///
    /// # Errors
    /// It is there, but somebody else may control it (D-14).
    pub(crate) fn exists(&self) -> Result<bool, Error> {
        // In /tmp a symbolic link is as untrusted as a directory of somebody else.
        let look = if matches!(self.trust, Trust::Alone(_)) { fs::symlink_metadata } else { fs::metadata };
        let metadata = match look(&self.path) {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(Error::io("look at the run directory", &self.path, error)),
        };
        match self.distrust(&metadata) {
            None => Ok(true),
            Some(problem) => Err(Error::Untrusted { path: self.path.clone(), problem }),
        }
    }

    fn distrust(&self, metadata: &Metadata) -> Option<Distrust> {
        let (mode, found) = (metadata.mode() & 0o777, metadata.uid());
        let writable = |by| (mode & by != 0).then_some(Distrust::WritableByOthers { mode });
        match self.trust {
            _ if !metadata.is_dir() => Some(Distrust::NotADirectory),
            Trust::Chosen => None,
            Trust::User(expected) | Trust::Alone(expected)
                if found != expected && (found != ROOT || self.trust == Trust::Alone(expected)) =>
            {
                Some(Distrust::Owner { found, expected })
            }
            // A group may (D-15).
            Trust::System | Trust::User(_) => writable(OTHERS_WRITE),
            Trust::Alone(_) => writable(OTHERS_WRITE | GROUP_WRITES),
        }
    }

    /// Why somebody else can replace what is in a directory that was chosen. In one like /tmp, of ours or of root, nobody
    /// can; and who gives a directory to one other user, or to a group, has a reason.
    fn looseness(&self) -> Option<Distrust> {
        let metadata = fs::metadata(&self.path).ok().filter(|_| self.trust == Trust::Chosen)?;
        let is_sticky = metadata.mode() & STICKY != 0 && [ROOT, geteuid().as_raw()].contains(&metadata.uid());
        let mode = metadata.mode() & 0o777;
        (mode & OTHERS_WRITE != 0 && !is_sticky).then_some(Distrust::WritableByOthers { mode })
    }

    /// Makes the directory if it is missing, and checks that we may create files in it. One that was there keeps its
    /// mode: somebody else decided on it.
    fn prepare(&self, access: Access) -> Result<(), Error> {
        match DirBuilder::new().mode(0o700).create(&self.path) {
            Ok(()) => access.widen(&self.path, 0o750)?,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => {
                return Err(Error::io("create the run directory", &self.path, error)
                    .hint(io::ErrorKind::NotFound, "create its parent directory"));
            }
        }
        if !self.exists()? {
            // A symbolic link that leads nowhere.
            return Err(Error::Untrusted { path: self.path.clone(), problem: Distrust::NotADirectory });
        }
        let may_create = rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK;
        accessat(CWD, &self.path, may_create, AtFlags::EACCESS)
            .map_err(|errno| Error::io("create files in", &self.path, errno))
    }
}

/// Who may use a stream besides its owner (D-15): by default nobody.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Access {
    /// The members of the group with this id.
    pub(crate) group: Option<u32>,
}

impl Access {
    /// Gives the group, if there is one, a file that only its owner may use so far. The group goes first: the other way
    /// round, the group that the file had would get in for a moment.
    pub(crate) fn widen(self, path: &Path, mode: u32) -> Result<(), Error> {
        if self.group.is_some() {
            lchown(path, None, self.group)
                .and_then(|()| fs::set_permissions(path, Permissions::from_mode(mode)))
                .map_err(|error| Error::io("give a group access to", path, error))?;
        }
        Ok(())
    }
}

const ROOT: u32 = 0;
const STICKY: u32 = 0o1000;
const GROUP_WRITES: u32 = 0o020;
const OTHERS_WRITE: u32 = 0o002;

/// `sun_path` has 108 bytes; the last one is for the zero that some programs need at its end.
const MAX_SOCKET_PATH: usize = 107;

#[cfg(test)]
mod tests;
