//! [`Receiver`]: the side that wants the frames.
//!
//! A frame is offered, gets a place or none, comes, and its owner says what became of it; meanwhile nothing more is read from
//! its connection, so that a sender is held up by TCP and no frame is kept anywhere but in its place. There is one connection for
//! each stream: a second sender of the same one takes its place.

use alloc::collections::VecDeque;
use alloc::format;
use alloc::string::ToString;
use alloc::vec::Vec;
use core::mem;
use core::time::Duration;

use cuframes_core::streams::{Action, ConnId, Links, Machine};
use cuframes_core::{Instant, Key};

use super::config::ReceiverConfig;
use super::event::{Received, ReceiverEvent};
use super::fault::LinkFault;
use super::info::{FETCH, FrameInfo, Greeting};
use super::peer::{Answered, Incoming, Peer, Stage, Wanted, Wire};
use super::words::{FarTimes, Fate, TORN, printable};
use crate::wire::{Begin, FrameType, Message, SnapshotId};

/// Takes the frames of any number of senders, one stream each, and puts their bytes in places that its owner gives: `S` is such
/// a place, as long as the frame's [`written_bytes`](FrameInfo::written_bytes) at least. See [`Machine`] for how it is driven;
/// each of its listeners is for senders.
#[derive(Debug)]
pub struct Receiver<S> {
    config: ReceiverConfig,
    links: Links<Wire, Peer<S>>,
    events: VecDeque<ReceiverEvent<S>>,
    is_over: bool,
    now: Instant,
}

impl<S: AsMut<[u8]>> Receiver<S> {
    /// A receiver with these settings.
    #[must_use]
    pub fn new(config: ReceiverConfig) -> Self {
        Self { config, links: Links::default(), events: VecDeque::new(), is_over: false, now: Instant::ZERO }
    }

    /// The frame that is offered on a connection goes there.
    ///
    /// # Errors
    /// Gives the place back if no frame is offered there, or it is too small.
    pub fn receive(&mut self, now: Instant, conn: ConnId, mut place: S) -> Result<(), S> {
        let Some(peer) = self.links.what_mut(conn) else { return Err(place) };
        match mem::replace(&mut peer.stage, Stage::Between) {
            Stage::Offered(mut incoming)
                if u64::try_from(place.as_mut().len())
                    .is_ok_and(|len| incoming.info.written_bytes <= len) =>
            {
                incoming.waited = now.saturating_since(incoming.began);
                peer.moved = now;
                peer.stage = Stage::Coming(incoming, Some(place));
                self.resume(now, conn);
                Ok(())
            }
            other => {
                peer.stage = other;
                Err(place)
            }
        }
    }

    /// The frame that is offered on a connection goes nowhere, for this reason, which its sender is told when all of it has come.
    pub fn skip(&mut self, now: Instant, conn: ConnId, fate: Fate) {
        let Some(peer) = self.links.what_mut(conn) else { return };
        match mem::replace(&mut peer.stage, Stage::Between) {
            Stage::Offered(mut incoming) => {
                incoming.skipped = Some(fate);
                peer.moved = now;
                peer.stage = Stage::Coming(incoming, None);
                self.resume(now, conn);
            }
            other => peer.stage = other,
        }
    }

    /// Says what became of the frame that is complete on a connection: `None` for published, with the times that it took.
    /// Returns these.
    pub fn settle(&mut self, now: Instant, conn: ConnId, other: Option<Fate>) -> Option<FarTimes> {
        let peer = self.links.what_mut(conn)?;
        match mem::replace(&mut peer.stage, Stage::Between) {
            Stage::Complete(incoming) => {
                peer.moved = now;
                let times = FarTimes {
                    wire_ns: nanos(incoming.wire),
                    publish_ns: nanos(incoming.waited + now.saturating_since(incoming.ended)),
                };
                self.done(now, conn, &incoming, &other.unwrap_or(Fate::Published(times)));
                Some(times)
            }
            other => {
                peer.stage = other;
                None
            }
        }
    }

