//! How links and their streams end, and what is left of them: nothing.

use std::fs;
use std::thread;
use std::time::Duration;

use crate::bridge::{
    anywhere, assert_gone, drive, far, far_builder, far_subscriber, first_frame, look, numbers, publisher,
    received, receiver, sender, sent, strict_sender,
};
use crate::common::{LONG, NEWEST, STRICT, Stream, maps, publish, told, until};
use cuframes_mio::Error;
use cuframes_mio::bridge::{CourierEvent, IntakeEvent, StreamSender};
use cuframes_mio::core::wire::ShutdownReason;
use cuframes_mio::core::{Gone, Policy};

fn has_ended(events: &[CourierEvent]) -> bool {
    let end = events.iter().find_map(|event| match event {
        CourierEvent::Ended(error) => Some(error),
        _ => None,
    });
    end.is_some_and(|error| {
        let normal = Gone::Shutdown(ShutdownReason::NORMAL);
        matches!(error, Error::Gone { gone, .. } if *gone == normal)
    })
}

#[test]
fn when_the_stream_ends_all_of_it_arrives_and_the_sender_is_finished() {
    let stream = Stream::new();
    let mut publisher = publisher(&stream, 8, Policy::STRICT_WAIT);
    let mut receiver = receiver(&stream, &anywhere()).listen().unwrap();
    let mut sender = strict_sender(&stream, &receiver);
    assert!(!sender.courier().is_finished());
    let newest = (0..6).map(|_| publish(&mut publisher)).last().unwrap();
    let ending = thread::spawn(move || publisher.shut_down(ShutdownReason::NORMAL));
    let (mut arrived, mut told) = (Vec::new(), Vec::new());
    until("the end", || {
        told.extend(sent(&mut sender));
        arrived.extend(numbers(&received(&mut receiver)));
        sender.courier().is_finished()
    });
    assert_eq!(arrived, (1..=newest).collect::<Vec<_>>());
    assert!(has_ended(&told), "{told:?}");
    assert_eq!((sender.stats().delivered, sender.courier().taken(), sender.courier().lost()), (6, 6, 0));
    ending.join().unwrap().unwrap();
}

#[test]
fn a_stream_without_a_sender_ends_when_nobody_comes_back() {
    let stream = Stream::new();
    let mut publisher = publisher(&stream, 4, Policy::STRICT_WAIT);
    let builder = receiver(&stream, &anywhere()).linger(Duration::from_millis(100));
    let mut receiver = builder.listen().unwrap();
    let mut sender = strict_sender(&stream, &receiver);
    let mut far_end = far_subscriber(&stream);
    first_frame(&mut publisher, &mut sender, &mut receiver, &mut far_end);
    drop(far_end);
    let mut subscriber = far_builder(&stream).connect().unwrap();
    // With its sender it stays, however little it has to say.
    let start = std::time::Instant::now();
    while start.elapsed() < Duration::from_millis(300) {
        sent(&mut sender);
        let heard = received(&mut receiver);
        assert!(!heard.iter().any(|event| matches!(event, IntakeEvent::Ended { .. })), "{heard:?}");
    }
    drop(sender);
    let (mut events, mut end) = (Vec::new(), None);
    until("the end", || {
        events.extend(received(&mut receiver));
        end = end.take().or_else(|| subscriber.next(Duration::from_millis(1)).err());
        end.is_some() && events.iter().any(|event| matches!(event, IntakeEvent::Ended { .. }))
    });
    let end = end.unwrap();
    let normal = Gone::Shutdown(ShutdownReason::NORMAL);
    assert!(matches!(&end, Error::Gone { gone, .. } if *gone == normal), "{end}");
    assert!(
        matches!(&events[..], [IntakeEvent::Left { fault: None, .. }, IntakeEvent::Ended { key }] if *key == far(&stream)),
        "{events:?}"
    );
    until("its memory to be gone", || {
        received(&mut receiver);
        maps(&far(&stream)) == 0
    });
    assert_gone(&far(&stream));
    // It may come back later all the same.
    let mut sender = strict_sender(&stream, &receiver);
    publish(&mut publisher);
    drive(&mut sender, &mut receiver, |_, heard| numbers(heard).contains(&2));
}

#[test]
fn so_many_frames_are_sent_and_no_more() {
    let stream = Stream::new();
    let mut publisher = publisher(&stream, 8, Policy::STRICT_WAIT);
    let mut receiver = receiver(&stream, &anywhere()).listen().unwrap();
    let settings = StreamSender::builder(receiver.endpoint().clone()).strict().frames(3);
    let mut sender = sender(&stream, settings);
    (0..5).for_each(|_| _ = publish(&mut publisher));
    let mut arrived = Vec::new();
    until("the end", || {
        sent(&mut sender);
        arrived.extend(numbers(&received(&mut receiver)));
        sender.courier().is_finished()
    });
    assert_eq!(arrived, [1, 2, 3]);
    // Nobody waits for it any more.
    (0..20).for_each(|_| _ = publish(&mut publisher));
}

