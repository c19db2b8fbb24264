//! Settings of both sides.

use alloc::string::String;
use core::time::Duration;

/// Settings of a [`Sender`](super::Sender).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SenderConfig {
    /// Where the receiver is, as the driver understands it.
    pub to: String,
    /// How many frames may be on their way: given, and not answered by DONE. 2 by default.
    pub window: usize,
    /// Keep each frame until it has arrived, also through a reconnect. Otherwise those that are on their way are given up when
    /// the connection is lost: newer ones are more wanted.
    pub strict: bool,
    /// For how long nothing may go on before the connection is given up. 60 s by default.
    pub stall: Duration,
}

impl SenderConfig {
    /// A sender to this address, with the defaults.
    #[must_use]
    pub fn new(to: impl Into<String>) -> Self {
        Self { to: to.into(), window: 2, strict: false, stall: Duration::from_secs(60) }
    }
}

/// Settings of a [`Receiver`](super::Receiver).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ReceiverConfig {
    /// How many senders at a time. 64 by default.
    pub senders: usize,
    /// How soon a sender must say which stream it has. 5 s by default.
    pub hello: Duration,
    /// For how long nothing may come in the middle of a frame. 60 s by default.
    pub stall: Duration,
    /// How soon a frame that was asked for must come. 10 s by default.
    pub fetch: Duration,
}

impl Default for ReceiverConfig {
    fn default() -> Self {
        Self {
            senders: 64,
            hello: Duration::from_secs(5),
            stall: Duration::from_secs(60),
            fetch: Duration::from_secs(10),
        }
    }
}
