//! [`SubscriberSession`]: the subscriber's end of its connection (§4.1).
//!
//! ```text
//! Hello -> Subscribe -> Attaching -> Ready -> ShuttingDown
//! ```
//!
//! Each state can be the last: the [`Link`] ends the connection, and the state stays where it was.

use alloc::collections::VecDeque;
use alloc::string::{String, ToString};
use core::time::Duration;

use super::descriptors::Descriptors;
use super::link::{CommonEvent, Link, check_version};
use super::{Closed, Session, Transmit};
use crate::config::{Features, SubscriberMode};
use crate::error::{ErrorCode, Gone, Misuse, Problem, Refused, Violation};
use crate::time::Instant;
use crate::wire::control::{EventFd, Ping, Shutdown};
use crate::wire::framing::RawMessage;
use crate::wire::hello::{ConsumerName, HelloReq, HelloResp, Stream};
use crate::wire::subscribe::{SubscribeReq, SubscribeResp, Subscribed, Unsubscribe};
use crate::wire::{FdPurpose, MessageType, PROTO_VERSION, ShutdownReason};

/// The subscriber's end of its connection.
#[derive(Debug)]
pub struct SubscriberSession<F> {
    link: Link<F, SubscriberEvent<F>>,
    side: Side,
}

/// What a subscriber says of itself (§3.3).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SubscriberHello {
    /// Its name.
    pub name: ConsumerName,
    /// Its CUDA device, -1 without one.
    pub cuda_device: i32,
    /// Which frames it wants.
    pub mode: SubscriberMode,
    /// The extensions that it understands.
    pub features: Features,
    /// For each step of the handshake (D-29).
    pub handshake_timeout: Duration,
}

/// What a [`SubscriberSession`] tells its driver.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum SubscriberEvent<F> {
    /// What the publisher offers. A driver that can't use it answers with [`reject`](SubscriberSession::reject) (D-28).
    Stream(Stream),
    /// The subscriber has its bit. When everything that its features need is here and mapped, the driver says
    /// [`attached`](SubscriberSession::attached) (D-26).
    Subscribed(Subscribed),
    /// A descriptor came; each one comes once, and only if its features are in force.
    Fd {
        /// What it is.
        purpose: FdPurpose,
        /// Which of several; below `count`. Without meaning for an eventfd.
        index: u32,
        /// Of how many. Without meaning for an eventfd.
        count: u32,
        /// The descriptor.
        fd: F,
    },
    /// The publisher shuts down: what is published may still be read, then [`unsubscribe`](SubscriberSession::unsubscribe)
    /// (D-30).
    Shutdown(ShutdownReason),
    /// A message of this type was skipped because a later version sent it, or it brought a descriptor of an unknown
    /// purpose (D-11).
    Unknown {
        /// Its type.
        message_type: MessageType,
        /// How many were skipped so far, with this one.
        count: u64,
    },
    /// The answer to a [`ping`](SubscriberSession::ping). Not reported while many events wait.
    Pong,
    /// The session ended; nothing follows.
    Closed(Closed),
}

impl<F> SubscriberSession<F> {
    /// The session of a connection that was made at `now`: it begins with HELLO_REQ.
    #[must_use]
    pub fn new(now: Instant, hello: SubscriberHello) -> Self {
        let SubscriberHello { name, cuda_device, mode, features, handshake_timeout } = hello;
        let mut link = Link::new(now, Descriptors::MAX);
        link.begin_step(handshake_timeout);
        let request =
            HelloReq { proto_version: PROTO_VERSION, consumer_name: name, cuda_device, mode, features };
        link.send(|out| request.encode(out));
        let side = Side {
            asked: features,
            handshake_timeout,
            state: State::Hello,
            descriptors: Descriptors::default(),
            pings: 0,
        };
        Self { link, side }
    }

