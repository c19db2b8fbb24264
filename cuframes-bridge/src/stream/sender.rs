//! [`Sender`]: the side that has the frames.
//!
//! Invariants: `flights` is in the order in which the frames were given, which is that on the wire; those before `sent` were sent
//! on this connection, that at `sent` is being sent if `transfer` is a frame's; a frame leaves `flights` by its DONE, or, unless
//! the link is strict, when the connection is lost.

mod machine;

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::time::Duration;

use cuframes_core::streams::{Action, ConnId, Outbox};
use cuframes_core::{Instant, RingSize};

use super::LIMITS;
use super::config::SenderConfig;
use super::event::{Answer, SenderEvent, SenderStats};
use super::fault::LinkFault;
use super::flight::{End, Flight, Reply, since_stamp, sized};
use super::info::{Announcement, FETCH, FrameInfo};
use super::transfer::{Payload, Transfer};
use super::words::{Fate, printable, short};
use crate::wire::{Begin, Decoder, Message, SnapshotId};

/// Sends the frames of one stream to one receiver. See [`Machine`](cuframes_core::streams::Machine) for how it is driven; it has no listener.
#[derive(Debug)]
pub struct Sender<F> {
    config: SenderConfig,
    announcement: Announcement,
    next_conn: u64,
    conn: Option<ConnId>,
    /// Since when it is connected.
    since: Option<Instant>,
    /// The slots of the ring, as HELLO has said them on this connection.
    said: Option<RingSize>,
    decoder: Decoder,
    /// HELLO, and each BEGIN that says no.
    words: Outbox,
    flights: VecDeque<Flight<F>>,
    sent: usize,
    /// Requests for frames that wait until those before them are answered: of what is asked for, one frame is kept at a time.
    requests: VecDeque<Option<u64>>,
    /// The request that was told, and not answered yet.
    asked: Option<Option<u64>>,
    answer: Option<Reply<F>>,
    transfer: Option<Transfer>,
    /// The transfer is the answer, not the flight at `sent`.
    is_answering: bool,
    /// When something went on last.
    moved: Instant,
    /// Before the next attempt to connect.
    pause: Duration,
    now: Instant,
    actions: VecDeque<Action>,
    is_announced: bool,
    events: VecDeque<SenderEvent>,
    end: End,
    stats: SenderStats,
}

impl<F: Payload> Sender<F> {
    /// A sender that connects at once.
    #[must_use]
    pub fn new(now: Instant, config: SenderConfig, announcement: Announcement) -> Self {
        let mut sender = Self {
            config,
            announcement,
            next_conn: 0,
            conn: None,
            since: None,
            said: None,
            decoder: Decoder::new(LIMITS),
            words: Outbox::default(),
            flights: VecDeque::new(),
            sent: 0,
            requests: VecDeque::new(),
            asked: None,
            answer: None,
            transfer: None,
            is_answering: false,
            moved: now,
            pause: FIRST_PAUSE,
            now,
            actions: VecDeque::new(),
            is_announced: false,
            events: VecDeque::new(),
            end: End::No,
            stats: SenderStats::default(),
        };
        sender.connect(Duration::ZERO);
        sender
    }

    /// Another publisher has taken over, or the stream has another shape: what the next HELLO says. Frames say it themselves, but
    /// for the slots of the ring: if these are others, the next frame goes over a connection of its own, when what was sent before
    /// is answered.
    pub fn announce(&mut self, announcement: Announcement) {
        self.announcement = announcement;
    }

