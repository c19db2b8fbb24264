//! [`Peer`]: one connection that speaks DS4D.

use alloc::vec::Vec;

use cuframes_core::streams::{Link, Outbox};

use super::Fault;
use crate::wire::{Decoded, Decoder, FrameType, HEADER_BYTES, Header, Limits, Message, WireError};

/// A connection: bytes in, messages out, and the other way round.
#[derive(Debug)]
pub(crate) struct Peer {
    limits: Limits,
    decoder: Decoder,
    /// The beginning of the frame that is not complete.
    head: Vec<u8>,
    /// Of a WORK that is too short to be one: what is wrong, and how many bytes are to come.
    short: Option<(WireError, usize)>,
    out: Outbox,
    /// Bytes that were ever queued, and sent.
    queued: u64,
    sent: u64,
}

/// What came.
#[derive(Debug)]
pub(crate) enum Arrived {
    Message(Message),
    /// Data of the chunk that was the last message.
    Data(Vec<u8>),
    /// A frame of an unknown type.
    Unknown(Header),
    /// A frame that can't be read, but whose end is known: of which type and, as far as it says so, which request.
    Unreadable {
        kind: FrameType,
        request: u64,
        error: WireError,
    },
}

impl Arrived {
    /// What is wrong with it where it has no place.
    pub(crate) fn fault(self) -> Fault {
        match self {
            Self::Message(Message::Error(text)) => Fault::Remote(text),
            Self::Message(message) => Fault::Unexpected(message.kind()),
            Self::Data(_) => Fault::Unexpected(FrameType::CHUNK),
            Self::Unknown(header) => Fault::Unexpected(header.kind),
            Self::Unreadable { error, .. } => Fault::Frame(error),
        }
    }
}

/// What is sent.
#[derive(Debug)]
pub(crate) enum Piece {
    Message(Message),
    /// Data of the chunk that was the last message.
    Data(Vec<u8>),
}

impl Peer {
    pub(crate) fn new(limits: Limits) -> Self {
        let decoder = Decoder::new(limits);
        Self { limits, decoder, head: Vec::new(), short: None, out: Outbox::default(), queued: 0, sent: 0 }
    }

    /// Whether the other side may end it here.
    pub(crate) const fn may_end(&self) -> bool {
        self.decoder.may_end() && self.short.is_none()
    }

    /// Bytes of a frame that is not complete.
    pub(crate) const fn buffered(&self) -> usize {
        self.decoder.buffered()
    }

    /// Bytes that wait to be sent.
    pub(crate) const fn waiting(&self) -> usize {
        self.out.waiting()
    }

    /// Bytes that were ever queued.
    pub(crate) const fn queued(&self) -> u64 {
        self.queued
    }

    /// Bytes that were ever sent.
    pub(crate) const fn sent(&self) -> u64 {
        self.sent
    }

    /// What the decoder makes of the next bytes.
    fn decode(&mut self, bytes: &mut &[u8]) -> Result<Option<Arrived>, WireError> {
        let before = *bytes;
        let decoded = self.decoder.next(bytes);
        self.note(before, bytes.len());
        let error = match decoded {
            Ok(None) => return Ok(None),
            Ok(Some(Decoded::Message(message))) => return Ok(Some(Arrived::Message(message))),
            Ok(Some(Decoded::Unknown(header))) => return Ok(Some(Arrived::Unknown(header))),
            Err(error) => error,
        };
        match (kind(&error), error) {
            // It has an answer like every other WORK that is wrong.
            (_, WireError::Length { kind: FrameType::WORK, bytes: announced, min, .. })
                if announced < min =>
            {
                self.decoder = Decoder::new(self.limits);
                self.short = Some((error, usize::try_from(announced).unwrap_or(usize::MAX)));
                Ok(self.drain(bytes))
            }
            (Some(kind), error) if error.is_within_frame() => {
                Ok(Some(Arrived::Unreadable { kind, request: request(&self.head), error }))
            }
            _ => Err(error),
        }
    }

    /// Takes the rest of a WORK that is too short.
    fn drain(&mut self, bytes: &mut &[u8]) -> Option<Arrived> {
        let before = *bytes;
        let (error, left) = self.short.as_mut()?;
        let (taken, rest) = bytes.split_at_checked(*left).unwrap_or((*bytes, &[]));
        *left -= taken.len();
        *bytes = rest;
        let is_over = *left == 0;
        let error = *error;
        self.note(before, rest.len());
        is_over.then(|| {
            self.short = None;
            Arrived::Unreadable { kind: FrameType::WORK, request: request(&self.head), error }
        })
    }

    /// All that was taken of `before` belongs to one frame: the beginning of it is remembered.
    fn note(&mut self, before: &[u8], left: usize) {
        let taken = before.get(..before.len().saturating_sub(left)).unwrap_or_default();
        let missing = HEAD.saturating_sub(self.head.len()).min(taken.len());
        self.head.extend(taken.get(..missing).unwrap_or_default());
    }
}

impl Link for Peer {
    type Message = Arrived;
    type Sent = Piece;
    type Error = WireError;

    fn receive(&mut self, bytes: &mut &[u8]) -> Result<Option<Arrived>, WireError> {
        if self.decoder.data_left() > 0 {
            let data = self.decoder.take_data(bytes);
            return Ok((!data.is_empty()).then(|| Arrived::Data(data.to_vec())));
        }
        let result = if self.short.is_some() { Ok(self.drain(bytes)) } else { self.decode(bytes) };
        if !matches!(result, Ok(None)) {
            self.head.clear();
        }
        result
    }

    fn send(&mut self, piece: &Piece) {
        let waiting = self.out.waiting();
        self.out.push(|out| match piece {
            Piece::Message(message) => message.encode(out),
            Piece::Data(data) => out.extend(data),
        });
        self.queued = self.queued.wrapping_add(wide(self.out.waiting() - waiting));
    }

    fn is_open(&self) -> bool {
        true
    }

    fn poll_transmit(&self) -> Option<&[u8]> {
        self.out.poll_transmit()
    }

    fn transmitted(&mut self, n: usize) {
        let waiting = self.out.waiting();
        self.out.transmitted(n);
        self.sent = self.sent.wrapping_add(wide(waiting - self.out.waiting()));
    }
}

/// The frame that an error is about.
const fn kind(error: &WireError) -> Option<FrameType> {
    match *error {
        WireError::Length { kind, .. }
        | WireError::Field { kind, .. }
        | WireError::Truncated { kind, .. }
        | WireError::Text { kind, .. } => Some(kind),
        _ => None,
    }
}

/// The request that a frame is about, if its beginning says so: behind the model and the session.
fn request(head: &[u8]) -> u64 {
    let at = HEADER_BYTES + 12;
    let bytes = head.get(at..).and_then(|rest| rest.first_chunk());
    bytes.copied().map_or(0, u64::from_be_bytes)
}

fn wide(n: usize) -> u64 {
    u64::try_from(n).unwrap_or(u64::MAX)
}

/// Bytes up to the end of the request's number.
const HEAD: usize = HEADER_BYTES + 20;
