//! [`Machine`]: a protocol over plain byte streams (TCP, Unix sockets without descriptors), several of them at once.
//!
//! The sessions of [`session`](crate::session) are one connection each and carry file descriptors. The other protocols of
//! cuframes (start, spread, span) listen on several addresses, connect to others, and what arrives on one connection is
//! answered on another. They keep the same verbs, with a [`ConnId`] beside them, so that one driver serves them all.
//!
//! # Driving contract
//!
//! Any interleaving of polls is correct. After any input or command drain [`poll_action`](Machine::poll_action), send what
//! [`poll_transmit`](Machine::poll_transmit) has for the connections that it names, drain
//! [`poll_event`](Machine::poll_event), and read [`poll_timeout`](Machine::poll_timeout) again. Forgetting costs latency,
//! never correctness. Inputs never fail, and inputs for a connection that the machine does not know (any more) have no effect.
//!
//! # Bulk data
//!
//! A machine that moves more than messages implements the provided methods too, and its driver copies nothing:
//!
//! - [`poll_transmit_vectored`](Machine::poll_transmit_vectored) lends what to send in parts, so that a header and a frame that
//!   lies in mapped memory leave in one call.
//! - [`poll_receive`](Machine::poll_receive) lends the memory that the next bytes are to be read to. Before and after bulk data
//!   there is none, and [`handle_bytes`](Machine::handle_bytes) takes what comes, which may be the beginning of bulk data already.
//! - [`is_hungry`](Machine::is_hungry) keeps the driver from reading: what is not read fills the buffers of the system, and then
//!   the peer has to wait.
//!
//! [`poll_receive`](Machine::poll_receive) is asked before each read, and [`is_hungry`](Machine::is_hungry) before that, so both
//! may change at any time. A connection that ends while it is not read is found to have ended when it is read again, or given up
//! by the machine's own deadline.

mod links;
mod outbox;

use alloc::string::String;
use core::fmt;
use core::time::Duration;

use crate::time::Instant;

pub use links::{Link, Links};
pub use outbox::Outbox;

/// A connection of one machine. The machine gives the numbers out and never uses one twice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnId(u64);

impl ConnId {
    /// The connection with this number.
    #[must_use]
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// Its number.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Debug for ConnId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "conn {}", self.0)
    }
}

/// What the driver is to do.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Action {
    /// Connect to `address` and say [`handle_connected`](Machine::handle_connected). Until that works, or the machine
    /// closes the connection, the driver tries again with pauses of its own.
    Connect {
        /// What the connection is called.
        conn: ConnId,
        /// Where to, as the machine was told or learned it; one that can't be read is [`handle_eof`](Machine::handle_eof).
        address: String,
        /// How long to wait before the first attempt.
        delay: Duration,
    },
    /// [`poll_transmit`](Machine::poll_transmit) has bytes for this connection: send them, now and whenever it takes more.
    Transmit(ConnId),
    /// Close it, or stop trying to connect it. Nothing is said about it any more.
    Close(ConnId),
}

/// A pure state machine that speaks on several byte streams. See the [module](self) for how it is driven.
pub trait Machine {
    /// What a machine tells its driver.
    type Event;

    /// Somebody connected to the listener of this number. `None`: it is not wanted, close it.
    fn handle_accepted(&mut self, now: Instant, listener: usize) -> Option<ConnId>;

    /// An [`Action::Connect`] worked.
    fn handle_connected(&mut self, now: Instant, conn: ConnId);

    /// Takes what one read gave.
    fn handle_bytes(&mut self, now: Instant, conn: ConnId, bytes: &[u8]);

    /// The connection ended: nothing more can be read, or sent. The driver has closed it.
    fn handle_eof(&mut self, now: Instant, conn: ConnId);

    /// Lets deadlines pass. Calling it early, late, or twice does no harm.
    fn handle_timeout(&mut self, now: Instant);

    /// What to do next.
    fn poll_action(&mut self) -> Option<Action>;

    /// What to send next on a connection; the same until [`transmitted`](Self::transmitted).
    fn poll_transmit(&self, conn: ConnId) -> Option<&[u8]>;

    /// The first `n` bytes of what [`poll_transmit`](Self::poll_transmit) or
    /// [`poll_transmit_vectored`](Self::poll_transmit_vectored) gave were sent.
    fn transmitted(&mut self, conn: ConnId, n: usize);

    /// The next event.
    fn poll_event(&mut self) -> Option<Self::Event>;

    /// When to call [`handle_timeout`](Self::handle_timeout), if nothing happens before.
    fn poll_timeout(&self) -> Option<Instant>;

    /// Fills `parts`, from the first one on, with what to send next on a connection, in this order, and answers how many it
    /// filled; 0 where [`poll_transmit`](Self::poll_transmit) has nothing. It gives the same bytes until
    /// [`transmitted`](Self::transmitted), which counts over all parts.
    ///
    /// What does not fit into `parts` is for the next call. By default it is what [`poll_transmit`](Self::poll_transmit) gives,
    /// in one part.
    fn poll_transmit_vectored<'a>(&'a self, conn: ConnId, parts: &mut [&'a [u8]]) -> usize {
        match (parts.first_mut(), self.poll_transmit(conn)) {
            (Some(part), Some(bytes)) => {
                *part = bytes;
                1
            }
            _ => 0,
        }
    }

    /// Where the next bytes of a connection are to be read to, straight; never empty. However many come,
    /// [`received`](Self::received) says so.
    ///
    /// `None`, as by default: they are not bulk data, or nobody knows yet, and [`handle_bytes`](Self::handle_bytes) takes them
    /// from memory of the driver.
    fn poll_receive(&mut self, conn: ConnId) -> Option<&mut [u8]> {
        let _ = conn;
        None
    }

    /// So many bytes were read to the beginning of what [`poll_receive`](Self::poll_receive) gave.
    fn received(&mut self, now: Instant, conn: ConnId, n: usize) {
        let _ = (now, conn, n);
    }

    /// Whether more is to be read from a connection; by default always. Answers `true` for one that it does not know.
    ///
    /// It may change with any input or command, and with [`poll_event`](Self::poll_event): the driver looks again after each of
    /// them. It is about what is still in the socket: what [`handle_bytes`](Self::handle_bytes) has got already the machine keeps,
    /// if it can't use it yet, as it may find out in the middle of it.
    fn is_hungry(&self, conn: ConnId) -> bool {
        let _ = conn;
        true
    }
}
