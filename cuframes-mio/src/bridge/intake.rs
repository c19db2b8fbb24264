//! [`Intake`]: the frames of other hosts on their way into streams of this one.

use std::collections::HashMap;
use std::io;

use cuframes_bridge::stream::{FarTimes, Fate, FrameInfo, Greeting, Received, Receiver, ReceiverEvent, TORN};
use cuframes_core::streams::ConnId;
use cuframes_core::{Instant, Key};
use mio::{Registry, Token};

use super::event::{HopTimes, IntakeEvent};
use super::streams::{Decision, LOOK_AGAIN, Place, Streams, Terms};
use crate::clock;
use crate::net::{Carrier, Driver, Plain};
use crate::pollable::{EventSource, Turn};

/// Streams of other hosts, published here: an [`EventSource`].
#[derive(Debug)]
pub struct Intake<C: Carrier = Plain> {
    driver: Driver<Receiver<Place>, C>,
    streams: Streams,
    /// Who has said which stream it has.
    peers: HashMap<ConnId, Greeting>,
    /// Frames that have no place yet.
    waiting: Vec<(ConnId, FrameInfo)>,
    look_again: Option<Instant>,
}

impl<C: Carrier> Intake<C> {
    pub(super) fn new(driver: Driver<Receiver<Place>, C>, terms: Terms) -> Self {
        Self {
            driver,
            streams: Streams::new(terms),
            peers: HashMap::new(),
            waiting: Vec::new(),
            look_again: None,
        }
    }

    /// The next thing that happened; the last 1024 are kept.
    pub fn poll_event(&mut self) -> Option<IntakeEvent> {
        self.streams.events.pop()
    }

    /// How many senders are connected.
    #[must_use]
    pub fn senders(&self) -> usize {
        self.driver.machine().senders()
    }

    /// Asks the sender of a stream, by its name there, for a frame, by its number, or for the newest. It is
    /// [`IntakeEvent::Fetched`], and not published. `false` if no sender of it is there.
    pub fn fetch(&mut self, now: Instant, key: &Key, seq: Option<u64>) -> bool {
        let Some(conn) = self.peers.iter().find(|(_, peer)| peer.key == *key).map(|(conn, _)| *conn) else {
            return false;
        };
        self.driver.command(now, |receiver| receiver.fetch(now, conn, seq));
        let _ = self.pump(now);
        true
    }

    /// Ends all streams, and closes every connection; the senders look for the next receiver. Blocks for as long as subscribers
    /// have their streams open, a second at most.
    pub fn shut_down(&mut self, now: Instant) {
        self.driver.command(now, |receiver| receiver.shut_down(now));
        // Nothing more is read, so this comes to its end.
        while !self.pump(now) {}
        self.streams.end_all();
    }

    /// Passes on what has happened, and finds places for frames. Answers whether that was all: where frames come without end,
    /// others have their turn in between.
    fn pump(&mut self, now: Instant) -> bool {
        let mut budget = BUDGET;
        let is_all = loop {
            self.streams.reap();
            while let Some(event) = (budget > 0).then(|| self.driver.poll_event()).flatten() {
                budget -= 1;
                self.hear(now, event);
            }
            let waiting = self.waiting.len();
            for (conn, info) in std::mem::take(&mut self.waiting) {
                self.offered(now, conn, &info);
            }
            if budget == 0 {
                break false;
            }
            // What has found a place may be complete already, and another one begun.
            if self.waiting.len() == waiting {
                break true;
            }
        };
        let waits = !self.waiting.is_empty() && !self.streams.is_complete() || self.streams.has_forsaken();
        let at = if is_all { now + LOOK_AGAIN } else { now };
        self.look_again = (waits || !is_all).then_some(at);
        is_all
    }

    fn hear(&mut self, now: Instant, event: ReceiverEvent<Place>) {
        match event {
            ReceiverEvent::Announced { conn, greeting } => self.greet(now, conn, greeting),
            ReceiverEvent::Offered { conn, info, is_fetched: false } => self.offered(now, conn, &info),
            ReceiverEvent::Offered { conn, info, .. } => self.offered_on_demand(now, conn, &info),
            ReceiverEvent::Complete { conn, frame } => self.complete(conn, frame),
            ReceiverEvent::NotFetched { conn, why } => {
                if let Some(key) = self.key_of(conn) {
                    self.streams.events.push(IntakeEvent::NotFetched { key, why });
                }
            }
            ReceiverEvent::Left { conn, key, fault, place } => {
                if let Some(Place::Slot(mut station)) = place {
                    station.cancel();
                    self.streams.put(station, None);
                }
                self.waiting.retain(|(other, _)| *other != conn);
                if let Some(peer) = self.peers.remove(&conn) {
                    self.streams.left(now, &peer.key);
                }
                self.streams.events.push(IntakeEvent::Left { key, fault });
            }
            _ => {}
        }
    }

