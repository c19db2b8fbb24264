//! [`PublisherSession`]: the publisher's end of one connection (§4.2).
//!
//! ```text
//! Hello -> Subscribe -> Admitting -> Active -> Draining
//! ```
//!
//! Each state can be the last: the [`Link`] ends the connection, and the state stays where it was.

use alloc::collections::VecDeque;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use core::time::Duration;

use super::descriptors::Descriptors;
use super::link::{CommonEvent, Link, check_version};
use super::{Closed, Session, Transmit};
use crate::config::{Features, Ownership, RingSize, SubscriberMode};
use crate::error::{ErrorCode, Gone, Misuse, Violation};
use crate::time::Instant;
use crate::wire::control::{EventFd, Shutdown};
use crate::wire::framing::RawMessage;
use crate::wire::hello::{ConsumerName, HelloReq, HelloResp, Stream};
use crate::wire::meta::FrameMeta;
use crate::wire::subscribe::{SubscribeReq, SubscribeResp, Subscribed};
use crate::wire::{MessageType, PROTO_VERSION, ShutdownReason};

/// The publisher's end of one connection.
#[derive(Debug)]
pub struct PublisherSession<F> {
    link: Link<F, PublisherEvent>,
    side: Side,
}

/// What a publisher tells everybody who connects.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PublisherOffer {
    /// Slots of the ring.
    pub ring_size: RingSize,
    /// Who allocated the frames.
    pub ownership: Ownership,
    /// Geometry of every frame.
    pub meta: FrameMeta,
    /// Path of the region (D-14).
    pub shm_path: String,
    /// The extensions that the publisher honours.
    pub features: Features,
    /// Those of them without which a subscriber can't use the stream (X-1, X-4, X-5).
    pub required: Features,
    /// For each step of the handshake (D-29).
    pub handshake_timeout: Duration,
}

/// What a subscriber asked for (§3.3).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SubscribeRequest {
    /// Its name.
    pub name: ConsumerName,
    /// Its CUDA device, -1 without one.
    pub cuda_device: i32,
    /// Which frames it wants.
    pub mode: SubscriberMode,
    /// The extensions in force on its connection.
    pub features: Features,
}

/// What a [`PublisherSession`] tells its driver.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum PublisherEvent {
    /// The peer wants to subscribe: answer with [`admit`](PublisherSession::admit).
    Subscribe(SubscribeRequest),
    /// A message of this type was skipped because a later version sent it (D-11).
    Unknown {
        /// Its type.
        message_type: MessageType,
        /// How many were skipped so far, with this one.
        count: u64,
    },
    /// The session ended; nothing follows.
    Closed(Closed),
}

impl<F> PublisherSession<F> {
    /// The session of a connection that was accepted at `now`.
    #[must_use]
    pub fn new(now: Instant, offer: Arc<PublisherOffer>) -> Self {
        let mut link = Link::new(now, 0);
        link.begin_step(offer.handshake_timeout);
        Self { link, side: Side { offer, state: State::Hello, descriptors: Descriptors::default() } }
    }

    /// Answers [`PublisherEvent::Subscribe`]: the peer's bit and first frame, or why it is not taken in (D-27).
    ///
    /// # Errors
    /// If there was no such event, or the refusal is not a negative number.
    pub fn admit(&mut self, now: Instant, answer: Result<Subscribed, ErrorCode>) -> Result<(), Misuse> {
        self.link.advance(now);
        match self.side.state {
            State::Admitting => {}
            // Too late: SHUTDOWN was first.
            State::Draining => return Ok(()),
            _ => return Err(self.side.wrong_state("admit")),
        }
        match answer {
            Ok(subscribed) => {
                self.link.send(|out| SubscribeResp::Ok(subscribed).encode(out));
                self.side.state = State::Active;
                Ok(())
            }
            Err(code) if code < ErrorCode::OK => {
                self.link.close_with(Closed::Rejected(code), |out| SubscribeResp::Refused(code).encode(out));
                Ok(())
            }
            Err(_) => Err(Misuse::Argument { name: "answer", must: "a bit or a negative error code" }),
        }
    }

    /// Passes a descriptor on to a subscriber that was admitted (§3.7, D-26).
    ///
    /// # Errors
    /// If the subscriber was not admitted, or the features in force do not allow this descriptor, or it went already.
    /// The descriptor is dropped then.
    pub fn offer_fd(&mut self, message: EventFd, fd: F) -> Result<(), Misuse> {
        match self.side.state {
            State::Active => {}
            // Too late: SHUTDOWN was first.
            State::Draining => return Ok(()),
            _ => return Err(self.side.wrong_state("offer_fd")),
        }
        self.side.descriptors.admit(message).map_err(|_| Misuse::Argument {
            name: "message",
            must: "a descriptor that the features in force allow and that was not sent yet",
        })?;
        self.link.send_with(Some(fd), |out| message.encode(out));
        Ok(())
    }

    /// Says SHUTDOWN and waits for the peer to leave; how long is for the driver to decide (D-12).
    pub fn shutdown(&mut self, now: Instant, reason: ShutdownReason) {
        self.link.advance(now);
        if !matches!(self.side.state, State::Draining) {
            self.link.send(|out| Shutdown { reason }.encode(out));
            self.link.end_steps();
            self.side.state = State::Draining;
        }
    }

    /// Sends the peer away with an ERROR: it may not connect (D-15, D-29), or it is evicted (D-31).
    pub fn expel(&mut self, now: Instant, code: ErrorCode, message: &str) {
        self.link.advance(now);
        self.link.fail(code, message.to_string(), Closed::Rejected(code));
    }
}

