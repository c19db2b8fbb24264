//! Links and streams that lose nothing: who is slow holds up everybody before it, and what was lost on the way comes again.

use std::thread;

use crate::bridge::{
    anywhere, assert_gone, drive, far, far_builder, far_subscriber, first_frame, look, numbers, offer,
    publisher, received, receiver, sent, strict_sender,
};
use crate::common::{STRICT, Stream, check, publish, until};
use cuframes_mio::bridge::{CourierEvent, Fate, IntakeEvent, SenderEvent, StreamReceiver, StreamSender};
use cuframes_mio::core::wire::ShutdownReason;
use cuframes_mio::core::{Policy, RingSize};
use cuframes_mio::{Frame, ServedPublisher, Subscriber};

/// A stream, both ends of a strict link, and who subscribes to it at the far end.
struct Line {
    // Dropped first: the others wait for it.
    subscriber: Subscriber,
    sender: StreamSender,
    receiver: StreamReceiver,
    publisher: ServedPublisher,
    stream: Stream,
}

impl Line {
    /// One whose first frame has arrived.
    fn new(near: Policy, far: Option<Policy>, slots: u64) -> Self {
        let stream = Stream::new();
        let mut publisher = publisher(&stream, 4, near);
        let builder = receiver(&stream, &anywhere()).ring_size(RingSize::new(slots).unwrap());
        let builder = if let Some(policy) = far { builder.policy(policy) } else { builder };
        let mut receiver = builder.listen().unwrap();
        let mut sender = strict_sender(&stream, &receiver);
        let mut subscriber = far_subscriber(&stream);
        first_frame(&mut publisher, &mut sender, &mut receiver, &mut subscriber);
        Self { subscriber, sender, receiver, publisher, stream }
    }

    /// Publishes as many frames as there is room for, and returns their numbers when nothing moves any more.
    fn fill_up(&mut self) -> (Vec<u64>, Vec<IntakeEvent>) {
        let (mut all, mut events, mut idle) = (Vec::new(), Vec::new(), 0);
        while idle < 50 {
            let seq = offer(&mut self.publisher);
            let told = received(&mut self.receiver);
            idle = if seq.is_none() && sent(&mut self.sender).is_empty() && told.is_empty() {
                idle + 1
            } else {
                0
            };
            all.extend(seq);
            events.extend(told);
        }
        (all, events)
    }
}

#[test]
fn a_slow_subscriber_at_the_far_end_holds_up_the_publisher_and_nothing_is_lost() {
    let mut line = Line::new(Policy::STRICT_WAIT, None, 4);
    let (published, _) = line.fill_up();
    // The rings of both ends and what is between them.
    assert!(
        published.len() >= 4 && published.len() <= 12,
        "{published:?} were taken, and nobody looks at them"
    );
    let mut newest = *published.last().unwrap();
    let mut next = 2;
    until("all frames", || {
        if newest < 300 {
            newest = offer(&mut line.publisher).unwrap_or(newest);
        }
        sent(&mut line.sender);
        received(&mut line.receiver);
        if let Some(frame) = look(&mut line.subscriber) {
            assert_eq!((frame.seq(), frame.lost()), (next, 0));
            check(&frame);
            next += 1;
        }
        next > 300
    });
    assert_eq!((line.sender.courier().lost(), line.sender.stats().refused), (0, 0));
}

/// The next frame, held by who subscribes at the far end.
fn held(line: &mut Line) -> Frame {
    publish(&mut line.publisher);
    let mut frame = None;
    drive(&mut line.sender, &mut line.receiver, |_, _| {
        frame = look(&mut line.subscriber);
        frame.is_some()
    });
    frame.unwrap()
}

#[test]
fn a_frame_whose_slot_is_held_is_left_out_where_frames_may_be_dropped_and_the_next_ones_come() {
    // Whatever is done at the near end, this is about the far one.
    for near in [Policy::DROP_OLDEST, Policy::STRICT_WAIT] {
        let mut line = Line::new(near, Some(Policy::DROP_OLDEST), 2);
        let frame = held(&mut line);
        assert_eq!(frame.seq(), 2);
        assert_eq!((publish(&mut line.publisher), publish(&mut line.publisher)), (3, 4));
        assert_eq!(publish(&mut line.publisher), 5);
        let (mut fates, mut events) = (Vec::new(), Vec::new());
        drive(&mut line.sender, &mut line.receiver, |told, heard| {
            fates.extend(told.iter().filter_map(|event| match event {
                CourierEvent::Link(SenderEvent::Done { seq: seq @ 3.., fate, .. }) => {
                    Some((*seq, fate.clone()))
                }
                _ => None,
            }));
            events.extend(numbers(heard));
            fates.len() == 3
        });
        assert_eq!(events, [3, 5], "under {near:?}");
        let left_out = &fates[1];
        assert!(matches!(left_out, (4, Fate::Skipped(_))), "under {near:?}: {left_out:?}");
        assert!(left_out.1.to_string().starts_with("left out: "), "{}", left_out.1);
        check(&frame);
        assert_eq!((line.sender.stats().delivered, line.sender.stats().refused), (4, 1));
    }
}

#[test]
fn a_frame_whose_slot_is_held_waits_where_no_frame_may_be_lost() {
    for near in [Policy::DROP_OLDEST, Policy::STRICT_WAIT] {
        let mut line = Line::new(near, Some(Policy::STRICT_WAIT), 2);
        let frame = held(&mut line);
        let more = [publish(&mut line.publisher), publish(&mut line.publisher)];
        assert_eq!(more, [3, 4]);
        for _ in 0..50 {
            sent(&mut line.sender);
            assert!(!numbers(&received(&mut line.receiver)).contains(&4), "frame 2 is held there");
            if let Some(next) = look(&mut line.subscriber) {
                assert_eq!(next.seq(), 3);
            }
        }
        check(&frame);
        drop(frame);
        drive(&mut line.sender, &mut line.receiver, |_, heard| numbers(heard).contains(&4));
        assert_eq!(line.sender.stats().refused, 0);
    }
}

