//! [`Error`], what publishers and subscribers report. Each one displays as one line: what failed, on which stream or
//! file, and what to do about it.

use std::error;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cuframes_core::error::ErrorCode;
use cuframes_core::gpu::GpuError;
use cuframes_core::ring::{FrameLost, Stalled};
use cuframes_core::roster::Member;
use cuframes_core::session::Closed;
use cuframes_core::wire::meta::MetaError;
use cuframes_core::{Backend, Gone, Key, Misuse, Refused, Violation};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use crate::host::{HostError, HostOrError};

/// Why a publisher or a subscriber can't go on.
///
/// `source()` is always `None`: the display has the cause in it already, and the fields hold it for a program.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The peer broke the protocol.
    Violation {
        /// The stream.
        key: Key,
        /// Where and how.
        violation: Violation,
    },
    /// The peer said no.
    Refused {
        /// The stream.
        key: Key,
        /// Its reason.
        refused: Refused,
    },
    /// The caller broke a contract of this API.
    Misuse {
        /// The stream.
        key: Key,
        /// Which contract.
        misuse: Misuse,
    },
    /// A frame geometry that does not hold together.
    Meta {
        /// The stream.
        key: Key,
        /// What is wrong with it.
        error: MetaError,
    },
    /// The frames are in memory that can't be used here (D-28).
    Unusable {
        /// The stream.
        key: Key,
        /// Where they are.
        backend: Backend,
    },
    /// A backend's call failed: frame memory, a stream or an event of a device.
    Device {
        /// The stream.
        key: Key,
        /// The code of the wire for it.
        code: ErrorCode,
        /// Which call, and why; the backend's own error type.
        error: Box<dyn error::Error + Send + Sync>,
    },
    /// What was read may not have been the frame: do not use it.
    Lost {
        /// The stream.
        key: Key,
        /// How it was lost.
        lost: FrameLost,
    },
    /// The publisher's queue of new connections is full right now.
    Busy {
        /// The stream.
        key: Key,
    },
    /// A child process uses what belongs to the process that it was forked from (P-20).
    Forked {
        /// The stream.
        key: Key,
    },
    /// No slot became free in time (X-2, D-6).
    Stalled {
        /// The stream.
        key: Key,
        /// What was waited for.
        stalled: Stalled,
        /// For how long.
        timeout: Duration,
        /// Who was in the way.
        members: Vec<Member>,
    },
    /// The other side is not there any more.
    Gone {
        /// The stream.
        key: Key,
        /// How it went.
        gone: Gone,
    },
    /// The key belongs to another publisher (D-13).
    AlreadyExists {
        /// The stream.
        key: Key,
        /// What shows it.
        holder: Holder,
    },
    /// No publisher was found (D-14).
    NotFound {
        /// The stream.
        key: Key,
        /// The run directories that were looked in.
        looked_in: Vec<PathBuf>,
    },
    /// The operating system does not allow it.
    PermissionDenied {
        /// What we wanted to do, as a verb with its object.
        what: &'static str,
        /// On which file.
        path: PathBuf,
    },
    /// A file or directory can't be trusted, because somebody else may control it (D-14).
    Untrusted {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: Distrust,
    },
    /// Shared memory is full (D-25).
    NoSpace {
        /// The file that needs it.
        path: PathBuf,
        /// Bytes needed.
        needed: u64,
        /// Bytes available: in its file system, or in memory; `None` if the system doesn't say.
        available: Option<u64>,
    },
    /// The path of a socket is longer than the kernel allows.
    PathTooLong {
        /// The path.
        path: PathBuf,
        /// The most bytes it may have.
        max: usize,
    },
    /// File descriptors that the publisher sent did not arrive, because this process may not have more (D-22).
    DescriptorsLost {
        /// The stream.
        key: Key,
        /// How many it may have; `None` if there is no limit.
        limit: Option<u64>,
    },
    /// The operating system refused something that is not about a file: a socket, an event loop, a thread.
    System {
        /// The stream.
        key: Key,
        /// What we wanted to do, as a verb with its object.
        what: &'static str,
        /// The error.
        source: io::Error,
    },
    /// The operating system reported another error.
    Io {
        /// What we wanted to do, as a verb with its object.
        what: &'static str,
        /// On which file.
        path: PathBuf,
        /// The error.
        source: io::Error,
        /// What to do about it, where that is known.
        remedy: Option<&'static str>,
    },
}

