//! [`World`]: a server, workers, and peers that are written by hand, joined by pipes of any width, on virtual time.

use std::collections::VecDeque;
use std::mem;
use std::time::Duration;

use cuframes_core::Instant;
use cuframes_core::streams::{Action, ConnId, Machine};
use cuframes_dispatch::wire::{Block, BlockId, Roi, Version};
use cuframes_dispatch::{
    BlockEvent, Cause, Counts, Outcome, PeerFault, Scheduler, Server, ServerEvent, Stop, TaskConfig, Worker,
    WorkerConfig, WorkerEvent,
};

use crate::bytes::acquire;

/// The time that a worker has for a block by default.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(600);

pub(crate) struct World {
    pub(crate) now: Instant,
    pub(crate) server: Server,
    pub(crate) events: Vec<ServerEvent>,
    pub(crate) workers: Vec<Joiner>,
    /// The most bytes that a direction of a connection holds, and that one read takes.
    pub(crate) width: usize,
    /// Whether the server is there. Attempts to connect wait meanwhile.
    pub(crate) is_listening: bool,
    wires: Vec<Wire>,
}

/// A peer that is written by hand.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Caller(usize);

pub(crate) struct Joiner {
    pub(crate) machine: Worker,
    pub(crate) events: Vec<WorkerEvent>,
    attempt: Option<ConnId>,
    is_gone: bool,
}

struct Wire {
    /// None: the peer is written by hand.
    worker: Option<(usize, ConnId)>,
    /// The server's end, while it is open.
    server: Option<ConnId>,
    /// The same when it is not open any more.
    conn: ConnId,
    /// Whether the peer's end is open.
    is_open: bool,
    /// Whether a peer that is written by hand reads.
    is_read: bool,
    up: VecDeque<u8>,
    down: VecDeque<u8>,
    /// What a peer that is written by hand has got and not yet looked at.
    got: Vec<u8>,
}

/// Block `number` of a task, as [`bytes::block`](crate::bytes::block) has it.
pub(crate) fn block(task: &str, number: u8) -> Block {
    let roi = Roi::new(&[10 * i64::from(number)], &[10]);
    Block { read_roi: roi.clone(), write_roi: roi, block_id: id(task, number), ..Block::default() }
}

pub(crate) fn id(task: &str, number: u8) -> BlockId {
    BlockId::new(task, number.into())
}

pub(crate) fn ended(task: &str, number: u8, outcome: Outcome, cause: Option<Cause>) -> ServerEvent {
    ServerEvent::Block(BlockEvent::Ended { block_id: id(task, number), outcome, cause })
}

pub(crate) fn retried(task: &str, number: u8, cause: Cause) -> ServerEvent {
    ServerEvent::Block(BlockEvent::Retried { block_id: id(task, number), cause })
}

pub(crate) fn success(task: &str, number: u8) -> ServerEvent {
    ended(task, number, Outcome::Success, None)
}

pub(crate) fn orphaned(task: &str, number: u8) -> ServerEvent {
    ended(task, number, Outcome::Orphaned, None)
}

impl World {
    /// A server without tasks.
    pub(crate) fn empty(version: Version) -> Self {
        Self {
            now: Instant::from_nanos(1_000),
            server: Server::new(version),
            events: Vec::new(),
            workers: Vec::new(),
            width: usize::MAX,
            is_listening: true,
            wires: Vec::new(),
        }
    }

    /// A server with task `t`, which has blocks of these numbers and is closed.
    pub(crate) fn new(blocks: impl IntoIterator<Item = u8>) -> Self {
        let mut world = Self::open(blocks);
        world.close("t");
        world
    }

    /// The same with a task to which more may be added.
    pub(crate) fn open(blocks: impl IntoIterator<Item = u8>) -> Self {
        let mut world = Self::empty(Version::W2);
        world.schedule(|scheduler| {
            scheduler.add_task(TaskConfig::new("t")).unwrap();
            blocks.into_iter().for_each(|number| scheduler.add_block(block("t", number), &[]).unwrap());
        });
        world
    }

    pub(crate) fn schedule<R>(&mut self, change: impl FnOnce(&mut Scheduler) -> R) -> R {
        let result = self.server.schedule(self.now, change);
        self.run();
        result
    }

    pub(crate) fn add(&mut self, task: &str, number: u8, waits_for: &[u8]) {
        let others: Vec<BlockId> = waits_for.iter().map(|other| id(task, *other)).collect();
        self.schedule(|scheduler| scheduler.add_block(block(task, number), &others)).unwrap();
    }

    pub(crate) fn close(&mut self, task: &str) {
        self.schedule(|scheduler| scheduler.close_task(task)).unwrap();
    }

    pub(crate) fn counts(&self, task: &str) -> Counts {
        self.server.scheduler().counts(task).unwrap()
    }

