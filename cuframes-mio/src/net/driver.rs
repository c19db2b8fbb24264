//! [`Driver`]: sockets for a [`Machine`].

use std::collections::HashMap;
use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use cuframes_core::Instant;
use cuframes_core::streams::{Action, ConnId, Machine};
use mio::{Interest, Registry, Token};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{RecvFlags, SendFlags, recv, send};

use super::conn::{Conn, State, Target};
use super::listener::Listener;
use super::{Endpoint, NetError};
use crate::clock;
use crate::conn::INTEREST;
use crate::entrance::Caller;
use crate::pollable::{EventSource, Pollable, Registration, Turn};

/// Moves bytes, connections and time for a [`Machine`]: an [`EventSource`] for your own mio `Poll`, or one descriptor in a
/// [`Pollable`].
///
/// Connections that can't be made are tried again, at first after 1 ms and in the end every 2 s. There are at most 1000
/// connections at a time; the machine decides who makes room, as far as it has a bound of its own.
#[derive(Debug)]
pub struct Driver<M> {
    machine: M,
    listeners: Vec<Listener>,
    /// By token.
    conns: Vec<Option<Conn>>,
    places: HashMap<ConnId, usize>,
    registration: Option<Registration>,
    /// Why the last attempt to connect failed.
    trouble: Option<(Endpoint, io::Error)>,
    buffer: Box<[u8]>,
}

impl<M: Machine> Driver<M> {
    /// A driver of `machine`, whose listeners are these, in this order; those beyond the eighth are not looked at.
    pub fn new(machine: M, mut listeners: Listeners) -> Self {
        listeners.0.truncate(MAX_LISTENERS);
        let mut driver = Self {
            machine,
            listeners: listeners.0,
            conns: Vec::new(),
            places: HashMap::new(),
            registration: None,
            trouble: None,
            buffer: vec![0; READ_SIZE].into(),
        };
        driver.settle(clock::now());
        driver
    }

    /// The machine.
    pub const fn machine(&self) -> &M {
        &self.machine
    }

    /// Calls one of the machine's commands, and does what it leads to.
    pub fn command<R>(&mut self, now: Instant, command: impl FnOnce(&mut M) -> R) -> R {
        let result = command(&mut self.machine);
        self.settle(now);
        result
    }

    /// The next event of the machine.
    pub fn poll_event(&mut self) -> Option<M::Event> {
        self.machine.poll_event()
    }

    /// Why the last attempt to connect failed, and where, until one works.
    #[must_use]
    pub fn trouble(&self) -> Option<(&Endpoint, &io::Error)> {
        self.trouble.as_ref().map(|(endpoint, error)| (endpoint, error))
    }

    fn accept(&mut self, now: Instant, number: usize) -> Turn {
        for _ in 0..ACCEPT_BUDGET {
            let Some(listener) = self.listeners.get_mut(number) else { return Turn::Idle };
            let socket = match listener.next(now) {
                Caller::Nobody | Caller::Blocked(_) => return Turn::Idle,
                // It has the last descriptor, and goes when this ends.
                Caller::Surplus(_) => continue,
                Caller::Peer(socket) => socket,
            };
            if let Some(id) = self.machine.handle_accepted(now, number) {
                // The machine may have made room.
                self.settle(now);
                if self.place(Conn::accepted(id, socket)).is_none() {
                    self.machine.handle_eof(now, id);
                }
                self.settle(now);
            }
        }
        Turn::Again
    }

    /// Takes a connection in.
    fn place(&mut self, conn: Conn) -> Option<usize> {
        let place = self.conns.iter().position(Option::is_none).unwrap_or(self.conns.len());
        if place >= MAX_CONNS {
            return None;
        }
        if place == self.conns.len() {
            self.conns.push(None);
        }
        self.places.insert(conn.id, place);
        if let Some(slot) = self.conns.get_mut(place) {
            *slot = Some(conn);
        }
        self.watch(place);
        Some(place)
    }

    /// Registers the socket of a connection, if it has one.
    fn watch(&mut self, place: usize) {
        let Some(Some(conn)) = self.conns.get(place) else { return };
        if let (Some(registration), Some(socket)) = (&self.registration, conn.socket()) {
            // What can't be watched is found by the machine's deadline.
            let _ = registration.add(socket, MAX_LISTENERS + place, INTEREST);
        }
    }

