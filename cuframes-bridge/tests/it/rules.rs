//! Each rule of the layouts, and how it is refused.

use cuframes_bridge::wire::{
    Begin, Decoded, Decoder, FrameType, Hop, Limits, Message, ResultKind, Route, SnapshotId, WireError, Work,
};

use crate::bytes::{encode, fault, frame, frames, message, vector, whole};

/// A frame with other words at these places of its payload; the length follows.
fn with(mut frame: Vec<u8>, changes: &[(usize, u32)]) -> Vec<u8> {
    for (at, value) in changes {
        frame[12 + at..][..4].copy_from_slice(&value.to_be_bytes());
    }
    frame
}

/// A frame with other bytes at the end of its payload.
fn ending(frame: &[u8], cut: usize, end: &[u8]) -> Vec<u8> {
    let kind = FrameType(u32::from_be_bytes(frame[4..8].try_into().unwrap()));
    whole(kind, &[&frame[12..frame.len() - cut], end].concat())
}

fn field(kind: FrameType, field: &'static str, value: u32) -> Option<WireError> {
    Some(WireError::Field { kind, field, value: value.into() })
}

#[test]
fn a_frame_starts_with_its_magic() {
    for at in 0..4 {
        let mut bytes = vector!("hello");
        bytes[at] ^= 1;
        let magic = u32::from_be_bytes(bytes[..4].try_into().unwrap());
        assert_eq!(fault(&bytes), Some(WireError::Magic(magic)));
    }
    // The other protocol, and the other byte order.
    assert_eq!(fault(&vector!("pair_hello")), Some(WireError::Magic(0x5434_5344)));
    let reversed: Vec<u8> = vector!("hello").chunks(4).flat_map(|word| word.iter().rev().copied()).collect();
    assert_eq!(fault(&reversed), Some(WireError::Magic(0x4434_5344)));
}

#[test]
fn each_type_has_its_lengths() {
    const MIB: u32 = 1 << 20;
    for (kind, min, max) in [
        (FrameType::HELLO, 40, 167),
        (FrameType::ERROR, 0, 65_536),
        (FrameType::WORK, 80, 64 * MIB),
        (FrameType::RESULT, 40, 64 * MIB),
        (FrameType::SAVE_REQUEST, 40, 40),
        (FrameType::SNAPSHOT_BEGIN, 60, 60 + 4 * MIB + 65_536),
        (FrameType::CHUNK, 12, 12 + 8 * MIB),
        (FrameType::DONE, 16, 16 + 65_536),
        (FrameType::LOAD_BEGIN, 60, 60 + 4 * MIB),
    ] {
        for bytes in [min, max] {
            assert_eq!(fault(&frame(kind, bytes, &[])), None);
        }
        for bytes in [min.wrapping_sub(1), max + 1, 1 << 31, u32::MAX] {
            let error = Some(WireError::Length { kind, bytes, min, max });
            assert_eq!(fault(&frame(kind, bytes, &[])), error);
        }
    }
}

#[test]
fn the_name_of_a_hello_is_what_is_left_of_it_and_a_text() {
    let hello = vector!("hello");
    for len in [0, 14, 16, 127, 128, u32::MAX] {
        let error = field(FrameType::HELLO, "model_name_len", len);
        assert_eq!(fault(&with(hello.clone(), &[(36, len)])), error);
    }
    let text = Some(WireError::Text { kind: FrameType::HELLO, field: "model_name" });
    for end in ["\0".as_bytes(), &[0xff], &[0xc3]] {
        assert_eq!(fault(&ending(&hello, 1, end)), text);
    }
    // The longest, and none.
    let long = ending(&with(hello.clone(), &[(36, 127)]), 15, &[b'n'; 127]);
    let Message::Hello(long) = message(&long) else { panic!() };
    assert_eq!(long.model_name, "n".repeat(127));
    let Message::Hello(none) = message(&ending(&with(hello, &[(36, 0)]), 15, &[])) else { panic!() };
    assert_eq!(none.model_name, "");
}

#[test]
fn values_that_are_for_the_receiver_to_judge_are_read() {
    let all = [u32::MAX; 9].iter().enumerate().map(|(at, value)| (4 * at, *value)).collect::<Vec<_>>();
    let odd = message(&with(vector!("hello"), &all));
    assert_eq!(encode(&odd), with(vector!("hello"), &all));
    // Flags, widths and kinds that nobody knows.
    for (frame, at) in
        [(vector!("work"), 52), (vector!("work"), 64), (vector!("work"), 120), (vector!("result_ack"), 20)]
    {
        let odd = with(frame, &[(at, 0xffff_fff0)]);
        assert_eq!(encode(&message(&odd)), odd);
    }
}

