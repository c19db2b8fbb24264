//! What an end of a connection must do, whoever implements it: every sentence of §3 and §4 of the protocol that can be
//! checked from the other end, and §7.
//!
//! The suite plays the peer, byte by byte: [`publisher`] plays subscribers towards a publisher, [`subscriber`] plays a
//! publisher towards a subscriber, [`common`] is what both must do alike. What is tested may be a session in this process
//! on virtual time, or a program at the other end of a socket.
//!
//! That nothing was sent can't be seen by waiting. But messages are handled in order and PING is answered in every state
//! (D-10): so a PONG that comes next says that what was sent before it had no answer.

pub mod bytes;
pub mod common;
pub mod publisher;
mod raw;
pub mod subscriber;

use std::time::Duration;

pub use raw::{Message, Raw};

/// The raw end of a connection, at whose other end is what is tested. Dropping it closes the connection.
pub trait Wire {
    /// Sends bytes; descriptors for these purposes go with the first of them. `false`: the other end has closed.
    ///
    /// A descriptor for [`JUNK`] is of no use to anybody, and [`junk_open`](Self::junk_open) knows whether it is open.
    fn send(&mut self, bytes: &[u8], fds: &[u32]) -> bool;

    /// Waits for at most `max` bytes of the other end, and says how many descriptors came with them. No bytes: it has
    /// closed.
    ///
    /// # Panics
    /// If neither ever happens.
    fn receive(&mut self, max: usize) -> (Vec<u8>, usize);

    /// Waits, while the other end goes on.
    fn pass(&mut self, time: Duration);

    /// How many descriptors of no use that were sent are still open, on the way or at the other end.
    fn junk_open(&mut self) -> usize;
}

/// An end of a connection as the cases reach it that are alike on both sides.
pub trait Party {
    /// The other end.
    type Wire: Wire;

    /// What has to be kept for as long as the connection is used.
    type Held;

    /// The states that a connection can be in (§4.1, §4.2), but Closing.
    const STATES: &'static [&'static str];

    /// Those of them that are steps of the handshake, with a deadline for the peer.
    const STEPS: &'static [&'static str];

    /// Whether the raw end may send this type in this state (§4.3); PING, PONG and ERROR always may.
    fn is_legal(state: &str, message_type: u32) -> bool;

    /// A connection whose tested end is in `state`, with everything read that it said on the way there. Each step of the
    /// handshake may take `patience`.
    fn in_state(state: &str, patience: Duration) -> (Self::Held, Raw<Self::Wire>);
}

/// A purpose that no descriptor has.
pub const JUNK: u32 = 0;

/// A deadline that no case wants to see pass.
pub const LONG: Duration = Duration::from_secs(60);

/// A deadline that a case waits for. Longer than a busy machine needs for one step.
pub const SHORT: Duration = Duration::from_millis(300);
