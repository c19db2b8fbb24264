//! [`Target`]: where a file goes that is there complete, or not at all.

use std::fs::{self, File, Permissions};
use std::io::{self, IsTerminal, Write};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

use crate::args::Stream;
use crate::error::{Failure, failed};

/// A place that looks as if it could be written.
#[derive(Debug)]
pub(crate) enum Target {
    Standard,
    /// A device or a pipe: it must not be replaced.
    Special(PathBuf),
    /// A file, new or to be replaced, and its directory.
    File {
        path: PathBuf,
        dir: PathBuf,
    },
}

impl Target {
    /// Looks at the place, and changes nothing.
    pub(crate) fn find(stream: &Stream) -> Result<Self, Failure> {
        let path = match stream {
            Stream::Standard if io::stdout().is_terminal() => {
                return Err(failed!(
                    "can't write a picture to the terminal; name a file, or send standard output to one"
                ));
            }
            Stream::Standard => return Ok(Self::Standard),
            Stream::File(path) => path,
        };
        let metadata = match fs::metadata(path) {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Self::new_file(path),
            Err(error) => return Err(cannot_write(path, &error)),
        };
        let kind = metadata.file_type();
        if kind.is_dir() {
            return Err(failed!("can't write {}: it is a directory; name a file in it", path.display()));
        }
        // The permission bits count even for those who may do everything: somebody meant them.
        if metadata.permissions().readonly() || access(path, Access::WRITE_OK).is_err() {
            return Err(failed!(
                "can't write {}: it is read-only, and kept; use another name, or delete it",
                path.display()
            ));
        }
        if kind.is_char_device() || kind.is_block_device() || kind.is_fifo() || kind.is_socket() {
            return Ok(Self::Special(path.clone()));
        }
        // The file that a link leads to, not the link.
        let path = fs::canonicalize(path).map_err(|error| cannot_write(path, &error))?;
        Self::new_file(&path)
    }

    fn new_file(path: &Path) -> Result<Self, Failure> {
        let dir = match path.parent() {
            Some(dir) if dir != Path::new("") => dir,
            _ => Path::new("."),
        };
        let is_dir = fs::metadata(dir).map_err(|error| {
            failed!("can't write {}: {}: {error}; create the directory", path.display(), dir.display())
        })?;
        if !is_dir.is_dir() || path.file_name().is_none() {
            return Err(failed!("can't write {}: it is no file's name; use another", path.display()));
        }
        Ok(Self::File { path: path.into(), dir: dir.into() })
    }

    /// Writes all of it, or nothing that stays. A reader of standard output that wants no more is no failure.
    pub(crate) fn write(&self, bytes: &[u8]) -> Result<(), Failure> {
        match self {
            Self::Standard => {
                let mut stdout = io::stdout().lock();
                match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
                    Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                        Err(failed!("can't write to standard output: {error}; check where it goes"))
                    }
                    _ => Ok(()),
                }
            }
            Self::Special(path) => File::options()
                .write(true)
                .open(path)
                .and_then(|mut file| file.write_all(bytes))
                .map_err(|error| cannot_write(path, &error)),
            Self::File { path, dir } => replace(path, dir, bytes).map_err(|error| cannot_write(path, &error)),
        }
    }
}

/// Writes a file beside the other one, and gives it the other one's name.
fn replace(path: &Path, dir: &Path, bytes: &[u8]) -> io::Result<()> {
    // Those of the file that it replaces, or what the umask leaves.
    let permissions = fs::metadata(path).map(|old| old.permissions());
    let mut file = tempfile::Builder::new()
        .prefix(".cuframes-")
        .suffix(".part")
        .permissions(Permissions::from_mode(0o666))
        .tempfile_in(dir)?;
    if let Ok(permissions) = permissions {
        file.as_file().set_permissions(permissions)?;
    }
    file.write_all(bytes)?;
    // Some file systems say only here that the disk is full.
    file.as_file().sync_all()?;
    file.persist(path).map_err(|error| error.error)?;
    Ok(())
}

fn cannot_write(path: &Path, error: &io::Error) -> Failure {
    failed!("can't write {}: {error}; check the path and the disk that it is on", path.display())
}
