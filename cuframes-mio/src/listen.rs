//! The publisher's socket: is somebody on it already, and how we get it (§1, D-13, D-15).

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixListener;
use std::path::Path;

use cuframes_core::Key;
use rustix::fs::{Mode, fchmod};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen as start_listening,
    socket_with,
};

use crate::error::{Error, Holder};
use crate::name::OwnedName;
use crate::rundir::Access;
use crate::shm::Home;

/// Checks that nobody answers on the socket, whose lock we hold. A publisher of another implementation takes no lock
/// (D-13).
///
/// # Errors
/// [`Error::AlreadyExists`] if somebody does, or if the file is no socket: it is not ours to delete.
pub(crate) fn probe(path: &Path, key: &Key) -> Result<(), Error> {
    let failed = |source: io::Error| Error::io("probe", path, source);
    match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.file_type().is_socket() => {}
        Ok(_) => return Err(Error::already_exists(key, Holder::Foreign(path.to_path_buf()))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed(error)),
    }
    let address = SocketAddrUnix::new(path).map_err(|errno| failed(errno.into()))?;
    match connect(new_socket().map_err(|errno| failed(errno.into()))?, &address) {
        // Nobody listens. One refusal alone proves nothing (D-21), but the lock is ours, and before this file is
        // removed the region is looked at as well.
        Err(Errno::CONNREFUSED | Errno::NOENT) => Ok(()),
        // EAGAIN: it listens, and its backlog is full. EPROTOTYPE: it is alive, and no stream socket.
        Ok(()) | Err(Errno::AGAIN | Errno::PROTOTYPE) => {
            Err(Error::already_exists(key, Holder::Socket(path.to_path_buf())))
        }
        Err(errno) => Err(failed(errno.into())),
    }
}

/// Listens on `path`, after removing a socket there that [`probe`] found stale.
///
/// # Errors
/// [`Error::AlreadyExists`] if somebody else was faster, or an error of the operating system.
pub(crate) fn listen(
    path: &Path,
    key: &Key,
    access: Access,
    home: &Home,
) -> Result<(OwnedName, UnixListener), Error> {
    let failed = |source: io::Error| Error::io("listen on", path, source);
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    let create = || {
        let socket = new_socket()?;
        // `bind` makes the file with the socket's own mode, less the umask. So it never has a wider mode than it should,
        // while the umask of the whole process stays as it is, and while it gets its group nobody can connect yet:
        // that is refused before `listen`. The alternative, another name and a rename, would leave that name behind
        // after a crash and allow only shorter keys.
        fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
        bind(&socket, &SocketAddrUnix::new(path)?)?;
        Ok(socket)
    };
    let socket = create().map_err(|errno: Errno| match errno {
        Errno::ADDRINUSE => Error::already_exists(key, Holder::Socket(path.to_path_buf())),
        _ => failed(errno.into()),
    })?;
    let name = OwnedName::adopt(path.to_path_buf(), home).map_err(failed)?;
    access.widen(path, 0o660)?;
    start_listening(&socket, BACKLOG).map_err(|errno| failed(errno.into()))?;
    Ok((name, UnixListener::from(socket)))
}

fn new_socket() -> Result<OwnedFd, Errno> {
    socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC, None)
}

/// As many as may be connected without being subscribed (D-29).
const BACKLOG: i32 = 128;
