//! A machine that moves frames as one of bulk data would, and two drivers with one on each side, for the tests of `net_*`.
//!
//! A frame is its length, four bytes, and its payload. What is received has room for so many frames, and no more is read until
//! some of them are released.

use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use cuframes_mio::Pollable;
use cuframes_mio::core::Instant;
use cuframes_mio::core::streams::{Action, ConnId, Machine};
use cuframes_mio::net::{Carrier, Driver, Endpoint, Listeners, SocketOptions};

use crate::common::until;

#[derive(Debug, Default)]
pub(crate) struct Bulk {
    next: u64,
    conns: BTreeMap<ConnId, Stream>,
    actions: VecDeque<Action>,
    events: VecDeque<Told>,
    /// How many more frames it takes.
    pub(crate) room: usize,
    /// Who takes a frame makes room for another one.
    pub(crate) room_when_told: bool,
    /// Connections after the first one are not for frames: each byte that comes there makes room for one.
    pub(crate) room_by_others: bool,
    /// When there is room for one more.
    pub(crate) room_at: Option<Instant>,
    /// Payloads are sent in parts of so many bytes.
    pub(crate) piece: usize,
    /// Bytes that were read straight to a frame, and that came by way of the driver's memory.
    pub(crate) straight: usize,
    pub(crate) by_way: usize,
    /// Bytes sent.
    pub(crate) sent: usize,
    /// The most parts that were sent at once.
    pub(crate) parts: Cell<usize>,
    /// The most bytes that had to be kept because there was no room.
    pub(crate) kept: usize,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Told {
    Accepted(ConnId),
    Connected(ConnId),
    Frame(ConnId, Vec<u8>),
    Ended(ConnId),
}

/// One connection.
#[derive(Debug, Default)]
struct Stream {
    out: VecDeque<([u8; 4], Arc<[u8]>)>,
    /// How much of the first of them was sent.
    sent: usize,
    head: Vec<u8>,
    /// The frame that comes, and how much of it is there.
    body: Option<(Vec<u8>, usize)>,
    /// What came when there was no room.
    rest: VecDeque<u8>,
}

impl Bulk {
    /// With room for so many frames.
    pub(crate) fn new(room: usize) -> Self {
        Self { room, piece: usize::MAX, ..Self::default() }
    }

    fn is_other(&self, conn: ConnId) -> bool {
        self.room_by_others && conn > ConnId::new(1)
    }

    fn open(&mut self) -> ConnId {
        self.next += 1;
        self.conns.insert(ConnId::new(self.next), Stream::default());
        ConnId::new(self.next)
    }

    pub(crate) fn connect(&mut self, endpoint: &Endpoint) -> ConnId {
        let (conn, address) = (self.open(), endpoint.to_string());
        self.actions.push_back(Action::Connect { conn, address, delay: Duration::ZERO });
        conn
    }

    pub(crate) fn send(&mut self, conn: ConnId, frame: impl Into<Arc<[u8]>>) {
        let frame = frame.into();
        let head = u32::try_from(frame.len()).unwrap().to_le_bytes();
        self.conns.get_mut(&conn).unwrap().out.push_back((head, frame));
        self.actions.push_back(Action::Transmit(conn));
    }

    pub(crate) fn close(&mut self, conn: ConnId) {
        self.conns.remove(&conn);
        self.actions.push_back(Action::Close(conn));
    }

    /// Makes room for one more frame.
    pub(crate) fn release(&mut self) {
        self.room += 1;
        let conns: Vec<_> = self.conns.keys().copied().collect();
        conns.into_iter().for_each(|conn| self.digest(conn));
    }

    pub(crate) fn is_sent(&self) -> bool {
        self.conns.values().all(|stream| stream.out.is_empty())
    }