    /// Everything is here and mapped: the handshake is over (D-26).
    ///
    /// # Errors
    /// If there was no [`SubscriberEvent::Subscribed`], or this was said before.
    pub fn attached(&mut self, now: Instant) -> Result<(), Misuse> {
        self.link.advance(now);
        match &mut self.side.state {
            state @ State::Attaching => *state = State::Ready,
            State::ShuttingDown { is_attached: is_attached @ false, .. } => *is_attached = true,
            state => return Err(Misuse::WrongState { command: "attached", state: state.name() }),
        }
        self.link.end_steps();
        Ok(())
    }

    /// Leaves with an ERROR: the driver can't use what the publisher offers (D-28).
    pub fn reject(&mut self, now: Instant, code: ErrorCode, message: &str) {
        self.link.advance(now);
        self.link.fail(code, message.to_string(), Closed::Rejected(code));
    }

    /// Leaves: no lease is held, and the region won't be touched again (D-10).
    pub fn unsubscribe(&mut self, now: Instant) {
        self.link.advance(now);
        let reason = Closed::Gone(Gone::Unsubscribed);
        match self.side.state {
            // There is nothing to take back yet, and UNSUBSCRIBE would be no legal answer to the publisher.
            State::Hello => self.link.abort(reason),
            _ => self.link.close_with(reason, |out| Unsubscribe.encode(out)),
        }
    }

    /// Asks whether the publisher is alive; [`SubscriberEvent::Pong`] is its answer (D-10).
    pub fn ping(&mut self, now: Instant) {
        self.link.advance(now);
        self.link.send(|out| Ping.encode(out));
        self.side.pings += 1;
    }
}

impl<F> Session for SubscriberSession<F> {
    type Fd = F;
    type Event = SubscriberEvent<F>;

    fn handle_bytes(&mut self, now: Instant, bytes: &[u8], fds: &mut VecDeque<F>) {
        self.link.advance(now);
        self.link.receive(bytes, fds, |link, message| self.side.handle_message(link, message));
    }

    fn handle_eof(&mut self, now: Instant) {
        let gone = match self.side.state {
            State::ShuttingDown { reason, .. } => Gone::Shutdown(reason),
            _ => Gone::Disconnected,
        };
        self.link.handle_eof(now, gone);
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

    fn poll_event(&mut self) -> Option<SubscriberEvent<F>> {
        self.link.poll_event()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.link.poll_timeout()
    }

    fn is_closed(&self) -> bool {
        self.link.is_closed()
    }
}

impl<F> CommonEvent for SubscriberEvent<F> {
    fn unknown(message_type: MessageType, count: u64) -> Self {
        Self::Unknown { message_type, count }
    }

    fn closed(closed: Closed) -> Self {
        Self::Closed(closed)
    }
}

/// What is particular to the subscriber.
#[derive(Debug)]
struct Side {
    asked: Features,
    handshake_timeout: Duration,
    state: State,
    descriptors: Descriptors,
    /// Our PINGs that were not answered yet.
    pings: u64,
}

#[derive(Debug)]
enum State {
    /// HELLO_REQ was sent.
    Hello,
    /// SUBSCRIBE_REQ was sent.
    Subscribe,
    /// The bit is there: descriptors come, and the driver maps everything.
    Attaching,
    /// Frames are read.
    Ready,
    /// SHUTDOWN came: the last frames are read, by a driver that has everything mapped or is about to.
    ShuttingDown { reason: ShutdownReason, is_attached: bool },
}

impl State {
    const fn name(&self) -> &'static str {
        match self {
            Self::Hello => "Hello",
            Self::Subscribe => "Subscribe",
            Self::Attaching => "Attaching",
            Self::Ready => "Ready",
            Self::ShuttingDown { .. } => "ShuttingDown",
        }
    }
}

