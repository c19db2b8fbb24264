//! [`Header`]: the 12 bytes in front of each payload.

use core::fmt;

use super::error::WireError;

/// What a frame starts with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// What the payload is.
    pub kind: FrameType,
    /// Bytes of the payload.
    pub bytes: u32,
}

impl Header {
    /// The header as it is on the wire.
    #[must_use]
    pub const fn encode(&self) -> [u8; HEADER_BYTES] {
        let [a, b, c, d] = MAGIC.to_be_bytes();
        let [e, f, g, h] = self.kind.0.to_be_bytes();
        let [i, j, k, l] = self.bytes.to_be_bytes();
        [a, b, c, d, e, f, g, h, i, j, k, l]
    }

    /// Reads a header. Its length is not checked here.
    ///
    /// # Errors
    /// [`WireError::Magic`] if no frame starts here.
    pub const fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<Self, WireError> {
        let [a, b, c, d, e, f, g, h, i, j, k, l] = *bytes;
        let magic = u32::from_be_bytes([a, b, c, d]);
        if magic != MAGIC {
            return Err(WireError::Magic(magic));
        }
        let kind = FrameType(u32::from_be_bytes([e, f, g, h]));
        Ok(Self { kind, bytes: u32::from_be_bytes([i, j, k, l]) })
    }
}

/// The type word of a frame. Unknown values survive.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FrameType(pub u32);

impl FrameType {
    /// The first frame of a connection: who speaks.
    pub const HELLO: Self = Self(1);
    /// A text; the connection ends.
    pub const ERROR: Self = Self(2);
    /// A request to process tokens.
    pub const WORK: Self = Self(3);
    /// The answer to a request.
    pub const RESULT: Self = Self(4);
    /// A request for a snapshot.
    pub const SAVE_REQUEST: Self = Self(5);
    /// The answer to it, in front of the data.
    pub const SNAPSHOT_BEGIN: Self = Self(6);
    /// Data of a snapshot.
    pub const CHUNK: Self = Self(7);
    /// The end of a snapshot.
    pub const DONE: Self = Self(8);
    /// A snapshot that the receiver shall load, in front of the data.
    pub const LOAD_BEGIN: Self = Self(9);

    /// The name of a known type.
    #[must_use]
    pub const fn name(self) -> Option<&'static str> {
        Some(match self {
            Self::HELLO => "HELLO",
            Self::ERROR => "ERROR",
            Self::WORK => "WORK",
            Self::RESULT => "RESULT",
            Self::SAVE_REQUEST => "SNAPSHOT_SAVE_REQ",
            Self::SNAPSHOT_BEGIN => "SNAPSHOT_BEGIN",
            Self::CHUNK => "SNAPSHOT_CHUNK",
            Self::DONE => "SNAPSHOT_DONE",
            Self::LOAD_BEGIN => "SNAPSHOT_LOAD_BEGIN",
            _ => return None,
        })
    }
}

impl fmt::Display for FrameType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.pad(name),
            None => write!(f, "{}", self.0),
        }
    }
}

impl fmt::Debug for FrameType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "{name}({})", self.0),
            None => write!(f, "FrameType({})", self.0),
        }
    }
}

/// The first word of each frame: "DS4D".
pub const MAGIC: u32 = 0x4453_3444;
/// Bytes of a header.
pub const HEADER_BYTES: usize = 12;
/// The most data of one chunk: 8 MiB.
pub const MAX_CHUNK: usize = 8 << 20;