impl<F> Session for PublisherSession<F> {
    type Fd = F;
    type Event = PublisherEvent;

    fn handle_bytes(&mut self, now: Instant, bytes: &[u8], fds: &mut VecDeque<F>) {
        self.link.advance(now);
        self.link.receive(bytes, fds, |link, message| self.side.handle_message(link, message));
    }

    fn handle_eof(&mut self, now: Instant) {
        self.link.handle_eof(now, Gone::Disconnected);
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.link.handle_timeout(now, self.side.state.name());
    }

    fn poll_transmit(&self) -> Option<Transmit<'_, F>> {
        self.link.poll_transmit()
    }

    fn transmitted(&mut self, n: usize) {
        self.link.transmitted(n);
    }

    fn poll_event(&mut self) -> Option<PublisherEvent> {
        self.link.poll_event()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.link.poll_timeout()
    }

    fn is_closed(&self) -> bool {
        self.link.is_closed()
    }
}

impl CommonEvent for PublisherEvent {
    fn unknown(message_type: MessageType, count: u64) -> Self {
        Self::Unknown { message_type, count }
    }

    fn closed(closed: Closed) -> Self {
        Self::Closed(closed)
    }
}

/// What is particular to the publisher.
#[derive(Debug)]
struct Side {
    offer: Arc<PublisherOffer>,
    state: State,
    descriptors: Descriptors,
}

#[derive(Debug)]
enum State {
    /// Waiting for HELLO_REQ.
    Hello,
    /// Waiting for SUBSCRIBE_REQ.
    Subscribe(SubscribeRequest),
    /// Waiting for the driver.
    Admitting,
    /// The peer is subscribed.
    Active,
    /// SHUTDOWN was said: waiting for the peer to leave.
    Draining,
}

impl State {
    const fn name(&self) -> &'static str {
        match self {
            Self::Hello => "Hello",
            Self::Subscribe(_) => "Subscribe",
            Self::Admitting => "Admitting",
            Self::Active => "Active",
            Self::Draining => "Draining",
        }
    }
}

impl Side {
    fn handle_message<F>(
        &mut self,
        link: &mut Link<F, PublisherEvent>,
        message: RawMessage<'_>,
    ) -> Result<(), Violation> {
        let RawMessage { message_type, payload } = message;
        match (&self.state, message_type) {
            (State::Hello, MessageType::HELLO_REQ) => self.hello(link, payload),
            (State::Subscribe(request), MessageType::SUBSCRIBE_REQ) => {
                let request = request.clone();
                self.subscribe(link, request, payload)
            }
            // It holds no lease and won't touch the region again: nothing is left to say (D-10).
            (State::Admitting | State::Active | State::Draining, MessageType::UNSUBSCRIBE) => {
                link.abort(Closed::Gone(Gone::Unsubscribed));
                Ok(())
            }
            // Was under way when we said SHUTDOWN.
            (State::Draining, MessageType::HELLO_REQ | MessageType::SUBSCRIBE_REQ) => Ok(()),
            (state, _) => link.handle_other(message, state.name()),
        }
    }

    fn hello<F>(&mut self, link: &mut Link<F, PublisherEvent>, payload: &[u8]) -> Result<(), Violation> {
        // Another version is told so; the rest of its message is not ours to judge (§6.1, D-3).
        let version = HelloReq::decode_version(payload)?;
        if let Err(violation) = check_version(MessageType::HELLO_REQ, "proto_version", version) {
            let answer = HelloResp::Refused(violation.code());
            link.close_with(Closed::Violation(violation), |out| answer.encode(out));
            return Ok(());
        }
        let HelloReq { consumer_name: name, cuda_device, mode, features, .. } = HelloReq::decode(payload)?;
        let offer = &*self.offer;
        let features = features.intersection(offer.features);
        // "A host-memory publisher answers a subscriber without FD_PASSING with HELLO_RESP(UNSUPPORTED)" (X-1).
        if !features.contains(offer.required) {
            let code = ErrorCode::UNSUPPORTED;
            link.close_with(Closed::Rejected(code), |out| HelloResp::Refused(code).encode(out));
            return Ok(());
        }
        let stream = Stream {
            proto_version: PROTO_VERSION,
            ring_size: offer.ring_size,
            ownership: offer.ownership,
            meta: offer.meta,
            shm_path: offer.shm_path.clone(),
            features,
        };
        link.send(|out| HelloResp::Ok(stream).encode(out));
        link.begin_step(offer.handshake_timeout);
        self.descriptors = Descriptors::new(features, offer.ring_size);
        self.state = State::Subscribe(SubscribeRequest { name, cuda_device, mode, features });
        Ok(())
    }

    fn subscribe<F>(
        &mut self,
        link: &mut Link<F, PublisherEvent>,
        request: SubscribeRequest,
        payload: &[u8],
    ) -> Result<(), Violation> {
        let SubscribeReq { proto_version } = SubscribeReq::decode(payload)?;
        // "proto_version, once more, to double-check" (§3.5, D-27).
        if let Err(violation) = check_version(MessageType::SUBSCRIBE_REQ, "proto_version", proto_version) {
            let answer = SubscribeResp::Refused(violation.code());
            link.close_with(Closed::Violation(violation), |out| answer.encode(out));
            return Ok(());
        }
        link.end_steps();
        link.emit(PublisherEvent::Subscribe(request));
        self.state = State::Admitting;
        Ok(())
    }

    const fn wrong_state(&self, command: &'static str) -> Misuse {
        Misuse::WrongState { command, state: self.state.name() }
    }
}
