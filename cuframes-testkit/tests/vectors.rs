//! The golden vectors, byte for byte: what we send, what we accept, what we refuse.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a failure ends the test")]

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use bytes::BytesMut;
use cuframes_core::error::{ErrorCode, Problem, Violation};
use cuframes_core::gpu::EventHandle;
use cuframes_core::shm::{RegionWords, StreamHeader};
use cuframes_core::wire::control::{EventFd, Ping, Pong, Shutdown};
use cuframes_core::wire::fault::ErrorMessage;
use cuframes_core::wire::framing::{Decoder, HEADER_LEN};
use cuframes_core::wire::hello::{HelloReq, HelloResp, Stream};
use cuframes_core::wire::subscribe::{InitialSeq, SubscribeReq, SubscribeResp, Subscribed, Unsubscribe};
use cuframes_core::wire::{FdPurpose, MessageType, ShutdownReason};
use cuframes_core::{
    Backend, Features, Format, FrameMeta, Ownership, Policy, RingSize, SubscriberBit, SubscriberMode,
};
use cuframes_testkit::layout::words;
use cuframes_testkit::vectors::{names, vector};

const ALL_THREE: Features = Features::FD_PASSING.union(Features::LEASE).union(Features::WAKE_HINT);

fn encoded(encode: impl FnOnce(&mut BytesMut)) -> Vec<u8> {
    let mut out = BytesMut::new();
    encode(&mut out);
    out.to_vec()
}

/// The payload of a vector, after the framing was decoded.
fn payload(name: &str, message_type: MessageType) -> Vec<u8> {
    let bytes = vector(name);
    let (mut decoder, mut input) = (Decoder::new(), bytes.as_slice());
    let message = decoder.next(&mut input).unwrap().expect("one whole message");
    assert_eq!(message.message_type, message_type, "{name}");
    assert!(input.is_empty(), "{name}: one message and nothing else");
    message.payload.to_vec()
}

/// Checks one message type in both directions.
macro_rules! both_ways {
    ($name:literal, $message_type:ident, $type:ident, $value:expr) => {{
        let value = $value;
        assert_eq!(encoded(|out| value.encode(out)), vector($name), "{}: what we send", $name);
        assert_eq!(
            $type::decode(&payload($name, MessageType::$message_type)),
            Ok(value),
            "{}: what we read",
            $name
        );
    }};
}

fn hello(name: &str, proto_version: u32, device: i32, mode: SubscriberMode, features: Features) -> HelloReq {
    HelloReq { proto_version, consumer_name: name.parse().unwrap(), cuda_device: device, mode, features }
}

fn nv12() -> FrameMeta {
    FrameMeta::new(Format::NV12, 1920, 1080).unwrap()
}

fn stream(features: Features) -> HelloResp {
    HelloResp::Ok(Stream {
        proto_version: 1,
        ring_size: RingSize::new(8).unwrap(),
        ownership: Ownership::LIBRARY,
        meta: nv12(),
        shm_path: "/dev/shm/cuframes-cam0".into(),
        features,
    })
}

fn subscribed(bit: u64, initial_seq: InitialSeq) -> SubscribeResp {
    SubscribeResp::Ok(Subscribed { bit: SubscriberBit::new(bit).unwrap(), initial_seq })
}

#[test]
fn every_message_that_we_send_is_the_golden_one_and_reads_back() {
    let (newest, strict) = (SubscriberMode::NEWEST_ONLY, SubscriberMode::STRICT_ORDER);
    both_ways!("hello_req_nv", HELLO_REQ, HelloReq, hello("detector", 1, 0, newest, Features::NONE));
    both_ways!("hello_req_features", HELLO_REQ, HelloReq, hello("rec", 1, 2, strict, ALL_THREE));
    both_ways!("hello_req_v2", HELLO_REQ, HelloReq, hello("x", 2, -1, newest, Features::NONE));
    both_ways!("hello_resp_ok", HELLO_RESP, HelloResp, stream(Features::NONE));
    both_ways!("hello_resp_features", HELLO_RESP, HelloResp, stream(ALL_THREE));
    both_ways!("hello_resp_refused", HELLO_RESP, HelloResp, HelloResp::Refused(ErrorCode::PROTOCOL));
    both_ways!("subscribe_req", SUBSCRIBE_REQ, SubscribeReq, SubscribeReq { proto_version: 1 });
    both_ways!("subscribe_resp", SUBSCRIBE_RESP, SubscribeResp, subscribed(1, InitialSeq::Full(41)));
    both_ways!(
        "subscribe_resp_full",
        SUBSCRIBE_RESP,
        SubscribeResp,
        SubscribeResp::Refused(ErrorCode::TOO_MANY)
    );
    both_ways!("event_fd_wake", EVENT_FD, EventFd, EventFd::single(FdPurpose::WAKE_UP));
    both_ways!("event_fd_pool", EVENT_FD, EventFd, EventFd::single(FdPurpose::HOST_POOL));
    both_ways!("shutdown_normal", SHUTDOWN, Shutdown, Shutdown { reason: ShutdownReason::NORMAL });
    let error = ErrorMessage { code: ErrorCode::PROTOCOL, message: "length 4097".into() };
    both_ways!("error_protocol", ERROR, ErrorMessage, error);
    assert_eq!(encoded(|out| Unsubscribe.encode(out)), vector("unsubscribe"));
    assert_eq!(encoded(|out| Ping.encode(out)), vector("ping"));
    assert_eq!(encoded(|out| Pong::answer(&[]).encode(out)), vector("pong"));
}

#[test]
fn a_four_byte_initial_seq_is_accepted() {
    let payload = payload("subscribe_resp_u32", MessageType::SUBSCRIBE_RESP);
    assert_eq!(payload.len(), 24);
    assert_eq!(SubscribeResp::decode(&payload), Ok(subscribed(31, InitialSeq::Low(41))));
}

#[test]
fn an_oversize_message_is_refused_from_its_eight_header_bytes() {
    let bytes = vector("oversize");
    assert_eq!(bytes.len(), HEADER_LEN);
    let problem = Problem::TooLong { len: 4097, max: 4096 };
    let expected = Violation::new(MessageType::HELLO_REQ, "payload_length", problem);
    assert_eq!(Decoder::new().next(&mut bytes.as_slice()), Err(expected));
}

#[test]
fn an_empty_region_is_the_golden_one_and_reads_back() {
    let header = StreamHeader {
        lib_version: [0, 1, 0],
        producer_pid: 0x1234,
        ring_size: RingSize::new(8).unwrap(),
        ownership: Ownership::LIBRARY,
        policy: Policy::DROP_OLDEST,
        meta: nv12(),
        ipc_event_handle: EventHandle::NONE,
        features: Features::NONE,
        backend: Backend::CUDA_IPC,
        epoch: 0,
    };
    let region = RegionWords::<AtomicU64>::zeroed();
    header.write(&region);
    let bytes: Vec<u8> =
        words(&region).iter().flat_map(|(_, word)| word.load(Relaxed).to_le_bytes()).collect();
    assert_eq!(bytes, vector("region_empty"));
    assert_eq!(StreamHeader::read(&region), Ok(header));
}

#[test]
fn every_vector_is_looked_at() {
    let this = include_str!("vectors.rs");
    for name in names() {
        assert!(this.contains(&format!("{name:?}")), "{name} is not tested");
    }
}
