//! What the two sessions must do: §3 and §4 of the protocol as a plain model that knows no codec, no borrowed buffers and no
//! queues. It takes bytes in pieces of any size, and says at once what must be sent and told.
//!
//! [`publisher::Model`] and [`subscriber::Model`] are what is particular to each side; [`Link`] is what both have.

pub mod publisher;
pub mod subscriber;

use std::collections::VecDeque;
use std::mem;

use crate::conformance::session::bytes::{ERROR, PING, PONG, PROTOCOL, TIMEOUT, TYPES, message};

/// What must be sent.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Sent {
    /// Exactly these bytes, and the descriptor with the first of them.
    Message(Vec<u8>, Option<u32>),
    /// An ERROR with this code; its text is free.
    Error(i32),
}

impl Sent {
    /// Whether this message and this descriptor are what must be sent.
    #[must_use]
    pub fn is(&self, bytes: &[u8], fd: Option<u32>) -> bool {
        match self {
            Self::Message(expected, expected_fd) => bytes == expected && fd == *expected_fd,
            Self::Error(code) => {
                let payload = bytes.get(8..).unwrap_or_default();
                u32_at(bytes, 0) == Some(ERROR) && parse_error(payload) == Some(*code) && fd.is_none()
            }
        }
    }
}

/// What must be told to the driver.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Told {
    /// Name, device, mode, and the features in force.
    Subscribe(String, i32, u32, u32),
    /// The features in force.
    Stream(u32),
    /// The bit, and `initial_seq` as eight bytes or as four.
    Subscribed(u32, Result<u64, u32>),
    /// Purpose, index, count and the descriptor.
    Fd([u32; 3], u32),
    /// The reason.
    Shutdown(u32),
    /// Type, and how many were skipped.
    Unknown(u32, u64),
    /// An answer to a PING.
    Pong,
    /// It ended.
    Closed(Why),
}

/// Why a session ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Why {
    /// The peer broke the protocol.
    Violation,
    /// The peer said no, with this code.
    Refused(i32),
    /// We said no, with this code.
    Rejected(i32),
    /// The subscriber left.
    Unsubscribed,
    /// The publisher stopped, for this reason.
    Shutdown(u32),
    /// The connection ended.
    Disconnected,
    /// A deadline passed.
    Timeout,
}

/// The code of the ERROR that a violation is answered with.
pub type Fault = i32;

/// What both sides have.
#[derive(Debug)]
pub struct Link {
    /// Milliseconds.
    now: u64,
    /// When the current step of the handshake must be over.
    deadline: Option<u64>,
    /// For each step.
    patience: u64,
    /// Bytes of a message that is not whole.
    partial: Vec<u8>,
    /// Descriptors that came and belong to no message yet.
    fds: VecDeque<u32>,
    /// How many of them it keeps while a message is not whole.
    max_fds: usize,
    sent: Vec<Sent>,
    told: Vec<Told>,
    skipped: u64,
    is_over: bool,
}

/// One side of a connection.
pub trait Side {
    /// What both sides have.
    fn link(&mut self) -> &mut Link;

    /// Handles a message that is not PING, PONG, ERROR or unknown; `Err` is a violation, as which all messages count that are
    /// not legal now (§4.3).
    ///
    /// # Errors
    /// With the code that the peer is told.
    fn handle(&mut self, message_type: u32, payload: &[u8]) -> Result<(), Fault>;

    /// A PONG came.
    fn pong(&mut self);

    /// What it tells when the connection ends.
    fn gone(&self) -> Why;

    /// Takes what one read gave.
    fn handle_bytes(&mut self, bytes: &[u8], fds: &[u32]) {
        if self.link().is_over {
            return;
        }
        self.link().partial.extend(bytes);
        self.link().fds.extend(fds);
        if let Err(code) = self.read() {
            self.link().end(Some(Sent::Error(code)), Why::Violation);
        }
    }

    /// Handles the messages that are whole (§3.1, §3.11).
    ///
    /// # Errors
    /// A violation.
    fn read(&mut self) -> Result<(), Fault> {
        while let Some((message_type, payload)) = self.link().next_message()? {
            match message_type {
                PING => {
                    let echo = if payload.len() > 64 { &[][..] } else { &payload };
                    self.link().send(message(PONG, echo));
                }
                PONG => self.pong(),
                ERROR => {
                    let code = parse_error(&payload).ok_or(PROTOCOL)?;
                    self.link().abort(Why::Refused(code));
                }
                known if TYPES.iter().any(|(known_type, _)| known == *known_type) => {
                    self.handle(known, &payload)?;
                }
                unknown => self.link().skip(unknown),
            }
            if self.link().is_over {
                return Ok(());
            }
        }
        let Link { partial, fds, max_fds, .. } = self.link();
        let most = if partial.is_empty() { 0 } else { *max_fds };
        if fds.len() > most { Err(PROTOCOL) } else { Ok(()) }
    }

