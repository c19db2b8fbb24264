//! [`Listeners`]: sockets that listen, and the files that they are known by.

use std::fs;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;

use cuframes_core::Instant;
use rustix::fs::{Mode, fchmod};
use rustix::io::Errno;
use rustix::net::sockopt::set_socket_reuseaddr;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, getsockname, listen, socket_with,
};

use super::startup::Startup;
use super::{Endpoint, NetError, SocketOptions};
use crate::entrance::{Caller, Entrance};
use crate::name::OwnedName;
use crate::shm::Home;

/// Sockets that listen already, so that the machine can be told their addresses.
#[derive(Debug, Default)]
pub struct Listeners(pub(super) Vec<Listener>);

impl Listeners {
    /// Listens on each of these, in this order. A Unix socket is for this user alone, and its file goes when this is dropped.
    ///
    /// # Errors
    /// If one of them can't be listened on.
    pub fn new<'a>(endpoints: impl IntoIterator<Item = &'a Endpoint>) -> Result<Self, NetError> {
        endpoints.into_iter().map(Listener::new).collect::<Result<_, _>>().map(Self)
    }

    /// Where they listen: with the ports that the system chose.
    pub fn endpoints(&self) -> impl Iterator<Item = &Endpoint> {
        self.0.iter().map(|listener| &listener.endpoint)
    }
}

/// A socket that listens.
#[derive(Debug)]
pub(super) struct Listener {
    // Removes the file of a Unix socket. Dropped first: while the socket listens nobody takes the file for one that was left.
    _name: Option<OwnedName>,
    entrance: Entrance,
    /// With the port that the system chose.
    pub(super) endpoint: Endpoint,
}

impl Listener {
    /// Listens. A Unix socket is for this user alone; one that nobody listens on any more is replaced.
    pub(super) fn new(endpoint: &Endpoint) -> Result<Self, NetError> {
        let failed = |errno: Errno| match errno {
            Errno::ADDRINUSE => NetError::InUse { endpoint: endpoint.clone() },
            Errno::NAMETOOLONG => NetError::PathTooLong { endpoint: endpoint.clone() },
            _ => NetError::system("listen on", endpoint, errno),
        };
        let system = |error| NetError::system("listen on", endpoint, error);
        let (socket, name, startup) = match endpoint {
            Endpoint::Tcp(address) => (tcp(address).map_err(failed)?, None, None),
            Endpoint::Ipc(path) => {
                let home = Home::new().map_err(system)?;
                let Some(startup) = Startup::begin(path, &home).map_err(system)? else {
                    return Err(NetError::InUse { endpoint: endpoint.clone() });
                };
                clear(path, endpoint)?;
                let socket = unix(path).map_err(failed)?;
                let name = OwnedName::adopt(path.clone(), &home).map_err(system)?;
                (socket, Some(name), Some(startup))
            }
        };
        listen(&socket, BACKLOG).map_err(failed)?;
        drop(startup);
        let endpoint = match endpoint {
            Endpoint::Tcp(_) => {
                let address = getsockname(&socket).and_then(SocketAddr::try_from).map_err(failed)?;
                Endpoint::Tcp(address)
            }
            Endpoint::Ipc(_) => endpoint.clone(),
        };
        Ok(Self { _name: name, entrance: Entrance::new(socket), endpoint })
    }

    pub(super) fn next(&mut self, now: Instant) -> Caller {
        self.entrance.next(now)
    }

    /// Sets these for itself, and with that for those who are accepted.
    pub(super) fn apply(&self, options: &SocketOptions) {
        options.apply(self, &self.endpoint);
    }

    pub(super) const fn poll_timeout(&self) -> Option<Instant> {
        self.entrance.poll_timeout()
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.entrance.as_fd()
    }
}

fn tcp(address: &SocketAddr) -> Result<OwnedFd, Errno> {
    let socket = new_socket(family(address))?;
    // Connections of an earlier listener that are not quite over do not keep the port.
    set_socket_reuseaddr(&socket, true)?;
    bind(&socket, address)?;
    Ok(socket)
}

fn unix(path: &Path) -> Result<OwnedFd, Errno> {
    let socket = new_socket(AddressFamily::UNIX)?;
    // `bind` makes the file with the socket's own mode, less the umask.
    fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    bind(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket)
}

