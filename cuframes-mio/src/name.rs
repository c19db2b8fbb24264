//! [`OwnedName`]: a name in the file system that is ours to remove.

use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, RenameFlags, open, renameat_with};

use crate::shm::Home;

/// A file or socket that this process made. Dropping it removes the name, but only while it still means that file:
/// what somebody else has put there since is not ours (D-13).
#[derive(Debug)]
pub(crate) struct OwnedName {
    path: PathBuf,
    inode: Inode,
    /// The process that it belongs to: not to a child that was forked (P-20). `None` for nobody.
    home: Option<Home>,
}

impl OwnedName {
    /// Creates a file with mode 0600 and opens it for reading and writing.
    ///
    /// # Errors
    /// `AlreadyExists` if there is something with this name, even a dangling symbolic link.
    pub(crate) fn create(path: PathBuf, home: &Home) -> io::Result<(Self, File)> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = File::from(open(&path, flags, Mode::RUSR | Mode::WUSR)?);
        let inode = Inode::of(&file.metadata()?);
        Ok((Self { path, inode, home: Some(home.clone()) }, file))
    }

    /// Takes over what `path` names now.
    pub(crate) fn adopt(path: PathBuf, home: &Home) -> io::Result<Self> {
        let inode = Inode::of(&fs::symlink_metadata(&path)?);
        Ok(Self { path, inode, home: Some(home.clone()) })
    }

    /// Renames the file, unless there is something with the new name.
    ///
    /// # Errors
    /// `AlreadyExists` if there is.
    pub(crate) fn rename(&mut self, path: &Path) -> io::Result<()> {
        renameat_with(CWD, &self.path, CWD, path, RenameFlags::NOREPLACE)?;
        self.path = path.to_path_buf();
        Ok(())
    }

    /// Leaves the file for somebody else to remove.
    pub(crate) fn abandon(mut self) {
        self.home = None;
    }

    /// Whether the name still means the file.
    pub(crate) fn is_there(&self) -> bool {
        self.inode.is_named(&self.path)
    }

    /// The name.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for OwnedName {
    fn drop(&mut self) {
        if self.home.as_ref().is_some_and(Home::is_here) && self.is_there() {
            // Nobody is left to hear of a failure, and a leftover is recognised as stale (D-13).
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Which file, whatever its names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Inode {
    device: u64,
    number: u64,
}

impl Inode {
    /// The file with this metadata.
    pub(crate) fn of(metadata: &Metadata) -> Self {
        Self { device: metadata.dev(), number: metadata.ino() }
    }

    /// Whether `path` names this file.
    pub(crate) fn is_named(self, path: &Path) -> bool {
        fs::symlink_metadata(path).is_ok_and(|metadata| Self::of(&metadata) == self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn create(path: PathBuf) -> io::Result<(OwnedName, File)> {
        OwnedName::create(path, &Home::new().unwrap())
    }

    #[test]
    fn dropping_removes_the_file_under_its_last_name() {
        let dir = tempfile::tempdir().unwrap();
        let (mut name, _file) = create(dir.path().join("a")).unwrap();
        name.rename(&dir.path().join("b")).unwrap();
        assert!(!dir.path().join("a").exists() && dir.path().join("b").exists());
        drop(name);
        assert!(!dir.path().join("b").exists());
    }

    #[test]
    fn a_file_that_somebody_else_put_there_stays() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        let (name, _file) = create(path.clone()).unwrap();
        fs::remove_file(&path).unwrap();
        fs::write(&path, "somebody else's").unwrap();
        drop(name);
        assert_eq!(fs::read_to_string(&path).unwrap(), "somebody else's");
    }

    #[test]
    fn neither_creating_nor_renaming_replaces_anything() {
        let dir = tempfile::tempdir().unwrap();
        let taken = dir.path().join("taken");
        std::os::unix::fs::symlink("/nowhere", &taken).unwrap();
        assert_eq!(create(taken.clone()).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        let (mut name, _file) = create(dir.path().join("a")).unwrap();
        assert_eq!(name.rename(&taken).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(name.path(), dir.path().join("a"));
    }
}