#[test]
fn five_hundred_and_eleven_bytes_of_an_error_are_kept() {
    let error = |payload: &[u8]| message(&whole(FrameType::ERROR, payload));
    assert_eq!(error(&[b'e'; 2000]), Message::Error("e".repeat(511)));
    assert_eq!(error(&[]), Message::Error(String::new()));
    // A character that does not fit is not cut; one that the peer cut is replaced.
    assert_eq!(error("é".repeat(300).as_bytes()), Message::Error("é".repeat(255)));
    assert_eq!(error(b"caf\xc3"), Message::Error("caf\u{fffd}".into()));
    let text = Some(WireError::Text { kind: FrameType::ERROR, field: "text" });
    assert_eq!(fault(&whole(FrameType::ERROR, b"no\0")), text);
}

#[test]
fn the_parts_of_a_request_fill_it() {
    let work = vector!("work");
    for (changes, name, value) in [
        // Tokens and their bytes.
        (&[(40, 3)][..], "token_bytes", 8),
        (&[(56, 12)], "token_bytes", 12),
        (&[(40, 0x4000_0002)], "token_bytes", 8),
        (&[(40, 17), (56, 68)], "token_bytes", 68),
        (&[(60, 57)], "input_hc_bytes", 57),
        (&[(60, u32::MAX)], "input_hc_bytes", u32::MAX),
        (&[(60, 15)], "route_bytes", 40),
        (&[(76, 39)], "route_bytes", 39),
        (&[(76, u32::MAX)], "route_bytes", u32::MAX),
    ] {
        assert_eq!(fault(&with(work.clone(), changes)), field(FrameType::WORK, name, value));
    }
    // A byte more than the parts have, and a byte less.
    assert_eq!(fault(&ending(&work, 0, &[0])), field(FrameType::WORK, "route_bytes", 40));
    assert_eq!(fault(&ending(&work, 1, &[])), field(FrameType::WORK, "route_bytes", 40));
}

#[test]
fn a_route_has_its_hops_and_the_way_back_and_nothing_else() {
    let work = vector!("work");
    for (at, name, value) in [
        (104, "host_len", 0),
        (104, "host_len", 1025),
        (104, "host_len", u32::MAX),
        (132, "return_kind", 0),
        (132, "return_kind", 2),
        (136, "return_host_len", 1),
        (140, "return_port", 41_001),
    ] {
        assert_eq!(fault(&with(work.clone(), &[(at, value)])), field(FrameType::WORK, name, value));
    }
    let truncated = |field| Some(WireError::Truncated { kind: FrameType::WORK, field });
    assert_eq!(fault(&with(work.clone(), &[(104, 21)])), truncated("host"));
    // A byte less, and the last of the host is the first of the way back.
    assert_eq!(fault(&with(work.clone(), &[(104, 7)])), field(FrameType::WORK, "return_kind", 0x3200_0000));
    // More hops than there are: the way back is read as one.
    assert_eq!(fault(&with(work.clone(), &[(68, 2)])), truncated("layer_end"));
    assert_eq!(fault(&with(work.clone(), &[(68, u32::MAX)])), truncated("layer_end"));
    // Fewer: the hop is read as the way back.
    assert_eq!(fault(&with(work.clone(), &[(68, 0)])), field(FrameType::WORK, "return_kind", 8));
    let longer = ending(&with(work.clone(), &[(76, 44)]), 0, &[0; 4]);
    assert_eq!(fault(&longer), field(FrameType::WORK, "route_bytes", 4));
    let text = Some(WireError::Text { kind: FrameType::WORK, field: "host" });
    for host in [*b"10.0\0.0.", *b"10.0.0.\xff"] {
        let bytes = ending(&work, 20, &[&host[..], &work[work.len() - 12..]].concat());
        assert_eq!(fault(&bytes), text);
    }
}

#[test]
fn a_route_of_the_longest_host_and_one_of_no_hop_are_read() {
    for hops in [vec![], vec![Hop { host: "h".repeat(1024), ..Hop::default() }; 3]] {
        let work = Message::Work(Box::new(Work { route: Route { index: 7, hops }, ..Work::default() }));
        assert_eq!(message(&encode(&work)), work);
    }
}

