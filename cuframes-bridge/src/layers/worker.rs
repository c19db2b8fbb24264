//! [`Worker`]: computes some layers for a coordinator, or has its owner compute them.
//!
//! # Invariants
//!
//! - Answers leave a connection in the order of its requests.
//! - The owner never has two tasks of one session, so each finds the session as the one before left it.
//! - A request that is wrong, or fails, costs a result with status 1. What can't be read, or has no place, costs the connection.
//! - Without a coordinator there are no sessions.
//!
//! A coordinator that is gone is tried again for ever, as the [`Schedule`](super::Schedule) has it. Drivers that try again by
//! themselves have pauses of their own between attempts; those that don't say that [an attempt failed](Worker::attempt_failed).

mod answer;
mod check;
mod config;
mod next;
mod serve;
mod task;
mod upstream;

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::mem;
use core::time::Duration;

use cuframes_core::Instant;
use cuframes_core::streams::{Action, ConnId, Links, Machine};

use super::line::{self, Due, How, Line};
use super::peer::{Peer, Piece};
use super::schedule::{Schedule, Trouble};
use super::session::Sessions;
use super::{Fault, LINGER};
use crate::wire::{Message, SnapshotId, WireError};
use next::Next;
use upstream::Upstream;

pub use check::Refusal;
pub use config::WorkerConfig;
pub use task::{FinishError, Outcome, Snapshot, Task, TaskId, Wants, WorkerEvent};

/// Computes some layers for a coordinator. See [`Machine`] for how it is driven; its listener, of whatever number, is the data
/// port that [`WorkerConfig::listen_port`] tells to others.
#[derive(Debug)]
pub struct Worker {
    config: WorkerConfig,
    links: Links<Peer, Line<Role>>,
    /// The connection to the coordinator, while it is there or is tried.
    control: Option<ConnId>,
    is_joined: bool,
    schedule: Schedule,
    sessions: Sessions,
    /// What the owner has; also what nobody waits for any more.
    out: BTreeMap<TaskId, Out>,
    next_task: u64,
    events: VecDeque<WorkerEvent>,
    is_over: bool,
    /// The latest time that it was told.
    now: Instant,
    wake: Option<Instant>,
}

#[derive(Debug)]
enum Role {
    Upstream(Box<Upstream>),
    Next(Box<Next>),
    Closing,
}

/// A task that the owner has.
#[derive(Debug)]
struct Out {
    conn: ConnId,
    session: u64,
    what: What,
}

#[derive(Clone, Copy, Debug)]
enum What {
    /// Its width in bytes, and what the session's hash will be.
    Work {
        wants: Wants,
        width: usize,
        hash: u64,
    },
    Save(SnapshotId),
    Load {
        hash: u64,
    },
}

impl Worker {
    /// A worker that begins to connect at `now`.
    #[must_use]
    pub fn new(now: Instant, config: WorkerConfig) -> Self {
        let config = config.into_range();
        let mut worker = Self {
            sessions: Sessions::new(config.max_sessions),
            config,
            links: Links::default(),
            control: None,
            is_joined: false,
            schedule: Schedule::default(),
            out: BTreeMap::new(),
            next_task: 0,
            events: VecDeque::new(),
            is_over: false,
            now,
            wake: None,
        };
        worker.connect(Duration::ZERO);
        worker
    }

    /// Closes everything, and connects no more. What is to be sent has 5 s for it.
    pub fn shut_down(&mut self, now: Instant) {
        self.tick(now);
        self.is_over = true;
        let conns: Vec<ConnId> = self.links.iter().map(|(conn, _)| conn).collect();
        for conn in conns {
            let how = if self.control == Some(conn) && !self.is_joined { How::Now } else { How::WhenSent };
            self.end(conn, how, Fault::ShutDown);
        }
        self.settle();
    }

