//! The run directory: where a stream's socket and its lock are, and who may enter (D-14, D-15).

use std::env;
use std::fs::{self, DirBuilder, Metadata, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, lchown};
use std::path::{Path, PathBuf};

use cuframes_core::Key;
use rustix::fs::{AtFlags, CWD, accessat};
use rustix::process::geteuid;

use crate::error::{Distrust, Error};

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
            [Some(PathBuf::from("/run")), variable("XDG_RUNTIME_DIR")],
            RunDir { path: format!("/tmp/cuframes-{uid}").into(), owner: Some(uid) },
        )
    }

    /// `chosen` alone, or else `cuframes` inside each of `parents` and then `fallback`.
    pub(crate) fn new(chosen: Option<PathBuf>, parents: [Option<PathBuf>; 2], fallback: RunDir) -> Self {
        let (first, last) = match chosen {
            Some(path) => (Vec::new(), RunDir { path, owner: None }),
            None => {
                let below = |parent: PathBuf| RunDir { path: parent.join("cuframes"), owner: None };
                (parents.into_iter().flatten().map(below).collect(), fallback)
            }
        };
        Self { first, last, shm: "/dev/shm".into() }
    }

    /// Where a subscriber looks, in this order.
    pub(crate) fn candidates(&self) -> impl Iterator<Item = &RunDir> {
        self.first.iter().chain([&self.last])
    }

    /// Where a publisher puts its socket: the first directory that is there, or can be made, and lets us create files.
    ///
    /// # Errors
    /// What is wrong with the last one: the one that was chosen, or the fallback in /tmp that should always work.
    pub(crate) fn for_publisher(&self, access: Access) -> Result<&RunDir, Error> {
        match self.first.iter().find(|dir| dir.prepare(access).is_ok()) {
            Some(dir) => Ok(dir),
            None => self.last.prepare(access).map(|()| &self.last),
        }
    }
}

/// A run directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct RunDir {
    path: PathBuf,
    /// Whose it must be. Only checked in /tmp, where anybody may have made it.
    owner: Option<u32>,
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
        let look = if self.owner.is_some() { fs::symlink_metadata } else { fs::metadata };
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
        let mode = metadata.mode() & 0o777;
        match self.owner {
            _ if !metadata.is_dir() => Some(Distrust::NotADirectory),
            Some(expected) if metadata.uid() != expected => {
                Some(Distrust::Owner { found: metadata.uid(), expected })
            }
            Some(_) if mode & 0o022 != 0 => Some(Distrust::WritableByOthers { mode }),
            _ => None,
        }
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
        self.exists()?;
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

/// `sun_path` has 108 bytes; the last one is for the zero that some programs need at its end.
const MAX_SOCKET_PATH: usize = 107;

#[cfg(test)]
mod tests;
