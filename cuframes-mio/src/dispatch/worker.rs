//! [`Worker`]: takes blocks, and waits for them.

use std::io;
use std::time::Duration;

use cuframes_dispatch::wire::{Block, BlockId, Stats, Version};
use cuframes_dispatch::{Stop, Worker as Machine, WorkerConfig, WorkerEvent};

use crate::clock;
use crate::net::{Driver, Endpoint, Listeners};
use crate::pollable::Pollable;

/// Settings of a worker; [`start`](Self::start) makes it.
#[derive(Clone, Debug)]
#[must_use]
pub struct WorkerBuilder {
    config: WorkerConfig,
}

impl WorkerBuilder {
    /// How many blocks it has at a time, 1 by default. With more the next one is there when one is done, and a dispatcher
    /// that loses it has more to hand out again.
    pub const fn depth(mut self, depth: usize) -> Self {
        self.config.depth = depth;
        self
    }

    /// Its number, for the dispatcher's reports.
    pub const fn worker_id(mut self, worker_id: u64) -> Self {
        self.config.worker_id = Some(worker_id);
        self
    }

    /// What the dispatcher speaks; [`Version::W2`] by default.
    pub const fn version(mut self, version: Version) -> Self {
        self.config.version = version;
        self
    }

    /// How long to try to connect; 30 s by default. With no time at all it does not try, and stops as
    /// [`Unreachable`](Stop::Unreachable).
    pub const fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.config.connect_timeout = timeout;
        self
    }

    /// Begins to connect, without waiting.
    ///
    /// # Errors
    /// If the event loop can't be made.
    pub fn start(self) -> io::Result<Worker> {
        let machine = Machine::new(clock::now(), self.config);
        Ok(Worker { driver: Pollable::new(Driver::new(machine, Listeners::default()))? })
    }
}

/// What [`Worker::next`] gives.
#[derive(Clone, PartialEq, Debug)]
#[expect(clippy::exhaustive_enums, reason = "whoever takes blocks has to deal with all of it")]
pub enum Next {
    /// A block to work on: say [`done`](Worker::done) or [`failed`](Worker::failed).
    Block(Box<Block>),
    /// There is nothing more to do.
    Stopped(Stop),
    /// No block came in time.
    Nothing,
}

/// Takes blocks from a dispatcher. Dropping it gives those that it has to others.
#[derive(Debug)]
pub struct Worker {
    driver: Pollable<Driver<Machine>>,
}

impl Worker {
    /// Settings of a worker for this task of the dispatcher at `endpoint`.
    pub fn builder(endpoint: &Endpoint, task_id: impl Into<String>) -> WorkerBuilder {
        WorkerBuilder { config: WorkerConfig::new(endpoint.to_string(), task_id) }
    }

    /// The next block, within `timeout` (`None`: however long it takes; but a signal may end the wait).
    ///
    /// # Errors
    /// If the event loop fails.
    pub fn next(&mut self, timeout: Option<Duration>) -> io::Result<Next> {
        let _ = self.driver.wait(Some(Duration::ZERO))?;
        let next = self.driver.poll_within(timeout, |driver| {
            loop {
                match driver.poll_event()? {
                    // Nobody wants a block any more whose dispatcher is gone.
                    WorkerEvent::Block { .. } if driver.machine().has_stopped() => {}
                    WorkerEvent::Block { block, .. } => return Some(Next::Block(Box::new(block))),
                    WorkerEvent::Stopped(stop) => return Some(Next::Stopped(stop)),
                    _ => {}
                }
            }
        })?;
        if let Some(Next::Stopped(_)) = next {
            self.finish()?;
        }
        Ok(next.unwrap_or(Next::Nothing))
    }

    /// Takes notice of what came meanwhile, and answers whether the blocks that it has are still wanted: not when the
    /// dispatcher is gone. For who works on one for long.
    ///
    /// # Errors
    /// If the event loop fails.
    pub fn is_wanted(&mut self) -> io::Result<bool> {
        let _ = self.driver.wait(Some(Duration::ZERO))?;
        Ok(!self.driver.get_ref().machine().has_stopped())
    }

    /// A block is done. Answers whether it was one of those that it has.
    ///
    /// # Errors
    /// If the event loop fails.
    pub fn done(&mut self, block_id: &BlockId, stats: Option<Stats>) -> io::Result<bool> {
        self.driver.command(|machine, now| machine.done(now, block_id, stats))
    }

    /// A block could not be done, and why. Answers whether it was one of those that it has.
    ///
    /// # Errors
    /// If the event loop fails.
    pub fn failed(&mut self, block_id: &BlockId, error: &str) -> io::Result<bool> {
        self.driver.command(|machine, now| machine.failed(now, block_id, error))
    }

    /// Takes no more blocks and leaves; those that it has go to others. Takes a second at most.
    ///
    /// # Errors
    /// If the event loop fails.
    pub fn leave(&mut self) -> io::Result<()> {
        self.driver.command(Machine::leave)?;
        self.finish()
    }

    /// Why the last attempt to connect failed, and where, until one works.
    #[must_use]
    pub fn trouble(&self) -> Option<(&Endpoint, &io::Error)> {
        self.driver.get_ref().trouble()
    }

    /// For an event loop of your own: the worker as an [`EventSource`](crate::EventSource).
    #[must_use]
    pub fn into_driver(self) -> Driver<Machine> {
        self.driver.into_inner()
    }

    /// Waits until everything is sent.
    fn finish(&mut self) -> io::Result<()> {
        while !self.driver.get_ref().machine().is_finished() {
            let _ = self.driver.wait(None)?;
        }
        Ok(())
    }
}