#[test]
fn the_parts_of_a_result_fill_it() {
    let ack = vector!("result_ack");
    for (changes, name, value) in [
        (&[(24, 2)][..], "telemetry_bytes", 40),
        (&[(28, 41)], "telemetry_bytes", 41),
        (&[(24, 2), (28, 80)], "telemetry_bytes", 80),
        // 40 times this many is 40, in 32 bits.
        (&[(24, 0x2000_0001)], "telemetry_bytes", 40),
        (&[(32, 1)], "payload_bytes", 1),
        (&[(32, u32::MAX)], "payload_bytes", u32::MAX),
        (&[(24, 0), (28, 0)], "payload_bytes", 0),
    ] {
        assert_eq!(fault(&with(ack.clone(), changes)), field(FrameType::RESULT, name, value));
    }
    assert_eq!(fault(&ending(&ack, 0, &[0])), field(FrameType::RESULT, "payload_bytes", 0));
    assert_eq!(fault(&ending(&ack, 1, &[])), field(FrameType::RESULT, "telemetry_bytes", 40));
}

#[test]
fn a_snapshot_to_load_has_no_message_and_no_status() {
    let load = vector!("load_begin");
    let of = |name, value| field(FrameType::LOAD_BEGIN, name, value);
    assert_eq!(fault(&with(load.clone(), &[(48, 1)])), of("status", 1));
    assert_eq!(fault(&with(load.clone(), &[(56, 8), (52, 0), (28, 0)])), of("message_bytes", 8));
    assert_eq!(fault(&ending(&with(load.clone(), &[(56, 1)]), 0, b"m")), of("message_bytes", 1));
    assert_eq!(fault(&ending(&load, 0, b"m")), of("message_bytes", 0));
}

#[test]
fn the_tokens_and_the_message_of_a_snapshot_fill_it() {
    let begin = vector!("begin");
    let of = |name, value| field(FrameType::SNAPSHOT_BEGIN, name, value);
    for (changes, name, value) in [
        (&[(28, 3)][..], "token_bytes", 8),
        (&[(52, 4)], "token_bytes", 4),
        (&[(28, 0x4000_0002)], "token_bytes", 8),
        (&[(28, 3), (52, 12)], "token_bytes", 12),
        (&[(56, 1)], "message_bytes", 1),
        // Without an error there is nothing to leave the tokens out for.
        (&[(52, 0), (56, 8)], "token_bytes", 0),
    ] {
        assert_eq!(fault(&with(begin.clone(), changes)), of(name, value));
    }
    let none = vector!("begin_error");
    assert_eq!(fault(&with(none.clone(), &[(52, 4)])), of("token_bytes", 4));
    assert_eq!(fault(&with(none.clone(), &[(56, 14)])), of("message_bytes", 14));
    assert_eq!(fault(&ending(&none, 0, b"!")), of("message_bytes", 15));
    let text = Some(WireError::Text { kind: FrameType::SNAPSHOT_BEGIN, field: "message" });
    assert_eq!(fault(&ending(&none, 1, b"\0")), text);
    // Each part has a limit of its own: a frame without tokens has no room for more words.
    let long = [&none[12..72 - 4], &65_537_u32.to_be_bytes(), &[b'm'; 65_537]].concat();
    assert_eq!(fault(&whole(FrameType::SNAPSHOT_BEGIN, &long)), of("message_bytes", 65_537));
    let tokens = (1 << 20) + 1;
    let many = [&none[12..72], &vec![0; 4 * ((1 << 20) + 1)]].concat();
    let many = with(whole(FrameType::SNAPSHOT_BEGIN, &many), &[(28, tokens), (52, 4 * tokens), (56, 0)]);
    assert_eq!(fault(&many), of("token_bytes", 4 * tokens));
}

#[test]
fn the_end_of_a_snapshot_is_filled_by_its_message() {
    let done = vector!("done_error");
    let of = |value| field(FrameType::DONE, "message_bytes", value);
    for len in [0, 6, 8, u32::MAX] {
        assert_eq!(fault(&with(done.clone(), &[(12, len)])), of(len));
    }
    let text = Some(WireError::Text { kind: FrameType::DONE, field: "message" });
    assert_eq!(fault(&ending(&done, 7, b"ref\0sed")), text);
}

#[test]
fn a_chunk_has_the_bytes_of_its_frame() {
    let chunk = vector!("chunk");
    for bytes in [0, 4, 6, 17, 8 << 20, (8 << 20) + 1, u32::MAX] {
        let error = field(FrameType::CHUNK, "chunk_bytes", bytes);
        assert_eq!(fault(&with(chunk.clone(), &[(8, bytes)])), error);
        // At once, before any data.
        assert_eq!(fault(&with(chunk.clone(), &[(8, bytes)])[..24]), error);
    }
}

