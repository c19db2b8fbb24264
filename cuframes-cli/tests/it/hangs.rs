//! A demo whose processes hang ends all the same, and leaves nothing behind; and what a closed terminal ends.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

use rustix::process::{Pid, Signal, kill_process};

use crate::demo::{demo, private_dirs, region};
use crate::stage::{Process, Stage, wait_until};

/// The process of a demo that has this word in its command line.
fn child_of(demo: &mut Process, word: &str) -> Pid {
    let parent = format!("--report-to\0{}\0", demo.child().id());
    let mut found = None;
    wait_until("the process", || {
        found = fs::read_dir("/proc").unwrap().flatten().find_map(|entry| {
            let line = fs::read_to_string(entry.path().join("cmdline")).ok()?;
            let pid = entry.file_name().into_string().ok()?.parse().ok()?;
            (line.contains(&parent) && line.contains(word)).then(|| Pid::from_raw(pid).unwrap())
        });
        found.is_some()
    });
    found.unwrap()
}

/// Runs all cases at the same time, for they do little but wait.
fn at_once<T: Send>(cases: impl IntoIterator<Item = T>, run: impl Fn(T) + Sync) {
    thread::scope(|scope| {
        for case in cases {
            scope.spawn(|| run(case));
        }
    });
}

fn is_there(pid: Pid) -> bool {
    fs::exists(format!("/proc/{}", pid.as_raw_nonzero())).unwrap()
}

/// A demo that runs, one process of which is stopped.
fn with_a_stopped(word: &str, stage: &Stage, options: &str) -> (Process, Pid) {
    let options = format!("--size 64x64 --fps 100 {options}");
    let mut demo = Process::start(&mut demo(stage, &options));
    let child = child_of(&mut demo, word);
    // So far that everybody has said something about it.
    wait_until("the stream", || private_dirs(stage).first().is_some_and(|dir| frames(&region(dir)) > 60));
    kill_process(child, Signal::STOP).unwrap();
    (demo, child)
}

/// Frames published so far: `global_seq` in the region (§2).
fn frames(region: &Path) -> u64 {
    let bytes = fs::read(region).unwrap_or_default();
    bytes.get(0xC0..0xC8).map_or(0, |word| u64::from_le_bytes(word.try_into().unwrap()))
}

#[test]
fn a_signal_ends_a_demo_with_a_process_that_is_stopped() {
    at_once([("publish", 1), ("subscriber-2", 1), ("subscriber-1", 1000)], |(word, times)| {
        let stage = Stage::new();
        let (mut demo, child) = with_a_stopped(word, &stage, "--frames 1000000");
        let (dir, mut signals) = (private_dirs(&stage).remove(0), 0);
        // The second one is in a hurry.
        wait_until("the end", || {
            if signals < times {
                demo.signal(Signal::TERM);
                signals += 1;
            }
            demo.child().try_wait().unwrap().is_some()
        });
        let demo = demo.end();
        assert_eq!(demo.code(), Some(1), "{demo:?}");
        assert!(demo.stderr.contains("did not end when it was told to, and was killed"), "{demo:?}");
        assert!(!is_there(child), "{word} is left");
        assert!(private_dirs(&stage).is_empty() && !region(&dir).exists());
    });
}

#[test]
fn a_demo_notices_that_one_of_its_processes_hangs() {
    at_once(["drop-oldest", "strict-wait"], |policy| {
        let stage = Stage::new();
        let options = format!("--frames 200 --patience 5 --policy {policy}");
        let (demo, child) = with_a_stopped("subscriber-2", &stage, &options);
        let demo = demo.end();
        assert_eq!(demo.code(), Some(1), "{demo:?}");
        assert!(demo.stderr.contains("has said nothing for"), "{demo:?}");
        assert_eq!(demo.stderr.lines().count(), 1, "{demo:?}");
        assert!(!is_there(child));
        assert!(private_dirs(&stage).is_empty());
    });
}

