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

    /// The first `n` bytes of what [`poll_transmit`](Self::poll_transmit) gave were sent.
    fn transmitted(&mut self, conn: ConnId, n: usize);

    /// The next event.
    fn poll_event(&mut self) -> Option<Self::Event>;

    /// When to call [`handle_timeout`](Self::handle_timeout), if nothing happens before.
    fn poll_timeout(&self) -> Option<Instant>;
}