#[test]
fn the_next_receiver_gets_what_had_not_arrived_and_nothing_twice() {
    let stream = Stream::new();
    let mut publisher = publisher(&stream, 4, Policy::STRICT_WAIT);
    let mut receiver = receiver(&stream, &anywhere()).listen().unwrap();
    let endpoint = receiver.endpoint().clone();
    let mut sender = strict_sender(&stream, &receiver);
    let mut all = Vec::new();
    for round in 1..=4 {
        // It ends in the middle: there is always something on the way.
        drive(&mut sender, &mut receiver, |_, heard| {
            offer(&mut publisher);
            all.extend(numbers(heard));
            all.len() >= round * 25
        });
        sent(&mut sender);
        drop(receiver);
        assert_gone(&far(&stream));
        sent(&mut sender);
        receiver = crate::bridge::receiver(&stream, &endpoint).listen().unwrap();
    }
    drive(&mut sender, &mut receiver, |_, heard| {
        all.extend(numbers(heard));
        all.last() == Some(&publisher.stats().frames)
    });
    until("the last answer", || {
        sent(&mut sender);
        received(&mut receiver);
        sender.stats().delivered == publisher.stats().frames
    });
    let expected: Vec<u64> = (1..=all.len().try_into().unwrap()).collect();
    assert_eq!(all, expected);
    assert!(sender.stats().lost_connections >= 4);
    assert_eq!((sender.stats().given_up, sender.courier().lost()), (0, 0));
}

#[test]
fn the_next_sender_goes_on_with_the_stream_that_is_there() {
    let mut line = Line::new(Policy::STRICT_WAIT, None, 4);
    let epoch = line.subscriber.header().unwrap().epoch;
    let mut got = vec![1];
    for round in 1..=3 {
        until("some frames", || {
            offer(&mut line.publisher);
            sent(&mut line.sender);
            received(&mut line.receiver);
            got.extend(look(&mut line.subscriber).map(|frame| frame.seq()));
            got.len() > round * 10
        });
        // What has arrived is still to be read; what has not is lost with this one.
        drop(line.sender);
        until("its end", || {
            received(&mut line.receiver);
            line.receiver.senders() == 0
        });
        line.sender = strict_sender(&line.stream, &line.receiver);
    }
    let newest = publish(&mut line.publisher);
    drive(&mut line.sender, &mut line.receiver, |_, _| {
        got.extend(look(&mut line.subscriber).map(|frame| frame.seq()));
        got.last() == Some(&newest)
    });
    assert!(got.is_sorted_by(|a, b| a < b), "{got:?}");
    assert_eq!(line.subscriber.header().unwrap().epoch, epoch);
    assert_eq!(line.subscriber.stats().reconnects, 0);
}

#[test]
fn a_smaller_ring_of_the_next_publisher_is_not_filled_with_what_is_on_the_way() {
    let stream = Stream::new();
    let first = publisher(&stream, 8, Policy::STRICT_WAIT);
    let mut receiver = receiver(&stream, &anywhere()).listen().unwrap();
    let settings = StreamSender::builder(receiver.endpoint().clone()).strict();
    let mut sender = settings.start(stream.reconnecting(STRICT).connect().unwrap()).unwrap();
    assert_eq!(sender.window(), 6);
    let ending = thread::spawn(move || first.shut_down(ShutdownReason::UPGRADE));
    until("the end", || {
        sent(&mut sender);
        ending.is_finished()
    });
    ending.join().unwrap().unwrap();
    let mut second = publisher(&stream, 3, Policy::STRICT_WAIT);
    until("the next one", || {
        sent(&mut sender);
        !second.members().is_empty()
    });
    // The receiver does not answer.
    for _ in 0..50 {
        offer(&mut second);
        sent(&mut sender);
    }
    assert_eq!(sender.courier().taken(), 2, "one slot is the publisher's");
    drive(&mut sender, &mut receiver, |_, heard| numbers(heard).contains(&3));
}

#[test]
fn a_sender_is_not_started_where_it_would_leave_the_publisher_no_slot() {
    let stream = Stream::new();
    let _publisher = publisher(&stream, 4, Policy::STRICT_WAIT);
    let refused = |window| {
        let subscriber = stream.subscriber("sender", STRICT).connect().unwrap();
        StreamSender::builder("tcp://127.0.0.1:9".parse().unwrap()).strict().window(window).start(subscriber)
    };
    assert_eq!(refused(3).unwrap().window(), 3);
    for window in [0, 4, 100] {
        let error = refused(window).unwrap_err().to_string();
        let expected = format!("of the 4 slots of its ring {window} can't be on their way; use 1 to 3");
        assert!(error.contains(&expected), "{error}");
    }
}

#[test]
fn a_far_subscriber_that_comes_late_gets_the_newest_frame_and_the_next_ones() {
    let mut line = Line::new(Policy::DROP_OLDEST, None, 4);
    let newest = (0..10).map(|_| publish(&mut line.publisher)).last().unwrap();
    drive(&mut line.sender, &mut line.receiver, |_, heard| numbers(heard).contains(&newest));
    let mut late = far_builder(&line.stream).connect().unwrap();
    assert_eq!(look(&mut late).unwrap().seq(), newest);
    publish(&mut line.publisher);
    drive(&mut line.sender, &mut line.receiver, |_, _| {
        look(&mut late).is_some_and(|next| next.seq() == newest + 1)
    });
}
