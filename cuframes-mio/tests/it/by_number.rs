//! Frames that are taken by their number, by who is never waited for: a process holds a frame, and others work on it.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::thread;
use std::time::Duration;

use crate::common::{LONG, NEWEST, STRICT, Stream, check, maps, next, publish, told, until};
use crate::other::{Other, hear, tell};
use cuframes_mio::core::wire::ShutdownReason;
use cuframes_mio::core::{Features, Gone, Policy, Timeouts};
use cuframes_mio::{Departures, Error, EventSource, FrameLost, ServedPublisher, Subscriber, now};
use cuframes_testkit::layout;
use mio::{Events, Poll, Token};

/// Nobody is ever evicted.
fn patient(stream: &Stream, slots: u64, policy: Policy) -> ServedPublisher {
    let mut timeouts = Timeouts::default();
    (timeouts.consumer_ack, timeouts.lease) = (LONG, LONG);
    stream.publisher(slots, policy).timeouts(timeouts).create().unwrap().serve().unwrap()
}

fn worker(stream: &Stream) -> Subscriber {
    stream.subscriber("worker", NEWEST).no_ack().connect().unwrap()
}

#[test]
#[ignore = "needs a process of its own: started by the tests below"]
fn child_works_on_frames() {
    let (key, dir) = told();
    let mut worker = Subscriber::builder(key).run_dir(dir).no_ack().connect().unwrap();
    tell("ready");
    while let Some(seq) = hear() {
        let frame = worker.frame(seq.parse().unwrap()).unwrap();
        frame.iter().for_each(check);
        let is_there = frame.is_some();
        // It is given back before the publisher goes on.
        drop(frame);
        tell(if is_there { "there" } else { "gone" });
    }
}

#[test]
fn who_need_not_acknowledge_never_keeps_a_strict_wait_publisher_waiting_but_by_a_lease() {
    let stream = Stream::new();
    let mut publisher = patient(&stream, 2, Policy::STRICT_WAIT);
    let mut sleeper = worker(&stream);
    assert!(sleeper.features().unwrap().contains(Features::NO_ACK.union(Features::LEASE)));
    let mut reader = stream.subscriber("reader", STRICT).connect().unwrap();
    assert!(!reader.features().unwrap().contains(Features::NO_ACK));
    let reading = thread::spawn(move || {
        for seq in 1..=200 {
            let frame = next(&mut reader);
            assert_eq!((frame.seq(), frame.lost()), (seq, 0));
        }
        reader
    });
    for _ in 0..200 {
        publish(&mut publisher);
    }
    let mut reader = reading.join().unwrap();
    assert_eq!(publisher.stats().left, Departures::default(), "nobody is evicted, and nobody went");

    let held = sleeper.frame(199).unwrap().expect("it is the oldest that is there");
    let stalled = publisher.try_claim().unwrap_err();
    let bit = sleeper.bit().unwrap().mask();
    assert_eq!((stalled.waiting_for_acks, stalled.waiting_for_leases), (0, bit));
    check(&held);
    held.release().unwrap();
    assert_eq!(publish(&mut publisher), 201);
    assert_eq!(next(&mut reader).seq(), 201);
}

#[test]
fn a_process_works_on_the_frame_that_another_one_holds() {
    for policy in [Policy::STRICT_WAIT, Policy::DROP_OLDEST] {
        let stream = Stream::new();
        let mut publisher = patient(&stream, 3, policy);
        let mut worker = Other::start("by_number::child_works_on_frames", &stream);
        let mut ask = |seq: u64| {
            worker.say(&seq.to_string());
            worker.hear()
        };
        let mut dispatcher = stream.subscriber("dispatcher", STRICT).connect().unwrap();
        assert_eq!(ask(1), "gone", "it is not published yet");
        publish(&mut publisher);
        let held = next(&mut dispatcher);
        // As far as the publisher comes without this slot.
        for _ in 0..10 {
            if publisher.try_claim().is_ok() {
                publish(&mut publisher);
                drop(dispatcher.try_next().unwrap());
            }
        }
        for _ in 0..3 {
            assert_eq!(ask(1), "there");
        }
        check(&held);
        drop(held);
        for _ in 0..4 {
            publish(&mut publisher);
            drop(next(&mut dispatcher));
        }
        for seq in [0, 1, 1000, u64::MAX] {
            assert_eq!(ask(seq), "gone", "{seq}");
        }
    }
}

