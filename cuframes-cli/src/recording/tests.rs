//! Recordings that are whole, cut off, and damaged.

use std::fs;
use std::io::Cursor;

use cuframes_core::{Format, FrameMeta};
use proptest::prelude::*;

use super::*;

/// A recording and where each of its frames ends.
struct Sample {
    bytes: Vec<u8>,
    ends: Vec<usize>,
    stream: Stream,
    frames: Vec<(Facts, Vec<u8>)>,
}

/// Frames that all differ, two seconds apart, of which every other one is missing.
fn sample(meta: FrameMeta, frames: u64, is_completed: bool) -> Sample {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("sample.mkv");
    let stream = Stream { title: "cam0".into(), meta, epoch: 0x0123_4567_89AB_CDEF };
    let mut writer = Writer::create(fs::File::create(&path).unwrap(), &stream).unwrap();
    let mut sample = Sample { bytes: Vec::new(), ends: Vec::new(), stream, frames: Vec::new() };
    for n in 1..=frames {
        let len = if meta.format == Format::BYTES { n - 1 } else { meta.frame_size_bytes };
        let facts =
            Facts { seq: 2 * n, pts_ns: i64::try_from(n * 2_000_000_007).unwrap(), written_bytes: len };
        let frame: Vec<u8> = (0..len).map(|i| u8::try_from((i * 31 + n * 7) % 251).unwrap()).collect();
        writer.load(facts, &frame);
        writer.write().unwrap();
        assert_eq!((writer.frames(), writer.bytes()), (n, fs::metadata(&path).unwrap().len()));
        sample.ends.push(usize::try_from(writer.bytes()).unwrap());
        sample.frames.push((facts, frame));
    }
    if is_completed {
        assert_eq!(writer.finish().unwrap(), fs::metadata(&path).unwrap().len());
    }
    sample.bytes = fs::read(path).unwrap();
    sample
}

/// What a reader gets out of a file.
#[derive(Debug)]
struct Found {
    stream: Stream,
    frames: Vec<(Facts, Vec<u8>)>,
    tail: Tail,
}

fn read(bytes: &[u8]) -> Result<Found, OpenError> {
    let mut reader = Reader::open(Cursor::new(bytes))?;
    let mut frames = Vec::new();
    let tail = loop {
        match reader.next()? {
            Ok(frame) => {
                let mut stored = Vec::new();
                reader.read(&frame, &mut stored)?;
                assert!(stored.len() <= bytes.len(), "no more than there is");
                frames.push((frame.facts, stored));
            }
            Err(tail) => break tail,
        }
        assert!(frames.len() <= bytes.len(), "it never ends");
    };
    Ok(Found { stream: reader.stream().clone(), frames, tail })
}

/// The bytes of a frame that mean something.
fn valid(meta: &FrameMeta, frame: &[u8]) -> Vec<u8> {
    match meta.format {
        Format::BYTES => frame.into(),
        _ => meta
            .planes()
            .flat_map(|plane| rows(frame, &plane).flatten().copied().collect::<Vec<_>>())
            .collect(),
    }
}

#[test]
fn frames_of_every_format_come_back_with_all_that_was_said_of_them() {
    for format in Format::ALL {
        for (width, height) in [(6, 4), (7, 5), (1, 1)] {
            let height = if format == Format::BYTES { 1 } else { height };
            let own = FrameMeta::new(format, width, height).unwrap();
            let tight = own.planes().map(|plane| plane.row_bytes).max().unwrap();
            let uv = if own.pitch_uv == 0 { 0 } else { tight + 1 };
            let others = FrameMeta::with_pitches(format, width, height, tight + 3, uv).unwrap();
            for meta in [own, others] {
                let sample = sample(meta, 4, true);
                let Found { stream, frames, tail } = read(&sample.bytes).unwrap();
                assert_eq!((stream, tail), (sample.stream, Tail::Complete), "{format}");
                assert_eq!(frames.len(), 4);
                for ((facts, stored), (expected, frame)) in frames.iter().zip(&sample.frames) {
                    assert_eq!(facts, expected);
                    assert_eq!(*stored, valid(&meta, frame), "{format}");
                    let mut again = vec![0; frame.len()];
                    unpack(&meta, stored, &mut again);
                    assert_eq!(valid(&meta, &again), *stored, "{format}");
                }
            }
        }
    }
}

