//! [`Fault`]: why a connection ended.

use alloc::boxed::Box;
use alloc::string::String;
use core::fmt;

use super::hello::HelloError;
use super::transfer::ChunkFault;
use super::worker::Refusal;
use crate::wire::{FrameType, ResultKind, WireError};

/// Why a connection ended. It is the peer's doing, unless it says otherwise.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Fault {
    /// It closed the connection.
    Ended,
    /// What it sent is no frame, or too long.
    Frame(WireError),
    /// It gave up, and said why.
    Remote(String),
    /// It sent a frame that has no place there.
    Unexpected(FrameType),
    /// It took no byte for as long as the time limit of sending.
    Send,
    /// It sent no byte for as long as the time limit of receiving, although an answer is due.
    Receive,
    /// It could not be connected in time, or its address can't be read.
    Unreachable,
    /// It did not say who it is in time.
    Silent,
    /// It is not wanted: what it said of itself does not fit.
    Hello(HelloError),
    /// It sent more than can be kept, although it was not read.
    Flood,
    /// Too much is kept of frames that are not complete.
    Dribble,
    /// A chunk of a snapshot that is not the next one.
    Chunk(ChunkFault),
    /// A snapshot to load that is not taken, while its chunks are under way.
    Refused(Refusal),
    /// It answered another request.
    Order {
        /// Which one.
        got: u64,
        /// Whose answer is due; `None`: none is.
        expected: Option<u64>,
    },
    /// The hash in its answer is not that of the tokens.
    Hash {
        /// Which request.
        request: u64,
    },
    /// It answered something else than was asked for.
    Kind {
        /// Which request.
        request: u64,
        /// With what.
        got: ResultKind,
    },
    /// Another worker took its place.
    Replaced,
    /// One that connected later has its place, and it had said nothing.
    Surplus,
    /// The way through this worker failed, or the owner gave it up.
    Forgotten,
    /// A worker of the way is gone.
    Gone,
    /// The next worker failed, and why.
    Next(Box<Self>),
    /// This side has shut down.
    ShutDown,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ended => f.write_str("it closed the connection"),
            Self::Frame(error) => error.fmt(f),
            Self::Remote(text) => write!(f, "it gave up: {}", text.escape_debug()),
            Self::Unexpected(kind) => write!(f, "it sent a frame {kind}, which has no place there"),
            Self::Send => f.write_str("it takes no bytes"),
            Self::Receive => f.write_str("it does not answer"),
            Self::Unreachable => f.write_str("it can't be reached"),
            Self::Silent => f.write_str("it did not say who it is"),
            Self::Hello(error) => error.fmt(f),
            Self::Flood => f.write_str("it sent more than can be kept"),
            Self::Dribble => f.write_str("too many bytes of incomplete frames are kept"),
            Self::Chunk(fault) => fault.fmt(f),
            Self::Refused(refusal) => refusal.fmt(f),
            Self::Order { got, expected: Some(expected) } => {
                write!(f, "it answered request {got}, not {expected}")
            }
            Self::Order { got, expected: None } => {
                write!(f, "it answered request {got}, which waits for no answer")
            }
            Self::Hash { request } => write!(f, "it answered request {request} with another hash"),
            Self::Kind { request, got } => {
                write!(f, "it answered request {request} with what was not asked for: {got}")
            }
            Self::Replaced => f.write_str("another worker took its place"),
            Self::Surplus => f.write_str("it made room for one that connected later"),
            Self::Forgotten => f.write_str("it was given up"),
            Self::Gone => f.write_str("a worker of the way is gone"),
            Self::Next(fault) => write!(f, "the next worker failed: {fault}"),
            Self::ShutDown => f.write_str("this side has shut down"),
        }
    }
}

impl core::error::Error for Fault {}