impl Error {
    /// The code of the wire for this error.
    #[must_use]
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Violation { violation, .. } => violation.code(),
            Self::Refused { refused, .. } => refused.code,
            Self::Misuse { .. } | Self::PathTooLong { .. } | Self::Meta { .. } | Self::Forked { .. } => {
                ErrorCode::INVALID_ARGUMENT
            }
            Self::Unusable { .. } => ErrorCode::UNSUPPORTED,
            Self::Device { code, .. } => *code,
            Self::Lost { lost: FrameLost::Overwritten, .. } => ErrorCode::OVERWRITTEN,
            Self::Lost { .. } => ErrorCode::EVICTED,
            Self::Busy { .. } => ErrorCode::TOO_MANY,
            Self::Stalled { .. } | Self::Gone { gone: Gone::Timeout { .. }, .. } => ErrorCode::TIMEOUT,
            Self::Gone { .. } => ErrorCode::DISCONNECTED,
            Self::AlreadyExists { .. } => ErrorCode::ALREADY_EXISTS,
            Self::NotFound { .. } => ErrorCode::NOT_FOUND,
            Self::PermissionDenied { .. } | Self::Untrusted { .. } => ErrorCode::PERMISSION,
            Self::NoSpace { .. } => ErrorCode::OUT_OF_MEMORY,
            Self::DescriptorsLost { .. } | Self::System { .. } | Self::Io { .. } => ErrorCode::IO,
        }
    }

    /// An error of the operating system: we could not `what` (a verb with its object) on `path`.
    pub(crate) fn io(what: &'static str, path: &Path, source: impl Into<io::Error>) -> Self {
        let (path, source) = (path.to_path_buf(), source.into());
        match source.kind() {
            io::ErrorKind::PermissionDenied => Self::PermissionDenied { what, path },
            _ => {
                let remedy = remedy(&source);
                Self::Io { what, path, source, remedy }
            }
        }
    }

    /// A call of a backend failed.
    pub(crate) fn device(key: &Key, error: impl GpuError) -> Self {
        let code = error.code();
        // Of host memory we know all that can be known.
        match HostOrError::peel(Box::new(error)).downcast::<HostError>() {
            Ok(error) => error.into_error(key),
            Err(error) => Self::Device { key: key.clone(), code, error },
        }
    }

    /// The operating system refused something about stream `key`: we could not `what` (a verb with its object).
    pub(crate) fn system(key: &Key, what: &'static str, source: impl Into<io::Error>) -> Self {
        Self::System { key: key.clone(), what, source: source.into() }
    }

    /// Descriptors for stream `key` did not arrive.
    pub(crate) fn descriptors_lost(key: &Key) -> Self {
        Self::DescriptorsLost { key: key.clone(), limit: getrlimit(Resource::Nofile).current }
    }

    /// The session of stream `key` ended like this.
    pub(crate) fn closed(key: &Key, closed: Closed) -> Self {
        let key = key.clone();
        match closed {
            Closed::Violation(violation) => Self::Violation { key, violation },
            Closed::Refused(refused) => Self::Refused { key, refused },
            Closed::Gone(gone) => Self::Gone { key, gone },
            // Why we rejected the publisher has been told before.
            _ => Self::Gone { key, gone: Gone::Disconnected },
        }
    }

    /// Says what to do about an [`Error::Io`] of this kind.
    pub(crate) fn hint(mut self, kind: io::ErrorKind, hint: &'static str) -> Self {
        match &mut self {
            Self::Io { source, remedy, .. } if source.kind() == kind => *remedy = Some(hint),
            _ => {}
        }
        self
    }

    /// The peer of stream `key` broke the protocol.
    pub(crate) fn violation(key: &Key, violation: Violation) -> Self {
        Self::Violation { key: key.clone(), violation }
    }

    /// `key` belongs to another publisher.
    pub(crate) fn already_exists(key: &Key, holder: Holder) -> Self {
        Self::AlreadyExists { key: key.clone(), holder }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Violation { key, violation } => {
                let remedy = "use versions that fit each other, and if they do, report it";
                write!(f, "stream {key}: the peer broke the protocol: {violation}; {remedy}")
            }
            Self::Refused { key, refused } => {
                write!(f, "stream {key}: {refused}; {}", refusal_remedy(refused.code))
            }
            Self::Misuse { key, misuse } => write!(f, "stream {key}: {misuse}"),
            Self::Meta { key, error } => write!(f, "stream {key}: {error}"),
            Self::Unusable { key, backend } => write!(
                f,
                "stream {key}: its frames are in memory of kind {backend}, which this program can't open; use one that can, or publish it in host memory"
            ),
            Self::Device { key, error, .. } => write!(f, "stream {key}: {error}"),
            Self::Lost { key, lost } => write!(f, "stream {key}: {lost}"),
            Self::Busy { key } => {
                write!(
                    f,
                    "stream {key}: its publisher has no room for another connection right now; try again"
                )
            }
            Self::Forked { key } => write!(
                f,
                "stream {key}: it belongs to the process that this one was forked from; subscribe or publish here anew"
            ),
            Self::Stalled { key, stalled, timeout, members } => {
                write!(f, "stream {key}: no slot became free within {timeout:?}: {stalled}")?;
                for Member { bit, name, pid, .. } in members {
                    write!(f, "; {bit} is {name} (pid {pid})")?;
                }
                f.write_str("; drop the frame, wait longer, or use a larger ring")
            }
            Self::Gone { key, gone } => write!(f, "stream {key}: {gone}; {}", gone_remedy(*gone)),
            Self::AlreadyExists { key, holder } => {
                write!(f, "stream {key} exists already: {holder}, or use another key")
            }
            Self::NotFound { key, looked_in } => {
                write!(f, "stream {key} not found in")?;
                for (i, path) in looked_in.iter().enumerate() {
                    write!(f, "{} {}", if i == 0 { "" } else { "," }, path.display())?;
                }
                f.write_str("; is its publisher running, as this user and with the same CUFRAMES_RUN_DIR?")
            }
            Self::PermissionDenied { what, path } => write!(
                f,
                "not allowed to {what} {}; check its owner and mode, and who we run as",
                path.display()
            ),
            // A peer has named it, so it may be anything.
            Self::Untrusted { path, problem: problem @ Distrust::NotTheRegion { .. } } => {
                write!(f, "{path:?} can't be trusted: {problem}")
            }
            Self::Untrusted { path, problem } => write!(f, "{} can't be trusted: {problem}", path.display()),
            Self::NoSpace { path, needed, available } => {
                write!(f, "{} needs {needed} bytes, ", path.display())?;
                match available {
                    Some(available) => write!(f, "{available} are available")?,
                    None => f.write_str("fewer are available")?,
                }
                f.write_str("; free some or enlarge it (container: --shm-size, --memory)")
            }
            Self::PathTooLong { path, max } => write!(
                f,
                "{} is longer than the {max} bytes of a socket path; set CUFRAMES_RUN_DIR to a shorter one",
                path.display()
            ),
            Self::DescriptorsLost { key, limit } => {
                write!(f, "stream {key}: file descriptors of the stream did not arrive: ")?;
                match limit {
                    Some(limit) => write!(f, "this process may have {limit} open files")?,
                    None => f.write_str("this process may have no more open files")?,
                }
                f.write_str("; raise the limit (ulimit -n) or close some")
            }
            Self::System { key, what, source } => {
                write!(f, "stream {key}: can't {what}: {source}")?;
                remedy(source).map_or(Ok(()), |remedy| write!(f, "; {remedy}"))
            }
            Self::Io { what, path, source, remedy } => {
                write!(f, "can't {what} {}: {source}", path.display())?;
                remedy.map_or(Ok(()), |remedy| write!(f, "; {remedy}"))
            }
        }
    }
}

