//! EVENT_FD (§3.7), SHUTDOWN (§3.8), PING and PONG (D-10).

use bytes::{BufMut, BytesMut};

use super::reader::Reader;
use super::{FdPurpose, MessageType, ShutdownReason, framing};
use crate::error::Violation;

/// Announces the file descriptor that comes with it (§3.7, X-1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EventFd {
    /// What the descriptor is.
    pub purpose: FdPurpose,
    /// Which of several; 0 for an eventfd.
    pub index: u32,
    /// Of how many; 0 for an eventfd.
    pub count: u32,
}

impl EventFd {
    /// The announcement of a descriptor of which there is one: counted as 0 of 1, or not at all for an eventfd, as in
    /// plain v1.
    #[must_use]
    pub fn single(purpose: FdPurpose) -> Self {
        let counted = !matches!(purpose, FdPurpose::WAKE_UP | FdPurpose::PUBLISHER_WAKE_UP);
        Self { purpose, index: 0, count: counted.into() }
    }

    /// Reads a payload.
    ///
    /// # Errors
    /// A field that is missing, or bytes too many.
    pub fn decode(payload: &[u8]) -> Result<Self, Violation> {
        let mut reader = Reader::new(MessageType::EVENT_FD, payload);
        let purpose = FdPurpose(reader.u32("fd_purpose")?);
        let index = reader.u32("index")?;
        let count = reader.u32("count")?;
        reader.array::<4>("reserved")?;
        reader.finish()?;
        Ok(Self { purpose, index, count })
    }

    /// Appends the whole message.
    pub fn encode(&self, out: &mut BytesMut) {
        framing::encode(MessageType::EVENT_FD, out, |out| {
            out.put_u32_le(self.purpose.0);
            out.put_u32_le(self.index);
            out.put_u32_le(self.count);
            out.put_bytes(0, 4);
        });
    }
}

/// The publisher shuts down (§3.8).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shutdown {
    /// Why.
    pub reason: ShutdownReason,
}

impl Shutdown {
    /// Reads a payload.
    ///
    /// # Errors
    /// A field that is missing, or bytes too many.
    pub fn decode(payload: &[u8]) -> Result<Self, Violation> {
        let mut reader = Reader::new(MessageType::SHUTDOWN, payload);
        let reason = ShutdownReason(reader.u32("reason")?);
        reader.array::<12>("reserved")?;
        reader.finish()?;
        Ok(Self { reason })
    }

    /// Appends the whole message.
    pub fn encode(&self, out: &mut BytesMut) {
        framing::encode(MessageType::SHUTDOWN, out, |out| {
            out.put_u32_le(self.reason.0);
            out.put_bytes(0, 12);
        });
    }
}

/// Asks whether the other side is alive. We send it empty; any payload is accepted (D-10).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ping;

impl Ping {
    /// Appends the whole message.
    pub fn encode(self, out: &mut BytesMut) {
        framing::encode(MessageType::PING, out, |_| {});
    }
}

/// Answers a PING.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pong<'a> {
    /// The payload of the PING if it has at most [`Pong::MAX_ECHO`] bytes, else nothing (D-10).
    pub echo: &'a [u8],
}

impl<'a> Pong<'a> {
    /// The longest payload that is echoed (D-10).
    pub const MAX_ECHO: usize = 64;

    /// The answer to a PING with this payload.
    #[must_use]
    pub fn answer(ping: &'a [u8]) -> Self {
        Self { echo: if ping.len() <= Self::MAX_ECHO { ping } else { &[] } }
    }

    /// Appends the whole message.
    pub fn encode(&self, out: &mut BytesMut) {
        framing::encode(MessageType::PONG, out, |out| out.put_slice(self.echo));
    }
}
