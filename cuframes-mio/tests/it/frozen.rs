//! A subscriber that stands still (SIGSTOP): what it costs the others under each policy, with and without leases, and
//! what it hears when it goes on (D-19, D-31, X-2, P-10).

use std::time::Duration;

use crate::common::{LONG, STRICT, Stream, check, check_bytes, meta, publish, told, until};
use crate::other::{Other, hear, tell};
use cuframes_mio::core::{Features, Policy, Timeouts};
use cuframes_mio::{Accusation, Error, Frame, FrameLost, Leave, MemberEvent, ServedPublisher, Subscriber};

const LEASED: Features = Features(0b10_0111);
const UNLEASED: Features = Features(0b10_0101);

#[test]
#[ignore = "needs a process of its own: started by the tests below, and stopped"]
fn child_takes_frames() {
    let (key, dir) = told();
    let number = |name| std::env::var(name).unwrap().parse::<u32>().unwrap();
    let builder = Subscriber::builder(key).name("frozen".parse().unwrap()).mode(STRICT).run_dir(dir);
    let mut subscriber = builder.features(Features(number("TEST_FEATURES"))).connect().unwrap();
    tell("ready");
    let held: Vec<Frame> =
        (0..number("TEST_HOLD")).map(|_| subscriber.next(LONG).unwrap().unwrap()).collect();
    tell("holds");
    let _ = hear();
    for frame in held {
        let seq = frame.seq();
        let outcome = match frame.release() {
            Ok(()) => "intact",
            Err(FrameLost::Overwritten) => "overwritten",
            Err(FrameLost::Evicted) => "evicted",
            Err(error) => panic!("{error}"),
        };
        tell(&format!("released {seq} {outcome}"));
    }
    let mut copy = vec![0; meta().frame_size_bytes.try_into().unwrap()];
    let next = loop {
        match subscriber.next(LONG) {
            Ok(frame) => {
                let frame = frame.expect("a frame in time");
                // Without a lease it may be overwritten right now.
                if frame.copy_to(&mut copy).is_ok() {
                    check_bytes(frame.seq(), &copy);
                    break format!("next {}", frame.seq());
                }
            }
            Err(Error::Refused { refused, .. }) => break format!("refused {}", refused.code),
            Err(error) => break error.to_string(),
        }
    };
    tell(&next);
    let _ = hear();
}

/// A subscriber in a process of its own, which holds frames once it [`holds`].
fn start(stream: &Stream, features: Features, hold: u32) -> Other {
    let mut command = stream.child("frozen::child_takes_frames");
    let command = command.env("TEST_FEATURES", features.0.to_string()).env("TEST_HOLD", hold.to_string());
    Other::run(command)
}

fn evictions(publisher: &mut ServedPublisher) -> Vec<(String, Leave)> {
    let evicted = |event| match event {
        MemberEvent::Left(member, how @ Leave::Evicted(_)) => Some((member.name.to_string(), how)),
        _ => None,
    };
    std::iter::from_fn(|| publisher.poll_event()).filter_map(evicted).collect()
}

/// The bit stays unused while the process lives, and is free when it is gone (D-19).
fn assert_quarantined(stream: &Stream, frozen: Other) {
    let bit = || stream.subscriber("another", STRICT).connect().unwrap().bit().unwrap().get();
    assert_ne!(bit(), 1);
    frozen.kill();
    until("bit 1 to be free", || bit() == 1);
}

/// The defaults, but a bit of somebody whose process lives is never free again.
fn timeouts() -> Timeouts {
    let mut timeouts = Timeouts::default();
    timeouts.quarantine = Duration::from_secs(3600);
    timeouts
}

#[test]
fn under_drop_oldest_who_holds_nothing_delays_nobody_and_goes_on_with_what_is_there() {
    for features in [LEASED, UNLEASED] {
        let stream = Stream::new();
        let mut publisher = stream.publisher(4, Policy::DROP_OLDEST).create().unwrap().serve().unwrap();
        let mut frozen = start(&stream, features, 0);
        frozen.wait_for_line("holds");
        frozen.stop();
        for _ in 0..500 {
            publish(&mut publisher);
        }
        let stats = publisher.stats();
        assert_eq!((stats.frames, stats.skipped, stats.lease_stalls, stats.ack_stalls), (500, 0, 0, 0));
        assert_eq!((stats.subscribers, stats.joined), (1, 1));
        frozen.go_on();
        frozen.say("");
        assert_eq!(frozen.hear(), "next 497", "the oldest of the ring");
    }
}

