//! [`Intake`]: the frames of other hosts on their way into streams of this one.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::time::Duration;

use cuframes_bridge::stream::{
    FarTimes, Fate, FrameInfo, Greeting, LinkFault, Received, Receiver, ReceiverEvent,
};
use cuframes_core::ring::ClaimAsError;
use cuframes_core::streams::ConnId;
use cuframes_core::wire::ShutdownReason;
use cuframes_core::{Instant, Key, Policy, RingSize, Timeouts};
use mio::{Registry, Token};

use super::station::{Ending, LOOK_AGAIN, Station};
use crate::clock;
use crate::net::{Carrier, Driver, Plain};
use crate::pollable::{EventSource, Turn};
use crate::producer::mapped_bytes;
use crate::publisher::Publisher;

/// What a receiver of frames tells.
#[derive(Debug)]
#[non_exhaustive]
pub enum IntakeEvent {
    /// A sender has said which stream it has.
    Joined {
        /// The stream, as it is called there.
        key: Key,
        /// See [`Greeting::strict`].
        strict: bool,
    },
    /// A stream is published from now on.
    Published {
        /// The stream, as it is called here.
        key: Key,
        /// Its first frame.
        info: FrameInfo,
    },
    /// A frame was published.
    Frame {
        /// The stream, as it is called here.
        key: Key,
        /// The frame.
        info: FrameInfo,
        /// Where its time went.
        times: HopTimes,
    },
    /// A frame was not published.
    NotPublished {
        /// The stream, as it is called there.
        key: Key,
        /// Its number.
        seq: u64,
        /// What its sender was told.
        fate: Fate,
    },
    /// A frame that was [asked for](Intake::fetch).
    Fetched {
        /// The stream, as it is called there.
        key: Key,
        /// The frame.
        info: FrameInfo,
        /// Its valid bytes.
        bytes: Vec<u8>,
    },
    /// A frame that was asked for does not come.
    NotFetched {
        /// The stream, as it is called there.
        key: Key,
        /// Why.
        why: String,
    },
    /// A sender is gone. Its stream stays for a while, for the next one.
    Left {
        /// The stream, as it is called there, if it said it.
        key: Option<Key>,
        /// What was wrong, if anything was.
        fault: Option<LinkFault>,
    },
    /// A stream is published no more.
    Ended {
        /// The stream, as it is called here.
        key: Key,
    },
}

/// Where the time of a frame went between the two hosts.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub struct HopTimes {
    /// From its time stamp to the beginning of the sending, in nanoseconds of the sender's clock; 0 if that is not known.
    pub before_ns: u64,
    /// From its first byte to its last, in nanoseconds of the receiver's clock.
    pub wire_ns: u64,
    /// The wait for a slot, and from its last byte until it was published, in nanoseconds of the receiver's clock.
    pub publish_ns: u64,
}

/// How streams are published here.
#[derive(Clone, Debug)]
pub(super) struct Terms {
    /// The only stream that is wanted.
    pub(super) key: Option<Key>,
    /// What comes before a stream's name here.
    pub(super) prefix: String,
    /// Nothing is published: frames are asked for.
    pub(super) on_demand: bool,
    pub(super) ring_size: Option<RingSize>,
    pub(super) policy: Option<Policy>,
    pub(super) timeouts: Timeouts,
    pub(super) run_dir: Option<std::path::PathBuf>,
    /// Bytes of shared memory for all streams.
    pub(super) memory: u64,
    /// How long a stream without a sender is kept.
    pub(super) linger: Duration,
}

/// Streams of other hosts, published here: an [`EventSource`].
#[derive(Debug)]
pub struct Intake<C: Carrier = Plain> {
    driver: Driver<Receiver<Place>, C>,
    terms: Terms,
    /// Who has said which stream it has.
    peers: HashMap<ConnId, Greeting>,
    /// By their names here.
    berths: HashMap<Key, Berth>,
    endings: Vec<(Key, Ending)>,
    /// Bytes of shared memory that are in use.
    used: u64,
    /// Frames that have no place yet.
    waiting: Vec<(ConnId, FrameInfo)>,
    look_again: Option<Instant>,
    events: VecDeque<IntakeEvent>,
}

