//! The frames of a stream are spread over workers: each block goes to one of them, and to another one if that one dies.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::stage::{Ended, Process, Stage, children, frames, video, wait_until};

/// `dispatch KEY` with these options, and `cuframes work` with these as its workers.
fn dispatch(stage: &Stage, options: &str, work: &[&str]) -> Command {
    let mut command = stage.cuframes(&format!("dispatch KEY {options}"));
    command.arg("--").args([env!("CARGO_BIN_EXE_cuframes"), "work"]).args(work);
    command
}

/// What the dispatcher and its workers have printed, apart: ends of blocks, work on them, and the report.
fn told(stdout: &str) -> (Vec<Value>, Vec<Value>, Value) {
    let (mut ends, mut works, mut report) = (Vec::new(), Vec::new(), Value::Null);
    for line in stdout.lines() {
        let value: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        if value["stream"].is_string() {
            report = value;
        } else if value["outcome"].is_string() {
            ends.push(value);
        } else {
            works.push(value);
        }
    }
    (ends, works, report)
}

/// How often each frame is named.
fn by_seq(lines: &[Value]) -> BTreeMap<u64, u32> {
    let mut counts = BTreeMap::new();
    lines.iter().for_each(|line| *counts.entry(line["seq"].as_u64().unwrap()).or_default() += 1);
    counts
}

/// A publisher that waits for a dispatcher and so many workers, and then for every frame to be taken.
fn publish(stage: &Stage, workers: usize, options: &str) -> Process {
    let waiting = format!("--policy strict-wait --wait-for {} --wait-timeout 120 --patience 60", workers + 1);
    stage.start(&format!("publish KEY {waiting} {options}"))
}

#[test]
fn each_frame_goes_to_one_worker() {
    let stage = Stage::new();
    let publisher = publish(&stage, 3, "--pattern seq --size 320x240 --fps 0 --frames 300");
    stage.wait_for_socket();
    let ended = Process::start(&mut dispatch(&stage, "--workers 3 --each --json", &["--check-seq"])).end();
    publisher.end().succeeded();
    let ended = ended.succeeded();
    let (ends, works, report) = told(&ended.stdout);
    let once: BTreeMap<u64, u32> = (1..=300).map(|seq| (seq, 1)).collect();
    assert_eq!(by_seq(&ends), once);
    assert_eq!(by_seq(&works), once);
    assert!(ends.iter().all(|end| end["outcome"] == "done"), "{ends:?}");
    for (count, expected) in [("frames", 300), ("done", 300), ("dropped", 0), ("lost", 0), ("retried", 0)] {
        assert_eq!(report[count], expected, "{report}");
    }
    assert!(stage.leftovers().is_empty());
}

#[test]
fn workers_that_are_killed_lose_no_frame_and_tear_none() {
    let count: u64 = 10_000;
    let stage = Stage::new();
    let publisher = publish(&stage, 4, &format!("--pattern seq --size 1280x720 --fps 0 --frames {count}"));
    stage.wait_for_socket();
    let options = "--workers 4 --restarts 100000 --retries 20 --each --json";
    let mut dispatching = Process::start(&mut dispatch(&stage, options, &["--check-seq", "--depth", "2"]));
    let stdout = BufReader::new(dispatching.child().stdout.take().unwrap());
    let pid = Pid::from_raw(i32::try_from(dispatching.id()).unwrap()).unwrap();
    // Two of the workers are killed again and again, whichever they are at that time, until the last frames.
    let (mut lines, mut kills, mut random) = (Vec::new(), 0, 12_345_u32);
    let mut next_kill = 20;
    for line in stdout.lines() {
        lines.push(line.unwrap());
        if lines.len() >= next_kill && u64::try_from(lines.len()).unwrap() < 2 * count - 50 {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            next_kill = lines.len() + 10 + usize::try_from(random >> 25).unwrap();
            let workers = children(pid);
            if let Some(worker) = workers.get(usize::try_from(random >> 16 & 1).unwrap()) {
                kills += u32::from(kill_process(*worker, Signal::KILL).is_ok());
            }
        }
    }
    let ended = dispatching.end().succeeded();
    publisher.end().succeeded();
    assert_eq!(ended.stderr, "");
    let (ends, works, report) = told(&lines.join("\n"));
    let once: BTreeMap<u64, u32> = (1..=count).map(|seq| (seq, 1)).collect();
    assert_eq!(by_seq(&ends), once, "each is reported exactly once");
    assert!(ends.iter().all(|end| end["outcome"] == "done"), "no frame is torn");
    assert_eq!(by_seq(&works).into_keys().collect::<Vec<_>>(), (1..=count).collect::<Vec<_>>());
    assert_eq!((&report["done"], &report["lost"]), (&count.into(), &0.into()), "{report}");
    assert!(kills > 0 && report["restarts"].as_u64() >= Some(1), "{kills} kills: {report}");
    assert!(stage.leftovers().is_empty());
}

