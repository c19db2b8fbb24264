//! [`Coordinator`]: knows the workers, and sends requests through all layers.
//!
//! # Invariants
//!
//! - Answers of one route come in the order of its requests; one that does not fit its request ends the way.
//! - A request is answered or fails, once.
//! - A worker that says that it failed keeps its connection. Where the way fails, every worker of the route is forgotten.

mod channel;
mod config;
mod request;
mod snapshot;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::vec::Vec;
use core::mem;
use core::time::Duration;

use cuframes_core::Instant;
use cuframes_core::streams::{Action, ConnId, Links, Machine};

use super::line::{self, Due, How, Line};
use super::peer::{Arrived, Peer, Piece};
use super::route::address;
use super::{Fault, HelloError, LINGER, Path, Registry, RouteError, hello};
use crate::wire::{Hello, Limits, Message, WireError};
use channel::Channel;
use snapshot::Transfer;

pub use config::CoordinatorConfig;
pub use request::{Answer, CoordinatorEvent, Failure, Reply, Request, SubmitError};

/// Knows the workers, and sends requests through all layers. See [`Machine`] for how it is driven; whoever connects to its
/// listener, of whatever number, is to be a worker.
#[derive(Debug)]
pub struct Coordinator {
    config: CoordinatorConfig,
    links: Links<Peer, Line<Role>>,
    registry: Registry,
    /// The path that was found last.
    path: Option<Path>,
    next_request: u64,
    next_snapshot: u64,
    events: VecDeque<CoordinatorEvent>,
    is_over: bool,
    /// The latest time that it was told.
    now: Instant,
    wake: Option<Instant>,
}

#[derive(Debug)]
enum Role {
    /// Has until then to say who it is; and where it is, if that is known.
    Stranger(Instant, Option<String>),
    Worker,
    Channel(Channel),
    Transfer(Box<Transfer>),
    Closing,
}

impl Coordinator {
    /// A coordinator without workers.
    #[must_use]
    pub fn new(now: Instant, config: CoordinatorConfig) -> Self {
        Self {
            config,
            links: Links::default(),
            registry: Registry::default(),
            path: None,
            next_request: 1,
            next_snapshot: 1 << 63,
            events: VecDeque::new(),
            is_over: false,
            now,
            wake: None,
        }
    }

    /// Says on which host a worker is, as its next ones shall know it: 1 to 1024 bytes without NUL. Answers whether that is
    /// something that can be, and the connection is there.
    pub fn set_host(&mut self, now: Instant, conn: ConnId, host: &str) -> bool {
        self.tick(now);
        if host.is_empty() || host.len() > MAX_HOST || host.contains('\0') {
            return false;
        }
        match self.role(conn) {
            Some(Role::Stranger(_, found)) => *found = Some(host.into()),
            Some(Role::Worker) => {
                let generation = self.registry.generation();
                let replaced = self.registry.place(conn, host);
                if self.registry.generation() != generation {
                    // What is under way goes elsewhere.
                    self.worker_gone(conn);
                }
                for replaced in replaced {
                    self.end(replaced, How::Now, Fault::Replaced);
                }
            }
            _ => return false,
        }
        self.look();
        true
    }

    /// The workers.
    #[must_use]
    pub const fn registry(&self) -> &Registry {
        &self.registry
    }

    /// The workers that have all layers together, as requests are sent to them now. The path is kept until workers come or go.
    ///
    /// # Errors
    /// If some layer is missing.
    pub fn path(&mut self) -> Result<Path, RouteError> {
        if let Some(path) = self.path.as_ref().filter(|path| path.is_current(&self.registry)) {
            return Ok(path.clone());
        }
        let found = self.registry.find(self.config.span());
        self.path = found.clone().ok();
        found
    }

    /// Gives a worker up. Answers whether there was one.
    pub fn forget(&mut self, now: Instant, worker: ConnId) -> bool {
        self.tick(now);
        let is_there = self.registry.get(worker).is_some();
        if is_there {
            self.end(worker, How::Now, Fault::Forgotten);
        }
        self.look();
        is_there
    }

