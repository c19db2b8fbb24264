//! [`Target`]: where a picture or a video goes. A file of that name stays as it was until the new one is there, or has begun well.

use std::fs::{self, File, Permissions};
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{Access, OFlags, access, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use tempfile::{NamedTempFile, TempPath};

use crate::args::Stream;
use crate::error::{Failure, failed};
use crate::signals::Signals;

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
    /// Looks at the place for a picture, and changes nothing.
    pub(crate) fn find(stream: &Stream) -> Result<Self, Failure> {
        Self::find_for("picture", stream)
    }

    /// Looks whether a video can be begun there, which may take the place of another file only with `force`.
    pub(crate) fn find_for_video(stream: &Stream, force: bool) -> Result<Self, Failure> {
        let target = Self::find_for("video", stream)?;
        if let Self::File { path, dir } = &target {
            if !force && path.symlink_metadata().is_ok() {
                return Err(cannot_begin(path, &io::ErrorKind::AlreadyExists.into()));
            }
            // A file without a name: nobody sees it.
            tempfile::tempfile_in(dir).map_err(|error| cannot_write(path, &error))?;
        }
        Ok(target)
    }

    fn find_for(what: &str, stream: &Stream) -> Result<Self, Failure> {
        let path = match stream {
            Stream::Standard if io::stdout().is_terminal() => return Err(on_terminal(what)),
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
        if kind.is_char_device()
            && File::options().write(true).open(path).is_ok_and(|file| file.is_terminal())
        {
            return Err(on_terminal(what));
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

    /// Opens it for a video. A named pipe waits for its reader, or for a signal: then it is `None`.
    pub(crate) fn begin(&self, signals: &Signals) -> Result<Option<Begun>, Failure> {
        let (path, file) = match self {
            Self::Standard => {
                let file = io::stdout().as_fd().try_clone_to_owned().map(File::from);
                let file = file.map_err(|error| {
                    failed!("can't write to standard output: {error}; check where it goes")
                })?;
                return Ok(Some(Begun { file, part: None }));
            }
            Self::File { path, dir } => {
                let part = part(path, dir).map_err(|error| cannot_write(path, &error))?;
                let (file, part) = part.into_parts();
                return Ok(Some(Begun { file, part: Some((part, path.clone())) }));
            }
            Self::Special(path) => (path, open_special(path, signals)),
        };
        let file = file.map_err(|error| cannot_write(path, &error))?;
        Ok(file.map(|file| Begun { file, part: None }))
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

/// Where a video is written. A file has its name only once it is [kept](Self::keep), and is gone otherwise.
#[derive(Debug)]
pub(crate) struct Begun {
    file: File,
    part: Option<(TempPath, PathBuf)>,
}

impl Begun {
    pub(crate) fn file(&self) -> io::Result<File> {
        self.file.try_clone()
    }

    /// It has begun well: gives it its name, that of another file only with `force`.
    pub(crate) fn keep(self, force: bool) -> Result<(), Failure> {
        let Some((part, path)) = self.part else { return Ok(()) };
        let kept = if force { part.persist(&path) } else { part.persist_noclobber(&path) };
        kept.map_err(|error| cannot_begin(&path, &error.error))
    }
}

/// Opens a device or a pipe. `None` if a signal came before the reader of a named pipe.
fn open_special(path: &Path, signals: &Signals) -> io::Result<Option<File>> {
    let is_pipe = fs::metadata(path)?.file_type().is_fifo();
    let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or(0);
    loop {
        match File::options().write(true).custom_flags(flags).open(path) {
            Ok(file) => {
                // From here on it is right to wait.
                fcntl_setfl(&file, fcntl_getfl(&file)?.difference(OFlags::NONBLOCK))?;
                return Ok(Some(file));
            }
            Err(error) if is_pipe && Errno::from_io_error(&error) == Some(Errno::NXIO) => {
                if signals.wait(RETRY) {
                    return Ok(None);
                }
            }
            Err(error) => return Err(error),
        }
    }
}

/// Writes a file beside the other one, and gives it the other one's name.
fn replace(path: &Path, dir: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = part(path, dir)?;
    file.write_all(bytes)?;
    // Some file systems say only here that the disk is full.
    file.as_file().sync_all()?;
    file.persist(path).map_err(|error| error.error)?;
    Ok(())
}

/// A file beside the other one, which is to have its name.
fn part(path: &Path, dir: &Path) -> io::Result<NamedTempFile> {
    // Those of the file that it replaces, or what the umask leaves.
    let permissions = fs::metadata(path).map(|old| old.permissions());
    let file = tempfile::Builder::new()
        .prefix(".cuframes-")
        .suffix(".part")
        .permissions(Permissions::from_mode(0o666))
        .tempfile_in(dir)?;
    if let Ok(permissions) = permissions {
        file.as_file().set_permissions(permissions)?;
    }
    Ok(file)
}

fn on_terminal(what: &str) -> Failure {
    failed!("can't write a {what} to the terminal; name a file, or send standard output to one")
}

fn cannot_begin(path: &Path, error: &io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::AlreadyExists => {
            failed!("can't write {}: it exists; use --force or another name", path.display())
        }
        _ => cannot_write(path, error),
    }
}

fn cannot_write(path: &Path, error: &io::Error) -> Failure {
    failed!("can't write {}: {error}; check the path and the disk that it is on", path.display())
}

/// How often a named pipe is tried that nobody reads.
const RETRY: Duration = Duration::from_millis(50);
