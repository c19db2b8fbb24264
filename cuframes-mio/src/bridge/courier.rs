//! [`Courier`]: the frames of a stream on their way to another host.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use cuframes_bridge::stream::{Announcement, Answer, FrameInfo, Sender, SenderEvent, SenderStats};
use cuframes_core::gpu::Import;
use cuframes_core::{Instant, Policy};
use mio::{Registry, Token};

use super::event::{CourierEvent, Events};
use super::parcel::{Copier, Note, Parcel};
use crate::error::Error;
use crate::frame::Frame;
use crate::net::{Carrier, Driver, Plain};
use crate::pollable::{EventSource, Turn};
use crate::subscriber::Subscriber;

/// A stream and the link that its frames go over: an [`EventSource`].
pub struct Courier<B: Import<Fd = OwnedFd>, C: Carrier = Plain> {
    driver: Driver<Sender<Parcel<B>>, C>,
    /// Until the stream has ended.
    subscriber: Option<Subscriber<B>>,
    copier: Copier<B>,
    strict: bool,
    /// Frames are sent when they are asked for only.
    on_demand: bool,
    /// How many frames to take.
    limit: u64,
    /// How long what is on its way may take at the end.
    patience: Duration,
    taken: u64,
    lost: u64,
    /// The publisher that the newest frame was of, and the number of that.
    last: (u64, u64),
    /// When to give up what can't be taken, although the stream has ended.
    last_call: Option<Instant>,
    /// Those that may be on their way still, with their words.
    notes: VecDeque<(FrameInfo, Note<B>)>,
    events: Events<CourierEvent>,
    /// There may be more to take, for which nobody rings.
    again: bool,
    /// The first token.
    first: usize,
}

impl<B: Import<Fd = OwnedFd>, C: Carrier> Courier<B, C> {
    pub(super) fn new(
        driver: Driver<Sender<Parcel<B>>, C>,
        subscriber: Subscriber<B>,
        copier: Copier<B>,
        (strict, on_demand): (bool, bool),
        (limit, patience): (u64, Duration),
    ) -> Self {
        Self {
            driver,
            subscriber: Some(subscriber),
            copier,
            strict,
            on_demand,
            limit,
            patience,
            taken: 0,
            lost: 0,
            last: (0, 0),
            last_call: None,
            notes: VecDeque::new(),
            events: Events::new(),
            again: true,
            first: 0,
        }
    }

    /// The next thing that happened; the last 1024 are kept.
    pub fn poll_event(&mut self) -> Option<CourierEvent> {
        self.events.pop()
    }

    /// Takes no more frames, and is [finished](Self::is_finished) when those that are on their way have arrived, or after
    /// `patience`.
    pub fn finish(&mut self, now: Instant, patience: Duration) {
        self.subscriber = None;
        self.driver.command(now, |sender| sender.finish(now, patience));
        self.pump(now);
    }