#[test]
fn a_worker_has_the_pixels_of_its_tile_on_its_standard_input() {
    let stage = Stage::new();
    let bytes = video("W70 H46 F25:1 C420jpeg", 70 * 46 * 3 / 2, 3);
    fs::write(stage.path("in.y4m"), &bytes).unwrap();
    let publisher = publish(&stage, 2, "--y4m DIR/in.y4m --fps 0");
    stage.wait_for_socket();
    let script = format!(
        "cat > {}/$CUFRAMES_SEQ-$CUFRAMES_READ_OFFSET-${{CUFRAMES_WIDTH}}x$CUFRAMES_HEIGHT",
        stage.path("").display()
    );
    let ended =
        Process::start(&mut dispatch(&stage, "--workers 2 --tile 32x32 --json", &["--exec", &script])).end();
    publisher.end().succeeded();
    let report = ended.succeeded().json();
    assert_eq!((&report["done"], &report["blocks"]), (&3.into(), &18.into()));
    let source = frames(&bytes);
    for seq in 1..=3_usize {
        let frame = &source[(seq - 1) * (6 + 70 * 46 * 3 / 2) + 6..];
        for (y, height) in [(0, 32), (32, 14)] {
            for (x, width) in [(0, 32), (32, 32), (64, 6)] {
                let name = format!("{seq}-{seq},{y},{x}-{width}x{height}");
                let tile = fs::read(stage.path(&name)).unwrap_or_else(|error| panic!("{name}: {error}"));
                let mut expected: Vec<u8> = Vec::new();
                for row in y..y + height {
                    expected.extend(&frame[row * 70 + x..][..width]);
                }
                for plane in [70 * 46, 70 * 46 + 35 * 23] {
                    for row in y / 2..(y + height) / 2 {
                        expected.extend(&frame[plane + row * 35 + x / 2..][..width / 2]);
                    }
                }
                assert_eq!(tile, expected, "{name}");
            }
        }
    }
}

#[test]
fn a_command_need_not_read_its_input_and_what_it_leaves_behind_holds_up_nothing() {
    let stage = Stage::new();
    let publisher = publish(&stage, 1, "--pattern seq --size 1280x720 --fps 0 --frames 5");
    stage.wait_for_socket();
    // The second one fails while somebody whom it has left behind has its input, more than a pipe holds.
    let pids = stage.path("pids");
    let script = format!(
        "exec 3<&0; (sh -c 'echo $PPID' >> {}; exec sleep 600 <&3) & exit $((CUFRAMES_SEQ == 2))",
        pids.display()
    );
    let options = "--workers 1 --retries 0 --json";
    let mut command = dispatch(&stage, options, &["--exec", &script]);
    command.stdout(fs::File::create(stage.path("out")).unwrap());
    command.stderr(fs::File::create(stage.path("err")).unwrap());
    let code = Process::start(&mut command).end().code();
    for pid in fs::read_to_string(pids).unwrap().lines() {
        kill_process(Pid::from_raw(pid.parse().unwrap()).unwrap(), Signal::KILL).unwrap();
    }
    publisher.end();
    let report: Value = serde_json::from_str(&fs::read_to_string(stage.path("out")).unwrap()).unwrap();
    assert_eq!((code, &report["done"], &report["failed"]), (Some(1), &4.into(), &1.into()));
}

#[test]
fn frames_that_workers_are_too_slow_for_are_dropped_and_the_newest_are_worked_on() {
    let stage = Stage::new();
    let _publisher = stage.start("publish KEY --pattern seq --size 64x64 --fps 200 --ring 4");
    stage.wait_for_socket();
    let options = "--workers 1 --frames 6 --each --json";
    let ended = Process::start(&mut dispatch(&stage, options, &["--exec", "sleep 0.1"])).end().succeeded();
    let (ends, _, report) = told(&ended.stdout);
    let done: Vec<_> = ends.iter().filter(|end| end["outcome"] == "done").collect();
    assert_eq!((done.len(), &report["done"]), (6, &6.into()), "{report}");
    assert!(report["dropped"].as_u64() > Some(6), "{report}");
    let seqs: Vec<_> = done.iter().map(|end| end["seq"].as_u64().unwrap()).collect();
    // The last two were there when there were enough.
    assert!(
        seqs[..5].windows(2).all(|pair| pair[0] + 2 < pair[1]),
        "a dozen are published meanwhile: {seqs:?}"
    );
}

