//! [`Server`]: hands the blocks of a [`Scheduler`] to workers.
//!
//! Who asks when nothing is ready is parked, and answered as soon as something is, or when its task has ended. Where a
//! connection ends, what was out there goes to others at once. A worker that breaks the protocol loses its connection, and
//! nobody else notices.

use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

use cuframes_core::Instant;
use cuframes_core::streams::{Action, ConnId, Links, Machine};

use crate::parking::Parking;
use crate::peer::Peer;
use crate::scheduler::Scheduler;
use crate::task::{Acquired, BlockEvent, Cause, Released};
use crate::wire::{Block, BlockId, FrameError, Message, Status, Version};

/// What a worker did wrong. It costs its connection.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum PeerFault {
    /// What it sent is no message.
    Frame(FrameError),
    /// It asked for blocks of a task that there is not.
    UnknownTask(String),
    /// It released a block as neither done nor failed.
    Status(BlockId),
    /// It released a block that it does not have.
    Foreign(BlockId),
    /// It did not answer about a block that was taken from it, for as long again as it could have it.
    Silent(BlockId),
    /// It sent what only a server sends.
    Role,
    /// It asked for too many blocks at a time, or does not read what it is sent.
    Greedy,
    /// Too much is kept of frames that are not complete.
    Dribble,
}

impl fmt::Display for PeerFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Frame(error) => error.fmt(f),
            Self::UnknownTask(task) => write!(f, "it asked for blocks of task {task:?}, which there is not"),
            Self::Status(BlockId { task_id, spatial_id }) => {
                write!(f, "it released block {spatial_id} of task {task_id:?} as neither done nor failed")
            }
            Self::Foreign(BlockId { task_id, spatial_id }) => {
                write!(f, "it released block {spatial_id} of task {task_id:?}, which it does not have")
            }
            Self::Silent(BlockId { task_id, spatial_id }) => {
                write!(
                    f,
                    "it did not answer about block {spatial_id} of task {task_id:?}, which it had for too long"
                )
            }
            Self::Role => f.write_str("it sent what only a server sends"),
            Self::Greedy => f.write_str("it asked for too many blocks at a time, or does not read"),
            Self::Dribble => f.write_str("too many bytes of incomplete messages are kept"),
        }
    }
}

impl core::error::Error for PeerFault {}

/// What a server tells.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub enum ServerEvent {
    /// A worker connected.
    Joined {
        /// Its connection.
        conn: ConnId,
    },
    /// A worker got a block.
    Sent {
        /// Its connection.
        conn: ConnId,
        /// Its number, if it said it.
        worker_id: Option<u64>,
        /// The block.
        block_id: BlockId,
    },
    /// Something happened to a block.
    Block(BlockEvent),
    /// A worker is gone.
    Left {
        /// Its connection.
        conn: ConnId,
        /// What it did wrong, if that is why.
        fault: Option<PeerFault>,
    },
}

/// Hands blocks to workers. See [`Machine`] for how it is driven; it has one listener.
#[derive(Debug)]
pub struct Server {
    version: Version,
    scheduler: Scheduler,
    links: Links<Peer, Worker>,
    parked: Parking,
    events: VecDeque<ServerEvent>,
    /// It is over: when the connections that are left are closed.
    linger: Option<Instant>,
}

/// A worker.
#[derive(Debug, Default)]
struct Worker {
    id: Option<u64>,
}

impl Server {
    /// A server that speaks this version.
    #[must_use]
    pub fn new(version: Version) -> Self {
        Self {
            version,
            scheduler: Scheduler::default(),
            links: Links::default(),
            parked: Parking::default(),
            events: VecDeque::new(),
            linger: None,
        }
    }

    /// Its tasks and blocks.
    #[must_use]
    pub const fn scheduler(&self) -> &Scheduler {
        &self.scheduler
    }

    /// Changes tasks and blocks: adds some, gives some up. What gets ready goes to those who wait.
    pub fn schedule<R>(&mut self, now: Instant, change: impl FnOnce(&mut Scheduler) -> R) -> R {
        // What is given up is so from now on.
        self.handle_timeout(now);
        let result = change(&mut self.scheduler);
        self.settle(now);
        result
    }

