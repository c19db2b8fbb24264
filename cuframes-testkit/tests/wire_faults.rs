//! Malformed messages: each gets an error that names the message and the field.

#![expect(clippy::indexing_slicing, clippy::unwrap_used, reason = "a failure ends the test")]

use bytes::BytesMut;
use cuframes_core::error::{ErrorCode, Place, Problem, Violation};
use cuframes_core::wire::MessageType;
use cuframes_core::wire::control::{EventFd, Pong, Shutdown};
use cuframes_core::wire::fault::ErrorMessage;
use cuframes_core::wire::framing::{Decoder, MAX_PAYLOAD};
use cuframes_core::wire::hello::{ConsumerName, HelloReq, HelloResp};
use cuframes_core::wire::subscribe::{SubscribeReq, SubscribeResp};
use cuframes_testkit::vectors::vector;

type Decode = fn(&[u8]) -> Result<(), Violation>;

const FIXED: [(&str, MessageType, Decode); 7] = [
    ("hello_req_features", MessageType::HELLO_REQ, |payload| HelloReq::decode(payload).map(drop)),
    ("hello_resp_ok", MessageType::HELLO_RESP, |payload| HelloResp::decode(payload).map(drop)),
    ("subscribe_req", MessageType::SUBSCRIBE_REQ, |payload| SubscribeReq::decode(payload).map(drop)),
    ("subscribe_resp", MessageType::SUBSCRIBE_RESP, |payload| SubscribeResp::decode(payload).map(drop)),
    ("event_fd_wake", MessageType::EVENT_FD, |payload| EventFd::decode(payload).map(drop)),
    ("shutdown_normal", MessageType::SHUTDOWN, |payload| Shutdown::decode(payload).map(drop)),
    ("error_protocol", MessageType::ERROR, |payload| ErrorMessage::decode(payload).map(drop)),
];

fn problem_of(result: Result<(), Violation>) -> (&'static str, Problem) {
    let violation = result.unwrap_err();
    (violation.field, violation.problem)
}

/// The payload of a vector with some bytes replaced.
fn patched(name: &str, at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut payload = vector(name)[8..].to_vec();
    payload[at..at + bytes.len()].copy_from_slice(bytes);
    payload
}

#[test]
fn every_truncation_of_every_message_names_the_message_and_a_field() {
    for (name, message_type, decode) in FIXED {
        let payload = vector(name)[8..].to_vec();
        assert_eq!(decode(&payload), Ok(()), "{name}");
        for len in 0..payload.len() {
            // A SUBSCRIBE_RESP that is four bytes shorter is the short form.
            if name == "subscribe_resp" && len == payload.len() - 4 {
                continue;
            }
            let violation = decode(&payload[..len]).unwrap_err();
            assert_eq!(violation.place, Place::Message(message_type), "{name} cut to {len}");
            assert!(
                matches!(violation.problem, Problem::Truncated { .. }),
                "{name} cut to {len}: {violation}"
            );
            assert_eq!(violation.code(), ErrorCode::PROTOCOL, "{name} cut to {len}");
        }
    }
}

#[test]
fn a_field_of_an_extension_is_not_called_reserved() {
    let field_at_end = |result: Result<(), Violation>| problem_of(result).0;
    let (request, answer) = (vector("hello_req_features"), vector("hello_resp_features"));
    assert_eq!(field_at_end(HelloReq::decode(&request[8..request.len() - 9]).map(drop)), "features");
    assert_eq!(field_at_end(HelloResp::decode(&answer[8..answer.len() - 9]).map(drop)), "features");
    for (end, field) in [(8 + 7, "index"), (8 + 11, "count"), (8 + 15, "reserved")] {
        assert_eq!(field_at_end(EventFd::decode(&vector("event_fd_pool")[8..end]).map(drop)), field);
    }
}

#[test]
fn bytes_after_the_end_of_a_message_are_an_error() {
    for (name, _, decode) in FIXED {
        let mut payload = vector(name)[8..].to_vec();
        payload.push(0);
        assert_eq!(problem_of(decode(&payload)), ("payload", Problem::Trailing { extra: 1 }), "{name}");
    }
}

#[test]
fn a_refusal_may_be_as_short_as_its_code_and_as_long_as_the_sender_likes() {
    for len in [4, 16, 28, 100] {
        let mut payload = vec![0; len];
        payload[..4].copy_from_slice(&(-6_i32).to_le_bytes());
        assert_eq!(HelloResp::decode(&payload), Ok(HelloResp::Refused(ErrorCode::TOO_MANY)));
        assert_eq!(SubscribeResp::decode(&payload), Ok(SubscribeResp::Refused(ErrorCode::TOO_MANY)));
    }
}

#[test]
fn a_positive_result_means_nothing() {
    let payload = patched("hello_resp_ok", 0, &7_i32.to_le_bytes());
    let found = problem_of(HelloResp::decode(&payload).map(drop));
    assert_eq!(found, ("result", Problem::Value { value: 7 }));
}

