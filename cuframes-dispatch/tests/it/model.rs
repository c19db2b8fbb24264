//! [`Model`]: what a scheduler does, written as plainly as can be. Blocks that get ready in one call have no order among
//! themselves here; all else is exact.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use cuframes_core::Instant;
use cuframes_core::streams::ConnId;
use cuframes_dispatch::wire::BlockId;
use cuframes_dispatch::{BlockEvent, Cause, Outcome, Released, TaskConfig, TaskError};

use crate::world::TIMEOUT;

#[derive(Default)]
pub(crate) struct Model {
    pub(crate) tasks: BTreeMap<String, Task>,
    pub(crate) blocks: BTreeMap<BlockId, Block>,
    /// Blocks that were taken from somebody who has not answered about them, and until when that is waited for.
    pub(crate) owed: BTreeMap<(ConnId, BlockId), Instant>,
    /// For whom that has been in vain since the last look.
    pub(crate) silent: Vec<(ConnId, BlockId)>,
    now: Instant,
    /// What has happened to blocks since the last look.
    pub(crate) events: Vec<BlockEvent>,
    calls: u64,
}

pub(crate) struct Task {
    pub(crate) config: TaskConfig,
    pub(crate) is_closed: bool,
    pub(crate) total: u64,
    pub(crate) retried: u64,
    pub(crate) ended: BTreeMap<Outcome, u64>,
}

pub(crate) struct Block {
    waits_for: BTreeSet<BlockId>,
    pub(crate) failures: u32,
    pub(crate) state: State,
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum State {
    Waiting,
    /// Since which call.
    Ready(u64),
    Out(ConnId, Option<Instant>),
}

impl Model {
    pub(crate) fn add_task(&mut self, config: TaskConfig) {
        let id = config.id.clone();
        let task = Task { config, is_closed: false, total: 0, retried: 0, ended: BTreeMap::new() };
        self.tasks.insert(id, task);
    }

    pub(crate) fn add_block(&mut self, id: &BlockId, waits_for: &[BlockId]) -> Result<(), TaskError> {
        self.calls += 1;
        let task = self.tasks.get_mut(&id.task_id).unwrap();
        if task.is_closed {
            return Err(TaskError::TaskClosed(id.task_id.clone()));
        }
        if self.blocks.contains_key(id) {
            return Err(TaskError::BlockExists(id.clone()));
        }
        if let Some(other) = waits_for.iter().find(|other| !self.blocks.contains_key(*other)) {
            return Err(TaskError::UnknownBlock(other.clone()));
        }
        task.total += 1;
        let state = if waits_for.is_empty() { State::Ready(self.calls) } else { State::Waiting };
        let waits_for = waits_for.iter().cloned().collect();
        self.blocks.insert(id.clone(), Block { waits_for, failures: 0, state });
        Ok(())
    }

    /// Whether nothing will ever be handed out again.
    pub(crate) fn is_over(&self, task: &str) -> bool {
        self.tasks[task].is_closed && self.blocks.keys().all(|id| id.task_id != task)
    }

    /// Which blocks may be handed out to this one: the oldest of those that it may have.
    pub(crate) fn next(&self, holder: ConnId, task: &str) -> Vec<BlockId> {
        let ready = self.blocks.iter().filter_map(|(id, block)| match block.state {
            State::Ready(since) if id.task_id == task && !self.owed.contains_key(&(holder, id.clone())) => {
                Some((since, id))
            }
            _ => None,
        });
        let ready: Vec<_> = ready.collect();
        let oldest = ready.iter().map(|(since, _)| *since).min();
        ready.into_iter().filter(|(since, _)| Some(*since) == oldest).map(|(_, id)| id.clone()).collect()
    }

    pub(crate) fn hand_out(&mut self, now: Instant, holder: ConnId, id: &BlockId) {
        let until = self.tasks[&id.task_id].config.timeout.map(|timeout| now + timeout);
        self.blocks.get_mut(id).unwrap().state = State::Out(holder, until);
    }

    pub(crate) fn release(&mut self, holder: ConnId, id: &BlockId, cause: Option<Cause>) -> Released {
        self.calls += 1;
        if !self.held(holder).contains(id) {
            let is_late = self.owed.remove(&(holder, id.clone())).is_some();
            return if is_late { Released::Late } else { Released::Foreign };
        }
        self.blocks.get_mut(id).unwrap().state = State::Waiting;
        match cause {
            None => self.end(id, Outcome::Success, None),
            Some(cause) => self.fail(id, cause),
        }
        Released::Accepted
    }

    pub(crate) fn holder_gone(&mut self, holder: ConnId) {
        self.calls += 1;
        self.held(holder).iter().for_each(|id| self.fail(id, Cause::Lost));
        self.owed.retain(|(who, _), _| *who != holder);
    }

