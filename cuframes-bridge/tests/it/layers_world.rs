//! [`Net`]: coordinators, workers, and peers that are written by hand, joined by pipes of any width, on virtual time.

use std::collections::VecDeque;
use std::mem;
use std::time::Duration;

use cuframes_bridge::layers::{Coordinator, CoordinatorConfig, Worker, WorkerConfig};
use cuframes_bridge::wire::Message;
use cuframes_core::Instant;
use cuframes_core::streams::{Action, ConnId, Machine};

use crate::layers_peers::{encoded, messages};

/// Everything that there is.
pub(crate) struct Net {
    pub(crate) now: Instant,
    pub(crate) coordinators: Vec<Node<Coordinator>>,
    pub(crate) workers: Vec<Node<Worker>>,
    /// The most bytes that a direction of a connection holds, and that one read takes.
    pub(crate) width: usize,
    /// Whether drivers heed [`Machine::is_hungry`].
    pub(crate) is_heeded: bool,
    /// Where somebody listens.
    addresses: Vec<(String, Who)>,
    deaf: Option<String>,
    attempts: Vec<Attempt>,
    wires: Vec<Wire>,
}

pub(crate) struct Node<M: Machine> {
    pub(crate) machine: M,
    pub(crate) events: VecDeque<M::Event>,
}

/// Who listens at an address, or has an end of a connection.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Who {
    Coordinator(usize),
    Worker(usize),
    /// A peer that is written by hand.
    Hand,
}

/// A peer that is written by hand: the number of its wire.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Caller(pub(crate) usize);

struct Attempt {
    who: Who,
    conn: ConnId,
    address: String,
    due: Instant,
}

struct Wire {
    /// The end that connected, and the one that was connected to.
    ends: [End; 2],
    address: String,
}

struct End {
    who: Who,
    conn: ConnId,
    is_open: bool,
    /// On its way to the other end.
    pipe: VecDeque<u8>,
    /// What a peer that is written by hand has got and not looked at.
    got: Vec<u8>,
    is_read: bool,
}

impl Net {
    pub(crate) fn new() -> Self {
        Self {
            now: Instant::from_nanos(1_000),
            coordinators: Vec::new(),
            workers: Vec::new(),
            width: usize::MAX,
            is_heeded: true,
            addresses: Vec::new(),
            deaf: None,
            attempts: Vec::new(),
            wires: Vec::new(),
        }
    }

    /// A coordinator at address `c`.
    pub(crate) fn coordinator(&mut self, config: CoordinatorConfig) -> usize {
        self.coordinators.push(Node { machine: Coordinator::new(self.now, config), events: VecDeque::new() });
        let number = self.coordinators.len() - 1;
        self.listen("c", Who::Coordinator(number));
        number
    }

    /// A worker whose data port is `tcp://h:PORT`.
    pub(crate) fn worker(&mut self, config: WorkerConfig) -> usize {
        let number = self.workers.len();
        self.listen(&format!("tcp://h:{}", config.listen_port), Who::Worker(number));
        self.workers.push(Node { machine: Worker::new(self.now, config), events: VecDeque::new() });
        self.run();
        number
    }

    /// Somebody listens there now.
    pub(crate) fn listen(&mut self, address: &str, who: Who) {
        self.addresses.retain(|(known, _)| known != address);
        self.addresses.push((address.into(), who));
    }

    /// A peer that is written by hand listens there, and reads nothing.
    pub(crate) fn listen_deaf(&mut self, address: &str) {
        self.listen(address, Who::Hand);
        self.deaf = Some(address.into());
    }

    /// Nobody does any more.
    pub(crate) fn unlisten(&mut self, address: &str) {
        self.addresses.retain(|(known, _)| known != address);
    }

    /// Connects by hand; `None` if that is not wanted.
    pub(crate) fn try_call(&mut self, to: Who) -> Option<Caller> {
        let conn = self.accept(to)?;
        self.wires.push(Wire::new(End::new(Who::Hand, ConnId::new(u64::MAX)), End::new(to, conn), "hand"));
        let caller = Caller(self.wires.len() - 1);
        self.run();
        Some(caller)
    }

