//! [`Scheduler`]: which block goes to whom, and what becomes of it.
//!
//! Invariants, which the property tests check against a model:
//!
//! - S1: a block that was added ends exactly once: as success, failed, or orphaned.
//! - S2: a block is outstanding at one holder at most.
//! - S3: only whom a block is outstanding at can end that.
//! - S4: a block is handed out only after everything that it waits for has succeeded.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use cuframes_core::Instant;
use cuframes_core::streams::ConnId;

use crate::holders::Holders;
use crate::task::{
    Acquired, BlockEvent, Cause, Counts, DEFAULT_TIMEOUT, Outcome, Released, TaskConfig, TaskError,
};
use crate::wire::{Block, BlockId, Status};

/// Which block goes to whom.
#[derive(Debug, Default)]
pub struct Scheduler {
    tasks: Vec<Task>,
    /// Blocks that have not ended.
    blocks: BTreeMap<Ref, Entry>,
    holders: Holders,
    /// When blocks that are out are lost.
    deadlines: BTreeSet<(Instant, Ref)>,
    events: VecDeque<BlockEvent>,
    /// The place of the next block that gets ready.
    next_place: u64,
    /// Tasks in which a block got ready, or which may have ended, or of which somebody may have more now.
    stirred: BTreeSet<usize>,
    /// The latest time that was told.
    now: Instant,
}

/// A task, by its place, and a block of it.
pub(crate) type Ref = (usize, u64);

#[derive(Debug)]
struct Task {
    config: TaskConfig,
    /// Blocks that are ready, by their places in the queue.
    ready: BTreeMap<u64, u64>,
    counts: Counts,
    is_closed: bool,
}

#[derive(Debug)]
struct Entry {
    block: Block,
    /// How often it did not succeed.
    failures: u32,
    state: State,
    /// Blocks that it still waits for.
    waits_for: BTreeSet<Ref>,
    /// Blocks that wait for it.
    dependents: BTreeSet<Ref>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Waiting,
    Ready { place: u64 },
    Out { holder: ConnId, until: Option<Instant> },
}

impl Scheduler {
    /// Adds a task.
    ///
    /// # Errors
    /// [`TaskError::TaskExists`].
    pub fn add_task(&mut self, config: TaskConfig) -> Result<(), TaskError> {
        if self.tasks.iter().any(|task| task.config.id == config.id) {
            return Err(TaskError::TaskExists(config.id));
        }
        self.tasks.push(Task { config, ready: BTreeMap::new(), counts: Counts::default(), is_closed: false });
        Ok(())
    }

    /// Adds a block to the task that its id names, which may be worked on when these others have succeeded.
    ///
    /// # Errors
    /// If there is no such task, it is closed, it has the block already, or one of the others is not there (any more).
    pub fn add_block(&mut self, mut block: Block, waits_for: &[BlockId]) -> Result<(), TaskError> {
        let at = self.admits(&block.block_id)?;
        let mut others = BTreeSet::new();
        for id in waits_for {
            let other = self.find(id)?;
            if !self.blocks.contains_key(&other) {
                return Err(TaskError::UnknownBlock(id.clone()));
            }
            others.insert(other);
        }
        for other in &others {
            if let Some(entry) = self.blocks.get_mut(other) {
                entry.dependents.insert(at);
            }
        }
        block.status = Status::Created;
        block.stats = None;
        let is_ready = others.is_empty();
        let entry = Entry {
            block,
            failures: 0,
            state: State::Waiting,
            waits_for: others,
            dependents: BTreeSet::new(),
        };
        self.blocks.insert(at, entry);
        if let Some(task) = self.task(at.0) {
            task.counts.total += 1;
            task.counts.waiting += 1;
        }
        if is_ready {
            self.make_ready(at);
        }
        Ok(())
    }