    fn greet(&mut self, now: Instant, conn: ConnId, greeting: Greeting) {
        let Greeting { key, strict, .. } = &greeting;
        if !self.streams.wants(key) {
            let why = format!("stream {key} is not wanted here");
            self.driver.command(now, |receiver| receiver.refuse(now, conn, &why));
        } else if let Err(why) = self.streams.name(key) {
            self.driver.command(now, |receiver| receiver.refuse(now, conn, &why));
        } else {
            self.streams.events.push(IntakeEvent::Joined { key: key.clone(), strict: *strict });
            self.streams.joined(key);
            self.peers.insert(conn, greeting);
        }
    }

    fn offered(&mut self, now: Instant, conn: ConnId, info: &FrameInfo) {
        // Without a greeting it is of somebody who is gone: that is heard next.
        let decision =
            self.peers.get(&conn).map_or(Decision::Wait, |greeting| self.streams.decide(greeting, info));
        match decision {
            Decision::Wait => self.waiting.push((conn, *info)),
            Decision::Skip(fate) => self.skip(now, conn, info.seq, fate),
            Decision::Receive(place) => self.receive(now, conn, place),
        }
    }

    fn offered_on_demand(&mut self, now: Instant, conn: ConnId, info: &FrameInfo) {
        match self.streams.room_for(info.written_bytes) {
            Ok(len) => self.receive(now, conn, Place::Bytes(vec![0; len])),
            Err(why) => {
                self.driver.command(now, |receiver| receiver.skip(now, conn, Fate::Refused(why.clone())));
                if let Some(key) = self.key_of(conn) {
                    self.streams.events.push(IntakeEvent::NotFetched { key, why });
                }
            }
        }
    }

    fn receive(&mut self, now: Instant, conn: ConnId, place: Place) {
        if let Err(Place::Slot(mut station)) =
            self.driver.command(now, |receiver| receiver.receive(now, conn, place))
        {
            // The sender is gone.
            station.cancel();
            self.streams.put(station, Some(now));
        }
    }

    fn skip(&mut self, now: Instant, conn: ConnId, seq: u64, fate: Fate) {
        let told = fate.clone();
        self.driver.command(now, |receiver| receiver.skip(now, conn, told));
        if let Some(key) = self.key_of(conn) {
            self.streams.events.push(IntakeEvent::NotPublished { key, seq, fate });
        }
    }

    fn complete(&mut self, conn: ConnId, frame: Received<Place>) {
        let Received { info, place, is_whole, wire, .. } = frame;
        match place {
            Place::Slot(mut station) => {
                let key = station.key.clone();
                let fate = if !is_whole {
                    station.cancel();
                    station.numbers.leave_out(info.seq);
                    Some(Fate::Skipped(TORN.into()))
                } else if station.commit(&info) {
                    self.streams.count();
                    None
                } else {
                    Some(Fate::Skipped("its slot was taken away".into()))
                };
                self.streams.put(station, None);
                let now = clock::now();
                let told = fate.clone();
                let times = self.driver.command(now, |receiver| receiver.settle(now, conn, told));
                if let Some(fate) = fate {
                    let Some(key) = self.key_of(conn) else { return };
                    self.streams.events.push(IntakeEvent::NotPublished { key, seq: info.seq, fate });
                    return;
                }
                // Without its sender nobody else has noted them.
                let wire_ns = u64::try_from(wire.as_nanos()).unwrap_or(u64::MAX);
                let FarTimes { wire_ns, publish_ns } = times.unwrap_or(FarTimes { wire_ns, publish_ns: 0 });
                let times = HopTimes { before_ns: info.before_ns, wire_ns, publish_ns };
                self.streams.events.push(IntakeEvent::Frame { key, info, times });
            }
            Place::Bytes(bytes) => {
                let now = clock::now();
                let _ = self.driver.command(now, |receiver| receiver.settle(now, conn, None));
                let Some(key) = self.key_of(conn) else { return };
                self.streams.events.push(if is_whole {
                    IntakeEvent::Fetched { key, info, bytes }
                } else {
                    IntakeEvent::NotFetched { key, why: TORN.into() }
                });
            }
        }
    }

    fn key_of(&self, conn: ConnId) -> Option<Key> {
        self.peers.get(&conn).map(|peer| peer.key.clone())
    }
}

impl<C: Carrier> EventSource for Intake<C> {
    const TOKENS: usize = Driver::<Receiver<Place>, C>::TOKENS;

    fn register(&mut self, registry: &Registry, first_token: Token) -> io::Result<()> {
        self.driver.register(registry, first_token)
    }

    fn handle_event(&mut self, token: Token, now: Instant) -> io::Result<Turn> {
        let turn = self.driver.handle_event(token, now)?;
        let _ = self.pump(now);
        Ok(turn)
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.driver.handle_timeout(now);
        self.streams.handle_timeout(now);
        let _ = self.pump(now);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.streams.poll_timeout().into_iter().chain(self.look_again).chain(self.driver.poll_timeout()).min()
    }
}

impl<C: Carrier> Drop for Intake<C> {
    fn drop(&mut self) {
        self.shut_down(clock::now());
    }
}

/// Events heard in one turn.
const BUDGET: usize = 64;