    /// How many blocks of task `t` are waiting, ready, processing, succeeded, failed, orphaned, and how often one was retried.
    pub(crate) fn tally(&self) -> [u64; 7] {
        let counts = self.counts("t");
        let Counts { total, waiting, ready, processing, succeeded, failed, orphaned, retried, .. } = counts;
        assert_eq!(total, waiting + ready + processing + succeeded + failed + orphaned);
        assert_eq!(counts.unfinished(), waiting + ready + processing);
        [waiting, ready, processing, succeeded, failed, orphaned, retried]
    }

    /// Connects by hand.
    pub(crate) fn call(&mut self) -> Caller {
        let server = self.server.handle_accepted(self.now, 0).unwrap();
        self.connect(server, None);
        self.run();
        Caller(self.wires.len() - 1)
    }

    /// Connects by hand, asks for blocks of this task so often, and looks at the answers.
    pub(crate) fn call_for(&mut self, task: &str, times: usize) -> (Caller, Vec<u8>) {
        let caller = self.call();
        let answers = self.say(caller, &acquire(task).repeat(times));
        (caller, answers)
    }

    /// Sends bytes by hand, and looks at what comes.
    pub(crate) fn say(&mut self, caller: Caller, bytes: &[u8]) -> Vec<u8> {
        self.wires[caller.0].up.extend(bytes);
        self.run();
        self.heard(caller)
    }

    /// What has come since the last look.
    pub(crate) fn heard(&mut self, caller: Caller) -> Vec<u8> {
        mem::take(&mut self.wires[caller.0].got)
    }

    /// It does not read any more.
    pub(crate) fn plug(&mut self, caller: Caller) {
        self.wires[caller.0].is_read = false;
    }

    /// It does again.
    pub(crate) fn unplug(&mut self, caller: Caller) {
        self.wires[caller.0].is_read = true;
        self.run();
    }

    /// Ends a connection that was made by hand.
    pub(crate) fn hang_up(&mut self, caller: Caller) {
        self.wires[caller.0].is_open = false;
        self.run();
    }

    /// Whether the server has closed it.
    pub(crate) fn is_closed(&self, caller: Caller) -> bool {
        self.wires[caller.0].server.is_none()
    }

    pub(crate) fn conn(&self, caller: Caller) -> ConnId {
        self.wires[caller.0].conn
    }

    /// Whether the server has closed it, and why; `None` if it has not.
    pub(crate) fn fault(&self, caller: Caller) -> Option<PeerFault> {
        let its = self.conn(caller);
        let mut left = self.events.iter().filter_map(|event| match event {
            ServerEvent::Left { conn, fault } if *conn == its => Some(fault),
            _ => None,
        });
        let fault = left.next();
        assert!(left.next().is_none(), "it left twice");
        assert_eq!(self.is_closed(caller), fault.is_some());
        fault?.clone()
    }

    /// What happened to blocks since the last look.
    pub(crate) fn news(&mut self) -> Vec<ServerEvent> {
        let events = mem::take(&mut self.events);
        events.into_iter().filter(|event| matches!(event, ServerEvent::Block(_))).collect()
    }

    /// A worker for task `t` that has so many blocks at a time; its number.
    pub(crate) fn join(&mut self, depth: usize) -> usize {
        let mut config = WorkerConfig::new("here", "t");
        config.depth = depth;
        self.join_with(config)
    }

    pub(crate) fn join_with(&mut self, config: WorkerConfig) -> usize {
        let machine = Worker::new(self.now, config);
        self.workers.push(Joiner { machine, events: Vec::new(), attempt: None, is_gone: false });
        self.run();
        self.workers.len() - 1
    }

    /// The numbers of the blocks that this worker was given, since the last look.
    pub(crate) fn given(&mut self, worker: usize) -> Vec<u64> {
        let number = |event: WorkerEvent| match event {
            WorkerEvent::Block { block, .. } => block.block_id.spatial_id,
            event => panic!("{event:?}"),
        };
        mem::take(&mut self.workers[worker].events).into_iter().map(number).collect()
    }

    pub(crate) fn done(&mut self, worker: usize, number: u8) {
        assert!(self.workers[worker].machine.done(self.now, &id("t", number), None));
        self.run();
    }

    /// Why it stopped; `None` if it has not.
    pub(crate) fn stop(&self, worker: usize) -> Option<&Stop> {
        match self.workers[worker].events.last() {
            Some(WorkerEvent::Stopped(stop)) => Some(stop),
            _ => None,
        }
    }

    /// The process of a worker is killed.
    pub(crate) fn kill(&mut self, worker: usize) {
        self.workers[worker].is_gone = true;
        for wire in &mut self.wires {
            wire.is_open &= wire.worker.is_none_or(|(who, _)| who != worker);
        }
        self.run();
    }

