//! A subscriber that goes on with the next publisher (D-24): what it gets, what it is told, and when it gives up.

use std::thread;
use std::time::Duration;

use cuframes_mio::core::error::ErrorCode;
use cuframes_mio::core::wire::ShutdownReason;
use cuframes_mio::core::{Features, Format, FrameMeta, Gone, Policy, Timeouts};
use cuframes_mio::{Error, EventSource, Frame, FrameLost, Publisher, StreamEvent, Subscriber};

use crate::common::{LONG, NEWEST, STRICT, Stream, check, events, maps, next, publish, until};
use crate::other::Other;

/// The first frame that is of another publisher than `last`.
fn next_after(subscriber: &mut Subscriber, last: Option<u64>) -> Frame {
    loop {
        let frame = next(subscriber);
        check(&frame);
        if Some(frame.epoch()) != last {
            return frame;
        }
    }
}

#[test]
fn it_goes_on_with_twenty_publishers_that_are_killed_one_after_the_other() {
    let stream = Stream::new();
    let mut subscriber = stream.reconnecting(STRICT).start().unwrap();
    assert!(!subscriber.is_ready() && subscriber.meta().is_none());
    let mut publishers: Vec<(u64, u32)> = Vec::new();
    for _ in 0..20 {
        let publisher = Other::start("processes::child_publishes", &stream);
        let frame = next_after(&mut subscriber, publishers.last().map(|(epoch, _)| *epoch));
        assert_eq!(frame.lost(), 0, "frames of another publisher are no gap");
        assert_eq!(maps(&stream.key), 2, "nothing of the one before");
        publishers.push((frame.epoch(), publisher.pid()));
        publisher.kill();
        // The second one is there before the loss of the first is noticed.
        until("the loss", || {
            publishers.len() == 1
                || subscriber.next(Duration::from_millis(1)).unwrap().is_none() && !subscriber.is_attached()
        });
    }
    until("an attempt", || {
        subscriber.next(Duration::from_millis(1)).unwrap().is_none() && subscriber.trouble().is_some()
    });
    assert_eq!((subscriber.stats().reconnects, subscriber.stats().mapped_bytes), (19, 0));
    assert_eq!(maps(&stream.key), 0);
    assert_eq!(subscriber.trouble().unwrap().code(), ErrorCode::NOT_FOUND);
    let mut attached = Vec::new();
    for (number, event) in events(&mut subscriber).into_iter().enumerate() {
        match event {
            StreamEvent::Attached { epoch, publisher, format_changed: false, .. } if number % 2 == 0 => {
                attached.push((epoch, publisher.unwrap()));
            }
            StreamEvent::Lost(Error::Gone { gone: Gone::Disconnected, .. }) if number % 2 == 1 => {}
            other => panic!("event {number}: {other:?}"),
        }
    }
    assert_eq!(attached, publishers);
}

#[test]
fn an_upgrade_hands_out_what_is_left_and_then_what_the_next_one_has_in_its_own_format() {
    let stream = Stream::new();
    let mut timeouts = Timeouts::default();
    timeouts.shutdown_grace = Duration::from_millis(100);
    let builder = stream.publisher(4, Policy::STRICT_WAIT).timeouts(timeouts);
    let mut old = builder.create().unwrap().serve().unwrap();
    let mut subscriber = stream.reconnecting(STRICT).connect().unwrap();
    for _ in 0..3 {
        publish(&mut old);
    }
    let held = next(&mut subscriber);
    let stopping = thread::spawn(move || old.shut_down(ShutdownReason::UPGRADE));
    for seq in [2, 3] {
        let frame = next(&mut subscriber);
        check(&frame);
        assert_eq!((frame.seq(), frame.epoch(), frame.lost()), (seq, held.epoch(), 0));
    }
    until("the end of the old one", || {
        assert!(subscriber.next(Duration::from_millis(1)).unwrap().is_none());
        !subscriber.is_attached()
    });
    stopping.join().unwrap().unwrap();

    let meta = FrameMeta::new(Format::RGB24, 64, 48).unwrap();
    let builder = Publisher::builder(stream.key.clone(), meta).run_dir(stream.dir.path());
    let mut new = builder.create().unwrap().serve().unwrap();
    publish(&mut new);
    let frame = next(&mut subscriber);
    assert_eq!((frame.seq(), frame.lost(), *frame.meta()), (1, 0, meta));
    assert_eq!(frame.len(), 64 * 48 * 4, "rows of 192 bytes, pitched to 256");
    assert_ne!(frame.epoch(), held.epoch());
    assert_eq!(subscriber.meta(), Some(&meta));
    // The old one is as it was.
    check(&held);
    assert_eq!((held.seq(), *held.meta()), (1, crate::common::meta()));
    let _ = held.release();
    frame.release().unwrap();

    let [first, lost, second] = events(&mut subscriber).try_into().unwrap();
    assert!(matches!(first, StreamEvent::Attached { format_changed: false, .. }), "{first:?}");
    let StreamEvent::Lost(Error::Gone { gone, .. }) = lost else { panic!("{lost:?}") };
    assert_eq!(gone, Gone::Shutdown(ShutdownReason::UPGRADE));
    let StreamEvent::Attached { epoch, publisher, meta: told, format_changed, .. } = second else {
        panic!("{second:?}")
    };
    assert_eq!((publisher, told, format_changed), (Some(std::process::id()), meta, true));
    assert_eq!(subscriber.header().unwrap().epoch, epoch);
    drop(subscriber);
}

