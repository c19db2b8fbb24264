//! It makes no difference in which pieces the bytes of a connection travel, nor how much a socket takes at once: sessions say
//! and tell the same, and each descriptor finds its message (D-22).

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a failure ends the test")]

use std::fmt::Debug;
use std::iter;

use cuframes_core::Instant;
use cuframes_core::session::{Session, SubscriberEvent};
use cuframes_core::wire::FdPurpose;
use cuframes_core::wire::ShutdownReason;
use cuframes_core::wire::control::EventFd;
use cuframes_testkit::conformance::session::bytes::resized;
use cuframes_testkit::pair::{Pair, hello, offer};
use cuframes_testkit::solo::{
    FEATURES, PUBLISHER_STATES, SUBSCRIBER_STATES, State, publisher_in, sent, subscriber_in,
};
use cuframes_testkit::strategies::{config, maybe_malformed};
use cuframes_testkit::vectors::vector;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::{Index, select};

/// A message and the descriptors that come with its first byte.
type Piece = (Vec<u8>, usize);

/// Messages towards a session: those of a handshake, and any others. Only the last may lie about its length: behind it a
/// descriptor would come with bytes that are no message, and when that is noticed depends on the reads.
fn messages(of_a_handshake: &'static [&'static str]) -> impl Strategy<Value = Vec<Piece>> {
    let known = select(of_a_handshake).prop_map(vector);
    let other = maybe_malformed().prop_map(|message| resized(&message, message.len() - 8));
    let with_fd = |message: Vec<u8>| {
        let fds = usize::from(message.starts_with(&[0x20, 0, 0, 0]));
        (message, fds)
    };
    let last = maybe_malformed().prop_map(|message| (message, 0));
    (vec(prop_oneof![3 => known, 1 => other].prop_map(with_fd), 0..8), option::of(last))
        .prop_map(|(messages, last)| messages.into_iter().chain(last).collect())
}

const TO_PUBLISHER: [&str; 4] = ["hello_req_features", "subscribe_req", "ping", "unsubscribe"];
const TO_SUBSCRIBER: [&str; 6] =
    ["hello_resp_features", "subscribe_resp", "event_fd_wake", "event_fd_pool", "shutdown_normal", "ping"];

/// What a session sends and tells when these messages come in reads that end at these places.
fn outcome<S: Session<Fd = u32>>(
    mut session: S,
    messages: &[Piece],
    ends: &[usize],
) -> (Vec<u8>, Vec<S::Event>) {
    let stream: Vec<u8> = messages.iter().flat_map(|(bytes, _)| bytes.clone()).collect();
    // Where each descriptor is, and which.
    let mut fds: Vec<(usize, u32)> = Vec::new();
    let mut at = 0;
    for (bytes, count) in messages {
        fds.extend(iter::repeat_n(at, *count).zip(u32::try_from(fds.len()).unwrap()..));
        at += bytes.len();
    }
    let mut from = 0;
    for to in ends.iter().copied().chain([stream.len()]).filter(|end| *end <= stream.len()) {
        if to > from {
            let with_these = |(at, _): &&(usize, u32)| (from..to).contains(at);
            let mut given = fds.iter().filter(with_these).map(|(_, fd)| *fd).collect();
            session.handle_bytes(Instant::ZERO, &stream[from..to], &mut given);
            from = to;
        }
    }
    (sent(&mut session).0, iter::from_fn(|| session.poll_event()).collect())
}

/// Compares reads that end at these places with one read.
fn check<S: Session<Fd = u32, Event: Debug + PartialEq>>(
    new: impl Fn() -> S,
    messages: &[Piece],
    cuts: &[Index],
) -> Result<(), TestCaseError> {
    let len: usize = messages.iter().map(|(bytes, _)| bytes.len()).sum();
    let mut ends: Vec<usize> = cuts.iter().map(|cut| cut.index(len + 1)).collect();
    ends.sort_unstable();
    let whole = outcome(new(), messages, &[]);
    prop_assert_eq!(outcome(new(), messages, &ends), whole, "reads that end at {:?}", ends);
    Ok(())
}

fn names<S>(states: [State<S>; 5]) -> Vec<&'static str> {
    states.iter().map(|(name, _)| *name).collect()
}

proptest! {
    #![proptest_config(config(1024))]

    #[test]
    fn a_publisher_does_the_same_whatever_the_pieces(
        state in select(names(PUBLISHER_STATES)),
        messages in messages(&TO_PUBLISHER),
        cuts in vec(any::<Index>(), 0..20),
    ) {
        // A publisher refuses a descriptor as soon as it comes, and when that is depends on the pieces.
        let messages: Vec<Piece> = messages.into_iter().map(|(bytes, _)| (bytes, 0)).collect();
        check(|| publisher_in(state), &messages, &cuts)?;
    }

    #[test]
    fn a_subscriber_does_the_same_whatever_the_pieces(
        state in select(names(SUBSCRIBER_STATES)),
        messages in messages(&TO_SUBSCRIBER),
        cuts in vec(any::<Index>(), 0..20),
    ) {
        check(|| subscriber_in(state), &messages, &cuts)?;
    }
}

/// A whole connection through sockets that take and give so much at once: all that the subscriber is told.
fn story(capacity: usize, read_size: usize) -> Vec<SubscriberEvent<u32>> {
    let mut pair = Pair::new(offer(FEATURES), hello(FEATURES));
    for inbox in [&mut pair.publisher.inbox, &mut pair.subscriber.inbox] {
        (inbox.capacity, inbox.read_size) = (capacity, read_size);
    }
    pair.admit();
    let purposes =
        [FdPurpose::REGION, FdPurpose::HOST_POOL, FdPurpose::PUBLISHER_WAKE_UP, FdPurpose::WAKE_UP];
    for (purpose, fd) in purposes.into_iter().zip(10..) {
        pair.publisher.session.offer_fd(EventFd::single(purpose), fd).unwrap();
    }
    pair.settle();
    pair.subscriber.session.attached(pair.now).unwrap();
    pair.publisher.session.shutdown(pair.now, ShutdownReason::UPGRADE);
    pair.subscriber.session.ping(pair.now);
    pair.settle();
    pair.subscriber.session.unsubscribe(pair.now);
    pair.settle();
    assert!(pair.publisher.session.is_closed() && pair.subscriber.session.is_closed());
    assert_eq!(pair.publisher.take_events().len(), 1);
    pair.subscriber.take_events()
}

/// More than the longest side of the story says at once.
const ALL: usize = 400;

#[test]
fn writes_and_reads_of_every_size_carry_the_same_story() {
    let whole = story(usize::MAX, usize::MAX);
    assert_eq!(whole.len(), 9, "the stream, the bit, four descriptors, SHUTDOWN, the PONG and the end");
    for size in 1..=ALL {
        assert_eq!(story(size, usize::MAX), whole, "writes of {size} bytes");
        assert_eq!(story(usize::MAX, size), whole, "reads of {size} bytes");
        assert_eq!(story(size, size), whole, "both of {size} bytes");
        assert_eq!(story(size, 1 + ALL % size), whole, "writes of {size} bytes, reads of {}", 1 + ALL % size);
    }
}
