//! [`Link`]: one ZMTP connection.

use alloc::vec::Vec;
use core::fmt;

use cuframes_core::streams::{self, Outbox};

use super::decoder::{COMMAND, Decoder, Frame, MAX_PAYLOAD, write_header};
use super::{SocketType, greeting};

/// A message as it arrived.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Message {
    /// Its first frame.
    pub payload: Vec<u8>,
    /// How many frames it has; what is in the others is not kept.
    pub frames: usize,
}

/// Why a connection can't go on.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum LinkError {
    /// What came is not the greeting of ZMTP 3 without security.
    Greeting,
    /// A frame with flags that mean nothing.
    Flags(u8),
    /// A frame that is announced as longer than allowed.
    TooLong {
        /// Its length.
        len: u64,
        /// The most that is allowed.
        max: usize,
    },
    /// A message, or another command, before READY.
    NotReady,
    /// A command that does not parse.
    Command,
    /// A socket of a type that does not fit ours, or of none.
    SocketType {
        /// Ours.
        ours: SocketType,
    },
    /// The peer closed it with this reason.
    Refused(Vec<u8>),
    /// Too much waits to be sent to a peer that does not read.
    NotReading,
}

impl fmt::Display for LinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Greeting => f.write_str("it does not speak ZMTP 3 without security"),
            Self::Flags(flags) => write!(f, "a frame has the flags {flags:#04x}"),
            Self::TooLong { len, max } => write!(f, "a frame of {len} bytes, at most {max} are allowed"),
            Self::NotReady => f.write_str("it sent something else before READY"),
            Self::Command => f.write_str("a command does not parse"),
            Self::SocketType { ours } => write!(f, "its socket does not fit our {ours}"),
            Self::Refused(reason) => write!(f, "it refused: {}", reason.escape_ascii()),
            Self::NotReading => f.write_str("it does not read what it is sent"),
        }
    }
}

impl core::error::Error for LinkError {}

/// One ZMTP connection, from the greeting on: bytes in, messages out, and the other way round.
///
/// It keeps one frame that is not complete and the first of a message. What waits to be sent is bounded by who sends it; PONG
/// is not added to more than [`MAX_PAYLOAD`] and 64 KiB.
#[derive(Debug)]
pub struct Link {
    ours: SocketType,
    /// Our identity, which goes into READY.
    name: Vec<u8>,
    state: State,
    decoder: Decoder,
    out: Outbox,
}

#[derive(Debug)]
enum State {
    /// So many bytes of the peer's greeting are there.
    Greeting(usize),
    /// Both have greeted.
    Greeted,
    /// The peer is ready, and has this identity.
    Open(Vec<u8>),
}

impl Link {
    /// A new connection of a socket of this type. `name` is its identity (a DEALER has one), at most 255 bytes.
    #[must_use]
    pub fn new(ours: SocketType, name: &[u8]) -> Self {
        let mut out = Outbox::default();
        out.push(|out| out.extend(greeting::OURS));
        Self { ours, name: name.into(), state: State::Greeting(0), decoder: Decoder::default(), out }
    }