#[test]
fn a_task_that_waits_for_another_one_gets_each_frame_after_it() {
    let stage = Stage::new();
    let publisher = publish(&stage, 2, "--pattern seq --size 64x64 --fps 0 --frames 20");
    stage.wait_for_socket();
    let options = "--task detect --task track --workers 1 --each --json";
    let ended = Process::start(&mut dispatch(&stage, options, &["--check-seq"])).end().succeeded();
    publisher.end().succeeded();
    let (ends, _, report) = told(&ended.stdout);
    assert_eq!((&report["done"], &report["blocks"]), (&20.into(), &40.into()), "{ended:?}");
    for seq in 1..=20 {
        let tasks: Vec<_> =
            ends.iter().filter(|end| end["seq"] == seq).map(|end| end["task"].as_str().unwrap()).collect();
        assert!(tasks[0].starts_with("detect@") && tasks[1].starts_with("track@"), "{tasks:?}");
    }
}

#[test]
fn a_publisher_that_is_killed_ends_it_and_what_is_left_is_given_up() {
    let stage = Stage::new();
    let publisher = stage.start("publish KEY --pattern seq --size 64x64");
    stage.wait_for_socket();
    let script = format!("touch {}; exec sleep 600", stage.path("begun").display());
    let dispatching = Process::start(&mut dispatch(&stage, "--workers 1 --json", &["--exec", &script]));
    let begun = stage.path("begun");
    wait_until("work", || begun.exists());
    publisher.signal(Signal::KILL);
    let ended = dispatching.end();
    assert_eq!(ended.code(), Some(1));
    assert!(ended.json()["given_up"].as_u64() >= Some(1), "{ended:?}");
    assert!(ended.stderr.contains("start its publisher again"), "{ended:?}");
    // As gc does.
    stage.run("gc").succeeded();
}

#[test]
fn a_signal_ends_it_in_order() {
    let stage = Stage::new();
    let _publisher = stage.start("publish KEY --pattern seq --size 64x64");
    stage.wait_for_socket();
    let script = format!("touch {}", stage.path("begun").display());
    let dispatching = Process::start(&mut dispatch(&stage, "--workers 2 --json", &["--exec", &script]));
    let begun = stage.path("begun");
    wait_until("work", || begun.exists());
    dispatching.signal(Signal::INT);
    let report = dispatching.end().succeeded().json();
    assert!(report["frames"].as_u64() >= Some(1), "{report}");
}

#[test]
fn workers_may_be_started_by_hand_and_must_have_the_same_publisher() {
    let stage = Stage::new();
    let publisher = stage.start("publish KEY --pattern seq --size 64x64");
    stage.wait_for_socket();
    let dispatching = stage.start("dispatch KEY --frames 5 --listen ipc://DIR/d --each --json");
    wait_until("the dispatcher", || stage.path("d").exists());
    // Another stream has another task, and so has another publisher of the same stream.
    let stranger = stage.run("work --connect ipc://DIR/d --task frames@KEY@0000000000000001");
    assert_eq!(stranger.code(), Some(1));
    assert!(stranger.stderr.contains("another publisher has it"), "{stranger:?}");
    let blocks = stage.run("work --connect ipc://DIR/d --task blocks");
    assert_eq!(blocks.code(), Some(0), "it is closed without a word, as the original does");
    let work = stage.run("work --connect ipc://DIR/d --stream KEY --check-seq").succeeded();
    assert_eq!(work.stdout.lines().count(), 5, "{work:?}");
    let ended = dispatching.end().succeeded();
    assert!(ended.stderr.contains("start each with: cuframes work --connect ipc://"), "{ended:?}");
    assert!(ended.stderr.contains("blocks of task \"blocks\", which there is not"), "{ended:?}");
    drop(publisher);
    stage.run("gc").succeeded();
}

#[test]
fn a_stream_that_ends_without_any_worker_ends_the_dispatcher_too() {
    let stage = Stage::new();
    let publisher = stage.start("publish KEY --pattern seq --size 64x48 --frames 30 --fps 0 --wait-for 1");
    stage.wait_for_socket();
    let ended = stage.run("dispatch KEY --json");
    publisher.end().succeeded();
    assert_eq!(ended.code(), Some(1));
    let report = ended.json();
    assert_eq!(report["frames"].as_u64(), Some(report["dropped"].as_u64().unwrap() + 6), "{report}");
    assert_eq!(report["given_up"], 6, "{report}");
}

