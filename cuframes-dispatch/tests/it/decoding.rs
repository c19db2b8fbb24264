//! What is forgiven when a frame is read, and what ends the connection.

use std::ops::RangeInclusive;

use allocation_counter::measure;
use cuframes_dispatch::wire::{
    BlockId, DecodeError, Decoder, FrameError, MAX_PAYLOAD, Message, Problem, Version,
};

use crate::bytes::{FAILED, acquire, block, decode, done, encode, failed, frame, sent, text, vector, w2};

/// What is wrong with a payload of W2, without the version byte, and where.
fn problem(payload: &[&[u8]]) -> Option<(Problem, usize)> {
    let (messages, error) = decode(Version::W2, &w2(payload), &[usize::MAX]);
    assert_eq!(messages.len(), usize::from(error.is_none()));
    error.map(|error| match error {
        FrameError::Payload(DecodeError { problem, offset }) => (problem, offset),
        error => panic!("{error:?}"),
    })
}

/// All messages that can be read.
fn vectors() -> Vec<(Version, Vec<u8>)> {
    let w2 = [
        vector!("w2_acquire"),
        vector!("w2_acquire_no_number"),
        vector!("w2_send"),
        vector!("w2_send_first"),
        vector!("w2_send_retry"),
        vector!("w2_release"),
        vector!("w2_release_stats"),
        vector!("w2_failed"),
        vector!("w2_shutdown"),
        vector!("w2_disconnect"),
    ];
    let w0 = [
        vector!("w0_acquire"),
        vector!("w0_send"),
        vector!("w0_failed"),
        vector!("w0_shutdown"),
        vector!("w0_disconnect"),
    ];
    let all = w2.into_iter().map(|bytes| (Version::W2, bytes));
    all.chain(w0.into_iter().map(|bytes| (Version::W0, bytes))).collect()
}

#[test]
fn numbers_take_the_smallest_form() {
    let cases: [(u64, &[u8]); 7] = [
        (0, &[0]),
        (250, &[0xfa]),
        (251, &[0xfb, 0xfb, 0]),
        (65_535, &[0xfb, 0xff, 0xff]),
        (65_536, &[0xfc, 0, 0, 1, 0]),
        (1 << 32, &[0xfd, 0, 0, 0, 0, 1, 0, 0, 0]),
        (u64::MAX, &[0xfd, 255, 255, 255, 255, 255, 255, 255, 255]),
    ];
    for (number, form) in cases {
        let message = Message::AcquireBlock { task_id: "t".into(), worker_id: Some(number) };
        let bytes = w2(&[&[0], &text("t"), &[1], form]);
        assert_eq!(encode(Version::W2, std::slice::from_ref(&message)), bytes);
        assert_eq!(decode(Version::W2, &bytes, &[1]), (vec![message], None));
    }
}

#[test]
fn signed_numbers_alternate() {
    let max = [0xfd, 0xfe, 255, 255, 255, 255, 255, 255, 255];
    let cases: [(i64, &[u8]); 6] = [
        (-1, &[1]),
        (1, &[2]),
        (125, &[0xfa]),
        (126, &[0xfb, 0xfc, 0]),
        (i64::MIN, &[0xfd, 255, 255, 255, 255, 255, 255, 255, 255]),
        (i64::MAX, &max),
    ];
    for (number, form) in cases {
        // It reads there, one axis; the rest is as small as it gets.
        let bytes = w2(&[&[2, 1], form, &[0, 0, 0, 0, 0, 2, 0]]);
        let (messages, error) = decode(Version::W2, &bytes, &[usize::MAX]);
        assert_eq!(error, None);
        let [Message::ReleaseBlock { block }] = &messages[..] else { panic!("{messages:?}") };
        assert_eq!((&block.read_roi.offset[..], &block.block_id), (&[number][..], &BlockId::default()));
        assert_eq!(encode(Version::W2, &messages), bytes);
    }
}

#[test]
fn longer_forms_than_needed_are_read() {
    let expected = Message::AcquireBlock { task_id: "t".into(), worker_id: Some(3) };
    let forms: [&[u8]; 4] = [&[3], &[0xfb, 3, 0], &[0xfc, 3, 0, 0, 0], &[0xfd, 3, 0, 0, 0, 0, 0, 0, 0]];
    for number in forms {
        for variant in [&[0][..], &[0xfb, 0, 0], &[0xfc, 0, 0, 0, 0]] {
            for len in [&[1][..], &[0xfb, 1, 0], &[0xfd, 1, 0, 0, 0, 0, 0, 0, 0]] {
                let bytes = w2(&[variant, len, b"t", &[1], number]);
                assert_eq!(decode(Version::W2, &bytes, &[4]), (vec![expected.clone()], None));
            }
        }
    }
}