#[test]
fn a_frame_that_its_publisher_has_cut_short_is_as_long_as_the_others_in_the_file() {
    let meta = FrameMeta::new(Format::I420, 4, 4).unwrap();
    let facts = Facts { seq: 1, pts_ns: 0, written_bytes: 600 };
    let mut stored = Vec::new();
    pack(&meta, &facts, &[7; 600], &mut stored);
    assert_eq!(stored, [&[7; 12][..], &[0; 12]].concat(), "three of four rows of Y are there");
}

#[test]
fn time_in_the_file_never_runs_back_and_what_was_said_stays_as_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("back.mkv");
    let meta = FrameMeta::new(Format::BYTES, 8, 1).unwrap();
    let stream = Stream { title: "cam0".into(), meta, epoch: 1 };
    let mut writer = Writer::create(fs::File::create(&path).unwrap(), &stream).unwrap();
    let stamps = [5, -100, i64::MAX, i64::MIN];
    for pts_ns in stamps {
        writer.load(Facts { seq: 1, pts_ns, written_bytes: 1 }, &[1]);
        writer.write().unwrap();
    }
    writer.finish().unwrap();
    let Found { frames, .. } = read(&fs::read(path).unwrap()).unwrap();
    assert_eq!(frames.into_iter().map(|(facts, _)| facts.pts_ns).collect::<Vec<_>>(), stamps);
}

#[test]
fn a_recording_that_is_cut_anywhere_has_all_frames_that_are_whole() {
    let meta = FrameMeta::new(Format::NV12, 6, 4).unwrap();
    for is_completed in [false, true] {
        let Sample { bytes, ends, frames, .. } = sample(meta, 4, is_completed);
        let first = ends[0] - (ends[1] - ends[0]);
        for cut in 0..bytes.len() {
            let found = match read(&bytes[..cut]) {
                Err(problem) if cut < first => {
                    assert!(problem.to_string().contains("; "), "{problem}");
                    continue;
                }
                found => found.unwrap_or_else(|problem| panic!("{cut}: {problem}")),
            };
            let whole = ends.iter().filter(|end| **end <= cut).count();
            assert_eq!((found.frames.len(), found.tail), (whole, Tail::Cut), "{cut} of {}", bytes.len());
            assert!(found.frames.iter().zip(&frames).all(|(found, sample)| found.0 == sample.0), "{cut}");
        }
        let all = read(&bytes).unwrap();
        assert_eq!((all.frames.len(), all.tail), (4, if is_completed { Tail::Complete } else { Tail::Cut }));
    }
}

#[test]
fn what_can_not_be_replayed_says_why_and_what_to_do() {
    let meta = FrameMeta::new(Format::GRAY8, 2, 2).unwrap();
    let Sample { bytes, .. } = sample(meta, 1, true);
    let said = bytes.windows(4).rposition(|bytes| bytes == b"cufr").unwrap();
    let damaged = |at: usize, byte: u8| {
        let mut bytes = bytes.clone();
        bytes[at] = byte;
        bytes
    };
    // Behind the type of the addition come 3 bytes of the next element, then the version, the epoch and the geometry.
    let version = said + 7;
    for (bytes, part) in [
        (Vec::new(), "not a recording"),
        (b"YUV4MPEG2 W2 H2\nFRAME\nabcd".to_vec(), "cuframes publish KEY --y4m -"),
        (damaged(said, b'x'), "cuframes record has not made"),
        (damaged(version, 9), "version 9 of the layout"),
        (damaged(version + 12, 99), "format 99 is unknown"),
        (damaged(version + 16, 0), "width is 0"),
        (bytes[..said].to_vec(), "ends before its first frame"),
    ] {
        let problem = read(&bytes).unwrap_err().to_string();
        assert!(problem.contains(part) && problem.contains("; "), "{part}: {problem}");
    }
}

