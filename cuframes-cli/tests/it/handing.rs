//! What a dispatcher says while it hands out blocks and at its end, whatever that is, and how it ends its workers.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::Signal;

use crate::errors::{FAILED, one_line};
use crate::stage::{Process, Stage, wait_until};

/// Starts `dispatch` with these words, whose standard error goes to a file, and waits for the lines that say how to start a
/// worker. Types each of them into a shell.
fn typed(stage: &Stage, words: &str, hints: usize) -> (Process, Vec<Process>) {
    let path = stage.path("err");
    let mut dispatch = stage.cuframes(words);
    let dispatching = Process::start(dispatch.stderr(fs::File::create(&path).unwrap()));
    let mut found = Vec::new();
    wait_until("the hint", || {
        let text = fs::read_to_string(&path).unwrap();
        let lines =
            text.lines().filter_map(|line| line.find("cuframes work ").map(|at| line[at..].to_string()));
        found = lines.collect();
        found.len() == hints && text.ends_with('\n')
    });
    let dir = Path::new(env!("CARGO_BIN_EXE_cuframes")).parent().unwrap();
    let path = format!("{}:{}", dir.display(), std::env::var("PATH").unwrap());
    let start = |line: &String| {
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("exec {line}")]).env("PATH", &path).stdin(Stdio::null());
        // It is not told in any other way where the stream is.
        shell.env_remove("CUFRAMES_RUN_DIR").stdout(Stdio::piped()).stderr(Stdio::piped());
        Process::start(&mut shell)
    };
    (dispatching, found.iter().map(start).collect())
}

#[test]
fn a_worker_is_started_with_what_the_dispatcher_says() {
    let stage = Stage::new();
    let publisher = stage.start("publish KEY --pattern seq --size 64x64");
    stage.wait_for_socket();
    let words = "dispatch KEY --frames 5 --run-dir DIR/run --json";
    for (options, hints) in [("", 1), ("--task it's --w0", 1), ("--task detect --task track", 2)] {
        let (dispatching, workers) = typed(&stage, &format!("{words} {options}"), hints);
        for worker in workers {
            assert_eq!(worker.end().succeeded().stdout.lines().count(), 5, "{options}");
        }
        let report = dispatching.end().succeeded().json();
        assert_eq!((&report["done"], &report["end"]), (&5.into(), &"frames".into()), "{report}");
    }
    drop(publisher);
    stage.run("gc").succeeded();
    let (dispatching, workers) =
        typed(&stage, "dispatch --grid 4 --block 1 --task it's --listen ipc://DIR/d", 1);
    assert_eq!(
        workers.into_iter().map(|worker| worker.end().succeeded().stdout.lines().count()).sum::<usize>(),
        4
    );
    dispatching.end().succeeded();
}

#[test]
fn who_asks_for_another_task_is_told_so() {
    let stage = Stage::new();
    let publisher = stage.start("publish KEY --pattern seq --size 64x64");
    stage.wait_for_socket();
    let dispatching = stage.start("dispatch KEY --task detect --listen ipc://DIR/d");
    wait_until("the dispatcher", || stage.path("d").exists());
    let text = one_line(&stage.run("work --connect ipc://DIR/d --stream KEY"), FAILED);
    assert!(text.contains(r#"before it gave a block; is "frames" the --task that it has?"#), "{text}");
    let blocks = stage.run("work --connect ipc://DIR/d --task blocks").succeeded();
    assert!(blocks.stderr.contains(r#"is "blocks" the --task that it has?"#), "{blocks:?}");
    drop((dispatching, publisher));
    stage.run("gc").succeeded();
}

#[test]
fn whatever_ends_it_is_reported() {
    let stage = Stage::new();
    let waiting = stage.start("dispatch KEY --wait 100000 --json");
    waiting.wait_for_handlers();
    waiting.signal(Signal::TERM);
    let report = waiting.end().succeeded().json();
    assert_eq!((&report["frames"], &report["end"]), (&0.into(), &"signal".into()));

    let publisher =
        stage.start("publish KEY --pattern seq --size 64x48 --frames 3 --wait-for 2 --wait-timeout 120");
    stage.wait_for_socket();
    let mut dispatch = stage.cuframes("dispatch KEY --workers 1 --json --");
    let ended =
        Process::start(dispatch.args([env!("CARGO_BIN_EXE_cuframes"), "work", "--exec", "true"])).end();
    publisher.end().succeeded();
    assert_eq!(ended.succeeded().json()["end"], "stream");

    // A worker that can't be started again.
    let script = stage.path("worker");
    fs::write(&script, "#!/bin/sh\nrm -- \"$0\"\n").unwrap();
    fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let ended = stage.run("dispatch --grid 4 --block 1 --workers 1 --json -- DIR/worker");
    assert!(one_line(&ended, FAILED).contains("can't start the worker"), "{ended:?}");
    assert_eq!((&ended.json()["done"], &ended.json()["end"]), (&0.into(), &"failure".into()), "{ended:?}");
}

#[test]
fn the_workers_of_all_tasks_are_told_to_end_before_any_is_waited_for() {
    let stage = Stage::new();
    let publisher = stage.start("publish KEY --pattern seq --size 64x64");
    stage.wait_for_socket();
    // Each ends when the other one was told, too.
    let script = format!(
        "cd {}; case $DAISY_CONTEXT in *task_id=a@*) me=a other=b;; *) me=b other=a;; esac
         trap 'touch $me; while ! [ -e $other ]; do sleep 0.02; done; touch $me-ended; exit' TERM
         touch $me-up; while :; do sleep 0.05; done",
        stage.path("").display()
    );
    let mut dispatch = stage.cuframes("dispatch KEY --task a --task b --workers 1 -- sh -c");
    let dispatching = Process::start(dispatch.arg(script));
    wait_until("the workers", || ["a-up", "b-up"].iter().all(|name| stage.path(name).exists()));
    dispatching.signal(Signal::TERM);
    dispatching.end();
    assert!(["a-ended", "b-ended"].iter().all(|name| stage.path(name).exists()));
    drop(publisher);
    stage.run("gc").succeeded();
}

#[test]
fn what_no_block_writes_and_how_large_tiles_are_is_said() {
    let stage = Stage::new();
    let worker = "--workers 1 -- true";
    for (options, said) in [
        (
            "--grid 10x20 --block 4x8",
            "no block writes the last 2 along axis 0, nor the last 4 along axis 1: whole",
        ),
        ("--grid 10x20 --block 4x8 --margin 1x2", "no block writes the last 0 along"),
        ("--grid 10x20 --block 4x8 --fit shrink", "no block writes"),
        ("--grid 12x24 --block 4x8", "no block writes"),
    ] {
        let ended = stage.run(&format!("dispatch --restarts 0 {options} {worker}"));
        let is_said = options == "--grid 10x20 --block 4x8";
        assert_eq!(ended.stderr.contains(said), is_said, "{options}: {ended:?}");
    }
    let publisher = stage.start("publish KEY --pattern seq --size 640x360");
    stage.wait_for_socket();
    let ended = stage.run(&format!("dispatch KEY --frames 1 --tile 180x640 --restarts 0 {worker}"));
    assert!(ended.stderr.contains("tiles of 180 rows and 640 columns, 2 tiles to a frame"), "{ended:?}");
    drop(publisher);
    stage.run("gc").succeeded();
}
