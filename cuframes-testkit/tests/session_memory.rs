//! What a session keeps in memory has a bound, whatever its peer sends (D-11, D-29).

#![expect(clippy::unwrap_used, reason = "a failure ends the test")]

use std::collections::VecDeque;
use std::fs;

use allocation_counter::measure;
use cuframes_core::Instant;
use cuframes_core::session::{Session, SubscriberEvent};
use cuframes_testkit::chaos::TARGETS;
use cuframes_testkit::chaos::seeds::corpus;
use cuframes_testkit::solo::{PUBLISHER_STATES, SUBSCRIBER_STATES, events, publisher_in, subscriber_in};
use cuframes_testkit::vectors::{names, vector};

/// Room for 64 KiB that are being moved to a buffer of twice the size, for one partial message, and for a hundred events.
const MAX_BYTES: u64 = 64 * 1024 * 3 + 2 * 4104 + 100 * 200;

/// The most bytes on the heap while a session gets the same read so many times, and nobody sends or takes anything.
fn peak<S: Session<Fd = u32>>(start: impl Fn() -> S, read: &[u8], fds: &[u32], times: usize) -> u64 {
    let flood = || {
        let mut session = start();
        for _ in 0..times {
            session.handle_bytes(Instant::ZERO, read, &mut fds.iter().copied().collect());
        }
    };
    measure(flood).bytes_max
}

/// Every golden message, one of an unknown type, one that never ends, and a descriptor of an unknown purpose.
fn reads() -> Vec<(String, Vec<u8>, Vec<u32>)> {
    let changed = |name, at: usize| {
        let mut message = vector(name);
        *message.get_mut(at).unwrap() = 0x77;
        message
    };
    let golden = names().map(|name| (name.to_string(), vector(name), vec![]));
    let mut reads: Vec<_> = golden.collect();
    reads.push(("unknown".into(), changed("ping", 0), vec![]));
    reads.push(("unknown purpose".into(), changed("event_fd_wake", 8), vec![1]));
    reads.push(("wake".into(), vector("event_fd_wake"), vec![1]));
    reads.push(("descriptors".into(), vec![], vec![1, 2]));
    reads
}

fn check<S: Session<Fd = u32>>(name: &str, start: impl Fn() -> S) {
    for (read, bytes, fds) in reads() {
        let peaks = [10_000, 20_000].map(|times| peak(&start, &bytes, &fds, times));
        assert!(peaks.iter().all(|peak| *peak < MAX_BYTES), "{name}, {read}: {peaks:?} bytes");
        assert_eq!(peaks.first(), peaks.last(), "{name}, {read}: twice as much takes more");
    }
}

#[test]
fn a_flood_of_any_message_in_any_state_fits_into_a_constant() {
    for (state, _) in PUBLISHER_STATES {
        check(state, || publisher_in(state));
    }
    for (state, _) in SUBSCRIBER_STATES {
        check(state, || subscriber_in(state));
    }
}

#[test]
fn answers_that_were_held_back_fit_into_it_however_many_pings_went_before() {
    const PINGS: usize = 20_000;
    let mut subscriber = subscriber_in("Ready");
    for _ in 0..PINGS {
        subscriber.ping(Instant::ZERO);
        subscriber.transmitted(usize::MAX);
    }
    let answers = vector("pong").repeat(PINGS);
    let peak = measure(|| subscriber.handle_bytes(Instant::ZERO, &answers, &mut VecDeque::new())).bytes_max;
    assert!(peak < MAX_BYTES, "{peak} bytes");
    let events = events(&mut subscriber);
    assert!((1..=100).contains(&events.len()) && events.iter().all(|event| *event == SubscriberEvent::Pong));
}

#[test]
fn whatever_fuzzing_found_fits_into_the_same_constant() {
    for (target, run) in TARGETS.into_iter().filter(|(target, _)| target.starts_with("session_")) {
        let mut most = 0;
        for entry in fs::read_dir(corpus(target)).unwrap() {
            let path = entry.unwrap().path();
            let data = fs::read(&path).unwrap();
            let peak = measure(|| run(&data)).bytes_max;
            assert!(peak < MAX_BYTES, "{}: {peak} bytes", path.display());
            most = most.max(peak);
        }
        assert!(most > 64 * 1024, "no input of {target} fills a session");
    }
}