    pub(crate) fn pass(&mut self, now: Instant) {
        self.calls += 1;
        self.now = now;
        let is_late = |block: &Block| matches!(block.state, State::Out(_, Some(until)) if until <= now);
        let late = self.blocks.iter().filter(|(_, block)| is_late(block)).map(|(id, _)| id.clone());
        for id in late.collect::<Vec<_>>() {
            self.take(&id);
            self.fail(&id, Cause::Timeout);
        }
        let is_over = |until: &Instant| *until <= now;
        self.silent
            .extend(self.owed.iter().filter(|(_, until)| is_over(until)).map(|(owed, _)| owed.clone()));
        self.owed.retain(|_, until| !is_over(until));
    }

    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        let until = |block: &Block| if let State::Out(_, until) = block.state { until } else { None };
        self.blocks.values().filter_map(until).chain(self.owed.values().copied()).min()
    }

    pub(crate) fn abandon_block(&mut self, id: &BlockId) -> bool {
        self.calls += 1;
        let is_idle = self.blocks.get(id).is_some_and(|block| !matches!(block.state, State::Out(..)));
        if is_idle {
            self.end(id, Outcome::Orphaned, None);
        }
        is_idle
    }

    pub(crate) fn revoke_block(&mut self, id: &BlockId) -> bool {
        self.calls += 1;
        let is_there = self.blocks.contains_key(id);
        if is_there {
            self.take(id);
            self.end(id, Outcome::Orphaned, None);
        }
        is_there
    }

    pub(crate) fn abandon_task(&mut self, task: &str) {
        self.tasks.get_mut(task).unwrap().is_closed = true;
        while let Some(id) = self.blocks.keys().find(|id| id.task_id == task).cloned() {
            self.take(&id);
            self.end(&id, Outcome::Orphaned, None);
        }
    }

    /// What somebody has.
    pub(crate) fn held(&self, holder: ConnId) -> Vec<BlockId> {
        let is_its = |block: &Block| matches!(block.state, State::Out(who, _) if who == holder);
        self.blocks.iter().filter(|(_, block)| is_its(block)).map(|(id, _)| id.clone()).collect()
    }

    /// How many blocks are waiting, ready, and processing.
    pub(crate) fn counts(&self, task: &str) -> [u64; 3] {
        let mut counts = [0; 3];
        for (_, block) in self.blocks.iter().filter(|(id, _)| id.task_id == task) {
            counts[match block.state {
                State::Waiting => 0,
                State::Ready(_) => 1,
                State::Out(..) => 2,
            }] += 1;
        }
        counts
    }

    /// It is taken from whoever has it.
    fn take(&mut self, id: &BlockId) {
        if let State::Out(holder, _) = self.blocks[id].state {
            let timeout = self.tasks[&id.task_id].config.timeout.unwrap_or(TIMEOUT);
            self.owed.insert((holder, id.clone()), self.now + timeout);
        }
    }

    fn fail(&mut self, id: &BlockId, cause: Cause) {
        let task = self.tasks.get_mut(&id.task_id).unwrap();
        let block = self.blocks.get_mut(id).unwrap();
        if block.failures == task.config.max_retries {
            return self.end(id, Outcome::Failed, Some(cause));
        }
        block.failures += 1;
        block.state = State::Ready(self.calls);
        task.retried += 1;
        self.events.push(BlockEvent::Retried { block_id: id.clone(), cause });
    }

    fn end(&mut self, id: &BlockId, outcome: Outcome, cause: Option<Cause>) {
        self.blocks.remove(id).unwrap();
        *self.tasks.get_mut(&id.task_id).unwrap().ended.entry(outcome).or_default() += 1;
        self.events.push(BlockEvent::Ended { block_id: id.clone(), outcome, cause });
        let dependents = self.blocks.iter().filter(|(_, block)| block.waits_for.contains(id));
        for dependent in dependents.map(|(id, _)| id.clone()).collect::<Vec<_>>() {
            // It may have been orphaned by way of another one.
            let Some(block) = self.blocks.get_mut(&dependent) else { continue };
            if outcome != Outcome::Success {
                self.end(&dependent, Outcome::Orphaned, None);
            } else if block.waits_for.remove(id) && block.waits_for.is_empty() {
                block.state = State::Ready(self.calls);
            }
        }
    }
}

/// The tasks of the property tests: of all kinds.
pub(crate) fn tasks() -> [TaskConfig; 3] {
    let mut tasks = ["t", "u", "v"].map(TaskConfig::new);
    tasks[0].timeout = Some(Duration::from_millis(50));
    (tasks[1].max_retries, tasks[1].timeout) = (0, None);
    (tasks[2].max_retries, tasks[2].timeout) = (1, Some(Duration::from_millis(200)));
    tasks
}