    /// Whether it was shut down, and everything is closed.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.is_over && self.links.closing() == 0
    }

    /// Whether it has said who it is to the coordinator, which is still there.
    #[must_use]
    pub const fn is_joined(&self) -> bool {
        self.is_joined
    }

    /// How many sessions there are.
    #[must_use]
    pub fn sessions(&self) -> usize {
        self.sessions.len()
    }

    /// The attempt to connect to the coordinator failed, for a driver that makes one attempt for each that it is asked for. The
    /// next one is asked for with the pause that the [`Schedule`] has.
    pub fn attempt_failed(&mut self, now: Instant, conn: ConnId, trouble: Trouble) {
        self.tick(now);
        if self.control == Some(conn) && !self.is_joined {
            self.links.remove(conn);
            let delay = self.schedule.failed(trouble);
            self.connect(delay);
        }
        self.settle();
    }

    fn connect(&mut self, delay: Duration) {
        let line = Line::new(Role::Upstream(Box::default()));
        let peer = Peer::new(self.config.limits);
        self.control = Some(self.links.connect(self.config.address.clone(), delay, peer, line));
    }

    fn upstream(&mut self, conn: ConnId) -> Option<&mut Upstream> {
        upstream_of(&mut self.links, conn)
    }

    fn max_text(&self) -> usize {
        usize::try_from(self.config.limits.text).unwrap_or(usize::MAX)
    }

    fn send(&mut self, conn: ConnId, message: Message) {
        self.links.send(conn, &Piece::Message(message));
    }

    /// A connection ends.
    fn end(&mut self, conn: ConnId, how: How, fault: Fault) {
        let Some(line) = self.links.what_mut(conn) else { return };
        let role = mem::replace(&mut line.role, Role::Closing);
        match how {
            How::Now => _ = self.links.close(conn),
            How::Gone => _ = self.links.remove(conn),
            How::WhenSent => {
                self.links.close_when_sent(conn, self.now + LINGER);
            }
        }
        match role {
            Role::Closing => {}
            Role::Next(next) => self.next_gone(&next, fault),
            Role::Upstream(upstream) => self.upstream_gone(conn, &upstream, fault),
        }
    }

    fn upstream_gone(&mut self, conn: ConnId, upstream: &Upstream, fault: Fault) {
        for slot in upstream.slots.iter().filter(|slot| slot.is_out()) {
            self.events.push_back(WorkerEvent::Abandoned { task: slot.task });
        }
        let next = self.links.iter().filter_map(|(next, line)| match &line.role {
            Role::Next(found) if found.upstream == conn => Some(next),
            _ => None,
        });
        for next in next.collect::<Vec<_>>() {
            self.links.close(next);
        }
        if self.control != Some(conn) {
            self.events.push_back(WorkerEvent::Closed { conn, fault });
            return;
        }
        self.control = None;
        self.sessions.clear();
        let delay = if mem::take(&mut self.is_joined) {
            self.events.push_back(WorkerEvent::Lost { fault });
            self.schedule.lost()
        } else {
            self.schedule.failed(Trouble::Other)
        };
        if !self.is_over {
            self.connect(delay);
        }
    }

    fn is_dribbled(&self, conn: ConnId) -> bool {
        // Most have little, and are not added up.
        let buffered = |conn| self.links.get(conn).map_or(0, |(peer, _)| peer.buffered());
        let all = || self.links.iter().map(|(conn, _)| buffered(conn)).sum::<usize>();
        buffered(conn) > SMALL && all() > self.config.buffered_bytes
    }

    fn tick(&mut self, now: Instant) {
        self.now = self.now.max(now);
    }

    /// Goes on wherever something can, and looks at the deadlines.
    fn settle(&mut self) {
        let conns: Vec<ConnId> = self.links.iter().map(|(conn, _)| conn).collect();
        // What one has done may be what another one waits for.
        while conns.iter().fold(false, |moved, conn| self.advance(*conn) | self.pump(*conn, &[]) | moved) {}
        self.look();
    }

    /// Ends what is late, and notes when to look again.
    fn look(&mut self) {
        let (late, next) = line::late(&mut self.links, self.now, self.config.send_timeout);
        // What ends leads to more.
        let again = (!late.is_empty()).then_some(self.now);
        for (conn, fault) in late {
            self.end(conn, How::Now, fault);
        }
        self.links.close_late(self.now);
        self.wake = [next, self.links.poll_timeout(), again].into_iter().flatten().min();
    }
}

impl Machine for Worker {
    type Event = WorkerEvent;