#[test]
fn a_frame_is_had_once_at_a_time_and_what_is_next_does_not_depend_on_it() {
    let stream = Stream::new();
    let mut publisher = patient(&stream, 4, Policy::STRICT_WAIT);
    let mut subscriber = stream.subscriber("eye", STRICT).connect().unwrap();
    for _ in 0..3 {
        publish(&mut publisher);
    }
    let third = subscriber.frame(3).unwrap().unwrap();
    assert_eq!((third.seq(), third.lost(), third.check()), (3, 0, Ok(())));
    assert!(subscriber.frame(3).unwrap().is_none(), "it is held already");
    third.release().unwrap();
    // It was not acknowledged, and neither were those before it: the publisher still waits for all of them.
    publish(&mut publisher);
    assert_eq!(publisher.try_claim().unwrap_err().bits(), subscriber.bit().unwrap().mask());
    for seq in 1..=4 {
        let frame = next(&mut subscriber);
        check(&frame);
        assert_eq!((frame.seq(), frame.lost()), (seq, 0));
        assert!(subscriber.frame(seq).unwrap().is_none(), "it is held already");
    }
    let stats = subscriber.stats();
    assert_eq!((stats.frames, stats.lost, stats.revoked, stats.overwritten), (5, 0, 0, 0));
}

#[test]
fn what_is_left_after_a_shutdown_can_be_had_by_its_number_and_the_subscription_does_not_end_by_that() {
    let stream = Stream::new();
    let mut publisher = patient(&stream, 2, Policy::DROP_OLDEST);
    let mut worker = worker(&stream);
    for _ in 0..3 {
        publish(&mut publisher);
    }
    let stopping = thread::spawn(move || publisher.shut_down(ShutdownReason::UPGRADE));
    // Until the publisher has waited long enough for us, and is gone.
    while !stopping.is_finished() {
        check(&worker.frame(2).unwrap().unwrap());
        thread::sleep(Duration::from_millis(1));
    }
    stopping.join().unwrap().unwrap();
    for _ in 0..3 {
        for seq in [2, 3] {
            let frame = worker.frame(seq).unwrap().unwrap();
            check(&frame);
            assert_eq!(frame.check(), Ok(()));
        }
        assert!(worker.frame(1).unwrap().is_none());
        assert!(worker.is_attached());
    }
    // They are still to be handed out in turn.
    assert_eq!(next(&mut worker).seq(), 3);
    let error = worker.next(LONG).unwrap_err();
    assert!(matches!(error, Error::Gone { gone: Gone::Shutdown(ShutdownReason::UPGRADE), .. }), "{error}");
    let error = worker.frame(3).unwrap_err();
    assert!(matches!(error, Error::Gone { gone: Gone::Shutdown(ShutdownReason::UPGRADE), .. }), "{error}");
}

#[test]
fn a_killed_publisher_ends_it_and_a_frame_in_hand_says_so() {
    let stream = Stream::new();
    let publisher = Other::start("processes::child_publishes", &stream);
    let mut dispatcher = stream.subscriber("dispatcher", NEWEST).connect().unwrap();
    let mut worker = worker(&stream);
    let held = next(&mut dispatcher);
    // Its slot has been written again and again by then, if the lease does not hold.
    let later = held.seq() + 30;
    until("more frames", || next(&mut dispatcher).seq() > later);
    let frame = worker.frame(held.seq()).unwrap().expect("it is held");
    assert_eq!((held.check(), frame.check()), (Ok(()), Ok(())));
    publisher.kill();
    let mut error = None;
    until("the end", || {
        error = worker.frame(held.seq()).err();
        error.is_some()
    });
    assert!(matches!(error, Some(Error::Gone { gone: Gone::Disconnected, .. })), "{error:?}");
    let again = worker.frame(held.seq()).unwrap_err();
    assert!(matches!(again, Error::Gone { gone: Gone::Disconnected, .. }), "{again}");
    check(&frame);
    assert_eq!(frame.check(), Err(FrameLost::Evicted));
    assert_eq!(worker.stats().revoked, 0, "it was asked, not released");
    assert_eq!(frame.release(), Err(FrameLost::Evicted));
    assert_eq!(worker.stats().revoked, 1);
    drop((held, dispatcher));
    assert_eq!(maps(&stream.key), 0);
}