/// Where a stream is.
#[derive(Debug)]
enum Berth {
    /// Here; without a sender since then.
    Here(Box<Station>, Option<Instant>),
    /// A frame of it is being received.
    Away,
}

/// Where the bytes of a frame go.
#[derive(Debug)]
pub(super) enum Place {
    Slot(Box<Station>),
    Bytes(Vec<u8>),
}

impl AsMut<[u8]> for Place {
    fn as_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Slot(station) => station.as_mut().as_mut(),
            Self::Bytes(bytes) => bytes,
        }
    }
}

/// What is to be done about a frame that is offered.
enum Decision {
    Receive(Place),
    Skip(Fate),
    Wait,
}

impl<C: Carrier> Intake<C> {
    pub(super) fn new(driver: Driver<Receiver<Place>, C>, terms: Terms) -> Self {
        Self {
            driver,
            terms,
            peers: HashMap::new(),
            berths: HashMap::new(),
            endings: Vec::new(),
            used: 0,
            waiting: Vec::new(),
            look_again: None,
            events: VecDeque::new(),
        }
    }

    /// The next thing that happened.
    pub fn poll_event(&mut self) -> Option<IntakeEvent> {
        self.events.pop_front()
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
        self.pump(now);
        true
    }

    /// Ends all streams, and closes every connection; the senders look for the next receiver. Blocks for as long as subscribers
    /// have their streams open, a second at most.
    pub fn shut_down(&mut self, now: Instant) {
        self.driver.command(now, Receiver::shut_down);
        self.pump(now);
        let keys: Vec<Key> = self.berths.keys().cloned().collect();
        keys.iter().for_each(|key| self.end(key, ShutdownReason::NORMAL));
        self.endings.drain(..).for_each(|(_, ending)| ending.wait());
    }

    /// Passes on what has happened, and finds places for frames.
    fn pump(&mut self, now: Instant) {
        loop {
            self.reap();
            while let Some(event) = self.driver.poll_event() {
                self.hear(now, event);
            }
            let waiting = self.waiting.len();
            for (conn, info) in std::mem::take(&mut self.waiting) {
                self.offered(now, conn, &info);
            }
            // What has found a place may be complete already, and another one begun.
            if self.waiting.len() == waiting {
                break;
            }
        }
        self.look_again = (!self.waiting.is_empty()).then(|| now + LOOK_AGAIN);
    }

    fn hear(&mut self, now: Instant, event: ReceiverEvent<Place>) {
        match event {
            ReceiverEvent::Announced { conn, greeting } => self.greet(now, conn, greeting),
            ReceiverEvent::Offered { conn, info, is_fetched: false } => self.offered(now, conn, &info),
            ReceiverEvent::Offered { conn, info, .. } => self.offered_on_demand(now, conn, &info),
            ReceiverEvent::Complete { conn, frame } => self.complete(conn, frame),
            ReceiverEvent::NotFetched { conn, why } => {
                if let Some(key) = self.key_of(conn) {
                    self.events.push_back(IntakeEvent::NotFetched { key, why });
                }
            }
            ReceiverEvent::Left { conn, key, fault, place } => {
                if let Some(Place::Slot(mut station)) = place {
                    station.cancel();
                    self.berths.insert(station.key.clone(), Berth::Here(station, None));
                }
                self.waiting.retain(|(other, _)| *other != conn);
                if let Some(Berth::Here(_, alone)) =
                    self.peers.remove(&conn).and_then(|peer| self.berth(&peer.key))
                {
                    *alone = Some(now);
                }
                self.events.push_back(IntakeEvent::Left { key, fault });
            }
            _ => {}
        }
    }

    fn greet(&mut self, now: Instant, conn: ConnId, greeting: Greeting) {
        let Greeting { key, strict, .. } = &greeting;
        if self.terms.key.as_ref().is_some_and(|wanted| wanted != key) {
            let why = format!("stream {key} is not wanted here");
            self.driver.command(now, |receiver| receiver.refuse(now, conn, &why));
        } else if let Err(why) = self.name(key) {
            self.driver.command(now, |receiver| receiver.refuse(now, conn, &why));
        } else {
            self.events.push_back(IntakeEvent::Joined { key: key.clone(), strict: *strict });
            if let Some(Berth::Here(_, alone)) = self.berth(key) {
                *alone = None;
            }
            self.peers.insert(conn, greeting);
        }
    }

