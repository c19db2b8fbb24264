//! [`Links`]: the connections of one machine, what it has to do about them, and what each of them is.
//!
//! For those who write a machine: it gives out the numbers, and queues the actions.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::string::String;
use core::mem;
use core::time::Duration;

use super::{Action, ConnId};
use crate::Instant;

/// What is spoken on one connection: bytes in, messages out, and the other way round.
pub trait Link {
    /// What arrives.
    type Message;
    /// What is sent.
    type Sent: ?Sized;
    /// Why a connection can't go on.
    type Error;

    /// Takes bytes from the front of `bytes` until a message is complete; `None` when all are taken.
    ///
    /// # Errors
    /// If the connection can't go on. Nothing may be given to it afterwards.
    fn receive(&mut self, bytes: &mut &[u8]) -> Result<Option<Self::Message>, Self::Error>;

    /// Queues a message.
    fn send(&mut self, message: &Self::Sent);

    /// Whether messages can be sent already.
    fn is_open(&self) -> bool;

    /// What to send next.
    fn poll_transmit(&self) -> Option<&[u8]>;

    /// The first `n` bytes of it were sent.
    fn transmitted(&mut self, n: usize);
}

/// Connections, each with a `T` that says what it is.
#[derive(Debug)]
pub struct Links<L, T> {
    next: u64,
    all: BTreeMap<ConnId, Entry<L, T>>,
    /// Those that are closed as soon as everything is sent, and by then at the latest.
    closing: BTreeSet<(Instant, ConnId)>,
    actions: VecDeque<Action>,
}

#[derive(Debug)]
struct Entry<L, T> {
    link: L,
    what: T,
    /// An [`Action::Transmit`] is on its way already.
    is_announced: bool,
    /// It is closed as soon as everything is sent, and by then at the latest; nothing is read any more.
    closing: Option<Instant>,
}

impl<L, T> Default for Links<L, T> {
    fn default() -> Self {
        Self { next: 0, all: BTreeMap::new(), closing: BTreeSet::new(), actions: VecDeque::new() }
    }
}

impl<L: Link, T> Links<L, T> {
    /// What the next connection will be called; all that there are come before it.
    #[must_use]
    pub const fn next(&self) -> ConnId {
        ConnId::new(self.next)
    }

    /// Somebody has connected.
    pub fn accept(&mut self, link: L, what: T) -> ConnId {
        let conn = self.add(link, what);
        self.announce(conn);
        conn
    }

    /// Asks for a connection.
    pub fn connect(&mut self, address: String, delay: Duration, link: L, what: T) -> ConnId {
        let conn = self.add(link, what);
        self.actions.push_back(Action::Connect { conn, address, delay });
        conn
    }

    /// Such a connection is there.
    pub fn connected(&mut self, conn: ConnId) {
        self.announce(conn);
    }

    /// Takes bytes from the front of `bytes` until a message is complete, or all if nothing is read any more.
    ///
    /// # Errors
    /// If the connection can't go on.
    pub fn receive(&mut self, conn: ConnId, bytes: &mut &[u8]) -> Result<Option<L::Message>, L::Error> {
        let Some(entry) = self.all.get_mut(&conn).filter(|entry| entry.closing.is_none()) else {
            *bytes = &[];
            return Ok(None);
        };
        let result = entry.link.receive(bytes);
        self.announce(conn);
        result
    }

    /// Queues a message, unless the connection is about to be closed.
    pub fn send(&mut self, conn: ConnId, message: &L::Sent) {
        if let Some(entry) = self.all.get_mut(&conn).filter(|entry| entry.closing.is_none()) {
            entry.link.send(message);
            self.announce(conn);
        }
    }

    /// Closes a connection at once.
    pub fn close(&mut self, conn: ConnId) -> Option<T> {
        let what = self.remove(conn)?;
        self.actions.push_back(Action::Close(conn));
        Some(what)
    }

    /// Closes a connection when everything is sent, or [at that time](Self::close_late). The first one that was said counts.
    pub fn close_when_sent(&mut self, conn: ConnId, until: Instant) {
        let Some(entry) = self.all.get_mut(&conn) else { return };
        if entry.link.poll_transmit().is_none() || !entry.link.is_open() {
            self.close(conn);
        } else if entry.closing.is_none() {
            entry.closing = Some(until);
            self.closing.insert((until, conn));
        }
    }

    /// It is closed already.
    pub fn remove(&mut self, conn: ConnId) -> Option<T> {
        let Entry { what, closing, .. } = self.all.remove(&conn)?;
        if let Some(until) = closing {
            self.closing.remove(&(until, conn));
        }
        Some(what)
    }

    /// One of them, with what it is.
    #[must_use]
    pub fn get(&self, conn: ConnId) -> Option<(&L, &T)> {
        self.all.get(&conn).map(|entry| (&entry.link, &entry.what))
    }

    /// One of them, with what it is, to be changed. What is sent on it goes through [`send`](Self::send), or nobody hears of it.
    pub fn get_mut(&mut self, conn: ConnId) -> Option<(&mut L, &mut T)> {
        self.all.get_mut(&conn).map(|entry| (&mut entry.link, &mut entry.what))
    }

    /// What one of them is.
    pub fn what_mut(&mut self, conn: ConnId) -> Option<&mut T> {
        self.all.get_mut(&conn).map(|entry| &mut entry.what)
    }

    /// The connections that are not about to be closed, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = (ConnId, &T)> {
        self.all.iter().filter(|(_, entry)| entry.closing.is_none()).map(|(conn, entry)| (*conn, &entry.what))
    }

    /// How many are about to be closed.
    #[must_use]
    pub fn closing(&self) -> usize {
        self.closing.len()
    }

    /// Closes those that have had their time to be sent everything.
    pub fn close_late(&mut self, now: Instant) {
        while let Some((_, conn)) = self.closing.first().copied().filter(|(until, _)| *until <= now) {
            self.close(conn);
        }
    }

    /// When the next one is [late](Self::close_late).
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.closing.first().map(|(until, _)| *until)
    }

    /// For [`Machine::poll_action`](super::Machine::poll_action).
    pub fn poll_action(&mut self) -> Option<Action> {
        let action = self.actions.pop_front()?;
        if let Action::Transmit(conn) = action
            && let Some(entry) = self.all.get_mut(&conn)
        {
            entry.is_announced = false;
        }
        Some(action)
    }

    /// For [`Machine::poll_transmit`](super::Machine::poll_transmit).
    #[must_use]
    pub fn poll_transmit(&self, conn: ConnId) -> Option<&[u8]> {
        self.all.get(&conn)?.link.poll_transmit()
    }

    /// For [`Machine::transmitted`](super::Machine::transmitted).
    pub fn transmitted(&mut self, conn: ConnId, n: usize) {
        let Some(entry) = self.all.get_mut(&conn) else { return };
        entry.link.transmitted(n);
        if entry.closing.is_some() && entry.link.poll_transmit().is_none() {
            self.close(conn);
        }
    }

    fn add(&mut self, link: L, what: T) -> ConnId {
        let conn = ConnId::new(self.next);
        self.next += 1;
        self.all.insert(conn, Entry { link, what, is_announced: false, closing: None });
        conn
    }

    fn announce(&mut self, conn: ConnId) {
        if let Some(entry) = self.all.get_mut(&conn)
            && entry.link.poll_transmit().is_some()
            && !mem::replace(&mut entry.is_announced, true)
        {
            self.actions.push_back(Action::Transmit(conn));
        }
    }
}