    /// Uses what is kept, as far as there is room.
    fn digest(&mut self, conn: ConnId) {
        while self.is_hungry(conn) {
            let Some(stream) = self.conns.get_mut(&conn) else { return };
            if let Some((body, have)) = &mut stream.body {
                let n = stream.rest.len().min(body.len() - *have);
                body[*have..][..n].iter_mut().zip(stream.rest.drain(..n)).for_each(|(to, from)| *to = from);
                *have += n;
                if *have < body.len() {
                    return;
                }
                self.complete(conn);
            } else {
                let Some(byte) = stream.rest.pop_front() else { return };
                stream.head.push(byte);
                if let Ok(len) = <[u8; 4]>::try_from(stream.head.as_slice()) {
                    stream.head.clear();
                    stream.body = Some((vec![0; usize::try_from(u32::from_le_bytes(len)).unwrap()], 0));
                    self.room -= 1;
                }
            }
        }
        self.kept = self.kept.max(self.conns.get(&conn).map_or(0, |stream| stream.rest.len()));
    }

    fn complete(&mut self, conn: ConnId) {
        let stream = self.conns.get_mut(&conn).unwrap();
        if let Some((body, _)) = stream.body.take_if(|(body, have)| *have == body.len()) {
            self.events.push_back(Told::Frame(conn, body));
        }
    }
}

impl Machine for Bulk {
    type Event = Told;

    fn handle_accepted(&mut self, _: Instant, _: usize) -> Option<ConnId> {
        let conn = self.open();
        self.events.push_back(Told::Accepted(conn));
        Some(conn)
    }

    fn handle_connected(&mut self, _: Instant, conn: ConnId) {
        self.events.push_back(Told::Connected(conn));
        self.actions.push_back(Action::Transmit(conn));
    }

    fn handle_bytes(&mut self, _: Instant, conn: ConnId, bytes: &[u8]) {
        assert!(self.is_hungry(conn), "read although there is no room");
        if self.is_other(conn) {
            return bytes.iter().for_each(|_| self.release());
        }
        self.by_way += bytes.len();
        let Some(stream) = self.conns.get_mut(&conn) else { return };
        stream.rest.extend(bytes);
        self.digest(conn);
    }

    fn handle_eof(&mut self, _: Instant, conn: ConnId) {
        self.conns.remove(&conn);
        self.events.push_back(Told::Ended(conn));
    }

    fn handle_timeout(&mut self, now: Instant) {
        if self.room_at.take_if(|at| *at <= now).is_some() {
            self.release();
        }
    }

    fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    fn poll_transmit(&self, conn: ConnId) -> Option<&[u8]> {
        let mut part = [[].as_slice()];
        (self.poll_transmit_vectored(conn, &mut part) == 1).then_some(part[0])
    }

    fn transmitted(&mut self, conn: ConnId, n: usize) {
        self.sent += n;
        let stream = self.conns.get_mut(&conn).unwrap();
        stream.sent += n;
        while let Some((_, body)) = stream.out.front()
            && stream.sent >= 4 + body.len()
        {
            stream.sent -= 4 + body.len();
            stream.out.pop_front();
        }
        assert!(!stream.out.is_empty() || stream.sent == 0, "more was sent than there was");
    }

    fn poll_event(&mut self) -> Option<Told> {
        let event = self.events.pop_front()?;
        if self.room_when_told && matches!(event, Told::Frame(..)) {
            self.release();
        }
        Some(event)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.room_at
    }

    fn poll_transmit_vectored<'a>(&'a self, conn: ConnId, parts: &mut [&'a [u8]]) -> usize {
        let Some(stream) = self.conns.get(&conn) else { return 0 };
        let mut skip = stream.sent;
        let all = stream.out.iter().flat_map(|(head, body)| {
            std::iter::once(head.as_slice()).chain(body.chunks(self.piece.min(body.len().max(1))))
        });
        let left = all.filter_map(|part| {
            let left = part.get(skip..).filter(|left| !left.is_empty());
            skip = skip.saturating_sub(part.len());
            left
        });
        let count = parts.iter_mut().zip(left).map(|(part, left)| *part = left).count();
        self.parts.set(self.parts.get().max(count));
        count
    }