    /// Tells those who wait for a block that there is nothing more to do, and all others as soon as they ask; what they have
    /// is taken from them. They close their connections then; who has not within a second is closed.
    pub fn shut_down(&mut self, now: Instant) {
        if self.linger.is_some() {
            return;
        }
        self.linger = Some(now + LINGER);
        while let Some(conn) = self.parked.pop() {
            self.links.send(conn, &Message::RequestShutdown);
        }
        for conn in self.links.iter().map(|(conn, _)| conn).collect::<Vec<_>>() {
            self.forget(conn, None);
        }
        self.settle(now);
    }

    /// Whether it was shut down, and everybody was told or had a second for it.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.linger.is_some() && self.links.iter().next().is_none()
    }

    /// How many workers are connected.
    #[must_use]
    pub fn workers(&self) -> usize {
        if self.linger.is_some() { 0 } else { self.links.iter().count() }
    }

    fn message(&mut self, now: Instant, conn: ConnId, message: Message) -> Result<(), PeerFault> {
        match message {
            Message::AcquireBlock { task_id, worker_id } => {
                let (peer, _) = self.links.get(conn).ok_or(PeerFault::Role)?;
                let is_full = peer.waiting() > MAX_WAITING;
                let Some(worker) = self.links.what_mut(conn) else { return Ok(()) };
                worker.id = worker_id.or(worker.id);
                if is_full || self.parked.count(conn) >= MAX_PARKED {
                    return Err(PeerFault::Greedy);
                }
                let task = self.scheduler.find_task(&task_id).map_err(|_| PeerFault::UnknownTask(task_id))?;
                if !self.answer(now, conn, task) {
                    self.parked.park(conn, task);
                }
                Ok(())
            }
            Message::ReleaseBlock { block } => match block.status {
                Status::Success => self.release(now, conn, block, None),
                Status::Failed => self.release(now, conn, block, Some(String::new())),
                _ => Err(PeerFault::Status(block.block_id)),
            },
            Message::BlockFailed { block, error } => self.release(now, conn, block, Some(error)),
            Message::Disconnect => {
                self.leave(conn, None);
                Ok(())
            }
            _ => Err(PeerFault::Role),
        }
    }

    /// Answers what comes after the end. A connection that is closed with a request on it may break under the worker while it
    /// sends, which would tell it of a failure.
    fn last_word(&mut self, conn: ConnId, message: &Message) -> Result<(), PeerFault> {
        match message {
            Message::AcquireBlock { .. } => {
                let (peer, _) = self.links.get(conn).ok_or(PeerFault::Role)?;
                if peer.waiting() > MAX_WAITING {
                    return Err(PeerFault::Greedy);
                }
                self.links.send(conn, &Message::RequestShutdown);
            }
            Message::Disconnect => self.leave(conn, None),
            _ => {}
        }
        Ok(())
    }

    fn release(
        &mut self,
        now: Instant,
        conn: ConnId,
        block: Block,
        error: Option<String>,
    ) -> Result<(), PeerFault> {
        if self.scheduler.release(conn, &block.block_id, error.map(Cause::Reported)) == Released::Foreign {
            return Err(PeerFault::Foreign(block.block_id));
        }
        // Who waits comes before what this one asks for next, also if that came with it.
        self.settle(now);
        Ok(())
    }

    /// Answers a request for a block of the task at this place, if there is an answer now.
    fn answer(&mut self, now: Instant, conn: ConnId, task: usize) -> bool {
        match self.scheduler.acquire_of(now, conn, task) {
            Acquired::Block(block, timeout) => {
                let block_id = block.block_id.clone();
                let timeout_secs = timeout.map(|timeout| timeout.as_secs_f64());
                self.links.send(conn, &Message::SendBlock { block: *block, timeout_secs });
                let worker_id = self.links.what_mut(conn).and_then(|worker| worker.id);
                self.events.push_back(ServerEvent::Sent { conn, worker_id, block_id });
                true
            }
            Acquired::Ended => {
                self.links.send(conn, &Message::RequestShutdown);
                true
            }
            Acquired::Nothing => false,
        }
    }

    /// Tells what happened, and answers those who are parked.
    fn settle(&mut self, now: Instant) {
        while let Some(event) = self.scheduler.poll_event() {
            self.events.push_back(ServerEvent::Block(event));
        }
        while let Some(task) = self.scheduler.next_stirred() {
            let mut last = None;
            while let Some((place, conn)) = self.parked.next(task, last) {
                if self.answer(now, conn, task) {
                    self.parked.remove(place);
                } else if self.scheduler.is_ready(task) {
                    // It owes an answer about what is ready, which goes to somebody else.
                    last = Some(place);
                } else {
                    break;
                }
            }
        }
    }

    /// A worker goes, or has to.
    fn leave(&mut self, conn: ConnId, fault: Option<PeerFault>) {
        // After the end everybody has left already.
        if self.links.close(conn).is_some() && self.linger.is_none() {
            self.forget(conn, fault);
        }
    }

    fn forget(&mut self, conn: ConnId, fault: Option<PeerFault>) {
        self.parked.forget(conn);
        self.scheduler.holder_gone(conn);
        self.events.push_back(ServerEvent::Left { conn, fault });
    }

    /// Whether what is kept of incomplete frames is too much.
    fn is_dribbled(&self, conn: ConnId) -> bool {
        // Most are small, and need not be added up.
        let buffered = |conn| self.links.get(conn).map_or(0, |(peer, _): (&Peer, _)| peer.buffered());
        buffered(conn) > SMALL
            && self.links.iter().map(|(conn, _)| buffered(conn)).sum::<usize>() > MAX_BUFFERED
    }
}