    /// Whether it is over: finished, or refused by the receiver.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.driver.machine().is_finished()
    }

    /// How many frames were taken to be sent.
    #[must_use]
    pub const fn taken(&self) -> u64 {
        self.taken
    }

    /// Frames that were published and not taken: the link was too slow, or there was none.
    #[must_use]
    pub const fn lost(&self) -> u64 {
        self.lost
    }

    /// What the link has done so far.
    #[must_use]
    pub const fn stats(&self) -> SenderStats {
        self.driver.machine().stats()
    }

    /// Whether the receiver is there.
    #[must_use]
    pub const fn is_connected(&self) -> bool {
        self.driver.machine().is_connected()
    }

    /// The driver, for why the receiver can't be reached.
    pub const fn driver(&self) -> &Driver<Sender<Parcel<B>>, C> {
        &self.driver
    }

    /// Passes on what has happened, and takes frames while there is room for them.
    fn pump(&mut self, now: Instant) {
        self.again = (0..BUDGET).all(|_| {
            while let Some(event) = self.driver.poll_event() {
                if let SenderEvent::Wanted { seq } = event {
                    let answer = self.find(now, seq);
                    self.driver.command(now, |sender| sender.answer(now, seq, answer));
                }
                self.events.push(CourierEvent::Link(event));
            }
            self.take(now)
        });
        self.hear();
        self.call_last(now);
    }

    /// The stream has ended, and what is left of it can't be taken: nobody is there to send it to. That is waited for, but not
    /// for ever. Where the next publisher is waited for, too, a strict link keeps it all the same.
    fn call_last(&mut self, now: Instant) {
        let is_ending = self
            .subscriber
            .as_ref()
            .map(Subscriber::pursuit)
            .is_some_and(|pursuit| pursuit.is_ending() || !self.strict && pursuit.has_leftovers());
        if !is_ending || self.again {
            self.last_call = None;
            return;
        }
        if *self.last_call.get_or_insert(now + self.patience) > now {
            return;
        }
        while let Some(subscriber) = &mut self.subscriber {
            match subscriber.poll_next() {
                Ok(Some(frame)) => self.lost += frame.lost() + 1,
                Ok(None) => break,
                Err(error) => {
                    self.events.push(CourierEvent::Ended(error));
                    self.finish(now, Duration::ZERO);
                }
            }
        }
        self.hear();
        self.last_call = None;
    }

    /// Takes a frame, if there is room for one. Answers whether there may be more.
    fn take(&mut self, now: Instant) -> bool {
        if self.is_finished() {
            self.subscriber = None;
        }
        if self.on_demand {
            return self.look(now);
        }
        let sender = self.driver.machine();
        let Some(subscriber) = self.subscriber.as_mut().filter(|_| sender.has_room()) else { return false };
        // The next publisher may have fewer slots than the one that the window was chosen for.
        let slots: usize = subscriber.header().map_or(0, |header| header.ring_size.get().into());
        let under_way = sender.under_way() + usize::from(sender.is_answering());
        if under_way >= slots.saturating_sub(1).max(1) {
            return false;
        }
        let next = subscriber.poll_next();
        self.hear();
        match next {
            Ok(None) => return false,
            Ok(Some(frame)) => {
                self.lost += frame.lost();
                self.last_call = None;
                self.note_newest(now, &frame);
                if let Some((info, parcel)) = self.pack(frame) {
                    self.taken += 1;
                    // There is room.
                    let _ = self.driver.command(now, |sender| sender.send(now, info, parcel));
                    if self.taken >= self.limit {
                        self.finish(now, self.patience);
                    }
                }
            }
            Err(error) => self.ended(now, error),
        }
        true
    }

    /// Where frames are sent on demand only: looks whether the stream goes on, and which is the newest. Nobody is to wake us
    /// for each of them.
    fn look(&mut self, now: Instant) -> bool {
        let next = self.subscriber.as_mut().map(Subscriber::try_next);
        self.hear();
        match next {
            Some(Ok(Some(frame))) => {
                self.note_newest(now, &frame);
                true
            }
            Some(Err(error)) => {
                self.ended(now, error);
                true
            }
            _ => false,
        }
    }

    /// Passes on what happened to the stream.
    fn hear(&mut self) {
        while let Some(event) = self.subscriber.as_mut().and_then(Subscriber::poll_event) {
            self.events.push(CourierEvent::Stream(event));
        }
    }

    /// A frame is the newest. It may be of another publisher than the one before.
    fn note_newest(&mut self, now: Instant, frame: &Frame<B>) {
        let info = self.describe(frame);
        if self.last.0 != info.epoch {
            self.announce(now, &info);
        }
        self.last = (info.epoch, info.seq);
    }

    fn ended(&mut self, now: Instant, error: Error) {
        self.events.push(CourierEvent::Ended(error));
        self.finish(now, self.patience);
    }

    /// Makes a frame ready to be sent.
    fn pack(&mut self, frame: Frame<B>) -> Option<(FrameInfo, Parcel<B>)> {
        let info = self.describe(&frame);
        match Parcel::new(frame, &mut self.copier) {
            Ok(parcel) => {
                self.notes.retain(|(_, note)| note.find().is_some());
                self.notes.push_back((info, parcel.note()));
                Some((info, parcel))
            }
            Err(error) => {
                self.events.push(CourierEvent::Unread(error));
                None
            }
        }
    }

    fn describe(&self, frame: &Frame<B>) -> FrameInfo {
        let header = self.subscriber.as_ref().and_then(Subscriber::header);
        FrameInfo {
            epoch: frame.epoch(),
            seq: frame.seq(),
            meta: *frame.meta(),
            pts_ns: frame.pts_ns(),
            // The sender looks at the bytes.
            written_bytes: 0,
            policy: header.map_or(Policy::DROP_OLDEST, |header| header.policy),
            before_ns: 0,
        }
    }

    /// Another publisher has taken over.
    fn announce(&mut self, now: Instant, info: &FrameInfo) {
        let Some(subscriber) = &self.subscriber else { return };
        let Some(header) = subscriber.header() else { return };
        let announcement = Announcement {
            key: subscriber.key().clone(),
            meta: info.meta,
            policy: info.policy,
            ring_size: header.ring_size,
            strict: self.strict,
        };
        self.driver.command(now, |sender| sender.announce(announcement));
    }

    /// A frame that the receiver asks for.
    fn find(&mut self, now: Instant, seq: Option<u64>) -> Answer<Parcel<B>> {
        let no = |why: String| Answer::No(why);
        if self.on_demand {
            // To the newest one.
            while self.look(now) {}
        }
        let (epoch, newest) = self.last;
        let is_it = |info: &FrameInfo| match seq {
            Some(seq) => info.seq == seq,
            None => (info.epoch, info.seq) == (epoch, newest),
        };
        let on_its_way = self.notes.iter().rev().find(|(info, note)| is_it(info) && note.find().is_some());
        if let Some((info, parcel)) = on_its_way.and_then(|(info, note)| Some((*info, note.find()?))) {
            return Answer::Frame(info, parcel);
        }
        let Some(subscriber) = &mut self.subscriber else { return no("the stream has ended".into()) };
        let key = subscriber.key().clone();
        if seq.is_none() && newest == 0 {
            return no(format!("stream {key}: there is no frame yet"));
        }
        let seq = seq.unwrap_or(newest);
        // It would take a slot more than those that are on their way.
        let slots = subscriber.header().map(|header| usize::from(header.ring_size.get()));
        if let Some(slots) = slots.filter(|slots| self.driver.machine().under_way() + 1 >= *slots) {
            return no(format!(
                "stream {key}: frame {seq} is not on its way, and of its {slots} slots only one is left, which its publisher needs"
            ));
        }
        match subscriber.frame(seq) {
            Ok(Some(frame)) => match self.pack(frame) {
                Some((info, parcel)) => Answer::Frame(info, parcel),
                None => no(format!("stream {key}: frame {seq} can't be read")),
            },
            Ok(None) => {
                no(format!("stream {key}: frame {seq} is not there; it is overwritten, or not published yet"))
            }
            Err(error) => no(error.to_string()),
        }
    }
}