    /// Asks the sender for a frame, by its number, or for the newest. One at a time on a connection: it is offered, or
    /// [`ReceiverEvent::NotFetched`].
    pub fn fetch(&mut self, now: Instant, conn: ConnId, seq: Option<u64>) {
        let Some(peer) = self.links.what_mut(conn).filter(|peer| !peer.is_left) else { return };
        if peer.greeting.is_none() || peer.wanted.is_some() {
            let why = "the sender has another one to answer".to_string();
            self.events.push_back(ReceiverEvent::NotFetched { conn, why });
            return;
        }
        let request = FETCH | seq.unwrap_or(0);
        let until = now + self.config.fetch;
        peer.wanted = Some(Wanted { request, until, before: 0, answer: Answered::No });
        let id = SnapshotId {
            model_id: 0,
            session: 0,
            request,
            token_hash: 0,
            token_count: 0,
            layer_start: 0,
            layer_end: 0,
        };
        self.links.send(conn, &Message::SaveRequest(id));
    }

    /// Does not want the stream of a connection, for this reason: the sender is told, and does not come back.
    pub fn refuse(&mut self, now: Instant, conn: ConnId, why: &str) {
        self.now = now;
        self.turn_away(conn, Some(LinkFault::Refused(why.into())), Some(why));
    }

    /// Closes every connection; the senders look for the next receiver.
    pub fn shut_down(&mut self, now: Instant) {
        self.now = now;
        self.is_over = true;
        for conn in self.links.iter().map(|(conn, _)| conn).collect::<Vec<_>>() {
            self.turn_away(conn, None, None);
        }
    }

    /// How many senders are connected.
    #[must_use]
    pub fn senders(&self) -> usize {
        self.links.iter().count()
    }

    /// Goes on with what was read before there was a place for it.
    fn resume(&mut self, now: Instant, conn: ConnId) {
        if let Some(peer) = self.links.what_mut(conn) {
            let rest = mem::take(&mut peer.rest);
            self.take(now, conn, &rest);
        }
    }

    /// Takes bytes as long as there is a place for them, and keeps the rest.
    fn take(&mut self, now: Instant, conn: ConnId, mut bytes: &[u8]) {
        self.now = now;
        loop {
            let Some((wire, peer)) = self.links.get_mut(conn) else { return };
            if !peer.is_hungry() {
                peer.rest.extend_from_slice(bytes);
                if peer.rest.len() > MAX_REST {
                    self.turn_away(conn, Some(LinkFault::Greedy), None);
                }
                return;
            }
            let data = wire.decoder.take_data(&mut bytes);
            if !data.is_empty() {
                peer.data(data);
                self.progress(now, conn);
                continue;
            }
            if bytes.is_empty() {
                return;
            }
            let result = match self.links.receive(conn, &mut bytes) {
                Ok(Some(message)) => self.message(now, conn, message),
                Ok(None) => Ok(()),
                Err(fault) => Err(fault),
            };
            if let Err(fault) = result {
                let text = fault.to_string();
                self.turn_away(conn, Some(fault), Some(&text));
                return;
            }
        }
    }

