//! [`Model`]: what a sender is to do.

use std::collections::VecDeque;
use std::time::Duration;

use cuframes_bridge::stream::{
    Announcement, FarTimes, Fate, FrameInfo, LinkFault, SenderConfig, SenderEvent, SenderStats,
};
use cuframes_bridge::wire::{Decoded, Done, Message};
use cuframes_core::Instant;
use cuframes_core::streams::ConnId;

use super::frames::{FETCH, shown};
use super::heard::{Flight, Frame, Link, Owed};

/// A sender without bytes and buffers.
pub(super) struct Model {
    pub(super) config: SenderConfig,
    pub(super) announcement: Announcement,
    /// What time it is, as the sender was told last.
    pub(super) told: Instant,
    pub(super) attempt: Option<ConnId>,
    pub(super) link: Option<Link>,
    pub(super) flights: VecDeque<Flight>,
    pub(super) given: u64,
    pub(super) asked: Option<Option<u64>>,
    pub(super) end: End,
    pub(super) stats: SenderStats,
    /// What it tells next.
    pub(super) events: VecDeque<SenderEvent>,
    /// What it does next: connects after this pause, and closes this connection.
    pub(super) connects: Option<Duration>,
    pub(super) closes: Option<ConnId>,
    requests: VecDeque<Option<u64>>,
    pause: Duration,
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum End {
    No,
    At(Instant),
    Over,
}

impl Model {
    pub(super) fn new(now: Instant, config: SenderConfig, announcement: Announcement) -> Self {
        Self {
            config,
            announcement,
            told: now,
            attempt: None,
            link: None,
            flights: VecDeque::new(),
            given: 0,
            asked: None,
            end: End::No,
            stats: SenderStats::default(),
            events: VecDeque::new(),
            connects: Some(Duration::ZERO),
            closes: None,
            requests: VecDeque::new(),
            pause: FIRST_PAUSE,
        }
    }

    pub(super) fn connected(&mut self, conn: ConnId) {
        self.attempt = None;
        self.link = Some(Link::new(self.told, conn, self.announcement.clone()));
        self.events.push_back(SenderEvent::Connected);
    }

    /// The receiver has said this.
    pub(super) fn understand(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty()
            && let Some(link) = &mut self.link
        {
            match link.said.next(&mut bytes) {
                Ok(Some(Decoded::Message(message))) => self.message(message),
                Ok(Some(Decoded::Unknown(header))) => self.close(LinkFault::Unexpected(header.kind)),
                // The bytes of a message that it does not know are not waited for.
                Ok(None) => {
                    if let Some(header) = link.said.unknown() {
                        self.close(LinkFault::Unexpected(header.kind));
                    }
                }
                Err(error) => self.close(error.into()),
                Ok(other) => panic!("it can't be {other:?}"),
            }
            self.settle();
        }
    }

    fn message(&mut self, message: Message) {
        let Some(link) = &mut self.link else { return };
        match message {
            Message::Done(done) => {
                let due = self.flights.front().filter(|_| link.sent > 0).map(|flight| flight.info.seq);
                if due != Some(done.request) {
                    let (found, expected) = (done.request, due.unwrap_or(0));
                    return self.close(LinkFault::OtherFrame { found, expected });
                }
                link.sent -= 1;
                link.moved = self.told;
                let flight = self.flights.pop_front().unwrap();
                self.done(&flight, fate(&done));
            }
            Message::SaveRequest(id) if id.request & FETCH != 0 && self.requests.len() < MAX_REQUESTS => {
                let seq = id.request & !FETCH;
                self.requests.push_back((seq != 0).then_some(seq));
                self.ask();
            }
            Message::Error(text) => {
                self.events.push_back(SenderEvent::Refused(shown(&text)));
                self.over();
            }
            other => self.close(LinkFault::Unexpected(other.kind())),
        }
    }

    fn done(&mut self, flight: &Flight, fate: Fate) {
        self.pause = FIRST_PAUSE;
        if let Fate::Published(_) | Fate::Had = fate {
            self.stats.delivered += 1;
            self.stats.bytes += flight.info.written_bytes;
        } else {
            self.stats.refused += 1;
        }
        let round_trip = self.told.saturating_since(flight.began.unwrap());
        let info = flight.as_said();
        self.events.push_back(SenderEvent::Done { seq: info.seq, fate, info, round_trip });
    }

    /// So many bytes were read, by which so many answers have ended.
    pub(super) fn sent(&mut self, n: usize, answered: usize) {
        if let Some(link) = self.link.as_mut().filter(|_| n > 0) {
            link.moved = self.told;
        }
        for _ in 0..answered {
            self.stats.answered += 1;
            self.ask();
        }
    }

    /// Whether the connection begins with the next frame, of which nothing was read yet.
    pub(super) fn begin(&mut self, offered: impl FnOnce(ConnId) -> bool) {
        if let Some(link) = &mut self.link
            && !link.has_begun
            && link.is_between()
            && offered(link.conn)
        {
            link.has_begun = true;
            let flight = self.flights.get_mut(link.sent).unwrap();
            self.stats.resent += u64::from(flight.began.replace(self.told).is_some());
        }
    }

