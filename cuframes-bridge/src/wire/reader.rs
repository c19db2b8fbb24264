//! [`Reader`] and [`Writer`]: big-endian fields of one frame, bounded by its payload.

use alloc::borrow::ToOwned as _;
use alloc::string::String;
use alloc::vec::Vec;

use cuframes_core::text;

use super::error::WireError;
use super::header::{FrameType, Header};

/// Takes the fields of one payload in order. An error names the frame and the field.
#[derive(Debug)]
pub(super) struct Reader<'a> {
    kind: FrameType,
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) const fn new(kind: FrameType, payload: &'a [u8]) -> Self {
        Self { kind, rest: payload }
    }

    pub(super) fn u32(&mut self, field: &'static str) -> Result<u32, WireError> {
        self.array(field).map(u32::from_be_bytes)
    }

    /// Two words, the upper one first.
    pub(super) fn u64(&mut self, field: &'static str) -> Result<u64, WireError> {
        self.array(field).map(u64::from_be_bytes)
    }

    pub(super) fn take(&mut self, field: &'static str, len: u32) -> Result<&'a [u8], WireError> {
        let truncated = self.truncated(field);
        let (taken, rest) = self.rest.split_at_checked(to_usize(len)).ok_or(truncated)?;
        self.rest = rest;
        Ok(taken)
    }

    /// Words; `bytes` is a multiple of four.
    pub(super) fn words(&mut self, field: &'static str, bytes: u32) -> Result<Vec<u32>, WireError> {
        let (words, _) = self.take(field, bytes)?.as_chunks();
        Ok(words.iter().copied().map(u32::from_be_bytes).collect())
    }

    /// A name: UTF-8 without NUL.
    pub(super) fn name(&mut self, field: &'static str, len: u32) -> Result<String, WireError> {
        let bytes = self.take(field, len)?;
        let name = str::from_utf8(bytes).ok().filter(|name| !name.contains('\0'));
        name.map(str::to_owned).ok_or(WireError::Text { kind: self.kind, field })
    }

    /// Words for people, of which `keep` bytes are kept at most. A peer may have cut them within a character, so what is not
    /// UTF-8 is replaced.
    pub(super) fn text(&mut self, field: &'static str, len: u32, keep: u32) -> Result<String, WireError> {
        let bytes = self.take(field, len)?;
        if bytes.contains(&0) {
            return Err(WireError::Text { kind: self.kind, field });
        }
        Ok(text::cut(&String::from_utf8_lossy(bytes), to_usize(keep)).to_owned())
    }

    /// Everything that is left.
    pub(super) fn rest(&mut self) -> Self {
        Self { kind: self.kind, rest: core::mem::take(&mut self.rest) }
    }

    pub(super) fn left(&self) -> u32 {
        to_u32(self.rest.len())
    }

    /// Refuses a field that is not as it must be.
    pub(super) fn require(&self, holds: bool, field: &'static str, value: u32) -> Result<(), WireError> {
        if holds { Ok(()) } else { Err(WireError::Field { kind: self.kind, field, value: value.into() }) }
    }

    const fn truncated(&self, field: &'static str) -> WireError {
        WireError::Truncated { kind: self.kind, field }
    }

    fn array<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], WireError> {
        let (bytes, rest) = self.rest.split_first_chunk().ok_or_else(|| self.truncated(field))?;
        self.rest = rest;
        Ok(*bytes)
    }
}

/// Appends the fields of one frame.
#[derive(Debug)]
pub(super) struct Writer<'a> {
    out: &'a mut Vec<u8>,
}

impl<'a> Writer<'a> {
    pub(super) const fn new(out: &'a mut Vec<u8>) -> Self {
        Self { out }
    }

    /// A frame whose payload is what `write` appends, and `behind` bytes that are sent after it.
    pub(super) fn frame(
        out: &'a mut Vec<u8>,
        kind: FrameType,
        behind: u32,
        write: impl FnOnce(&mut Writer<'_>),
    ) {
        let start = out.len();
        out.extend(Header { kind, bytes: 0 }.encode());
        let payload = out.len();
        write(&mut Writer::new(out));
        let bytes = to_u32(out.len() - payload).saturating_add(behind);
        if let Some(header) = out.get_mut(start..payload) {
            header.copy_from_slice(&Header { kind, bytes }.encode());
        }
    }

    pub(super) fn u32(&mut self, value: u32) {
        self.out.extend(value.to_be_bytes());
    }

    pub(super) fn u64(&mut self, value: u64) {
        self.out.extend(value.to_be_bytes());
    }

    pub(super) fn len(&mut self, len: usize) {
        self.u32(to_u32(len));
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.out.extend(bytes);
    }

    pub(super) fn words(&mut self, words: &[u32]) {
        self.out.reserve(4 * words.len());
        words.iter().for_each(|word| self.u32(*word));
    }
}

/// As much of a text as can be written: up to a NUL, and up to `max` bytes.
pub(super) fn writable(text: &str, max: usize) -> &str {
    text::cut(text.split('\0').next().unwrap_or_default(), max)
}

pub(super) fn to_usize(n: u32) -> usize {
    usize::try_from(n).unwrap_or(usize::MAX)
}

/// A length as the wire has it. One of 4 GiB and more can't be sent; it becomes the longest, and the peer refuses it.
pub(super) fn to_u32(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}
