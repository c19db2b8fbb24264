//! A receiver of streams, its senders, and its owner.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use cuframes_bridge::stream::{Fate, LinkFault, Receiver, ReceiverConfig, ReceiverEvent};
use cuframes_core::Instant;
use cuframes_core::streams::{Action, ConnId, Machine as _};

use super::super::Script;
use super::frames::reason;
use super::peer::{Ends, FETCH_TIME, HELLO, LINGER, Peer, Place, STALL, Stage, UNTOUCHED};
use super::receiver_words::word;
use super::said::Item;

/// A receiver whose senders and whose owner do anything at any time. What it tells about a connection is what was said there, in
/// that order: who it is, then frames, with the very bytes, then its end, once, with the reason; however the bytes come, in
/// whatever memory. There is one connection for each stream, and never more than it bears. Each place comes back once. Its
/// senders are told what became of each frame, in order, and why they are turned away. Whatever was asked for comes, or is said
/// not to come. Nothing is kept but what came in one read; each deadline is kept, none is in the past; a shut-down ends.
///
/// The script is steps, whose lower three bits say what is done: somebody connects, says a word, or bytes, what was said
/// arrives, somebody hangs up, or reads, the owner does something, time passes.
pub fn bridge_receiver(data: &[u8]) {
    let mut script = Script(data);
    let mut config = ReceiverConfig::default();
    (config.senders, config.hello, config.stall, config.fetch) = (SENDERS, HELLO, STALL, FETCH_TIME);
    let mut scene = Scene {
        receiver: Receiver::new(config),
        now: Instant::ZERO,
        peers: BTreeMap::new(),
        places: BTreeSet::new(),
        next_place: 0,
        is_over: false,
    };
    while let Some(step) = script.next() {
        scene.step(step, &mut script);
        scene.look();
    }
    scene.end();
}

struct Scene {
    receiver: Receiver<Place>,
    now: Instant,
    peers: BTreeMap<ConnId, Peer>,
    /// Those that the receiver has.
    places: BTreeSet<usize>,
    next_place: usize,
    is_over: bool,
}

impl Scene {
    fn step(&mut self, step: u8, script: &mut Script<'_>) {
        let argument = step >> 3;
        // The newest first.
        let conn = self.peers.keys().rev().nth(usize::from(argument % 4) % self.peers.len().max(1)).copied();
        let [is_fast, is_owned, is_plain] = [4, 8, 16].map(|bit| argument & bit != 0);
        match (step % 8, conn) {
            (0, _) if argument == 31 => self.shut_down(),
            (0, _) => self.accept(),
            (1 | 2, Some(conn)) => {
                let peer = self.peers.get_mut(&conn).unwrap();
                if step % 8 == 1 {
                    let said = word(peer, script.byte(), script.byte());
                    peer.pending.extend(said);
                } else {
                    let len = script.byte();
                    peer.pending.extend(script.take(len));
                }
                for _ in 0..8 {
                    if is_fast {
                        self.deliver(conn, usize::MAX, is_plain, false);
                    }
                    if is_owned {
                        self.own(conn, 0);
                        self.own(conn, 8);
                    }
                }
            }
            (3, Some(conn)) => {
                let most = script.byte();
                if most == 254 {
                    self.flood(conn);
                }
                self.deliver(conn, if most < 254 { most.into() } else { usize::MAX }, is_plain, is_fast);
            }
            (4, _) if argument == 31 => self.stranger(),
            (4, Some(conn)) => {
                self.peers.get_mut(&conn).unwrap().ends = Ends::Closed;
                self.receiver.handle_eof(self.now, conn);
                self.hear();
                assert!(self.peers.remove(&conn).is_some_and(|peer| peer.left.is_some()));
                assert_eq!(self.receiver.poll_transmit(conn), None);
            }
            (5, Some(conn)) => {
                let most = script.byte();
                self.read(conn, if most == 255 { usize::MAX } else { most.into() });
            }
            (6, Some(conn)) => self.own(conn, script.byte()),
            (7, _) => {
                self.now = self.now + Duration::from_millis((10 << (argument / 4)) - 10);
                if argument % 4 < 3 {
                    self.time_out();
                }
            }
            _ => {}
        }
    }