    pub(crate) fn call(&mut self, to: Who) -> Caller {
        self.try_call(to).unwrap()
    }

    /// The newest connection to an address at which a peer that is written by hand listens.
    pub(crate) fn called(&self, address: &str) -> Caller {
        Caller(self.wires.iter().rposition(|wire| wire.address == address).unwrap())
    }

    /// How many connections to an address were ever made.
    pub(crate) fn calls(&self, address: &str) -> usize {
        self.wires.iter().filter(|wire| wire.address == address).count()
    }

    /// Sends bytes by hand, and looks at what comes.
    pub(crate) fn say(&mut self, caller: Caller, bytes: &[u8]) -> Vec<u8> {
        let hand = self.hand(caller);
        self.wires[caller.0].ends[hand].pipe.extend(bytes);
        self.run();
        self.heard(caller)
    }

    /// Sends a message by hand, and looks at what comes.
    pub(crate) fn tell(&mut self, caller: Caller, message: &Message) -> Vec<Message> {
        messages(&self.say(caller, &encoded(message)))
    }

    /// What has come since the last look.
    pub(crate) fn heard(&mut self, caller: Caller) -> Vec<u8> {
        let hand = self.hand(caller);
        mem::take(&mut self.wires[caller.0].ends[hand].got)
    }

    /// It does not read any more, or does again.
    pub(crate) fn plug(&mut self, caller: Caller, is_plugged: bool) {
        let hand = self.hand(caller);
        self.wires[caller.0].ends[hand].is_read = !is_plugged;
        self.run();
    }

    /// A peer that does not read takes so many bytes that the machine has for it, all the same.
    pub(crate) fn peek(&mut self, caller: Caller, n: usize) {
        let hand = self.hand(caller);
        let End { who, conn, .. } = self.wires[caller.0].ends[1 - hand];
        let mut pipe = VecDeque::new();
        assert!(self.with(who, |machine| machine.fill(conn, &mut pipe, n)), "there is nothing to take");
    }

    /// Ends a connection that was made by hand.
    pub(crate) fn hang_up(&mut self, caller: Caller) {
        let hand = self.hand(caller);
        self.wires[caller.0].ends[hand].is_open = false;
        self.run();
    }

    /// Whether the other side has closed it.
    pub(crate) fn is_closed(&self, caller: Caller) -> bool {
        let hand = self.hand(caller);
        !self.wires[caller.0].ends[1 - hand].is_open
    }

    /// What the machine calls the connection.
    pub(crate) fn conn(&self, caller: Caller) -> ConnId {
        let hand = self.hand(caller);
        self.wires[caller.0].ends[1 - hand].conn
    }

    /// Cuts every connection of somebody; nobody listens there any more.
    pub(crate) fn kill(&mut self, who: Who) {
        self.addresses.retain(|(_, known)| *known != who);
        self.attempts.retain(|attempt| attempt.who != who);
        for end in self.wires.iter_mut().flat_map(|wire| &mut wire.ends) {
            end.is_open &= end.who != who;
        }
        self.run();
    }

    /// The connections that somebody waits for, and when it tries.
    pub(crate) fn waiting(&self, who: Who) -> Vec<(ConnId, Instant)> {
        let attempts = self.attempts.iter().filter(|attempt| attempt.who == who);
        attempts.map(|attempt| (attempt.conn, attempt.due)).collect()
    }

    /// The driver has given up.
    pub(crate) fn drop_attempt(&mut self, conn: ConnId) {
        self.attempts.retain(|attempt| attempt.conn != conn);
    }

    /// Time passes.
    pub(crate) fn pass(&mut self, time: Duration) {
        self.now = self.now + time;
        self.look();
        self.run();
    }