impl Machine for Server {
    type Event = ServerEvent;

    fn handle_accepted(&mut self, now: Instant, _listener: usize) -> Option<ConnId> {
        self.handle_timeout(now);
        if self.linger.is_some() {
            return None;
        }
        let conn = self.links.accept(Peer::new(self.version), Worker::default());
        self.events.push_back(ServerEvent::Joined { conn });
        Some(conn)
    }

    /// It connects to nobody.
    fn handle_connected(&mut self, _now: Instant, _conn: ConnId) {}

    fn handle_bytes(&mut self, now: Instant, conn: ConnId, mut bytes: &[u8]) {
        self.handle_timeout(now);
        while !bytes.is_empty() && self.links.get(conn).is_some() {
            let result = match self.links.receive(conn, &mut bytes) {
                Ok(Some(message)) if self.linger.is_some() => self.last_word(conn, &message),
                Ok(Some(message)) => self.message(now, conn, message),
                Ok(None) if self.is_dribbled(conn) => Err(PeerFault::Dribble),
                Ok(None) => Ok(()),
                Err(error) => Err(PeerFault::Frame(error)),
            };
            if let Err(fault) = result {
                self.leave(conn, Some(fault));
            }
        }
        self.settle(now);
    }

    fn handle_eof(&mut self, now: Instant, conn: ConnId) {
        self.handle_timeout(now);
        if self.links.remove(conn).is_some() && self.linger.is_none() {
            self.forget(conn, None);
        }
        self.settle(now);
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.scheduler.handle_timeout(now);
        while let Some((conn, block_id)) = self.scheduler.poll_silent() {
            self.leave(conn, Some(PeerFault::Silent(block_id)));
        }
        if self.linger.is_some_and(|until| until <= now) {
            for conn in self.links.iter().map(|(conn, _)| conn).collect::<Vec<_>>() {
                self.leave(conn, None);
            }
        }
        self.settle(now);
    }

    fn poll_action(&mut self) -> Option<Action> {
        self.links.poll_action()
    }

    fn poll_transmit(&self, conn: ConnId) -> Option<&[u8]> {
        self.links.poll_transmit(conn)
    }

    fn transmitted(&mut self, conn: ConnId, n: usize) {
        self.links.transmitted(conn, n);
    }

    fn poll_event(&mut self) -> Option<ServerEvent> {
        self.events.pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let linger = self.linger.filter(|_| !self.is_finished());
        self.scheduler.poll_timeout().into_iter().chain(linger).min()
    }
}

/// How long the last words may take.
const LINGER: Duration = Duration::from_secs(1);
/// Requests of one worker that may wait for a block.
const MAX_PARKED: usize = 256;
/// Bytes that may wait for a worker that does not read, in bytes.
const MAX_WAITING: usize = 1 << 20;
/// Bytes of incomplete frames of all workers together: two of the longest.
const MAX_BUFFERED: usize = 128 << 20;
/// Up to here nobody is looked at.
const SMALL: usize = 64 << 10;