    fn accept(&mut self) {
        let is_full = self.peers.len() >= SENDERS;
        let silent = self.peers.values_mut().find(|peer| peer.left.is_none() && peer.greeting.is_none());
        let is_wanted = !self.is_over && (!is_full || silent.is_some());
        if let Some(silent) = silent.filter(|_| is_full && !self.is_over) {
            silent.ends = Ends::Crowded;
        }
        let conn = self.receiver.handle_accepted(self.now, 0);
        assert_eq!(conn.is_some(), is_wanted);
        if let Some(conn) = conn {
            assert!(self.peers.insert(conn, Peer::new(self.now)).is_none());
        }
        self.hear();
    }

    /// So many bytes of what was said arrive, as long as the receiver reads, or anyhow.
    fn deliver(&mut self, conn: ConnId, mut most: usize, is_plain: bool, is_forced: bool) {
        while let Some(peer) = self.peers.get_mut(&conn)
            && most.min(peer.pending.len()) > 0
            && (is_forced || self.receiver.is_hungry(conn))
        {
            let len = most.min(peer.pending.len());
            let place = if is_plain { None } else { self.receiver.poll_receive(conn) };
            let bytes: Vec<u8> =
                peer.pending.drain(..place.as_ref().map_or(len, |place| len.min(place.len()))).collect();
            if let Some(place) = place {
                assert!(!place.is_empty());
                place.get_mut(..bytes.len()).unwrap().copy_from_slice(&bytes);
                self.receiver.received(self.now, conn, bytes.len());
            } else {
                self.receiver.handle_bytes(self.now, conn, &bytes);
            }
            most -= bytes.len();
            if peer.left.is_none() {
                peer.said.hear(&bytes);
                if peer.greeting.is_some() {
                    peer.moved = self.now;
                }
            }
            self.hear();
        }
    }

    /// More than the receiver keeps is said, while it does not read.
    fn flood(&mut self, conn: ConnId) {
        let peer = self.peers.get_mut(&conn).unwrap();
        if !peer.is_hungry() && peer.pending.len() < 1 << 20 {
            peer.pending.extend([0; 300_000]);
        }
    }

    fn read(&mut self, conn: ConnId, most: usize) {
        let Some(bytes) = self.receiver.poll_transmit(conn) else { return };
        let bytes: Vec<u8> = bytes.iter().copied().take(most).collect();
        let peer = self.peers.get_mut(&conn).unwrap();
        peer.hear(&bytes);
        self.receiver.transmitted(conn, bytes.len());
        if self.receiver.poll_transmit(conn).is_none() {
            peer.is_told = false;
        }
    }

    /// The owner does something about a connection.
    fn own(&mut self, conn: ConnId, how: u8) {
        match how % 16 {
            0..4 => self.receive(conn, 0),
            4 => self.receive(conn, 1),
            5 => self.skip(conn, Fate::Had),
            6 => self.skip(conn, Fate::Skipped(reason(how))),
            7 => self.skip(conn, Fate::Refused(reason(how))),
            8 | 9 => self.settle(conn, None),
            10 => self.settle(conn, Some(Fate::Skipped(reason(how)))),
            11 => self.fetch(conn, None),
            12 => self.fetch(conn, Some(u64::from(how / 16))),
            13 => {
                let why = reason(how);
                if let Some(peer) = self.peers.get_mut(&conn).filter(|peer| peer.left.is_none()) {
                    peer.ends = Ends::Refused(why.clone());
                }
                self.receiver.refuse(self.now, conn, &why);
            }
            14 => self.settle(conn, Some(Fate::Had)),
            _ => {
                for _ in 0..40 {
                    self.skip(conn, Fate::Skipped(reason(255)));
                    self.hear();
                    self.deliver(conn, usize::MAX, false, false);
                }
            }
        }
        self.hear();
    }