    pub(super) fn time_out(&mut self) {
        if matches!(self.end, End::At(end) if end <= self.told) {
            self.over();
        }
        if self.stalls_at().is_some_and(|at| at <= self.told) {
            self.close(LinkFault::Stalled(self.config.stall));
        }
    }

    pub(super) fn finish(&mut self, now: Instant, patience: Duration) {
        let until = now + patience;
        let is_sooner = match self.end {
            End::No => true,
            End::At(before) => until < before,
            End::Over => false,
        };
        if is_sooner {
            (self.told, self.end) = (now, End::At(until));
        }
    }

    /// When the connection is given up because nothing goes on.
    pub(super) fn stalls_at(&self) -> Option<Instant> {
        let link = self.link.as_ref().filter(|link| !self.flights.is_empty() || link.is_busy())?;
        Some(link.moved + self.config.stall)
    }

    pub(super) fn has_room(&self) -> bool {
        self.end == End::No
            && self.flights.len() < self.config.window.max(1)
            && (self.config.strict || self.link.is_some())
    }

    pub(super) fn send(&mut self, info: FrameInfo, frame: Frame) {
        self.begin_to_wait();
        self.given += 1;
        self.flights.push_back(Flight { info: frame.sized(info), frame, began: None });
    }

    pub(super) fn answer(&mut self, seq: Option<u64>, answer: Result<(FrameInfo, Frame), String>) {
        if self.asked != Some(seq) {
            return;
        }
        self.asked = None;
        self.begin_to_wait();
        let request = FETCH | seq.unwrap_or(0);
        let answer = answer.map(|(info, frame)| (frame.sized(info), frame));
        self.link.as_mut().unwrap().owed.push_back(Owed { request, answer, passed: 0 });
        self.ask();
    }

    /// The time for the receiver, or the socket, to do something begins.
    fn begin_to_wait(&mut self) {
        if self.stalls_at().is_none()
            && let Some(link) = &mut self.link
        {
            link.moved = self.told;
        }
    }

    /// The next request is told, if none is being answered.
    fn ask(&mut self) {
        if self.asked.is_none()
            && !self.link.as_ref().is_some_and(Link::is_answering)
            && let Some(seq) = self.requests.pop_front()
        {
            self.asked = Some(seq);
            self.events.push_back(SenderEvent::Wanted { seq });
        }
    }

    fn close(&mut self, fault: LinkFault) {
        self.closes = self.link.as_ref().map(|link| link.conn);
        self.lost(Some(fault));
    }

    /// The connection, or the attempt to make it, has ended.
    pub(super) fn lost(&mut self, fault: Option<LinkFault>) {
        self.attempt = None;
        if self.link.take().is_some() {
            self.stats.lost_connections += 1;
            self.events.push_back(SenderEvent::Lost { fault });
        }
        self.forget();
        if !self.config.strict {
            self.give_up();
        }
        if self.end != End::No && self.flights.is_empty() {
            self.end = End::Over;
        } else {
            self.connects = Some(self.pause);
            self.pause = LAST_PAUSE.min(2 * self.pause);
        }
    }

    /// What follows by itself: the next frame wants a connection of its own, or all is done.
    pub(super) fn settle(&mut self) {
        let ring_size = self.announcement.ring_size;
        if !self.flights.is_empty()
            && self.asked.is_none()
            && let Some(link) = self.link.take_if(|link| link.is_idle() && link.ring_size() != ring_size)
        {
            (self.closes, self.connects) = (Some(link.conn), Some(Duration::ZERO));
        }
        let is_busy = self.link.as_ref().is_some_and(Link::is_busy);
        if matches!(self.end, End::At(_)) && self.flights.is_empty() && !is_busy {
            self.over();
        }
    }

    fn over(&mut self) {
        self.end = End::Over;
        self.closes = self.link.take().map(|link| link.conn).or_else(|| self.attempt.take());
        self.give_up();
        self.forget();
    }

    fn forget(&mut self) {
        self.requests.clear();
        self.asked = None;
    }

    fn give_up(&mut self) {
        for Flight { info, .. } in self.flights.drain(..) {
            self.stats.given_up += 1;
            self.events.push_back(SenderEvent::GivenUp { seq: info.seq });
        }
    }
}

/// What a receiver says that it did with a frame.
fn fate(done: &Done) -> Fate {
    match (done.status, done.message.as_str()) {
        (0, "published before") => Fate::Had,
        (0, text) => {
            let number = |name: &str| {
                text.split(' ').find_map(|word| word.strip_prefix(name)?.parse().ok()).unwrap_or(0)
            };
            Fate::Published(FarTimes { wire_ns: number("wire_ns="), publish_ns: number("publish_ns=") })
        }
        (2, text) => Fate::Skipped(shown(text)),
        (_, text) => Fate::Refused(shown(text)),
    }
}

const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LAST_PAUSE: Duration = Duration::from_secs(2);
const MAX_REQUESTS: usize = 16;
