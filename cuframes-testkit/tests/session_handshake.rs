//! The handshake between our two sessions (§4.1, §4.2), and what the drivers hear of it. What a foreign peer hears is in the
//! conformance suites.

use cuframes_core::error::{ErrorCode, Problem, Violation};
use cuframes_core::session::{
    Closed, PublisherEvent, PublisherOffer, PublisherSession, Session, SubscribeRequest, SubscriberEvent,
};
use cuframes_core::wire::control::EventFd;
use cuframes_core::wire::hello::{HelloReq, Stream};
use cuframes_core::wire::subscribe::InitialSeq;
use cuframes_core::wire::{FdPurpose, MessageType};
use cuframes_core::{Features, Gone, Instant, Misuse, Refused, SubscriberMode};
use cuframes_testkit::conformance::session::bytes::{Hello, subscribe_req};
use cuframes_testkit::pair::{Pair, hello, offer, subscribed};
use cuframes_testkit::solo::{FEATURES, encoded, events, feed, publisher_in, sent, subscriber_in};
use cuframes_testkit::vectors::vector;

fn stream(features: Features) -> Stream {
    let PublisherOffer { ring_size, ownership, meta, shm_path, .. } = offer(features);
    Stream { proto_version: 1, ring_size, ownership, meta, shm_path, features }
}

fn request(features: Features) -> SubscribeRequest {
    let name = hello(features).name;
    SubscribeRequest { name, cuda_device: 0, mode: SubscriberMode::NEWEST_ONLY, features }
}

fn mismatch(message_type: MessageType, field: &'static str) -> Closed {
    Closed::Violation(Violation::new(message_type, field, Problem::Mismatch { found: 2, expected: 1 }))
}

fn refused(code: ErrorCode, message: &str) -> Closed {
    Closed::Refused(Refused { code, message: message.into() })
}

#[test]
fn a_subscriber_gets_the_stream_then_its_bit_then_the_descriptors() {
    let mut pair = Pair::new(offer(FEATURES), hello(FEATURES));
    assert_eq!(pair.admit(), request(FEATURES));
    let purposes =
        [FdPurpose::REGION, FdPurpose::HOST_POOL, FdPurpose::PUBLISHER_WAKE_UP, FdPurpose::WAKE_UP];
    for (purpose, fd) in purposes.into_iter().zip(10..) {
        pair.publisher.session.offer_fd(EventFd::single(purpose), fd).unwrap();
    }
    pair.settle();
    let fd = |purpose, count, fd| SubscriberEvent::Fd { purpose, index: 0, count, fd };
    let expected = [
        SubscriberEvent::Stream(stream(FEATURES)),
        SubscriberEvent::Subscribed(subscribed()),
        fd(FdPurpose::REGION, 1, 10),
        fd(FdPurpose::HOST_POOL, 1, 11),
        fd(FdPurpose::PUBLISHER_WAKE_UP, 0, 12),
        fd(FdPurpose::WAKE_UP, 0, 13),
    ];
    assert_eq!(pair.subscriber.take_events(), expected);
    pair.subscriber.session.attached(pair.now).unwrap();
    pair.drive();
    assert_eq!((pair.now, pair.next_deadline()), (Instant::ZERO, None), "nobody waits for anything");
    assert_eq!((pair.publisher.take_events(), pair.subscriber.take_events()), (vec![], vec![]));
}

#[test]
fn what_only_one_side_knows_is_not_in_force() {
    let leased = FEATURES.union(Features::CUDA_VMM);
    let mut pair = Pair::new(offer(leased), hello(Features::LEASE.union(Features::MEM_OFFSET)));
    assert_eq!(pair.admit().features, Features::LEASE);
    assert_eq!(pair.subscriber.take_events()[0], SubscriberEvent::Stream(stream(Features::LEASE)));
}

#[test]
fn between_plain_v1_peers_every_byte_is_that_of_plain_v1() {
    for (offered, asked) in [(Features::NONE, FEATURES), (FEATURES, Features::NONE)] {
        let mut publisher = PublisherSession::new(Instant::ZERO, offer(offered).into());
        let asked = HelloReq {
            proto_version: 1,
            consumer_name: hello(asked).name,
            cuda_device: 0,
            mode: SubscriberMode::NEWEST_ONLY,
            features: asked,
        };
        feed(&mut publisher, &encoded(|out| asked.encode(out)), &[]);
        assert_eq!(sent(&mut publisher), (vector("hello_resp_ok"), vec![]));
        feed(&mut publisher, &vector("subscribe_req"), &[]);
        assert_eq!(events(&mut publisher), [PublisherEvent::Subscribe(request(Features::NONE))]);
        publisher.admit(Instant::ZERO, Ok(subscribed())).unwrap();
        publisher.offer_fd(EventFd::single(FdPurpose::WAKE_UP), 7).unwrap();
        let expected = [vector("subscribe_resp"), vector("event_fd_wake")].concat();
        assert_eq!(sent(&mut publisher), (expected, vec![7]));
    }
    let mut subscriber = Pair::new(offer(FEATURES), hello(Features::NONE)).subscriber.session;
    assert_eq!(sent(&mut subscriber), (vector("hello_req_nv"), vec![]));
    feed(&mut subscriber, &vector("hello_resp_ok"), &[]);
    assert_eq!(sent(&mut subscriber), (vector("subscribe_req"), vec![]));
}

