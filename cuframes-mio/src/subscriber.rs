//! [`Subscriber`]: receives the frames of a stream.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use cuframes_core::session::{Closed, Session, SubscriberEvent, SubscriberSession};
use cuframes_core::shm::StreamHeader;
use cuframes_core::{Features, FrameMeta, Gone, Instant, Key, SubscriberBit};
use mio::{Registry, Token};

use crate::attach::{Arrivals, Attached, Facts};
use crate::clock;
use crate::conn::Conn;
use crate::connect::SubscriberBuilder;
use crate::error::Error;
use crate::frame::Frame;
use crate::pollable::{EventSource, Turn};
use crate::wake::sleep;

/// Receives the frames of one stream.
///
/// Blocking: [`connect`](SubscriberBuilder::connect), then [`next`](Self::next). In an event loop:
/// [`start`](SubscriberBuilder::start), then register it ([`EventSource`], or as a [`Pollable`](crate::Pollable)) and
/// call [`poll_next`](Self::poll_next) after each event until it returns `None`.
///
/// Dropping it says UNSUBSCRIBE, when the last of its frames is released (D-10).
#[derive(Debug)]
pub struct Subscriber {
    key: Key,
    conn: Conn<SubscriberSession<OwnedFd>>,
    /// What the handshake has brought so far.
    arrivals: Arrivals,
    facts: Option<Facts>,
    /// Until there are no more frames.
    attached: Option<Attached>,
    /// The publisher said SHUTDOWN; what is published is still handed out (D-30).
    shutdown: Option<Gone>,
    /// The connection has ended.
    closed: Option<Closed>,
    /// Why we ended it, to be told once.
    failure: Option<Error>,
    registration: Option<(Registry, Token)>,
    /// The publisher was told that we sleep.
    parked: bool,
    /// When to look again although nobody rang.
    look_again: Option<Instant>,
    /// How many looks in a row have found nothing, without a system call.
    idle_looks: u32,
}

impl Subscriber {
    /// Settings of a new subscription.
    pub fn builder(key: Key) -> SubscriberBuilder {
        SubscriberBuilder::new(key)
    }

    /// Says HELLO on a new connection.
    pub(crate) fn new(conn: Conn<SubscriberSession<OwnedFd>>, arrivals: Arrivals) -> Self {
        let mut subscriber = Self {
            key: arrivals.key().clone(),
            conn,
            arrivals,
            facts: None,
            attached: None,
            shutdown: None,
            closed: None,
            failure: None,
            registration: None,
            parked: false,
            look_again: None,
            idle_looks: 0,
        };
        subscriber.settle(clock::now());
        subscriber
    }

    /// The next frame; waits for it up to `timeout`. `None`: there was none in time.
    ///
    /// # Errors
    /// [`Error::Gone`] when the stream has ended and everything published was handed out, [`Error::Refused`] when the
    /// publisher refused or evicted us, or whatever else ended the subscription.
    pub fn next(&mut self, timeout: Duration) -> Result<Option<Frame>, Error> {
        let mut deadline = None;
        loop {
            if let Some(frame) = self.poll_next()? {
                return Ok(Some(frame));
            }
            let now = clock::now();
            let deadline = *deadline.get_or_insert(now + timeout);
            if deadline <= now {
                return Ok(None);
            }
            self.sleep(deadline.min(self.poll_timeout().unwrap_or(deadline)).saturating_since(now))?;
        }
    }

    /// The next frame if there is one. Makes no system call, but for a look at the connection once in a thousand calls
    /// that find nothing: for a loop that spins.
    ///
    /// # Errors
    /// As [`next`](Self::next).
    #[inline]
    pub fn try_next(&mut self) -> Result<Option<Frame>, Error> {
        // The connection first, the ring second: what was published before SHUTDOWN is there when SHUTDOWN has been read.
        if self.idle_looks >= LOOKS_BEFORE_SYSTEM_CALL {
            self.look_at_connection();
        }
        if let Some(attached) = &mut self.attached {
            if self.parked {
                self.parked = false;
                self.look_again = None;
                attached.reader.unpark();
            }
            if let Some(frame) = attached.reader.next() {
                if attached.reader.seat().is_held() {
                    self.idle_looks = 0;
                    return Ok(Some(Frame(frame)));
                }
                // Evicted: the connection says so.
                drop(frame);
                self.look_at_connection();
            } else if attached.reader.is_shutting_down() {
                self.idle_looks = LOOKS_BEFORE_SYSTEM_CALL;
            }
        }
        self.idle_looks = self.idle_looks.saturating_add(1);
        self.ended().map(|()| None)
    }

