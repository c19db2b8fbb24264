//! `doctor` tells what works on a machine by trying it, and what to do about what doesn't.

use std::fs;
use std::process::{Command, Stdio};

use rustix::process::Signal;
use serde_json::Value;

use crate::stage::{Process, Stage, wait_until};

fn check<'a>(report: &'a Value, what: &str) -> &'a Value {
    let checks = report["checks"].as_array().unwrap();
    checks.iter().find(|check| check["what"] == what).unwrap_or_else(|| panic!("no {what} in {report}"))
}

#[test]
fn on_a_machine_where_tests_run_streams_work() {
    let stage = Stage::new();
    let ended = stage.run("doctor --json");
    assert!(ended.status.success(), "{}{}", ended.stdout, ended.stderr);
    let report: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(report["problems"], 0, "{report}");
    for what in ["/dev/shm", "open files", "kernel", "sealed memory", "clock", "a stream", "CUDA"] {
        assert_eq!(check(&report, what)["verdict"], "ok", "{report}");
    }
    let dir = check(&report, "run directory");
    let expected = format!("{} can be used to publish and to subscribe", stage.run_dir().display());
    assert_eq!(dir["found"], *expected);

    let text = stage.run("doctor").stdout;
    assert!(
        text.lines()
            .all(|line| line.starts_with("ok ") || line.starts_with("warning ") || line.contains("-> "))
    );
}

#[test]
fn what_does_not_work_is_a_problem_with_a_remedy_and_a_failure() {
    let stage = Stage::new();
    let mut command = Command::new("sh");
    let line = format!("ulimit -n 40; exec {} doctor --json", env!("CARGO_BIN_EXE_cuframes"));
    command.args(["-c", &line]).env("CUFRAMES_RUN_DIR", stage.run_dir().join("cuframes.sock"));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    fs::write(stage.run_dir().join("cuframes.sock"), "").unwrap();
    let ended = Process::start(&mut command).end();
    assert_eq!(ended.status.code(), Some(1), "{}", ended.stderr);
    let report: Value = serde_json::from_str(&ended.stdout).unwrap();
    let problems = report["checks"].as_array().unwrap().iter().filter(|check| check["verdict"] == "problem");
    assert_eq!(problems.count(), 3, "{report}");
    assert_eq!(check(&report, "open files")["remedy"], "raise the limit: ulimit -n 1024");
    let dir = check(&report, "run directory");
    assert!(dir["found"].as_str().unwrap().ends_with("is not a directory"), "{dir}");
    assert_eq!(ended.stderr, "cuframes: 3 problems; what to do is below each of them\n");
}

#[test]
fn a_directory_in_which_nobody_can_publish_is_a_problem() {
    let stage = Stage::new();
    let long = format!("DIR/{}", "x".repeat(100));
    for (place, part) in [("DIR/no/run", "can't be made: No such file or directory"), (&long, "is too long")]
    {
        let ended = stage.run(&format!("doctor --json --run-dir {place}"));
        assert_eq!(ended.code(), Some(1), "{ended:?}");
        let report = ended.json();
        let dir = check(&report, "run directory");
        assert_eq!(dir["verdict"], "problem", "{dir}");
        assert!(dir["found"].as_str().unwrap().contains(part), "{dir}");
    }
    assert!(stage.run("doctor --run-dir DIR/new").succeeded().stdout.contains("is not there yet"));
}

#[test]
fn without_a_directory_to_try_in_it_says_so() {
    let stage = Stage::new();
    let ended = Process::start(stage.cuframes("doctor --json").env("TMPDIR", stage.path("nothing"))).end();
    let report = ended.json();
    assert_eq!(
        check(&report, "a stream")["remedy"],
        "set TMPDIR to a directory that you may write",
        "{report}"
    );
}

#[test]
fn a_signal_ends_it_with_what_was_looked_at() {
    let stage = Stage::new();
    let is_handled = |process: &Process| {
        let status = fs::read_to_string(format!("/proc/{}/status", process.id())).unwrap();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
        u64::from_str_radix(caught.trim(), 16).unwrap() & (1 << (Signal::XFSZ.as_raw() - 1)) != 0
    };
    // It may be done before.
    wait_until("one that was interrupted", || {
        let mut doctor = stage.start("doctor --json");
        wait_until("its handlers or its end", || {
            is_handled(&doctor) || doctor.child().try_wait().unwrap().is_some()
        });
        if doctor.child().try_wait().unwrap().is_some() {
            return false;
        }
        doctor.signal(Signal::TERM);
        let ended = doctor.end();
        let is_interrupted = ended.json()["is_interrupted"] == true;
        assert_eq!(is_interrupted, ended.stderr.contains("interrupted; not everything"), "{ended:?}");
        is_interrupted && ended.code() == Some(1)
    });
}
