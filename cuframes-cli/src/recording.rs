//! Recordings: streams in Matroska files, as docs/recording.md describes them.
//!
//! A player finds uncompressed pictures without padding in them, and `replay` everything else that a stream's subscribers
//! could see: the geometry with its pitches, and the number, time stamp and length of each frame.

mod ebml;
mod queue;
mod reader;
mod writer;

#[cfg(test)]
mod tests;

use cuframes_core::{Format, FrameMeta};

pub(crate) use queue::{Queue, Written};
#[cfg(test)]
use reader::OpenError;
pub(crate) use reader::{Frame, Reader, Tail};
pub(crate) use writer::Writer;

use crate::convert::{rows, rows_mut};

/// What is said of the stream.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Stream {
    /// The key that it had.
    pub(crate) title: String,
    pub(crate) meta: FrameMeta,
    /// Which of its publishers it was (D-24).
    pub(crate) epoch: u64,
}

/// What is said of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Facts {
    pub(crate) seq: u64,
    pub(crate) pts_ns: i64,
    /// Valid bytes, padding included (D-35).
    pub(crate) written_bytes: u64,
}

impl Facts {
    /// As they stand in the file: three numbers of 64 bits, little-endian.
    fn to_bytes(self) -> [u8; FACTS_LEN] {
        let Self { seq, pts_ns, written_bytes } = self;
        let mut bytes = [0; FACTS_LEN];
        let numbers = [seq.to_le_bytes(), pts_ns.to_le_bytes(), written_bytes.to_le_bytes()];
        bytes.as_chunks_mut().0.copy_from_slice(&numbers);
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let ([seq, pts_ns, written_bytes], []) = bytes.as_chunks() else { return None };
        Some(Self {
            seq: u64::from_le_bytes(*seq),
            pts_ns: i64::from_le_bytes(*pts_ns),
            written_bytes: u64::from_le_bytes(*written_bytes),
        })
    }

    /// How many bytes of the frame are in the file: those of its rows, without padding; of format BYTES the valid ones.
    fn stored_bytes(&self, meta: &FrameMeta) -> u64 {
        match meta.format {
            Format::BYTES => self.written_bytes,
            _ => meta.planes().fold(0, |sum: u64, plane| {
                sum.saturating_add(u64::from(plane.row_bytes).saturating_mul(plane.rows.into()))
            }),
        }
    }
}

/// Appends the rows of a frame, without padding. Rows that it doesn't have are zero.
fn pack(meta: &FrameMeta, facts: &Facts, frame: &[u8], out: &mut Vec<u8>) {
    let len = usize::try_from(facts.stored_bytes(meta)).unwrap_or(usize::MAX);
    if meta.format == Format::BYTES {
        out.extend_from_slice(frame.get(..len).unwrap_or(frame));
        return;
    }
    let end = out.len().saturating_add(len);
    for plane in meta.planes() {
        let row_bytes = usize::try_from(plane.row_bytes).unwrap_or(usize::MAX);
        let plane_end = out
            .len()
            .saturating_add(row_bytes.saturating_mul(usize::try_from(plane.rows).unwrap_or(usize::MAX)));
        rows(frame, &plane).for_each(|row| out.extend_from_slice(row));
        // Of a frame that some publisher has cut short.
        out.resize(plane_end.min(end), 0);
    }
}

/// Puts stored rows where they were in the frame. Padding stays as it is.
pub(crate) fn unpack(meta: &FrameMeta, mut stored: &[u8], frame: &mut [u8]) {
    if meta.format == Format::BYTES {
        if let Some(frame) = frame.get_mut(..stored.len()) {
            frame.copy_from_slice(stored);
        }
        return;
    }
    for plane in meta.planes() {
        for row in rows_mut(frame, &plane) {
            let Some((first, rest)) = stored.split_at_checked(row.len()) else { return };
            row.copy_from_slice(first);
            stored = rest;
        }
    }
}

/// What the pixels are called in a file (`UncompressedFourCC`): the first name under which ffmpeg knows them, and for formats
/// that it doesn't know one that nobody else uses. `None` for what is no picture.
fn four_cc(format: Format) -> Option<[u8; 4]> {
    Some(*match format {
        Format::NV12 => b"NV12",
        Format::P010 => b"P010",
        Format::I420 => b"I420",
        Format::I444 => b"444P",
        Format::RGB24 => b"RGB\x18",
        Format::BGR24 => b"BGR\x18",
        Format::RGBA32 => b"RGBA",
        Format::BGRA32 => b"BGRA",
        Format::GRAY8 => b"Y800",
        Format::GRAY16 => b"Y1\x00\x10",
        Format::RGB_F32_PLANAR => b"RP\x00\x20",
        Format::RGB_F16_PLANAR => b"RP\x00\x10",
        _ => return None,
    })
}

/// The layout that is described in docs/recording.md.
const VERSION: u32 = 1;
/// Bytes of [`Facts`].
const FACTS_LEN: usize = 24;
/// Bytes that are said of the stream: the version, the epoch and the geometry of §2.1.
const STREAM_LEN: usize = 4 + 8 + 64;
/// Number of what is said of a frame, among what may be said of a block. 1 would belong to the codec.
const ADDITION: u8 = 2;
/// What it means.
const ADDITION_TYPE: u32 = u32::from_be_bytes(*b"cufr");
