//! The publisher's side (§4.2).

use super::{Descriptors, Fault, Link, Sent, Side, Told, Why, u32_at};
use crate::conformance::session::bytes::{
    HELLO_REQ, Hello, INVALID_ARGUMENT, PROTOCOL, SUBSCRIBE_REQ, Stream, UNSUBSCRIBE, UNSUPPORTED,
    event_fd_of, hello_refused, shutdown, subscribe_resp,
};

/// A publisher's end of a connection.
#[derive(Debug)]
pub struct Model {
    link: Link,
    /// The stream, with all features that it honours.
    stream: Stream,
    required: u32,
    state: State,
    /// What HELLO_REQ asked for.
    request: Option<Told>,
    descriptors: Descriptors,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Hello,
    Subscribe,
    Admitting,
    Active,
    Draining,
}

/// A command that is not allowed now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Misuse;

impl Model {
    /// A connection that was accepted now.
    #[must_use]
    pub fn new(stream: Stream, required: u32, patience: u64) -> Self {
        let (link, descriptors) = (Link::new(patience, 0), Descriptors::default());
        Self { link, stream, required, state: State::Hello, request: None, descriptors }
    }

    /// The driver answers a request: a bit and `initial_seq`, or a code.
    ///
    /// # Errors
    /// There was no request, or the code is not negative.
    pub fn admit(&mut self, answer: Result<(u32, u64), i32>) -> Result<(), Misuse> {
        match (self.state, answer) {
            (State::Draining, _) => {}
            (State::Admitting, Ok((bit, initial_seq))) => {
                self.link.send(subscribe_resp(0, bit, initial_seq));
                self.state = State::Active;
            }
            (State::Admitting, Err(code)) if code < 0 => {
                let refusal = Sent::Message(subscribe_resp(code, 0, 0), None);
                self.link.end(Some(refusal), Why::Rejected(code));
            }
            _ => return Err(Misuse),
        }
        Ok(())
    }

    /// The driver hands over a descriptor: purpose, index and count.
    ///
    /// # Errors
    /// The peer is not subscribed, or may not get this one.
    pub fn offer_fd(&mut self, what: [u32; 3], fd: u32) -> Result<(), Misuse> {
        match self.state {
            State::Draining => return Ok(()),
            State::Active if self.descriptors.admit(what) => {}
            _ => return Err(Misuse),
        }
        let [purpose, index, count] = what;
        self.link.send_with(event_fd_of(purpose, index, count), Some(fd));
        Ok(())
    }

    /// The publisher stops.
    pub fn shut_down(&mut self, reason: u32) {
        if self.state != State::Draining {
            self.link.send(shutdown(reason));
            self.state = State::Draining;
            self.link.deadline = None;
        }
    }

    /// The driver sends the peer away.
    pub fn expel(&mut self, code: i32) {
        self.link.end(Some(Sent::Error(code)), Why::Rejected(code));
    }

    fn hello(&mut self, payload: &[u8]) -> Result<(), Fault> {
        // The version first: another one is told so, whatever follows (D-3).
        if u32_at(payload, 0).ok_or(PROTOCOL)? != 1 {
            let refusal = Sent::Message(hello_refused(PROTOCOL), None);
            self.link.end(Some(refusal), Why::Violation);
            return Ok(());
        }
        let hello = parse(payload)?;
        let in_force = hello.features & self.stream.features;
        if in_force & self.required != self.required {
            let refusal = Sent::Message(hello_refused(UNSUPPORTED), None);
            self.link.end(Some(refusal), Why::Rejected(UNSUPPORTED));
            return Ok(());
        }
        self.link.send(self.stream.with(in_force).message());
        self.link.begin_step();
        self.descriptors = Descriptors { features: in_force, ring_size: self.stream.ring_size, seen: vec![] };
        let name = String::from_utf8(hello.name).unwrap();
        self.request = Some(Told::Subscribe(name, hello.device, hello.mode, in_force));
        self.state = State::Subscribe;
        Ok(())
    }

    fn subscribe(&mut self, payload: &[u8]) -> Result<(), Fault> {
        let version = u32_at(payload, 0).filter(|_| payload.len() == 16).ok_or(PROTOCOL)?;
        if version != 1 {
            let refusal = Sent::Message(subscribe_resp(PROTOCOL, 0, 0), None);
            self.link.end(Some(refusal), Why::Violation);
            return Ok(());
        }
        // How long the driver takes is not the peer's fault.
        self.link.deadline = None;
        self.link.told.extend(self.request.take());
        self.state = State::Admitting;
        Ok(())
    }
}

impl Side for Model {
    fn link(&mut self) -> &mut Link {
        &mut self.link
    }

    fn handle(&mut self, message_type: u32, payload: &[u8]) -> Result<(), Fault> {
        match (self.state, message_type) {
            (State::Hello, HELLO_REQ) => self.hello(payload),
            (State::Subscribe, SUBSCRIBE_REQ) => self.subscribe(payload),
            (State::Admitting | State::Active | State::Draining, UNSUBSCRIBE) => {
                self.link.abort(Why::Unsubscribed);
                Ok(())
            }
            (State::Draining, HELLO_REQ | SUBSCRIBE_REQ) => Ok(()),
            _ => Err(PROTOCOL),
        }
    }

    fn pong(&mut self) {}

    fn gone(&self) -> Why {
        Why::Disconnected
    }
}

/// HELLO_REQ (§3.3), read from the front; `Err` is the code of the first thing that is wrong.
fn parse(payload: &[u8]) -> Result<Hello, Fault> {
    let version = u32_at(payload, 0).ok_or(PROTOCOL)?;
    let len = usize::try_from(u32_at(payload, 4).ok_or(PROTOCOL)?).unwrap();
    if len > 255 {
        return Err(INVALID_ARGUMENT);
    }
    let name = payload.get(8..8 + len).ok_or(PROTOCOL)?;
    let is_good = |name: &str| !name.is_empty() && !name.chars().any(char::is_control);
    if !str::from_utf8(name).is_ok_and(is_good) {
        return Err(INVALID_ARGUMENT);
    }
    let rest = payload.get(8 + len..).filter(|rest| rest.len() == 20).ok_or(PROTOCOL)?;
    let number = |at| u32_at(rest, at).unwrap();
    Ok(Hello {
        version,
        name: name.to_vec(),
        device: number(0).cast_signed(),
        mode: number(4),
        features: number(8),
    })
}