#[test]
fn it_may_be_there_before_its_publisher() {
    let stream = Stream::new();
    let error = stream.reconnecting(NEWEST).timeout(Duration::from_millis(30)).connect().unwrap_err();
    assert_eq!(error.code(), ErrorCode::NOT_FOUND);
    assert!(error.to_string().contains(&stream.dir.path().display().to_string()), "{error}");

    let mut early = stream.reconnecting(NEWEST).start().unwrap();
    let builder = stream.reconnecting(NEWEST).timeout(LONG);
    let waiting = thread::spawn(move || builder.connect().unwrap());
    assert!(early.next(Duration::from_millis(30)).unwrap().is_none());
    assert_eq!(early.trouble().unwrap().code(), ErrorCode::NOT_FOUND);
    let mut publisher = stream.publisher(2, Policy::DROP_OLDEST).create().unwrap().serve().unwrap();
    let mut waited = waiting.join().unwrap();
    publish(&mut publisher);
    check(&next(&mut waited));
    check(&next(&mut early));
    assert!(early.trouble().is_none() && early.is_attached());
    assert_eq!(early.stats().reconnects, 0, "the first time is none");
    drop((early, waited));
}

#[test]
fn waiting_for_nobody_takes_a_few_looks() {
    let stream = Stream::new();
    let mut subscriber = stream.reconnecting(NEWEST).start().unwrap();
    assert!(subscriber.next(Duration::from_millis(600)).unwrap().is_none());
    // After 1, 2, 4, ... 256 ms.
    let wake_ups = subscriber.stats().wake_ups;
    assert!((5..30).contains(&wake_ups), "{wake_ups}");
}

#[test]
fn who_is_evicted_comes_back_and_takes_no_frame_twice() {
    let stream = Stream::new();
    let mut timeouts = Timeouts::default();
    timeouts.lease = Duration::from_millis(50);
    let builder = stream.publisher(2, Policy::DROP_OLDEST).timeouts(timeouts);
    let mut publisher = builder.create().unwrap().serve().unwrap();
    let mut subscriber = stream.reconnecting(STRICT).connect().unwrap();
    for _ in 0..2 {
        publish(&mut publisher);
    }
    let frames = [(); 2].map(|()| next(&mut subscriber));
    let epoch = frames[0].epoch();
    // Nothing is published instead: frame 2 stays the newest.
    until("the eviction", || publisher.try_claim().is_ok());
    for frame in frames {
        assert_eq!(frame.release(), Err(FrameLost::Evicted));
    }
    until("the return", || {
        assert!(subscriber.next(Duration::from_millis(10)).unwrap().is_none(), "frame 2 again");
        subscriber.stats().reconnects == 1
    });
    assert_eq!(publish(&mut publisher), 3);
    let frame = next(&mut subscriber);
    assert_eq!((frame.seq(), frame.lost(), frame.epoch()), (3, 0, epoch));
    let stats = subscriber.stats();
    assert_eq!((stats.evictions, stats.revoked, stats.frames, stats.lost), (1, 2, 3, 0));

    // And this time something is published before it is back.
    publish(&mut publisher);
    let another = next(&mut subscriber);
    assert_eq!(another.seq(), 4);
    let [_, last] = [(); 2].map(|()| publish(&mut publisher));
    drop((frame, another));
    let frame = next(&mut subscriber);
    assert_eq!((frame.seq(), frame.lost()), (last, last - 5), "4 was the last one before");
    assert_eq!(subscriber.stats().lost, last - 5);

    let lost: Vec<_> = events(&mut subscriber)
        .into_iter()
        .filter_map(|event| if let StreamEvent::Lost(error) = event { Some(error.code()) } else { None })
        .collect();
    assert_eq!(lost, [ErrorCode::EVICTED; 2]);
}