    /// As [`try_next`](Self::try_next); but when it returns `None` the event loop wakes up for the next frame.
    ///
    /// # Errors
    /// As [`next`](Self::next).
    pub fn poll_next(&mut self) -> Result<Option<Frame>, Error> {
        loop {
            if let Some(frame) = self.try_next()? {
                return Ok(Some(frame));
            }
            let Some(attached) = &self.attached else { return Ok(None) };
            if attached.reader.park() {
                self.parked = true;
                self.look_again = Some(clock::now() + attached.look_again_after());
                return Ok(None);
            }
        }
    }

    /// Whether the handshake is complete. From then on the facts about the stream below are there, also when it has
    /// ended.
    #[must_use]
    pub const fn is_ready(&self) -> bool {
        self.facts.is_some()
    }

    /// What the stream's region says about it, once [ready](Self::is_ready).
    #[must_use]
    pub fn header(&self) -> Option<&StreamHeader> {
        self.facts.as_ref().map(|facts| &facts.header)
    }

    /// Geometry of every frame, once [ready](Self::is_ready).
    #[must_use]
    pub fn meta(&self) -> Option<&FrameMeta> {
        self.header().map(|header| &header.meta)
    }

    /// The assigned bit, once [ready](Self::is_ready).
    #[must_use]
    pub fn bit(&self) -> Option<SubscriberBit> {
        self.facts.as_ref().map(|facts| facts.bit)
    }

    /// The extensions in force, once [ready](Self::is_ready).
    #[must_use]
    pub fn features(&self) -> Option<Features> {
        self.facts.as_ref().map(|facts| facts.features)
    }

    /// The stream's key.
    #[must_use]
    pub const fn key(&self) -> &Key {
        &self.key
    }

    /// Waits until the handshake is complete; its own deadlines end it.
    pub(crate) fn wait_ready(&mut self) -> Result<(), Error> {
        while !self.is_ready() {
            self.ended()?;
            let now = clock::now();
            let limit =
                self.conn.session.poll_timeout().map_or(Duration::MAX, |due| due.saturating_since(now));
            self.sleep(limit)?;
        }
        Ok(())
    }

    #[cold]
    fn look_at_connection(&mut self) {
        self.idle_looks = 0;
        // What is left after the budget is read by the next look.
        let _ = self.drive(clock::now());
    }

    /// Why there will be no more frames, if that is so.
    fn ended(&mut self) -> Result<(), Error> {
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        let gone = match (self.shutdown, &self.closed) {
            (Some(gone), _) => Closed::Gone(gone),
            (None, Some(closed)) => closed.clone(),
            (None, None) => return Ok(()),
        };
        Err(Error::closed(&self.key, gone))
    }

    /// Receives, sends, and does what the events ask for.
    fn drive(&mut self, now: Instant) -> Turn {
        let turn = self.conn.drive(now);
        self.settle(now);
        turn
    }

    fn settle(&mut self, now: Instant) {
        while let Some(event) = self.conn.session.poll_event() {
            match event {
                SubscriberEvent::Stream(stream) => self.arrivals.stream = Some(stream),
                SubscriberEvent::Subscribed(subscribed) => self.arrivals.subscribed = Some(subscribed),
                SubscriberEvent::Fd { purpose, fd, .. } => self.arrivals.fd(purpose, fd),
                SubscriberEvent::Shutdown(reason) => self.shutdown = Some(Gone::Shutdown(reason)),
                SubscriberEvent::Closed(closed) => self.close(closed),
                _ => {}
            }
            if self.facts.is_none() && self.closed.is_none() && self.failure.is_none() {
                self.attach(now);
            }
        }
        self.conn.flush(now);
    }

