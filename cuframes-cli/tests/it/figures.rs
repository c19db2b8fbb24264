//! What is told of streams and subscribers that are not as most are.

use std::process::Command;

use rustix::process::Signal;
use serde_json::Value;

use crate::stage::{Process, Stage, strict, wait_until};

/// The looks of `top` at the stream.
fn looks(stage: &Stage, options: &str) -> Vec<Value> {
    let ended = stage.run(&format!("top KEY --json {options}")).succeeded();
    let looks = ended.stdout.lines().map(|line| {
        let report: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        report["streams"][0].clone()
    });
    looks.collect()
}

fn state(stage: &Stage) -> Value {
    let report = stage.run("ls --window 0.1 --json").succeeded().json();
    report["streams"][0]["state"].clone()
}

#[test]
fn who_takes_frames_by_their_numbers_is_not_said_to_lose_the_others() {
    let stage = Stage::new();
    let publisher = stage.start("publish KEY --pattern seq --size 64x32 --fps 200 --ring 4");
    stage.wait_for_socket();
    let mut command: Command = stage.cuframes("dispatch KEY --workers 2 --json");
    command.arg("--").args([env!("CARGO_BIN_EXE_cuframes"), "work"]);
    let dispatching = Process::start(&mut command);
    let mut workers = Vec::new();
    wait_until("workers that have seen many frames go by", || {
        let looks = looks(&stage, "--count 4 --interval 0.2");
        let (first, last) = (&looks[0], &looks[looks.len() - 1]);
        let seen = |look: &Value| -> Vec<Value> {
            let all = look["subscribers_seen"].as_array().unwrap().iter();
            all.filter(|one| one["name"] == "cuframes-work").cloned().collect()
        };
        workers = seen(last);
        let went_by = last["newest"].as_u64().unwrap() - first["newest"].as_u64().unwrap();
        seen(first).len() == 2 && workers.len() == 2 && went_by > 20
    });
    for worker in &workers {
        assert_eq!((&worker["lag"], &worker["lost"]), (&Value::Null, &0.into()), "{worker}");
    }
    for process in [dispatching, publisher] {
        process.signal(Signal::TERM);
        process.end();
    }
}

#[test]
fn a_publisher_whose_source_does_not_begin_is_stalled() {
    let stage = Stage::new();
    let publisher = stage.start("publish KEY --pattern seq --size 64x32 --wait-for 1 --wait-timeout 1000");
    stage.wait_for_socket();
    wait_until("the stream to be old enough", || state(&stage) == "stalled");
    publisher.signal(Signal::TERM);
    publisher.end().succeeded();
}

#[test]
fn a_slow_stream_with_stamps_of_another_time_is_live_when_its_frames_were_seen_to_come() {
    let stage = Stage::new();
    let recording = format!("publish KEY --pattern seq --size 64x32 --frames 40 {}", strict(1));
    let publisher = stage.start(&recording);
    stage.run("record KEY DIR/in.mkv --timeout 120").succeeded();
    publisher.end().succeeded();
    let replaying = stage.start("replay DIR/in.mkv KEY --loop --fps 4");
    stage.wait_for_socket();
    wait_until("a look that finds nothing new, and yet a stream that is live", || {
        let looks = looks(&stage, "--count 12 --interval 0.1");
        // The stamps are older than a second by now, or were said of a round that is to come.
        looks
            .iter()
            .any(|look| look["fps"] == 0.0 && look["state"] == "live" && look["last_frame_age_s"].is_f64())
    });
    replaying.signal(Signal::TERM);
    replaying.end().succeeded();
}
