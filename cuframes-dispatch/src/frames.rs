//! [`Frames`]: the frames of a stream whose blocks have not all ended.
//!
//! Invariants, which the property tests check against a model:
//!
//! - F1: a frame that was added is given back exactly once: when its last block has ended, or when it is dropped.
//! - F2: at most `limit` frames are held.
//! - F3: of a frame that is dropped nobody had begun a block.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use cuframes_core::Tiles;

use crate::scheduler::Scheduler;
use crate::stream::Part;
use crate::task::{BlockEvent, Outcome, TaskError};
use crate::wire::BlockId;

/// Frames that are being worked on. `F` is what keeps one readable, like a lease.
///
/// Each frame has a block for each tile in each task; that of a task waits for the same tile of the task before it. They are
/// in a [`Scheduler`], which is always the same one, and nobody else adds blocks to these tasks.
#[derive(Debug)]
pub struct Frames<F> {
    tasks: Vec<String>,
    tiles: Tiles,
    limit: usize,
    /// By sequence.
    held: BTreeMap<u64, Held<F>>,
    /// How many events about frames that were dropped are still to come.
    stale: BTreeMap<u64, u64>,
    counts: FrameCounts,
}

#[derive(Debug)]
struct Held<F> {
    frame: F,
    /// Blocks that have not ended, as far as was told.
    left: u64,
    /// The worst of the others.
    outcome: Outcome,
}

/// How many frames there were. The first is the sum of the others and of those that are held.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct FrameCounts {
    /// All that were added.
    pub taken: u64,
    /// All of their blocks succeeded.
    pub done: u64,
    /// A block failed for good.
    pub failed: u64,
    /// Dropped before anybody worked on them.
    pub dropped: u64,
    /// No block failed, but some were given up.
    pub given_up: u64,
}

/// A frame whose last block has ended.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct FrameEnd<F> {
    /// Its sequence.
    pub seq: u64,
    /// What was added.
    pub frame: F,
    /// That of its worst block: failed is worse than orphaned.
    pub outcome: Outcome,
}

/// A frame that was not added.
#[non_exhaustive]
pub struct AddError<F> {
    /// The frame.
    pub frame: F,
    /// Why.
    pub reason: NotAdded,
}

/// Why a frame was not added.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum NotAdded {
    /// As many are held as may be.
    Full,
    /// It is there already.
    Exists,
    /// It would have no block: there is no task, or no tile.
    NoBlocks,
    /// The numbers of its blocks do not fit into 64 bits.
    Number,
    /// The scheduler does not take its blocks.
    Task(TaskError),
}

impl fmt::Display for NotAdded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full => f.write_str("as many frames are held as may be"),
            Self::Exists => f.write_str("the frame is there already"),
            Self::NoBlocks => f.write_str("there is no task or no tile"),
            Self::Number => f.write_str("the sequence is too large for numbers of blocks"),
            Self::Task(error) => error.fmt(f),
        }
    }
}

impl<F> fmt::Display for AddError<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.reason.fmt(f)
    }
}

impl<F> fmt::Debug for AddError<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AddError").field("reason", &self.reason).finish_non_exhaustive()
    }
}

impl<F> core::error::Error for AddError<F> {}

impl<F> Frames<F> {
    /// No frames yet. At most `limit` will be held, and each has a block for each of the tiles in each of the tasks, which
    /// are known by their ids. A task that is named twice counts once.
    #[must_use]
    pub fn new(tasks: Vec<String>, tiles: Tiles, limit: usize) -> Self {
        let mut once: Vec<String> = Vec::new();
        tasks.into_iter().for_each(|task| {
            if !once.contains(&task) {
                once.push(task);
            }
        });
        let (held, stale, counts) = (BTreeMap::new(), BTreeMap::new(), FrameCounts::default());
        Self { tasks: once, tiles, limit, held, stale, counts }
    }

    /// How many frames are held.
    #[must_use]
    pub fn len(&self) -> usize {
        self.held.len()
    }