#[test]
fn a_sender_that_finds_nobody_does_not_outlive_its_stream_for_long() {
    for strict in [true, false] {
        let stream = Stream::new();
        let mut publisher = publisher(&stream, 8, Policy::DROP_OLDEST);
        // Nobody is there.
        let settings = StreamSender::builder("tcp://127.0.0.1:9".parse().unwrap());
        let settings = settings.window(2).patience(Duration::from_millis(100));
        let settings = if strict { settings.strict() } else { settings };
        let mut sender = sender(&stream, settings);
        (0..5).for_each(|_| _ = publish(&mut publisher));
        sent(&mut sender);
        let ending = thread::spawn(move || publisher.shut_down(ShutdownReason::NORMAL));
        let mut events = Vec::new();
        until("the end", || {
            events.extend(sent(&mut sender));
            sender.courier().is_finished()
        });
        assert!(has_ended(&events), "{events:?}");
        let taken = if strict { 2 } else { 0 };
        assert_eq!((sender.courier().taken(), sender.courier().lost()), (taken, 5 - taken));
        assert_eq!(sender.stats().given_up, taken);
        ending.join().unwrap().unwrap();
    }
}

#[test]
fn events_that_nobody_looks_at_are_not_kept_for_ever() {
    let stream = Stream::new();
    let mut publisher = publisher(&stream, 4, Policy::DROP_OLDEST);
    let mut receiver = receiver(&stream, &anywhere()).on_demand().listen().unwrap();
    let subscriber = stream.subscriber("sender", NEWEST).no_ack().connect().unwrap();
    let settings = StreamSender::builder(receiver.endpoint().clone()).on_demand();
    let mut sender = settings.start(subscriber).unwrap();
    publish(&mut publisher);
    drive(&mut sender, &mut receiver, |_, heard| {
        heard.iter().any(|event| matches!(event, IntakeEvent::Joined { .. }))
    });
    // Each is refused at once: one is on its way.
    (0..5000).for_each(|_| assert!(receiver.fetch(&stream.key, None).unwrap()));
    assert_eq!(std::iter::from_fn(|| receiver.next_event(Some(Duration::ZERO)).unwrap()).count(), 1024);
}

#[test]
fn nothing_is_left_of_links_and_their_streams() {
    let stream = Stream::new();
    let status = stream.child("bridge_ends::child_counts_what_is_open").status();
    assert!(status.unwrap().success());
}

#[test]
#[ignore = "needs a process of its own, whose descriptors it counts: see the test above"]
fn child_counts_what_is_open() {
    let (key, dir) = told();
    let stream = Stream::of(key, &dir);
    let mut publisher = publisher(&stream, 4, Policy::STRICT_WAIT);
    let open = || fs::read_dir("/proc/self/fd").unwrap().count();
    let before = (open(), maps(&far(&stream)), maps(&stream.key));
    let threads = || fs::read_dir("/proc/self/task").unwrap().count();
    let running = threads();
    for round in 0..6 {
        let mut receiver = receiver(&stream, &anywhere()).listen().unwrap();
        let mut sender = strict_sender(&stream, &receiver);
        let mut subscriber = far_subscriber(&stream);
        first_frame(&mut publisher, &mut sender, &mut receiver, &mut subscriber);
        let frame = publish(&mut publisher);
        drive(&mut sender, &mut receiver, |_, _| {
            look(&mut subscriber).is_some_and(|next| next.seq() == frame)
        });
        publish(&mut publisher);
        sent(&mut sender);
        // In the middle of something, or in order.
        if round % 2 == 0 {
            drop(sender);
        } else {
            sender.close(LONG).unwrap();
            drive(&mut sender, &mut receiver, |_, _| {
                look(&mut subscriber).is_some_and(|next| next.seq() == frame + 1)
            });
            drop(sender);
        }
        drop(subscriber);
        if round % 3 == 0 {
            receiver.shut_down().unwrap();
        }
        drop(receiver);
        assert_gone(&far(&stream));
        until("the publisher to have noticed", || publisher.members().is_empty());
        assert_eq!((open(), maps(&far(&stream)), maps(&stream.key)), before, "in round {round}");
        assert_eq!(threads(), running, "in round {round}");
    }
    drop(publisher);
    assert_gone(&stream.key);
}

#[test]
fn one_descriptor_each_is_all_that_an_event_loop_needs() {
    let stream = Stream::new();
    let mut publisher = publisher(&stream, 4, Policy::STRICT_WAIT);
    let mut receiver = receiver(&stream, &anywhere()).listen().unwrap();
    let subscriber = stream.subscriber("sender", STRICT).connect().unwrap();
    let settings = StreamSender::builder(receiver.endpoint().clone()).strict();
    let mut sender = settings.start(subscriber).unwrap();
    // Each waits for ever: whatever happens has to wake it up.
    let sending = thread::spawn(move || {
        while !sender.courier().is_finished() {
            sender.next_event(None).unwrap();
        }
        sender
    });
    let receiving = thread::spawn(move || {
        let mut arrived = Vec::new();
        while arrived.last() != Some(&200) {
            let event = receiver.next_event(None).unwrap();
            arrived.extend(event.iter().flat_map(|event| numbers(std::slice::from_ref(event))));
        }
        // Until the sender has heard of it.
        while receiver.senders() > 0 {
            receiver.next_event(None).unwrap();
        }
        arrived
    });
    (0..200).for_each(|_| _ = publish(&mut publisher));
    publisher.shut_down(ShutdownReason::NORMAL).unwrap();
    assert_eq!(receiving.join().unwrap(), (1..=200).collect::<Vec<_>>());
    assert_eq!(sending.join().unwrap().stats().delivered, 200);
}
