//! [`Feed`]: the frames of a stream on their way to workers.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use cuframes_core::gpu::Import;
use cuframes_core::{Gone, Instant};
use cuframes_dispatch::{
    BlockEvent, FrameCounts, FrameEnd, Frames, Outcome, Scheduler, Server, ServerEvent, TaskError,
};
use mio::{Registry, Token};

use crate::error::Error;
use crate::frame::Frame;
use crate::net::Driver;
use crate::pollable::{EventSource, Turn};
use crate::subscriber::Subscriber;

/// What to do about a new frame while as many as may be are on their way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(clippy::exhaustive_enums, reason = "there is nothing else that can be done")]
pub enum WhenFull {
    /// It takes the place of the oldest one that nobody has begun; if there is none it is dropped itself.
    Drop,
    /// It waits in the ring, where a DROP_OLDEST publisher overwrites it in the end, and a STRICT_WAIT publisher waits.
    Wait,
}

/// What a dispatcher of frames tells.
#[derive(Debug)]
#[non_exhaustive]
pub enum FeedEvent {
    /// What happens among the workers, and to single blocks.
    Server(ServerEvent),
    /// All blocks of a frame have ended, and it was given back.
    Frame {
        /// Its number.
        seq: u64,
        /// The worst of its blocks.
        outcome: Outcome,
    },
    /// No more frames come. After an orderly end those that were taken are still worked on, by the workers that are there:
    /// five seconds without any, and they are given up. Otherwise they are at once, because nobody may read them any more
    /// (D-30).
    Ended(Error),
}

/// A stream and the workers that share it: an [`EventSource`].
#[derive(Debug)]
pub struct Feed<B: Import<Fd = OwnedFd>> {
    driver: Driver<Server>,
    /// Until the stream has ended.
    subscriber: Option<Subscriber<B>>,
    frames: Frames<Frame<B>>,
    /// Their ids.
    tasks: Vec<String>,
    when_full: WhenFull,
    /// How many frames to hand out.
    limit: u64,
    events: VecDeque<FeedEvent>,
    /// A worker has connected, or is sure to come: nobody is to wait for a dispatcher without workers.
    has_workers: bool,
    /// Since when there are no workers, when the stream has ended and so none can come.
    alone: Option<Instant>,
    /// No more frames are handed out.
    is_closed: bool,
    /// Frames for which there was no place.
    refused: u64,
    lost: u64,
    /// There may be more to take, for which nobody rings.
    again: bool,
    /// The first token.
    first: usize,
}

impl<B: Import<Fd = OwnedFd>> Feed<B> {
    pub(super) fn new(
        driver: Driver<Server>,
        subscriber: Subscriber<B>,
        (frames, tasks): (Frames<Frame<B>>, Vec<String>),
        (when_full, has_workers): (WhenFull, bool),
        limit: u64,
    ) -> Self {
        Self {
            driver,
            subscriber: Some(subscriber),
            frames,
            tasks,
            when_full,
            limit,
            events: VecDeque::new(),
            has_workers,
            alone: None,
            is_closed: false,
            refused: 0,
            lost: 0,
            again: true,
            first: 0,
        }
    }

    /// The server.
    pub const fn server(&self) -> &Server {
        self.driver.machine()
    }

    /// How many frames have come so far.
    #[must_use]
    pub fn counts(&self) -> FrameCounts {
        let mut counts = self.frames.counts();
        counts.taken += self.refused;
        counts.dropped += self.refused;
        counts
    }

    /// Numbers between the frames that were taken: frames that were overwritten before, and numbers that a DROP_OLDEST
    /// publisher left out because we held the slot.
    #[must_use]
    pub const fn lost(&self) -> u64 {
        self.lost
    }

