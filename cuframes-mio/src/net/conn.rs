//! [`Conn`]: one connection of a driver, from the wish for it on.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use cuframes_core::Instant;
use cuframes_core::streams::ConnId;
use rustix::io::Errno;
use rustix::net::sockopt::socket_error;
use rustix::net::{AddressFamily, SocketAddrUnix, connect, getpeername, getsockname};

use super::listener::{family, new_socket};
use super::{Carrier, Endpoint, Side, SocketOptions};
use crate::reconnect::Reconnect;

/// One connection, on a carrier's socket.
#[derive(Debug)]
pub(super) struct Conn<S> {
    pub(super) id: ConnId,
    pub(super) state: State<S>,
}

/// How far it is.
#[derive(Debug)]
pub(super) enum State<S> {
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
    /// The carrier is at it. Without a target it is one that a peer has made.
    Opening {
        target: Option<Target>,
        socket: S,
    },
    Open(S),
}

/// Where a connection is to lead, and how patiently.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub(super) endpoint: Endpoint,
    /// The pause after the next attempt that fails.
    pause: Duration,
}

/// Why a connection did not come about, and where to it was to lead if it is ours.
pub(super) type Failure = (Option<Target>, io::Error);

impl Target {
    pub(super) fn new(endpoint: Endpoint) -> Self {
        Self { endpoint, pause: Reconnect::default().first_delay }
    }
}

impl<S: AsFd> Conn<S> {
    /// The descriptor to watch.
    pub(super) fn socket(&self) -> Option<BorrowedFd<'_>> {
        match &self.state {
            State::Waiting { .. } => None,
            State::Connecting { socket, .. } => Some(socket.as_fd()),
            State::Opening { socket, .. } | State::Open(socket) => Some(socket.as_fd()),
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

impl<S> State<S> {
    /// Whether it is one of ours.
    pub(super) const fn is_wanted(&self) -> bool {
        !matches!(self, Self::Open(_) | Self::Opening { target: None, .. })
    }

    /// Another attempt later.
    pub(super) fn again(now: Instant, mut target: Target) -> Self {
        let at = now + target.pause;
        target.pause = Reconnect::default().after(target.pause);
        Self::Waiting { target, at }
    }

    /// Begins an attempt, or looks how it goes.
    pub(super) fn advance(
        self,
        carrier: &mut impl Carrier<Socket = S>,
        options: &SocketOptions,
    ) -> Result<Self, Failure> {
        match self {
            Self::Waiting { target, .. } => match attempt(&target.endpoint, options) {
                Ok(socket) => Ok(Self::Connecting { target, socket }),
                Err(errno) => Err((Some(target), errno.into())),
            },
            Self::Connecting { target, socket } => match look(&target.endpoint, &socket) {
                Ok(true) => match carrier.carry(socket, Side::Connected) {
                    Ok(socket) => Self::open(carrier, Some(target), socket),
                    Err(error) => Err((Some(target), error)),
                },
                Ok(false) => Ok(Self::Connecting { target, socket }),
                Err(errno) => Err((Some(target), errno.into())),
            },
            Self::Opening { target, socket } => Self::open(carrier, target, socket),
            open @ Self::Open(_) => Ok(open),
        }
    }

    fn open(
        carrier: &mut impl Carrier<Socket = S>,
        target: Option<Target>,
        mut socket: S,
    ) -> Result<Self, Failure> {
        match carrier.open(&mut socket) {
            Ok(true) => Ok(Self::Open(socket)),
            Ok(false) => Ok(Self::Opening { target, socket }),
            Err(error) => Err((target, error)),
        }
    }
}

/// Starts an attempt.
fn attempt(endpoint: &Endpoint, options: &SocketOptions) -> Result<OwnedFd, Errno> {
    match endpoint {
        Endpoint::Tcp(address) => {
            let socket = new_socket(family(address))?;
            options.apply(&socket, endpoint);
            match connect(&socket, address) {
                // One that goes on is none that failed.
                Ok(()) | Err(Errno::INPROGRESS | Errno::INTR) => Ok(socket),
                Err(errno) => Err(errno),
            }
        }
        Endpoint::Ipc(path) => {
            let socket = new_socket(AddressFamily::UNIX)?;
            options.apply(&socket, endpoint);
            connect(&socket, &SocketAddrUnix::new(path)?)?;
            Ok(socket)
        }
    }
}

/// Looks whether an attempt has come to its end.
fn look(endpoint: &Endpoint, socket: &OwnedFd) -> Result<bool, Errno> {
    socket_error(socket)??;
    let peer = match getpeername(socket) {
        // The event was about something else.
        Err(Errno::NOTCONN) => return Ok(false),
        peer => peer?,
    };
    // Whoever tries a free port again and again gets it as his own one day, and is connected to himself.
    let is_self = matches!(endpoint, Endpoint::Tcp(_)) && peer == Some(getsockname(socket)?);
    if is_self { Err(Errno::CONNREFUSED) } else { Ok(true) }
}
