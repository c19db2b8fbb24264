//! Claims that give up, and what a publisher counts.

use std::time::{Duration, Instant};

use crate::common::{LONG, NEWEST, STRICT, Stream, meta, publish};
use cuframes_mio::core::error::ErrorCode;
use cuframes_mio::core::{Policy, Timeouts};
use cuframes_mio::{Claim, Error, Leave, MemberEvent, PublisherStats};

#[test]
fn a_claim_with_a_timeout_gives_up_and_names_who_was_in_the_way() {
    let stream = Stream::new();
    let mut publisher = stream.publisher(1, Policy::DROP_OLDEST).create().unwrap().serve().unwrap();
    let mut subscriber = stream.subscriber("holder", NEWEST).connect().unwrap();
    assert_eq!(publisher.claim_timeout(Duration::ZERO).unwrap().commit(), 1);
    let frame = subscriber.next(LONG).unwrap().unwrap();
    let (start, timeout) = (Instant::now(), Duration::from_millis(30));
    let error = publisher.claim_timeout(timeout).unwrap_err();
    assert!(start.elapsed() >= timeout);
    assert_eq!(error.code(), ErrorCode::TIMEOUT);
    let expected = format!(
        "stream {}: no slot became free within 30ms: the ring is full: lease held by subscriber 1; \
         1 is holder (pid {}); drop the frame, wait longer, or use a larger ring",
        stream.key,
        std::process::id()
    );
    assert_eq!(error.to_string(), expected);
    drop(frame);
    assert_eq!(publisher.claim_timeout(LONG).unwrap().commit(), 2);
    assert_eq!(publisher.stats().lease_stalls, 1);
}

#[test]
fn whoever_is_in_the_way_of_claims_that_give_up_is_evicted_all_the_same() {
    let stream = Stream::new();
    let mut timeouts = Timeouts::default();
    timeouts.consumer_ack = Duration::from_millis(150);
    let builder = stream.publisher(1, Policy::STRICT_WAIT).timeouts(timeouts);
    let mut publisher = builder.create().unwrap().serve().unwrap();
    let _asleep = stream.subscriber("asleep", STRICT).connect().unwrap();
    publish(&mut publisher);
    let mut given_up = 0;
    while let Err(error) = publisher.claim_timeout(Duration::from_millis(10)).map(Claim::commit) {
        assert!(matches!(error, Error::Stalled { .. }), "{error}");
        given_up += 1;
    }
    assert!(given_up > 1);
    let stats = publisher.stats();
    assert_eq!((stats.frames, stats.ack_stalls, stats.left.evicted_for_ack), (2, 1, 1));
}

#[test]
fn a_publisher_counts_what_happens() {
    let stream = Stream::new();
    let mut publisher = stream.publisher(4, Policy::DROP_OLDEST).create().unwrap();
    let before: PublisherStats = publisher.stats();
    assert_eq!((before.frames, before.last_publish_age, before.subscribers), (0, None, 0));
    // 4 slots of whole pages, and two regions.
    assert_eq!(before.mapped_bytes, meta().frame_size_bytes * 4 + 2 * 7424);
    publisher.try_claim(cuframes_mio::now()).unwrap().commit();
    let mut publisher = publisher.serve().unwrap();
    let mut subscriber = stream.subscriber("eye", NEWEST).connect().unwrap();
    let error = stream.publisher(4, Policy::DROP_OLDEST).create().unwrap_err();
    assert_eq!(error.code(), ErrorCode::ALREADY_EXISTS);
    let reader = std::thread::spawn(move || {
        while subscriber.next(LONG).unwrap().expect("a frame in time").seq() < 10 {}
        subscriber
    });
    while publisher.stats().frames < 10 {
        std::thread::sleep(Duration::from_millis(5));
        publish(&mut publisher);
    }
    let subscriber = reader.join().unwrap();
    let stats = publisher.stats();
    assert!((1..=9).contains(&stats.wake_ups), "{} of 9 frames met a sleeping subscriber", stats.wake_ups);
    assert!(stats.last_publish_age.is_some());
    assert_eq!((stats.skipped, stats.subscribers, stats.joined), (0, 1, 1));
    drop(subscriber);
    crate::common::until("the subscriber to be gone", || publisher.stats().subscribers == 0);
    let stats = publisher.stats();
    assert_eq!((stats.left.unsubscribed, stats.left.vanished), (1, 0));
    let left = std::iter::from_fn(|| publisher.poll_event()).last();
    assert!(matches!(left, Some(MemberEvent::Left(_, Leave::Unsubscribed))), "{left:?}");
}