    /// The connection ended.
    fn handle_eof(&mut self) {
        let why = self.gone();
        self.link().abort(why);
    }

    /// So many milliseconds pass.
    fn advance(&mut self, milliseconds: u64) {
        let link = self.link();
        link.now += milliseconds;
        if !link.is_over && link.deadline.is_some_and(|deadline| deadline <= link.now) {
            link.end(Some(Sent::Error(TIMEOUT)), Why::Timeout);
        }
    }
}

impl Link {
    fn new(patience: u64, max_fds: usize) -> Self {
        Self {
            now: 0,
            deadline: Some(patience),
            patience,
            partial: Vec::new(),
            fds: VecDeque::new(),
            max_fds,
            sent: Vec::new(),
            told: Vec::new(),
            skipped: 0,
            is_over: false,
        }
    }

    /// What must have been sent and told since the last call.
    pub fn take(&mut self) -> (Vec<Sent>, Vec<Told>) {
        (mem::take(&mut self.sent), mem::take(&mut self.told))
    }

    /// In how many milliseconds the step of the handshake must be over.
    #[must_use]
    pub fn time_left(&self) -> Option<u64> {
        self.deadline.filter(|_| !self.is_over).map(|deadline| deadline - self.now)
    }

    /// Whether it ended.
    #[must_use]
    pub const fn is_over(&self) -> bool {
        self.is_over
    }

    fn next_message(&mut self) -> Result<Option<(u32, Vec<u8>)>, Fault> {
        let Some(header) = self.partial.first_chunk::<8>() else { return Ok(None) };
        let (message_type, len) = (u32_at(header, 0).unwrap(), u32_at(header, 4).unwrap());
        if len > 4096 {
            return Err(PROTOCOL);
        }
        let end = 8 + usize::try_from(len).unwrap();
        if self.partial.len() < end {
            return Ok(None);
        }
        let message: Vec<u8> = self.partial.drain(..end).collect();
        Ok(Some((message_type, message.get(8..).unwrap().to_vec())))
    }

    fn send(&mut self, bytes: Vec<u8>) {
        self.send_with(bytes, None);
    }

    fn send_with(&mut self, bytes: Vec<u8>, fd: Option<u32>) {
        if !self.is_over {
            self.sent.push(Sent::Message(bytes, fd));
        }
    }

    fn tell(&mut self, told: Told) {
        if !self.is_over {
            self.told.push(told);
        }
    }

    fn skip(&mut self, message_type: u32) {
        self.skipped += 1;
        self.tell(Told::Unknown(message_type, self.skipped));
    }

    fn begin_step(&mut self) {
        self.deadline = Some(self.now + self.patience);
    }

    /// It ends, after the last words.
    fn end(&mut self, last: Option<Sent>, why: Why) {
        if !self.is_over {
            self.sent.extend(last);
            self.told.push(Told::Closed(why));
            self.is_over = true;
        }
    }

    /// It ends, and nothing more needs to be said.
    fn abort(&mut self, why: Why) {
        if !self.is_over {
            self.sent.clear();
            self.end(None, why);
        }
    }
}

/// Which descriptors may go over a connection: each once, with its features in force (§3.7).
#[derive(Debug, Default)]
struct Descriptors {
    features: u32,
    ring_size: u32,
    seen: Vec<(u32, u32)>,
}

impl Descriptors {
    fn admit(&mut self, [purpose, index, count]: [u32; 3]) -> bool {
        let in_force = |bits: u32| self.features & bits == bits;
        let (allowed, index) = match purpose {
            1 => (true, 0),
            2 | 3 => (in_force(1) && count == 1 && index == 0, 0),
            4 => (in_force(1 | 8) && count == self.ring_size && index < count, index),
            5 => (in_force(4), 0),
            6 => (in_force(1 | 32) && count == 1 && index == 0, 0),
            _ => (false, 0),
        };
        if !allowed || self.seen.contains(&(purpose, index)) {
            return false;
        }
        self.seen.push((purpose, index));
        true
    }
}

/// The code of an ERROR, if it is well-formed (§3.9).
fn parse_error(payload: &[u8]) -> Option<i32> {
    let (code, len) = (u32_at(payload, 0)?, u32_at(payload, 4)?);
    let text = payload.get(8..payload.len().checked_sub(12)?)?;
    (text.len() == usize::try_from(len).unwrap() && str::from_utf8(text).is_ok())
        .then_some(code.cast_signed())
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().copied().map(u32::from_le_bytes)
}