#[test]
fn the_next_demo_deletes_what_one_that_was_killed_has_left_and_nothing_else() {
    let stage = Stage::new();
    let long = "--frames 1000000 --fps 100 --size 64x64";
    let mut killed = Process::start(&mut demo(&stage, long));
    let child = child_of(&mut killed, "publish");
    wait_until("the stream", || private_dirs(&stage).first().is_some_and(|dir| region(dir).exists()));
    let left = private_dirs(&stage).remove(0);
    // With its publisher, so that the region is left, too; and before it can clean up after that.
    killed.signal(Signal::STOP);
    kill_process(child, Signal::KILL).unwrap();
    killed.signal(Signal::KILL);
    killed.end();
    assert!(left.exists() && region(&left).exists());
    let living = Process::start(&mut demo(&stage, long));
    wait_until("the end of the leftovers", || !left.exists() && !region(&left).exists());
    wait_until("the place of the next demo", || private_dirs(&stage).len() == 1);
    fs::create_dir(stage.path("tmp/cuframes-other")).unwrap();
    Process::start(&mut demo(&stage, "--frames 3 --size 64x64")).end().succeeded();
    assert_eq!(private_dirs(&stage).len(), 2, "that of the demo that lives, and the other");
    living.signal(Signal::TERM);
    living.end().succeeded();
}

#[test]
fn a_demo_leaves_nothing_in_a_run_directory_that_is_not_its_own() {
    let stage = Stage::new();
    Process::start(&mut demo(&stage, "--frames 3 --size 64x64 --run-dir DIR/run")).end().succeeded();
    assert_eq!(fs::read_dir(stage.run_dir()).unwrap().count(), 0);
}

#[test]
fn a_closed_terminal_ends_a_stream_and_a_demo_and_nohup_forbids_it() {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
    if u64::from_str_radix(ignored.trim(), 16).unwrap() & 1 != 0 {
        eprintln!("skipped: what SIGHUP does: it is ignored here, as by nohup");
        return;
    }
    let stage = Stage::new();
    // Both are there when the first frame is.
    let publisher =
        stage.start("publish KEY --pattern seq --size 64x4 --fps 100 --wait-for 2 --wait-timeout 120");
    let reader = stage.start("subscribe KEY --json --timeout 120");
    let other = stage.start("subscribe KEY --y4m DIR/out.y4m --json --timeout 120");
    wait_until("a frame", || fs::metadata(stage.path("out.y4m")).is_ok_and(|file| file.len() > 100));
    other.signal(Signal::HUP);
    assert_eq!(other.end().succeeded().json()["end"], "signal");
    publisher.signal(Signal::HUP);
    publisher.end().succeeded();
    assert_eq!(reader.end().succeeded().json()["end"], "stream", "it was told");
    assert!(stage.leftovers().is_empty(), "{:?}", stage.leftovers());

    let demo = Process::start(&mut demo(&stage, "--frames 1000000 --fps 100 --size 64x64 --json"));
    wait_until("the stream", || private_dirs(&stage).first().is_some_and(|dir| region(dir).exists()));
    demo.signal(Signal::HUP);
    demo.end().succeeded();
    assert!(private_dirs(&stage).is_empty());

    let program = stage.cuframes("publish KEY --pattern seq --size 64x4 --fps 100");
    let mut nohup = Command::new("sh");
    nohup.args(["-c", "trap '' HUP; exec \"$0\" \"$@\""]).arg(program.get_program()).args(program.get_args());
    nohup.env("CUFRAMES_RUN_DIR", stage.run_dir()).stdout(Stdio::piped());
    let publisher = Process::start(&mut nohup);
    stage.wait_for_socket();
    publisher.signal(Signal::HUP);
    stage.run("subscribe KEY --mode strict --frames 20 --timeout 120").succeeded();
    publisher.signal(Signal::TERM);
    assert!(publisher.end().succeeded().stdout.contains("stopped by a signal"));
}