    fn offered(&mut self, now: Instant, conn: ConnId, info: &FrameInfo) {
        match self.decide(conn, info) {
            Decision::Wait => self.waiting.push((conn, *info)),
            Decision::Skip(fate) => self.skip(now, conn, info.seq, fate),
            Decision::Receive(place) => self.receive(now, conn, place),
        }
    }

    fn offered_on_demand(&mut self, now: Instant, conn: ConnId, info: &FrameInfo) {
        match usize::try_from(info.written_bytes).ok().filter(|_| info.written_bytes <= self.terms.memory) {
            Some(len) => self.receive(now, conn, Place::Bytes(vec![0; len])),
            None => self.skip(now, conn, info.seq, Fate::Refused(self.too_large(info.written_bytes))),
        }
    }

    fn receive(&mut self, now: Instant, conn: ConnId, place: Place) {
        if let Err(Place::Slot(mut station)) =
            self.driver.command(now, |receiver| receiver.receive(now, conn, place))
        {
            // The sender is gone.
            station.cancel();
            self.berths.insert(station.key.clone(), Berth::Here(station, Some(now)));
        }
    }

    fn skip(&mut self, now: Instant, conn: ConnId, seq: u64, fate: Fate) {
        let told = fate.clone();
        self.driver.command(now, |receiver| receiver.skip(now, conn, told));
        if let Some(key) = self.key_of(conn) {
            self.events.push_back(IntakeEvent::NotPublished { key, seq, fate });
        }
    }

    /// Where a frame is to go.
    fn decide(&mut self, conn: ConnId, info: &FrameInfo) -> Decision {
        if self.terms.on_demand {
            return Decision::Skip(Fate::Skipped("frames are asked for here".into()));
        }
        let Some(greeting) = self.peers.get(&conn) else { return Decision::Wait };
        let ring_size = self.terms.ring_size.unwrap_or(greeting.ring_size);
        let Ok(key) = self.name(&greeting.key) else { return Decision::Wait };
        if self.endings.iter().any(|(ending, _)| *ending == key) {
            return Decision::Wait;
        }
        match self.berths.get_mut(&key) {
            Some(Berth::Away) => return Decision::Wait,
            Some(Berth::Here(station, _)) if !station.is_of(info) => {
                self.end(&key, ShutdownReason::UPGRADE);
                return Decision::Wait;
            }
            Some(Berth::Here(..)) => {}
            None => {
                if let Err(why) = self.open(&key, info, ring_size) {
                    return Decision::Skip(Fate::Refused(why));
                }
            }
        }
        let Some(Berth::Here(mut station, alone)) = self.berths.remove(&key) else { return Decision::Wait };
        match station.claim(info) {
            Ok(()) => {
                self.berths.insert(key, Berth::Away);
                Decision::Receive(Place::Slot(station))
            }
            Err(error) => {
                let waits = station.waits();
                self.berths.insert(key, Berth::Here(station, alone));
                match error {
                    ClaimAsError::Stalled(_) if waits => Decision::Wait,
                    ClaimAsError::Passed { .. } => Decision::Skip(Fate::Had),
                    error => Decision::Skip(Fate::Skipped(error.to_string())),
                }
            }
        }
    }

    /// Publishes a stream.
    fn open(&mut self, key: &Key, info: &FrameInfo, ring_size: RingSize) -> Result<(), String> {
        let bytes = mapped_bytes(&info.meta, ring_size);
        if bytes > self.terms.memory.saturating_sub(self.used) {
            return Err(self.too_large(bytes));
        }
        let mut builder = Publisher::builder(key.clone(), info.meta)
            .ring_size(ring_size)
            .policy(self.terms.policy.unwrap_or(info.policy))
            .timeouts(self.terms.timeouts);
        if let Some(run_dir) = &self.terms.run_dir {
            builder = builder.run_dir(run_dir);
        }
        let station = Station::open(builder, info, bytes).map_err(|error| error.to_string())?;
        self.used += bytes;
        self.berths.insert(key.clone(), Berth::Here(station, None));
        self.events.push_back(IntakeEvent::Published { key: key.clone(), info: *info });
        Ok(())
    }

