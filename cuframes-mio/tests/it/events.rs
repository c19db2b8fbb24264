//! What the operator reads: `tracing` events of the control plane, with the stream, the peer and the cause.

use std::io::Write;
use std::sync::OnceLock;
use std::time::Duration;

use crate::common::{LONG, NEWEST, STRICT, Stream, until};
use crate::raw::RawPeer;
use crate::slow::Slow;
use crate::traces::{Lines, OF_PUBLISHERS};
use cuframes_mio::core::gpu::Call;
use cuframes_mio::core::wire::ShutdownReason;
use cuframes_mio::core::{Policy, Timeouts};
use cuframes_testkit::vectors::vector;
use tracing::Level;

/// Every event of this process but for those of threads that listen for themselves.
fn lines() -> &'static Lines {
    static LINES: OnceLock<Lines> = OnceLock::new();
    LINES.get_or_init(|| {
        let lines = Lines::default();
        tracing::subscriber::set_global_default(lines.clone()).unwrap();
        lines
    })
}

/// The events of a stream so far, once there is one with `last` in it.
fn events(stream: &Stream, last: &str) -> Vec<(Level, String)> {
    let key = format!("key={} ", stream.key);
    let of_stream = || -> Vec<_> {
        let lines = lines().0.lock().unwrap();
        let is_ours = |line: &str| line.starts_with(OF_PUBLISHERS) && line.contains(&key);
        lines.iter().filter(|(_, line)| is_ours(line)).cloned().collect()
    };
    until(last, || of_stream().iter().any(|(_, line)| line.contains(last)));
    of_stream()
}

#[test]
fn a_life_without_trouble_is_told_in_four_events() {
    let _ = lines();
    let stream = Stream::new();
    let publisher = stream.publisher(2, Policy::DROP_OLDEST).create().unwrap().serve().unwrap();
    drop(stream.subscriber("eye", NEWEST).connect().unwrap());
    events(&stream, "a subscriber left");
    publisher.shut_down(ShutdownReason::UPGRADE).unwrap();
    let events = events(&stream, "the stream ends");
    let peer = format!("pid={} name=eye bit=1 ", std::process::id());
    let expected = [
        ("the stream is published", format!("region={} ", stream.region().display())),
        ("a subscriber joined", peer.clone()),
        ("a subscriber left", peer),
        ("the stream ends", "reason=upgrade subscribers=0 ".into()),
    ];
    assert_eq!(events.len(), expected.len(), "{events:#?}");
    for ((level, line), (message, fields)) in events.iter().zip(expected) {
        assert_eq!(*level, Level::INFO);
        assert!(line.contains(message) && line.contains(&fields), "{line}");
    }
}

#[test]
fn whoever_is_sent_away_is_named_with_the_cause() {
    let _ = lines();
    let stream = Stream::new();
    let mut timeouts = Timeouts::default();
    timeouts.lease = Duration::from_millis(50);
    let builder = stream.publisher(1, Policy::DROP_OLDEST).timeouts(timeouts);
    let mut publisher = builder.create().unwrap().serve().unwrap();
    let us = format!("pid={} uid={} ", std::process::id(), rustix::process::geteuid().as_raw());
    let refused = |bytes: &[u8], cause: &str| {
        let mut peer = RawPeer::connect(stream.socket());
        peer.socket.write_all(bytes).unwrap();
        peer.rest();
        let events = events(&stream, cause);
        let (level, line) = events.last().unwrap();
        assert_eq!(*level, Level::WARN);
        assert!(line.contains("a connection was refused") && line.contains(&us), "{line}");
    };
    refused(&vector("subscribe_req"), "the peer broke the protocol: SUBSCRIBE_REQ message_type: ");
    refused(&vector("hello_req_nv"), "rejected with UNSUPPORTED");

    let mut holder = stream.subscriber("holder", STRICT).connect().unwrap();
    publisher.claim().unwrap().commit();
    let frame = holder.next(LONG).unwrap().unwrap();
    publisher.claim().unwrap().commit();
    let events_so_far = events(&stream, "a subscriber was evicted");
    let (level, line) = events_so_far.last().unwrap();
    assert_eq!(*level, Level::WARN);
    assert!(
        line.contains("name=holder ") && line.contains("cause=\"it held a lease for too long\""),
        "{line}"
    );
    drop(frame);

    let mut rude = RawPeer::subscribe(stream.socket());
    rude.socket.write_all(&vector("hello_req_features")).unwrap();
    rude.rest();
    let events_so_far = events(&stream, "a subscriber's connection was closed");
    let (level, line) = events_so_far.last().unwrap();
    assert!(*level == Level::WARN && line.contains("HELLO_REQ"), "{line}");
}