    /// Nothing will be added to this task any more: it ends with its last block.
    ///
    /// # Errors
    /// [`TaskError::UnknownTask`].
    pub fn close_task(&mut self, task_id: &str) -> Result<(), TaskError> {
        let at = self.find_task(task_id)?;
        if let Some(task) = self.task(at) {
            task.is_closed = true;
        }
        self.stirred.insert(at);
        Ok(())
    }

    /// Gives up a task: what has not ended is orphaned, also where it is being worked on, and what waits for it; and nothing
    /// can be added.
    ///
    /// # Errors
    /// [`TaskError::UnknownTask`].
    pub fn abandon_task(&mut self, task_id: &str) -> Result<(), TaskError> {
        self.close_task(task_id)?;
        let at = self.find_task(task_id)?;
        let blocks: Vec<_> = self.blocks.range((at, 0)..=(at, u64::MAX)).map(|(at, _)| *at).collect();
        blocks.into_iter().for_each(|block| self.end(block, Outcome::Orphaned, None));
        Ok(())
    }

    /// Gives up a block that nobody is working on, and what waits for it. Answers whether it did.
    pub fn abandon_block(&mut self, block_id: &BlockId) -> bool {
        self.is_idle(block_id) && self.revoke_block(block_id)
    }

    /// Gives up a block, also where it is being worked on, and what waits for it. Answers whether it had not ended.
    pub fn revoke_block(&mut self, block_id: &BlockId) -> bool {
        let found = self.find(block_id).ok().filter(|at| self.blocks.contains_key(at));
        found.into_iter().for_each(|at| self.end(at, Outcome::Orphaned, None));
        found.is_some()
    }

    /// Whether somebody is working on a block.
    #[must_use]
    pub fn is_out(&self, block_id: &BlockId) -> bool {
        matches!(self.state(block_id), Some(State::Out { .. }))
    }

    /// Somebody can take a block of this task. It does not get one back that was taken from it, until it has answered; see
    /// [`poll_silent`](Self::poll_silent).
    ///
    /// # Errors
    /// [`TaskError::UnknownTask`].
    pub fn acquire(&mut self, now: Instant, holder: ConnId, task_id: &str) -> Result<Acquired, TaskError> {
        Ok(self.acquire_of(now, holder, self.find_task(task_id)?))
    }

    /// The same for the task at this place.
    pub(crate) fn acquire_of(&mut self, now: Instant, holder: ConnId, at: usize) -> Acquired {
        self.now = self.now.max(now);
        let Some(task) = self.tasks.get_mut(at) else { return Acquired::Nothing };
        // Had it the same one twice, nobody could say which of the two it answers about.
        let owes_any = self.holders.owes_any(holder);
        let is_its = |number: u64| !owes_any || !self.holders.owes(holder, (at, number));
        let next = task.ready.iter().find(|(_, number)| is_its(**number)).map(|(place, _)| *place);
        let Some(number) = next.and_then(|place| task.ready.remove(&place)) else {
            let is_over = task.is_closed && task.counts.unfinished() == 0;
            return if is_over { Acquired::Ended } else { Acquired::Nothing };
        };
        let Some(entry) = self.blocks.get_mut(&(at, number)) else { return Acquired::Nothing };
        let timeout = task.config.timeout;
        let until = timeout.map(|timeout| now + timeout);
        entry.state = State::Out { holder, until };
        task.counts.ready -= 1;
        task.counts.processing += 1;
        self.holders.give(holder, (at, number));
        self.deadlines.extend(until.map(|until| (until, (at, number))));
        Acquired::Block(Box::new(entry.block.clone()), timeout)
    }

    /// Somebody is done with a block: `cause` says why it failed, if it did.
    pub fn release(&mut self, holder: ConnId, block_id: &BlockId, cause: Option<Cause>) -> Released {
        let Ok(at) = self.find(block_id) else { return Released::Foreign };
        let released = self.holders.answer(holder, at);
        match (released, cause) {
            (Released::Accepted, None) => self.end(at, Outcome::Success, None),
            (Released::Accepted, Some(cause)) => self.fail(at, cause),
            // It may have this one now, if it is ready.
            (Released::Late, _) => _ = self.stirred.insert(at.0),
            (Released::Foreign, _) => {}
        }
        released
    }

