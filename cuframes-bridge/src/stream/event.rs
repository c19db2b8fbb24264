//! What both sides tell.

use alloc::string::String;
use core::time::Duration;

use cuframes_core::Key;
use cuframes_core::streams::ConnId;

use super::fault::LinkFault;
use super::info::{FrameInfo, Greeting};
use super::words::Fate;

/// What a sender tells.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum SenderEvent {
    /// The receiver is there.
    Connected,
    /// The connection is lost, and made again.
    Lost {
        /// Why, if it was not just closed.
        fault: Option<LinkFault>,
    },
    /// The receiver has answered about a frame.
    Done {
        /// Its number.
        seq: u64,
        /// What became of it.
        fate: Fate,
        /// Its words.
        info: FrameInfo,
        /// From the beginning of its sending until the answer.
        round_trip: Duration,
    },
    /// A frame was given up, because the connection was lost.
    GivenUp {
        /// Its number.
        seq: u64,
    },
    /// The receiver wants a frame: call [`answer`](super::Sender::answer).
    Wanted {
        /// Which; `None` for the newest.
        seq: Option<u64>,
    },
    /// The receiver does not want this stream, for this reason. It is over.
    Refused(String),
}

/// What a receiver gets that has asked for a frame.
#[derive(Debug)]
#[non_exhaustive]
pub enum Answer<F> {
    /// This frame.
    Frame(FrameInfo, F),
    /// None, for this reason.
    No(String),
}

/// What a sender has done so far.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub struct SenderStats {
    /// Frames that were published there, by this connection or the one before.
    pub delivered: u64,
    /// Bytes of these.
    pub bytes: u64,
    /// Frames that the receiver left out or refused.
    pub refused: u64,
    /// Frames that were given up when a connection was lost.
    pub given_up: u64,
    /// Frames that were sent once more after a reconnect.
    pub resent: u64,
    /// Frames that were sent on demand.
    pub answered: u64,
    /// Connections that were lost.
    pub lost_connections: u64,
}

/// What a receiver tells.
#[derive(Debug)]
#[non_exhaustive]
pub enum ReceiverEvent<S> {
    /// A sender has said which stream it has.
    Announced {
        /// Its connection.
        conn: ConnId,
        /// What it said.
        greeting: Greeting,
    },
    /// A frame comes. It waits for [`receive`](super::Receiver::receive) or [`skip`](super::Receiver::skip).
    Offered {
        /// Its connection.
        conn: ConnId,
        /// What is known of it.
        info: FrameInfo,
        /// It was [asked for](super::Receiver::fetch).
        is_fetched: bool,
    },
    /// A frame is there, in its place; one that was [skipped](super::Receiver::skip) is not told. It waits for
    /// [`settle`](super::Receiver::settle), unless it is not whole: then its place is only given back.
    Complete {
        /// Its connection.
        conn: ConnId,
        /// The frame.
        frame: Received<S>,
    },
    /// A frame that was asked for does not come.
    NotFetched {
        /// The connection.
        conn: ConnId,
        /// Why.
        why: String,
    },
    /// A sender is gone.
    Left {
        /// Its connection.
        conn: ConnId,
        /// Its stream, if it said it.
        key: Option<Key>,
        /// What was wrong, if anything was.
        fault: Option<LinkFault>,
        /// The place of the frame that was under way.
        place: Option<S>,
    },
}

/// A frame that has come.
#[derive(Debug)]
#[non_exhaustive]
pub struct Received<S> {
    /// What is known of it.
    pub info: FrameInfo,
    /// It was [asked for](super::Receiver::fetch).
    pub is_fetched: bool,
    /// Where it is.
    pub place: S,
    /// Whether its bytes are one frame. If not, it was overwritten while it was sent: throw it away; nothing is to be said.
    pub is_whole: bool,
    /// From its first byte to its last, without the wait for a place.
    pub wire: Duration,
}
