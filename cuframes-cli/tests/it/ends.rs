//! Commands end when they are told to, when nobody reads their output, and when they have done what was asked.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;

use rustix::process::Signal;

use crate::stage::{Process, Stage, strict, video, wait_until};

#[test]
fn a_signal_ends_those_who_wait_for_a_publisher_that_does_not_answer() {
    let stage = Stage::new();
    let publisher = stage.start("publish KEY --pattern bars --size 64x32");
    stage.wait_for_socket();
    publisher.signal(Signal::STOP);
    let lines = ["snapshot KEY DIR/out.png --timeout 100000", "record KEY DIR/out.mkv --timeout 100000"];
    let waiting = lines.map(|line| {
        let process = stage.start(line);
        wait_until("the connection", || process.sockets() > 0);
        process
    });
    for (process, code) in waiting.into_iter().zip([1, 0]) {
        process.signal(Signal::TERM);
        let ended = process.end();
        assert_eq!(ended.code(), Some(code), "{ended:?}");
    }
}

#[test]
fn a_signal_ends_a_publisher_and_its_subscribers_and_leaves_nothing_behind() {
    for stop in [Signal::INT, Signal::TERM] {
        let stage = Stage::new();
        let publisher = stage.start("publish KEY --pattern seq --size 320x200 --fps 100");
        let reader = stage.start("subscribe KEY --y4m DIR/out.y4m --json --timeout 120");
        wait_until("a frame", || fs::metadata(stage.path("out.y4m")).is_ok_and(|file| file.len() > 100));
        publisher.signal(stop);
        let publisher = publisher.end().succeeded();
        assert!(publisher.stdout.contains("stopped by a signal"), "{publisher:?}");
        assert_eq!(reader.end().succeeded().json()["end"], "stream");
        assert!(stage.leftovers().is_empty(), "{:?}", stage.leftovers());
    }
}

#[test]
fn a_signal_ends_a_publisher_that_waits_for_a_subscriber_to_go_on() {
    let stage = Stage::new();
    let publisher = stage.start(&format!("publish KEY --pattern seq --size 64x32 --frames 4 {}", strict(1)));
    stage.run("record KEY DIR/in.mkv --timeout 120").succeeded();
    publisher.end().succeeded();
    for line in ["publish KEY --pattern seq --size 64x32", "replay DIR/in.mkv KEY --loop"] {
        let publisher = stage.start(&format!(
            "{line} --fps 0 --ring 2 --policy strict-wait --patience 100000 --wait-for 1 --wait-timeout 100"
        ));
        stage.wait_for_socket();
        let holder = stage
            .start("subscribe KEY --mode strict --delay 100000000 --y4m DIR/out.y4m --force --timeout 120");
        // What the holder has in hand, and one more.
        wait_until("the second frame", || {
            stage.run("inspect KEY --json").json()["newest"].as_u64().is_some_and(|newest| newest >= 2)
        });
        publisher.signal(Signal::INT);
        assert!(publisher.end().succeeded().stdout.contains("stopped by a signal"), "{line}");
        holder.signal(Signal::KILL);
        let _ = holder.end();
    }
}

#[test]
fn a_signal_ends_a_subscriber_and_the_publisher_goes_on() {
    let stage = Stage::new();
    let publisher = stage.start("publish KEY --pattern seq --size 320x200 --fps 100");
    let reader = stage.start("subscribe KEY --y4m DIR/out.y4m --json --timeout 120");
    wait_until("a frame", || fs::metadata(stage.path("out.y4m")).is_ok_and(|file| file.len() > 100));
    reader.signal(Signal::INT);
    assert_eq!(reader.end().succeeded().json()["end"], "signal");
    let next = stage.run("subscribe KEY --frames 2 --json --timeout 120").succeeded().json();
    assert_eq!((&next["frames"], &next["end"]), (&2.into(), &"frames".into()));
    publisher.signal(Signal::INT);
    publisher.end().succeeded();
}

#[test]
fn a_signal_ends_a_publisher_that_waits_for_input_for_subscribers_or_for_the_next_frame() {
    for line in [
        "publish KEY --y4m - --fps 0",
        "publish KEY --pattern seq --wait-for 5 --wait-timeout 100000",
        "publish KEY --pattern seq --fps 1/1000",
    ] {
        let stage = Stage::new();
        let mut publisher = Process::start(stage.cuframes(line).stdin(Stdio::piped()));
        let mut input = publisher.child().stdin.take().unwrap();
        input.write_all(&video("W6 H4", 36, 1)).unwrap();
        input.write_all(b"FRAME\nthe second frame is not whole").unwrap();
        stage.wait_for_socket();
        publisher.signal(Signal::TERM);
        let publisher = publisher.end().succeeded();
        assert!(publisher.stdout.contains("stopped by a signal"), "{line}: {publisher:?}");
        assert!(stage.leftovers().is_empty());
    }
}