    /// A frame may be complete now.
    fn progress(&mut self, now: Instant, conn: ConnId) {
        let Some(peer) = self.links.what_mut(conn) else { return };
        if !matches!(&peer.stage, Stage::Coming(incoming, _) if incoming.left() == 0) {
            return;
        }
        let Stage::Coming(mut incoming, place) = mem::replace(&mut peer.stage, Stage::Between) else {
            return;
        };
        incoming.ended = now;
        incoming.wire = now.saturating_since(incoming.began).saturating_sub(incoming.waited);
        let is_fetched = incoming.request & FETCH != 0;
        if let Some(wanted) = peer.wanted.as_mut().filter(|_| is_fetched) {
            // The last word is waited for as the frame was.
            wanted.answer = Answered::Whole;
            (wanted.until, wanted.before) = (now + self.config.fetch, 0);
        }
        let (info, is_whole, wire) = (incoming.info, incoming.is_whole, incoming.wire);
        let fate = match incoming.skipped.take() {
            None if is_whole => None,
            None => Some(Fate::Skipped(TORN.to_string())),
            fate => fate,
        };
        match fate {
            None => peer.stage = Stage::Complete(incoming),
            Some(fate) => self.done(now, conn, &incoming, &fate),
        }
        if let Some(place) = place {
            let frame = Received { info, is_fetched, place, is_whole, wire };
            self.events.push_back(ReceiverEvent::Complete { conn, frame });
        }
    }

    /// The frame is over. Its sender is told, unless it was asked for it.
    fn done(&mut self, now: Instant, conn: ConnId, incoming: &Incoming, fate: &Fate) {
        if incoming.request & FETCH == 0 {
            self.links.send(conn, &Message::Done(fate.done(incoming.request)));
        }
        self.resume(now, conn);
    }

    fn message(&mut self, now: Instant, conn: ConnId, message: Message) -> Result<(), LinkFault> {
        let Some(peer) = self.links.what_mut(conn) else { return Ok(()) };
        peer.moved = now;
        let kind = message.kind();
        if peer.greeting.is_none() {
            return match message {
                Message::Hello(hello) => self.greet(conn, Greeting::read(&hello)?),
                Message::Error(text) => Err(LinkFault::Said(printable(text))),
                _ => Err(LinkFault::NoHello),
            };
        }
        match message {
            Message::LoadBegin(begin) if begin.id.request & FETCH == 0 => self.offer(now, conn, &begin),
            Message::Begin(begin) => self.answered(now, conn, begin),
            Message::Chunk(chunk) => peer.chunk(chunk),
            Message::Done(done) => match peer.wanted {
                Some(wanted) if wanted.answer == Answered::Whole && wanted.request == done.request => {
                    peer.wanted = None;
                    Ok(())
                }
                _ => Err(LinkFault::Unexpected(kind)),
            },
            Message::Error(text) => Err(LinkFault::Said(printable(text))),
            _ => Err(LinkFault::Unexpected(kind)),
        }
    }

    fn greet(&mut self, conn: ConnId, greeting: Greeting) -> Result<(), LinkFault> {
        let has_key = |peer: &Peer<S>| peer.greeting.as_ref().is_some_and(|other| other.key == greeting.key);
        let before = self.links.iter().find(|(_, peer)| has_key(peer)).map(|(before, _)| before);
        if let Some(before) = before {
            let why = format!("another sender of stream {} has connected", greeting.key);
            self.turn_away(before, Some(LinkFault::Replaced), Some(&why));
        }
        if let Some(peer) = self.links.what_mut(conn) {
            peer.greeting = Some(greeting.clone());
        }
        self.events.push_back(ReceiverEvent::Announced { conn, greeting });
        Ok(())
    }

    /// A frame has begun.
    fn offer(&mut self, now: Instant, conn: ConnId, begin: &Begin) -> Result<(), LinkFault> {
        let info = FrameInfo::read(begin)?;
        let Some(peer) = self.links.what_mut(conn) else { return Ok(()) };
        if peer.is_owing() {
            return Err(LinkFault::Unexpected(FrameType::LOAD_BEGIN));
        }
        let request = begin.id.request;
        match &mut peer.wanted {
            Some(wanted) if request & FETCH == 0 => wanted.before = wanted.before.saturating_add(1),
            Some(wanted) => wanted.answer = Answered::Begun,
            None => {}
        }
        peer.stage = Stage::Offered(Incoming::new(now, info, request));
        self.events.push_back(ReceiverEvent::Offered { conn, info, is_fetched: request & FETCH != 0 });
        Ok(())
    }

