//! Errors that name the party at fault, and the one mapping to the codes of the wire.
//!
//! [`Violation`]: the peer broke the protocol. [`Refused`]: the peer said no. [`Misuse`]: the caller broke a contract.
//! [`Gone`]: nobody did anything wrong, but the other side is not there any more.

use alloc::string::String;
use core::fmt::{self, Write as _};

use crate::number::wire_number;
use crate::wire::{MessageType, ShutdownReason};

wire_number! {
    /// `cuframes_error_t`: 0 is success, errors are negative (§3.4, §3.9).
    pub struct ErrorCode(i32) {
        /// Success.
        OK = 0, "OK";
        /// An argument has a value that is not allowed.
        INVALID_ARGUMENT = -1, "INVALID_ARGUMENT";
        /// No such stream.
        NOT_FOUND = -2, "NOT_FOUND";
        /// Another publisher holds the key.
        ALREADY_EXISTS = -3, "ALREADY_EXISTS";
        /// The peer broke the protocol or speaks another version.
        PROTOCOL = -4, "PROTOCOL";
        /// The frame format can't be used.
        FORMAT = -5, "FORMAT";
        /// No subscriber slot or connection is left.
        TOO_MANY = -6, "TOO_MANY";
        /// The other side is gone.
        DISCONNECTED = -7, "DISCONNECTED";
        /// A deadline passed.
        TIMEOUT = -8, "TIMEOUT";
        /// The CUDA driver reported an error.
        CUDA = -9, "CUDA";
        /// The operating system reported an error.
        IO = -10, "IO";
        /// No memory is left.
        OUT_OF_MEMORY = -11, "OUT_OF_MEMORY";
        /// The peer is not allowed to do this.
        PERMISSION = -12, "PERMISSION";
        /// The peer lacks a feature that is needed.
        UNSUPPORTED = -13, "UNSUPPORTED";
        /// The frame was overwritten while it was in use.
        OVERWRITTEN = -14, "OVERWRITTEN";
        /// The subscriber kept the publisher waiting for too long.
        EVICTED = -15, "EVICTED";
        /// A fault of the implementation.
        INTERNAL = -16, "INTERNAL";
    }
}

/// The peer broke the protocol: which message or structure, which field, and how.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Violation {
    /// Where the fault is.
    pub place: Place,
    /// The field as the protocol document names it.
    pub field: &'static str,
    /// What is wrong with it.
    pub problem: Problem,
}

/// Where a [`Violation`] was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Place {
    /// In a message of this type.
    Message(MessageType),
    /// In the static part of the shared region (§2).
    Region,
}

/// What is wrong with a field.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Problem {
    /// It ends before its last byte.
    Truncated {
        /// Bytes needed.
        needed: u64,
        /// Bytes there.
        available: u64,
    },
    /// Bytes follow where the document fixes the length.
    Trailing {
        /// How many.
        extra: u64,
    },
    /// It is longer than the document allows.
    TooLong {
        /// Its length.
        len: u64,
        /// The most that is allowed.
        max: u64,
    },
    /// It has a value that is not allowed.
    Value {
        /// The value, as an unsigned 64-bit number (sign-extended where the field is signed).
        value: u64,
    },
    /// It must be the other value given here.
    Mismatch {
        /// The value found.
        found: u64,
        /// The value that is right.
        expected: u64,
    },
    /// It is not UTF-8.
    NotUtf8,
    /// It is a text with a control character in it.
    ControlCharacter,
    /// It is empty.
    Empty,
    /// A message that is not legal now.
    Unexpected {
        /// The state of the session that received it.
        state: &'static str,
    },
    /// A message that must come with a file descriptor came without one (D-22).
    FdMissing,
    /// A file descriptor came that no message can claim (D-22).
    FdSurplus,
}

