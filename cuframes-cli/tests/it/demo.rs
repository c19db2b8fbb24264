//! The demo: processes that check every byte, a report, and nothing left behind.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::Signal;

use crate::stage::{Process, Stage, wait_until};

/// A demo whose private directory is in the place of this test.
pub(crate) fn demo(stage: &Stage, options: &str) -> Command {
    let mut command = stage.cuframes(&format!("demo {options}"));
    fs::create_dir_all(stage.path("tmp")).unwrap();
    command.env("TMPDIR", stage.path("tmp"));
    command
}

pub(crate) fn private_dirs(stage: &Stage) -> Vec<PathBuf> {
    fs::read_dir(stage.path("tmp")).unwrap().map(|entry| entry.unwrap().path()).collect()
}

/// The region of the demo whose private directory this is.
pub(crate) fn region(private: &Path) -> PathBuf {
    PathBuf::from("/dev/shm").join(private.file_name().unwrap())
}

#[test]
fn every_subscriber_of_a_strict_demo_gets_every_frame_of_every_format() {
    for format in ["nv12", "i444", "rgb-f16-planar"] {
        let stage = Stage::new();
        let options =
            format!("--json --policy strict-wait --frames 60 --size 333x55 --ring 2 --format {format}");
        let report = Process::start(&mut demo(&stage, &options)).end().succeeded().json();
        assert_eq!((&report["ok"], &report["torn"], &report["failed"]), (&true.into(), &0.into(), &0.into()));
        assert_eq!(report["publisher"]["frames"], 60);
        let subscribers = report["subscribers"].as_array().unwrap();
        assert_eq!(subscribers.len(), 3);
        for (n, subscriber) in (1..).zip(subscribers) {
            assert_eq!(subscriber["name"], format!("subscriber-{n}"));
            assert_eq!(
                (&subscriber["frames"], &subscriber["dropped"]),
                (&60.into(), &0.into()),
                "{subscriber}"
            );
        }
        assert!(private_dirs(&stage).is_empty());
    }
}

#[test]
fn a_demo_ends_with_a_table_that_has_no_control_characters_in_a_pipe() {
    let stage = Stage::new();
    let demo =
        Process::start(&mut demo(&stage, "--frames 50 --size 64x64 --subscribers 2")).end().succeeded();
    assert_eq!(demo.stderr, "");
    let lines: Vec<_> = demo.stdout.lines().collect();
    assert_eq!(lines[0], "nv12 64x64, ring 8, drop-oldest, host memory");
    let columns = "process frames fps p50 p99 dropped torn".split(' ').collect::<Vec<_>>();
    assert_eq!(lines[1].split_whitespace().collect::<Vec<_>>(), columns);
    let names: Vec<_> = lines[2..].iter().map(|line| line.split_whitespace().next().unwrap()).collect();
    assert_eq!(names, ["publisher", "subscriber-1", "subscriber-2"]);
    assert!(lines.iter().all(|line| !line.contains('\u{1b}') && line.len() <= 80), "{lines:?}");
}

#[test]
fn a_signal_ends_all_processes_of_a_demo_and_leaves_nothing_behind() {
    for stop in [Signal::INT, Signal::TERM, Signal::KILL] {
        let stage = Stage::new();
        let demo = Process::start(&mut demo(&stage, "--frames 1000000 --fps 100 --size 64x64 --json"));
        let region = || Some(region(private_dirs(&stage).first()?));
        wait_until("the region", || region().is_some_and(|region| region.exists()));
        let region = region().unwrap();
        demo.signal(stop);
        let demo = demo.end();
        if stop == Signal::KILL {
            // Its processes notice, and clean up what is theirs.
            wait_until("the end of the publisher", || !region.exists());
        } else {
            let report = demo.succeeded().json();
            assert_eq!((&report["ok"], &report["publisher"]["end"]), (&true.into(), &"signal".into()));
            assert_eq!(report["interrupted"], true, "{report}");
            assert!(!region.exists() && private_dirs(&stage).is_empty());
        }
    }
}

#[test]
fn a_demo_whose_publisher_fails_says_why() {
    let stage = Stage::new();
    let demo = Process::start(&mut demo(&stage, "--run-dir DIR/no/where")).end();
    assert_eq!(demo.code(), Some(1), "{demo:?}");
    assert!(demo.stderr.contains("publisher: can't create the run directory"), "{demo:?}");
    assert_eq!(demo.stderr.lines().count(), 1, "{demo:?}");
}
