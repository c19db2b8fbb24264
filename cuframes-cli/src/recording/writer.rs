//! [`Writer`]: makes a recording. Whenever it ends, what is in the file up to then can be read.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use cuframes_core::FrameMeta;

use super::ebml::{Id, MAX_HEAD, UNKNOWN, put, put_head, put_master, put_u8, put_u64, size_bytes};
use super::{ADDITION, ADDITION_TYPE, FACTS_LEN, Facts, STREAM_LEN, Stream, VERSION, four_cc, pack};

/// Writes frames into a file, each at once and as a whole.
#[derive(Debug)]
pub(crate) struct Writer {
    file: File,
    meta: FrameMeta,
    /// Bytes of the file, all of them whole frames.
    len: u64,
    /// Where the segment starts: positions in it are counted from here.
    segment: u64,
    /// Where the duration will be.
    duration: u64,
    frames: u64,
    /// The time stamps of the first frame and of the newest, and the time of the newest in the file, which never runs back.
    times: Option<(i64, i64, u64)>,
    /// Where a player may start: time in the file, and position in the segment.
    cues: Vec<(u64, u64)>,
    /// The frame that is written next, and what is said of it.
    next: (Facts, Vec<u8>),
}

impl Writer {
    /// Writes everything that comes before the first frame into an empty file.
    pub(crate) fn create(file: File, stream: &Stream) -> io::Result<Self> {
        let mut start = Vec::new();
        put_master(&mut start, Id::EBML, put_ebml_header);
        put_head(&mut start, Id::SEGMENT, UNKNOWN);
        let segment = length(&start);
        put(&mut start, Id::VOID, &[0; SEEK_HEAD_LEN - 2]);
        let mut info = Vec::new();
        put_u64(&mut info, Id::TIMESTAMP_SCALE, 1);
        let duration_at = info.len();
        put(&mut info, Id::VOID, &[0; DURATION_LEN - 2]);
        let program = concat!("cuframes ", env!("CARGO_PKG_VERSION"));
        put(&mut info, Id::MUXING_APP, program.as_bytes());
        put(&mut info, Id::WRITING_APP, program.as_bytes());
        put(&mut info, Id::TITLE, stream.title.as_bytes());
        put_head(&mut start, Id::INFO, length(&info));
        let duration = length(&start) + u64::try_from(duration_at).unwrap_or(0);
        start.extend(info);
        put_master(&mut start, Id::TRACKS, |tracks| {
            put_master(tracks, Id::TRACK_ENTRY, |track| put_track(track, stream));
        });
        file.write_all_at(&start, 0)?;
        Ok(Self {
            file,
            meta: stream.meta,
            len: length(&start),
            segment,
            duration,
            frames: 0,
            times: None,
            cues: Vec::new(),
            next: (Facts { seq: 0, pts_ns: 0, written_bytes: 0 }, Vec::new()),
        })
    }

    /// Whole frames in the file.
    pub(crate) const fn frames(&self) -> u64 {
        self.frames
    }

    /// Bytes of the file.
    pub(crate) const fn bytes(&self) -> u64 {
        self.len
    }

    /// Copies a frame, so that it can be given back before it is written.
    pub(crate) fn load(&mut self, facts: Facts, frame: &[u8]) {
        let time = self.time(facts.pts_ns);
        let Self { meta, next: (next, cluster), .. } = self;
        let stored = facts.stored_bytes(meta);
        let mut additions = Vec::new();
        put_master(&mut additions, Id::BLOCK_ADDITIONS, |additions| {
            put_master(additions, Id::BLOCK_MORE, |more| {
                put_u8(more, Id::BLOCK_ADD_ID, ADDITION);
                put(more, Id::BLOCK_ADDITIONAL, &facts.to_bytes());
            });
        });
        let block = length(&BLOCK_HEAD).saturating_add(stored);
        let group = block.saturating_add(length(&additions)).saturating_add(ONE_BYTE_ID_HEAD);
        *next = facts;
        cluster.clear();
        put_head(cluster, Id::CLUSTER, group.saturating_add(ONE_BYTE_ID_HEAD).saturating_add(TIMESTAMP_LEN));
        put_u64(cluster, Id::TIMESTAMP, time);
        put_head(cluster, Id::BLOCK_GROUP, group);
        put_head(cluster, Id::BLOCK, block);
        cluster.extend(BLOCK_HEAD);
        pack(meta, &facts, frame, cluster);
        cluster.extend(additions);
    }