    /// Attaches as soon as everything needed has arrived.
    fn attach(&mut self, now: Instant) {
        let attached = self.arrivals.attach().and_then(|attached| {
            if let (Some((attached, _)), Some((registry, first))) = (&attached, &self.registration) {
                attached
                    .register(registry, wake_token(*first))
                    .map_err(|error| Error::system(&self.key, error))?;
            }
            Ok(attached)
        });
        match attached {
            Ok(None) => {}
            Ok(Some((attached, facts))) => {
                (self.attached, self.facts) = (Some(attached), Some(facts));
                let _ = self.conn.session.attached(now);
            }
            Err(error) => {
                self.conn.session.reject(now, error.code(), &error.to_string());
                self.failure = Some(error);
            }
        }
    }

    /// The connection has ended. After SHUTDOWN what is published may still be read; otherwise nothing (D-30).
    fn close(&mut self, closed: Closed) {
        if self.shutdown.is_none()
            && let Some(attached) = self.attached.take()
        {
            attached.reader.seat().detach();
            if let Some((registry, _)) = &self.registration {
                let _ = attached.deregister(registry);
            }
        }
        self.closed = Some(closed);
    }

    /// Sleeps until a frame or a message comes, or `limit` has passed, and handles what came.
    fn sleep(&mut self, limit: Duration) -> Result<(), Error> {
        let wake = self.attached.as_ref().and_then(|attached| attached.wake.as_ref());
        let socket = self.conn.as_fd();
        // Without a bell the socket stands in its place.
        let fds = [socket, wake.map_or(socket, AsFd::as_fd)];
        let [message, frame] = sleep(fds, limit).map_err(|error| Error::system(&self.key, error))?;
        if let Some(wake) = wake.filter(|_| frame) {
            wake.drain().map_err(|error| Error::system(&self.key, error))?;
        }
        let now = clock::now();
        if message {
            // What is left after the budget is seen by the next poll, which is level-triggered.
            let _ = self.drive(now);
        }
        if self.poll_timeout().is_some_and(|due| due <= now) {
            self.handle_timeout(now);
        }
        Ok(())
    }
}

impl EventSource for Subscriber {
    const TOKENS: usize = 2;

    fn register(&mut self, registry: &Registry, first_token: Token) -> io::Result<()> {
        self.conn.register(registry, first_token)?;
        if let Some(attached) = &self.attached {
            attached.register(registry, wake_token(first_token))?;
        }
        self.registration = Some((registry.try_clone()?, first_token));
        Ok(())
    }

    fn handle_event(&mut self, token: Token, now: Instant) -> io::Result<Turn> {
        if self.registration.as_ref().is_some_and(|(_, first)| token == wake_token(*first)) {
            if let Some(wake) = self.attached.as_ref().and_then(|attached| attached.wake.as_ref()) {
                wake.drain()?;
            }
            return Ok(Turn::Idle);
        }
        Ok(self.drive(now))
    }

    fn handle_timeout(&mut self, now: Instant) {
        // Once: whoever is driven looks again now, or when it wants to.
        self.look_again.take_if(|due| *due <= now);
        self.conn.session.handle_timeout(now);
        self.settle(now);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.conn.session.poll_timeout().into_iter().chain(self.look_again).min()
    }
}

impl Drop for Subscriber {
    fn drop(&mut self) {
        // Frames and the publisher have copies of these descriptors, so closing ours would not end the registration.
        if let Some((registry, _)) = &self.registration {
            let _ = self.conn.deregister(registry);
            if let Some(attached) = &self.attached {
                let _ = attached.deregister(registry);
            }
        }
        let now = clock::now();
        if self.facts.is_none() {
            // Nothing is mapped: the bit, if we have one, may be used again at once.
            self.conn.session.unsubscribe(now);
        }
        self.conn.flush(now);
        // Not into the middle of another message.
        if self.closed.is_none()
            && self.conn.session.poll_transmit().is_none()
            && let Some(attached) = &self.attached
            && let Ok(socket) = self.conn.socket().try_clone()
        {
            attached.reader.seat().outside().say_goodbye_on(socket);
        }
    }
}

const fn wake_token(first: Token) -> Token {
    Token(first.0 + 1)
}

/// How often `try_next` looks at the ring alone before it looks at the connection.
const LOOKS_BEFORE_SYSTEM_CALL: u32 = 1024;