    /// Everybody is told the time.
    pub(crate) fn look(&mut self) {
        let now = self.now;
        self.coordinators.iter_mut().for_each(|node| node.machine.handle_timeout(now));
        self.workers.iter_mut().for_each(|node| node.machine.handle_timeout(now));
    }

    /// Everything goes on until nothing moves any more.
    pub(crate) fn run(&mut self) {
        while self.act() | self.connect() | self.carry() {}
    }

    /// One turn of it.
    pub(crate) fn act(&mut self) -> bool {
        let mut moved = false;
        for number in 0..self.coordinators.len() {
            let node = &mut self.coordinators[number];
            node.events.extend(std::iter::from_fn(|| node.machine.poll_event()));
            while let Some(action) = self.coordinators[number].machine.poll_action() {
                moved |= self.do_action(Who::Coordinator(number), action);
            }
        }
        for number in 0..self.workers.len() {
            let node = &mut self.workers[number];
            // What wants to be woken at once is.
            if node.machine.poll_timeout().is_some_and(|at| at <= self.now) {
                node.machine.handle_timeout(self.now);
                moved = true;
            }
            node.events.extend(std::iter::from_fn(|| node.machine.poll_event()));
            while let Some(action) = self.workers[number].machine.poll_action() {
                moved |= self.do_action(Who::Worker(number), action);
            }
        }
        moved
    }

    fn do_action(&mut self, who: Who, action: Action) -> bool {
        match action {
            Action::Connect { conn, address, delay } => {
                self.attempts.push(Attempt { who, conn, address, due: self.now + delay });
            }
            Action::Close(conn) => {
                self.attempts.retain(|attempt| (attempt.who, attempt.conn) != (who, conn));
                let mut ends = self.wires.iter_mut().flat_map(|wire| &mut wire.ends);
                if let Some(end) = ends.find(|end| (end.who, end.conn) == (who, conn)) {
                    end.is_open = false;
                }
            }
            _ => return false,
        }
        true
    }

    pub(crate) fn connect(&mut self) -> bool {
        let now = self.now;
        let ready = self.attempts.iter().position(|attempt| {
            attempt.due <= now && self.addresses.iter().any(|(address, _)| *address == attempt.address)
        });
        let Some(at) = ready else { return false };
        let Attempt { who, conn, address, .. } = self.attempts.remove(at);
        let (_, to) = *self.addresses.iter().find(|(known, _)| *known == address).unwrap();
        let end = match to {
            Who::Hand => Some(ConnId::new(u64::MAX)),
            to => self.accept(to),
        };
        self.with(who, |machine| machine.connected(now, conn));
        match end {
            Some(end) => {
                let mut wire = Wire::new(End::new(who, conn), End::new(to, end), &address);
                wire.ends[1].is_read = self.deaf.as_ref() != Some(&address);
                self.wires.push(wire);
            }
            None => self.with(who, |machine| machine.eof(now, conn)),
        }
        true
    }

    fn accept(&mut self, to: Who) -> Option<ConnId> {
        match to {
            Who::Coordinator(number) => self.coordinators[number].machine.handle_accepted(self.now, 0),
            Who::Worker(number) => self.workers[number].machine.handle_accepted(self.now, 0),
            Who::Hand => None,
        }
    }

    /// One write and one read on each connection, in both directions.
    fn carry(&mut self) -> bool {
        let mut moved = false;
        for wire in 0..self.wires.len() {
            moved |= self.carry_one(wire, 0);
            moved |= self.carry_one(wire, 1);
        }
        moved
    }

