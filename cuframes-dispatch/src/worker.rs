//! [`Worker`]: takes blocks from a server.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::String;
use core::time::Duration;

use cuframes_core::Instant;
use cuframes_core::streams::{Action, ConnId, Links, Machine};
use cuframes_core::text::cut;

use crate::peer::Peer;
use crate::wire::{Block, BlockId, FrameError, Message, Stats, Status, Version, timeout};

/// What a worker needs to know.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct WorkerConfig {
    /// Address of the server; only the driver reads it.
    pub address: String,
    /// Which task's blocks it takes.
    pub task_id: String,
    /// Its number, for the server's reports.
    pub worker_id: Option<u64>,
    /// How many blocks it has at a time, at least 1; 1 by default. With more the next one is there when one is done.
    pub depth: usize,
    /// What it speaks.
    pub version: Version,
    /// How long to try to connect; 30 s by default.
    pub connect_timeout: Duration,
}

impl WorkerConfig {
    /// A worker for this task of the server at `address`, with the defaults.
    #[must_use]
    pub fn new(address: impl Into<String>, task_id: impl Into<String>) -> Self {
        Self {
            address: address.into(),
            task_id: task_id.into(),
            worker_id: None,
            depth: 1,
            version: Version::default(),
            connect_timeout: Duration::from_secs(30),
        }
    }
}

/// Why a worker has nothing more to do.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Stop {
    /// The server says that all is done.
    Shutdown,
    /// The server closed the connection. Blocks that were not released are lost, and go to others.
    Closed {
        /// How many.
        lost: usize,
    },
    /// The worker left by itself.
    Left,
    /// Nobody answered at the address.
    Unreachable,
    /// What the server sent is no message.
    Frame(FrameError),
    /// The server sent what only a worker sends, or a block twice.
    Role,
}

/// What a worker tells.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub enum WorkerEvent {
    /// A block to work on: [`Worker::done`] or [`Worker::failed`] when that is over.
    Block {
        /// The block.
        block: Block,
        /// By when, after which somebody else gets it.
        until: Option<Instant>,
    },
    /// There is nothing more to do. Nothing comes after it.
    Stopped(Stop),
}

/// Takes blocks from a server. See [`Machine`] for how it is driven; it listens nowhere.
#[derive(Debug)]
pub struct Worker {
    config: WorkerConfig,
    links: Links<Peer, ()>,
    /// While it is there, or being connected.
    conn: Option<ConnId>,
    is_connected: bool,
    deadline: Instant,
    /// Requests that are not answered.
    asked: usize,
    /// The server has nothing more.
    is_over: bool,
    /// Until when other requests are waited for that were not answered, when it is over and it has no block.
    patience: Option<Instant>,
    /// Blocks that are being worked on.
    has: BTreeMap<BlockId, Block>,
    events: VecDeque<WorkerEvent>,
    stopped: bool,
}

impl Worker {
    /// A worker that begins at `now`.
    #[must_use]
    pub fn new(now: Instant, mut config: WorkerConfig) -> Self {
        config.depth = config.depth.max(1);
        let mut links = Links::default();
        let conn = links.connect(config.address.clone(), Duration::ZERO, Peer::new(config.version), ());
        let deadline = now + config.connect_timeout;
        Self {
            config,
            links,
            conn: Some(conn),
            is_connected: false,
            deadline,
            asked: 0,
            is_over: false,
            patience: None,
            has: BTreeMap::new(),
            events: VecDeque::new(),
            stopped: false,
        }
    }

    /// A block is done. Answers whether it was one of those that it has.
    pub fn done(&mut self, now: Instant, block_id: &BlockId, stats: Option<Stats>) -> bool {
        let Some(mut block) = self.has.remove(block_id) else { return false };
        block.status = Status::Success;
        block.stats = stats;
        self.say(&Message::ReleaseBlock { block });
        self.ask(now);
        true
    }

    /// A block could not be done, and why. Answers whether it was one of those that it has.
    pub fn failed(&mut self, now: Instant, block_id: &BlockId, error: &str) -> bool {
        let Some(mut block) = self.has.remove(block_id) else { return false };
        block.status = Status::Failed;
        self.say(&Message::BlockFailed { block, error: cut(error, MAX_ERROR).into() });
        self.ask(now);
        true
    }

    /// Takes no more blocks, and leaves; those that it has go to others.
    pub fn leave(&mut self, now: Instant) {
        self.stop(now, Stop::Left);
    }

    /// Whether it has nothing more to do. The blocks that it had then are wanted by nobody.
    #[must_use]
    pub const fn has_stopped(&self) -> bool {
        self.stopped
    }