impl<B: Import<Fd = OwnedFd>, C: Carrier> EventSource for Courier<B, C> {
    const TOKENS: usize = Driver::<Sender<Parcel<B>>, C>::TOKENS + Subscriber::<B>::TOKENS;

    fn register(&mut self, registry: &Registry, first_token: Token) -> io::Result<()> {
        self.first = first_token.0;
        self.driver.register(registry, first_token)?;
        let Some(subscriber) = &mut self.subscriber else { return Ok(()) };
        subscriber.register(registry, Token(first_token.0 + Driver::<Sender<Parcel<B>>, C>::TOKENS))
    }

    fn handle_event(&mut self, token: Token, now: Instant) -> io::Result<Turn> {
        self.driver.command(now, |sender| sender.note_time(now));
        let turn = if token.0 < self.first + Driver::<Sender<Parcel<B>>, C>::TOKENS {
            self.driver.handle_event(token, now)?
        } else {
            let heard = self.subscriber.as_mut().map(|subscriber| subscriber.handle_event(token, now));
            heard.transpose()?.unwrap_or(Turn::Idle)
        };
        self.pump(now);
        Ok(turn)
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.driver.handle_timeout(now);
        if let Some(subscriber) = &mut self.subscriber {
            subscriber.handle_timeout(now);
        }
        self.pump(now);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let at_once = self.again.then_some(Instant::ZERO);
        let subscriber = self.subscriber.as_ref().and_then(EventSource::poll_timeout);
        at_once.into_iter().chain(self.driver.poll_timeout()).chain(subscriber).chain(self.last_call).min()
    }
}

impl<B: Import<Fd = OwnedFd>, C: Carrier> fmt::Debug for Courier<B, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Courier")
            .field("taken", &self.taken)
            .field("lost", &self.lost)
            .finish_non_exhaustive()
    }
}

/// Frames taken in one turn.
const BUDGET: usize = 32;
