//! Whoever was evicted may come back, but not at once again and again; and what is kept of it goes (D-19, D-31).

use std::io::Write;
use std::time::{Duration, Instant};

use crate::common::{NEWEST, STRICT, Stream, events, meta, next, publish, told, until};
use crate::other::{Other, hear, tell};
use crate::raw::{RawPeer, error_in};
use cuframes_mio::core::error::ErrorCode;
use cuframes_mio::core::{Policy, Timeouts};
use cuframes_mio::{Publisher, ServedPublisher, StreamEvent};
use cuframes_testkit::vectors::vector;

const DEADLINE: Duration = Duration::from_millis(500);

fn strict(stream: &Stream) -> ServedPublisher {
    let mut timeouts = Timeouts::default();
    timeouts.consumer_ack = DEADLINE;
    stream.publisher(1, Policy::STRICT_WAIT).timeouts(timeouts).create().unwrap().serve().unwrap()
}

#[test]
fn a_process_that_is_evicted_again_and_again_is_let_in_later_each_time() {
    let stream = Stream::new();
    let mut publisher = strict(&stream);
    let evict = |publisher: &mut ServedPublisher| {
        let mut peer = RawPeer::subscribe(stream.socket());
        for _ in 0..2 {
            publish(publisher);
        }
        assert_eq!(error_in(&peer.rest()).code, ErrorCode::EVICTED);
    };
    evict(&mut publisher);
    // Who has connected before does not get round it.
    let mut early = RawPeer::connect(stream.socket());
    assert_eq!(publisher.stats().refused.evicted, 0);
    for pause in [DEADLINE, 2 * DEADLINE] {
        evict(&mut publisher);
        let (start, refused) = (Instant::now(), publisher.stats().refused.evicted);
        let mut peer = std::mem::replace(&mut early, RawPeer::connect(stream.socket()));
        peer.socket.write_all(&[vector("hello_req_features"), vector("subscribe_req")].concat()).unwrap();
        let error = error_in(&peer.rest());
        assert_eq!(error.code, ErrorCode::EVICTED);
        assert!(error.message.contains("evicted again and again; it may come back in "), "{error:?}");
        assert_eq!(publisher.stats().refused.evicted, refused + 1);
        until("the return", || stream.subscriber("back", NEWEST).connect().is_ok());
        // The pause began with the eviction, a moment before.
        assert!(start.elapsed() > pause / 2);
    }
    assert_eq!(publisher.stats().left.evicted_for_ack, 3);
}

#[test]
fn a_subscriber_that_reconnects_waits_until_it_is_let_in_again() {
    let stream = Stream::new();
    let mut publisher = strict(&stream);
    let mut subscriber = stream.reconnecting(STRICT).connect().unwrap();
    let mut refused = false;
    for reconnects in 1..=3 {
        publish(&mut publisher);
        let frame = next(&mut subscriber);
        publish(&mut publisher);
        drop(frame);
        until("the return", || {
            let _ = subscriber.next(Duration::from_millis(1)).unwrap();
            refused |= subscriber.trouble().is_some_and(|trouble| trouble.code() == ErrorCode::EVICTED);
            subscriber.stats().reconnects == reconnects
        });
    }
    assert!(refused && publisher.stats().refused.evicted > 0);
    assert_eq!(subscriber.stats().evictions, 3, "a refusal is no eviction");
    let lost = events(&mut subscriber).iter().filter(|event| matches!(event, StreamEvent::Lost(_))).count();
    assert_eq!(lost, 3);
}

#[test]
#[ignore = "needs a process of its own: started by the test below"]
fn child_counts_the_processes_that_it_watches() {
    let (key, dir) = told();
    let mut timeouts = Timeouts::default();
    timeouts.quarantine = Duration::from_millis(100);
    let builder = Publisher::builder(key, meta()).run_dir(dir).timeouts(timeouts);
    let _publisher = builder.create().unwrap().serve().unwrap();
    tell("ready");
    while hear().is_some() {
        let fds = std::fs::read_dir("/proc/self/fd").unwrap();
        let links = fds.filter_map(|fd| std::fs::read_link(fd.unwrap().path()).ok());
        tell(&links.filter(|link| link.to_string_lossy().contains("pidfd")).count().to_string());
    }
}

#[test]
fn the_process_behind_a_bit_is_watched_no_longer_than_the_bit_rests() {
    let stream = Stream::new();
    let mut publisher = Other::start("evictions::child_counts_the_processes_that_it_watches", &stream);
    let mut watched = || {
        publisher.say("");
        publisher.hear().parse::<u32>().unwrap()
    };
    let peers = [(); 5].map(|()| RawPeer::subscribe(stream.socket()));
    if watched() == 0 {
        println!("SKIPPED: this system has no pidfds");
        return;
    }
    assert_eq!(watched(), 5);
    drop(peers);
    until("all bits to have rested", || watched() == 0);
}