    fn forget(&mut self, place: usize) -> Option<Conn> {
        let conn = self.conns.get_mut(place)?.take()?;
        self.places.remove(&conn.id);
        Some(conn)
    }

    /// Something can be read or written on a connection, or it was made.
    fn ready(&mut self, now: Instant, place: usize) -> Turn {
        let Some(Some(conn)) = self.conns.get_mut(place) else { return Turn::Idle };
        let id = conn.id;
        if let State::Connecting { .. } = conn.state {
            self.advance(now, place);
        }
        let turn = self.read(now, place);
        self.flush(id);
        turn
    }

    /// Tries to connect, or looks how the attempt went.
    fn advance(&mut self, now: Instant, place: usize) {
        let Some(Conn { id, state }) = self.conns.get_mut(place).and_then(Option::take) else { return };
        let (state, error) = match state {
            State::Waiting { target, .. } => State::attempt(now, target),
            State::Connecting { target, socket } => State::look(now, target, socket),
            open @ State::Open(_) => (open, None),
        };
        if let (State::Waiting { target, .. }, Some(error)) = (&state, error) {
            self.trouble = Some((target.endpoint.clone(), error));
        }
        let is_open = matches!(state, State::Open(_));
        if let Some(slot) = self.conns.get_mut(place) {
            *slot = Some(Conn { id, state });
        }
        if is_open {
            self.trouble = None;
            self.machine.handle_connected(now, id);
        }
    }

    fn read(&mut self, now: Instant, place: usize) -> Turn {
        for _ in 0..READ_BUDGET {
            let Some(Some(Conn { id, state: State::Open(socket) })) = self.conns.get(place) else {
                return Turn::Idle;
            };
            let id = *id;
            let received = retry_on_intr(|| recv(socket, &mut *self.buffer, RecvFlags::empty()));
            match received {
                Err(Errno::WOULDBLOCK) => return Turn::Idle,
                Ok((n, _)) if n > 0 => {
                    let bytes = self.buffer.get(..n).unwrap_or_default();
                    self.machine.handle_bytes(now, id, bytes);
                    // It may be closed now.
                    self.settle(now);
                }
                // The end, or a reset.
                _ => {
                    self.forget(place);
                    self.machine.handle_eof(now, id);
                    return Turn::Idle;
                }
            }
        }
        Turn::Again
    }

    /// Sends as much as the socket takes.
    fn flush(&mut self, id: ConnId) {
        let Some(place) = self.places.get(&id).copied() else { return };
        while let Some(bytes) = self.machine.poll_transmit(id) {
            let Some(Some(Conn { state: State::Open(socket), .. })) = self.conns.get(place) else { return };
            match retry_on_intr(|| send(socket, bytes, SendFlags::NOSIGNAL)) {
                Ok(n) => self.machine.transmitted(id, n),
                // Full, or the peer is gone: then what it said before comes first, and reading finds the end after it.
                Err(_) => return,
            }
        }
    }

    /// Does what the machine wants done.
    fn settle(&mut self, now: Instant) {
        while let Some(action) = self.machine.poll_action() {
            match action {
                Action::Connect { conn: id, address, delay } => {
                    let target = address.parse().ok().map(Target::new);
                    let conn =
                        target.map(|target| Conn { id, state: State::Waiting { target, at: now + delay } });
                    if conn.and_then(|conn| self.place(conn)).is_none() {
                        self.machine.handle_eof(now, id);
                    }
                }
                Action::Transmit(id) => self.flush(id),
                Action::Close(id) => {
                    if let Some(place) = self.places.get(&id).copied() {
                        self.forget(place);
                    }
                }
                _ => {}
            }
        }
    }

    /// Places whose next attempt is due.
    fn due(&self, now: Instant) -> Vec<usize> {
        let conns = self.conns.iter().enumerate();
        let due = conns.filter(|(_, conn)| conn.as_ref().and_then(Conn::due).is_some_and(|at| at <= now));
        due.map(|(place, _)| place).collect()
    }
}