#[test]
fn a_queue_gives_out_as_many_buffers_as_it_may_and_writes_every_frame() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("queue.mkv");
    // So large that there are two buffers.
    let meta = FrameMeta::new(Format::BYTES, 100 << 20, 1).unwrap();
    let stream = Stream { title: "cam0".into(), meta, epoch: 1 };
    let writer = Writer::create(fs::File::create(&path).unwrap(), &stream).unwrap();
    let mut queue = Queue::start(writer, meta.frame_size_bytes).unwrap();
    let unused = queue.buffer().unwrap();
    for seq in 1..=50 {
        // With the first one away, this waits for the other one to come back each time.
        let mut buffer = queue.buffer().unwrap();
        buffer.clear();
        buffer.push(u8::try_from(seq).unwrap());
        queue.send(Facts { seq, pts_ns: 0, written_bytes: 1 }, buffer);
    }
    drop(unused);
    queue.give_up();
    assert!(queue.buffer().is_some());
    let (writer, result) = queue.finish();
    result.unwrap();
    writer.unwrap().finish().unwrap();
    let written = queue.written();
    assert_eq!((written.frames, written.first.unwrap().seq, written.last.unwrap().seq), (50, 1, 50));
    let Found { frames, tail, .. } = read(&fs::read(path).unwrap()).unwrap();
    assert_eq!(tail, Tail::Complete);
    assert!(
        frames.iter().map(|(facts, bytes)| (facts.seq, u64::from(bytes[0]))).eq((1..=50).map(|n| (n, n)))
    );
}

#[test]
fn frames_that_do_not_fit_the_geometry_are_damage() {
    let meta = FrameMeta::new(Format::GRAY8, 2, 2).unwrap();
    let Sample { bytes, ends, .. } = sample(meta, 2, true);
    let said = bytes.windows(4).rposition(|bytes| bytes == b"cufr").unwrap();
    let written = bytes.windows(5).rposition(|bytes| bytes == [0xEE, 0x81, 2, 0xA5, 0x98]).unwrap() + 5 + 16;
    let group = |n: usize| u64::try_from(n + 12 + 10).unwrap();
    let first = ends[0] - (ends[1] - ends[0]);
    // A height of 1, and more valid bytes than a frame has.
    for (at, byte, whole, damage) in [(said + 7 + 20, 1, 0, first), (written + 7, 1, 1, ends[0])] {
        let mut bytes = bytes.clone();
        bytes[at] = byte;
        let Found { frames, tail, .. } = read(&bytes).unwrap();
        assert_eq!((frames.len(), tail), (whole, Tail::Damaged(group(damage))));
    }
}

#[test]
fn a_single_bit_that_is_wrong_costs_frames_at_most() {
    let meta = FrameMeta::new(Format::GRAY8, 3, 2).unwrap();
    let Sample { bytes, frames, .. } = sample(meta, 3, true);
    let mut damaged = bytes.clone();
    for bit in 0..8 * bytes.len() {
        damaged[bit / 8] ^= 1 << (bit % 8);
        if let Ok(Found { frames: found, tail, .. }) = read(&damaged) {
            assert!(found.len() <= frames.len(), "{bit}");
            assert!(
                found.len() == frames.len() || tail != Tail::Complete,
                "a frame went missing unseen: {bit}"
            );
        }
        damaged[bit / 8] = bytes[bit / 8];
    }
}

proptest! {
    #[test]
    fn whatever_is_wrong_with_a_file_reading_it_ends(
        wrong in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..20),
        cut in any::<prop::sample::Index>(),
    ) {
        let Sample { mut bytes, .. } = sample(FrameMeta::new(Format::I420, 3, 3).unwrap(), 3, true);
        for (at, byte) in wrong {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        bytes.truncate(bytes.len() - cut.index(bytes.len()) / 4);
        let _ = read(&bytes);
    }

    #[test]
    fn whatever_follows_the_start_reading_it_ends(rest: Vec<u8>) {
        let Sample { mut bytes, .. } = sample(FrameMeta::new(Format::BYTES, 100, 1).unwrap(), 0, false);
        bytes.extend(rest);
        prop_assert!(read(&bytes).is_ok());
    }
}