    fn complete(&mut self, conn: ConnId, frame: Received<Place>) {
        let Received { info, place, is_whole, .. } = frame;
        match place {
            Place::Slot(mut station) => {
                let key = station.key.clone();
                if is_whole {
                    station.commit(&info);
                } else {
                    station.cancel();
                }
                self.berths.insert(key.clone(), Berth::Here(station, None));
                let now = clock::now();
                let times = self.driver.command(now, |receiver| receiver.settle(now, conn, None));
                if let Some(FarTimes { wire_ns, publish_ns }) = times {
                    let times = HopTimes { before_ns: info.before_ns, wire_ns, publish_ns };
                    self.events.push_back(IntakeEvent::Frame { key, info, times });
                } else if let Some(key) = self.key_of(conn) {
                    let fate = Fate::Skipped("it was overwritten while it was sent".into());
                    self.events.push_back(IntakeEvent::NotPublished { key, seq: info.seq, fate });
                }
            }
            Place::Bytes(bytes) => {
                let now = clock::now();
                let _ = self.driver.command(now, |receiver| receiver.settle(now, conn, None));
                let Some(key) = self.key_of(conn) else { return };
                self.events.push_back(if is_whole {
                    IntakeEvent::Fetched { key, info, bytes }
                } else {
                    IntakeEvent::NotFetched { key, why: "it was overwritten while it was sent".into() }
                });
            }
        }
    }

    /// Ends a stream that is here.
    fn end(&mut self, key: &Key, reason: ShutdownReason) {
        match self.berths.remove(key) {
            Some(Berth::Here(station, _)) => {
                // Without a thread it has ended when this returns.
                let bytes = station.bytes;
                match station.end(reason) {
                    Ok(ending) => self.endings.push((key.clone(), ending)),
                    Err(_) => self.used -= bytes,
                }
                self.events.push_back(IntakeEvent::Ended { key: key.clone() });
            }
            Some(away) => _ = self.berths.insert(key.clone(), away),
            None => {}
        }
    }

    /// Streams that have ended are gone.
    fn reap(&mut self) {
        let used = &mut self.used;
        self.endings.retain(|(_, ending)| {
            let is_over = ending.is_over();
            if is_over {
                *used -= ending.bytes;
            }
            !is_over
        });
    }

    fn key_of(&self, conn: ConnId) -> Option<Key> {
        self.peers.get(&conn).map(|peer| peer.key.clone())
    }

    /// What a stream of another host is called here.
    fn name(&self, key: &Key) -> Result<Key, String> {
        let name = format!("{}{key}", self.terms.prefix);
        name.parse().map_err(|error| format!("stream {key} can't be called {name} here: {error}"))
    }

    fn berth(&mut self, key: &Key) -> Option<&mut Berth> {
        let name = self.name(key).ok()?;
        self.berths.get_mut(&name)
    }

    fn too_large(&self, bytes: u64) -> String {
        let Self { terms: Terms { memory, .. }, used, .. } = self;
        format!(
            "it needs {bytes} bytes of memory; of {memory} that may be used {} are left",
            memory.saturating_sub(*used)
        )
    }
}

impl<C: Carrier> EventSource for Intake<C> {
    const TOKENS: usize = Driver::<Receiver<Place>, C>::TOKENS;

    fn register(&mut self, registry: &Registry, first_token: Token) -> io::Result<()> {
        self.driver.register(registry, first_token)
    }

    fn handle_event(&mut self, token: Token, now: Instant) -> io::Result<Turn> {
        let turn = self.driver.handle_event(token, now)?;
        self.pump(now);
        Ok(turn)
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.driver.handle_timeout(now);
        let linger = self.terms.linger;
        let alone = self
            .berths
            .iter()
            .filter(|(_, berth)| matches!(berth, Berth::Here(_, Some(since)) if *since + linger <= now));
        for key in alone.map(|(key, _)| key.clone()).collect::<Vec<_>>() {
            self.end(&key, ShutdownReason::NORMAL);
        }
        self.pump(now);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let alone = self.berths.values().filter_map(|berth| match berth {
            Berth::Here(_, Some(since)) => Some(*since + self.terms.linger),
            _ => None,
        });
        alone.chain(self.look_again).chain(self.driver.poll_timeout()).min()
    }
}