impl error::Error for Error {}

/// What shows that a key belongs to another publisher (D-13).
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Holder {
    /// A process holds the lock of this file.
    Lock(PathBuf),
    /// A process answers on this socket.
    Socket(PathBuf),
    /// A region of a publisher that takes no lock does not name a process that is gone.
    Process {
        /// The region.
        region: PathBuf,
        /// The process that it names, or a number that is none, such as 0. Others may have written it.
        pid: u64,
    },
    /// Something that is not of cuframes has the name.
    Foreign(PathBuf),
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lock(path) => {
                write!(f, "{0} is locked; stop its publisher (fuser {0} names it)", path.display())
            }
            Self::Socket(path) => write!(f, "a publisher answers on {}; stop it", path.display()),
            // Whoever could write the file may have written this number.
            Self::Process { region, pid } => match u32::try_from(*pid) {
                Ok(pid @ 1..) => write!(
                    f,
                    "{} says that process {pid} publishes it; if that is a publisher, stop it, and if not, delete the file",
                    region.display()
                ),
                _ => write!(
                    f,
                    "{} does not say which process publishes it; stop its publisher (fuser names it), or delete it if \
                     there is none",
                    region.display()
                ),
            },
            Self::Foreign(path) => {
                write!(f, "{} is not a file of cuframes; delete it if nobody needs it", path.display())
            }
        }
    }
}

