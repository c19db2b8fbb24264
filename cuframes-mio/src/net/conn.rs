//! [`Conn`]: one connection of a driver, from the wish for it on.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use cuframes_core::Instant;
use cuframes_core::streams::ConnId;
use rustix::io::Errno;
use rustix::net::sockopt::{set_tcp_nodelay, socket_error};
use rustix::net::{AddressFamily, SocketAddrUnix, connect, getpeername, getsockname};

use super::Endpoint;
use super::listener::{family, new_socket};
use crate::reconnect::Reconnect;

/// One connection.
#[derive(Debug)]
pub(super) struct Conn {
    pub(super) id: ConnId,
    pub(super) state: State,
}

/// How far it is.
#[derive(Debug)]
pub(super) enum State {
    /// To be tried at `at`.
    Waiting {
        target: Target,
        at: Instant,
    },
    /// The system is at it.
    Connecting {
        target: Target,
        socket: OwnedFd,
    },
    Open(OwnedFd),
}

/// Where a connection is to lead, and how patiently.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub(super) endpoint: Endpoint,
    /// The pause after the next attempt that fails.
    pause: Duration,
}

impl Target {
    pub(super) fn new(endpoint: Endpoint) -> Self {
        Self { endpoint, pause: Reconnect::default().first_delay }
    }
}

impl Conn {
    /// A connection that a peer has made.
    pub(super) fn accepted(id: ConnId, socket: OwnedFd) -> Self {
        Self { id, state: State::open(socket) }
    }

    pub(super) const fn socket(&self) -> Option<&OwnedFd> {
        match &self.state {
            State::Waiting { .. } => None,
            State::Connecting { socket, .. } | State::Open(socket) => Some(socket),
        }
    }

    /// When an attempt is due.
    pub(super) const fn due(&self) -> Option<Instant> {
        match &self.state {
            State::Waiting { at, .. } => Some(*at),
            _ => None,
        }
    }
}

impl State {
    fn open(socket: OwnedFd) -> Self {
        // Small messages are not kept back to wait for more; a Unix socket has no such option.
        let _ = set_tcp_nodelay(&socket, true);
        Self::Open(socket)
    }

    /// Starts an attempt. Where it fails, the next one is due later, and the error says why.
    pub(super) fn attempt(now: Instant, target: Target) -> (Self, Option<io::Error>) {
        let result = match &target.endpoint {
            Endpoint::Tcp(address) => new_socket(family(address))
                .and_then(|socket| connect(&socket, address).map_or_else(pending, Ok).map(|()| socket)),
            Endpoint::Ipc(path) => new_socket(AddressFamily::UNIX)
                .and_then(|socket| connect(&socket, &SocketAddrUnix::new(path)?).map(|()| socket)),
        };
        match result {
            Ok(socket) => (Self::Connecting { target, socket }, None),
            Err(errno) => Self::failed(now, target, errno),
        }
    }

    /// Looks how an attempt went.
    pub(super) fn look(now: Instant, target: Target, socket: OwnedFd) -> (Self, Option<io::Error>) {
        let connected = || {
            socket_error(&socket)??;
            let peer = getpeername(&socket)?;
            // Whoever tries a free port again and again gets it as his own one day, and is connected to himself.
            let is_self = matches!(target.endpoint, Endpoint::Tcp(_)) && peer == Some(getsockname(&socket)?);
            if is_self { Err(Errno::CONNREFUSED) } else { Ok(()) }
        };
        match connected() {
            Ok(()) => (Self::open(socket), None),
            // The event was about something else.
            Err(Errno::NOTCONN) => (Self::Connecting { target, socket }, None),
            Err(errno) => Self::failed(now, target, errno),
        }
    }

    fn failed(now: Instant, mut target: Target, errno: Errno) -> (Self, Option<io::Error>) {
        let at = now + target.pause;
        target.pause = Reconnect::default().after(target.pause);
        (Self::Waiting { target, at }, Some(errno.into()))
    }
}

/// An attempt that goes on is none that failed.
const fn pending(errno: Errno) -> Result<(), Errno> {
    match errno {
        Errno::INPROGRESS | Errno::INTR => Ok(()),
        _ => Err(errno),
    }
}