    /// Whether none is held.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Whether as many are held as may be.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.held.len() >= self.limit
    }

    /// What became of them.
    #[must_use]
    pub const fn counts(&self) -> FrameCounts {
        self.counts
    }

    /// Adds the blocks of a frame, and keeps it until they have ended.
    ///
    /// # Errors
    /// [`AddError`] has the frame, and nothing of it is in the scheduler.
    pub fn add(&mut self, scheduler: &mut Scheduler, seq: u64, frame: F) -> Result<(), AddError<F>> {
        let left = match self.admits(scheduler, seq) {
            Ok(left) => left,
            Err(reason) => return Err(AddError { frame, reason }),
        };
        for (number, tile) in self.numbers(seq).zip(self.tiles.iter()) {
            let part = Part { seq, tile };
            let mut before: Option<BlockId> = None;
            for task in &self.tasks {
                let block = part.block(task, number);
                let block_id = block.block_id.clone();
                // It was asked before whether they can be added.
                if let Err(error) = scheduler.add_block(block, before.as_slice()) {
                    return Err(AddError { frame, reason: NotAdded::Task(error) });
                }
                before = Some(block_id);
            }
        }
        self.held.insert(seq, Held { frame, left, outcome: Outcome::Success });
        self.counts.taken += 1;
        Ok(())
    }

    /// Gives up the oldest frame of which nobody has begun a block, to make room. Events about its blocks will come and do not
    /// count.
    pub fn drop_oldest(&mut self, scheduler: &mut Scheduler) -> Option<(u64, F)> {
        let all = self.blocks_of_each();
        let is_untouched = |seq: u64| self.ids(seq).all(|id| scheduler.is_untouched(&id));
        let mut whole = self.held.iter().filter(|(_, held)| held.left == all).map(|(seq, _)| *seq);
        let seq = whole.find(|seq| is_untouched(*seq))?;
        // Those of the first task first: the others go with them.
        self.ids(seq).for_each(|id| _ = scheduler.abandon_block(&id));
        let Held { frame, left, .. } = self.held.remove(&seq)?;
        *self.stale.entry(seq).or_default() += left;
        self.counts.dropped += 1;
        Some((seq, frame))
    }

    /// Gives up all blocks of all frames, also where they are being worked on: nobody can read the frames any more. They are
    /// given back by [`ended`](Self::ended), when the events about that have come.
    pub fn give_up(&mut self, scheduler: &mut Scheduler) {
        for seq in self.held.keys() {
            self.ids(*seq).for_each(|id| _ = scheduler.revoke_block(&id));
        }
    }

    /// Takes notice of what happened to a block; every event has to come here, in order. Those about blocks of others are
    /// not looked at. If it was the last block of its frame, that is given back.
    pub fn ended(&mut self, event: &BlockEvent) -> Option<FrameEnd<F>> {
        let BlockEvent::Ended { block_id, outcome, .. } = event else { return None };
        if !self.tasks.contains(&block_id.task_id) {
            return None;
        }
        let seq = block_id.spatial_id.checked_div(self.tiles.len())?;
        if let Some(stale) = self.stale.get_mut(&seq) {
            *stale -= 1;
            if *stale == 0 {
                self.stale.remove(&seq);
            }
            return None;
        }
        let held = self.held.get_mut(&seq)?;
        held.outcome = worse(held.outcome, *outcome);
        held.left -= 1;
        if held.left > 0 {
            return None;
        }
        let Held { frame, outcome, .. } = self.held.remove(&seq)?;
        match outcome {
            Outcome::Success => self.counts.done += 1,
            Outcome::Failed => self.counts.failed += 1,
            Outcome::Orphaned => self.counts.given_up += 1,
        }
        Some(FrameEnd { seq, frame, outcome })
    }

    /// How many blocks a frame has, if it can be added.
    fn admits(&self, scheduler: &Scheduler, seq: u64) -> Result<u64, NotAdded> {
        if self.is_full() {
            return Err(NotAdded::Full);
        }
        if self.held.contains_key(&seq) {
            return Err(NotAdded::Exists);
        }
        let left = self.blocks_of_each();
        let last = self.tiles.len().checked_sub(1).filter(|_| left > 0).ok_or(NotAdded::NoBlocks)?;
        Part::number(seq, self.tiles.len(), last).ok_or(NotAdded::Number)?;
        self.ids(seq).try_for_each(|id| scheduler.admits(&id).map(|_| ())).map_err(NotAdded::Task)?;
        Ok(left)
    }

    fn blocks_of_each(&self) -> u64 {
        u64::try_from(self.tasks.len()).unwrap_or(u64::MAX).saturating_mul(self.tiles.len())
    }

    /// The numbers of a frame's blocks, in the order of its tiles.
    fn numbers(&self, seq: u64) -> impl Iterator<Item = u64> + use<F> {
        let tiles = self.tiles.len();
        (0..tiles).map_while(move |index| Part::number(seq, tiles, index))
    }

    /// A frame's blocks, task by task.
    fn ids(&self, seq: u64) -> impl Iterator<Item = BlockId> {
        self.tasks
            .iter()
            .flat_map(move |task| self.numbers(seq).map(move |number| BlockId::new(task, number)))
    }
}

fn worse(a: Outcome, b: Outcome) -> Outcome {
    [Outcome::Failed, Outcome::Orphaned].into_iter().find(|worse| [a, b].contains(worse)).unwrap_or(a)
}
