//! DS4D: frames of 12 bytes (magic, type, length) and a payload, all integers big-endian.
//!
//! - [`Decoder`] cuts a stream into [`Message`]s, [`Message::encode`] appends one. What is encoded can be decoded.
//! - A length is checked against [`Limits`] before anything is kept, and nothing is kept for bytes that are only announced.
//! - The data of a chunk are not part of its message: they are taken from the stream where they belong.
//! - Layouts are checked when a message is decoded. What its values mean is checked by [`Work::check`] and
//!   [`WorkResult::check`], since that does not end a connection, and by whoever knows the stream.

mod activation;
mod decoder;
mod error;
mod header;
mod hello;
mod message;
mod reader;
mod result;
mod route;
mod snapshot;
mod tokens;
mod work;

pub use activation::Width;
pub use decoder::{Decoded, Decoder, Limits};
pub use error::WireError;
pub use header::{FrameType, HEADER_BYTES, Header, MAGIC, MAX_CHUNK};
pub use hello::Hello;
pub use message::Message;
pub use result::{ResultKind, Telemetry, WorkResult};
pub use route::{Hop, Route};
pub use snapshot::{Begin, Chunk, Done, SnapshotId};
pub use tokens::{EMPTY_HASH, extend_hash, token_hash};
pub use work::{Work, WorkFlags};