    /// Whether it has stopped, and the server was sent everything.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.stopped && self.links.closing() == 0
    }

    /// How many blocks it has.
    #[must_use]
    pub fn len(&self) -> usize {
        self.has.len()
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.has.is_empty()
    }

    fn say(&mut self, message: &Message) {
        if let Some(conn) = self.conn {
            self.links.send(conn, message);
        }
    }

    /// Asks for as many blocks as there is room for, or leaves when all is done.
    fn ask(&mut self, now: Instant) {
        if self.is_over {
            if self.has.is_empty() {
                // A request that was not answered may be answered with a block, which would be lost; or never.
                self.patience = Some(now + LINGER);
                if self.asked == 0 {
                    self.stop(now, Stop::Shutdown);
                }
            }
            return;
        }
        while self.asked + self.has.len() < self.config.depth {
            self.asked += 1;
            let WorkerConfig { task_id, worker_id, .. } = &self.config;
            let message = Message::AcquireBlock { task_id: task_id.clone(), worker_id: *worker_id };
            self.say(&message);
        }
    }

    fn message(&mut self, now: Instant, message: Message) {
        match message {
            Message::SendBlock { mut block, timeout_secs }
                if self.asked > 0 && !self.has.contains_key(&block.block_id) =>
            {
                self.asked -= 1;
                self.patience = None;
                block.status = Status::Processing;
                self.has.insert(block.block_id.clone(), block.clone());
                let until = timeout(timeout_secs).map(|timeout| now + timeout);
                self.events.push_back(WorkerEvent::Block { block, until });
            }
            Message::RequestShutdown => {
                self.asked = self.asked.saturating_sub(1);
                self.is_over = true;
                self.ask(now);
            }
            _ => self.stop(now, Stop::Role),
        }
    }

    fn stop(&mut self, now: Instant, stop: Stop) {
        if self.stopped {
            return;
        }
        self.stopped = true;
        self.has.clear();
        if let Some(conn) = self.conn.take() {
            if self.is_connected {
                self.links.send(conn, &Message::Disconnect);
                self.links.close_when_sent(conn, now + LINGER);
            } else {
                self.links.close(conn);
            }
        }
        self.events.push_back(WorkerEvent::Stopped(stop));
    }
}

impl Machine for Worker {
    type Event = WorkerEvent;

    /// It listens nowhere.
    fn handle_accepted(&mut self, _now: Instant, _listener: usize) -> Option<ConnId> {
        None
    }

    fn handle_connected(&mut self, now: Instant, conn: ConnId) {
        self.handle_timeout(now);
        if self.conn == Some(conn) {
            self.is_connected = true;
            self.ask(now);
        }
    }

    fn handle_bytes(&mut self, now: Instant, conn: ConnId, mut bytes: &[u8]) {
        self.handle_timeout(now);
        while !bytes.is_empty() && self.conn == Some(conn) {
            match self.links.receive(conn, &mut bytes) {
                Ok(Some(message)) => self.message(now, message),
                Ok(None) => {}
                Err(error) => self.stop(now, Stop::Frame(error)),
            }
        }
    }

    fn handle_eof(&mut self, now: Instant, conn: ConnId) {
        let is_cut = self.links.get(conn).is_some_and(|(peer, ())| peer.buffered() > 0);
        self.links.remove(conn);
        if self.conn == Some(conn) {
            self.conn = None;
            let stop = match self.has.len() {
                _ if !self.is_connected => Stop::Unreachable,
                _ if is_cut => Stop::Frame(FrameError::Cut),
                // The other requests are not answered any more.
                0 if self.is_over => Stop::Shutdown,
                lost => Stop::Closed { lost },
            };
            self.stop(now, stop);
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        if !self.is_connected && now >= self.deadline {
            self.stop(now, Stop::Unreachable);
        }
        if self.patience.is_some_and(|until| until <= now) {
            self.stop(now, Stop::Shutdown);
        }
        self.links.close_late(now);
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

    fn poll_event(&mut self) -> Option<WorkerEvent> {
        self.events.pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        match (self.stopped, self.is_connected) {
            (true, _) => self.links.poll_timeout(),
            (false, true) => self.patience,
            (false, false) => Some(self.deadline),
        }
    }
}

/// Bytes of a reason.
const MAX_ERROR: usize = 64 << 10;
/// How long the last words may take, of this side or the other.
const LINGER: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    #[test]
    fn a_worker_that_has_asked_for_more_waits_for_all_answers_before_it_leaves() {
        let now = Instant::ZERO;
        for end in ["answered", "closed", "silent"] {
            let mut config = WorkerConfig::new("anywhere", "t");
            config.depth = 4;
            let mut worker = Worker::new(now, config);
            let Some(Action::Connect { conn, .. }) = worker.poll_action() else { panic!("it connects") };
            worker.handle_connected(now, conn);
            let hear = |worker: &mut Worker, message: Message| {
                let mut bytes = Vec::new();
                message.encode(Version::W2, &mut bytes);
                worker.handle_bytes(now, conn, &bytes);
            };
            let sent = |number| {
                let block = Block { block_id: BlockId::new("t", number), ..Block::default() };
                Message::SendBlock { block, timeout_secs: None }
            };
            hear(&mut worker, sent(0));
            hear(&mut worker, Message::RequestShutdown);
            // It failed with somebody else between the answers.
            hear(&mut worker, sent(1));
            for number in [0, 1] {
                assert!(matches!(worker.poll_event(), Some(WorkerEvent::Block { .. })));
                assert!(worker.done(now, &BlockId::new("t", number), None));
            }
            assert_eq!(worker.poll_event(), None, "one is not answered");
            let until = worker.poll_timeout().unwrap();
            match end {
                "answered" => hear(&mut worker, Message::RequestShutdown),
                "closed" => worker.handle_eof(now, conn),
                _ => worker.handle_timeout(until),
            }
            assert_eq!(worker.poll_event(), Some(WorkerEvent::Stopped(Stop::Shutdown)));
        }
    }
}