#[test]
fn a_flood_of_refusals_is_cut_short() {
    let _ = lines();
    let stream = Stream::new();
    let publisher = stream.publisher(1, Policy::DROP_OLDEST).create().unwrap().serve().unwrap();
    for _ in 0..100 {
        let mut peer = RawPeer::connect(stream.socket());
        peer.socket.write_all(&vector("hello_req_v2")).unwrap();
        peer.rest();
    }
    until("all to be refused", || publisher.stats().refused.protocol == 100);
    let said = events(&stream, "a connection was refused").len();
    assert!(said < 100, "{said} events");
}

#[test]
fn who_says_why_it_can_not_go_on_is_told_with_that_cause() {
    let _ = lines();
    let stream = Stream::new();
    let device = Slow::new(&stream.key);
    let _publisher = stream.publisher(1, Policy::DROP_OLDEST).create().unwrap().serve().unwrap();
    device.fail(Call::OpenMem);
    stream.subscriber("blind", STRICT).connect_on(device).unwrap_err();
    let said = events(&stream, "a subscriber's connection was closed");
    let (level, line) = said.last().unwrap();
    assert_eq!(*level, Level::WARN);
    assert!(line.contains("name=blind ") && line.contains("open_mem: it was told to"), "{line}");
}

#[test]
fn a_flood_of_subscribers_that_come_and_go_is_cut_short_and_hides_no_eviction() {
    let _ = lines();
    let stream = Stream::new();
    let mut timeouts = Timeouts::default();
    timeouts.lease = Duration::from_millis(50);
    let builder = stream.publisher(1, Policy::DROP_OLDEST).timeouts(timeouts);
    let mut publisher = builder.create().unwrap().serve().unwrap();
    for _ in 0..100 {
        drop(stream.subscriber("restless", NEWEST).connect().unwrap());
    }
    until("all to be gone", || publisher.stats().left.unsubscribed == 100);
    let mut holder = stream.subscriber("holder", STRICT).connect().unwrap();
    publisher.claim().unwrap().commit();
    let frame = holder.next(LONG).unwrap().unwrap();
    publisher.claim().unwrap().commit();
    let events = events(&stream, "a subscriber was evicted");
    for message in ["a subscriber joined", "a subscriber left"] {
        let said = events.iter().filter(|(_, line)| line.contains(message)).count();
        assert!(said < 100, "{said} times {message}");
    }
    drop(frame);
}

#[test]
fn what_the_operator_must_act_on_is_an_error() {
    let _ = lines();
    let stream = Stream::new();
    let _publisher = stream.publisher(1, Policy::DROP_OLDEST).create().unwrap().serve().unwrap();
    std::fs::remove_file(stream.region()).unwrap();
    std::fs::remove_file(stream.socket()).unwrap();
    let events = events(&stream, "the socket was deleted");
    let errors: Vec<_> = events.iter().filter(|(level, _)| *level == Level::ERROR).collect();
    assert_eq!(errors.len(), 2, "{events:#?}");
    assert!(errors[0].1.contains("the region was deleted"), "{errors:?}");
}
