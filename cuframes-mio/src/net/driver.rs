//! [`Driver`]: sockets for a [`Machine`].

mod traffic;

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use cuframes_core::Instant;
use cuframes_core::streams::{Action, ConnId, Machine};
use mio::{Interest, Registry, Token};

use super::backlog::Backlog;
use super::conn::{Conn, State, Target};
use super::listener::Listener;
use super::{Carrier, Endpoint, Listeners, Plain, Side, SocketOptions};
use crate::clock;
use crate::conn::INTEREST;
use crate::entrance::Caller;
use crate::pollable::{EventSource, Pollable, Registration, Turn};

/// Moves bytes, connections and time for a [`Machine`]: an [`EventSource`] for your own mio `Poll`, or one descriptor in a
/// [`Pollable`].
///
/// Connections that can't be made are tried again, at first after 1 ms and in the end every 2 s. There are at most 1000
/// connections at a time; the machine decides who makes room, as far as it has a bound of its own.
///
/// Bulk data goes from and to the memory that the machine lends, without a copy on the way. A connection that the machine does not
/// want to hear more of is not read until it does; where a command or an event makes it want more, that is read at once. The
/// bytes of a connection are moved by a [`Carrier`]: the system, if you name none.
#[derive(Debug)]
pub struct Driver<M, C: Carrier = Plain> {
    machine: M,
    carrier: C,
    options: SocketOptions,
    listeners: Vec<Listener>,
    /// By token.
    conns: Vec<Option<Conn<C::Socket>>>,
    places: HashMap<ConnId, usize>,
    backlog: Backlog,
    registration: Option<Registration>,
    /// Why the last attempt to connect failed.
    trouble: Option<(Endpoint, io::Error)>,
    buffer: Box<[u8]>,
}

impl<M: Machine> Driver<M> {
    /// A driver of `machine`, whose listeners are these, in this order; those beyond the eighth are not looked at.
    pub fn new(machine: M, listeners: Listeners) -> Self {
        Self::with_carrier(machine, listeners, Plain)
    }
}

impl<M: Machine, C: Carrier> Driver<M, C> {
    /// The same, and this moves the bytes.
    pub fn with_carrier(machine: M, mut listeners: Listeners, carrier: C) -> Self {
        listeners.0.truncate(MAX_LISTENERS);
        let mut driver = Self {
            machine,
            carrier,
            options: SocketOptions::default(),
            listeners: listeners.0,
            conns: Vec::new(),
            places: HashMap::new(),
            backlog: Backlog::default(),
            registration: None,
            trouble: None,
            buffer: vec![0; traffic::READ_SIZE].into(),
        };
        driver.settle(clock::now());
        driver
    }

    /// Sets these for its listeners, and for every connection from now on. Best said at the beginning: connections that wait at a
    /// listener already have been made without them.
    ///
    /// # Errors
    /// If the system does not accept them.
    pub fn socket_options(mut self, options: SocketOptions) -> io::Result<Self> {
        options.check()?;
        self.listeners.iter().for_each(|listener| listener.apply(&options));
        self.options = options;
        Ok(self)
    }

    /// The machine.
    pub const fn machine(&self) -> &M {
        &self.machine
    }

    /// Calls one of the machine's commands, and does what it leads to.
    pub fn command<R>(&mut self, now: Instant, command: impl FnOnce(&mut M) -> R) -> R {
        let result = command(&mut self.machine);
        self.settle(now);
        self.take_up(now);
        result
    }