    /// From one end to the other: one write, and one read.
    pub(crate) fn carry_one(&mut self, wire: usize, from: usize) -> bool {
        let (now, width) = (self.now, self.width);
        let mut pipe = mem::take(&mut self.wires[wire].ends[from].pipe);
        let [a, b] = &self.wires[wire].ends;
        let (from_end, to_end) = if from == 0 { (a, b) } else { (b, a) };
        let (sender, conn, is_over) = (from_end.who, from_end.conn, !from_end.is_open);
        let (receiver, its, is_read) = (to_end.who, to_end.conn, to_end.is_read && to_end.is_open);
        if !to_end.is_open {
            pipe.clear();
            return false;
        }
        let mut moved = false;
        if !is_over && is_read {
            moved |= self.with(sender, |machine| machine.fill(conn, &mut pipe, width));
        }
        let n = if is_read { pipe.len().min(width) } else { 0 };
        if n > 0 {
            if !self.is_heeded || self.with(receiver, |machine| machine.is_hungry(its)) {
                moved = true;
                let read: Vec<u8> = pipe.drain(..n).collect();
                match receiver {
                    Who::Hand => self.wires[wire].ends[1 - from].got.extend(read),
                    _ => self.with(receiver, |machine| machine.bytes(now, its, &read)),
                }
            }
        } else if is_over && is_read {
            moved = true;
            self.wires[wire].ends[1 - from].is_open = false;
            self.with(receiver, |machine| machine.eof(now, its));
        }
        self.wires[wire].ends[from].pipe = pipe;
        moved
    }

    pub(crate) fn wires(&self) -> usize {
        self.wires.len()
    }

    fn hand(&self, caller: Caller) -> usize {
        self.wires[caller.0].ends.iter().position(|end| end.who == Who::Hand).unwrap()
    }

    fn with<R>(&mut self, who: Who, f: impl FnOnce(&mut dyn Driven) -> R) -> R {
        match who {
            Who::Coordinator(number) => f(&mut self.coordinators[number].machine),
            Who::Worker(number) => f(&mut self.workers[number].machine),
            Who::Hand => f(&mut Nobody),
        }
    }
}

impl Wire {
    fn new(from: End, to: End, address: &str) -> Self {
        Self { ends: [from, to], address: address.into() }
    }
}

impl End {
    const fn new(who: Who, conn: ConnId) -> Self {
        Self { who, conn, is_open: true, pipe: VecDeque::new(), got: Vec::new(), is_read: true }
    }
}

/// A machine, whatever its events are.
trait Driven {
    fn connected(&mut self, now: Instant, conn: ConnId);
    fn bytes(&mut self, now: Instant, conn: ConnId, bytes: &[u8]);
    fn eof(&mut self, now: Instant, conn: ConnId);
    fn is_hungry(&self, conn: ConnId) -> bool;
    /// Sends as much as fits into the pipe.
    fn fill(&mut self, conn: ConnId, pipe: &mut VecDeque<u8>, width: usize) -> bool;
}

impl<M: Machine> Driven for M {
    fn connected(&mut self, now: Instant, conn: ConnId) {
        self.handle_connected(now, conn);
    }

    fn bytes(&mut self, now: Instant, conn: ConnId, bytes: &[u8]) {
        self.handle_bytes(now, conn, bytes);
    }

    fn eof(&mut self, now: Instant, conn: ConnId) {
        self.handle_eof(now, conn);
    }

    fn is_hungry(&self, conn: ConnId) -> bool {
        Machine::is_hungry(self, conn)
    }

    fn fill(&mut self, conn: ConnId, pipe: &mut VecDeque<u8>, width: usize) -> bool {
        let mut moved = false;
        while let Some(bytes) = self.poll_transmit(conn) {
            let n = bytes.len().min(width.saturating_sub(pipe.len()));
            if n == 0 {
                break;
            }
            pipe.extend(&bytes[..n]);
            self.transmitted(conn, n);
            moved = true;
        }
        moved
    }
}

/// Drives a peer that is written by hand, which does nothing by itself.
struct Nobody;

impl Driven for Nobody {
    fn connected(&mut self, _: Instant, _: ConnId) {}
    fn bytes(&mut self, _: Instant, _: ConnId, _: &[u8]) {}
    fn eof(&mut self, _: Instant, _: ConnId) {}
    fn is_hungry(&self, _: ConnId) -> bool {
        true
    }
    fn fill(&mut self, _: ConnId, _: &mut VecDeque<u8>, _: usize) -> bool {
        false
    }
}