/// Removes a socket that nobody listens on, nor is about to: we have the [`Startup`].
fn clear(path: &Path, endpoint: &Endpoint) -> Result<(), NetError> {
    let failed = |errno: Errno| NetError::system("listen on", endpoint, errno);
    match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.file_type().is_socket() => {}
        Ok(_) => return Err(NetError::NotASocket { endpoint: endpoint.clone() }),
        // If there is another reason than that there is nothing, `bind` meets it, too.
        Err(_) => return Ok(()),
    }
    let address = SocketAddrUnix::new(path).map_err(failed)?;
    match connect(new_socket(AddressFamily::UNIX).map_err(failed)?, &address) {
        Err(Errno::CONNREFUSED) => match fs::remove_file(path) {
            Ok(()) => Ok(()),
            Err(error) => Err(NetError::system("replace", endpoint, error)),
        },
        Err(Errno::NOENT) => Ok(()),
        // It listens, or somebody may who can't be asked.
        _ => Err(NetError::InUse { endpoint: endpoint.clone() }),
    }
}

/// The family of a TCP address.
pub(super) const fn family(address: &SocketAddr) -> AddressFamily {
    match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    }
}

/// A stream socket that does not block.
pub(super) fn new_socket(family: AddressFamily) -> Result<OwnedFd, Errno> {
    socket_with(family, SocketType::STREAM, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC, None)
}

const BACKLOG: i32 = 1024;

#[cfg(test)]
mod tests {
    use std::os::unix::net::{UnixListener, UnixStream};
    use std::sync::Barrier;
    use std::thread;

    use rustix::net::sockopt::{socket_recv_buffer_size, socket_send_buffer_size};

    use super::*;
    use crate::clock;

    #[test]
    fn those_who_are_accepted_have_the_buffers_of_their_listener_from_the_beginning() {
        let mut listeners = Listeners::new([&"tcp://127.0.0.1:0".parse().unwrap()]).unwrap();
        let listener = &mut listeners.0[0];
        let options = SocketOptions {
            receive_buffer: Some(24 << 10),
            send_buffer: Some(20 << 10),
            ..SocketOptions::default()
        };
        listener.apply(&options);
        let Endpoint::Tcp(address) = listener.endpoint else { panic!("no address") };
        let _peer = std::net::TcpStream::connect(address).unwrap();
        let Caller::Peer(accepted) = listener.next(clock::now()) else { panic!("nobody came") };
        assert_eq!(socket_recv_buffer_size(&accepted).unwrap(), 48 << 10);
        assert_eq!(socket_send_buffer_size(&accepted).unwrap(), 40 << 10);
    }
    #[test]
    fn of_many_who_start_at_once_exactly_one_listens() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("here");
        let endpoint = Endpoint::Ipc(path.clone());
        let barrier = Barrier::new(8);
        for round in 0..300 {
            if round % 3 == 0 {
                // What somebody left that was killed.
                drop(UnixListener::bind(&path).unwrap());
            }
            let start = || {
                barrier.wait();
                let started = Listeners::new([&endpoint]);
                barrier.wait();
                started
            };
            let started = thread::scope(|scope| {
                [(); 8].map(|()| scope.spawn(start)).map(|starting| starting.join().unwrap())
            });
            assert_eq!(
                started.iter().filter(|started| started.is_ok()).count(),
                1,
                "round {round}: {started:?}"
            );
            for error in started.iter().filter_map(|started| started.as_ref().err()) {
                assert!(matches!(error, NetError::InUse { .. }), "round {round}: {error}");
            }
            UnixStream::connect(&path).unwrap();
            drop(started);
            assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        }
    }

    #[test]
    fn what_a_starter_left_that_was_killed_is_nobodys_and_what_is_no_lock_stays() {
        let dir = tempfile::tempdir().unwrap();
        let endpoint = Endpoint::Ipc(dir.path().join("here"));
        let lock = dir.path().join("here.starting");
        fs::write(&lock, "").unwrap();
        drop(Listeners::new([&endpoint]).unwrap());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        fs::write(&lock, "something else").unwrap();
        assert!(matches!(Listeners::new([&endpoint]), Err(NetError::System { .. })));
        assert_eq!(fs::read_to_string(&lock).unwrap(), "something else");
    }
}