impl Side {
    fn handle_message<F>(
        &mut self,
        link: &mut Link<F, SubscriberEvent<F>>,
        message: RawMessage<'_>,
    ) -> Result<(), Violation> {
        let RawMessage { message_type, payload } = message;
        match (&self.state, message_type) {
            (State::Hello, MessageType::HELLO_RESP) => self.hello(link, payload)?,
            (State::Subscribe, MessageType::SUBSCRIBE_RESP) => self.subscribed(link, payload)?,
            // In any order (D-26).
            (State::Subscribe | State::Attaching | State::Ready, MessageType::EVENT_FD) => {
                self.event_fd(link, payload)?;
            }
            // What comes after SHUTDOWN is without effect.
            (State::ShuttingDown { .. }, MessageType::EVENT_FD) => drop(link.take_fd()?),
            (State::ShuttingDown { .. }, MessageType::SHUTDOWN) => {}
            (state, MessageType::SHUTDOWN) => {
                let Shutdown { reason } = Shutdown::decode(payload)?;
                // A reader may finish what is published (D-30). It is one from SUBSCRIBE_RESP on: the publisher counts
                // on it from then, and all that it needs has been sent.
                let is_attached = match state {
                    State::Attaching => false,
                    State::Ready => true,
                    _ => {
                        link.abort(Closed::Gone(Gone::Shutdown(reason)));
                        return Ok(());
                    }
                };
                link.emit(SubscriberEvent::Shutdown(reason));
                self.state = State::ShuttingDown { reason, is_attached };
            }
            (_, MessageType::PONG) if self.pings > 0 => {
                self.pings -= 1;
                link.emit_if_few(SubscriberEvent::Pong);
            }
            (state, _) => link.handle_other(message, state.name())?,
        }
        Ok(())
    }

    fn hello<F>(&mut self, link: &mut Link<F, SubscriberEvent<F>>, payload: &[u8]) -> Result<(), Violation> {
        let stream = match HelloResp::decode(payload)? {
            HelloResp::Ok(stream) => stream,
            HelloResp::Refused(code) => {
                link.abort(refused(code));
                return Ok(());
            }
        };
        check_version(MessageType::HELLO_RESP, "proto_version_actual", stream.proto_version)?;
        // "A subset of what was asked, else a violation" (D-32).
        if !self.asked.contains(stream.features) {
            let problem = Problem::Value { value: stream.features.0.into() };
            return Err(Violation::new(MessageType::HELLO_RESP, "features", problem));
        }
        link.send(|out| SubscribeReq { proto_version: PROTO_VERSION }.encode(out));
        link.begin_step(self.handshake_timeout);
        self.descriptors = Descriptors::new(stream.features, stream.ring_size);
        self.state = State::Subscribe;
        link.emit(SubscriberEvent::Stream(stream));
        Ok(())
    }

    fn subscribed<F>(
        &mut self,
        link: &mut Link<F, SubscriberEvent<F>>,
        payload: &[u8],
    ) -> Result<(), Violation> {
        let subscribed = match SubscribeResp::decode(payload)? {
            SubscribeResp::Ok(subscribed) => subscribed,
            SubscribeResp::Refused(code) => {
                link.abort(refused(code));
                return Ok(());
            }
        };
        link.begin_step(self.handshake_timeout);
        self.state = State::Attaching;
        link.emit(SubscriberEvent::Subscribed(subscribed));
        Ok(())
    }

    fn event_fd<F>(
        &mut self,
        link: &mut Link<F, SubscriberEvent<F>>,
        payload: &[u8],
    ) -> Result<(), Violation> {
        let message = EventFd::decode(payload)?;
        let fd = link.take_fd()?;
        if message.purpose.name().is_none() {
            // Closed and reported like an unknown message (§3.7).
            link.skip(MessageType::EVENT_FD);
            return Ok(());
        }
        self.descriptors.admit(message)?;
        let EventFd { purpose, index, count } = message;
        link.emit(SubscriberEvent::Fd { purpose, index, count, fd });
        Ok(())
    }
}

/// The publisher said no, in an answer that has no room for words.
fn refused(code: ErrorCode) -> Closed {
    Closed::Refused(Refused { code, message: String::new() })
}
