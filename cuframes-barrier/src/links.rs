//! [`Links`]: the connections of one machine, what it has to do about them, and what each of them is.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::String;
use core::mem;
use core::time::Duration;

use cuframes_core::streams::{Action, ConnId};

use crate::zmtp::{Link, LinkError, Message};

/// Connections, each with a `T` that says what it is.
#[derive(Debug)]
pub(crate) struct Links<T> {
    next: u64,
    all: BTreeMap<ConnId, Entry<T>>,
    actions: VecDeque<Action>,
}

#[derive(Debug)]
struct Entry<T> {
    link: Link,
    what: T,
    /// An [`Action::Transmit`] is on its way already.
    is_announced: bool,
    /// It is to be closed as soon as everything is sent; nothing is read any more.
    is_closing: bool,
}

impl<T> Links<T> {
    pub(crate) const fn new() -> Self {
        Self { next: 0, all: BTreeMap::new(), actions: VecDeque::new() }
    }

    /// What the next connection will be called; all that there are come before it.
    pub(crate) const fn next(&self) -> ConnId {
        ConnId::new(self.next)
    }

    /// Somebody has connected.
    pub(crate) fn accept(&mut self, link: Link, what: T) -> ConnId {
        let conn = self.add(link, what);
        self.announce(conn);
        conn
    }

    /// Asks for a connection.
    pub(crate) fn connect(&mut self, address: String, delay: Duration, link: Link, what: T) -> ConnId {
        let conn = self.add(link, what);
        self.actions.push_back(Action::Connect { conn, address, delay });
        conn
    }

    /// Such a connection is there.
    pub(crate) fn connected(&mut self, conn: ConnId) {
        self.announce(conn);
    }

    /// Takes bytes from the front of `bytes` until a message is complete, or all if nothing is read any more.
    pub(crate) fn receive(&mut self, conn: ConnId, bytes: &mut &[u8]) -> Result<Option<Message>, LinkError> {
        let Some(entry) = self.all.get_mut(&conn).filter(|entry| !entry.is_closing) else {
            *bytes = &[];
            return Ok(None);
        };
        let result = entry.link.receive(bytes);
        self.announce(conn);
        result
    }

    pub(crate) fn send(&mut self, conn: ConnId, payload: &[u8]) {
        if let Some(entry) = self.all.get_mut(&conn).filter(|entry| !entry.is_closing) {
            entry.link.send(payload);
            self.announce(conn);
        }
    }

    /// Closes a connection at once.
    pub(crate) fn close(&mut self, conn: ConnId) -> Option<T> {
        let what = self.remove(conn)?;
        self.actions.push_back(Action::Close(conn));
        Some(what)
    }

    /// Closes a connection when everything is sent.
    pub(crate) fn close_when_sent(&mut self, conn: ConnId) {
        if let Some(entry) = self.all.get_mut(&conn) {
            entry.is_closing = true;
            if entry.link.poll_transmit().is_none() || !entry.link.is_open() {
                self.close(conn);
            }
        }
    }

    /// It is closed already.
    pub(crate) fn remove(&mut self, conn: ConnId) -> Option<T> {
        self.all.remove(&conn).map(|entry| entry.what)
    }

    pub(crate) fn get(&self, conn: ConnId) -> Option<(&Link, &T)> {
        self.all.get(&conn).map(|entry| (&entry.link, &entry.what))
    }

    pub(crate) fn what_mut(&mut self, conn: ConnId) -> Option<&mut T> {
        self.all.get_mut(&conn).map(|entry| &mut entry.what)
    }

    /// The connections that are not about to be closed, oldest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (ConnId, &T)> {
        self.all.iter().filter(|(_, entry)| !entry.is_closing).map(|(conn, entry)| (*conn, &entry.what))
    }

    /// The connections that wait until everything is sent are not waited for any longer.
    pub(crate) fn close_closing(&mut self) {
        let actions = &mut self.actions;
        self.all.retain(|conn, entry| {
            if entry.is_closing {
                actions.push_back(Action::Close(*conn));
            }
            !entry.is_closing
        });
    }

    pub(crate) fn has_closing(&self) -> bool {
        self.all.values().any(|entry| entry.is_closing)
    }

    pub(crate) fn poll_action(&mut self) -> Option<Action> {
        let action = self.actions.pop_front()?;
        if let Action::Transmit(conn) = action
            && let Some(entry) = self.all.get_mut(&conn)
        {
            entry.is_announced = false;
        }
        Some(action)
    }

    pub(crate) fn poll_transmit(&self, conn: ConnId) -> Option<&[u8]> {
        self.all.get(&conn)?.link.poll_transmit()
    }

    pub(crate) fn transmitted(&mut self, conn: ConnId, n: usize) {
        let Some(entry) = self.all.get_mut(&conn) else { return };
        entry.link.transmitted(n);
        if entry.is_closing && entry.link.poll_transmit().is_none() {
            self.close(conn);
        }
    }

    fn add(&mut self, link: Link, what: T) -> ConnId {
        let conn = ConnId::new(self.next);
        self.next += 1;
        self.all.insert(conn, Entry { link, what, is_announced: false, is_closing: false });
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
