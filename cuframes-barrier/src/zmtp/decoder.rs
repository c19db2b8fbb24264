//! [`Decoder`]: cuts the bytes after the greeting into frames.
//!
//! Nothing is reserved for a length that is only announced: a buffer grows as bytes arrive, and a length beyond the caps ends
//! the connection at once. Of a message of several frames only the first is kept.

use alloc::vec::Vec;
use core::mem;

use super::link::{LinkError, Message};

/// What a decoder has found.
#[derive(Debug)]
pub(super) enum Frame {
    Command(Vec<u8>),
    Message(Message),
}

/// Cuts bytes into frames.
#[derive(Debug, Default)]
pub(super) struct Decoder {
    /// The header as far as it is there: flags, then a length of one byte or of eight.
    header: Vec<u8>,
    /// The frame whose body is being read.
    body: Option<Body>,
    /// Frames of the current message that are complete.
    frames: usize,
    /// The first of them.
    first: Vec<u8>,
}

#[derive(Debug)]
struct Body {
    flags: u8,
    left: usize,
    /// Whether the bytes are kept.
    kept: bool,
    bytes: Vec<u8>,
}

impl Decoder {
    /// Takes bytes from the front of `bytes` until a command or a message is complete. `is_open`: commands only, before.
    pub(super) fn next(&mut self, bytes: &mut &[u8], is_open: bool) -> Result<Option<Frame>, LinkError> {
        loop {
            let Some(body) = &mut self.body else {
                let Some((byte, rest)) = bytes.split_first() else { return Ok(None) };
                *bytes = rest;
                self.header.push(*byte);
                self.body = self.begin(is_open)?;
                continue;
            };
            let n = body.left.min(bytes.len());
            let Some((part, rest)) = bytes.split_at_checked(n) else { return Ok(None) };
            *bytes = rest;
            body.left -= n;
            if body.kept {
                body.bytes.extend(part);
            }
            if body.left > 0 {
                return Ok(None);
            }
            if let Some(frame) = self.body.take().and_then(|body| self.complete(body)) {
                return Ok(Some(frame));
            }
        }
    }

    /// The body that the header announces, once it is complete.
    fn begin(&mut self, is_open: bool) -> Result<Option<Body>, LinkError> {
        let (flags, len) = match *self.header.as_slice() {
            [flags, ..]
                if flags & !(MORE | LONG | COMMAND) != 0 || flags & COMMAND != 0 && flags & MORE != 0 =>
            {
                return Err(LinkError::Flags(flags));
            }
            [flags, len] if flags & LONG == 0 => (flags, u64::from(len)),
            [flags, ref len @ ..] => match <[u8; 8]>::try_from(len) {
                Ok(len) => (flags, u64::from_be_bytes(len)),
                Err(_) => return Ok(None),
            },
            [] => return Ok(None),
        };
        let is_command = flags & COMMAND != 0;
        if !is_open && !is_command {
            return Err(LinkError::NotReady);
        }
        let max = if is_command { MAX_COMMAND } else { MAX_PAYLOAD };
        let left =
            usize::try_from(len).ok().filter(|len| *len <= max).ok_or(LinkError::TooLong { len, max })?;
        self.header.clear();
        Ok(Some(Body { flags, left, kept: is_command || self.frames == 0, bytes: Vec::new() }))
    }

    fn complete(&mut self, body: Body) -> Option<Frame> {
        if body.flags & COMMAND != 0 {
            return Some(Frame::Command(body.bytes));
        }
        if body.kept {
            self.first = body.bytes;
        }
        self.frames = self.frames.saturating_add(1);
        (body.flags & MORE == 0).then(|| {
            Frame::Message(Message {
                payload: mem::take(&mut self.first),
                frames: mem::take(&mut self.frames),
            })
        })
    }
}

/// The header of the frame `len` bytes long that is appended to `out`.
pub(super) fn write_header(out: &mut Vec<u8>, flags: u8, len: usize) {
    match u8::try_from(len) {
        Ok(len) => out.extend([flags, len]),
        Err(_) => {
            out.push(flags | LONG);
            out.extend(u64::try_from(len).unwrap_or(u64::MAX).to_be_bytes());
        }
    }
}

/// Another frame of the same message follows.
const MORE: u8 = 1;
/// The length has eight bytes.
const LONG: u8 = 2;
/// A command, not a message.
pub(super) const COMMAND: u8 = 4;

/// The longest frame of a message, in bytes: 1 MiB. One that is announced as longer ends the connection.
pub const MAX_PAYLOAD: usize = 1 << 20;
/// The longest command, in bytes: 8 KiB.
pub const MAX_COMMAND: usize = 8 << 10;