    /// Writes the frame that was loaded. If that fails nothing of it stays in the file.
    pub(crate) fn write(&mut self) -> io::Result<()> {
        let (facts, cluster) = &self.next;
        if let Err(error) = self.file.write_all_at(cluster, self.len) {
            // What can't be cut off is passed over by readers.
            let _ = self.file.set_len(self.len);
            return Err(error);
        }
        let time = self.time(facts.pts_ns);
        if self.cues.last().is_none_or(|(last, _)| time - last >= CUE_INTERVAL_NS) {
            self.cues.push((time, self.len - self.segment));
        }
        let first = self.times.map_or(facts.pts_ns, |(first, ..)| first);
        self.times = Some((first, facts.pts_ns, time));
        self.len += length(cluster);
        self.frames += 1;
        Ok(())
    }

    /// Completes the file: adds an index, and says how long it is and that it is complete.
    pub(crate) fn finish(mut self) -> io::Result<u64> {
        let mut cues = Vec::new();
        put_master(&mut cues, Id::CUES, |cues| self.cues.iter().for_each(|cue| put_cue(cues, *cue)));
        let position = self.len - self.segment;
        if !self.cues.is_empty() {
            match self.file.write_all_at(&cues, self.len) {
                Ok(()) => {
                    self.file.write_all_at(&seek_head(position), self.segment)?;
                    self.len += length(&cues);
                }
                // Players find their way without it, just not as fast.
                Err(_) => self.file.set_len(self.len)?,
            }
        }
        if let Some((.., last)) = self.times {
            let mut duration = Vec::new();
            // The last frame lasts as long as the others on average.
            let frame = last.checked_div(self.frames - 1).unwrap_or(DEFAULT_FRAME_NS);
            put(&mut duration, Id::DURATION, &to_f64(last.saturating_add(frame)).to_be_bytes());
            self.file.write_all_at(&duration, self.duration)?;
        }
        let size_at = self.segment - length(&size_bytes(0));
        self.file.write_all_at(&size_bytes(self.len - self.segment), size_at)?;
        Ok(self.len)
    }

    /// When a frame with this time stamp is, in the file.
    fn time(&self, pts_ns: i64) -> u64 {
        self.times.map_or(0, |(first, _, last)| {
            u64::try_from(i128::from(pts_ns) - i128::from(first)).unwrap_or(0).max(last)
        })
    }
}

fn put_ebml_header(out: &mut Vec<u8>) {
    put_u8(out, Id::EBML_VERSION, 1);
    put_u8(out, Id::EBML_READ_VERSION, 1);
    put_u8(out, Id::EBML_MAX_ID_LENGTH, 4);
    put_u8(out, Id::EBML_MAX_SIZE_LENGTH, 8);
    put(out, Id::DOC_TYPE, b"matroska");
    put_u8(out, Id::DOC_TYPE_VERSION, 4);
    put_u8(out, Id::DOC_TYPE_READ_VERSION, 2);
}