    /// Closes everything; what is under way fails.
    pub fn shut_down(&mut self, now: Instant) {
        self.tick(now);
        self.is_over = true;
        // Those on which something is under way come first, so that it fails for this reason.
        let (some, others): (Vec<_>, Vec<_>) = self
            .links
            .iter()
            .partition(|(_, line)| matches!(line.role, Role::Channel(_) | Role::Transfer(_)));
        for conn in some.into_iter().chain(others).map(|(conn, _)| conn).collect::<Vec<_>>() {
            self.end(conn, How::WhenSent, Fault::ShutDown);
        }
        self.look();
    }

    /// Whether it was shut down, and everything is closed.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.is_over && self.links.closing() == 0
    }

    fn role(&mut self, conn: ConnId) -> Option<&mut Role> {
        self.links.what_mut(conn).map(|line| &mut line.role)
    }

    fn max_text(&self) -> usize {
        usize::try_from(self.config.limits.text).unwrap_or(usize::MAX)
    }

    /// By when an answer that is due must have begun.
    fn due(&self) -> Option<Instant> {
        self.config.receive_timeout.map(|timeout| self.now + timeout)
    }

    fn connect(&mut self, host: &str, port: u32, role: Role) -> ConnId {
        let line = Line::new(role);
        self.links.connect(address(host, port), Duration::ZERO, Peer::new(self.config.limits), line)
    }

    fn send(&mut self, conn: ConnId, message: Message) {
        self.links.send(conn, &Piece::Message(message));
    }

    fn arrived(&mut self, conn: ConnId, arrived: Arrived) -> Result<(), Fault> {
        match self.role(conn) {
            Some(Role::Stranger(_, host)) => match arrived {
                Arrived::Message(Message::Hello(hello)) => {
                    let host = host.take().or_else(|| self.config.host.clone());
                    self.welcome(conn, host, hello);
                    Ok(())
                }
                other => Err(other.fault()),
            },
            Some(Role::Worker) => match arrived {
                Arrived::Message(Message::Error(text)) => Err(Fault::Remote(text)),
                Arrived::Unknown(header) => {
                    let text = alloc::format!("unexpected frame {}", header.kind);
                    self.send(conn, Message::Error(text));
                    self.end(conn, How::WhenSent, Fault::Unexpected(header.kind));
                    Ok(())
                }
                // Also a second HELLO.
                other => Err(other.fault()),
            },
            Some(Role::Channel(_)) => self.answered(conn, arrived),
            Some(Role::Transfer(_)) => self.transfer(conn, arrived),
            _ => Ok(()),
        }
    }

    /// A worker says who it is.
    fn welcome(&mut self, conn: ConnId, host: Option<String>, hello: Hello) {
        if let Err(error) = hello::check(&self.config, &hello) {
            return self.refuse(conn, error);
        }
        if let Some(role) = self.role(conn) {
            *role = Role::Worker;
        }
        let replaced = self.registry.insert(conn, host, hello.clone());
        for replaced in replaced {
            self.end(replaced, How::Now, Fault::Replaced);
        }
        self.events.push_back(CoordinatorEvent::Joined { conn, hello: Box::new(hello) });
    }

    fn refuse(&mut self, conn: ConnId, error: HelloError) {
        self.send(conn, Message::Error(alloc::format!("{error}")));
        self.end(conn, How::WhenSent, Fault::Hello(error));
    }

    /// A connection ends.
    fn end(&mut self, conn: ConnId, how: How, fault: Fault) {
        let Some(line) = self.links.what_mut(conn) else { return };
        let role = mem::replace(&mut line.role, Role::Closing);
        match how {
            How::Gone => _ = self.links.remove(conn),
            // What can't be sent (yet) is not waited for.
            How::WhenSent if role.is_connected() => {
                self.links.close_when_sent(conn, self.now + LINGER);
            }
            _ => _ = self.links.close(conn),
        }
        match role {
            Role::Closing => {}
            Role::Channel(channel) => {
                // If one of them has left, or this side wants it so, nobody else is to blame.
                let is_forgotten = !matches!(fault, Fault::Gone | Fault::ShutDown);
                self.channel_gone(&channel, &fault, is_forgotten);
            }
            Role::Transfer(transfer) => self.transfer_gone(&transfer, fault),
            Role::Stranger(..) => self.events.push_back(CoordinatorEvent::Left { conn, fault }),
            Role::Worker => {
                // It is not there already if another one has its place.
                self.registry.remove(conn);
                self.events.push_back(CoordinatorEvent::Left { conn, fault });
                self.worker_gone(conn);
            }
        }
    }

    fn tick(&mut self, now: Instant) {
        self.now = self.now.max(now);
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

impl Machine for Coordinator {
    type Event = CoordinatorEvent;

    fn handle_accepted(&mut self, now: Instant, _listener: usize) -> Option<ConnId> {
        self.tick(now);
        let theirs = |line: &Line<Role>| matches!(line.role, Role::Stranger(..) | Role::Worker);
        let all = self.links.iter().filter(|(_, line)| theirs(line)).count() + self.links.closing();
        if self.is_over {
            return None;
        }
        if all >= self.config.max_connections {
            // Whoever only connects keeps no worker out.
            let stranger = |(_, line): &(ConnId, &Line<Role>)| matches!(line.role, Role::Stranger(..));
            let (oldest, _) = self.links.iter().find(stranger)?;
            self.end(oldest, How::Now, Fault::Surplus);
        }
        let deadline = self.now + self.config.hello_timeout;
        let line = Line::new(Role::Stranger(deadline, None));
        // Neither requests nor snapshots come here.
        let limits = Limits { work_bytes: 0, tokens: 0, ..self.config.limits };
        let conn = self.links.accept(Peer::new(limits), line);
        self.events.push_back(CoordinatorEvent::Connected { conn });
        self.look();
        Some(conn)
    }

    fn handle_connected(&mut self, now: Instant, conn: ConnId) {
        self.tick(now);
        let due = self.due();
        match self.role(conn) {
            Some(Role::Channel(channel)) => {
                channel.is_connected = true;
                channel.deadline = due.filter(|_| !channel.pending.is_empty());
            }
            Some(Role::Transfer(transfer)) => {
                transfer.is_connected = true;
                transfer.deadline = due;
            }
            _ => return,
        }
        self.links.connected(conn);
        self.look();
    }

    fn handle_bytes(&mut self, now: Instant, conn: ConnId, mut bytes: &[u8]) {
        self.tick(now);
        let due = self.due();
        while !bytes.is_empty() && self.links.get(conn).is_some() {
            match self.role(conn) {
                Some(Role::Channel(channel)) => {
                    channel.deadline = due.filter(|_| !channel.pending.is_empty());
                }
                Some(Role::Transfer(transfer)) => transfer.deadline = due,
                _ => {}
            }
            let result = match self.links.receive(conn, &mut bytes) {
                Ok(None) => Ok(()),
                Ok(Some(arrived)) => self.arrived(conn, arrived),
                Err(error) => Err(Fault::Frame(error)),
            };
            if let Err(fault) = result {
                self.end(conn, How::Now, fault);
            }
        }
        self.look();
    }

    fn handle_eof(&mut self, now: Instant, conn: ConnId) {
        self.tick(now);
        let fault = match self.links.get(conn) {
            Some((_, line)) if !line.role.is_connected() => Fault::Unreachable,
            Some((peer, _)) if !peer.may_end() => Fault::Frame(WireError::Cut),
            _ => Fault::Ended,
        };
        self.end(conn, How::Gone, fault);
        self.look();
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.tick(now);
        self.look();
    }

    fn poll_action(&mut self) -> Option<Action> {
        self.links.poll_action()
    }

    fn poll_transmit(&self, conn: ConnId) -> Option<&[u8]> {
        self.links.poll_transmit(conn)
    }

    fn transmitted(&mut self, conn: ConnId, n: usize) {
        self.links.transmitted(conn, n);
        if let Some(line) = self.links.what_mut(conn) {
            line.progressed();
        }
        self.pour(conn);
    }

    fn poll_event(&mut self) -> Option<CoordinatorEvent> {
        self.events.pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.wake
    }
}

impl Due for Role {
    fn due(&self) -> Option<(Instant, Fault)> {
        let deadline = match self {
            Self::Stranger(until, _) => return Some((*until, Fault::Silent)),
            Self::Channel(channel) => channel.deadline,
            Self::Transfer(transfer) => transfer.deadline,
            Self::Worker | Self::Closing => None,
        };
        let fault = if self.is_connected() { Fault::Receive } else { Fault::Unreachable };
        deadline.map(|at| (at, fault))
    }

    fn is_connected(&self) -> bool {
        match self {
            Self::Channel(channel) => channel.is_connected,
            Self::Transfer(transfer) => transfer.is_connected,
            _ => true,
        }
    }
}

/// Bytes of the longest host.
const MAX_HOST: usize = 1024;
