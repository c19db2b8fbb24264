//! Framing of the byte stream (§3.1): 4 bytes type, 4 bytes length, payload, all little-endian.
//!
//! [`Decoder`] takes the stream in chunks of any size. It keeps bytes only while a message is incomplete, never more
//! than one message, and checks the length before it keeps anything (D-11).

use alloc::vec::Vec;

use bytes::{BufMut, BytesMut};

use crate::error::{Problem, Violation};
use crate::number::{to_u64, to_usize};
use crate::wire::MessageType;

/// Bytes before each payload (§3.1).
pub const HEADER_LEN: usize = 8;
/// The most bytes a payload may have in version 1 (§3.1).
pub const MAX_PAYLOAD: usize = 4096;

/// One message as it came: the payload is not looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RawMessage<'a> {
    /// Its type, known or not.
    pub message_type: MessageType,
    /// Its payload, at most [`MAX_PAYLOAD`] bytes.
    pub payload: &'a [u8],
}

/// Cuts a byte stream into messages.
#[derive(Debug, Default)]
pub struct Decoder {
    /// The start of a message whose end has not come yet; empty otherwise.
    partial: Vec<u8>,
    /// The message in `partial` was returned: it is dropped by the next call.
    returned: bool,
}

impl Decoder {
    /// A decoder at the start of a stream.
    #[must_use]
    pub const fn new() -> Self {
        Self { partial: Vec::new(), returned: false }
    }

    /// Whether the stream ended inside a message if it ended now.
    #[must_use]
    pub const fn is_mid_message(&self) -> bool {
        !self.returned && !self.partial.is_empty()
    }

    /// The next message, or `None` when `input` is used up. `input` is moved past everything that was taken.
    ///
    /// # Errors
    /// A payload longer than [`MAX_PAYLOAD`]: nothing that follows can be understood, so the connection must end.
    pub fn next<'a, 'i: 'a>(&'a mut self, input: &mut &'i [u8]) -> Result<Option<RawMessage<'a>>, Violation> {
        if self.returned {
            self.partial.clear();
            self.returned = false;
        }
        if self.partial.is_empty() {
            // The common case: a whole message lies in the input, and nothing is copied.
            if let Some(header) = input.first_chunk()
                && let (message_type, len) = parse_header(*header)?
                && let Some((message, rest)) = input.split_at_checked(HEADER_LEN + len)
            {
                *input = rest;
                return Ok(Some(RawMessage { message_type, payload: payload_of(message) }));
            }
        }
        if !self.fill(input, HEADER_LEN) {
            return Ok(None);
        }
        let header = self.partial.first_chunk().copied().unwrap_or_default();
        let (message_type, len) = parse_header(header)?;
        if !self.fill(input, HEADER_LEN + len) {
            return Ok(None);
        }
        self.returned = true;
        Ok(Some(RawMessage { message_type, payload: payload_of(&self.partial) }))
    }

    /// Moves bytes over until `partial` has `len` of them; `false` if the input ends first.
    fn fill(&mut self, input: &mut &[u8], len: usize) -> bool {
        let missing = len.saturating_sub(self.partial.len());
        let (taken, rest) = input.split_at(missing.min(input.len()));
        self.partial.extend_from_slice(taken);
        *input = rest;
        self.partial.len() >= len
    }
}

/// Writes one message; `payload` writes the payload, whose length is filled in afterwards.
pub(crate) fn encode(message_type: MessageType, out: &mut BytesMut, payload: impl FnOnce(&mut BytesMut)) {
    let start = out.len();
    out.put_u32_le(message_type.0);
    // Until the length is known it is one that no decoder accepts.
    out.put_u32_le(u32::MAX);
    payload(out);
    let len = out.len() - start - HEADER_LEN;
    debug_assert!(len <= MAX_PAYLOAD, "every message type bounds its own fields");
    if let (Some(field), Ok(len)) = (out.get_mut(start + 4..start + HEADER_LEN), u32::try_from(len)) {
        field.copy_from_slice(&len.to_le_bytes());
    }
}

fn parse_header(header: [u8; HEADER_LEN]) -> Result<(MessageType, usize), Violation> {
    let word = u64::from_le_bytes(header);
    #[expect(clippy::as_conversions, reason = "the low half of the word")]
    let message_type = MessageType(word as u32);
    let len = word >> 32;
    let max = to_u64(MAX_PAYLOAD);
    // "payload_length max = 4096" (§3.1).
    if len > max {
        return Err(Violation::new(message_type, "payload_length", Problem::TooLong { len, max }));
    }
    Ok((message_type, to_usize(len)))
}

fn payload_of(message: &[u8]) -> &[u8] {
    message.get(HEADER_LEN..).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_in_single_bytes_gives_the_same_messages_as_in_one_piece() {
        let mut stream = BytesMut::new();
        encode(MessageType::PING, &mut stream, |out| out.put_slice(b"abc"));
        encode(MessageType(0x77), &mut stream, |_| {});
        encode(MessageType::SHUTDOWN, &mut stream, |out| out.put_bytes(7, MAX_PAYLOAD));
        let decode = |chunk: usize| {
            let mut decoder = Decoder::new();
            let mut found = Vec::new();
            for mut input in stream.chunks(chunk) {
                while let Some(message) = decoder.next(&mut input).unwrap() {
                    found.push((message.message_type, message.payload.to_vec()));
                }
                assert!(input.is_empty());
            }
            assert!(!decoder.is_mid_message());
            found
        };
        let whole = decode(stream.len());
        assert_eq!(whole.len(), 3);
        for chunk in 1..20 {
            assert_eq!(decode(chunk), whole, "chunks of {chunk}");
        }
    }

    #[test]
    fn a_length_over_4096_is_refused_from_the_header_alone() {
        let header = [1, 0, 0, 0, 1, 0x10, 0, 0];
        let expected = Violation::new(
            MessageType::HELLO_REQ,
            "payload_length",
            Problem::TooLong { len: 4097, max: 4096 },
        );
        assert_eq!(Decoder::new().next(&mut header.as_slice()), Err(expected));
        let mut decoder = Decoder::new();
        for byte in &header[..7] {
            assert_eq!(decoder.next(&mut core::slice::from_ref(byte)), Ok(None));
        }
        assert_eq!(decoder.next(&mut &header[7..]), Err(expected));
    }

    #[test]
    fn a_partial_message_is_noticed() {
        let mut decoder = Decoder::new();
        assert!(!decoder.is_mid_message());
        assert_eq!(decoder.next(&mut [0xF0].as_slice()), Ok(None));
        assert!(decoder.is_mid_message());
    }
}