#[test]
fn a_bad_name_is_an_invalid_argument() {
    let name = |bytes: &[u8]| {
        let mut payload = 1_u32.to_le_bytes().to_vec();
        payload.extend(u32::try_from(bytes.len()).unwrap().to_le_bytes());
        payload.extend(bytes);
        payload.extend([0; 20]);
        let violation = HelloReq::decode(&payload).unwrap_err();
        assert_eq!(violation.code(), ErrorCode::INVALID_ARGUMENT, "{violation}");
        (violation.field, violation.problem)
    };
    assert_eq!(name(b""), ("consumer_name", Problem::Empty));
    assert_eq!(name(&[b'x'; 256]), ("consumer_name_len", Problem::TooLong { len: 256, max: 255 }));
    assert_eq!(name(b"a\xFF"), ("consumer_name", Problem::NotUtf8));
    for control in ["a\0", "\n", "a\u{85}b", "\u{7F}"] {
        assert_eq!(name(control.as_bytes()), ("consumer_name", Problem::ControlCharacter), "{control:?}");
    }
}

#[test]
fn a_name_is_shown_in_the_region_as_ascii_cut_to_31_bytes() {
    let region_name = |name: &str| name.parse::<ConsumerName>().unwrap().to_region_bytes();
    assert_eq!(&region_name("камера-1")[..9], b"??????-1\0");
    assert_eq!(region_name(&"x".repeat(40)), *b"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\0");
}

#[test]
fn a_bit_of_0_or_32_is_refused() {
    for bit in [0_u32, 32, u32::MAX] {
        let payload = patched("subscribe_resp", 4, &bit.to_le_bytes());
        let found = problem_of(SubscribeResp::decode(&payload).map(drop));
        assert_eq!(found, ("assigned_bit", Problem::Value { value: bit.into() }));
    }
}

#[test]
fn a_ring_of_0_or_17_slots_is_refused() {
    for slots in [0_u32, 17] {
        let payload = patched("hello_resp_ok", 8, &slots.to_le_bytes());
        let found = problem_of(HelloResp::decode(&payload).map(drop));
        assert_eq!(found, ("ring_size", Problem::Value { value: slots.into() }));
    }
}

#[test]
fn a_geometry_that_does_not_hold_together_is_refused_with_its_field() {
    const META: usize = 16;
    let cases: [(usize, &[u8], &str); 6] = [
        (META, &99_u32.to_le_bytes(), "format"),
        (META + 4, &0_u32.to_le_bytes(), "width"),
        (META + 8, &0_u32.to_le_bytes(), "height"),
        (META + 12, &1919_u32.to_le_bytes(), "pitch_y"),
        (META + 16, &1919_u32.to_le_bytes(), "pitch_uv"),
        (META + 24, &3_000_000_u64.to_le_bytes(), "frame_size_bytes"),
    ];
    for (at, bytes, field) in cases {
        let violation = HelloResp::decode(&patched("hello_resp_ok", at, bytes)).unwrap_err();
        assert_eq!(violation.field, field);
        let code = if field == "format" { ErrorCode::FORMAT } else { ErrorCode::PROTOCOL };
        assert_eq!(violation.code(), code, "{field}");
    }
}

#[test]
fn a_path_length_beyond_the_payload_is_refused() {
    let payload = patched("hello_resp_ok", 80, &u32::MAX.to_le_bytes());
    let found = problem_of(HelloResp::decode(&payload).map(drop));
    assert_eq!(found, ("shm_path", Problem::Truncated { needed: u32::MAX.into(), available: 34 }));
}

#[test]
fn an_error_text_of_any_length_fits_into_one_message_and_is_cut_at_a_character() {
    let message = "ы".repeat(5000);
    let mut out = BytesMut::new();
    ErrorMessage { code: ErrorCode::IO, message: message.clone() }.encode(&mut out);
    let bytes = out.freeze();
    let (mut decoder, mut input) = (Decoder::new(), &bytes[..]);
    let payload = decoder.next(&mut input).unwrap().unwrap().payload;
    assert!(payload.len() <= MAX_PAYLOAD && input.is_empty());
    let read = ErrorMessage::decode(payload).unwrap();
    assert!(read.message.len() > 3900 && message.starts_with(&read.message));
}

#[test]
fn a_ping_is_echoed_up_to_64_bytes() {
    assert_eq!(Pong::answer(&[1; 64]).echo, [1; 64]);
    assert_eq!(Pong::answer(&[1; 65]).echo, []);
}

#[test]
fn the_version_is_read_from_a_hello_that_is_otherwise_not_understood() {
    let mut payload = 2_u32.to_le_bytes().to_vec();
    payload.extend([0xFF; 3]);
    assert_eq!(HelloReq::decode_version(&payload), Ok(2));
    assert!(HelloReq::decode_version(&payload[..3]).is_err());
}
