//! `cuframes bridge` between two hosts: network namespaces with a cable between them, each with a `/dev/shm` of its own. Where
//! that is not permitted they say so, and are skipped; what needs no network of its own is tested in `it`.
//!
//! `CUFRAMES_SPAN_SECONDS` is for how long the large frames flow; 30 is what is promised.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a failure ends the test, which says what it skips"
)]

mod hosts;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hosts::{FAR, Pair, Process, until};
use serde_json::Value;

/// They share two processors, and each is about what happens in time.
static ALONE: Mutex<()> = Mutex::new(());

/// Two hosts, or nothing where there can be none.
fn pair(make: fn() -> Result<Pair, String>) -> Option<(MutexGuard<'static, ()>, Pair)> {
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    match make() {
        Ok(pair) => Some((alone, pair)),
        Err(why) => {
            println!("SKIPPED: two hosts: {why}");
            None
        }
    }
}

/// A stream that waits for its first subscriber, and then goes on by the clock.
fn publish(pair: &Pair, size: &str, fps: u64, frames: u64) -> Process {
    let words = "publish cam --pattern seq --policy strict-wait --patience 90 --wait-for 1 --wait-timeout 60";
    pair.near.start(&format!("{words} --size {size} --fps {fps} --frames {frames}"))
}

fn send(pair: &Pair) -> Process {
    pair.near.start(&format!("bridge send cam --to {FAR} --strict --patience 90 --wait 60 --json"))
}

fn recv(pair: &Pair) -> Process {
    pair.far.start(&format!("bridge recv --listen {FAR} --json"))
}

/// Checks each byte of what is published at the far end.
fn check(pair: &Pair) -> Process {
    pair.far.start("subscribe cam --mode strict --check-seq --reconnect --json")
}

/// Waits until frames are published at the far end.
fn until_it_flows(pair: &Pair) {
    let see = format!("{} inspect cam", env!("CARGO_BIN_EXE_cuframes"));
    until("the first frame at the far end", || pair.far.sh(&see).is_ok());
}

/// What a program reports when it is told to end, or has ended.
fn report(process: Process) -> Value {
    let text = process.end();
    let last = text.lines().last().unwrap_or_default();
    serde_json::from_str(last).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn interrupted(process: Process) -> Value {
    process.signal("INT");
    report(process)
}

/// Nothing was lost: all of it was sent, and has arrived.
fn assert_all_arrived(sent: &Value, frames: u64) {
    for (field, expected) in [
        ("sent", frames),
        ("arrived", frames),
        ("dropped", 0),
        ("left_out", 0),
        ("refused", 0),
        ("given_up", 0),
    ] {
        assert_eq!(sent[field], expected, "{field}: {sent}");
    }
}

/// What the far end has published is whole, and in order.
fn assert_intact(seen: &Value) {
    assert_eq!(seen["torn"], 0, "{seen}");
    assert!(seen["frames"].as_u64().unwrap() > 0, "{seen}");
}

#[test]
fn frames_of_1080p_at_60_per_second_all_arrive() {
    let Some((_alone, pair)) = pair(Pair::new) else { return };
    let seconds = std::env::var("CUFRAMES_SPAN_SECONDS").map_or(4, |text| text.parse().unwrap());
    let frames = 60 * seconds;
    let (recv, seen) = (recv(&pair), check(&pair));
    let publisher = publish(&pair, "1920x1080", 60, frames);
    let sent = report(send(&pair));
    publisher.end();
    assert_all_arrived(&sent, frames);
    let seen = interrupted(seen);
    assert_intact(&seen);
    assert_eq!(seen["dropped"], 0, "{seen}");
    let received = interrupted(recv);
    let stream = &received["streams"][0];
    let summary = [&stream["frames"], &stream["first_seq"], &stream["last_seq"], &stream["publications"]];
    assert_eq!(summary, [frames, 1, frames, 1], "{received}");
    println!("sender: {sent}\nreceiver: {received}\nsubscriber: {seen}");
}

#[test]
fn a_link_that_is_cut_for_two_seconds_goes_on_by_itself_and_nothing_is_lost() {
    let Some((_alone, pair)) = pair(Pair::new) else { return };
    let (recv, seen) = (recv(&pair), check(&pair));
    let publisher = publish(&pair, "640x480", 30, 150);
    let send = send(&pair);
    until_it_flows(&pair);
    pair.near.sh("ip link set cable down").unwrap();
    std::thread::sleep(Duration::from_secs(2));
    pair.near.sh("ip link set cable up").unwrap();
    assert_all_arrived(&report(send), 150);
    publisher.end();
    assert_intact(&interrupted(seen));
    let received = interrupted(recv);
    assert_eq!(
        (&received["streams"][0]["last_seq"], &received["streams"][0]["publications"]),
        (&150.into(), &1.into())
    );
}

#[test]
fn a_receiver_that_is_killed_and_started_again_gets_what_had_not_arrived() {
    let Some((_alone, pair)) = pair(Pair::new) else { return };
    let (first, seen) = (recv(&pair), check(&pair));
    let publisher = publish(&pair, "640x480", 30, 120);
    let send = send(&pair);
    until_it_flows(&pair);
    first.kill();
    let second = recv(&pair);
    let sent = report(send);
    assert_all_arrived(&sent, 120);
    assert_eq!(sent["lost_connections"], 1, "{sent}");
    publisher.end();
    assert_intact(&interrupted(seen));
    let received = interrupted(second);
    let stream = &received["streams"][0];
    assert_eq!(stream["last_seq"], 120, "{received}");
    // All from its first one on.
    let first = stream["first_seq"].as_u64().unwrap();
    assert_eq!(stream["frames"], 121 - first, "{received}");
}

#[test]
fn a_sender_that_is_killed_and_started_again_goes_on_with_the_same_stream() {
    let Some((_alone, pair)) = pair(Pair::new) else { return };
    let (recv, seen) = (recv(&pair), check(&pair));
    let publisher = publish(&pair, "640x480", 30, 120);
    let first = send(&pair);
    until_it_flows(&pair);
    first.kill();
    let sent = report(send(&pair));
    assert_eq!([&sent["given_up"], &sent["refused"]], [0, 0], "{sent}");
    publisher.end();
    let seen = interrupted(seen);
    assert_intact(&seen);
    let received = interrupted(recv);
    let stream = &received["streams"][0];
    assert_eq!([&stream["publications"], &stream["last_seq"]], [1, 120], "{received}");
    assert!(stream["frames"].as_u64().unwrap() <= 120, "one was published twice: {received}");
    assert_eq!(received["senders"], 0, "{received}");
}

#[test]
fn a_link_that_loses_a_tenth_of_its_packets_loses_no_frame() {
    let Some((_alone, pair)) = pair(Pair::lossy) else { return };
    let (recv, seen) = (recv(&pair), check(&pair));
    let publisher = publish(&pair, "160x120", 10, 30);
    let sent = report(send(&pair));
    assert_all_arrived(&sent, 30);
    publisher.end();
    assert_intact(&interrupted(seen));
    let received = interrupted(recv);
    assert_eq!(received["streams"][0]["frames"], 30, "{received}");
    println!("sender: {sent}\nreceiver: {received}");
}
