//! Blocks of work are handed out, each to one worker, and to another one if that fails.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::Command;

use rustix::process::{Pid, Signal, kill_process};

use crate::errors::{FAILED, one_line};
use crate::stage::{Ended, Stage, children, wait_until};

/// Runs `dispatch` with these options, and `cuframes work` with these as its workers.
fn dispatch(stage: &Stage, options: &str, work: &[&str]) -> Ended {
    crate::stage::Process::start(&mut command(stage, options, work)).end()
}

fn command(stage: &Stage, options: &str, work: &[&str]) -> Command {
    let mut command = stage.cuframes(&format!("dispatch {options}"));
    command.arg("--").args([env!("CARGO_BIN_EXE_cuframes"), "work"]).args(work);
    command
}

#[test]
fn each_block_goes_to_one_worker() {
    let stage = Stage::new();
    let log = stage.path("log");
    let line =
        format!("echo $CUFRAMES_BLOCK $CUFRAMES_WRITE_OFFSET $CUFRAMES_WRITE_SHAPE >> {}", log.display());
    let ended = dispatch(
        &stage,
        "--grid 10,20:40x90 --block 10x30 --workers 3 --json",
        &["--depth", "2", "--exec", &line],
    );
    let report = ended.succeeded().json();
    for (count, expected) in [("blocks", 12), ("done", 12), ("retried", 0), ("restarts", 0)] {
        assert_eq!(report[count], expected, "{report}");
    }
    let log = fs::read_to_string(log).unwrap();
    let boxes: BTreeSet<_> = log.lines().map(|line| line.split_once(' ').unwrap().1.to_string()).collect();
    let expected: BTreeSet<_> =
        (0..4).flat_map(|y| (0..3).map(move |x| format!("{},{} 10x30", 10 + 10 * y, 20 + 30 * x))).collect();
    assert_eq!((log.lines().count(), boxes), (12, expected));
}

#[test]
fn what_a_killed_worker_had_goes_to_another_one() {
    let stage = Stage::new();
    // Block 0 waits for the test the first time.
    let script = format!(
        "if [ $CUFRAMES_BLOCK = 0 ] && ! [ -e {0}/pid ]; then echo $PPID > {0}/new; mv {0}/new {0}/pid; exec sleep 600; fi",
        stage.path("").display()
    );
    let dispatching = crate::stage::Process::start(&mut command(
        &stage,
        "--grid 20 --block 1 --workers 2 --json",
        &["--exec", &script],
    ));
    let mut pid = None;
    wait_until("a worker with block 0", || {
        let text = fs::read_to_string(stage.path("pid")).ok();
        pid = text.and_then(|text| text.trim().parse().ok()).and_then(Pid::from_raw);
        pid.is_some()
    });
    let sleeper = children(pid.unwrap());
    kill_process(pid.unwrap(), Signal::KILL).unwrap();
    // Its command outlives it, which nobody can help.
    sleeper.into_iter().for_each(|pid| _ = kill_process(pid, Signal::KILL));
    let report = dispatching.end().succeeded().json();
    assert_eq!(
        (&report["done"], &report["retried"], &report["restarts"]),
        (&20.into(), &1.into(), &1.into())
    );
}

#[test]
fn blocks_that_fail_are_tried_again_and_then_named() {
    let stage = Stage::new();
    let options = "--grid 6 --block 1 --workers 2 --retries 1 --json";
    let ended = dispatch(&stage, options, &["--exec", "test $CUFRAMES_BLOCK != 4"]);
    assert_eq!(ended.code(), Some(1));
    let report = ended.json();
    assert_eq!((&report["done"], &report["failed"], &report["retried"]), (&5.into(), &1.into(), &1.into()));
    let lines: Vec<_> = ended.stderr.lines().collect();
    assert_eq!(
        lines,
        [
            "cuframes: block 4 of task blocks: it failed: its command ended with exit status: 1",
            "cuframes: 1 of 6 blocks of task blocks not done; see the lines above",
        ]
    );
}

#[test]
fn a_block_that_takes_too_long_goes_to_another_one() {
    let stage = Stage::new();
    let script = format!("mkdir {0} 2>/dev/null && sleep 600 || true", stage.path("first").display());
    let dispatching =
        dispatch(&stage, "--grid 3 --block 1 --workers 2 --timeout 0.5 --json", &["--exec", &script]);
    let report = dispatching.succeeded().json();
    assert_eq!((&report["done"], &report["retried"]), (&3.into(), &1.into()));
}

#[test]
fn workers_that_only_end_are_not_started_for_ever() {
    let stage = Stage::new();
    let ended = stage.run("dispatch --grid 4 --block 1 --workers 2 --restarts 3 --json -- false");
    assert_eq!(ended.code(), Some(1));
    let report = ended.json();
    assert_eq!((&report["given_up"], &report["restarts"]), (&4.into(), &3.into()));
    assert!(ended.stderr.contains("their command fails, or --restarts is too low"), "{ended:?}");
    let ended = stage.run("dispatch --grid 4 --block 1 --workers 2 -- /no/such/program");
    assert_eq!(ended.code(), Some(1));
    assert!(ended.stderr.contains("can't start the worker /no/such/program: No such file"), "{ended:?}");
}