#[test]
fn who_is_evicted_before_its_first_frame_misses_none_for_the_numbers_of_an_earlier_publisher() {
    let stream = Stream::new();
    let mut old = stream.publisher(2, Policy::DROP_OLDEST).create().unwrap().serve().unwrap();
    let mut subscriber = stream.reconnecting(STRICT).connect().unwrap();
    for seq in 1..=5 {
        publish(&mut old);
        assert_eq!(next(&mut subscriber).seq(), seq);
    }
    let first = subscriber.header().unwrap().epoch;
    let stopping = thread::spawn(move || drop(old));
    until("the end of the first one", || {
        assert!(subscriber.next(Duration::from_millis(1)).unwrap().is_none());
        !subscriber.is_attached()
    });
    stopping.join().unwrap();

    let mut timeouts = Timeouts::default();
    timeouts.consumer_ack = Duration::from_millis(50);
    let builder = stream.publisher(1, Policy::STRICT_WAIT).timeouts(timeouts);
    let mut new = builder.create().unwrap().serve().unwrap();
    until("the second one", || {
        assert!(subscriber.next(Duration::from_millis(1)).unwrap().is_none());
        subscriber.is_attached()
    });
    let second = subscriber.header().unwrap().epoch;
    assert_ne!(first, second);
    // It takes none of these, and is sent away for it.
    assert_eq!([(); 2].map(|()| publish(&mut new)), [1, 2]);
    until("the return", || {
        let frame = subscriber.next(Duration::from_millis(10)).unwrap();
        assert!(frame.is_none_or(|frame| frame.seq() == 2));
        subscriber.stats().reconnects == 2
    });
    assert_eq!(publish(&mut new), 3);
    let mut frame = next(&mut subscriber);
    if frame.seq() == 2 {
        drop(frame);
        frame = next(&mut subscriber);
    }
    check(&frame);
    assert_eq!((frame.seq(), frame.epoch()), (3, second));
    assert_eq!(subscriber.stats().evictions, 1);
}

#[test]
fn who_finds_no_place_waits_for_one() {
    let stream = Stream::new();
    let mut publisher = stream.publisher(2, Policy::DROP_OLDEST).create().unwrap().serve().unwrap();
    let mut others: Vec<_> =
        (0..31).map(|_| stream.subscriber("one of many", NEWEST).connect().unwrap()).collect();
    let mut subscriber = stream.reconnecting(NEWEST).start().unwrap();
    assert!(subscriber.next(Duration::from_millis(200)).unwrap().is_none());
    assert_eq!(subscriber.trouble().unwrap().code(), ErrorCode::TOO_MANY);
    let wake_ups = subscriber.stats().wake_ups;
    assert!(wake_ups < 100, "{wake_ups}");
    assert!(events(&mut subscriber).is_empty(), "nothing is lost that was not there");
    others.pop();
    until("a place", || {
        assert!(subscriber.next(Duration::from_millis(1)).unwrap().is_none());
        subscriber.is_attached()
    });
    publish(&mut publisher);
    check(&next(&mut subscriber));
}

#[test]
fn where_waiting_does_not_help_it_ends_with_the_reason() {
    let stream = Stream::new();
    let builder = stream.reconnecting(NEWEST).features(Features::NONE);
    let mut subscriber = builder.clone().start().unwrap();
    assert!(subscriber.next(Duration::from_millis(20)).unwrap().is_none());
    let _publisher = stream.publisher(2, Policy::DROP_OLDEST).create().unwrap().serve().unwrap();
    let error = subscriber.next(LONG).unwrap_err();
    assert_eq!(error.code(), ErrorCode::UNSUPPORTED, "{error}");
    assert_eq!(subscriber.next(LONG).unwrap_err().code(), ErrorCode::UNSUPPORTED);
    assert!(subscriber.poll_timeout().is_none() && subscriber.trouble().is_none());
    assert_eq!(builder.connect().unwrap_err().code(), ErrorCode::UNSUPPORTED);
    let dir = stream.dir.path().join("x".repeat(100));
    std::fs::create_dir(&dir).unwrap();
    let error = stream.reconnecting(NEWEST).run_dir(dir).start().unwrap_err();
    assert!(matches!(error, Error::PathTooLong { .. }), "{error}");
}

#[test]
fn without_being_told_to_go_on_it_does_not() {
    let stream = Stream::new();
    let publisher = Other::start("processes::child_publishes", &stream);
    let mut subscriber = stream.subscriber("faithful", NEWEST).connect().unwrap();
    publisher.kill();
    let error = loop {
        match subscriber.next(LONG) {
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert!(matches!(error, Error::Gone { .. }), "{error}");
    let _next = Other::start("processes::child_publishes", &stream);
    assert!(subscriber.next(LONG).is_err());
    assert_eq!(subscriber.stats().reconnects, 0);
    let [StreamEvent::Attached { .. }] = events(&mut subscriber)[..] else { panic!("the end is an error") };
}
