//! [`WireError`]: what a peer did wrong.

use core::fmt;

use super::header::FrameType;

/// What a peer did wrong on the wire: which frame, and which of its fields.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum WireError {
    /// It is no frame: these are its first four bytes.
    Magic(u32),
    /// A frame of a length that its type does not have, or that is more than is allowed.
    Length {
        /// Its type.
        kind: FrameType,
        /// Bytes behind the header, as announced.
        bytes: u32,
        /// The fewest.
        min: u32,
        /// The most.
        max: u32,
    },
    /// A field with a value that is not allowed, or that does not fit the rest of the frame.
    Field {
        /// The type of the frame.
        kind: FrameType,
        /// The field as the layout names it.
        field: &'static str,
        /// Its value.
        value: u64,
    },
    /// The payload ends within a field.
    Truncated {
        /// The type of the frame.
        kind: FrameType,
        /// The field as the layout names it.
        field: &'static str,
    },
    /// A text that is not UTF-8, or has a NUL in it.
    Text {
        /// The type of the frame.
        kind: FrameType,
        /// The field as the layout names it.
        field: &'static str,
    },
    /// The end of the stream in the middle of a frame. The decoder does not see the end; whoever does says this if
    /// [`Decoder::may_end`](super::Decoder::may_end) is not so.
    Cut,
}

impl WireError {
    /// Whether the decoder stands behind a whole frame after this error, and can go on with the next one.
    #[must_use]
    pub const fn is_within_frame(&self) -> bool {
        matches!(self, Self::Field { .. } | Self::Truncated { .. } | Self::Text { .. })
            && !matches!(self, Self::Field { kind: FrameType::CHUNK, .. })
    }
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Magic(found) => write!(f, "it is no frame: it starts with {found:#010x}"),
            Self::Length { kind, bytes, min, max } => {
                write!(f, "a frame {kind} of {bytes} bytes; {min} to {max} are allowed")
            }
            Self::Field { kind, field, value } => write!(f, "{kind} {field}: {value:#x} is not allowed"),
            Self::Truncated { kind, field } => write!(f, "{kind} {field}: the frame ends within it"),
            Self::Text { kind, field } => write!(f, "{kind} {field}: it is not a text in UTF-8"),
            Self::Cut => f.write_str("the connection ended in the middle of a frame"),
        }
    }
}

impl core::error::Error for WireError {}
