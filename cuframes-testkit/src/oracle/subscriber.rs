//! The subscriber's side (§4.1).

use cuframes_core::FrameMeta;

use super::publisher::Misuse;
use super::{Descriptors, Fault, Link, Sent, Side, Told, Why, u32_at};
use crate::conformance::session::bytes::{
    EVENT_FD, FORMAT, HELLO_RESP, Hello, PING, PROTOCOL, SHUTDOWN, SUBSCRIBE_RESP, UNSUBSCRIBE, any,
    subscribe_req,
};

/// A subscriber's end of a connection.
#[derive(Debug)]
pub struct Model {
    link: Link,
    asked: u32,
    state: State,
    descriptors: Descriptors,
    /// Its PINGs that were not answered yet.
    pings: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Hello,
    Subscribe,
    Attaching,
    Ready,
    ShuttingDown { reason: u32, is_attached: bool },
}

impl Model {
    /// A connection that was made now: it says HELLO_REQ.
    #[must_use]
    pub fn new(hello: &Hello, patience: u64) -> Self {
        let mut link = Link::new(patience, 20);
        link.send(hello.message());
        let descriptors = Descriptors::default();
        Self { link, asked: hello.features, state: State::Hello, descriptors, pings: 0 }
    }

    /// The driver has everything mapped.
    ///
    /// # Errors
    /// It has no bit, or said so before.
    pub fn attached(&mut self) -> Result<(), Misuse> {
        self.state = match self.state {
            State::Attaching => State::Ready,
            State::ShuttingDown { reason, is_attached: false } => {
                State::ShuttingDown { reason, is_attached: true }
            }
            _ => return Err(Misuse),
        };
        self.link.deadline = None;
        Ok(())
    }

    /// The driver asks whether the publisher is there.
    pub fn ping(&mut self) {
        self.link.send(any(PING));
        self.pings += 1;
    }

    /// The driver leaves; in Hello there is nothing to take back.
    pub fn unsubscribe(&mut self) {
        if self.state == State::Hello {
            self.link.abort(Why::Unsubscribed);
        } else {
            self.link.end(Some(Sent::Message(any(UNSUBSCRIBE), None)), Why::Unsubscribed);
        }
    }

    /// The driver can't use what is offered.
    pub fn reject(&mut self, code: i32) {
        self.link.end(Some(Sent::Error(code)), Why::Rejected(code));
    }

    fn hello(&mut self, payload: &[u8]) -> Result<(), Fault> {
        if let Some(code) = refusal(payload)? {
            self.link.abort(Why::Refused(code));
            return Ok(());
        }
        let number = |at| u32_at(payload, at).ok_or(PROTOCOL);
        let (version, ring_size) = (number(4)?, number(8)?);
        let meta = payload.get(16..80).and_then(<[u8]>::first_chunk).ok_or(PROTOCOL);
        if !(1..=16).contains(&ring_size) {
            return Err(PROTOCOL);
        }
        if number(16).is_ok_and(|format| meta.is_ok() && !(1..=13).contains(&format)) {
            return Err(FORMAT);
        }
        // The geometry has tests of its own.
        FrameMeta::from_bytes(meta?).validate().map_err(|_| PROTOCOL)?;
        let len = usize::try_from(number(80)?).unwrap();
        let path = payload.get(84..84 + len).ok_or(PROTOCOL)?;
        let features = number(84 + len)?;
        let whole = payload.len() == 96 + len && str::from_utf8(path).is_ok();
        if !whole || version != 1 || features & !self.asked != 0 {
            return Err(PROTOCOL);
        }
        self.link.send(subscribe_req(1));
        self.link.begin_step();
        self.link.tell(Told::Stream(features));
        self.descriptors = Descriptors { features, ring_size, seen: vec![] };
        self.state = State::Subscribe;
        Ok(())
    }

    fn subscribed(&mut self, payload: &[u8]) -> Result<(), Fault> {
        if let Some(code) = refusal(payload)? {
            self.link.abort(Why::Refused(code));
            return Ok(());
        }
        let bit = u32_at(payload, 4).filter(|bit| (1..=31).contains(bit)).ok_or(PROTOCOL)?;
        let low = u32_at(payload, 8).ok_or(PROTOCOL)?;
        let initial_seq = match payload.len() {
            24 => Err(low),
            28 => Ok(u64::from(low) | u64::from(u32_at(payload, 12).unwrap()) << 32),
            _ => return Err(PROTOCOL),
        };
        self.link.begin_step();
        self.link.tell(Told::Subscribed(bit, initial_seq));
        self.state = State::Attaching;
        Ok(())
    }

    fn event_fd(&mut self, payload: &[u8]) -> Result<(), Fault> {
        if payload.len() != 16 {
            return Err(PROTOCOL);
        }
        let fd = self.link.fds.pop_front().ok_or(PROTOCOL)?;
        let what = [0, 4, 8].map(|at| u32_at(payload, at).unwrap());
        let [purpose, ..] = what;
        if !(1..=6).contains(&purpose) {
            self.link.skip(EVENT_FD);
            return Ok(());
        }
        if !self.descriptors.admit(what) {
            return Err(PROTOCOL);
        }
        self.link.tell(Told::Fd(what, fd));
        Ok(())
    }

    fn shutdown(&mut self, payload: &[u8]) -> Result<(), Fault> {
        let reason = u32_at(payload, 0).filter(|_| payload.len() == 16).ok_or(PROTOCOL)?;
        match self.state {
            State::Attaching | State::Ready => {
                self.link.tell(Told::Shutdown(reason));
                self.state = State::ShuttingDown { reason, is_attached: self.state == State::Ready };
            }
            _ => self.link.abort(Why::Shutdown(reason)),
        }
        Ok(())
    }
}

impl Side for Model {
    fn link(&mut self) -> &mut Link {
        &mut self.link
    }

    fn handle(&mut self, message_type: u32, payload: &[u8]) -> Result<(), Fault> {
        match (self.state, message_type) {
            (State::Hello, HELLO_RESP) => self.hello(payload),
            (State::Subscribe, SUBSCRIBE_RESP) => self.subscribed(payload),
            (State::Subscribe | State::Attaching | State::Ready, EVENT_FD) => self.event_fd(payload),
            (State::ShuttingDown { .. }, EVENT_FD) => self.link.fds.pop_front().map(drop).ok_or(PROTOCOL),
            (State::ShuttingDown { .. }, SHUTDOWN) => Ok(()),
            (_, SHUTDOWN) => self.shutdown(payload),
            _ => Err(PROTOCOL),
        }
    }

    fn pong(&mut self) {
        if let Some(pings) = self.pings.checked_sub(1) {
            self.pings = pings;
            self.link.tell(Told::Pong);
        }
    }

    fn gone(&self) -> Why {
        match self.state {
            State::ShuttingDown { reason, .. } => Why::Shutdown(reason),
            _ => Why::Disconnected,
        }
    }
}

/// The code of a `result` that is a refusal, after which nothing is looked at; a positive one is malformed (§3.4).
fn refusal(payload: &[u8]) -> Result<Option<i32>, Fault> {
    match u32_at(payload, 0).ok_or(PROTOCOL)?.cast_signed() {
        0 => Ok(None),
        code if code < 0 => Ok(Some(code)),
        _ => Err(PROTOCOL),
    }
}
