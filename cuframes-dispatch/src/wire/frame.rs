//! [`Decoder`]: cuts a byte stream into frames.

use alloc::vec::Vec;
use core::fmt;

use super::bincode::DecodeError;
use super::message::{Message, Version};

/// Why a connection can't go on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum FrameError {
    /// A frame of no bytes, or of more than [`MAX_PAYLOAD`].
    Length(u32),
    /// A version byte of another version.
    Version(u8),
    /// A payload that is no message.
    Payload(DecodeError),
    /// The end of the stream in the middle of a frame.
    Cut,
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length(len) => write!(f, "a frame of {len} bytes; 1 to {MAX_PAYLOAD} are allowed"),
            Self::Version(version) => write!(f, "it speaks version {version} of the protocol"),
            Self::Payload(error) => write!(f, "a message can't be read: {error}"),
            Self::Cut => f.write_str("the connection ended in the middle of a message"),
        }
    }
}

impl core::error::Error for FrameError {}

/// Cuts a byte stream into messages. Keeps one frame that is not complete, and nothing for bytes that are only announced.
#[derive(Debug)]
pub struct Decoder {
    version: Version,
    /// The length, as far as it is there.
    header: Vec<u8>,
    /// Bytes of the current frame that are still to come; `None` within the length.
    left: Option<usize>,
    payload: Vec<u8>,
}

impl Decoder {
    /// For a connection that speaks this version.
    #[must_use]
    pub const fn new(version: Version) -> Self {
        Self { version, header: Vec::new(), left: None, payload: Vec::new() }
    }

    /// Takes bytes from the front of `bytes` until a message is complete; `None` when all are taken.
    ///
    /// # Errors
    /// If the connection can't go on. Nothing may be given to it afterwards.
    pub fn next(&mut self, bytes: &mut &[u8]) -> Result<Option<Message>, FrameError> {
        loop {
            let Some(left) = &mut self.left else {
                let Some((byte, rest)) = bytes.split_first() else { return Ok(None) };
                *bytes = rest;
                self.header.push(*byte);
                if let Ok(len) = <[u8; 4]>::try_from(self.header.as_slice()) {
                    self.header.clear();
                    self.left = Some(self.check(u32::from_be_bytes(len))?);
                }
                continue;
            };
            let n = bytes.len().min(*left);
            let (part, rest) = bytes.split_at_checked(n).unwrap_or_default();
            *bytes = rest;
            *left -= n;
            self.payload.extend(part);
            if let (Some(expected), Some(found)) = (self.version.byte(), self.payload.first())
                && expected != *found
            {
                return Err(FrameError::Version(*found));
            }
            if *left > 0 {
                return Ok(None);
            }
            self.left = None;
            let payload = core::mem::take(&mut self.payload);
            let skip = usize::from(self.version.byte().is_some());
            let message = Message::decode(self.version, payload.get(skip..).unwrap_or_default());
            return message.map(Some).map_err(FrameError::Payload);
        }
    }

    /// Whether the stream may end here: between two frames, or, as in the original, within a length.
    #[must_use]
    pub const fn may_end(&self) -> bool {
        self.left.is_none()
    }

    /// Bytes that are kept of a frame that is not complete.
    #[must_use]
    pub fn buffered(&self) -> usize {
        self.payload.len()
    }

    fn check(&self, len: u32) -> Result<usize, FrameError> {
        let len_ok = usize::try_from(len).ok().filter(|len| *len <= MAX_PAYLOAD);
        // Without a version byte a frame of no bytes is a payload that can't be read.
        len_ok.filter(|len| *len > 0 || self.version.byte().is_none()).ok_or(FrameError::Length(len))
    }
}

/// The longest payload, with its version byte: 64 MiB.
pub const MAX_PAYLOAD: usize = 64 << 20;