#[test]
fn a_closed_pipe_ends_a_subscriber_well() {
    let stage = Stage::new();
    let publisher = stage.start("publish KEY --pattern bars --size 320x200 --fps 0");
    stage.wait_for_socket();
    let mut reader = stage.start("subscribe KEY --y4m - --json --timeout 120");
    let mut pipe = reader.child().stdout.take().unwrap();
    pipe.read_exact(&mut [0; 200_000]).unwrap();
    drop(pipe);
    let reader = reader.end().succeeded();
    assert!(reader.stderr.contains(r#""end":"closed-pipe""#), "{reader:?}");
    publisher.signal(Signal::TERM);
    publisher.end().succeeded();
}

#[test]
fn one_signal_is_enough_for_a_subscriber_whose_pipe_nobody_reads() {
    let stage = Stage::new();
    let publisher = stage.start("publish KEY --pattern bars --size 640x480");
    let mut reader = stage.start("subscribe KEY --y4m - --timeout 120");
    let mut pipe = reader.child().stdout.take().unwrap();
    pipe.read_exact(&mut [0; 200]).unwrap();
    reader.signal(Signal::TERM);
    wait_until("the end", || reader.child().try_wait().unwrap().is_some());
    assert_eq!(reader.end().code(), Some(0));
    publisher.signal(Signal::TERM);
    publisher.end().succeeded();
}

#[test]
fn a_signal_that_is_repeated_ends_what_can_not_end_by_itself() {
    let stage = Stage::new();
    let publisher = stage.start("publish KEY --pattern bars --size 640x480");
    let mut reader = stage.start("subscribe KEY --y4m - --timeout 120");
    let mut pipe = reader.child().stdout.take().unwrap();
    pipe.read_exact(&mut [0; 200]).unwrap();
    // Nobody reads the rest of the frame, which is more than a pipe holds.
    wait_until("the end", || {
        reader.signal(Signal::TERM);
        reader.child().try_wait().unwrap().is_some()
    });
    assert_eq!(reader.end().status.signal(), Some(Signal::TERM.as_raw()));
    publisher.signal(Signal::TERM);
    publisher.end().succeeded();
}

#[test]
fn a_report_that_nobody_reads_is_no_error_and_a_full_disk_is_one() {
    let stage = Stage::new();
    let mut publisher = stage.start("publish KEY --pattern seq --size 64x4 --frames 1");
    drop(publisher.child().stdout.take());
    publisher.end().succeeded();
    let full = File::options().write(true).open("/dev/full").unwrap();
    let publisher =
        Process::start(stage.cuframes("publish KEY --pattern seq --size 64x4 --frames 1").stdout(full));
    let publisher = publisher.end();
    assert_eq!(publisher.code(), Some(1));
    assert!(publisher.stderr.contains("No space left on device"), "{publisher:?}");
}

#[test]
fn a_slow_subscriber_sees_gaps_and_never_torn_frames_under_drop_oldest() {
    for ring in [2, 3, 8] {
        let stage = Stage::new();
        let publisher =
            stage.start(&format!("publish KEY --pattern seq --size 333x50 --fps 0 --ring {ring}"));
        for mode in ["newest", "strict"] {
            let line =
                format!("subscribe KEY --mode {mode} --check-seq --delay 3 --frames 40 --json --timeout 120");
            let report = stage.run(&line).succeeded().json();
            assert_eq!((&report["torn"], &report["frames"]), (&0.into(), &40.into()), "ring {ring}, {mode}");
            assert!(report["dropped"].as_u64() > Some(0), "ring {ring}, {mode}: {report}");
            let taken = report["last_seq"].as_u64().unwrap() - report["first_seq"].as_u64().unwrap() + 1;
            assert_eq!(taken, 40 + report["dropped"].as_u64().unwrap(), "ring {ring}, {mode}: {report}");
        }
        publisher.signal(Signal::TERM);
        publisher.end().succeeded();
    }
}

#[test]
fn a_slow_subscriber_slows_a_strict_publisher_and_loses_nothing() {
    let stage = Stage::new();
    let readers = ["--delay 2", ""].map(|delay| {
        stage.start(&format!("subscribe KEY --mode strict --check-seq --json --timeout 120 {delay}"))
    });
    stage
        .run(&format!("publish KEY --pattern seq --size 64x64 --frames 100 --fps 0 --ring 2 {}", strict(2)))
        .succeeded();
    for reader in readers {
        let report = reader.end().succeeded().json();
        let seen = ["frames", "dropped", "torn", "first_seq", "last_seq"]
            .map(|field| report[field].as_u64().unwrap());
        assert_eq!(seen, [100, 0, 0, 1, 100]);
        assert!(report["latency_ns"]["p50"].as_u64() <= report["latency_ns"]["max"].as_u64());
    }
}

#[test]
fn a_subscriber_that_keeps_a_strict_publisher_waiting_is_evicted_and_the_others_go_on() {
    let stage = Stage::new();
    let slow = stage.start("subscribe KEY --mode strict --delay 4000 --json --timeout 120");
    let other = stage.start("subscribe KEY --mode strict --check-seq --json --timeout 120");
    let publisher = stage
        .run(&format!("publish KEY --pattern seq --size 64x64 --frames 50 --fps 0 --ring 2 {}", strict(2)))
        .succeeded();
    assert!(publisher.stderr.contains(": evicted cuframes (pid "), "{publisher:?}");
    assert_eq!(other.end().succeeded().json()["frames"], 50);
    let slow = slow.end();
    assert_eq!(slow.code(), Some(1), "{slow:?}");
    assert!(
        slow.stderr.contains("EVICTED") && slow.stderr.contains("; take and release frames faster"),
        "{slow:?}"
    );
}

#[test]
fn a_signal_ends_a_publisher_that_waits_for_the_writer_of_a_named_pipe() {
    let stage = Stage::new();
    let made = std::process::Command::new("mkfifo").arg(stage.path("fifo")).status();
    assert!(made.unwrap().success());
    let mut publisher = stage.start("publish KEY --y4m DIR/fifo");
    let fds = format!("/proc/{}/fd", publisher.child().id());
    wait_until("the pipe is open", || {
        let links = fs::read_dir(&fds).into_iter().flatten().flatten();
        links.filter_map(|link| fs::read_link(link.path()).ok()).any(|path| path == stage.path("fifo"))
    });
    publisher.signal(Signal::TERM);
    assert_eq!(publisher.end().code(), Some(0));
}