    /// A frame that was asked for comes, or does not.
    fn answered(&mut self, now: Instant, conn: ConnId, begin: Begin) -> Result<(), LinkFault> {
        let Some(peer) = self.links.what_mut(conn) else { return Ok(()) };
        let is_it = |wanted: &Wanted| wanted.request == begin.id.request && wanted.answer == Answered::No;
        if !peer.wanted.as_ref().is_some_and(is_it) {
            // It may be late.
            return Err(LinkFault::Unexpected(FrameType::SNAPSHOT_BEGIN));
        }
        if begin.status != 0 {
            peer.wanted = None;
            let why = printable(begin.message);
            self.events.push_back(ReceiverEvent::NotFetched { conn, why });
            return Ok(());
        }
        self.offer(now, conn, &begin)
    }

    /// Ends a connection; says `word` before. One that ends already has its last words.
    fn turn_away(&mut self, conn: ConnId, fault: Option<LinkFault>, word: Option<&str>) {
        let Some(peer) = self.links.what_mut(conn).filter(|peer| !peer.is_left) else { return };
        let (key, place, asked) = leave(peer);
        self.events.extend(asked.then(|| not_fetched(conn)));
        if let Some(word) = word {
            self.links.send(conn, &Message::Error(word.into()));
        }
        self.links.close_when_sent(conn, self.now + LINGER);
        self.events.push_back(ReceiverEvent::Left { conn, key, fault, place });
    }

    /// What of a connection is due, and when.
    fn deadline(&self, peer: &Peer<S>) -> Option<(Instant, Due)> {
        // While its sender is held up, or sends what it had begun before, it can't come.
        let is_due = |wanted: &Wanted| wanted.answer != Answered::Begun && peer.is_hungry();
        let wanted = peer.wanted.filter(is_due).map(|wanted| {
            let at = wanted.until;
            let is_next = wanted.before > MAX_BEFORE;
            (if is_next { at } else { at.max(peer.moved + self.config.fetch) }, Due::Fetch)
        });
        let own = if peer.greeting.is_none() {
            Some((peer.moved + self.config.hello, Due::Hello))
        } else {
            peer.is_owing().then(|| (peer.moved + self.config.stall, Due::Data))
        };
        wanted.into_iter().chain(own).min_by_key(|(at, _)| *at)
    }
}

impl<S: AsMut<[u8]>> Machine for Receiver<S> {
    type Event = ReceiverEvent<S>;

    fn handle_accepted(&mut self, now: Instant, _listener: usize) -> Option<ConnId> {
        if self.is_over {
            return None;
        }
        self.now = now;
        if self.senders() + self.links.closing() >= self.config.senders {
            // Whoever has not said what it wants makes room, the oldest first: nobody is kept out by connections that say nothing.
            let (silent, _) = self.links.iter().find(|(_, peer)| peer.greeting.is_none())?;
            self.turn_away(silent, Some(LinkFault::NoHello), None);
        }
        Some(self.links.accept(Wire::new(), Peer::new(now)))
    }

    /// It connects to nobody.
    fn handle_connected(&mut self, _now: Instant, _conn: ConnId) {}

    fn handle_bytes(&mut self, now: Instant, conn: ConnId, bytes: &[u8]) {
        if let Some(peer) = self.links.what_mut(conn) {
            if peer.greeting.is_some() {
                peer.moved = now;
            }
            self.take(now, conn, bytes);
        }
        if self.links.get(conn).is_some_and(|(wire, _)| wire.waiting() > MAX_WAITING) {
            self.turn_away(conn, Some(LinkFault::Greedy), None);
        }
    }