    /// Gives a place for a frame, of so many bytes too few.
    fn receive(&mut self, conn: ConnId, missing: usize) {
        let Some(peer) = self.peers.get_mut(&conn) else { return };
        let offered = match &peer.stage {
            Stage::Offered(incoming) => incoming.info.written_bytes,
            _ => 0,
        };
        let len =
            usize::try_from(offered.min(4096)).unwrap() + 9 - 10 * missing.min(usize::from(offered > 0));
        let id = self.next_place;
        self.next_place += 1;
        let fits = matches!(peer.stage, Stage::Offered(_)) && u64::try_from(len).unwrap() >= offered;
        let place = Place { id, bytes: vec![UNTOUCHED; len] };
        let result = self.receiver.receive(self.now, conn, place);
        assert_eq!(result.map_err(|place| place.id), if fits { Ok(()) } else { Err(id) });
        if fits {
            self.places.insert(id);
            peer.place(self.now, Ok(id));
        }
    }

    fn skip(&mut self, conn: ConnId, fate: Fate) {
        if let Some(peer) = self.peers.get_mut(&conn) {
            peer.place(self.now, Err(fate.clone()));
        }
        self.receiver.skip(self.now, conn, fate);
    }

    fn settle(&mut self, conn: ConnId, fate: Option<Fate>) {
        let times = self.receiver.settle(self.now, conn, fate.clone());
        let expected = self.peers.get_mut(&conn).and_then(|peer| peer.settle(self.now, fate));
        assert_eq!(times, expected);
    }

    fn fetch(&mut self, conn: ConnId, seq: Option<u64>) {
        if let Some(peer) = self.peers.get_mut(&conn) {
            peer.fetch(self.now, seq);
        }
        self.receiver.fetch(self.now, conn, seq);
    }

    fn time_out(&mut self) {
        self.receiver.handle_timeout(self.now);
        self.hear();
        assert!(self.receiver.poll_timeout().is_none_or(|at| at > self.now));
        assert!(
            self.peers.values().filter_map(Peer::deadline).all(|at| at > self.now),
            "a deadline is not kept"
        );
    }

    fn shut_down(&mut self) {
        self.is_over = true;
        self.peers.values_mut().for_each(|peer| peer.ends = Ends::Closed);
        self.receiver.shut_down(self.now);
        self.hear();
    }

    /// A connection that is not there changes nothing.
    fn stranger(&mut self) {
        let (conn, now) = (ConnId::new(1_000_000), self.now);
        let receiver = &mut self.receiver;
        receiver.handle_connected(now, conn);
        receiver.handle_bytes(now, conn, &[1; 20]);
        receiver.handle_eof(now, conn);
        receiver.transmitted(conn, 5);
        receiver.received(now, conn, 5);
        receiver.receive(now, conn, Place { id: 0, bytes: Vec::new() }).unwrap_err();
        receiver.skip(now, conn, Fate::Had);
        receiver.fetch(now, conn, None);
        receiver.refuse(now, conn, "no");
        assert_eq!(receiver.settle(now, conn, None), None);
        assert!(receiver.poll_receive(conn).is_none() && receiver.is_hungry(conn));
        assert_eq!(receiver.poll_transmit(conn), None);
    }