fn put_track(out: &mut Vec<u8>, Stream { meta, epoch, .. }: &Stream) {
    let four_cc = four_cc(meta.format);
    put_u8(out, Id::TRACK_NUMBER, TRACK);
    put_u8(out, Id::TRACK_UID, TRACK);
    put_u8(out, Id::TRACK_TYPE, if four_cc.is_some() { 1 } else { 33 });
    put_u8(out, Id::FLAG_LACING, 0);
    put(out, Id::CODEC_ID, if four_cc.is_some() { b"V_UNCOMPRESSED" } else { b"D_CUFRAMES/BYTES" });
    if let Some(four_cc) = four_cc {
        put_master(out, Id::VIDEO, |video| {
            // No interlacing.
            put_u8(video, Id::FLAG_INTERLACED, 2);
            put_u64(video, Id::PIXEL_WIDTH, meta.width.into());
            put_u64(video, Id::PIXEL_HEIGHT, meta.height.into());
            put(video, Id::UNCOMPRESSED_FOUR_CC, &four_cc);
        });
    }
    put_u8(out, Id::MAX_BLOCK_ADDITION_ID, ADDITION);
    put_master(out, Id::BLOCK_ADDITION_MAPPING, |mapping| {
        let mut said = Vec::with_capacity(STREAM_LEN);
        said.extend(VERSION.to_le_bytes());
        said.extend(epoch.to_le_bytes());
        said.extend(meta.to_bytes());
        put_u8(mapping, Id::BLOCK_ADD_ID_VALUE, ADDITION);
        put(mapping, Id::BLOCK_ADD_ID_NAME, b"cuframes");
        put_u64(mapping, Id::BLOCK_ADD_ID_TYPE, ADDITION_TYPE.into());
        put(mapping, Id::BLOCK_ADD_ID_EXTRA_DATA, &said);
    });
}

fn put_cue(out: &mut Vec<u8>, (time, position): (u64, u64)) {
    put_master(out, Id::CUE_POINT, |cue| {
        put_u64(cue, Id::CUE_TIME, time);
        put_master(cue, Id::CUE_TRACK_POSITIONS, |positions| {
            put_u8(positions, Id::CUE_TRACK, TRACK);
            put_u64(positions, Id::CUE_CLUSTER_POSITION, position);
        });
    });
}

/// Says where the index is.
fn seek_head(position: u64) -> Vec<u8> {
    let mut out = Vec::new();
    put_master(&mut out, Id::SEEK_HEAD, |head| {
        put_master(head, Id::SEEK, |seek| {
            put(seek, Id::SEEK_ID, &Id::CUES.0.to_be_bytes());
            put_u64(seek, Id::SEEK_POSITION, position);
        });
    });
    out
}

fn length(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}

#[expect(clippy::as_conversions, reason = "a time for people: the 53 bits of an f64 are plenty")]
const fn to_f64(ns: u64) -> f64 {
    ns as f64
}

/// The track; as a number with its marker bit it is the first byte of a block.
pub(super) const TRACK: u8 = 1;
/// What comes before the bytes of a block: its track, no time after that of its cluster, no flags.
pub(super) const BLOCK_HEAD: [u8; 4] = [0x80 | TRACK, 0, 0, 0];
/// The start of an element with an id of one byte, as [`put_head`] writes it.
const ONE_BYTE_ID_HEAD: u64 = 9;
/// A whole element with an id of one byte, as [`put_u64`] writes it.
const TIMESTAMP_LEN: u64 = 10;
/// Room for what [`seek_head`] makes.
const SEEK_HEAD_LEN: usize = 26;
/// Room for a duration.
const DURATION_LEN: usize = 11;
/// Once a second: close enough for a player, and small.
const CUE_INTERVAL_NS: u64 = 1_000_000_000;
/// How long the only frame is shown.
const DEFAULT_FRAME_NS: u64 = 1_000_000_000 / 30;

const _: () = assert!(FACTS_LEN < 0x7F && SEEK_HEAD_LEN > MAX_HEAD);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_later_fits_into_the_room_that_was_left_for_it() {
        assert_eq!(seek_head(u64::MAX).len(), SEEK_HEAD_LEN);
        let mut duration = Vec::new();
        put(&mut duration, Id::DURATION, &to_f64(1).to_be_bytes());
        assert_eq!(duration.len(), DURATION_LEN);
        let mut timestamp = Vec::new();
        put_u64(&mut timestamp, Id::TIMESTAMP, 0);
        assert_eq!(length(&timestamp), TIMESTAMP_LEN);
    }
}