    /// Whether messages can be sent.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        matches!(self.state, State::Open(_))
    }

    /// The identity of the peer: empty if it has none, or is not ready yet.
    #[must_use]
    pub fn peer(&self) -> &[u8] {
        match &self.state {
            State::Open(peer) => peer,
            _ => &[],
        }
    }

    /// Takes bytes from the front of `bytes` until a message is complete; `None` when all are taken.
    ///
    /// # Errors
    /// If the connection can't go on. Nothing may be given to it afterwards.
    pub fn receive(&mut self, bytes: &mut &[u8]) -> Result<Option<Message>, LinkError> {
        while !bytes.is_empty() {
            match &mut self.state {
                State::Greeting(have) => {
                    let n = bytes.len().min(greeting::LEN - *have);
                    let (part, rest) = bytes.split_at_checked(n).unwrap_or_default();
                    if !greeting::may_continue(*have, part) {
                        return Err(LinkError::Greeting);
                    }
                    *bytes = rest;
                    *have += n;
                    if *have == greeting::LEN {
                        self.state = State::Greeted;
                        self.send_ready();
                    }
                }
                _ => match self.decoder.next(bytes, self.is_open())? {
                    Some(Frame::Message(message)) => return Ok(Some(message)),
                    Some(Frame::Command(body)) => self.command(&body)?,
                    None => {}
                },
            }
        }
        Ok(None)
    }

    /// Queues a message of one frame; the connection must be open.
    pub fn send(&mut self, payload: &[u8]) {
        self.push(0, payload);
    }

    /// Whether the peer takes what it is sent: no more than 64 KiB wait.
    pub(crate) fn is_read(&self) -> bool {
        self.out.waiting() <= MAX_WAITING
    }

    /// What to send next.
    #[must_use]
    pub fn poll_transmit(&self) -> Option<&[u8]> {
        self.out.poll_transmit()
    }

    /// The first `n` bytes of it were sent.
    pub fn transmitted(&mut self, n: usize) {
        self.out.transmitted(n);
    }

    fn command(&mut self, body: &[u8]) -> Result<(), LinkError> {
        let (name, mut rest) = short_text(body).ok_or(LinkError::Command)?;
        match name {
            b"READY" if !self.is_open() => {
                self.state = State::Open(self.ready(rest)?);
                Ok(())
            }
            b"ERROR" => {
                let (reason, _) = short_text(rest).ok_or(LinkError::Command)?;
                Err(LinkError::Refused(reason.into()))
            }
            _ if !self.is_open() => Err(LinkError::NotReady),
            // A time to live in two bytes, then a context that PONG repeats, of 16 bytes at most.
            b"PING" => {
                rest = rest.get(2..).filter(|context| context.len() <= 16).ok_or(LinkError::Command)?;
                // A long message may be on its way, and is no fault.
                if self.out.waiting() > MAX_PAYLOAD + MAX_WAITING {
                    return Err(LinkError::NotReading);
                }
                let mut pong = Vec::from(*b"\x04PONG");
                pong.extend(rest);
                self.push(COMMAND, &pong);
                Ok(())
            }
            // PONG, and what later versions may say.
            _ => Ok(()),
        }
    }

    /// The identity in the properties of READY.
    fn ready(&self, mut properties: &[u8]) -> Result<Vec<u8>, LinkError> {
        let (mut fits, mut identity) = (false, Vec::new());
        while !properties.is_empty() {
            let (name, rest) = short_text(properties).ok_or(LinkError::Command)?;
            let (len, rest) = rest.split_first_chunk().ok_or(LinkError::Command)?;
            let len = usize::try_from(u32::from_be_bytes(*len)).map_err(|_| LinkError::Command)?;
            let (value, rest) = rest.split_at_checked(len).ok_or(LinkError::Command)?;
            properties = rest;
            if name.eq_ignore_ascii_case(b"Socket-Type") {
                fits = self.ours.fits(value);
            } else if name.eq_ignore_ascii_case(b"Identity") {
                identity = value.into();
            }
        }
        if fits && identity.len() <= 255 {
            Ok(identity)
        } else {
            Err(LinkError::SocketType { ours: self.ours })
        }
    }

    fn send_ready(&mut self) {
        let mut body = Vec::from(*b"\x05READY");
        property(&mut body, "Socket-Type", self.ours.name().as_bytes());
        if self.ours == SocketType::Dealer {
            let name = core::mem::take(&mut self.name);
            property(&mut body, "Identity", &name);
        }
        self.push(COMMAND, &body);
    }

    fn push(&mut self, flags: u8, body: &[u8]) {
        self.out.push(|out| {
            write_header(out, flags, body.len());
            out.extend(body);
        });
    }
}

impl streams::Link for Link {
    type Message = Message;
    type Sent = [u8];
    type Error = LinkError;

    fn receive(&mut self, bytes: &mut &[u8]) -> Result<Option<Message>, LinkError> {
        self.receive(bytes)
    }

    fn send(&mut self, payload: &[u8]) {
        self.send(payload);
    }

    fn is_open(&self) -> bool {
        self.is_open()
    }

    fn poll_transmit(&self) -> Option<&[u8]> {
        self.poll_transmit()
    }

    fn transmitted(&mut self, n: usize) {
        self.transmitted(n);
    }
}

/// A text after its length in one byte, and what follows it.
fn short_text(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, rest) = bytes.split_first()?;
    rest.split_at_checked(usize::from(*len))
}

fn property(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    out.extend(u8::try_from(name.len()));
    out.extend(name.as_bytes());
    out.extend(u32::try_from(value.len()).unwrap_or(u32::MAX).to_be_bytes());
    out.extend(value);
}

/// Bytes that may wait for a peer before it has to read.
const MAX_WAITING: usize = 64 << 10;
