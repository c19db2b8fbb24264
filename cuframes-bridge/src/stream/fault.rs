//! [`LinkFault`]: why a connection was ended.

use alloc::string::String;
use core::fmt;
use core::time::Duration;

use super::info::InfoError;
use crate::wire::{FrameType, WireError};

/// Why a connection was ended from here, or by words of the peer.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum LinkFault {
    /// What it sent is no message.
    Wire(WireError),
    /// What it said about its stream, or about a frame, does not hold together.
    Info(InfoError),
    /// It sent what has no place there.
    Unexpected(FrameType),
    /// Data of another frame than the one that it had begun.
    OtherFrame {
        /// What the data were of.
        found: u64,
        /// What had begun.
        expected: u64,
    },
    /// More data than it had announced.
    TooMuch {
        /// The frame.
        request: u64,
    },
    /// It did not say which stream it has.
    NoHello,
    /// Nothing went on for as long: it does not read, or stopped in the middle of a frame.
    Stalled(Duration),
    /// It lets answers pile up.
    Greedy,
    /// Another sender of the same stream came.
    Replaced,
    /// It was refused, for this reason.
    Refused(String),
    /// What it said before it closed the connection.
    Said(String),
}

impl fmt::Display for LinkFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Wire(error) => write!(f, "it sent what can't be read: {error}"),
            Self::Info(error) => error.fmt(f),
            Self::Unexpected(kind) => write!(f, "it sent {kind}, which has no place there"),
            Self::OtherFrame { found, expected } => {
                write!(f, "it sent data of request {found} where those of {expected} belong")
            }
            Self::TooMuch { request } => {
                write!(f, "it sent more data of request {request} than it had announced")
            }
            Self::NoHello => f.write_str("it did not say which stream it has"),
            Self::Stalled(time) => write!(f, "nothing went on for {time:?}"),
            Self::Greedy => f.write_str("it does not read what it is sent"),
            Self::Replaced => f.write_str("another sender of the same stream has connected"),
            Self::Refused(why) => write!(f, "it was refused: {why}"),
            Self::Said(text) => write!(f, "it said: {text}"),
        }
    }
}

impl core::error::Error for LinkFault {}

impl From<WireError> for LinkFault {
    fn from(error: WireError) -> Self {
        Self::Wire(error)
    }
}

impl From<InfoError> for LinkFault {
    fn from(error: InfoError) -> Self {
        Self::Info(error)
    }
}