    /// Whether another frame may be given.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.end == End::No
            && self.flights.len() < self.config.window.max(1)
            && (self.config.strict || self.is_connected())
    }

    /// How many frames are on their way.
    #[must_use]
    pub fn under_way(&self) -> usize {
        self.flights.len()
    }

    /// Whether it has been given a frame that was asked for, and has not sent all of it.
    #[must_use]
    pub const fn is_answering(&self) -> bool {
        self.answer.is_some()
    }

    /// Whether the receiver is there.
    #[must_use]
    pub const fn is_connected(&self) -> bool {
        self.since.is_some()
    }

    /// Sends a frame, after those that were given before. The valid bytes are those of `frame`, whatever the words say, and the
    /// time before sending is what has passed by then.
    ///
    /// # Errors
    /// Gives the frame back if there is no [room](Self::has_room).
    pub fn send(&mut self, now: Instant, info: FrameInfo, frame: F) -> Result<(), F> {
        self.now = now;
        if !self.has_room() {
            return Err(frame);
        }
        self.begin_to_wait();
        self.flights.push_back(Flight { info: sized(info, &frame), frame, began: None });
        self.go_on();
        Ok(())
    }

    /// Answers the request that was [told](SenderEvent::Wanted) last. Nothing happens if it is not that one: whoever has asked
    /// is gone.
    pub fn answer(&mut self, now: Instant, seq: Option<u64>, answer: Answer<F>) {
        self.now = now;
        if self.asked != Some(seq) {
            return;
        }
        self.asked = None;
        self.begin_to_wait();
        let request = FETCH | seq.unwrap_or(0);
        match answer {
            Answer::Frame(info, frame) => {
                self.answer = Some(Reply { info: sized(info, &frame), request, frame });
            }
            Answer::No(why) => {
                let id = SnapshotId {
                    model_id: self.announcement.meta.format.0,
                    session: 0,
                    request,
                    token_hash: 0,
                    token_count: 0,
                    layer_start: 0,
                    layer_end: 0,
                };
                let message = short(&why);
                let begin = Begin { id, payload_bytes: 0, status: 1, tokens: Vec::new(), message };
                self.words.push(|out| Message::Begin(begin).encode(out));
            }
        }
        self.ask();
        self.go_on();
    }

    /// What time it is, for what is [sent](cuframes_core::streams::Machine::transmitted) from now on, which is not told.
    pub const fn note_time(&mut self, now: Instant) {
        self.now = now;
    }

    /// Takes no more frames, and ends when those that are on their way have arrived, or after `patience`. Said again, it can only
    /// shorten that time.
    pub fn finish(&mut self, now: Instant, patience: Duration) {
        let until = now + patience;
        match self.end {
            End::No => {}
            End::At(before) if until < before => {}
            _ => return,
        }
        self.now = now;
        self.end = End::At(until);
        self.go_on();
    }

    /// Whether it is over: finished or refused.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.end == End::Over
    }

    /// What it has done so far.
    #[must_use]
    pub const fn stats(&self) -> SenderStats {
        self.stats
    }

    fn connect(&mut self, delay: Duration) {
        let conn = ConnId::new(self.next_conn);
        self.next_conn += 1;
        self.conn = Some(conn);
        self.actions.push_back(Action::Connect { conn, address: self.config.to.clone(), delay });
    }

    fn is(&self, conn: ConnId) -> bool {
        self.conn == Some(conn)
    }

    /// Begins the next thing to be sent, if nothing is being sent, and ends if there is nothing left to do.
    fn go_on(&mut self) {
        let is_other_ring = self.said.is_some_and(|said| said != self.announcement.ring_size);
        if self.since.is_some() && self.transfer.is_none() && self.words.poll_transmit().is_none() {
            if let Some(Reply { info, request, frame }) = &self.answer {
                self.transfer = Some(Transfer::new(info.begin(*request), frame.bytes().len(), true));
                self.is_answering = true;
            } else if is_other_ring && !self.flights.is_empty() {
                if self.sent == 0 && self.asked.is_none() {
                    return self.renew();
                }
            } else if let Some(Flight { info, frame, began }) = self.flights.get_mut(self.sent) {
                self.stats.resent += u64::from(began.is_some());
                *began = Some(self.now);
                info.before_ns = since_stamp(self.now, info);
                self.transfer = Some(Transfer::new(info.begin(info.seq), frame.bytes().len(), false));
                self.is_answering = false;
            }
        }
        if self.has_bytes() {
            if let Some(conn) = self.conn.filter(|_| !self.is_announced) {
                self.is_announced = true;
                self.actions.push_back(Action::Transmit(conn));
            }
        } else if let End::At(_) = self.end
            && self.flights.is_empty()
            && self.answer.is_none()
        {
            self.over();
        }
    }

    /// Whether there is something to send, on the connection that there is.
    fn has_bytes(&self) -> bool {
        self.since.is_some() && (self.transfer.is_some() || self.words.poll_transmit().is_some())
    }

    /// Whether the receiver has to do something, or the socket.
    fn is_waiting(&self) -> bool {
        self.has_bytes() || (self.since.is_some() && !self.flights.is_empty())
    }

    /// The time for the receiver, or the socket, to do something begins, unless it has begun already.
    fn begin_to_wait(&mut self) {
        if !self.is_waiting() {
            self.moved = self.now;
        }
    }

    /// Tells the next request, if none is being answered.
    fn ask(&mut self) {
        if self.asked.is_none()
            && self.answer.is_none()
            && let Some(seq) = self.requests.pop_front()
        {
            self.asked = Some(seq);
            self.events.push_back(SenderEvent::Wanted { seq });
        }
    }

    fn over(&mut self) {
        self.end = End::Over;
        self.since = None;
        if let Some(conn) = self.conn.take() {
            self.actions.push_back(Action::Close(conn));
        }
        self.give_up();
        self.forget_requests();
        self.transfer = None;
    }

    fn forget_requests(&mut self) {
        self.requests.clear();
        (self.asked, self.answer) = (None, None);
    }

    fn give_up(&mut self) {
        for Flight { info, .. } in self.flights.drain(..) {
            self.stats.given_up += 1;
            self.events.push_back(SenderEvent::GivenUp { seq: info.seq });
        }
        self.sent = 0;
    }

    /// Nothing of the connection is left. Whether there was one.
    fn leave(&mut self) -> bool {
        let was_connected = self.since.take().is_some();
        (self.conn, self.said) = (None, None);
        self.is_announced = false;
        self.decoder = Decoder::new(LIMITS);
        self.words = Outbox::default();
        self.transfer = None;
        self.forget_requests();
        self.sent = 0;
        was_connected
    }

    /// Says HELLO again, which goes on a connection of its own. Nothing is on its way, so nothing is lost.
    fn renew(&mut self) {
        self.actions.extend(self.conn.map(Action::Close));
        self.leave();
        self.connect(Duration::ZERO);
    }

    /// The connection is no more.
    fn lost(&mut self, fault: Option<LinkFault>) {
        if self.leave() {
            self.stats.lost_connections += 1;
            self.events.push_back(SenderEvent::Lost { fault });
        }
        if !self.config.strict {
            self.give_up();
        }
        if let End::At(_) = self.end
            && self.flights.is_empty()
        {
            self.end = End::Over;
            return;
        }
        // The driver's pauses begin anew with each connection that was made: whoever takes it and ends it is not asked all the
        // time.
        self.connect(self.pause);
        self.pause = LAST_PAUSE.min(2 * self.pause);
    }

    /// Ends the connection.
    fn close(&mut self, fault: LinkFault) {
        if let Some(conn) = self.conn {
            self.actions.push_back(Action::Close(conn));
        }
        self.lost(Some(fault));
    }

    fn message(&mut self, message: Message) -> Result<(), LinkFault> {
        match message {
            Message::Done(done) => {
                let first = self.flights.front().filter(|_| self.sent > 0);
                let expected = first.map(|flight| flight.info.seq);
                if expected != Some(done.request) {
                    let (found, expected) = (done.request, expected.unwrap_or(0));
                    return Err(LinkFault::OtherFrame { found, expected });
                }
                let Some(Flight { info, began, .. }) = self.flights.pop_front() else { return Ok(()) };
                self.sent -= 1;
                self.moved = self.now;
                self.pause = FIRST_PAUSE;
                let fate = Fate::read(done);
                match fate {
                    Fate::Published(_) | Fate::Had => {
                        self.stats.delivered += 1;
                        self.stats.bytes += info.written_bytes;
                    }
                    _ => self.stats.refused += 1,
                }
                let round_trip = self.now.saturating_since(began.unwrap_or(self.now));
                self.events.push_back(SenderEvent::Done { seq: info.seq, fate, info, round_trip });
                Ok(())
            }
            Message::SaveRequest(id) if id.request & FETCH != 0 && self.requests.len() < MAX_REQUESTS => {
                self.requests.push_back(Some(id.request & !FETCH).filter(|seq| *seq != 0));
                self.ask();
                Ok(())
            }
            Message::Error(text) => {
                self.events.push_back(SenderEvent::Refused(printable(text)));
                self.over();
                Ok(())
            }
            other => Err(LinkFault::Unexpected(other.kind())),
        }
    }
}

impl<F> Sender<F> {
    /// The frame that is being sent.
    fn current(&self) -> Option<&F> {
        if self.is_answering {
            self.answer.as_ref().map(|reply| &reply.frame)
        } else {
            self.flights.get(self.sent).map(|flight| &flight.frame)
        }
    }
}

/// Before it connects again after a connection was lost, and in the end, if no frame arrives in between.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LAST_PAUSE: Duration = Duration::from_secs(2);
/// Requests for frames that may wait.
const MAX_REQUESTS: usize = 16;
