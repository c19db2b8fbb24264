//! [`Fault`] and [`JoinError`]: why a start failed, for the frontend and for a participant.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

use crate::msgpack::DecodeError;
use crate::roll::Progress;
use crate::zmtp::LinkError;

/// What the frontend is waiting for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[non_exhaustive]
pub enum Stage {
    /// READY of every participant, on the handshake socket.
    Ready,
    /// The registration of every participant, on the input socket.
    Registration,
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ready => "READY",
            Self::Registration => "registration",
        })
    }
}

/// Why a start failed. Each of these ends it for everybody.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Fault {
    /// A participant whose routing id is not two bytes.
    Identity {
        /// Where it sent its message.
        stage: Stage,
        /// Its routing id, empty if it has none.
        identity: Vec<u8>,
    },
    /// A participant that is not expected.
    Unexpected {
        /// Where it sent its message.
        stage: Stage,
        /// Its index.
        index: u16,
    },
    /// A message of more than one frame (an empty delimiter counts as one).
    Frames {
        /// Where it was sent.
        stage: Stage,
        /// Who sent it: the routing id.
        identity: Vec<u8>,
        /// How many frames it had.
        frames: usize,
    },
    /// A message that can't be read.
    Payload {
        /// Where it was sent.
        stage: Stage,
        /// Who sent it.
        index: u16,
        /// What is wrong with it.
        error: DecodeError,
    },
    /// A word that is neither HELLO nor READY, or none.
    Status {
        /// Who sent it.
        index: u16,
        /// The word.
        status: Option<String>,
    },
    /// A second HELLO. A participant that was started again sends one, too: see
    /// [`FrontendConfig::restarts`](crate::FrontendConfig::restarts).
    HelloTwice {
        /// Who sent it.
        index: u16,
    },
    /// READY without HELLO before it.
    ReadyBeforeHello {
        /// Who sent it.
        index: u16,
    },
    /// A second READY.
    ReadyTwice {
        /// Who sent it.
        index: u16,
    },
    /// A registration as another rank, or among another number of participants.
    Rank {
        /// Who sent it.
        index: u16,
        /// The rank that it says it has.
        rank: i64,
        /// The number of participants that it says there are.
        size: i64,
        /// The rank that it should have.
        expected_rank: u16,
        /// How many participants there are.
        expected_size: u16,
    },
    /// A second registration.
    RegisteredTwice {
        /// Who sent it.
        index: u16,
    },
    /// Not everybody was there in time.
    Timeout {
        /// What was being waited for.
        stage: Stage,
        /// Who had not come to it, and how far they were.
        missing: Vec<(u16, Progress)>,
        /// How long it was waited.
        after: Duration,
    },
    /// A participant said that it can't.
    Cancelled {
        /// Who said so.
        index: u16,
        /// Why.
        reason: String,
    },
    /// [`Frontend::cancel`](crate::Frontend::cancel) was called.
    Aborted {
        /// Why.
        reason: String,
    },
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Identity { stage, identity } if identity.is_empty() => {
                write!(f, "at {stage}: a participant has no routing id, which must be its index in two bytes")
            }
            Self::Identity { stage, identity } => {
                let id = identity.escape_ascii();
                write!(f, "at {stage}: the routing id \"{id}\" of a participant is not an index in two bytes")
            }
            Self::Unexpected { stage, index } => write!(f, "at {stage}: participant {index} is not expected"),
            Self::Frames { stage, identity, frames } => {
                let id = identity.escape_ascii();
                write!(f, "at {stage}: a message of {frames} frames, not one, from routing id \"{id}\"")
            }
            Self::Payload { stage, index, error } => {
                write!(f, "at {stage}: the message of participant {index} can't be read: {error}")
            }
            Self::Status { index, status: Some(status) } => {
                write!(f, "at READY: participant {index} said {status:?}, not HELLO or READY")
            }
            Self::Status { index, status: None } => {
                write!(f, "at READY: participant {index} said neither HELLO nor READY")
            }
            Self::HelloTwice { index } => write!(f, "at READY: participant {index} said HELLO twice"),
            Self::ReadyBeforeHello { index } => {
                write!(f, "at READY: participant {index} said READY before HELLO")
            }
            Self::ReadyTwice { index } => write!(f, "at READY: participant {index} said READY twice"),
            Self::Rank { index, rank, size, expected_rank, expected_size } => write!(
                f,
                "at registration: participant {index} says that it is rank {rank} of {size}, \
                 but it is rank {expected_rank} of {expected_size}"
            ),
            Self::RegisteredTwice { index } => {
                write!(f, "at registration: participant {index} registered twice")
            }
            Self::Timeout { stage, missing, after } => {
                write!(f, "no {stage} within {after:?} from ")?;
                for (n, (index, progress)) in missing.iter().enumerate() {
                    let comma = if n == 0 { "" } else { ", " };
                    write!(f, "{comma}{index} ({progress})")?;
                }
                Ok(())
            }
            Self::Cancelled { index, reason } => write!(f, "participant {index} cancelled: {reason}"),
            Self::Aborted { reason } => write!(f, "cancelled: {reason}"),
        }
    }
}