#[test]
fn a_publisher_may_offer_each_descriptor_once_and_only_if_its_features_are_in_force() {
    let argument = |result: Result<(), Misuse>| matches!(result, Err(Misuse::Argument { .. }));
    let mut pair = Pair::ready(Features::NONE);
    for purpose in [FdPurpose::REGION, FdPurpose::HOST_POOL, FdPurpose::PUBLISHER_WAKE_UP, FdPurpose(9)] {
        let offered = pair.publisher.session.offer_fd(EventFd::single(purpose), 1);
        assert!(argument(offered), "{purpose}");
    }
    let wake_up = EventFd::single(FdPurpose::WAKE_UP);
    assert_eq!(pair.publisher.session.offer_fd(wake_up, 1), Ok(()));
    assert!(argument(pair.publisher.session.offer_fd(wake_up, 2)));
}

#[test]
fn an_initial_seq_of_four_bytes_reaches_the_driver_as_such() {
    let mut subscriber = subscriber_in("Subscribe");
    feed(&mut subscriber, &vector("subscribe_resp_u32"), &[]);
    let [SubscriberEvent::Subscribed(subscribed)] = events(&mut subscriber)[..] else { panic!("no bit") };
    assert_eq!((subscribed.bit.get(), subscribed.initial_seq), (31, InitialSeq::Low(41)));
}

#[test]
fn a_subscriber_that_cant_use_the_format_says_so_and_both_close() {
    let mut pair = Pair::new(offer(FEATURES), hello(FEATURES));
    pair.settle();
    pair.subscriber.session.reject(pair.now, ErrorCode::FORMAT, "nv12 is not for me");
    pair.settle();
    let told = refused(ErrorCode::FORMAT, "nv12 is not for me");
    assert_eq!(pair.publisher.take_events().last(), Some(&PublisherEvent::Closed(told)));
    let reason = Closed::Rejected(ErrorCode::FORMAT);
    assert_eq!(pair.subscriber.take_events().last(), Some(&SubscriberEvent::Closed(reason)));
    assert!(pair.publisher.session.is_closed() && pair.subscriber.session.is_closed());
}

#[test]
fn a_peer_that_may_not_connect_is_told_before_it_says_anything() {
    let mut pair = Pair::new(offer(FEATURES), hello(FEATURES));
    pair.publisher.session.expel(pair.now, ErrorCode::PERMISSION, "not you");
    pair.drive();
    assert_eq!(
        pair.publisher.take_events(),
        [PublisherEvent::Closed(Closed::Rejected(ErrorCode::PERMISSION))]
    );
    let told = refused(ErrorCode::PERMISSION, "not you");
    assert_eq!(pair.subscriber.take_events(), [SubscriberEvent::Closed(told)]);
}

#[test]
fn a_publishers_driver_hears_why_a_peer_was_not_taken_in() {
    let needed = PublisherOffer { required: Features::FD_PASSING, ..offer(FEATURES) };
    let mut without = PublisherSession::new(Instant::ZERO, needed.into());
    feed(&mut without, &Hello::rec(Features::LEASE.0).message(), &[]);
    let mut of_another_version = publisher_in("Hello");
    feed(&mut of_another_version, &vector("hello_req_v2"), &[]);
    let mut changed = publisher_in("Subscribe");
    feed(&mut changed, &subscribe_req(2), &[]);
    let mut without_place = publisher_in("Admitting");
    without_place.admit(Instant::ZERO, Err(ErrorCode::TOO_MANY)).unwrap();
    let mut gone = publisher_in("Subscribe");
    gone.handle_eof(Instant::ZERO);
    let cases = [
        (without, Closed::Rejected(ErrorCode::UNSUPPORTED)),
        (of_another_version, mismatch(MessageType::HELLO_REQ, "proto_version")),
        (changed, mismatch(MessageType::SUBSCRIBE_REQ, "proto_version")),
        (without_place, Closed::Rejected(ErrorCode::TOO_MANY)),
        (gone, Closed::Gone(Gone::Disconnected)),
    ];
    for (mut publisher, reason) in cases {
        assert_eq!(events(&mut publisher), [PublisherEvent::Closed(reason)]);
    }
}