    /// What moves the bytes.
    pub const fn carrier(&self) -> &C {
        &self.carrier
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
                if self.admit(now, id, number, socket).is_none() {
                    self.machine.handle_eof(now, id);
                }
                self.settle(now);
            }
        }
        Turn::Again
    }

    /// Takes in who was accepted.
    fn admit(&mut self, now: Instant, id: ConnId, listener: usize, socket: OwnedFd) -> Option<()> {
        if let Some(listener) = self.listeners.get(listener) {
            self.options.apply(&socket, &listener.endpoint);
        }
        let socket = self.carrier.carry(socket, Side::Accepted).ok()?;
        let place = self.place(Conn { id, state: State::Opening { target: None, socket } })?;
        self.advance(now, place);
        Some(())
    }

    /// Takes a connection in.
    fn place(&mut self, conn: Conn<C::Socket>) -> Option<usize> {
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
        Some(place)
    }

    /// Registers the socket of a connection, if it has one.
    fn watch(&mut self, place: usize) {
        let Some(Some(conn)) = self.conns.get(place) else { return };
        if let (Some(registration), Some(socket)) = (&self.registration, conn.socket()) {
            // It is watched already, mostly. What can't be watched is found by the machine's deadline.
            let _ = registration.add(socket, MAX_LISTENERS + place, INTEREST);
        }
    }

    fn forget(&mut self, place: usize) {
        if let Some(conn) = self.conns.get_mut(place).and_then(Option::take) {
            self.places.remove(&conn.id);
            self.backlog.forget(conn.id);
        }
    }

    /// Something can be read or written on a connection, or it was made.
    fn ready(&mut self, now: Instant, place: usize) -> Turn {
        let Some(Some(conn)) = self.conns.get_mut(place) else { return Turn::Idle };
        let id = conn.id;
        if let State::Connecting { .. } | State::Opening { .. } = conn.state {
            self.advance(now, place);
        }
        let turn = self.read(now, place);
        if self.flush(id) == Turn::Again { Turn::Again } else { turn }
    }

    /// Tries to connect, or looks how that goes.
    fn advance(&mut self, now: Instant, place: usize) {
        let Some(Conn { id, state }) = self.conns.get_mut(place).and_then(Option::take) else { return };
        let is_wanted = state.is_wanted();
        let state = match state.advance(&mut self.carrier, &self.options) {
            Ok(state) => Some(state),
            Err((Some(target), error)) => {
                self.trouble = Some((target.endpoint.clone(), error));
                Some(State::again(now, target))
            }
            Err((None, _)) => None,
        };
        let is_open = matches!(state, Some(State::Open(_)));
        if let Some(slot) = self.conns.get_mut(place) {
            *slot = state.map(|state| Conn { id, state });
            if slot.is_none() {
                self.places.remove(&id);
                self.machine.handle_eof(now, id);
            }
        }
        self.watch(place);
        if is_open && is_wanted {
            self.trouble = None;
            self.machine.handle_connected(now, id);
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
                Action::Transmit(id) => self.transmit(id),
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

impl<M: Machine, C: Carrier> EventSource for Driver<M, C> {
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
            registration.add(socket, MAX_LISTENERS + place, INTEREST)?;
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
        self.take_up(now);
        Ok(turn)
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.machine.handle_timeout(now);
        self.settle(now);
        for place in self.due(now) {
            self.advance(now, place);
            self.settle(now);
        }
        for number in 0..self.listeners.len() {
            if self.listeners.get(number).and_then(Listener::poll_timeout).is_some_and(|due| due <= now) {
                // What is left over waits for the next pause.
                let _ = self.accept(now, number);
            }
        }
        self.go_on(now);
        self.settle(now);
        self.take_up(now);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let attempts = self.conns.iter().flatten().filter_map(Conn::due);
        let listeners = self.listeners.iter().filter_map(Listener::poll_timeout);
        let at_once = self.has_backlog().then_some(Instant::ZERO);
        self.machine.poll_timeout().into_iter().chain(at_once).chain(attempts).chain(listeners).min()
    }
}

impl<M: Machine, C: Carrier> Pollable<Driver<M, C>> {
    /// The next event of the machine, within `timeout` (`None`: however long it takes; but a signal may end the wait).
    ///
    /// # Errors
    /// If the event loop fails.
    pub fn next_event(&mut self, timeout: Option<Duration>) -> io::Result<Option<M::Event>> {
        self.poll_within(timeout, Driver::poll_event)
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

/// Connections at a time.
const MAX_CONNS: usize = 1000;
/// Listeners of one machine.
const MAX_LISTENERS: usize = 8;
/// Connections accepted in one turn.
const ACCEPT_BUDGET: usize = 64;