#[test]
fn counts_are_written_as_what_is_there() {
    let id = SnapshotId { token_count: 9, ..SnapshotId::default() };
    let begin = |status, tokens: &[u32]| Begin { id, status, tokens: tokens.to_vec(), ..Begin::default() };
    let count = |message: &Message| match message {
        Message::Begin(begin) | Message::LoadBegin(begin) => (begin.id.token_count, begin.status),
        other => panic!("{other:?}"),
    };
    for (sent, expected) in [
        (Message::Begin(begin(0, &[1, 2])), (2, 0)),
        (Message::Begin(begin(0, &[])), (0, 0)),
        (Message::Begin(begin(5, &[1])), (1, 5)),
        (Message::Begin(begin(5, &[])), (9, 5)),
        (Message::LoadBegin(begin(5, &[1])), (1, 0)),
        (Message::LoadBegin(begin(5, &[])), (0, 0)),
    ] {
        assert_eq!(count(&message(&encode(&sent))), expected);
    }
}

#[test]
fn after_a_fault_within_a_frame_the_next_one_is_read() {
    for (bad, goes_on) in [
        (with(vector!("work"), &[(40, 3)]), true),
        (with(vector!("work"), &[(104, 21)]), true),
        (whole(FrameType::ERROR, b"\0"), true),
        (with(vector!("chunk"), &[(8, 4)]), false),
        (frame(FrameType::HELLO, 39, &[0; 39]), false),
        (b"GET / HTTP/1.1\r\n".to_vec(), false),
    ] {
        let mut decoder = Decoder::new(Limits::default());
        let stream = [bad, vector!("done")].concat();
        let mut bytes = &stream[..];
        let error = decoder.next(&mut bytes).unwrap_err();
        assert_eq!(error.is_within_frame(), goes_on, "{error}");
        if goes_on {
            assert_eq!(decoder.next(&mut bytes), Ok(Some(Decoded::Message(message(&vector!("done"))))));
        }
    }
}

#[test]
fn limits_are_what_the_receiver_says() {
    let mut limits = Limits::default();
    (limits.work_bytes, limits.tokens, limits.text) = (144, 2, 40);
    let fits = |stream: &[u8]| Decoder::new(limits).next(&mut &stream[..]).map(|message| message.is_some());
    for frame in frames() {
        // The ERROR has 41 bytes, the other texts fewer; the WORK has exactly as many as it may.
        let kind = FrameType(u32::from_be_bytes(frame[4..8].try_into().unwrap()));
        let expected = match kind {
            FrameType::ERROR => Err(WireError::Length { kind, bytes: 41, min: 0, max: 40 }),
            _ => Ok(true),
        };
        assert_eq!(fits(&frame), expected);
    }
    limits.work_bytes = 143;
    limits.tokens = 1;
    let fits = |stream: &[u8]| Decoder::new(limits).next(&mut &stream[..]).err();
    let length = |kind, bytes, min, max| Some(WireError::Length { kind, bytes, min, max });
    assert_eq!(fits(&vector!("work")), length(FrameType::WORK, 144, 80, 143));
    assert_eq!(fits(&vector!("load_begin")), length(FrameType::LOAD_BEGIN, 68, 60, 64));
    assert_eq!(fits(&vector!("begin")), field(FrameType::SNAPSHOT_BEGIN, "token_bytes", 8));
}

#[test]
fn faults_say_which_frame_and_what() {
    let kind = FrameType::HELLO;
    for (error, text) in [
        (WireError::Magic(0x4745_5420), "it is no frame: it starts with 0x47455420"),
        (
            WireError::Length { kind, bytes: 39, min: 40, max: 167 },
            "a frame HELLO of 39 bytes; 40 to 167 are allowed",
        ),
        (
            WireError::Field { kind: FrameType::CHUNK, field: "chunk_bytes", value: 6 },
            "SNAPSHOT_CHUNK chunk_bytes: 0x6 is not allowed",
        ),
        (
            WireError::Truncated { kind: FrameType::WORK, field: "host" },
            "WORK host: the frame ends within it",
        ),
        (WireError::Text { kind, field: "model_name" }, "HELLO model_name: it is not a text in UTF-8"),
        (WireError::Cut, "the connection ended in the middle of a frame"),
    ] {
        assert_eq!(error.to_string(), text);
    }
    assert_eq!(
        (FrameType(10).to_string(), format!("{:?}", FrameType(10))),
        ("10".into(), "FrameType(10)".into())
    );
    assert_eq!(format!("{:?} {}", FrameType::WORK, ResultKind(5)), "WORK(3) 5");
    assert_eq!([0, 1, 2].map(|kind| ResultKind(kind).to_string()), ["ack", "hidden", "logits"]);
}