    /// Somebody is gone: what is outstanding there goes to others.
    pub fn holder_gone(&mut self, holder: ConnId) {
        self.holders.remove(holder).into_iter().for_each(|at| self.fail(at, Cause::Lost));
    }

    /// What took too long goes to others.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.now = self.now.max(now);
        while let Some((until, at)) = self.deadlines.first().copied().filter(|(until, _)| *until <= now) {
            self.deadlines.remove(&(until, at));
            self.fail(at, Cause::Timeout);
        }
        self.holders.handle_timeout(now);
    }

    /// Somebody who has not answered about a block that was taken from it, for as long again as it may have one: it hangs, or
    /// has forgotten the block. Better end its connection, and say so by [`holder_gone`](Self::holder_gone): from now on it is as
    /// if it had never had the block, which it may get again.
    pub fn poll_silent(&mut self) -> Option<(ConnId, BlockId)> {
        let (holder, (task, number)) = self.holders.poll_silent()?;
        Some((holder, BlockId::new(self.tasks.get(task)?.config.id.clone(), number)))
    }

    /// When [`handle_timeout`](Self::handle_timeout) is due.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let lost = self.deadlines.first().map(|(until, _)| *until);
        lost.into_iter().chain(self.holders.poll_timeout()).min()
    }

    /// What happened to blocks.
    pub fn poll_event(&mut self) -> Option<BlockEvent> {
        self.events.pop_front()
    }

    /// How many blocks of a task are where.
    ///
    /// # Errors
    /// [`TaskError::UnknownTask`].
    pub fn counts(&self, task_id: &str) -> Result<Counts, TaskError> {
        let at = self.find_task(task_id)?;
        Ok(self.tasks.get(at).map(|task| task.counts).unwrap_or_default())
    }

    /// Whether a task is closed and all its blocks have ended; also where there is no such task.
    #[must_use]
    pub fn is_task_finished(&self, task_id: &str) -> bool {
        let task = self.find_task(task_id).ok().and_then(|at| self.tasks.get(at));
        task.is_none_or(|task| task.is_closed && task.counts.unfinished() == 0)
    }

    /// Whether all tasks are closed and all blocks have ended.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.tasks.iter().all(|task| task.is_closed && task.counts.unfinished() == 0)
    }

    /// Whether a block has not ended, and nobody has begun it.
    pub(crate) fn is_untouched(&self, block_id: &BlockId) -> bool {
        let entry = self.find(block_id).ok().and_then(|at| self.blocks.get(&at));
        entry.is_some_and(|entry| entry.failures == 0 && !matches!(entry.state, State::Out { .. }))
    }

    /// Whether a block has not ended, and nobody is working on it.
    fn is_idle(&self, block_id: &BlockId) -> bool {
        matches!(self.state(block_id), Some(State::Waiting | State::Ready { .. }))
    }

    /// A task in which something has changed for those who wait for a block of it.
    pub(crate) fn next_stirred(&mut self) -> Option<usize> {
        self.stirred.pop_first()
    }

    /// Whether the task at this place has a block for somebody.
    pub(crate) fn is_ready(&self, at: usize) -> bool {
        self.tasks.get(at).is_some_and(|task| !task.ready.is_empty())
    }

    /// Whether a block of this name can be added.
    pub(crate) fn admits(&self, block_id: &BlockId) -> Result<Ref, TaskError> {
        let at = self.find(block_id)?;
        if self.tasks.get(at.0).is_some_and(|task| task.is_closed) {
            return Err(TaskError::TaskClosed(block_id.task_id.clone()));
        }
        if self.blocks.contains_key(&at) {
            return Err(TaskError::BlockExists(block_id.clone()));
        }
        Ok(at)
    }

    fn state(&self, block_id: &BlockId) -> Option<State> {
        self.find(block_id).ok().and_then(|at| self.blocks.get(&at)).map(|entry| entry.state)
    }

    /// It did not succeed this time.
    fn fail(&mut self, at: Ref, cause: Cause) {
        let Some(task) = self.tasks.get_mut(at.0) else { return };
        let Some(entry) = self.blocks.get_mut(&at) else { return };
        if entry.failures >= task.config.max_retries {
            return self.end(at, Outcome::Failed, Some(cause));
        }
        entry.failures += 1;
        entry.block.status = Status::Failed;
        task.counts.retried += 1;
        let block_id = entry.block.block_id.clone();
        self.take_back(at);
        self.make_ready(at);
        self.events.push_back(BlockEvent::Retried { block_id, cause });
    }

    /// It is over, and what waits for it is ready, or orphaned with all that waits for that.
    fn end(&mut self, at: Ref, outcome: Outcome, cause: Option<Cause>) {
        let mut ending = VecDeque::from([(at, outcome, cause)]);
        while let Some((at, outcome, cause)) = ending.pop_front() {
            self.take_back(at);
            let Some(Entry { block, state, waits_for, dependents, .. }) = self.blocks.remove(&at) else {
                continue;
            };
            for other in waits_for {
                if let Some(entry) = self.blocks.get_mut(&other) {
                    entry.dependents.remove(&at);
                }
            }
            if let Some(Task { counts, ready, .. }) = self.tasks.get_mut(at.0) {
                if let State::Ready { place } = state {
                    counts.ready -= 1;
                    ready.remove(&place);
                } else {
                    counts.waiting -= 1;
                }
                match outcome {
                    Outcome::Success => counts.succeeded += 1,
                    Outcome::Failed => counts.failed += 1,
                    Outcome::Orphaned => counts.orphaned += 1,
                }
            }
            for dependent in dependents {
                if outcome != Outcome::Success {
                    ending.push_back((dependent, Outcome::Orphaned, None));
                } else if let Some(entry) = self.blocks.get_mut(&dependent)
                    && entry.waits_for.remove(&at)
                    && entry.waits_for.is_empty()
                {
                    self.make_ready(dependent);
                }
            }
            self.stirred.insert(at.0);
            self.events.push_back(BlockEvent::Ended { block_id: block.block_id, outcome, cause });
        }
    }

    /// It is not outstanding any more, and waits.
    fn take_back(&mut self, at: Ref) {
        let Some(entry) = self.blocks.get_mut(&at) else { return };
        let State::Out { holder, until } = entry.state else { return };
        entry.state = State::Waiting;
        if let Some(until) = until {
            self.deadlines.remove(&(until, at));
        }
        let timeout = self.tasks.get(at.0).and_then(|task| task.config.timeout).unwrap_or(DEFAULT_TIMEOUT);
        self.holders.take(holder, at, self.now + timeout);
        if let Some(task) = self.tasks.get_mut(at.0) {
            task.counts.processing -= 1;
            task.counts.waiting += 1;
        }
    }

    fn make_ready(&mut self, at: Ref) {
        let Some(entry) = self.blocks.get_mut(&at) else { return };
        let place = self.next_place;
        self.next_place += 1;
        self.stirred.insert(at.0);
        entry.state = State::Ready { place };
        if let Some(task) = self.tasks.get_mut(at.0) {
            task.counts.waiting -= 1;
            task.counts.ready += 1;
            task.ready.insert(place, at.1);
        }
    }

    fn find(&self, id: &BlockId) -> Result<Ref, TaskError> {
        Ok((self.find_task(&id.task_id)?, id.spatial_id))
    }

    pub(crate) fn find_task(&self, task_id: &str) -> Result<usize, TaskError> {
        let at = self.tasks.iter().position(|task| task.config.id == task_id);
        at.ok_or_else(|| TaskError::UnknownTask(task_id.into()))
    }

    fn task(&mut self, at: usize) -> Option<&mut Task> {
        self.tasks.get_mut(at)
    }
}