    /// Hears what is told, and checks it.
    fn hear(&mut self) {
        let now = self.now;
        while let Some(event) = self.receiver.poll_event() {
            let conn = match &event {
                ReceiverEvent::Announced { conn, .. }
                | ReceiverEvent::Offered { conn, .. }
                | ReceiverEvent::Complete { conn, .. }
                | ReceiverEvent::NotFetched { conn, .. }
                | ReceiverEvent::Left { conn, .. } => *conn,
                other => panic!("a receiver tells {other:?}"),
            };
            let is_replaced = self.is_replaced(conn);
            if let ReceiverEvent::Announced { greeting, .. } = &event {
                let has_key =
                    |peer: &Peer| peer.greeting.as_ref().is_some_and(|other| other.key == greeting.key);
                assert!(!self.peers.values().any(has_key), "two of one stream");
            }
            let Some(peer) = self.peers.get_mut(&conn) else { panic!("{event:?} is of nobody") };
            match event {
                ReceiverEvent::Announced { greeting, .. } => peer.announced(now, greeting),
                ReceiverEvent::Offered { info, is_fetched, .. } => peer.offered(now, info, is_fetched),
                ReceiverEvent::Complete { frame, .. } => {
                    assert!(self.places.remove(&frame.place.id), "a place comes back twice");
                    peer.complete(now, frame);
                }
                ReceiverEvent::NotFetched { why, .. } => peer.not_fetched(now, &why),
                ReceiverEvent::Left { key, fault, place, .. } => {
                    let place = place.map(|place| place.id);
                    assert!(place.is_none_or(|id| self.places.remove(&id)), "a place comes back twice");
                    if fault == Some(LinkFault::Greedy) && peer.held() <= 1 << 20 {
                        peer.ends = Ends::Waiting(self.receiver.poll_transmit(conn).map_or(0, <[u8]>::len));
                    }
                    if fault == Some(LinkFault::Replaced) && is_replaced {
                        peer.ends = Ends::Replaced;
                    }
                    peer.leaves(now, key.as_ref(), fault, place);
                }
                _ => {}
            }
        }
        self.peers.values_mut().for_each(|peer| peer.look(now));
    }

    /// Whether another sender of its stream has come.
    fn is_replaced(&self, conn: ConnId) -> bool {
        let key = self.peers.get(&conn).and_then(|peer| peer.greeting.as_ref()).map(|greeting| &greeting.key);
        let comes = |peer: &Peer| matches!(peer.said.items.front(), Some((Item::Hello(new), _)) if Some(&new.key) == key);
        self.peers.values().any(comes)
    }

    /// What holds after every step.
    fn look(&mut self) {
        while let Some(action) = self.receiver.poll_action() {
            match action {
                Action::Transmit(conn) => {
                    if let Some(peer) = self.peers.get_mut(&conn) {
                        peer.is_told = true;
                    }
                }
                Action::Close(conn) => {
                    assert_eq!(self.receiver.poll_transmit(conn), None);
                    let Some(peer) = self.peers.remove(&conn) else { panic!("it is closed twice") };
                    peer.closed(self.now);
                }
                other => panic!("a receiver wants {other:?}"),
            }
        }
        let mut here = 0;
        for (conn, peer) in &self.peers {
            here += usize::from(peer.left.is_none());
            assert_eq!(self.receiver.is_hungry(*conn), peer.left.is_some() || peer.is_hungry());
            let waiting = self.receiver.poll_transmit(*conn);
            assert!(waiting.is_none() || peer.is_told, "nobody is told that there is something to be sent");
        }
        assert_eq!(self.receiver.senders(), here);
        assert!(self.peers.len() <= SENDERS);
        let ends = |peer: &Peer| peer.deadline().or_else(|| Some(peer.left? + LINGER));
        assert_eq!(self.receiver.poll_timeout(), self.peers.values().filter_map(ends).min());
    }

    /// Everything ends.
    fn end(&mut self) {
        self.shut_down();
        self.look();
        self.now = self.now + LINGER;
        self.time_out();
        self.look();
        assert!(self.peers.is_empty() && self.places.is_empty());
        assert_eq!((self.receiver.senders(), self.receiver.poll_timeout()), (0, None));
    }
}

/// Connections at a time.
const SENDERS: usize = 3;
