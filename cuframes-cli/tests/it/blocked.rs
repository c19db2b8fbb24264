//! A standard stream that nobody reads stops no stream and keeps no program alive.

use std::fs::File;
use std::io::{ErrorKind, PipeReader, Read, Write, pipe};
use std::os::fd::OwnedFd;

use rustix::fs::{OFlags, fcntl_setfl};
use rustix::process::Signal;

use crate::stage::{Process, Stage, strict};

/// A pipe that is full already, so that the next write to it waits.
fn full_pipe() -> (PipeReader, OwnedFd) {
    let (reader, mut writer) = pipe().unwrap();
    fcntl_setfl(&writer, OFlags::NONBLOCK).unwrap();
    while writer.write(&[b'.'; 4096]).is_ok() {}
    assert_eq!(writer.write(b".").unwrap_err().kind(), ErrorKind::WouldBlock);
    fcntl_setfl(&writer, OFlags::empty()).unwrap();
    (reader, writer.into())
}

/// What a program has written into a pipe that was full, after its end.
fn rest(mut reader: PipeReader) -> String {
    let mut text = String::new();
    reader.read_to_string(&mut text).unwrap();
    text.trim_start_matches('.').into()
}

#[test]
fn a_log_that_nobody_reads_stops_neither_a_publisher_nor_those_who_join_nor_its_end() {
    for policy in ["drop-oldest", "strict-wait"] {
        let stage = Stage::new();
        let (reader, stderr) = full_pipe();
        let line = format!("publish KEY --pattern seq --size 64x4 --fps 100 -v --policy {policy}");
        let publisher = Process::start(stage.cuframes(&line).stderr(stderr));
        stage.wait_for_socket();
        // It tells of each one that comes or goes.
        for _ in 0..3 {
            stage.run("subscribe KEY --frames 2 --mode strict --timeout 120").succeeded();
        }
        // Whoever vanishes is noticed by the same thread that writes the log.
        let killed = stage.start("subscribe KEY --y4m DIR/out.y4m --mode strict --timeout 120");
        killed.signal(Signal::KILL);
        killed.end();
        stage.run("subscribe KEY --frames 2 --mode strict --timeout 120").succeeded();
        publisher.signal(Signal::TERM);
        let publisher = publisher.end().succeeded();
        assert!(publisher.stdout.contains("stopped by a signal"), "{publisher:?}");
        assert!(stage.leftovers().is_empty(), "{:?}", stage.leftovers());
        drop(reader);
    }
}

#[test]
fn a_subscriber_whose_log_nobody_reads_takes_every_frame_and_reports_them() {
    let stage = Stage::new();
    let (reader, stderr) = full_pipe();
    let line = "subscribe KEY -v --reconnect --mode strict --check-seq --json --frames 50";
    let subscriber = Process::start(stage.cuframes(line).stderr(stderr));
    stage.run(&format!("publish KEY --pattern seq --size 64x4 --frames 50 {}", strict(1))).succeeded();
    let report = subscriber.end().succeeded().json();
    assert_eq!((&report["frames"], &report["torn"]), (&50.into(), &0.into()), "{report}");
    drop(reader);
}

#[test]
fn a_dispatcher_whose_lines_nobody_reads_keeps_no_publisher_waiting_and_loses_none() {
    let stage = Stage::new();
    // For longer than the publisher's patience.
    let publisher = stage.start(
        "publish KEY --pattern seq --size 64x4 --fps 100 --frames 300 --policy strict-wait --wait-for 2 \
         --wait-timeout 120",
    );
    stage.wait_for_socket();
    let (reader, stdout) = full_pipe();
    let mut dispatch = stage.cuframes("dispatch KEY --workers 1 --each --json --");
    dispatch.args([env!("CARGO_BIN_EXE_cuframes"), "work", "--check-seq", "--exec", "true"]).stdout(stdout);
    let dispatching = Process::start(&mut dispatch);
    drop(dispatch);
    let publisher = publisher.end().succeeded();
    assert!(!publisher.stderr.contains("evicted"), "{publisher:?}");
    let text = rest(reader);
    assert_eq!(dispatching.end().succeeded().stderr, "");
    let lines: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let (report, blocks) = lines.split_last().unwrap();
    assert!(blocks.iter().map(|block| block["seq"].as_u64().unwrap()).eq(1..=300), "{text}");
    assert_eq!((&report["done"], &report["unread"]), (&300.into(), &0.into()));
}

#[test]
fn the_last_lines_of_a_log_are_there_when_somebody_reads_it() {
    let stage = Stage::new();
    let line = "publish KEY --pattern seq --size 64x4 --frames 1 -v";
    let publisher = stage.run(line).succeeded();
    let lines: Vec<_> = publisher.stderr.lines().collect();
    let [first, last] = lines[..] else { panic!("{publisher:?}") };
    assert!(first.contains("the stream is published") && last.contains("the stream ends"), "{publisher:?}");
}

#[test]
fn an_error_that_nobody_reads_does_not_keep_the_program_alive() {
    let stage = Stage::new();
    let (reader, stderr) = full_pipe();
    let subscriber = Process::start(stage.cuframes("subscribe KEY --timeout 0").stderr(stderr));
    assert_eq!(subscriber.end().code(), Some(1));
    drop(reader);
}

#[test]
fn a_report_waits_for_a_reader_that_is_late() {
    let stage = Stage::new();
    let (reader, stdout) = full_pipe();
    let line = "publish KEY --pattern seq --size 64x4 --frames 1";
    let publisher = Process::start(stage.cuframes(line).stdout(stdout));
    let reading = std::thread::spawn(move || rest(reader));
    publisher.end().succeeded();
    assert!(reading.join().unwrap().contains(": 1 frame"), "the report");
}

#[test]
fn one_signal_is_enough_for_a_program_whose_report_nobody_reads() {
    let stage = Stage::new();
    let (reader, stdout) = full_pipe();
    let line = "publish KEY --pattern seq --size 64x4 --fps 100";
    let publisher = Process::start(stage.cuframes(line).stdout(stdout));
    stage.wait_for_socket();
    publisher.signal(Signal::TERM);
    assert_eq!(publisher.end().code(), Some(0));
    assert!(stage.leftovers().is_empty(), "{:?}", stage.leftovers());
    drop(reader);
}

#[test]
fn a_process_whose_parent_reads_no_reports_goes_on() {
    let stage = Stage::new();
    let (reader, stdout) = full_pipe();
    let line = format!("publish KEY --pattern seq --size 64x4 --fps 100 --report-to {}", std::process::id());
    let publisher = Process::start(stage.cuframes(&line).stdout(stdout));
    stage.wait_for_socket();
    // For longer than two reports are apart.
    stage.run("subscribe KEY --mode strict --frames 100 --timeout 120").succeeded();
    publisher.signal(Signal::TERM);
    assert_eq!(publisher.end().code(), Some(0));
    drop(reader);
}

#[test]
fn a_log_to_a_full_disk_is_lost_and_nothing_else() {
    let stage = Stage::new();
    let full = File::options().write(true).open("/dev/full").unwrap();
    let line = "publish KEY --pattern seq --size 64x4 --frames 3 -v";
    let publisher = Process::start(stage.cuframes(line).stderr(full)).end().succeeded();
    assert!(publisher.stdout.contains(": 3 frames"), "{publisher:?}");
}
