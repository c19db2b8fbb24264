//! HELLO_REQ (§3.3) and HELLO_RESP (§3.4): versions, features, and what the stream looks like.

use alloc::string::{String, ToString};
use core::fmt;
use core::str::FromStr;

use bytes::{BufMut, BytesMut};

use super::MessageType;
use super::framing::{self, MAX_PAYLOAD};
use super::meta::FrameMeta;
use super::reader::Reader;
use crate::config::{Features, Ownership, RingSize, SubscriberMode};
use crate::error::{ErrorCode, Place, Problem, Violation};
use crate::number::{to_u64, to_usize};
use crate::text::cut;

/// First message of a connection, from the subscriber (§3.3).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HelloReq {
    /// Version of the protocol that the subscriber speaks.
    pub proto_version: u32,
    /// Its name.
    pub consumer_name: ConsumerName,
    /// Its CUDA device, -1 without one (D-16).
    pub cuda_device: i32,
    /// Which frames it wants; unknown values are accepted (D-16).
    pub mode: SubscriberMode,
    /// The extensions that it understands: the first reserved bytes.
    pub features: Features,
}

impl HelloReq {
    /// The version that a HELLO_REQ of every version starts with. It is judged before the rest, which another version may
    /// lay out in another way (§6.1, D-3).
    ///
    /// # Errors
    /// A payload that ends before it.
    pub fn decode_version(payload: &[u8]) -> Result<u32, Violation> {
        Reader::new(MessageType::HELLO_REQ, payload).u32("proto_version")
    }

    /// Reads a payload.
    ///
    /// # Errors
    /// A field that is missing or not allowed, or bytes too many.
    pub fn decode(payload: &[u8]) -> Result<Self, Violation> {
        let mut reader = Reader::new(MessageType::HELLO_REQ, payload);
        let proto_version = reader.u32("proto_version")?;
        let len = u64::from(reader.u32("consumer_name_len")?);
        let max = to_u64(ConsumerName::MAX_LEN);
        if len > max {
            return Err(reader.violation("consumer_name_len", Problem::TooLong { len, max }));
        }
        let name = reader.text("consumer_name", to_usize(len))?;
        let consumer_name = name.parse().map_err(|error| {
            let problem = match error {
                InvalidName::Empty => Problem::Empty,
                InvalidName::TooLong { len } => Problem::TooLong { len: to_u64(len), max },
                InvalidName::ControlCharacter => Problem::ControlCharacter,
            };
            reader.violation("consumer_name", problem)
        })?;
        let cuda_device = reader.i32("cuda_device")?;
        let mode = SubscriberMode(reader.u32("mode")?);
        let features = Features(reader.u32("features")?);
        reader.array::<8>("reserved")?;
        reader.finish()?;
        Ok(Self { proto_version, consumer_name, cuda_device, mode, features })
    }

    /// Appends the whole message.
    pub fn encode(&self, out: &mut BytesMut) {
        framing::encode(MessageType::HELLO_REQ, out, |out| {
            out.put_u32_le(self.proto_version);
            put_text(out, self.consumer_name.as_str());
            out.put_i32_le(self.cuda_device);
            out.put_u32_le(self.mode.0);
            out.put_u32_le(self.features.0);
            out.put_bytes(0, 8);
        });
    }
}

/// The publisher's answer to HELLO_REQ (§3.4).
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum HelloResp {
    /// The subscriber may go on; this is the stream.
    Ok(Stream),
    /// It may not.
    Refused(ErrorCode),
}

/// What a publisher offers (§3.4).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stream {
    /// Version of the protocol that the publisher speaks.
    pub proto_version: u32,
    /// Slots of the ring.
    pub ring_size: RingSize,
    /// Who allocated the frames.
    pub ownership: Ownership,
    /// Geometry of every frame.
    pub meta: FrameMeta,
    /// Path of the region (D-14).
    pub shm_path: String,
    /// The extensions in force on this connection: the first reserved bytes.
    pub features: Features,
}