/// Why a file or directory can't be trusted (D-14).
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Distrust {
    /// It is a symbolic link or something else instead of a directory.
    NotADirectory,
    /// It is a symbolic link or something else instead of a regular file.
    NotARegularFile,
    /// It belongs to a user that it must not belong to.
    Owner {
        /// Its owner.
        found: u32,
        /// Whose it must be.
        expected: u32,
    },
    /// Others may write in the directory.
    WritableByOthers {
        /// Its mode.
        mode: u32,
    },
    /// A publisher asks its subscriber to open a file that is not the region of the stream.
    NotTheRegion {
        /// The region.
        region: PathBuf,
    },
}

impl fmt::Display for Distrust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotADirectory => f.write_str("not a directory; set CUFRAMES_RUN_DIR to one"),
            Self::NotARegularFile => f.write_str("not a regular file; delete it"),
            Self::Owner { found, expected } => {
                write!(f, "owned by user {found} and not {expected}; delete it or let its owner do so")
            }
            Self::WritableByOthers { mode } => {
                write!(f, "others may write in it (mode {mode:03o}); take that from them (chmod go-w)")
            }
            Self::NotTheRegion { region } => write!(
                f,
                "the publisher names it as its region, which is {}; use another publisher",
                region.display()
            ),
        }
    }
}

/// What to do about a peer that said no.
const fn refusal_remedy(code: ErrorCode) -> &'static str {
    match code {
        ErrorCode::INVALID_ARGUMENT => "give the subscriber another name",
        ErrorCode::TOO_MANY => "end another subscriber: a stream has at most 31",
        ErrorCode::EVICTED => "take and release frames faster, or publish with drop-oldest",
        ErrorCode::PERMISSION => "run as the publisher's user, or let it allow this one",
        ErrorCode::PROTOCOL => "use versions that speak the same protocol",
        ErrorCode::UNSUPPORTED => {
            "use a subscriber with the extensions that the stream needs, such as fd-passing"
        }
        ErrorCode::FORMAT => "publish another format",
        ErrorCode::TIMEOUT => "is one of the two stopped, or very busy?",
        ErrorCode::IO => "raise its limit on open files (ulimit -n)",
        ErrorCode(0..) => "that is no error code, so use versions that fit each other",
        _ => "its own log may say why",
    }
}

/// What to do about a peer that is not there any more.
fn gone_remedy(gone: Gone) -> &'static str {
    match gone {
        Gone::Timeout { .. } => "is the other side stopped, or very busy?",
        Gone::Shutdown(_) => "it says why",
        _ => "start its publisher again",
    }
}

/// What to do about some errors of the operating system.
fn remedy(source: &io::Error) -> Option<&'static str> {
    match Errno::from_io_error(source)? {
        Errno::MFILE | Errno::NFILE => Some("raise the limit on open files (ulimit -n)"),
        Errno::NOSYS => Some("a newer Linux is needed"),
        Errno::NOMEM => Some("free some memory, or use a smaller ring or frame"),
        Errno::NOSPC | Errno::DQUOT => Some("free some space or files there (df -h, df -i)"),
        Errno::ROFS => Some("use a directory that can be written"),
        Errno::NAMETOOLONG => Some("use a shorter path"),
        Errno::FBIG => Some("raise the limit on file sizes (ulimit -f)"),
        Errno::AGAIN => Some("raise the limits on processes and memory (ulimit -u, ulimit -v)"),
        Errno::LOOP => Some("mend the symbolic links"),
        Errno::NOTDIR => Some("use a path of which every part is a directory"),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
