//! Whatever a message says, what we send is what the tables of §3 say, and what we read is what was sent: for all ten types,
//! with values that are not known, in every form that is accepted.

#![expect(clippy::unwrap_used, reason = "a failure ends the test")]

use cuframes_core::error::ErrorCode;
use cuframes_core::wire::control::{EventFd, Ping, Pong, Shutdown};
use cuframes_core::wire::fault::ErrorMessage;
use cuframes_core::wire::framing::Decoder;
use cuframes_core::wire::hello::{HelloReq, HelloResp, Stream};
use cuframes_core::wire::subscribe::{InitialSeq, SubscribeReq, SubscribeResp, Subscribed, Unsubscribe};
use cuframes_core::wire::{FdPurpose, ShutdownReason};
use cuframes_core::{Features, FrameMeta, Ownership, RingSize, SubscriberBit, SubscriberMode};
use cuframes_testkit::conformance::session::bytes::{
    self, ERROR, HELLO_RESP, PING, PONG, SUBSCRIBE_RESP, UNSUBSCRIBE, any as any_of_type, error, event_fd_of,
    hello_refused, message, patched, shutdown, subscribe_req, subscribe_resp, subscribe_resp_short,
};
use cuframes_testkit::solo::encoded;
use cuframes_testkit::strategies::{config, hello, negative, number, payload, stream, text, well_formed};
use proptest::prelude::*;

/// The payload of a message, after the framing was decoded.
fn payload_of(message: &[u8]) -> Vec<u8> {
    let (mut decoder, mut input) = (Decoder::new(), message);
    let payload = decoder.next(&mut input).unwrap().unwrap().payload.to_vec();
    assert!(input.is_empty() && !decoder.is_mid_message());
    payload
}

/// A message with other bytes in a reserved field.
fn with_reserved(message: &[u8], at: usize, bytes: &[u8]) -> Vec<u8> {
    payload_of(&patched(message, at, bytes))
}