impl HelloResp {
    /// Reads a payload. A refusal may end anywhere after its result (§3.4).
    ///
    /// # Errors
    /// A field that is missing or not allowed, or bytes too many.
    pub fn decode(payload: &[u8]) -> Result<Self, Violation> {
        let mut reader = Reader::new(MessageType::HELLO_RESP, payload);
        if let Some(code) = read_result(&mut reader)? {
            return Ok(Self::Refused(code));
        }
        let proto_version = reader.u32("proto_version_actual")?;
        let ring_size = reader.u32("ring_size")?.into();
        let ring_size = RingSize::new(ring_size)
            .ok_or_else(|| reader.violation("ring_size", Problem::Value { value: ring_size }))?;
        let ownership = Ownership(reader.u32("ownership_mode")?);
        let meta = FrameMeta::from_bytes(&reader.array("frame_meta")?);
        meta.validate().map_err(|error| error.violation(Place::Message(MessageType::HELLO_RESP)))?;
        let path_len = to_usize(reader.u32("shm_path_len")?.into());
        let shm_path = reader.text("shm_path", path_len)?.to_string();
        let features = Features(reader.u32("features")?);
        reader.array::<8>("reserved")?;
        reader.finish()?;
        Ok(Self::Ok(Stream { proto_version, ring_size, ownership, meta, shm_path, features }))
    }

    /// Appends the whole message; a refusal in its short form, result and reserved bytes.
    pub fn encode(&self, out: &mut BytesMut) {
        framing::encode(MessageType::HELLO_RESP, out, |out| match self {
            Self::Ok(stream) => {
                out.put_i32_le(ErrorCode::OK.0);
                out.put_u32_le(stream.proto_version);
                out.put_u32_le(stream.ring_size.get().into());
                out.put_u32_le(stream.ownership.0);
                out.put_slice(&stream.meta.to_bytes());
                put_text(out, &stream.shm_path);
                out.put_u32_le(stream.features.0);
                out.put_bytes(0, 8);
            }
            Self::Refused(code) => {
                out.put_i32_le(code.0);
                out.put_bytes(0, 12);
            }
        });
    }
}

/// Name of a subscriber (D-16): UTF-8, 1 to 255 bytes, no control character.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ConsumerName(String);

impl ConsumerName {
    /// The most bytes a name may have (D-16).
    pub const MAX_LEN: usize = 255;

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name for the region (§2.3): ASCII (`?` for other characters), at most 31 bytes, zero-terminated.
    #[must_use]
    pub fn to_region_bytes(&self) -> [u8; 32] {
        let mut bytes = [0; 32];
        for (byte, character) in bytes.iter_mut().take(31).zip(self.0.chars()) {
            *byte = u8::try_from(character).ok().filter(u8::is_ascii).unwrap_or(b'?');
        }
        bytes
    }
}

impl Default for ConsumerName {
    /// `cuframes`
    fn default() -> Self {
        Self("cuframes".to_string())
    }
}

impl FromStr for ConsumerName {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, InvalidName> {
        if text.is_empty() {
            return Err(InvalidName::Empty);
        }
        if text.len() > Self::MAX_LEN {
            return Err(InvalidName::TooLong { len: text.len() });
        }
        if text.chars().any(char::is_control) {
            return Err(InvalidName::ControlCharacter);
        }
        Ok(Self(text.to_string()))
    }
}

impl fmt::Display for ConsumerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Debug for ConsumerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

/// Why a text is not a [`ConsumerName`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum InvalidName {
    /// The text is empty.
    Empty,
    /// The text has more than [`ConsumerName::MAX_LEN`] bytes.
    TooLong {
        /// Its length in bytes.
        len: usize,
    },
    /// The text has a control character (Unicode `Cc`) in it.
    ControlCharacter,
}

impl fmt::Display for InvalidName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("a subscriber's name is empty")?,
            Self::TooLong { len } => write!(f, "a subscriber's name has {len} bytes")?,
            Self::ControlCharacter => f.write_str("a subscriber's name contains a control character")?,
        }
        write!(f, "; use 1 to {} bytes of printable text", ConsumerName::MAX_LEN)
    }
}

impl core::error::Error for InvalidName {}

/// The `result` that a response starts with: the code if it is a refusal. What follows a refusal is not looked at.
pub(super) fn read_result(reader: &mut Reader<'_>) -> Result<Option<ErrorCode>, Violation> {
    match reader.i32("result")? {
        0 => Ok(None),
        code @ ..0 => Ok(Some(ErrorCode(code))),
        // "0 = success, negative = cuframes_error_t" (§3.4): nothing is positive.
        code => Err(reader.violation("result", Problem::Value { value: code.unsigned_abs().into() })),
    }
}

/// A text behind its length; what can't fit into a payload is cut.
pub(super) fn put_text(out: &mut BytesMut, text: &str) {
    let text = cut(text, MAX_TEXT);
    out.put_u32_le(u32::try_from(text.len()).unwrap_or(0));
    out.put_slice(text.as_bytes());
}

/// The longest text in any of our messages: the other fields of HELLO_RESP, the longest of them, fit beside it.
const MAX_TEXT: usize = MAX_PAYLOAD - 96;
