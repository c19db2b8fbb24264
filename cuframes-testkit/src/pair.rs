//! [`Pair`]: a publisher's and a subscriber's session on virtual time, joined by two [`Pipe`]s.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use std::{iter, mem};

use cuframes_core::session::{
    PublisherEvent, PublisherOffer, PublisherSession, Session, SubscribeRequest, SubscriberHello,
    SubscriberSession,
};
use cuframes_core::wire::subscribe::{InitialSeq, Subscribed};
use cuframes_core::{
    Features, Format, FrameMeta, Instant, Ownership, RingSize, SubscriberBit, SubscriberMode,
};

use crate::pipe::Pipe;

/// Both ends of a connection.
#[derive(Debug)]
pub struct Pair {
    /// The time; only [`drive`](Self::drive) and the test move it.
    pub now: Instant,
    /// The publisher's end.
    pub publisher: End<PublisherSession<u32>>,
    /// The subscriber's end.
    pub subscriber: End<SubscriberSession<u32>>,
}

/// One end of a connection: a session and the driver that a test would otherwise write.
#[derive(Debug)]
pub struct End<S: Session> {
    /// The session.
    pub session: S,
    /// What the other end sent and this one did not read yet.
    pub inbox: Pipe,
    /// All bytes that this end has sent.
    pub sent: Vec<u8>,
    events: Vec<S::Event>,
}

impl Pair {
    /// Both ends right after the connection was made; nothing was sent yet.
    #[must_use]
    pub fn new(offer: PublisherOffer, hello: SubscriberHello) -> Self {
        let now = Instant::ZERO;
        Self {
            now,
            publisher: End::new(PublisherSession::new(now, Arc::new(offer))),
            subscriber: End::new(SubscriberSession::new(now, hello)),
        }
    }

    /// A pair whose handshake is over, with these features in force and no event left to take.
    #[must_use]
    pub fn ready(features: Features) -> Self {
        let mut pair = Self::new(offer(features), hello(features));
        pair.admit();
        pair.subscriber.session.attached(pair.now).unwrap();
        pair.subscriber.take_events();
        pair
    }

    /// Moves bytes until nothing moves any more. No time passes.
    pub fn settle(&mut self) {
        let Self { now, publisher, subscriber } = self;
        while publisher.send(subscriber)
            | subscriber.send(publisher)
            | publisher.receive(*now)
            | subscriber.receive(*now)
            | publisher.collect()
            | subscriber.collect()
        {}
    }

    /// Settles, and jumps from deadline to deadline until none is left.
    pub fn drive(&mut self) {
        self.settle();
        while let Some(deadline) = self.next_deadline() {
            self.now = self.now.max(deadline);
            self.publisher.session.handle_timeout(self.now);
            self.subscriber.session.handle_timeout(self.now);
            self.settle();
        }
    }

    /// When the next deadline is.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        let deadlines = [self.publisher.session.poll_timeout(), self.subscriber.session.poll_timeout()];
        deadlines.into_iter().flatten().min()
    }

    /// Goes on to the subscription request, and takes the subscriber in.
    ///
    /// # Panics
    /// If something else than the request comes from the publisher's end.
    pub fn admit(&mut self) -> SubscribeRequest {
        self.settle();
        let [PublisherEvent::Subscribe(request)] = &self.publisher.take_events()[..] else {
            panic!("no request to subscribe")
        };
        self.publisher.session.admit(self.now, Ok(subscribed())).unwrap();
        self.settle();
        request.clone()
    }
}

impl<S: Session<Fd = u32>> End<S> {
    fn new(session: S) -> Self {
        Self { session, inbox: Pipe::default(), sent: Vec::new(), events: Vec::new() }
    }

    /// The events since the last call.
    pub fn take_events(&mut self) -> Vec<S::Event> {
        mem::take(&mut self.events)
    }

    /// Sends what the pipe to `peer` takes; says whether anything moved.
    pub fn send<P: Session>(&mut self, peer: &mut End<P>) -> bool {
        let mut moved = false;
        while let Some(transmit) = self.session.poll_transmit() {
            let n = peer.inbox.write(transmit);
            if n == 0 {
                break;
            }
            self.sent.extend(transmit.bytes.iter().take(n));
            self.session.transmitted(n);
            moved = true;
        }
        if self.session.is_closed() {
            peer.inbox.end();
        }
        moved
    }

    /// Reads once; says whether there was anything.
    pub fn receive(&mut self, now: Instant) -> bool {
        if self.session.is_closed() {
            return false;
        }
        let mut fds = VecDeque::new();
        let Some(bytes) = self.inbox.read(&mut fds) else { return false };
        if bytes.is_empty() {
            self.session.handle_eof(now);
        } else {
            self.session.handle_bytes(now, &bytes, &mut fds);
            assert!(fds.is_empty(), "a session takes all descriptors");
        }
        true
    }

    /// Takes the events out of the session; says whether there were any.
    pub fn collect(&mut self) -> bool {
        let before = self.events.len();
        self.events.extend(iter::from_fn(|| self.session.poll_event()));
        self.events.len() > before
    }
}

/// A publisher of 8 slots of NV12 that honours `features` and needs none.
#[must_use]
pub fn offer(features: Features) -> PublisherOffer {
    PublisherOffer {
        ring_size: RingSize::new(8).unwrap(),
        ownership: Ownership::LIBRARY,
        meta: FrameMeta::new(Format::NV12, 1920, 1080).unwrap(),
        shm_path: "/dev/shm/cuframes-cam0".into(),
        features,
        required: Features::NONE,
        handshake_timeout: HANDSHAKE_TIMEOUT,
    }
}

/// A subscriber that understands `features`.
#[must_use]
pub fn hello(features: Features) -> SubscriberHello {
    SubscriberHello {
        name: "detector".parse().unwrap(),
        cuda_device: 0,
        mode: SubscriberMode::NEWEST_ONLY,
        features,
        handshake_timeout: HANDSHAKE_TIMEOUT,
    }
}

/// The first bit, at frame 41.
#[must_use]
pub fn subscribed() -> Subscribed {
    Subscribed { bit: SubscriberBit::new(1).unwrap(), initial_seq: InitialSeq::Full(41) }
}

/// For each step of the handshake, on both sides (D-29).
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