impl Violation {
    /// A violation in a message.
    #[must_use]
    pub const fn new(message: MessageType, field: &'static str, problem: Problem) -> Self {
        Self { place: Place::Message(message), field, problem }
    }

    /// The code that tells the peer: `INVALID_ARGUMENT` for a bad `consumer_name` (D-16), `FORMAT` for a pixel format that
    /// is unknown (D-28), `PROTOCOL` otherwise (D-11).
    #[must_use]
    pub fn code(&self) -> ErrorCode {
        match (self.field, self.problem) {
            (_, Problem::Truncated { .. }) => ErrorCode::PROTOCOL,
            ("consumer_name" | "consumer_name_len", _) => ErrorCode::INVALID_ARGUMENT,
            ("format", _) => ErrorCode::FORMAT,
            _ => ErrorCode::PROTOCOL,
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.place {
            Place::Message(message) => write!(f, "{message} {}: {}", self.field, self.problem),
            Place::Region => write!(f, "region {}: {}", self.field, self.problem),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Truncated { needed, available } => write!(f, "needs {needed} bytes, {available} are there"),
            Self::Trailing { extra } => write!(f, "{extra} bytes too many"),
            Self::TooLong { len, max } => write!(f, "length {len}, at most {max}"),
            Self::Value { value } => write!(f, "value {value:#x} is not allowed"),
            Self::Mismatch { found, expected } => write!(f, "value {found:#x}, expected {expected:#x}"),
            Self::NotUtf8 => f.write_str("not UTF-8"),
            Self::ControlCharacter => f.write_str("contains a control character"),
            Self::Empty => f.write_str("empty"),
            Self::Unexpected { state } => write!(f, "not legal in state {state}"),
            Self::FdMissing => f.write_str("came without its file descriptor"),
            Self::FdSurplus => f.write_str("a file descriptor came that belongs to no message"),
        }
    }
}

impl core::error::Error for Violation {}

/// The peer said no: a negative `result`, or an ERROR message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refused {
    /// Its reason.
    pub code: ErrorCode,
    /// Its words; empty where the message has no room for them.
    pub message: String,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "refused with {}", self.code)?;
        if !self.message.is_empty() {
            f.write_str(": ")?;
        }
        // The text is the peer's: what could steer a terminal is not shown (§3.9).
        self.message.chars().try_for_each(|c| f.write_char(if c.is_control() { '\u{FFFD}' } else { c }))
    }
}

impl core::error::Error for Refused {}

/// The caller broke a contract of this API; depends only on calls, never on what a peer sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Misuse {
    /// A command that the session's state does not allow.
    WrongState {
        /// The command.
        command: &'static str,
        /// The state.
        state: &'static str,
    },
    /// An argument outside its range.
    Argument {
        /// Its name.
        name: &'static str,
        /// What it must be.
        must: &'static str,
    },
}

impl fmt::Display for Misuse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WrongState { command, state } => write!(f, "{command} is not possible in state {state}"),
            Self::Argument { name, must } => write!(f, "{name} must be {must}"),
        }
    }
}

impl core::error::Error for Misuse {}

/// The other side is not there any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Gone {
    /// The publisher said SHUTDOWN.
    Shutdown(ShutdownReason),
    /// The subscriber said UNSUBSCRIBE, or we did.
    Unsubscribed,
    /// The connection ended without a word.
    Disconnected,
    /// A deadline passed in this state.
    Timeout {
        /// The state of the session.
        state: &'static str,
    },
    /// The peer does not read what it is sent (D-29).
    NotReading,
}

impl fmt::Display for Gone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shutdown(reason) => write!(f, "the publisher shut down ({reason})"),
            Self::Unsubscribed => f.write_str("unsubscribed"),
            Self::Disconnected => f.write_str("the connection ended"),
            Self::Timeout { state } => write!(f, "no answer in state {state}"),
            Self::NotReading => f.write_str("the peer does not read"),
        }
    }
}

impl core::error::Error for Gone {}
