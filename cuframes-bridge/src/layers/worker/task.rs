//! [`Task`]: what a worker's owner is to do, and how it answers.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use cuframes_core::streams::ConnId;

use crate::layers::Fault;
use crate::wire::{SnapshotId, Width};

/// The number of something that the owner is to do. A worker never uses one twice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TaskId(u64);

impl TaskId {
    pub(in crate::layers) const fn new(number: u64) -> Self {
        Self(number)
    }

    /// The number.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }
}

/// What a worker tells.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum WorkerEvent {
    /// It said who it is to the coordinator, which says nothing if that is welcome.
    Joined,
    /// The coordinator is gone. All sessions are freed; it is tried again after a pause.
    Lost {
        /// Why: [`Fault::Remote`] if the worker is not wanted.
        fault: Fault,
    },
    /// Compute something, and say [`Worker::finish`](super::Worker::finish).
    Work(Box<Task>),
    /// Save a session, and say [`Worker::saved`](super::Worker::saved).
    Save {
        /// What to call it.
        task: TaskId,
        /// Which session, and what it must have.
        id: SnapshotId,
    },
    /// Load a session, which replaces what there is of it, and say [`Worker::loaded`](super::Worker::loaded).
    Load {
        /// What to call it.
        task: TaskId,
        /// Which session.
        id: SnapshotId,
        /// Its tokens.
        tokens: Vec<u32>,
        /// What was saved.
        payload: Vec<u8>,
    },
    /// Nobody waits for this any more: its connection is gone. It still has to be answered, since its session is not free before.
    Abandoned {
        /// Which one.
        task: TaskId,
    },
    /// A session was freed to make room for another one.
    Freed {
        /// Which one.
        session: u64,
    },
    /// Somebody connected to the data port.
    Opened {
        /// The connection.
        conn: ConnId,
    },
    /// A data connection is gone.
    Closed {
        /// The connection.
        conn: ConnId,
        /// Why.
        fault: Fault,
    },
}

/// Tokens to take through the worker's layers.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Task {
    /// What to call it.
    pub id: TaskId,
    /// The session. There is never more than one task of the same session.
    pub session: u64,
    /// The number of the request.
    pub request: u64,
    /// Whether the session begins with this: what there is of it is to be forgotten.
    pub is_new: bool,
    /// How many tokens come before these.
    pub pos0: u32,
    /// The tokens.
    pub tokens: Vec<u32>,
    /// The activations of the layer before; none for the first one. [`Width::decode`] reads them.
    pub activations: Vec<u8>,
    /// How wide activations are, in and out.
    pub width: Width,
    /// What is wanted.
    pub wants: Wants,
}

/// What is wanted of a task.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Wants {
    /// Nothing but that it is done: [`Outcome::Ack`].
    Ack,
    /// The hidden state behind the last layer, for the coordinator: [`Outcome::Hidden`].
    Hidden,
    /// The hidden state of every token, so many bytes, for the next worker: [`Outcome::Hidden`].
    Forward {
        /// How many bytes.
        bytes: u64,
    },
    /// Logits: [`Outcome::Logits`].
    Logits,
}

/// What became of a task.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Outcome {
    /// Done.
    Ack,
    /// Hidden states, in the width of the task.
    Hidden(Vec<u8>),
    /// Logits, as `f32`.
    Logits(Vec<u8>),
    /// It failed, and why. The session is freed, since nobody knows where it stands.
    Failed(String),
}

/// A session that was saved.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Snapshot {
    /// All its tokens.
    pub tokens: Vec<u32>,
    /// What is needed to load it again.
    pub payload: Vec<u8>,
}

/// Why an answer is none. The task still waits for one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum FinishError {
    /// There is no such task (any more), or it is of another kind.
    Unknown(TaskId),
    /// Something else is wanted.
    Kind(Wants),
    /// Not as many bytes as are wanted, or more than a frame may have.
    Bytes {
        /// How many there are.
        got: usize,
        /// How many are wanted; or how many are allowed, or one of which they must be a multiple.
        expected: u64,
    },
    /// The tokens of a snapshot are not those that were asked for.
    Tokens,
}

impl fmt::Display for FinishError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(TaskId(number)) => write!(f, "there is no such task {number}"),
            Self::Kind(Wants::Ack) => f.write_str("nothing but an acknowledgement is wanted"),
            Self::Kind(Wants::Logits) => f.write_str("logits are wanted"),
            Self::Kind(_) => f.write_str("hidden states are wanted"),
            Self::Bytes { got, expected } => write!(f, "{got} bytes do not fit {expected}"),
            Self::Tokens => f.write_str("the snapshot has other tokens than were asked for"),
        }
    }
}

impl core::error::Error for FinishError {}
