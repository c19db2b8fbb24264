//! What is said about tasks and blocks: settings, events, counts, errors.

use alloc::boxed::Box;
use alloc::string::String;
use core::fmt;
use core::time::Duration;

use crate::wire::{Block, BlockId};

/// A kind of work.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct TaskConfig {
    /// Its name, by which workers ask for it.
    pub id: String,
    /// How often a block is tried again after it failed, or was lost with its worker; 2 by default.
    pub max_retries: u32,
    /// How long a worker may have a block before it counts as lost; 600 s by default.
    pub timeout: Option<Duration>,
}

impl TaskConfig {
    /// A task of this name, with the defaults.
    #[must_use]
    pub fn new(id: impl Into<String>) -> Self {
        Self { id: id.into(), max_retries: 2, timeout: Some(DEFAULT_TIMEOUT) }
    }
}

/// A call that makes no sense.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum TaskError {
    /// There is no such task.
    UnknownTask(String),
    /// There is such a task already.
    TaskExists(String),
    /// Nothing can be added to this task any more.
    TaskClosed(String),
    /// There is such a block already, and it has not ended.
    BlockExists(BlockId),
    /// It is to wait for a block that is not there, or not any more.
    UnknownBlock(BlockId),
}

impl fmt::Display for TaskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownTask(id) => write!(f, "there is no task {id:?}"),
            Self::TaskExists(id) => write!(f, "there is a task {id:?} already"),
            Self::TaskClosed(id) => write!(f, "task {id:?} takes no more blocks"),
            Self::BlockExists(BlockId { task_id, spatial_id }) => {
                write!(f, "task {task_id:?} has block {spatial_id} already")
            }
            Self::UnknownBlock(BlockId { task_id, spatial_id }) => {
                write!(f, "there is no block {spatial_id} of task {task_id:?} to wait for")
            }
        }
    }
}

impl core::error::Error for TaskError {}

/// How a block ended.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub enum Outcome {
    /// It is done.
    Success,
    /// It failed as often as it may.
    Failed,
    /// It was not tried to the end: what it waits for failed, or it was given up.
    Orphaned,
}

/// Why a block did not succeed this time.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Cause {
    /// The worker says so, perhaps with a reason.
    Reported(String),
    /// The connection of the worker ended.
    Lost,
    /// The worker took too long.
    Timeout,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reported(reason) if reason.is_empty() => f.write_str("it failed"),
            Self::Reported(reason) => write!(f, "it failed: {reason}"),
            Self::Lost => f.write_str("its worker is gone"),
            Self::Timeout => f.write_str("its worker took too long"),
        }
    }
}

/// What happened to a block.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum BlockEvent {
    /// It goes to somebody else.
    Retried {
        /// Which one.
        block_id: BlockId,
        /// Why.
        cause: Cause,
    },
    /// It is over. Each block comes here exactly once.
    Ended {
        /// Which one.
        block_id: BlockId,
        /// How.
        outcome: Outcome,
        /// Why it was not a success, if it was tried.
        cause: Option<Cause>,
    },
}

/// How many blocks of a task are where. The first is the sum of the others, but for `retried`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Counts {
    /// All that were added.
    pub total: u64,
    /// Waiting for others.
    pub waiting: u64,
    /// Waiting for a worker.
    pub ready: u64,
    /// With a worker.
    pub processing: u64,
    /// Done.
    pub succeeded: u64,
    /// Failed for good.
    pub failed: u64,
    /// Never to be tried, or not any more.
    pub orphaned: u64,
    /// How often one was tried again.
    pub retried: u64,
}

impl Counts {
    /// Blocks that have not ended.
    #[must_use]
    pub const fn unfinished(&self) -> u64 {
        self.waiting + self.ready + self.processing
    }
}

/// The answer to a worker that asks for a block.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub enum Acquired {
    /// This one, for so long.
    Block(Box<Block>, Option<Duration>),
    /// Nothing now; perhaps later.
    Nothing,
    /// Nothing, and never again.
    Ended,
}

/// What a release was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Released {
    /// The block was outstanding there, and is not any more.
    Accepted,
    /// It was, until it was lost or given up.
    Late,
    /// It was not.
    Foreign,
}

/// As in the original.
pub(crate) const DEFAULT_TIMEOUT: Duration = Duration::from_secs(600);