#[test]
fn workers_may_come_from_elsewhere_and_see_what_they_get() {
    let stage = Stage::new();
    let dispatching = stage.start("dispatch --grid 8x8 --block 8x2 --task look --listen ipc://DIR/d --json");
    let work = stage.run("work --connect ipc://DIR/d --task look").succeeded();
    assert!(dispatching.end().succeeded().json()["done"] == 4);
    let first: serde_json::Value = serde_json::from_str(work.stdout.lines().next().unwrap()).unwrap();
    assert_eq!(first["write_shape"], serde_json::json!([8, 2]));
    assert_eq!(work.stdout.lines().count(), 4);
    assert!(!stage.path("d").exists());
}

#[test]
fn a_block_that_nobody_sees_is_not_done() {
    let stage = Stage::new();
    // More than a pipe holds.
    let dispatching = stage.start("dispatch --grid 3000 --block 1 --listen ipc://DIR/d --json");
    let mut work = stage.start("work --connect ipc://DIR/d --task blocks");
    let mut line = String::new();
    BufReader::new(work.child().stdout.take().unwrap()).read_line(&mut line).unwrap();
    let text = one_line(&work.end(), FAILED);
    assert!(text.contains("nobody reads standard output any more"), "{text}");
    stage.run("work --connect ipc://DIR/d --task blocks").succeeded();
    let report = dispatching.end().succeeded().json();
    assert_eq!((&report["done"], &report["retried"]), (&3000.into(), &1.into()), "{report}");
}

#[test]
fn who_speaks_another_version_is_told_so_and_stops_nobody() {
    let stage = Stage::new();
    let dispatching = stage.start("dispatch --grid 2 --block 1 --listen ipc://DIR/d");
    let stranger = stage.run("work --connect ipc://DIR/d --task blocks --w0");
    assert_eq!(stranger.code(), Some(0), "it is closed without a word, as the original does");
    stage.run("work --connect ipc://DIR/d --task blocks").succeeded();
    let ended = dispatching.end().succeeded();
    assert!(ended.stderr.contains("a worker was disconnected"), "{ended:?}");
    let w0 = stage.start("dispatch --grid 2 --block 1 --listen ipc://DIR/d --w0");
    stage.run("work --connect ipc://DIR/d --task blocks --w0").succeeded();
    w0.end().succeeded();
}

#[test]
fn a_signal_ends_the_dispatcher_its_workers_and_their_commands() {
    let stage = Stage::new();
    let script = format!("echo $$ > {0}/new; mv {0}/new {0}/pid; exec sleep 600", stage.path("").display());
    let dispatching = crate::stage::Process::start(&mut command(
        &stage,
        "--grid 2 --block 1 --workers 1",
        &["--exec", &script],
    ));
    let pid = stage.path("pid");
    wait_until("the command", || pid.exists());
    let sleeper = fs::read_to_string(pid).unwrap().trim().to_string();
    dispatching.signal(Signal::TERM);
    let ended = dispatching.end();
    assert_eq!(ended.code(), Some(1));
    assert!(ended.stderr.contains("stopped by a signal; 2 blocks of task blocks not done"), "{ended:?}");
    let comm = fs::read_to_string(format!("/proc/{sleeper}/comm")).unwrap_or_default();
    assert_ne!(comm.trim(), "sleep");
}

#[test]
fn wrong_usage_says_what_would_be_right() {
    let stage = Stage::new();
    for (line, words) in [
        ("dispatch --block 1", "--grid"),
        ("dispatch --grid 4 --block x", "1080x1920"),
        ("dispatch --grid 4 --block 1x1", "same number of axes"),
        ("dispatch --grid 4 --block 0", "no extent along axis 0"),
        ("dispatch --grid 4 --block 8", "no block fits"),
        ("dispatch --grid 4 --block 2 --margin 1x1", "as many numbers as --block"),
        ("dispatch --grid 99999999 --block 1", "at most 10000000"),
        ("dispatch --grid 4 --block 1 --workers 2", "CMD"),
        ("dispatch --grid 4 --block 1 -- true", "--workers"),
        ("work --connect 5600", "--task"),
        ("work", "DAISY_CONTEXT"),
        ("work --depth 0", "--depth"),
    ] {
        let ended = stage.run(line);
        assert_eq!(ended.code(), Some(2), "{line}: {ended:?}");
        assert!(ended.stderr.contains(words) && ended.stderr.lines().count() == 1, "{line}: {ended:?}");
    }
    let ended = stage.run("work --connect ipc://DIR/nobody --task t --connect-timeout 0.2");
    assert_eq!(ended.code(), Some(1));
    assert!(ended.stderr.contains("no dispatcher at ipc:"), "{ended:?}");
}