#[test]
fn under_drop_oldest_the_stream_goes_round_a_leased_slot_for_as_long_as_it_is_held() {
    let stream = Stream::new();
    let mut timeouts = timeouts();
    timeouts.lease = Duration::from_millis(1);
    let builder = stream.publisher(4, Policy::DROP_OLDEST).timeouts(timeouts);
    let mut publisher = builder.create().unwrap().serve().unwrap();
    let mut frozen = start(&stream, LEASED, 1);
    publish(&mut publisher);
    frozen.wait_for_line("holds");
    frozen.stop();
    for _ in 0..100 {
        publish(&mut publisher);
        std::thread::sleep(Duration::from_micros(100));
    }
    let stats = publisher.stats();
    assert_eq!((stats.frames, stats.lease_stalls, stats.subscribers), (101, 0, 1));
    assert_eq!(stats.skipped, 33, "every fourth number belongs to the leased slot");
    frozen.go_on();
    frozen.say("");
    assert_eq!(frozen.hear(), "released 1 intact");
}

#[test]
fn under_drop_oldest_who_holds_every_slot_is_evicted_after_the_lease_timeout() {
    let stream = Stream::new();
    let mut timeouts = timeouts();
    timeouts.lease = Duration::from_millis(200);
    let builder = stream.publisher(2, Policy::DROP_OLDEST).timeouts(timeouts);
    let mut publisher = builder.create().unwrap().serve().unwrap();
    let mut frozen = start(&stream, LEASED, 2);
    publish(&mut publisher);
    publish(&mut publisher);
    frozen.wait_for_line("holds");
    frozen.stop();
    let start = std::time::Instant::now();
    assert!(publish(&mut publisher) > 2);
    assert!(start.elapsed() >= timeouts.lease, "evicted too early");
    for _ in 0..100 {
        publish(&mut publisher);
    }
    let stats = publisher.stats();
    assert_eq!((stats.frames, stats.lease_stalls, stats.ack_stalls, stats.subscribers), (103, 1, 0, 0));
    assert_eq!((stats.left.evicted_for_lease, stats.left.evicted_for_ack), (1, 0));
    assert_eq!(evictions(&mut publisher), [("frozen".into(), Leave::Evicted(Accusation::Lease))]);
    frozen.go_on();
    frozen.say("");
    assert_eq!(frozen.hear(), "released 1 evicted");
    assert_eq!(frozen.hear(), "released 2 evicted");
    assert_eq!(frozen.hear(), "refused EVICTED");
    assert_quarantined(&stream, frozen);
}

#[test]
fn under_strict_wait_who_stands_still_is_evicted_after_the_ack_timeout_and_the_others_lose_nothing() {
    for (features, hold) in [(LEASED, 1), (LEASED, 0), (UNLEASED, 1), (UNLEASED, 0)] {
        let stream = Stream::new();
        let mut timeouts = timeouts();
        timeouts.consumer_ack = Duration::from_secs(1);
        let builder = stream.publisher(2, Policy::STRICT_WAIT).timeouts(timeouts);
        let mut publisher = builder.create().unwrap().serve().unwrap();
        let mut frozen = start(&stream, features, hold);
        let mut good = stream.subscriber("good", STRICT).connect().unwrap();
        let reader = std::thread::spawn(move || {
            for expected in 1..=50 {
                let frame = good.next(LONG).unwrap().expect("a frame in time");
                check(&frame);
                assert_eq!((frame.seq(), frame.lost()), (expected, 0));
            }
        });
        publish(&mut publisher);
        frozen.wait_for_line("holds");
        frozen.stop();
        let start = std::time::Instant::now();
        for _ in 0..49 {
            publish(&mut publisher);
        }
        assert!(start.elapsed() >= timeouts.consumer_ack, "evicted too early");
        reader.join().unwrap();
        let stats = publisher.stats();
        assert_eq!((stats.frames, stats.skipped, stats.lease_stalls), (50, 0, 0));
        assert_eq!((stats.left.evicted_for_ack, stats.left.evicted_for_lease), (1, 0));
        assert_eq!(evictions(&mut publisher), [("frozen".into(), Leave::Evicted(Accusation::Ack))]);
        frozen.go_on();
        frozen.say("");
        if hold == 1 {
            assert_eq!(frozen.hear(), "released 1 evicted");
        }
        assert_eq!(frozen.hear(), "refused EVICTED");
        assert_quarantined(&stream, frozen);
    }
}
