//! Snapshots: [`SnapshotId`] asks for one, [`Begin`], [`Chunk`] and [`Done`] are one.

use alloc::string::String;
use alloc::vec::Vec;

use super::error::WireError;
use super::header::FrameType;
use super::reader::{Reader, Writer, to_u32, writable};
use super::{Limits, MAX_CHUNK};

/// Which snapshot: all of a save request, and what [`Begin`] starts with.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct SnapshotId {
    /// The model.
    pub model_id: u32,
    /// The session.
    pub session: u64,
    /// The number of the request; its chunks and its end have it again.
    pub request: u64,
    /// Hash of the tokens, see [`token_hash`](super::token_hash).
    pub token_hash: u64,
    /// How many tokens there are.
    pub token_count: u32,
    /// The first layer.
    pub layer_start: u32,
    /// The last one.
    pub layer_end: u32,
}

impl SnapshotId {
    pub(super) fn write(&self, out: &mut Writer<'_>) {
        out.u32(self.model_id);
        for value in [self.session, self.request, self.token_hash] {
            out.u64(value);
        }
        for word in [self.token_count, self.layer_start, self.layer_end] {
            out.u32(word);
        }
    }

    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(Self {
            model_id: reader.u32("model_id")?,
            session: reader.u64("session")?,
            request: reader.u64("request")?,
            token_hash: reader.u64("token_hash")?,
            token_count: reader.u32("token_count")?,
            layer_start: reader.u32("layer_start")?,
            layer_end: reader.u32("layer_end")?,
        })
    }
}

/// A snapshot starts: the answer to a save request, or one to load. Its payload comes in chunks.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Begin {
    /// Which one. Its `token_count` is written as the number of `tokens`; only the answer that there is no snapshot may have
    /// a count without tokens.
    pub id: SnapshotId,
    /// Bytes of all chunks together.
    pub payload_bytes: u64,
    /// 0 if the data follow; anything else is an error, with its text in `message`. To load: 0, whatever stands here.
    pub status: u32,
    /// The tokens.
    pub tokens: Vec<u32>,
    /// Why there is no snapshot. Not sent with one to load; up to a NUL and 64 KiB are sent otherwise.
    pub message: String,
}

impl Begin {
    pub(super) fn write(&self, kind: FrameType, out: &mut Writer<'_>) {
        let (status, message) = match kind {
            FrameType::LOAD_BEGIN => (0, ""),
            _ => (self.status, writable(&self.message, MAX_MESSAGE)),
        };
        let token_count = match (status, self.tokens.len()) {
            (1.., 0) => self.id.token_count,
            (_, count) => to_u32(count),
        };
        SnapshotId { token_count, ..self.id }.write(out);
        out.u64(self.payload_bytes);
        out.u32(status);
        out.len(self.tokens.len().saturating_mul(4));
        out.len(message.len());
        out.words(&self.tokens);
        out.bytes(message.as_bytes());
    }

    pub(super) fn read(kind: FrameType, reader: &mut Reader<'_>, limits: &Limits) -> Result<Self, WireError> {
        let id = SnapshotId::read(reader)?;
        let payload_bytes = reader.u64("payload_bytes")?;
        let status = reader.u32("status")?;
        let token_bytes = reader.u32("token_bytes")?;
        let message_bytes = reader.u32("message_bytes")?;

        let (is_load, is_error) = (kind == FrameType::LOAD_BEGIN, status != 0);
        reader.require(!is_load || !is_error, "status", status)?;
        let is_all = id.token_count.checked_mul(4) == Some(token_bytes);
        let is_none = token_bytes == 0 && is_error;
        reader.require(is_all || is_none, "token_bytes", token_bytes)?;
        reader.require(token_bytes / 4 <= limits.tokens, "token_bytes", token_bytes)?;
        reader.require(token_bytes <= reader.left(), "token_bytes", token_bytes)?;
        let left = reader.left().saturating_sub(token_bytes);
        let longest = if is_load { 0 } else { limits.text };
        reader.require(message_bytes <= longest && message_bytes == left, "message_bytes", message_bytes)?;
        let tokens = reader.words("tokens", token_bytes)?;
        let message = reader.text("message", message_bytes, limits.text)?;
        Ok(Self { id, payload_bytes, status, tokens, message })
    }
}

/// Data of a snapshot follow on the stream.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Chunk {
    /// The number of the request.
    pub request: u64,
    /// How many bytes follow; at most [`MAX_CHUNK`], which is for the sender to see to. 0 is allowed.
    pub bytes: u32,
}

impl Chunk {
    pub(super) fn write(&self, out: &mut Writer<'_>) {
        out.u64(self.request);
        out.u32(self.bytes);
    }

    /// Reads the fixed part of a frame that has `frame_bytes`.
    pub(super) fn read(frame_bytes: u32, reader: &mut Reader<'_>) -> Result<Self, WireError> {
        let chunk = Self { request: reader.u64("request")?, bytes: reader.u32("chunk_bytes")? };
        let fits = chunk.bytes.checked_add(to_u32(Self::BYTES)) == Some(frame_bytes);
        reader.require(fits && chunk.bytes <= to_u32(MAX_CHUNK), "chunk_bytes", chunk.bytes)?;
        Ok(chunk)
    }

    /// Bytes of the fixed part.
    pub(super) const BYTES: usize = 12;
}

/// A snapshot is over.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Done {
    /// The number of the request.
    pub request: u64,
    /// 0 is success.
    pub status: u32,
    /// What the peer says about it. Up to a NUL and 64 KiB are sent.
    pub message: String,
}

impl Done {
    pub(super) fn write(&self, out: &mut Writer<'_>) {
        let message = writable(&self.message, MAX_MESSAGE);
        out.u64(self.request);
        out.u32(self.status);
        out.len(message.len());
        out.bytes(message.as_bytes());
    }

    pub(super) fn read(reader: &mut Reader<'_>, limits: &Limits) -> Result<Self, WireError> {
        let (request, status) = (reader.u64("request")?, reader.u32("status")?);
        let message_bytes = reader.u32("message_bytes")?;
        reader.require(message_bytes == reader.left(), "message_bytes", message_bytes)?;
        Ok(Self { request, status, message: reader.text("message", message_bytes, limits.text)? })
    }
}

/// Bytes of the longest message that is sent; what [`Limits`] allows if nothing else is said.
pub(super) const MAX_MESSAGE: usize = 64 << 10;
