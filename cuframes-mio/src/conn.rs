//! [`Conn`]: one socket and the session that speaks on it.
//!
//! Sockets are registered edge-triggered: whoever stops reading before `WouldBlock` answers [`Turn::Again`].

use std::collections::VecDeque;
use std::io;
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use cuframes_core::Instant;
use cuframes_core::session::Session;
use mio::Interest;

use crate::fdpass;
use crate::pollable::Turn;

/// A non-blocking connection.
#[derive(Debug)]
pub(crate) struct Conn<S> {
    pub(crate) session: S,
    socket: UnixStream,
    fds: VecDeque<OwnedFd>,
    /// Descriptors were lost because this process may not have more (D-22). Nothing is read any more: whoever drives this
    /// says so to both sides.
    pub(crate) has_lost_descriptors: bool,
}

impl<S: Session<Fd = OwnedFd>> Conn<S> {
    /// A connection over a socket, which becomes non-blocking.
    pub(crate) fn new(socket: UnixStream, session: S) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        Ok(Self { session, socket, fds: VecDeque::new(), has_lost_descriptors: false })
    }

    /// Reads what there is, within a budget, and sends what the session answers.
    pub(crate) fn drive(&mut self, now: Instant) -> Turn {
        let turn = self.receive(now);
        self.flush(now);
        turn
    }

    /// Reads until the socket has nothing more, it ended, or the budget is used up.
    fn receive(&mut self, now: Instant) -> Turn {
        let mut buffer = [0; 2048];
        for _ in 0..READ_BUDGET {
            if self.session.is_closed() || self.has_lost_descriptors {
                return Turn::Idle;
            }
            match fdpass::recv(&self.socket, &mut buffer, &mut self.fds) {
                Ok(0) => {
                    self.session.handle_eof(now);
                    return Turn::Idle;
                }
                Ok(n) => self.session.handle_bytes(now, buffer.get(..n).unwrap_or_default(), &mut self.fds),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Turn::Idle,
                Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                    self.has_lost_descriptors = true;
                    return Turn::Idle;
                }
                // Reset.
                Err(_) => {
                    self.session.handle_eof(now);
                    return Turn::Idle;
                }
            }
        }
        Turn::Again
    }

    /// The peer is gone: reads what it said before, which may be UNSUBSCRIBE (D-20), and ends the session.
    ///
    /// No more than a socket holds: somebody else may still have a copy of it, and write for ever.
    pub(crate) fn receive_last(&mut self, now: Instant) {
        for _ in 0..LAST_TURNS {
            if self.receive(now) == Turn::Idle {
                break;
            }
        }
        self.session.handle_eof(now);
    }

    /// Sends as much as the socket takes.
    pub(crate) fn flush(&mut self, now: Instant) {
        while let Some(transmit) = self.session.poll_transmit() {
            match fdpass::send(&self.socket, transmit.bytes, transmit.fd.map(AsFd::as_fd)) {
                Ok(n) => self.session.transmitted(n),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => {
                    return self.receive_last(now);
                }
            }
        }
    }

    /// Ends the connection for the peer once the session is over: whoever has this one may keep it for long.
    pub(crate) fn hang_up_if_closed(&self) {
        if self.session.is_closed() {
            // It fails if the peer was faster.
            let _ = self.socket.shutdown(Shutdown::Both);
        }
    }

    pub(crate) const fn socket(&self) -> &UnixStream {
        &self.socket
    }
}

impl<S> AsFd for Conn<S> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// What a connection is registered for.
pub(crate) const INTEREST: Interest = Interest::READABLE.add(Interest::WRITABLE);
/// Turns that empty a socket's buffer.
const LAST_TURNS: usize = 16;
/// Reads in one turn; a peer that sends more waits until the others had theirs.
const READ_BUDGET: usize = 16;