    fn poll_receive(&mut self, conn: ConnId) -> Option<&mut [u8]> {
        let (body, have) = self.conns.get_mut(&conn)?.body.as_mut()?;
        body.get_mut(*have..)
    }

    fn received(&mut self, _: Instant, conn: ConnId, n: usize) {
        self.straight += n;
        if let Some((_, have)) = &mut self.conns.get_mut(&conn).unwrap().body {
            *have += n;
        }
        self.complete(conn);
    }

    fn is_hungry(&self, conn: ConnId) -> bool {
        self.room > 0
            || self.is_other(conn)
            || self.conns.get(&conn).is_none_or(|stream| stream.body.is_some())
    }
}

/// A driver of one of them.
pub(crate) type Side<C> = Pollable<Driver<Bulk, C>>;

/// One that listens, and one that connects to it.
pub(crate) struct World<C: Carrier> {
    pub(crate) listening: Side<C>,
    pub(crate) connecting: Side<C>,
    pub(crate) endpoint: Endpoint,
    /// What the one that listens was told.
    pub(crate) heard: Vec<Told>,
    _dir: tempfile::TempDir,
}

/// Over what.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Way {
    Tcp,
    Unix,
}

impl<C: Carrier> World<C> {
    /// The receiver listens, and has room for so many frames.
    pub(crate) fn new(way: Way, room: usize, options: SocketOptions, carrier: impl Fn() -> C) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let endpoint = match way {
            Way::Tcp => "tcp://127.0.0.1:0".parse().unwrap(),
            Way::Unix => Endpoint::from(dir.path().join("s").as_path()),
        };
        let listeners = Listeners::new([&endpoint]).unwrap();
        let endpoint = listeners.endpoints().next().unwrap().clone();
        let side = |room, listeners| {
            let driver = Driver::with_carrier(Bulk::new(room), listeners, carrier());
            Pollable::new(driver.socket_options(options).unwrap()).unwrap()
        };
        let (listening, connecting) = (side(room, listeners), side(usize::MAX, Listeners::default()));
        Self { listening, connecting, endpoint, heard: Vec::new(), _dir: dir }
    }

    /// Connects, and sends these.
    pub(crate) fn send(&mut self, frames: &[Vec<u8>]) -> ConnId {
        let endpoint = self.endpoint.clone();
        let command = |bulk: &mut Bulk, _| {
            let conn = bulk.connect(&endpoint);
            frames.iter().for_each(|frame| bulk.send(conn, frame.as_slice()));
            conn
        };
        self.connecting.command(command).unwrap()
    }

    /// Lets both sides do what there is to do.
    pub(crate) fn turn(&mut self) {
        let _ = self.connecting.turn().unwrap();
        self.listen();
    }

    /// Lets the side that listens do what there is to do.
    pub(crate) fn listen(&mut self) {
        let _ = self.listening.turn().unwrap();
        self.hear();
    }

    pub(crate) fn hear(&mut self) {
        let poll =
            |driver: &mut Driver<Bulk, C>| std::iter::from_fn(|| driver.poll_event()).collect::<Vec<_>>();
        self.heard.extend(self.listening.with(poll).unwrap());
    }

    /// The payloads of all frames so far.
    pub(crate) fn frames(&self) -> Vec<&[u8]> {
        let heard = self.heard.iter();
        heard
            .filter_map(|told| if let Told::Frame(_, frame) = told { Some(frame.as_slice()) } else { None })
            .collect()
    }

    /// Turns until so many frames are there.
    pub(crate) fn until_frames(&mut self, count: usize) {
        until("frames", || {
            self.turn();
            self.frames().len() >= count
        });
        assert_eq!(self.frames().len(), count);
    }
}

/// A frame of `len` bytes that looks like no other.
pub(crate) fn frame(number: usize, len: usize) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(u64::try_from(number).unwrap());
    std::iter::repeat_with(|| random.u8(..)).take(len).collect()
}