impl core::error::Error for Fault {}

/// What a participant is waiting for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[non_exhaustive]
pub enum JoinStage {
    /// A connection to the handshake socket.
    Connect,
    /// INIT.
    Init,
    /// [`Participant::ready`](crate::Participant::ready), which its own program calls.
    Prepare,
    /// Connections to the input and output sockets.
    Registration,
    /// The other participants.
    Go,
}

impl fmt::Display for JoinStage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Connect => "a connection to the handshake socket",
            Self::Init => "INIT",
            Self::Prepare => "its own preparations",
            Self::Registration => "a connection to the input and output sockets",
            Self::Go => "the other participants",
        })
    }
}

/// Why a participant did not get in.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum JoinError {
    /// It took too long.
    Timeout {
        /// What was being waited for.
        stage: JoinStage,
        /// How long it was waited.
        after: Duration,
    },
    /// The frontend closed the connection: its start failed, or it was ended. Only one that knows our words says why.
    Gone {
        /// What was being waited for.
        stage: JoinStage,
    },
    /// What is at one of the addresses does not speak ZMTP as it should.
    Link {
        /// What was being waited for.
        stage: JoinStage,
        /// What is wrong.
        error: LinkError,
    },
    /// The frontend cancelled the start.
    Cancelled {
        /// Why.
        reason: String,
    },
    /// An INIT that can't be read.
    Init {
        /// What is wrong with it.
        error: DecodeError,
    },
    /// An INIT of more than one frame.
    Frames {
        /// How many it had.
        frames: usize,
    },
    /// An INIT without an address to register at, or without one to send results to.
    NoAddress {
        /// Which list is empty: `inputs` or `outputs`.
        field: &'static str,
    },
    /// [`Participant::cancel`](crate::Participant::cancel) was called.
    Aborted {
        /// Why.
        reason: String,
    },
}

impl fmt::Display for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Timeout { stage, after } => write!(f, "waited {after:?} for {stage}"),
            Self::Gone { stage } => {
                write!(f, "the frontend closed the connection while this waited for {stage}")
            }
            Self::Link { stage, error } => {
                write!(f, "the other side can't be talked to while this waits for {stage}: {error}")
            }
            Self::Cancelled { reason } => write!(f, "the frontend cancelled the start: {reason}"),
            Self::Init { error } => write!(f, "the frontend's INIT can't be read: {error}"),
            Self::Frames { frames } => write!(f, "the frontend's INIT has {frames} frames, not one"),
            Self::NoAddress { field } => write!(f, "the frontend's INIT has no address in {field}"),
            Self::Aborted { reason } => write!(f, "cancelled: {reason}"),
        }
    }
}

impl core::error::Error for JoinError {}
