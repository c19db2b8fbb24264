//! [`Decoder`]: cuts a byte stream into messages.

use alloc::borrow::Cow;
use alloc::vec::Vec;

use super::error::WireError;
use super::header::{FrameType, HEADER_BYTES, Header, MAX_CHUNK};
use super::hello::MAX_NAME;
use super::message::Message;
use super::reader::{to_u32, to_usize};
use super::snapshot::{Chunk, MAX_MESSAGE};

/// Cuts a byte stream into messages. Keeps one frame that is not complete, only of bytes that came, and never the data of a
/// chunk.
#[derive(Debug)]
pub struct Decoder {
    limits: Limits,
    state: State,
    /// What is there of a header or of a payload that is not complete.
    buffer: Vec<u8>,
}

impl Decoder {
    /// For one direction of a connection.
    #[must_use]
    pub const fn new(limits: Limits) -> Self {
        Self { limits, state: State::Header, buffer: Vec::new() }
    }

    /// Takes bytes from the front of `bytes` until a message is complete. Returns `None` when all are taken, and, without
    /// taking any, while data of a chunk are to come.
    ///
    /// # Errors
    /// What is wrong with the frame. If that [is within it](WireError::is_within_frame), the decoder stands behind the
    /// frame and can go on. Otherwise the stream can't be cut any more, and nothing may be given to it.
    pub fn next(&mut self, bytes: &mut &[u8]) -> Result<Option<Decoded>, WireError> {
        loop {
            match self.state {
                State::Header => {
                    let Some(raw) = fill(&mut self.buffer, bytes, HEADER_BYTES) else { return Ok(None) };
                    let Some(raw) = raw.first_chunk() else { return Ok(None) };
                    self.state = self.limits.announce(Header::decode(raw)?)?;
                }
                State::Payload(header) => {
                    let len = match header.kind {
                        FrameType::CHUNK => Chunk::BYTES,
                        _ => to_usize(header.bytes),
                    };
                    let Some(payload) = fill(&mut self.buffer, bytes, len) else { return Ok(None) };
                    self.state = State::Header;
                    let message = Message::read(header, &payload, &self.limits)?;
                    if let Some(Message::Chunk(Chunk { bytes: 1.., .. })) = message {
                        self.state = State::Data(to_usize(header.bytes).saturating_sub(len));
                    }
                    return Ok(Some(message.map_or(Decoded::Unknown(header), Decoded::Message)));
                }
                State::Drain(header, ref mut left) => {
                    *left -= take(bytes, *left).len();
                    if *left > 0 {
                        return Ok(None);
                    }
                    self.state = State::Header;
                    return Ok(Some(Decoded::Unknown(header)));
                }
                State::Data(_) => return Ok(None),
            }
        }
    }

    /// The frame of an unknown type that has begun and whose payload is not all taken yet.
    #[must_use]
    pub const fn unknown(&self) -> Option<Header> {
        match self.state {
            State::Drain(header, _) => Some(header),
            _ => None,
        }
    }

    /// Bytes that are still to come of the data of the chunk that was the last message.
    #[must_use]
    pub const fn data_left(&self) -> usize {
        match self.state {
            State::Data(left) => left,
            _ => 0,
        }
    }

    /// Takes data of the chunk from the front of `bytes`: as many as are there and still to come.
    pub fn take_data<'a>(&mut self, bytes: &mut &'a [u8]) -> &'a [u8] {
        let data = take(bytes, self.data_left());
        self.data_received(data.len());
        data
    }

    /// Notes that so many bytes of the data were read elsewhere, straight to where they belong. More than are still to come
    /// is for the caller to avoid: they were of the next frame.
    pub const fn data_received(&mut self, n: usize) {
        if let State::Data(left) = self.state {
            self.state = if n < left { State::Data(left - n) } else { State::Header };
        }
    }

    /// Whether the stream may end here: between two frames, or, as in the original, within a header.
    #[must_use]
    pub const fn may_end(&self) -> bool {
        matches!(self.state, State::Header)
    }

    /// Bytes that are kept of a frame that is not complete.
    #[must_use]
    pub const fn buffered(&self) -> usize {
        self.buffer.len()
    }
}

/// What came.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Decoded {
    /// A message.
    Message(Message),
    /// A frame of an unknown type. Its payload was taken, and not kept.
    Unknown(Header),
}

/// The most that a peer may announce, checked before anything is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Limits {
    /// Bytes of the payload of a WORK or a RESULT; 64 MiB if nothing else is said.
    pub work_bytes: u32,
    /// Tokens of a snapshot; 2^20 if nothing else is said.
    pub tokens: u32,
    /// Bytes of an error or of a message; 64 KiB if nothing else is said.
    pub text: u32,
}

impl Limits {
    /// What comes behind a header.
    fn announce(&self, header: Header) -> Result<State, WireError> {
        let token_bytes = self.tokens.saturating_mul(4);
        let (min, behind) = match header.kind {
            FrameType::HELLO => (40, to_u32(MAX_NAME)),
            FrameType::ERROR => (0, self.text),
            FrameType::WORK => (80, self.work_bytes.saturating_sub(80)),
            FrameType::RESULT => (40, self.work_bytes.saturating_sub(40)),
            FrameType::SAVE_REQUEST => (40, 0),
            FrameType::SNAPSHOT_BEGIN => (60, token_bytes.saturating_add(self.text)),
            FrameType::CHUNK => (12, to_u32(MAX_CHUNK)),
            FrameType::DONE => (16, self.text),
            FrameType::LOAD_BEGIN => (60, token_bytes),
            _ => return Ok(State::Drain(header, to_usize(header.bytes))),
        };
        let (kind, bytes, max) = (header.kind, header.bytes, behind.saturating_add(min));
        if (min..=max).contains(&bytes) {
            Ok(State::Payload(header))
        } else {
            Err(WireError::Length { kind, bytes, min, max })
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self { work_bytes: 64 << 20, tokens: 1 << 20, text: to_u32(MAX_MESSAGE) }
    }
}

/// What comes next.
#[derive(Clone, Copy, Debug)]
enum State {
    Header,
    Payload(Header),
    /// So many bytes of an unknown frame.
    Drain(Header, usize),
    /// So many bytes of a chunk's data, at least one.
    Data(usize),
}

/// Takes `n` bytes, of which some may be in the buffer already; without a copy if all are at hand. `None` if they are not there
/// yet; then `bytes` is empty.
fn fill<'a>(buffer: &mut Vec<u8>, bytes: &mut &'a [u8], n: usize) -> Option<Cow<'a, [u8]>> {
    if buffer.is_empty() && bytes.len() >= n {
        return Some(Cow::Borrowed(take(bytes, n)));
    }
    buffer.extend(take(bytes, n.saturating_sub(buffer.len())));
    (buffer.len() == n).then(|| Cow::Owned(core::mem::take(buffer)))
}

fn take<'a>(bytes: &mut &'a [u8], n: usize) -> &'a [u8] {
    let (taken, rest) = bytes.split_at_checked(n).unwrap_or((*bytes, &[]));
    *bytes = rest;
    taken
}
