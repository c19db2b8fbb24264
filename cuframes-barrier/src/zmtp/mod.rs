//! The subset of ZMTP 3 (ZeroMQ's wire format) that the handshake needs: greeting, NULL mechanism, READY, PING, and message
//! frames, over one byte stream.

mod decoder;
mod greeting;
mod link;

use core::fmt;

pub use decoder::{MAX_COMMAND, MAX_PAYLOAD};
pub use link::{Link, LinkError, Message};

/// What a socket is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum SocketType {
    /// Answers to whom it names.
    Router,
    /// Has an identity, and talks to a ROUTER.
    Dealer,
    /// Takes from a PUSH.
    Pull,
    /// Gives to a PULL.
    Push,
}

impl SocketType {
    const fn name(self) -> &'static str {
        match self {
            Self::Router => "ROUTER",
            Self::Dealer => "DEALER",
            Self::Pull => "PULL",
            Self::Push => "PUSH",
        }
    }

    /// Whether ZMTP lets the two talk to each other.
    fn fits(self, peer: &[u8]) -> bool {
        let peers: &[&[u8]] = match self {
            Self::Router => &[b"DEALER", b"REQ", b"ROUTER"],
            Self::Dealer => &[b"ROUTER", b"REP", b"DEALER"],
            Self::Pull => &[b"PUSH"],
            Self::Push => &[b"PULL"],
        };
        peers.contains(&peer)
    }
}

impl fmt::Display for SocketType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