impl<M: Machine> EventSource for Driver<M> {
    const TOKENS: usize = MAX_LISTENERS + MAX_CONNS;

    fn register(&mut self, registry: &Registry, first_token: Token) -> io::Result<()> {
        let registration = Registration::new(registry, first_token)?;
        let conns =
            self.conns.iter().enumerate().filter_map(|(place, conn)| Some((place, conn.as_ref()?.socket()?)));
        if let Some(old) = self.registration.take() {
            self.listeners.iter().for_each(|listener| old.remove(listener));
            conns.clone().for_each(|(_, socket)| old.remove(socket));
        }
        for (number, listener) in self.listeners.iter().enumerate() {
            registration.add(listener, number, Interest::READABLE)?;
        }
        for (place, socket) in conns {
            registration.add(socket.as_fd(), MAX_LISTENERS + place, INTEREST)?;
        }
        self.registration = Some(registration);
        Ok(())
    }

    fn handle_event(&mut self, token: Token, now: Instant) -> io::Result<Turn> {
        let number = self.registration.as_ref().and_then(|registration| registration.number(token));
        let turn = match number {
            None => Turn::Idle,
            Some(number) => match number.checked_sub(MAX_LISTENERS) {
                None => self.accept(now, number),
                Some(place) => self.ready(now, place),
            },
        };
        self.settle(now);
        Ok(turn)
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.machine.handle_timeout(now);
        self.settle(now);
        for place in self.due(now) {
            self.advance(now, place);
            self.watch(place);
            self.settle(now);
        }
        for number in 0..self.listeners.len() {
            if self.listeners.get(number).and_then(Listener::poll_timeout).is_some_and(|due| due <= now) {
                // What is left over waits for the next pause.
                let _ = self.accept(now, number);
            }
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let attempts = self.conns.iter().flatten().filter_map(Conn::due);
        let listeners = self.listeners.iter().filter_map(Listener::poll_timeout);
        self.machine.poll_timeout().into_iter().chain(attempts).chain(listeners).min()
    }
}

impl<M: Machine> Pollable<Driver<M>> {
    /// The next event of the machine, within `timeout` (`None`: however long it takes; but a signal may end the wait).
    ///
    /// # Errors
    /// If the event loop fails.
    pub fn next_event(&mut self, timeout: Option<Duration>) -> io::Result<Option<M::Event>> {
        if let Some(event) = self.with(Driver::poll_event)? {
            return Ok(Some(event));
        }
        let _ = self.wait(timeout)?;
        self.with(Driver::poll_event)
    }

    /// Calls one of the machine's commands with the time, and does what it leads to.
    ///
    /// # Errors
    /// If the event loop fails.
    pub fn command<R>(&mut self, command: impl FnOnce(&mut M, Instant) -> R) -> io::Result<R> {
        let now = clock::now();
        self.with(|driver| driver.command(now, |machine| command(machine, now)))
    }
}

/// Sockets that listen already, so that the machine can be told their addresses.
#[derive(Debug, Default)]
pub struct Listeners(Vec<Listener>);

impl Listeners {
    /// Listens on each of these, in this order. A Unix socket is for this user alone, and its file goes when this is dropped.
    ///
    /// # Errors
    /// If one of them can't be listened on.
    pub fn new<'a>(endpoints: impl IntoIterator<Item = &'a Endpoint>) -> Result<Self, NetError> {
        endpoints.into_iter().map(Listener::new).collect::<Result<_, _>>().map(Self)
    }

    /// Where they listen: with the ports that the system chose.
    pub fn endpoints(&self) -> impl Iterator<Item = &Endpoint> {
        self.0.iter().map(|listener| &listener.endpoint)
    }
}

/// Connections at a time.
const MAX_CONNS: usize = 1000;
/// Listeners of one machine.
const MAX_LISTENERS: usize = 8;
/// Bytes of one read.
const READ_SIZE: usize = 64 << 10;
/// Reads in one turn; a peer that sends more waits until the others had theirs.
const READ_BUDGET: usize = 16;
/// Connections accepted in one turn.
const ACCEPT_BUDGET: usize = 64;
