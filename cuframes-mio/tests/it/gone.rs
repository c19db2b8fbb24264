//! A publisher that dies or stands still: its subscribers notice the one and not the other, and let go of its memory.

use std::time::{Duration, Instant};

use cuframes_mio::core::{Gone, Policy};
use cuframes_mio::{Error, EventSource, FrameLost, Subscriber, Turn, now};
use mio::{Events, Poll, Token};

use crate::common::{LONG, NEWEST, STRICT, Stream, check, maps, meta, next, until};
use crate::other::Other;

/// Takes frames until the subscription ends.
fn end(subscriber: &mut Subscriber) -> Error {
    loop {
        match subscriber.next(LONG) {
            Ok(frame) => check(&frame.expect("a frame in time")),
            Err(error) => return error,
        }
    }
}

#[test]
fn the_end_of_the_connection_tells_of_a_killed_publisher_and_nothing_stays_mapped() {
    let stream = Stream::new();
    let publisher = Other::start("processes::child_publishes", &stream);
    let mut subscriber = stream.subscriber("eye", NEWEST).connect().unwrap();
    assert_eq!(maps(&stream.key), 2, "the region and the frames");
    let mapped = subscriber.stats().mapped_bytes;
    assert!(mapped > 8 * meta().frame_size_bytes, "{mapped}");
    let (mut poll, mut events) = (Poll::new().unwrap(), Events::with_capacity(8));
    subscriber.register(poll.registry(), Token(7)).unwrap();
    check(&next(&mut subscriber));
    publisher.kill();
    // No timeout is ever handled, so that nothing but events of the descriptors can tell.
    let error = loop {
        match subscriber.poll_next() {
            Ok(Some(frame)) => check(&frame),
            Err(error) => break error,
            Ok(None) => {
                poll.poll(&mut events, Some(LONG)).unwrap();
                assert!(!events.is_empty(), "nothing told of the end");
                for event in &events {
                    while subscriber.handle_event(event.token(), now()).unwrap() == Turn::Again {}
                }
            }
        }
    };
    assert!(matches!(error, Error::Gone { gone: Gone::Disconnected, .. }), "{error}");
    assert_eq!((maps(&stream.key), subscriber.stats().mapped_bytes), (0, 0));
    let again = subscriber.next(LONG).unwrap_err();
    assert!(matches!(again, Error::Gone { gone: Gone::Disconnected, .. }), "{again}");
}

#[test]
fn only_frames_in_hand_keep_the_memory_of_a_killed_publisher() {
    let stream = Stream::new();
    let publisher = Other::start("processes::child_publishes", &stream);
    let mut subscriber = stream.subscriber("eye", STRICT).connect().unwrap();
    let [first, second] = [(); 2].map(|()| next(&mut subscriber));
    publisher.kill();
    let error = end(&mut subscriber);
    assert!(matches!(error, Error::Gone { gone: Gone::Disconnected, .. }), "{error}");
    assert_eq!(maps(&stream.key), 2);
    assert!(subscriber.stats().mapped_bytes > 0);
    [&first, &second].into_iter().for_each(check);
    assert_eq!(first.release(), Err(FrameLost::Evicted));
    drop(subscriber);
    check(&second);
    drop(second);
    assert_eq!(maps(&stream.key), 0);
}

/// By how much an age may be too long.
const TICK: Duration = Duration::from_millis(10);

#[test]
fn a_frozen_publisher_is_only_silent_and_the_age_of_its_last_frame_tells() {
    let stream = Stream::new();
    let publisher = Other::start("processes::child_publishes", &stream);
    let mut subscriber = stream.subscriber("eye", NEWEST).connect().unwrap();
    check(&next(&mut subscriber));
    publisher.stop();
    let silence = Duration::from_millis(60);
    until("silence", || subscriber.next(silence).unwrap().is_none());
    assert!(subscriber.is_attached());
    assert!(subscriber.stats().last_publish_age.unwrap() >= silence);
    let frames = subscriber.stats().frames;
    assert!(subscriber.next(silence).unwrap().is_none());
    assert_eq!(subscriber.stats().frames, frames);
    assert!(subscriber.stats().last_publish_age.unwrap() >= 2 * silence);
    publisher.go_on();
    let before = Instant::now();
    check(&next(&mut subscriber));
    assert!(subscriber.stats().last_publish_age.unwrap() <= before.elapsed() + TICK);
}

#[test]
fn the_numbers_of_a_subscriber_add_up() {
    let stream = Stream::new();
    let mut publisher = stream.publisher(4, Policy::DROP_OLDEST).create().unwrap().serve().unwrap();
    let mut subscriber = stream.subscriber("eye", NEWEST).connect().unwrap();
    assert_eq!(subscriber.stats().frames, 0);
    assert!(subscriber.stats().last_publish_age.is_some(), "since it was attached");
    let mut lost = 0;
    for published in [1, 3, 2] {
        for _ in 0..published {
            publisher.claim().unwrap().commit();
        }
        lost += next(&mut subscriber).lost();
    }
    let stats = subscriber.stats();
    assert_eq!((stats.frames, stats.lost, lost), (3, 3, 3));
    assert_eq!([stats.overwritten, stats.revoked, stats.evictions, stats.reconnects], [0; 4]);
    assert!(subscriber.next(Duration::from_millis(5)).unwrap().is_none());
    assert!(subscriber.stats().wake_ups > stats.wake_ups);
}