#[test]
fn a_variant_is_a_number_of_32_bits_so_the_form_of_64_is_refused() {
    let wide = [0xfd, 4, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(problem(&[&wide]), Some((Problem::Number, 0)));
    // The status, too.
    let status = [0xfd, 2, 0, 0, 0, 0, 0, 0, 0];
    let mut block = block("t", 1, FAILED);
    block.pop();
    assert_eq!(problem(&[&[2], &block, &status, &[0]]), Some((Problem::Number, 1 + block.len())));
    assert_eq!(problem(&[&[2], &block, &status[..1], &[0]]), Some((Problem::Number, 1 + block.len())));
}

#[test]
fn forms_of_other_types_are_refused() {
    for form in [0xfe, 0xff] {
        let number = [form; 17];
        assert_eq!(problem(&[&number]), Some((Problem::Number, 0)));
        assert_eq!(problem(&[&[0], &number]), Some((Problem::Number, 1)));
        assert_eq!(problem(&[&[0], &text("t"), &[1], &number]), Some((Problem::Number, 4)));
        assert_eq!(problem(&[&[2, 1], &number]), Some((Problem::Number, 2)));
    }
}

#[test]
fn there_are_six_messages_four_statuses_and_two_kinds_of_options() {
    for variant in 6..=250 {
        assert_eq!(problem(&[&[variant]]), Some((Problem::Variant(variant.into()), 0)));
    }
    assert_eq!(problem(&[&[0xfc, 0, 0, 1, 0]]), Some((Problem::Variant(65_536), 0)));
    let block = |status| block("t", 1, status);
    let at = block(0).len();
    assert_eq!(problem(&[&[2], &block(4), &[0]]), Some((Problem::Variant(4), at)));
    assert_eq!(problem(&[&[2], &block(2), &[2]]), Some((Problem::Variant(2), at + 1)));
    assert_eq!(problem(&[&[1], &block(0), &[0], &[2]]), Some((Problem::Variant(2), at + 2)));
    assert_eq!(problem(&[&[0], &text("t"), &[255]]), Some((Problem::Variant(255), 3)));
}

#[test]
fn words_must_be_utf8() {
    assert_eq!(problem(&[&[0, 2, 0xc3, 0x28, 0]]), Some((Problem::NotUtf8, 2)));
    let reason = [&[1], &b"\xff"[..]].concat();
    let block = [&block("t", 1, FAILED)[..], &[0]].concat();
    assert_eq!(problem(&[&[3], &block, &reason]), Some((Problem::NotUtf8, 2 + block.len())));
    assert_eq!(problem(&[&[3], &block, "\u{2}é".as_bytes()]), None);
}

#[test]
fn a_length_of_2_to_the_40_is_refused_where_it_stands() {
    let hostile = vector!("hostile_length");
    let error = FrameError::Payload(DecodeError { offset: 1, problem: Problem::Truncated });
    // It is the eleventh byte of the payload that completes the frame.
    for pieces in [1, 3, usize::MAX] {
        assert_eq!(decode(Version::W2, &hostile, &[pieces]), (vec![], Some(error)));
    }
}

#[test]
fn what_is_only_announced_takes_no_memory() {
    let huge: [&[u8]; 4] = [
        &[0xfd, 0, 0, 0, 0, 0, 1, 0, 0],
        &[0xfd, 255, 255, 255, 255, 255, 255, 255, 255],
        &[0xfc, 255, 255, 255, 255],
        &[0xfb, 255, 255],
    ];
    let at: [&[u8]; 6] = [&[0], &[2], &[2, 0], &[2, 0, 0, 0], &[2, 0, 0, 0, 0], &[3, 0, 0, 0, 0, 0, 0, 3, 0]];
    for announced in huge {
        for before in at {
            let bytes = w2(&[before, announced]);
            let info = measure(|| assert!(decode(Version::W2, &bytes, &[usize::MAX]).1.is_some()));
            assert!(info.bytes_max < 4096, "{before:?} {announced:?}: {} bytes", info.bytes_max);
        }
    }
    // The frame itself: of 64 MiB ten bytes are there.
    let bytes = [&u32::try_from(MAX_PAYLOAD).unwrap().to_be_bytes()[..], &[2; 10]].concat();
    let info = measure(|| assert_eq!(decode(Version::W2, &bytes, &[usize::MAX]), (vec![], None)));
    assert!(info.bytes_max < 4096, "{} bytes", info.bytes_max);
}

#[test]
fn boxes_of_ever_more_axes_do_not_become_eight_times_as_large_in_memory() {
    let axes = |count: u8| w2(&[&[2, count], &vec![0; count.into()], &[0, 0, 0, 0, 0, 2, 0]]);
    assert_eq!(decode(Version::W2, &axes(64), &[usize::MAX]).1, None);
    let error = FrameError::Payload(DecodeError { offset: 1, problem: Problem::Number });
    assert_eq!(decode(Version::W2, &axes(65), &[usize::MAX]).1, Some(error));
    let many = w2(&[&[2, 0xfc, 0, 0, 16, 0], &vec![0; 1 << 20]]);
    let info = measure(|| assert_eq!(decode(Version::W2, &many, &[usize::MAX]).1, Some(error)));
    assert!(info.bytes_max < 3 << 20, "{} bytes", info.bytes_max);
}

#[test]
fn a_frame_has_1_byte_to_64_mib() {
    let max = u32::try_from(MAX_PAYLOAD).unwrap();
    for len in [0, max + 1, 1 << 31, u32::MAX] {
        let header = len.to_be_bytes();
        assert_eq!(decode(Version::W2, &header, &[1]), (vec![], Some(FrameError::Length(len))));
        // Without a version byte an empty payload is one that ends too early.
        let error = match len {
            0 => FrameError::Payload(DecodeError { offset: 0, problem: Problem::Truncated }),
            _ => FrameError::Length(len),
        };
        assert_eq!(decode(Version::W0, &header, &[1]), (vec![], Some(error)));
    }
    // The longest: a disconnect, and bytes that nobody looks at.
    let mut longest = [&max.to_be_bytes()[..], &[2, 5]].concat();
    longest.resize(4 + MAX_PAYLOAD, 7);
    longest.extend(acquire("t"));
    let (messages, error) = decode(Version::W2, &longest, &[1 << 20]);
    assert_eq!((messages.len(), &messages[0], error), (2, &Message::Disconnect, None));
}

#[test]
fn another_version_is_refused_at_its_first_byte() {
    assert_eq!(decode(Version::W2, &vector!("wrong_version"), &[1]).1, Some(FrameError::Version(1)));
    let mut long = [&u32::try_from(MAX_PAYLOAD).unwrap().to_be_bytes()[..], &[3]].concat();
    assert_eq!(decode(Version::W2, &long, &[2]).1, Some(FrameError::Version(3)));
    // Not before it is there.
    long.pop();
    assert_eq!(decode(Version::W2, &long, &[2]).1, None);
}

#[test]
fn the_versions_do_not_take_each_other_for_themselves() {
    for (bytes, version) in [
        (vector!("w0_acquire"), Version::W2),
        (vector!("w0_send"), Version::W2),
        (vector!("w0r_register"), Version::W2),
        (vector!("w0r_register"), Version::W0),
        (vector!("w1_acquire"), Version::W2),
        (vector!("w2_acquire"), Version::W0),
        (vector!("w2_shutdown"), Version::W0),
    ] {
        let (messages, error) = decode(version, &bytes, &[usize::MAX]);
        assert!(messages.is_empty() && error.is_some(), "{messages:?}");
    }
}

/// Cuts of the payload of a frame, with a length that fits them.
fn cuts(version: Version, bytes: &[u8]) -> RangeInclusive<usize> {
    let version = usize::from(version == Version::W2);
    4 + version..=bytes.len() - 1
}

#[test]
fn every_truncation_of_every_vector_is_incomplete_or_refused() {
    for (version, bytes) in vectors() {
        for len in 0..bytes.len() {
            // The stream ends there: nothing is said, and it may only end within the length.
            let mut decoder = Decoder::new(version);
            assert_eq!(decoder.next(&mut &bytes[..len]), Ok(None));
            assert_eq!(decoder.may_end(), len < 4);
            assert_eq!(decoder.buffered(), len.saturating_sub(4));
        }
        for end in cuts(version, &bytes) {
            let cut = frame(&bytes[4..end]);
            let (messages, error) = decode(version, &cut, &[usize::MAX]);
            let Some(FrameError::Payload(error)) = error else { panic!("{messages:?} {error:?}") };
            assert!(error.is_truncated() && error.offset <= end, "{error:?}");
        }
    }
}

#[test]
fn bytes_after_a_message_are_not_looked_at() {
    for (version, bytes) in vectors() {
        let (expected, _) = decode(version, &bytes, &[usize::MAX]);
        for extra in [&[0][..], &[0xff; 300]] {
            let longer = frame(&[&bytes[4..], extra].concat());
            let stream = [&longer[..], &bytes].concat();
            let (messages, error) = decode(version, &stream, &[7]);
            assert_eq!((messages.len(), error), (2, None));
            for message in messages {
                // Some numbers are not equal to themselves.
                assert_eq!(format!("{message:?}"), format!("{:?}", expected[0]));
            }
        }
    }
}

#[test]
fn what_is_put_together_by_hand_here_is_what_the_vectors_have() {
    assert_eq!(sent("t", 0, 0), vector!("w2_send_first"));
    let all = [acquire("t"), done("t", 3), failed("t", 3, "no")].concat();
    let (messages, error) = decode(Version::W2, &all, &[usize::MAX]);
    assert_eq!((encode(Version::W2, &messages), error), (all, None));
}

#[test]
fn faults_say_what_and_where() {
    let payload = |problem| FrameError::Payload(DecodeError { offset: 3, problem }).to_string();
    assert_eq!(payload(Problem::Truncated), "a message can't be read: it ends too early (byte 3)");
    assert_eq!(payload(Problem::Number), "a message can't be read: a number does not fit its type (byte 3)");
    assert_eq!(payload(Problem::Variant(9)), "a message can't be read: there is no variant 9 (byte 3)");
    assert_eq!(payload(Problem::NotUtf8), "a message can't be read: a string is not UTF-8 (byte 3)");
    assert_eq!(FrameError::Version(1).to_string(), "it speaks version 1 of the protocol");
    assert_eq!(FrameError::Length(0).to_string(), "a frame of 0 bytes; 1 to 67108864 are allowed");
}