    /// Time passes.
    pub(crate) fn pass(&mut self, time: Duration) {
        self.now = self.now + time;
        self.server.handle_timeout(self.now);
        for joiner in &mut self.workers {
            joiner.machine.handle_timeout(self.now);
        }
        self.run();
    }

    /// When the server wants to be woken.
    pub(crate) fn server_timeout(&self) -> Option<Instant> {
        self.server.poll_timeout()
    }

    pub(crate) fn shut_down(&mut self) {
        self.server.shut_down(self.now);
        self.run();
    }

    /// Everything goes on until nothing moves any more.
    pub(crate) fn run(&mut self) {
        while self.act() | self.carry() {}
    }

    fn act(&mut self) -> bool {
        let mut moved = false;
        while let Some(action) = self.server.poll_action() {
            moved = true;
            if let Action::Close(conn) = action
                && let Some(wire) = self.wires.iter_mut().find(|wire| wire.server == Some(conn))
            {
                wire.server = None;
            }
        }
        self.events.extend(std::iter::from_fn(|| self.server.poll_event()));
        for number in 0..self.workers.len() {
            moved |= self.act_for(number);
        }
        moved
    }

    fn act_for(&mut self, number: usize) -> bool {
        let joiner = &mut self.workers[number];
        if joiner.is_gone {
            return false;
        }
        let mut moved = false;
        while let Some(action) = joiner.machine.poll_action() {
            moved = true;
            match action {
                Action::Connect { conn, address, delay } => {
                    assert_eq!((&address[..], delay), ("here", Duration::ZERO));
                    joiner.attempt = Some(conn);
                }
                Action::Close(conn) => {
                    joiner.attempt = None;
                    let mut wires = self.wires.iter_mut();
                    if let Some(wire) = wires.find(|wire| wire.worker == Some((number, conn))) {
                        wire.is_open = false;
                    }
                }
                _ => {}
            }
        }
        joiner.events.extend(std::iter::from_fn(|| joiner.machine.poll_event()));
        if let Some(conn) = joiner.attempt.take_if(|_| self.is_listening) {
            moved = true;
            joiner.machine.handle_connected(self.now, conn);
            match self.server.handle_accepted(self.now, 0) {
                Some(server) => self.connect(server, Some((number, conn))),
                None => self.workers[number].machine.handle_eof(self.now, conn),
            }
        }
        moved
    }

    /// One write and one read on each connection, in both directions.
    fn carry(&mut self) -> bool {
        let Self { now, server, workers, wires, width, .. } = self;
        let mut moved = false;
        for wire in wires {
            if let Some(conn) = wire.server {
                let room = if wire.is_read { *width } else { 0 };
                moved |= fill(server, conn, &mut wire.down, room);
                let read = take(&mut wire.up, *width);
                if !read.is_empty() {
                    moved = true;
                    server.handle_bytes(*now, conn, &read);
                } else if !wire.is_open {
                    moved = true;
                    server.handle_eof(*now, conn);
                    wire.server = None;
                }
            }
            if !wire.is_read {
                continue;
            }
            let read = take(&mut wire.down, *width);
            moved |= !read.is_empty();
            match wire.worker {
                Some((number, conn)) if wire.is_open => {
                    let machine = &mut workers[number].machine;
                    moved |= fill(machine, conn, &mut wire.up, *width);
                    if !read.is_empty() {
                        machine.handle_bytes(*now, conn, &read);
                    } else if wire.server.is_none() {
                        moved = true;
                        machine.handle_eof(*now, conn);
                        wire.is_open = false;
                    }
                }
                _ => wire.got.extend(read),
            }
        }
        moved
    }

    fn connect(&mut self, server: ConnId, worker: Option<(usize, ConnId)>) {
        self.wires.push(Wire {
            worker,
            server: Some(server),
            conn: server,
            is_open: true,
            is_read: true,
            up: VecDeque::new(),
            down: VecDeque::new(),
            got: Vec::new(),
        });
    }
}

/// Sends as much as fits into the pipe.
fn fill(machine: &mut impl Machine, conn: ConnId, pipe: &mut VecDeque<u8>, width: usize) -> bool {
    let mut moved = false;
    while let Some(bytes) = machine.poll_transmit(conn) {
        let n = bytes.len().min(width.saturating_sub(pipe.len()));
        if n == 0 {
            break;
        }
        pipe.extend(&bytes[..n]);
        machine.transmitted(conn, n);
        moved = true;
    }
    moved
}

fn take(pipe: &mut VecDeque<u8>, width: usize) -> Vec<u8> {
    let n = pipe.len().min(width);
    pipe.drain(..n).collect()
}