#[test]
fn who_was_evicted_gets_no_frame_by_its_number() {
    let stream = Stream::new();
    let mut timeouts = Timeouts::default();
    timeouts.lease = Duration::from_millis(20);
    let builder = stream.publisher(1, Policy::STRICT_WAIT).timeouts(timeouts);
    let mut publisher = builder.create().unwrap().serve().unwrap();
    let mut worker = worker(&stream);
    publish(&mut publisher);
    let frame = worker.frame(1).unwrap().unwrap();
    assert_eq!(publish(&mut publisher), 2, "after the lease's deadline");
    assert_eq!(frame.check(), Err(FrameLost::Evicted));
    let mut end = worker.frame(2);
    until("the end of the connection", || {
        // Until then there is no frame.
        assert!(!matches!(end, Ok(Some(_))));
        let is_over = end.is_err();
        if !is_over {
            end = worker.frame(2);
        }
        is_over
    });
    assert!(matches!(end, Err(Error::Refused { .. })), "{end:?}");
    assert_eq!(publisher.stats().left.evicted_for_lease, 1);
}

#[test]
fn while_the_bit_does_not_look_ours_there_is_no_frame_by_its_number() {
    let stream = Stream::new();
    let mut publisher = patient(&stream, 2, Policy::DROP_OLDEST);
    let builder = stream.subscriber("worker", NEWEST).no_ack();
    let mut worker = builder.features(Features::FD_PASSING.union(Features::LEASE)).connect().unwrap();
    assert!(worker.features().unwrap().contains(Features::NO_ACK), "besides the others");
    publish(&mut publisher);
    let region = OpenOptions::new().write(true).open(stream.region()).unwrap();
    let state = u64::try_from(layout::subscriber(1)).unwrap();
    // Without a witness anybody can say that we are being evicted.
    until("what was written to be believed", || {
        region.write_all_at(&3_u64.to_le_bytes(), state).unwrap();
        worker.frame(1).unwrap().is_none()
    });
    until("the publisher to put it right", || worker.frame(1).unwrap().is_some());
}

#[test]
fn an_event_loop_that_sleeps_for_the_next_frame_wakes_up_for_what_was_read_by_who_took_one_by_its_number() {
    let stream = Stream::new();
    let mut publisher = patient(&stream, 4, Policy::DROP_OLDEST);
    let mut subscriber = stream.subscriber("eye", STRICT).connect().unwrap();
    let (mut poll, mut events) = (Poll::new().unwrap(), Events::with_capacity(8));
    subscriber.register(poll.registry(), Token(0)).unwrap();
    publish(&mut publisher);
    assert_eq!(subscriber.poll_next().unwrap().unwrap().seq(), 1);
    assert!(subscriber.poll_next().unwrap().is_none());
    // Everything that was to be told before.
    while poll.poll(&mut events, Some(Duration::ZERO)).is_ok() && !events.is_empty() {
        for event in &events {
            let _ = subscriber.handle_event(event.token(), now()).unwrap();
        }
    }
    assert!(subscriber.poll_next().unwrap().is_none());

    // It still sleeps, and is woken.
    assert!(subscriber.frame(1).unwrap().is_some());
    publish(&mut publisher);
    poll.poll(&mut events, Some(LONG)).unwrap();
    assert!(!events.is_empty(), "nobody rang");
    for event in &events {
        let _ = subscriber.handle_event(event.token(), now()).unwrap();
    }
    assert_eq!(subscriber.poll_next().unwrap().unwrap().seq(), 2);
    assert!(subscriber.poll_next().unwrap().is_none());

    // SHUTDOWN is read here: the loop must not sleep on.
    let planned = subscriber.poll_timeout();
    let stopping = thread::spawn(move || publisher.shut_down(ShutdownReason::NORMAL));
    until("SHUTDOWN", || {
        assert!(subscriber.frame(2).unwrap().is_some());
        subscriber.poll_timeout() != planned
    });
    assert!(subscriber.poll_timeout().unwrap() <= now());
    subscriber.handle_timeout(now());
    let error = subscriber.poll_next().unwrap_err();
    assert!(matches!(error, Error::Gone { .. }), "{error}");
    stopping.join().unwrap().unwrap();
}