#[test]
fn a_worker_whose_task_is_over_is_not_started_again_while_another_task_goes_on() {
    let stage = Stage::new();
    let publisher = publish(&stage, 2, "--pattern seq --size 64x48 --fps 0 --frames 20");
    stage.wait_for_socket();
    let options = "--task a --task b --workers 1 --json";
    let script = "case $CUFRAMES_TASK in b*) sleep 0.05;; esac";
    let ended = Process::start(&mut dispatch(&stage, options, &["--exec", script])).end().succeeded();
    publisher.end().succeeded();
    assert_eq!((&ended.json()["done"], &ended.json()["restarts"]), (&20.into(), &0.into()));
    assert_eq!(ended.stderr, "");
}

#[test]
fn a_dispatcher_that_is_killed_ends_its_workers_and_their_commands() {
    let stage = Stage::new();
    let publisher = stage.start("publish KEY --pattern seq --size 64x48");
    stage.wait_for_socket();
    let dispatching = stage.start("dispatch KEY --listen ipc://DIR/d");
    wait_until("the dispatcher", || stage.path("d").exists());
    let script = format!("echo $$ > {0}/new; mv {0}/new {0}/pid; exec sleep 600", stage.path("").display());
    let mut work = stage.cuframes("work --connect ipc://DIR/d --stream KEY --depth 4 --exec");
    let working = Process::start(work.arg(&script));
    let pid = stage.path("pid");
    wait_until("the command", || pid.exists());
    dispatching.signal(Signal::KILL);
    let ended = working.end();
    assert_eq!(ended.code(), Some(1));
    assert!(ended.stderr.contains("is gone; start it again"), "{ended:?}");
    let comm = format!("/proc/{}/comm", fs::read_to_string(pid).unwrap().trim());
    assert_ne!(fs::read_to_string(comm).unwrap_or_default().trim(), "sleep");
    drop((publisher, dispatching));
    stage.run("gc").succeeded();
}

#[test]
fn a_dispatcher_without_workers_keeps_no_publisher_waiting() {
    let stage = Stage::new();
    let publisher = stage.start(
        "publish KEY --pattern seq --size 64x64 --policy strict-wait --wait-for 1 --frames 200 --fps 0",
    );
    stage.wait_for_socket();
    let dispatching = stage.start("dispatch KEY --json");
    publisher.end().succeeded();
    let ended = end_after(dispatching);
    assert_eq!(ended.json()["frames"], 200, "{ended:?}");
}

/// Ends one that waits for workers, which nobody starts any more.
fn end_after(dispatching: Process) -> Ended {
    sleep(Duration::from_millis(300));
    dispatching.signal(Signal::TERM);
    dispatching.end().succeeded()
}

#[test]
fn what_does_not_go_together_is_said() {
    let stage = Stage::new();
    let publisher = stage.start("publish KEY --pattern seq --size 64x64 --ring 4");
    stage.wait_for_socket();
    for (line, words) in [
        ("dispatch KEY --queue 4", "of the 4 slots of its ring 4 can't be on their way; use 1 to 3"),
        ("dispatch KEY --tile 3x64", "even"),
        ("dispatch other --wait 0.1", "other"),
        ("work --connect ipc://DIR/d --stream other", "other"),
    ] {
        let ended = stage.run(line);
        assert_eq!(ended.code(), Some(1), "{line}: {ended:?}");
        assert!(ended.stderr.contains(words) && ended.stderr.lines().count() == 1, "{line}: {ended:?}");
    }
    for (line, words) in [
        ("dispatch", "<KEY|--grid <BOX>>"),
        ("dispatch KEY --grid 4 --block 1", "cannot be used with"),
        ("dispatch KEY --fit shrink", "cannot be used with"),
        ("dispatch --grid 4 --block 1 --tile 4x4", "cannot be used with"),
        ("dispatch --grid 4 --block 1 --task a --task b", "one --task"),
        ("dispatch KEY --tile 4", "540x960"),
        ("dispatch KEY --task a@b", "@"),
        ("dispatch KEY --task a --task a", "the same name"),
        ("dispatch KEY --workers 31 -- true", "at most 31 subscribers"),
        ("dispatch KEY --workers 16 --task a --task b -- true", "at most 31 subscribers"),
        ("dispatch KEY --listen 80000", "0 to 65535"),
        ("dispatch KEY --listen nowhere", "tcp://"),
        ("work --stream KEY --connect 1 --depth 300", "1..=256"),
        ("work --connect ipc://DIR/d", "--stream"),
        ("work --connect ipc://DIR/d --task blocks --check-seq", "--check-seq"),
        ("publish KEY --pattern seq --patience 0", "more than 0"),
    ] {
        let ended = stage.run(line);
        assert_eq!(ended.code(), Some(2), "{line}: {ended:?}");
        assert!(ended.stderr.contains(words) && ended.stderr.lines().count() == 1, "{line}: {ended:?}");
    }
    drop(publisher);
    stage.run("gc").succeeded();
}
