//! Every example runs as a program of its own, ends by itself or when it is told to, and says what it should.
//!
//! Cargo builds the examples with the tests of a package, unless one target is asked for alone.

#![expect(clippy::unwrap_used, reason = "a failure ends the test")]

#[path = "../../examples/custom_backend/backend.rs"]
mod backend;
mod backend_lab;
#[path = "../../examples/custom_backend/device.rs"]
mod device;
#[path = "../../examples/custom_backend/failed.rs"]
mod failed;
mod program;

use std::process::Command;

use rustix::process::{Signal, kill_process};

use crate::program::{Program, Stream};

/// What a subscriber prints of frames.
fn frames(output: &str) -> Vec<&str> {
    output.lines().filter(|line| line.starts_with("frame ")).collect()
}

/// Runs an example that is publisher and subscriber at once, with as many frames as it is to publish.
fn alone(name: &str, count: usize) -> String {
    let stream = Stream::new();
    let output = Program::start(stream.example(name).arg(count.to_string())).end();
    stream.assert_nothing_left();
    output
}

#[test]
fn a_subscriber_sees_the_frames_of_a_publisher_and_of_the_next_one() {
    let stream = Stream::new();
    let mut subscriber = Program::start(stream.example("subscriber").arg("15"));
    let first = Program::start(stream.example("publisher").arg("5"));
    let output = first.end();
    assert!(output.contains("published 5 frames"), "{output}");
    subscriber.wait_for("lost: ");
    // Until nobody is there to see it.
    let mut second = Program::start(&mut stream.example("publisher"));
    let output = subscriber.end();
    assert_eq!(output.matches("attached: gray8 640 x 480").count(), 2, "{output}");
    assert_eq!(frames(&output).len(), 15, "{output}");
    assert!(output.contains("took 15 frames, reconnected 1 times"), "{output}");
    second.wait_for("Left");
}

#[test]
fn both_ends_run_in_a_poll_of_ones_own() {
    let output = alone("own_poll", 40);
    let expected: Vec<_> = (1..=40).map(|seq| format!("frame {seq}: 368640 bytes")).collect();
    assert_eq!(frames(&output), expected);
}

#[test]
fn both_ends_run_in_an_epoll_loop() {
    let output = alone("raw_epoll", 40);
    let expected: Vec<_> = (1..=40).map(|seq| format!("frame {seq}: 368640 bytes")).collect();
    assert_eq!(frames(&output), expected);
    assert!(output.ends_with("published 40 frames\n"), "{output}");
}

#[test]
fn a_backend_of_ones_own_is_published_and_received() {
    let output = alone("custom_backend", 20);
    let intact = |line: &&str| line.ends_with(": intact true");
    assert_eq!(frames(&output).into_iter().filter(intact).count(), 20, "{output}");
}

#[test]
fn frames_go_over_a_link_beside_the_same_bytes_over_a_bare_socket() {
    let stream = Stream::new();
    let output = Program::start(stream.example("bridge_throughput").args(["3", "2"])).end();
    stream.assert_nothing_left();
    let lines: Vec<_> = output.lines().filter_map(|line| line.split(':').next()).collect();
    assert_eq!(lines, ["bare socket", "bridge", "ratio"], "{output}");
    assert_eq!(output.matches(" us to send, ").count(), 2, "{output}");
}

#[test]
fn tokio_takes_frames_until_it_has_enough() {
    let stream = Stream::new();
    let subscriber = Program::start(stream.example("tokio_asyncfd").arg("8"));
    let mut publisher = Program::start(&mut stream.example("publisher"));
    let output = subscriber.end();
    assert_eq!(frames(&output).len(), 8, "{output}");
    assert!(output.ends_with("took 8 frames\n"), "{output}");
    publisher.wait_for("Left");
}

#[test]
fn tokio_takes_frames_until_it_is_interrupted_and_says_goodbye() {
    let stream = Stream::new();
    let mut publisher = Program::start(&mut stream.example("publisher"));
    let mut subscriber = Program::start(&mut stream.example("tokio_asyncfd"));
    subscriber.wait_for("frame ");
    kill_process(subscriber.pid(), Signal::INT).unwrap();
    let output = subscriber.end();
    assert!(output.contains("took "), "{output}");
    publisher.wait_for("Left");
}

#[test]
fn an_example_without_a_key_says_how_it_is_used() {
    for name in [
        "bridge_throughput",
        "publisher",
        "subscriber",
        "own_poll",
        "raw_epoll",
        "tokio_asyncfd",
        "custom_backend",
    ] {
        let output = Command::new(program::path(name)).output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && error.contains(&format!("usage: {name} KEY")), "{error}");
    }
}
