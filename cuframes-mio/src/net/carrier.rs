//! [`Carrier`]: how the bytes of a connection are moved, and [`Plain`], the system's own way.

use std::fmt::Debug;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, OwnedFd};

use rustix::io::retry_on_intr;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, recv, sendmsg};

/// Moves the bytes of a [`Driver`](super::Driver)'s connections.
///
/// Connections are made over TCP or a Unix socket in any case. A carrier then makes of each what it sends and receives on:
/// [`Plain`] the socket itself, another one a queue pair, a ring, a session with encryption. The machine does not see which.
///
/// No call may block. Whatever can't go on now is [`WouldBlock`](io::ErrorKind::WouldBlock), and the driver calls again after the
/// next event of the [`Socket`](Self::Socket)'s descriptor. That is watched edge-triggered, for reading and writing: once
/// something was `WouldBlock` there has to be an event when it is not any more. A carrier that waits for several descriptors
/// gives an epoll of its own with all of them in it.
pub trait Carrier {
    /// What a connection is. Its descriptor is the one to watch; it may be another one after [`open`](Self::open), and then stays.
    /// Dropping it closes the connection.
    type Socket: AsFd + Debug;

    /// Takes over a socket that is connected and does not block. `side` says who has made the connection.
    ///
    /// # Errors
    /// If that is not possible. A connection that was accepted then ends, the others are tried again.
    fn carry(&mut self, socket: OwnedFd, side: Side) -> io::Result<Self::Socket>;

    /// Goes on with what has to be done before anything can be sent or received, such as to exchange addresses over the socket;
    /// called at once and after each event, until it answers that all is done. By default nothing has to be. Bytes that it receives
    /// beyond its own it keeps for [`recv`](Self::recv).
    ///
    /// How long that may take is up to the machine: it knows of a connection that was accepted, and of one that it wants.
    ///
    /// # Errors
    /// As [`carry`](Self::carry).
    fn open(&mut self, socket: &mut Self::Socket) -> io::Result<bool> {
        let _ = socket;
        Ok(true)
    }

    /// Sends from the beginning of `parts`, which are not all empty, and answers how many bytes it has sent: one at least.
    ///
    /// What was not sent is offered again, the same bytes first, but in other parts, perhaps from another place. So bytes that
    /// are still needed after this call have to be copied, or be in memory that the carrier knows and keeps itself.
    ///
    /// # Errors
    /// [`WouldBlock`](io::ErrorKind::WouldBlock), or what has ended the connection: receiving has to find that, too, after what
    /// has arrived before.
    fn send(&mut self, socket: &mut Self::Socket, parts: &[IoSlice<'_>]) -> io::Result<usize>;

    /// Receives to the beginning of `buffer`, which is not empty, and answers how many bytes; none at the end of the connection.
    ///
    /// # Errors
    /// [`WouldBlock`](io::ErrorKind::WouldBlock), or what has ended the connection.
    fn recv(&mut self, socket: &mut Self::Socket, buffer: &mut [u8]) -> io::Result<usize>;
}

/// Who has made a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(clippy::exhaustive_enums, reason = "one of two has to begin")]
pub enum Side {
    /// The peer; we have accepted it.
    Accepted,
    /// We.
    Connected,
}

/// The socket itself.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[expect(clippy::exhaustive_structs, reason = "it has nothing to say")]
pub struct Plain;

impl Carrier for Plain {
    type Socket = OwnedFd;

    fn carry(&mut self, socket: OwnedFd, _: Side) -> io::Result<OwnedFd> {
        Ok(socket)
    }

    fn send(&mut self, socket: &mut OwnedFd, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut nothing = SendAncillaryBuffer::default();
        Ok(retry_on_intr(|| sendmsg(&*socket, parts, &mut nothing, SendFlags::NOSIGNAL))?)
    }

    fn recv(&mut self, socket: &mut OwnedFd, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(retry_on_intr(|| recv(&*socket, &mut *buffer, RecvFlags::empty()))?.1)
    }
}