proptest! {
    #![proptest_config(config(256))]

    #[test]
    fn every_hello_req_is_sent_by_the_table_and_read_back(hello in hello(), version: u32, reserved: [u8; 8]) {
        let bytes = bytes::Hello { version, ..hello.clone() }.message();
        let request = HelloReq {
            proto_version: version,
            consumer_name: String::from_utf8(hello.name).unwrap().parse().unwrap(),
            cuda_device: hello.device,
            mode: SubscriberMode(hello.mode),
            features: Features(hello.features),
        };
        prop_assert_eq!(encoded(|out| request.encode(out)), &bytes[..]);
        let end = bytes.len() - 8;
        let payload = with_reserved(&bytes, end - 8, &reserved);
        prop_assert_eq!(HelloReq::decode_version(&payload), Ok(version));
        prop_assert_eq!(HelloReq::decode(&payload), Ok(request));
    }

    #[test]
    fn every_hello_resp_is_sent_by_the_table_and_read_back(stream in stream(), version: u32, reserved: [u8; 8]) {
        let bytes = bytes::Stream { version, ..stream.clone() }.message();
        let answer = HelloResp::Ok(Stream {
            proto_version: version,
            ring_size: RingSize::new(stream.ring_size.into()).unwrap(),
            ownership: Ownership(stream.ownership),
            meta: FrameMeta::from_bytes(&stream.meta),
            shm_path: stream.shm_path,
            features: Features(stream.features),
        });
        prop_assert_eq!(encoded(|out| answer.encode(out)), &bytes[..]);
        let end = bytes.len() - 8;
        prop_assert_eq!(HelloResp::decode(&with_reserved(&bytes, end - 8, &reserved)), Ok(answer));
    }

    #[test]
    fn a_refusal_is_read_at_any_length(code in negative(), rest in payload(4092)) {
        let payload = [&code.to_le_bytes()[..], &rest].concat();
        let (hello, subscribe) = (HelloResp::Refused(ErrorCode(code)), SubscribeResp::Refused(ErrorCode(code)));
        prop_assert_eq!(encoded(|out| hello.encode(out)), hello_refused(code));
        prop_assert_eq!(encoded(|out| subscribe.encode(out)), subscribe_resp(code, 0, 0));
        prop_assert_eq!(HelloResp::decode(&payload_of(&message(HELLO_RESP, &payload))), Ok(hello));
        prop_assert_eq!(SubscribeResp::decode(&payload_of(&message(SUBSCRIBE_RESP, &payload))), Ok(subscribe));
    }

    #[test]
    fn every_subscribe_req_is_sent_by_the_table_and_read_back(version: u32, reserved: [u8; 12]) {
        let request = SubscribeReq { proto_version: version };
        prop_assert_eq!(encoded(|out| request.encode(out)), subscribe_req(version));
        prop_assert_eq!(SubscribeReq::decode(&with_reserved(&subscribe_req(version), 4, &reserved)), Ok(request));
    }

    #[test]
    fn both_forms_of_subscribe_resp_are_sent_by_the_table_and_read_back(number in 1..=31_u32, seq: u64, low: u32, reserved: [u8; 12]) {
        let bit = SubscriberBit::new(number.into()).unwrap();
        let full = SubscribeResp::Ok(Subscribed { bit, initial_seq: InitialSeq::Full(seq) });
        let bytes = subscribe_resp(0, number, seq);
        prop_assert_eq!(encoded(|out| full.encode(out)), &bytes[..]);
        prop_assert_eq!(SubscribeResp::decode(&with_reserved(&bytes, 16, &reserved)), Ok(full));
        let short = SubscribeResp::Ok(Subscribed { bit, initial_seq: InitialSeq::Low(low) });
        let bytes = subscribe_resp_short(number, low);
        prop_assert_eq!(encoded(|out| short.encode(out)), &bytes[..]);
        prop_assert_eq!(SubscribeResp::decode(&with_reserved(&bytes, 12, &reserved)), Ok(short));
    }

    #[test]
    fn every_event_fd_is_sent_by_the_table_and_read_back(purpose in number(), index in number(), count in number(), reserved: [u8; 4]) {
        let announcement = EventFd { purpose: FdPurpose(purpose), index, count };
        let bytes = event_fd_of(purpose, index, count);
        prop_assert_eq!(encoded(|out| announcement.encode(out)), &bytes[..]);
        prop_assert_eq!(EventFd::decode(&with_reserved(&bytes, 12, &reserved)), Ok(announcement));
    }

    #[test]
    fn every_shutdown_is_sent_by_the_table_and_read_back(reason in number(), reserved: [u8; 12]) {
        let goodbye = Shutdown { reason: ShutdownReason(reason) };
        prop_assert_eq!(encoded(|out| goodbye.encode(out)), shutdown(reason));
        prop_assert_eq!(Shutdown::decode(&with_reserved(&shutdown(reason), 4, &reserved)), Ok(goodbye));
    }

    #[test]
    fn an_error_of_any_code_and_text_is_read_back_and_what_is_too_long_is_cut(code: i32, words in text(4076), reserved: [u8; 12]) {
        let fault = ErrorMessage { code: ErrorCode(code), message: words.clone() };
        let bytes = error(code, &words);
        let end = bytes.len() - 8;
        prop_assert_eq!(ErrorMessage::decode(&with_reserved(&bytes, end - 12, &reserved)), Ok(fault.clone()));
        let sent = encoded(|out| fault.encode(out));
        if words.len() <= 4000 {
            prop_assert_eq!(sent, bytes);
        } else {
            // Cut at a character (§3.9: at most 4076 bytes).
            let cut = ErrorMessage::decode(&payload_of(&sent)).unwrap().message;
            prop_assert!(words.starts_with(&cut) && words.len() - cut.len() < 100, "{}", cut.len());
        }
    }

    #[test]
    fn ping_and_unsubscribe_are_sent_empty_and_pong_echoes(question in payload(4096)) {
        let echo = if question.len() > 64 { &[][..] } else { &question };
        prop_assert_eq!(encoded(|out| Pong::answer(&question).encode(out)), message(PONG, echo));
        prop_assert_eq!(encoded(|out| Ping.encode(out)), any_of_type(PING));
        prop_assert_eq!(encoded(|out| Unsubscribe.encode(out)), any_of_type(UNSUBSCRIBE));
    }

    #[test]
    fn any_messages_in_a_row_are_found_in_pieces_of_any_size(
        messages in prop::collection::vec(well_formed(), 0..6), sizes in prop::collection::vec(1..5000_usize, 1..6),
    ) {
        let stream = messages.concat();
        let (mut decoder, mut found, mut rest) = (Decoder::new(), Vec::new(), &stream[..]);
        for size in sizes.iter().cycle() {
            let (mut piece, later) = rest.split_at(rest.len().min(*size));
            while let Some(raw) = decoder.next(&mut piece).unwrap() {
                found.push(message(raw.message_type.0, raw.payload));
            }
            prop_assert!(piece.is_empty());
            rest = later;
            if rest.is_empty() {
                break;
            }
        }
        prop_assert!(!decoder.is_mid_message());
        prop_assert_eq!(found, messages);
    }
}

#[test]
fn an_error_with_the_longest_text_that_fits_is_taken() {
    let words = "x".repeat(4076);
    let fault = ErrorMessage { code: ErrorCode::IO, message: words.clone() };
    let bytes = error(ErrorCode::IO.0, &words);
    assert_eq!((bytes.len(), &bytes[..4]), (8 + 4096, &ERROR.to_le_bytes()[..]));
    assert_eq!(ErrorMessage::decode(&payload_of(&bytes)), Ok(fault));
}
