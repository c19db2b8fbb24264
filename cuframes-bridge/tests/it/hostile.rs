//! Peers that announce more than they send, or more than is allowed: nothing is kept for what did not come.

use allocation_counter::measure;
use cuframes_bridge::wire::{Decoded, Decoder, FrameType, Header, Limits, WireError, Work};
use cuframes_bridge::wire::{Hop, Message, Route};

use crate::bytes::{encode, frame, frames, vector};

/// The most that a decoder holds at once while it reads this in pieces, and what it says in the end.
fn memory(stream: &[u8], piece: usize) -> (u64, Result<Option<Decoded>, WireError>) {
    let mut last = Ok(None);
    let info = measure(|| {
        let mut decoder = Decoder::new(Limits::default());
        for mut piece in stream.chunks(piece) {
            last = decoder.next(&mut piece);
        }
    });
    (info.bytes_max, last)
}

#[test]
fn a_length_of_four_gib_takes_no_memory() {
    for kind in 1..=9 {
        for len in [u32::MAX, 1 << 31, 1 << 30] {
            let kind = FrameType(kind);
            let (bytes, last) = memory(&Header { kind, bytes: len }.encode(), 5);
            assert!(matches!(last, Err(WireError::Length { .. })), "{kind} {last:?}");
            assert!(bytes < 256, "{kind}: {bytes} bytes");
        }
    }
}

#[test]
fn a_frame_that_does_not_come_takes_the_memory_of_what_came() {
    for (kind, len) in [
        (FrameType::WORK, 64 << 20),
        (FrameType::RESULT, 64 << 20),
        (FrameType::SNAPSHOT_BEGIN, 4 << 20),
        (FrameType::LOAD_BEGIN, 4 << 20),
        (FrameType::ERROR, 65_536),
        (FrameType::DONE, 65_536),
        (FrameType::CHUNK, 8 << 20),
    ] {
        for piece in [1, 100] {
            let (bytes, last) = memory(&frame(kind, len, &[0; 11]), piece);
            assert_eq!(last, Ok(None));
            assert!(bytes < 256, "{kind}: {bytes} bytes");
            if kind != FrameType::CHUNK {
                let (bytes, last) = memory(&frame(kind, len, &[0; 1000]), piece);
                assert_eq!(last, Ok(None));
                assert!(bytes < 4096, "{kind}: {bytes} bytes");
            }
        }
    }
}

#[test]
fn an_unknown_frame_of_four_gib_is_drained_without_memory() {
    let mut decoder = Decoder::new(Limits::default());
    let header = Header { kind: FrameType(99), bytes: u32::MAX };
    assert_eq!(decoder.next(&mut &header.encode()[..]), Ok(None));
    let piece = vec![0x44; 1 << 20];
    let mut last = None;
    let info = measure(|| {
        // 4 GiB less a byte.
        for number in 0..4096 {
            assert_eq!((last.take(), decoder.buffered()), (None, 0));
            let len = if number == 4095 { piece.len() - 1 } else { piece.len() };
            let mut bytes = &piece[..len];
            last = decoder.next(&mut bytes).unwrap();
            assert!(bytes.is_empty());
        }
    });
    assert_eq!(last, Some(Decoded::Unknown(header)));
    assert_eq!(info.bytes_total, 0);
    assert!(decoder.may_end());
}

#[test]
fn data_of_a_chunk_are_never_kept() {
    let chunk = encode(&Message::Chunk(cuframes_bridge::wire::Chunk { request: 1, bytes: 8 << 20 }));
    let data = vec![1; 1 << 16];
    let mut decoder = Decoder::new(Limits::default());
    let info = measure(|| {
        assert!(matches!(decoder.next(&mut &chunk[..]), Ok(Some(_))));
        while decoder.data_left() > 0 {
            let mut piece = &data[..];
            assert_eq!(decoder.next(&mut piece), Ok(None));
            assert_eq!(decoder.take_data(&mut piece).len(), data.len());
        }
    });
    assert_eq!(info.bytes_total, 0);
}

#[test]
fn counts_that_are_only_announced_take_no_memory() {
    let with = |mut frame: Vec<u8>, changes: &[(usize, u32)]| {
        for (at, value) in changes {
            frame[12 + at..][..4].copy_from_slice(&value.to_be_bytes());
        }
        frame
    };
    for hostile in [
        with(vector!("work"), &[(40, 0x3fff_ffff), (56, 0xffff_fffc)]),
        with(vector!("work"), &[(60, u32::MAX)]),
        with(vector!("work"), &[(68, u32::MAX)]),
        with(vector!("work"), &[(76, u32::MAX)]),
        with(vector!("work"), &[(104, 1024)]),
        with(vector!("result_ack"), &[(24, 100_000_000), (28, 4_000_000_000)]),
        with(vector!("result_ack"), &[(32, u32::MAX)]),
        with(vector!("load_begin"), &[(28, 0x3fff_ffff), (52, 0xffff_fffc)]),
        with(vector!("begin"), &[(56, u32::MAX)]),
        with(vector!("done_error"), &[(12, u32::MAX)]),
        with(vector!("hello"), &[(36, u32::MAX)]),
    ] {
        let (bytes, last) = memory(&hostile, 100);
        assert!(last.is_err(), "{last:?}");
        assert!(bytes < 2048, "{last:?}: {bytes} bytes");
    }
}

#[test]
fn what_is_read_takes_not_much_more_memory_than_its_bytes() {
    // Hops are the smallest things on the wire that become something larger.
    let hops = vec![Hop { host: "h".into(), ..Hop::default() }; 100_000];
    let work = Message::Work(Box::new(Work { route: Route { index: 0, hops }, ..Work::default() }));
    let stream = encode(&work);
    let (bytes, last) = memory(&stream, stream.len());
    assert!(matches!(last, Ok(Some(_))));
    let len = u64::try_from(stream.len()).unwrap();
    assert!(bytes < 8 * len, "{bytes} bytes for {len}");
}

#[test]
fn a_buffer_is_not_kept_when_its_frame_is_complete() {
    let big = Message::Work(Box::new(Work { activations: vec![0; 1 << 20], ..Work::default() }));
    let stream = encode(&big);
    let mut decoder = Decoder::new(Limits::default());
    let info = measure(|| {
        for mut piece in stream.chunks(1000) {
            drop(decoder.next(&mut piece));
        }
        for frame in frames() {
            assert!(matches!(decoder.next(&mut &frame[..]), Ok(Some(_))));
            let left = decoder.data_left();
            decoder.data_received(left);
        }
    });
    assert!(info.bytes_current.abs() < 64, "{} bytes are held", info.bytes_current);
}

#[test]
fn what_is_no_frame_is_refused_with_its_first_twelve_bytes() {
    for stream in [&b"GET / HTTP/1.1\r\n"[..], &[0; 12], &[0xff; 12], b"DS4TDS4TDS4T"] {
        assert_eq!(memory(&stream[..11], 1).1, Ok(None));
        let magic = u32::from_be_bytes(stream[..4].try_into().unwrap());
        assert_eq!(memory(&stream[..12], 1).1, Err(WireError::Magic(magic)));
    }
}