    /// Whether no more frames are handed out, and all that were have ended.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.is_closed && self.server().scheduler().is_finished()
    }

    /// The next thing that happened.
    pub fn poll_event(&mut self) -> Option<FeedEvent> {
        self.events.pop_front()
    }

    /// Hands out no more frames. Those that are on their way are still worked on.
    pub fn close(&mut self, now: Instant) {
        self.end(now, Scheduler::close_task);
        self.pump(now);
    }

    /// Hands out no more frames, and gives up all that has not ended.
    pub fn abandon(&mut self, now: Instant) {
        self.end(now, Scheduler::abandon_task);
        self.pump(now);
    }

    /// Ends all tasks, one way or the other.
    fn end(&mut self, now: Instant, end: impl Fn(&mut Scheduler, &str) -> Result<(), TaskError>) {
        self.is_closed = true;
        let tasks = &self.tasks;
        self.driver.command(now, |server| {
            // They are there since the beginning.
            server.schedule(now, |scheduler| tasks.iter().for_each(|task| _ = end(scheduler, task)));
        });
    }

    /// Calls one of the server's commands, and does what it leads to.
    pub fn command<R>(&mut self, now: Instant, command: impl FnOnce(&mut Server) -> R) -> R {
        let result = self.driver.command(now, command);
        self.pump(now);
        result
    }

    /// Passes on what has happened, and takes frames while there is room for them.
    fn pump(&mut self, now: Instant) {
        // Both make each other possible: a frame that has ended makes room, one that came wakes a worker.
        self.again = (0..BUDGET).all(|_| {
            while let Some(event) = self.driver.poll_event() {
                self.hear(event);
            }
            self.take(now)
        });
        let is_alone = self.subscriber.is_none() && self.server().workers() == 0 && !self.is_finished();
        self.alone = is_alone.then(|| self.alone.unwrap_or(now));
    }

    fn hear(&mut self, event: ServerEvent) {
        self.has_workers |= matches!(event, ServerEvent::Joined { .. });
        let ended = match &event {
            ServerEvent::Block(event @ BlockEvent::Ended { .. }) => self.frames.ended(event),
            _ => None,
        };
        self.events.push_back(FeedEvent::Server(event));
        if let Some(FrameEnd { seq, frame, outcome, .. }) = ended {
            // If we had lost it, the workers know that for themselves.
            let _ = frame.release();
            self.events.push_back(FeedEvent::Frame { seq, outcome });
        }
    }

    /// Takes a frame, if one is wanted. Answers whether there may be more.
    fn take(&mut self, now: Instant) -> bool {
        let waits = self.when_full == WhenFull::Wait && self.has_workers;
        if waits && !self.is_closed && self.frames.is_full() {
            return false;
        }
        match self.subscriber.as_mut().map(Subscriber::poll_next) {
            None | Some(Ok(None)) => return false,
            Some(Ok(Some(frame))) => {
                // A STRICT_WAIT publisher waits for us also when we want no more.
                if !self.is_closed {
                    self.lost = self.lost.saturating_add(frame.lost());
                    self.hand_in(now, frame);
                    let FrameCounts { taken, dropped, .. } = self.counts();
                    if taken - dropped >= self.limit {
                        self.end(now, Scheduler::close_task);
                    }
                }
            }
            Some(Err(error)) => {
                self.subscriber = None;
                let is_orderly = matches!(&error, Error::Gone { gone: Gone::Shutdown(_), .. });
                self.events.push_back(FeedEvent::Ended(error));
                self.end(now, if is_orderly { Scheduler::close_task } else { Scheduler::abandon_task });
            }
        }
        true
    }

    /// Cuts a frame into blocks.
    fn hand_in(&mut self, now: Instant, frame: Frame<B>) {
        let frames = &mut self.frames;
        let is_added = self.driver.command(now, |server| {
            server.schedule(now, |scheduler| {
                if frames.is_full() {
                    drop(frames.drop_oldest(scheduler));
                }
                frames.add(scheduler, frame.seq(), frame).is_ok()
            })
        });
        self.refused += u64::from(!is_added);
    }
}

impl<B: Import<Fd = OwnedFd>> EventSource for Feed<B> {
    const TOKENS: usize = <Driver<Server>>::TOKENS + Subscriber::<B>::TOKENS;

    fn register(&mut self, registry: &Registry, first_token: Token) -> io::Result<()> {
        self.first = first_token.0;
        self.driver.register(registry, first_token)?;
        let Some(subscriber) = &mut self.subscriber else { return Ok(()) };
        subscriber.register(registry, Token(first_token.0 + <Driver<Server>>::TOKENS))
    }

    fn handle_event(&mut self, token: Token, now: Instant) -> io::Result<Turn> {
        let turn = if token.0 < self.first + <Driver<Server>>::TOKENS {
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
        if self.alone.is_some_and(|since| since + LONELY <= now) {
            self.end(now, Scheduler::abandon_task);
        }
        self.pump(now);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let at_once = self.again.then_some(Instant::ZERO);
        let subscriber = self.subscriber.as_ref().and_then(EventSource::poll_timeout);
        let alone = self.alone.map(|since| since + LONELY);
        at_once.into_iter().chain(self.driver.poll_timeout()).chain(subscriber).chain(alone).min()
    }
}

/// How long those are waited for who have subscribed, but not connected, when the stream ends.
const LONELY: Duration = Duration::from_secs(5);
/// Frames taken in one turn; a publisher that is faster lets the workers have theirs.
const BUDGET: usize = 32;