    fn handle_eof(&mut self, _now: Instant, conn: ConnId) {
        if let Some(mut peer) = self.links.remove(conn)
            && !peer.is_left
        {
            let (key, place, asked) = leave(&mut peer);
            self.events.extend(asked.then(|| not_fetched(conn)));
            self.events.push_back(ReceiverEvent::Left { conn, key, fault: None, place });
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.now = now;
        self.links.close_late(now);
        let due: Vec<_> = self
            .links
            .iter()
            .filter_map(|(conn, peer)| {
                self.deadline(peer).filter(|(at, _)| *at <= now).map(|(_, due)| (conn, due))
            })
            .collect();
        for (conn, due) in due {
            match due {
                Due::Hello => self.turn_away(conn, Some(LinkFault::NoHello), None),
                Due::Data => self.turn_away(conn, Some(LinkFault::Stalled(self.config.stall)), None),
                Due::Fetch => {
                    // Its answer may still come, and would not be known any more.
                    let why = format!("it did not come within {:?}", self.config.fetch);
                    let wanted = self.links.what_mut(conn).and_then(|peer| peer.wanted.take());
                    if wanted.is_some_and(|wanted| wanted.answer == Answered::No) {
                        self.events.push_back(ReceiverEvent::NotFetched { conn, why });
                    }
                    self.turn_away(conn, Some(LinkFault::Stalled(self.config.fetch)), None);
                }
            }
        }
    }

    fn poll_action(&mut self) -> Option<Action> {
        self.links.poll_action()
    }

    fn poll_transmit(&self, conn: ConnId) -> Option<&[u8]> {
        self.links.poll_transmit(conn)
    }

    fn transmitted(&mut self, conn: ConnId, n: usize) {
        self.links.transmitted(conn, n);
    }

    fn poll_receive(&mut self, conn: ConnId) -> Option<&mut [u8]> {
        let (wire, peer) = self.links.get_mut(conn)?;
        peer.place(wire.decoder.data_left())
    }

    fn received(&mut self, now: Instant, conn: ConnId, n: usize) {
        let Some((wire, peer)) = self.links.get_mut(conn) else { return };
        wire.decoder.data_received(n);
        peer.moved = now;
        if let Stage::Coming(incoming, _) = &mut peer.stage {
            incoming.came(n);
        }
        self.progress(now, conn);
    }

    fn is_hungry(&self, conn: ConnId) -> bool {
        self.links.get(conn).is_none_or(|(_, peer)| peer.is_left || peer.is_hungry())
    }

    fn poll_event(&mut self) -> Option<ReceiverEvent<S>> {
        self.events.pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let due = self.links.iter().filter_map(|(_, peer)| self.deadline(peer)).map(|(at, _)| at);
        due.chain(self.links.poll_timeout()).min()
    }
}

/// What a sender owes.
#[derive(Clone, Copy, Debug)]
enum Due {
    Hello,
    Data,
    Fetch,
}

/// The sender of a connection is gone: its stream, the place of its frame, and whether it owes one that was asked for.
fn leave<S>(peer: &mut Peer<S>) -> (Option<Key>, Option<S>, bool) {
    peer.is_left = true;
    let is_fetching = peer.is_fetching();
    let asked = peer.wanted.take().is_some_and(|wanted| is_fetching || wanted.answer == Answered::No);
    let place = match mem::replace(&mut peer.stage, Stage::Between) {
        Stage::Coming(_, place) => place,
        _ => None,
    };
    (peer.greeting.take().map(|greeting| greeting.key), place, asked)
}

fn not_fetched<S>(conn: ConnId) -> ReceiverEvent<S> {
    ReceiverEvent::NotFetched { conn, why: "the connection to the sender is lost".to_string() }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Bytes that were read and have no place, which are as many as one read gives.
const MAX_REST: usize = 1 << 20;
/// Bytes that may wait for a sender that does not read.
const MAX_WAITING: usize = 1 << 20;
/// Frames that may come before the one that was asked for: those that were on the way, and those that took their places, of which
/// a ring has 16.
const MAX_BEFORE: u32 = 64;
/// How long the last words to a sender may take.
const LINGER: Duration = Duration::from_secs(1);