    /// Somebody connected to the data port.
    fn handle_accepted(&mut self, now: Instant, _listener: usize) -> Option<ConnId> {
        self.tick(now);
        let is_data = |(conn, line): &(ConnId, &Line<Role>)| {
            matches!(line.role, Role::Upstream(_)) && self.control != Some(*conn)
        };
        let all = self.links.iter().filter(is_data).count() + self.links.closing();
        if self.is_over {
            return None;
        }
        if all >= self.config.max_connections {
            // Whoever only connects keeps nobody out who has something to say.
            let idle = |entry: &(ConnId, &Line<Role>)| {
                is_data(entry) && matches!(&entry.1.role, Role::Upstream(upstream) if upstream.is_idle())
            };
            let (oldest, _) = self.links.iter().find(idle)?;
            self.end(oldest, How::Now, Fault::Surplus);
        }
        let line = Line::new(Role::Upstream(Box::default()));
        let conn = self.links.accept(Peer::new(self.config.limits), line);
        self.events.push_back(WorkerEvent::Opened { conn });
        Some(conn)
    }

    fn handle_connected(&mut self, now: Instant, conn: ConnId) {
        self.tick(now);
        if self.control == Some(conn) {
            self.is_joined = true;
            self.send(conn, Message::Hello(self.config.hello()));
            self.events.push_back(WorkerEvent::Joined);
        }
        self.next_connected(conn);
        self.links.connected(conn);
        self.settle();
    }

    fn handle_bytes(&mut self, now: Instant, conn: ConnId, bytes: &[u8]) {
        self.tick(now);
        match self.links.get(conn).map(|(_, line)| &line.role) {
            Some(Role::Upstream(_)) => _ = self.pump(conn, bytes),
            Some(Role::Next(_)) => self.hear_next(conn, bytes),
            _ => {}
        }
        self.settle();
    }

    fn handle_eof(&mut self, now: Instant, conn: ConnId) {
        self.tick(now);
        let fault = match self.links.get(conn) {
            Some((_, Line { role: Role::Next(next), .. })) if !next.is_connected => Fault::Unreachable,
            Some((peer, _)) if !peer.may_end() => Fault::Frame(WireError::Cut),
            _ => Fault::Ended,
        };
        self.end(conn, How::Gone, fault);
        self.settle();
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.tick(now);
        self.settle();
    }

    fn poll_action(&mut self) -> Option<Action> {
        self.links.poll_action()
    }

    fn poll_transmit(&self, conn: ConnId) -> Option<&[u8]> {
        self.links.poll_transmit(conn)
    }

    fn transmitted(&mut self, conn: ConnId, n: usize) {
        let is_full = |links: &Links<Peer, Line<Role>>| {
            links.get(conn).is_some_and(|(peer, _)| peer.waiting() > MAX_WAITING)
        };
        let was_full = is_full(&self.links);
        self.links.transmitted(conn, n);
        if let Some(line) = self.links.what_mut(conn) {
            line.progressed();
        }
        self.next_transmitted(conn);
        let is_over = self.pour(conn) && !self.is_pouring(conn);
        if is_over || was_full && !is_full(&self.links) {
            // There is no clock here: what is next begins at a time that is known.
            self.wake = Some(self.now);
        }
    }

    fn poll_event(&mut self) -> Option<WorkerEvent> {
        self.events.pop_front()
    }

    /// Not while as many requests as may be read ahead wait for the owner, or the peer does not read its answers.
    fn is_hungry(&self, conn: ConnId) -> bool {
        match self.links.get(conn) {
            Some((peer, Line { role: Role::Upstream(upstream), .. })) => {
                upstream.backlog.len() == 0
                    && upstream.has_room(self.config.prefetch)
                    && peer.waiting() <= MAX_WAITING
            }
            _ => true,
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.wake
    }
}

impl Due for Role {
    fn due(&self) -> Option<(Instant, Fault)> {
        match self {
            Self::Next(next) => next.deadline.map(|at| (at, next.late())),
            _ => None,
        }
    }

    fn is_connected(&self) -> bool {
        match self {
            Self::Next(next) => next.is_connected,
            _ => true,
        }
    }
}

impl Line<Role> {
    /// Bytes that are kept of snapshots to load.
    fn loaded(&self) -> usize {
        if let Role::Upstream(upstream) = &self.role { upstream.loaded() } else { 0 }
    }
}

fn upstream_of(links: &mut Links<Peer, Line<Role>>, conn: ConnId) -> Option<&mut Upstream> {
    match links.what_mut(conn).map(|line| &mut line.role) {
        Some(Role::Upstream(upstream)) => Some(upstream),
        _ => None,
    }
}

/// Bytes of answers that may wait for a peer before nothing more is done for it.
const MAX_WAITING: usize = 1 << 20;
/// Up to here nobody is asked for what is kept of incomplete frames.
const SMALL: usize = 64 << 10;
