//! A stream is recorded and replayed as it was, and a recording that came to no good end has what was whole.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use cuframes_mio::Publisher;
use cuframes_mio::core::{Format, FrameMeta, Policy};
use rustix::fs::{CWD, Mode, mkfifoat};
use rustix::process::{Signal, geteuid};

use crate::errors::{FAILED, one_line};
use crate::stage::{Ended, Process, Stage, strict, wait_until};
use crate::watcher::{Seen, Watcher};

/// Records what a publisher with these options publishes. Gives the frames that somebody else saw.
fn record(stage: &Stage, options: &str) -> Vec<Seen> {
    let recorder = stage.start("record KEY DIR/out.mkv --json --timeout 120");
    let watcher = Watcher::start(stage);
    stage.run(&format!("publish KEY {options} {}", strict(2))).succeeded();
    let seen = watcher.end();
    let report = recorder.end().succeeded().json();
    assert_eq!((&report["frames"], &report["dropped"]), (&seen.len().into(), &0.into()));
    assert_eq!(report["end"], "stream");
    assert_eq!(report["file_bytes"], fs::metadata(stage.path("out.mkv")).unwrap().len());
    seen
}

/// Replays it. Gives the frames that somebody saw, and what was reported.
fn replay(stage: &Stage, options: &str) -> (Vec<Seen>, Ended) {
    let watcher = Watcher::start(stage);
    let ended = stage.run(&format!("replay DIR/out.mkv KEY --json {options} {}", strict(1)));
    (watcher.end(), ended)
}

/// Whether both are the same frames, whatever their numbers are.
#[track_caller]
fn assert_same(replayed: &[Seen], recorded: &[Seen]) {
    assert_eq!(replayed.len(), recorded.len());
    for (n, (replayed, recorded)) in replayed.iter().zip(recorded).enumerate() {
        assert!(replayed.without_seq() == recorded.without_seq(), "frame {n} differs");
    }
    assert!(replayed.iter().map(|seen| seen.seq).eq(1..=u64::try_from(recorded.len()).unwrap()));
}

/// Waits until the file has more than what comes before its first frame.
fn wait_for_frames(stage: &Stage) {
    wait_until("a frame", || fs::metadata(stage.path("out.mkv")).is_ok_and(|file| file.len() > 20_000));
}

#[test]
fn six_hundred_frames_are_replayed_byte_for_byte_with_their_time_stamps() {
    let stage = Stage::new();
    let recorded = record(&stage, "--pattern noise --size 66x34 --frames 600 --fps 0");
    assert_eq!(recorded.len(), 600);
    let (replayed, ended) = replay(&stage, "--fps 0");
    assert_same(&replayed, &recorded);
    let report = ended.succeeded().json();
    for (field, expected) in [
        ("frames", 600.into()),
        ("recorded_key", stage.key.clone().into()),
        ("first_seq", 1.into()),
        ("last_seq", 600.into()),
        ("missing", 0.into()),
        ("is_cut", false.into()),
        ("end", serde_json::Value::from("stream")),
    ] {
        assert_eq!(report[field], expected, "{field}: {report}");
    }
    assert!(stage.leftovers().is_empty());
}

#[test]
fn frames_of_every_format_are_replayed_with_their_geometry() {
    for format in Format::ALL {
        let stage = Stage::new();
        let size = if format == Format::BYTES { "1000x1" } else { "67x5" };
        let recorded =
            record(&stage, &format!("--pattern noise --format {format} --size {size} --frames 5 --fps 0"));
        assert_eq!(recorded[0].meta.format, format);
        let (replayed, ended) = replay(&stage, "--fps 0");
        ended.succeeded();
        assert_same(&replayed, &recorded);
    }
}

/// Frames as no program of ours publishes them.
#[test]
fn payloads_of_any_length_foreign_pitches_and_time_stamps_that_jump_are_kept() {
    let stamps = [-5, i64::MIN, 1 << 60, 0, 0, 7];
    for meta in [
        FrameMeta::new(Format::BYTES, 300, 1).unwrap(),
        FrameMeta::with_pitches(Format::I420, 10, 6, 10, 77).unwrap(),
        FrameMeta::with_pitches(Format::RGB24, 5, 3, 16, 0).unwrap(),
    ] {
        let stage = Stage::new();
        let recorder = stage.start("record KEY DIR/out.mkv --timeout 120");
        let watcher = Watcher::start(&stage);
        let builder = Publisher::builder(stage.key.parse().unwrap(), meta).run_dir(stage.run_dir());
        let mut publisher = builder.policy(Policy::STRICT_WAIT).create().unwrap().serve().unwrap();
        publisher.wait_for(2, Duration::from_secs(120)).unwrap();
        for (n, pts_ns) in stamps.into_iter().enumerate() {
            let mut claim = publisher.claim().unwrap();
            let bytes = claim.bytes_mut();
            bytes.iter_mut().enumerate().for_each(|(i, byte)| *byte = u8::try_from((i + n) % 249).unwrap());
            let whole = meta.format != Format::BYTES;
            let written = if whole { meta.frame_size_bytes } else { 50 * u64::try_from(n).unwrap() };
            claim.commit_with(pts_ns, written);
        }
        publisher.shut_down(cuframes_mio::core::wire::ShutdownReason::NORMAL).unwrap();
        recorder.end().succeeded();
        let recorded = watcher.end();
        assert_eq!(recorded.iter().map(|seen| seen.pts_ns).collect::<Vec<_>>(), stamps);
        let (replayed, ended) = replay(&stage, "--fps 0");
        ended.succeeded();
        assert_same(&replayed, &recorded);
    }
}

#[test]
fn a_replay_takes_as_long_as_its_time_stamps_say_or_as_its_rate_does() {
    let stage = Stage::new();
    let recorded = record(&stage, "--pattern seq --size 8x8 --frames 6 --fps 20");
    let stamps = Duration::from_nanos(u64::try_from(recorded[5].pts_ns - recorded[0].pts_ns).unwrap());
    for (options, least) in [("", stamps), ("--fps 10", Duration::from_millis(500))] {
        let start = Instant::now();
        let (replayed, ended) = replay(&stage, options);
        ended.succeeded();
        assert!(start.elapsed() >= least, "{options}: {:?} is less than {least:?}", start.elapsed());
        assert_same(&replayed, &recorded);
    }
}

#[test]
fn a_repeated_replay_goes_on_in_time_and_ends_after_as_many_frames_as_asked_for() {
    let stage = Stage::new();
    let recorded = record(&stage, "--pattern noise --size 8x8 --frames 3 --fps 100");
    let (replayed, ended) = replay(&stage, "--fps 0 --loop --frames 8");
    let report = ended.succeeded().json();
    assert_eq!((&report["rounds"], &report["end"]), (&3.into(), &"frames".into()));
    assert_eq!(replayed.len(), 8);
    for (n, seen) in replayed.iter().enumerate() {
        assert_eq!(seen.bytes, recorded[n % 3].bytes, "{n}");
    }
    assert!(
        replayed[..3].iter().zip(&recorded).all(|(replayed, recorded)| replayed.pts_ns == recorded.pts_ns)
    );
    assert!(replayed.is_sorted_by(|one, next| one.pts_ns < next.pts_ns), "{replayed:?}");
}

#[test]
fn a_recording_ends_when_it_is_told_to_and_is_complete_then() {
    for (options, end) in [("--frames 7", "frames"), ("--duration 0.3", "duration"), ("", "signal")] {
        let stage = Stage::new();
        let publisher = stage.start("publish KEY --pattern noise --size 64x64 --fps 100");
        let recorder = stage.start(&format!("record KEY DIR/out.mkv --json --timeout 120 {options}"));
        if end == "signal" {
            wait_for_frames(&stage);
            recorder.signal(Signal::TERM);
        }
        let report = recorder.end().succeeded().json();
        assert_eq!(report["end"], end);
        publisher.signal(Signal::TERM);
        publisher.end().succeeded();
        let (replayed, ended) = replay(&stage, "--fps 0");
        assert_eq!(report["frames"], replayed.len(), "{end}");
        let (replayed, ended) = (replayed.len(), ended.succeeded());
        assert!(replayed > 0 && ended.stderr.is_empty(), "{ended:?}");
        assert_eq!(ended.json()["is_cut"], false);
    }
}

#[test]
fn a_killed_recorder_leaves_every_whole_frame_and_so_does_a_cut_in_the_file() {
    let stage = Stage::new();
    let publisher = stage.start("publish KEY --pattern noise --size 64x64 --fps 500");
    let recorder = stage.start("record KEY DIR/out.mkv --timeout 120");
    wait_for_frames(&stage);
    recorder.signal(Signal::KILL);
    recorder.end();
    publisher.signal(Signal::TERM);
    publisher.end().succeeded();
    let (whole, ended) = replay(&stage, "--fps 0");
    let ended = ended.succeeded();
    assert!(ended.stderr.contains("is not complete: it is replayed up to its last whole frame"), "{ended:?}");
    assert_eq!(ended.json()["is_cut"], true);

    let bytes = fs::read(stage.path("out.mkv")).unwrap();
    fs::write(stage.path("out.mkv"), &bytes[..bytes.len() / 2]).unwrap();
    let (half, ended) = replay(&stage, "--fps 0");
    ended.succeeded();
    assert!(!half.is_empty() && half.len() < whole.len());
    assert_same(&half, &whole[..half.len()]);
}

#[test]
fn a_recording_that_is_damaged_is_replayed_up_to_there_and_then_fails() {
    let stage = Stage::new();
    record(&stage, "--pattern noise --size 64x64 --frames 4 --fps 0");
    let mut bytes = fs::read(stage.path("out.mkv")).unwrap();
    // The start of the third cluster.
    let mut clusters = bytes.windows(4).enumerate().filter(|(_, id)| *id == [0x1F, 0x43, 0xB6, 0x75]);
    let at = clusters.nth(2).unwrap().0;
    bytes[at] = 0;
    fs::write(stage.path("out.mkv"), bytes).unwrap();
    let (replayed, ended) = replay(&stage, "--fps 0");
    assert_eq!(replayed.len(), 2);
    let text = one_line(&ended, FAILED);
    assert!(text.contains(&format!("damaged at byte {at}, after 2 frames, which are")), "{text}");
    assert_eq!((&ended.json()["frames"], &ended.json()["end"]), (&2.into(), &"failure".into()), "{ended:?}");
}

#[test]
fn what_a_recorder_can_not_take_in_time_is_counted_and_missing_in_the_recording() {
    let stage = Stage::new();
    let publisher = stage.start("publish KEY --pattern noise --size 64x64 --fps 500");
    let recorder = stage.start("record KEY DIR/out.mkv --json --timeout 120");
    wait_for_frames(&stage);
    recorder.signal(Signal::STOP);
    let mut other = stage.start("subscribe KEY --mode strict --frames 100 --timeout 120");
    wait_until("100 more frames", || other.child().try_wait().unwrap().is_some());
    recorder.signal(Signal::CONT);
    let before = fs::metadata(stage.path("out.mkv")).unwrap().len();
    wait_until("more of them", || fs::metadata(stage.path("out.mkv")).unwrap().len() > before + 20_000);
    recorder.signal(Signal::INT);
    let recorded = recorder.end().succeeded().json();
    publisher.signal(Signal::TERM);
    publisher.end().succeeded();
    let dropped = recorded["dropped"].as_u64().unwrap();
    assert!(dropped >= 90, "{recorded}");
    let numbers = recorded["last_seq"].as_u64().unwrap() - recorded["first_seq"].as_u64().unwrap() + 1;
    assert_eq!(recorded["frames"].as_u64().unwrap() + dropped, numbers, "{recorded}");
    let (replayed, ended) = replay(&stage, "--fps 0");
    assert_eq!(ended.succeeded().json()["missing"], dropped);
    assert_eq!(recorded["frames"], replayed.len());
}

#[test]
fn a_publisher_that_dies_leaves_a_complete_recording() {
    let stage = Stage::new();
    let publisher = stage.start("publish KEY --pattern noise --size 64x64 --fps 100");
    let recorder = stage.start("record KEY DIR/out.mkv --json --timeout 120");
    wait_for_frames(&stage);
    publisher.signal(Signal::KILL);
    publisher.end();
    let recorder = recorder.end();
    assert!(one_line(&recorder, FAILED).contains("start its publisher again"), "{recorder:?}");
    let (replayed, ended) = replay(&stage, "--fps 0");
    assert_eq!(recorder.json()["frames"], replayed.len());
    assert_eq!(ended.succeeded().json()["is_cut"], false);
}

#[test]
fn a_signal_before_there_is_a_stream_ends_a_recorder_and_makes_no_file() {
    let stage = Stage::new();
    let mut recorder = stage.start("record KEY DIR/out.mkv --json --timeout 120");
    // It takes over this signal last; before it has all of them, one ends it as it ends any program.
    let status = format!("/proc/{}/status", recorder.child().id());
    wait_until("its handlers", || {
        let status = fs::read_to_string(&status).unwrap();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
        u64::from_str_radix(caught.trim(), 16).unwrap() & (1 << (Signal::XFSZ.as_raw() - 1)) != 0
    });
    recorder.signal(Signal::TERM);
    let report = recorder.end().succeeded().json();
    assert_eq!((&report["frames"], &report["end"]), (&0.into(), &"signal".into()));
    assert!(!stage.path("out.mkv").exists());
}

/// Records until the disk is full, and replays what there is.
fn fill(stage: &Stage, recorder: Process) {
    let publisher = stage.start("publish KEY --pattern noise --size 64x64 --fps 500");
    let recorder = recorder.end();
    publisher.signal(Signal::TERM);
    publisher.end().succeeded();
    let text = one_line(&recorder, FAILED);
    let frames = recorder.json()["frames"].as_u64().unwrap();
    assert!(text.contains(&format!("the {frames} frames before it are in the file")), "{text}");
    let (replayed, ended) = replay(stage, "--fps 0");
    assert_eq!(frames, u64::try_from(replayed.len()).unwrap());
    assert!(frames > 5);
    assert_eq!(ended.succeeded().json()["is_cut"], false);
}

#[test]
fn a_full_disk_ends_a_recording_with_an_error_and_all_frames_before_are_there() {
    let stage = Stage::new();
    // A limit on the size of files works like a disk that is full.
    let recorder = Process::start(
        Command::new("sh")
            .args(["-c", "ulimit -f 100; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_cuframes")])
            .args(["record", &stage.key, "--json", "--timeout", "120"])
            .arg(stage.path("out.mkv"))
            .env("CUFRAMES_RUN_DIR", stage.run_dir())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped()),
    );
    fill(&stage, recorder);
}

/// A small disk, unmounted on drop.
struct Disk<'a>(&'a Path);

impl Drop for Disk<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0).status();
    }
}

#[test]
fn a_full_tmpfs_does_the_same() {
    let stage = Stage::new();
    let dir = stage.path("disk");
    fs::create_dir(&dir).unwrap();
    let mount = Command::new("mount").args(["-t", "tmpfs", "-o", "size=200k", "none"]).arg(&dir).output();
    if !geteuid().is_root() || !mount.is_ok_and(|mount| mount.status.success()) {
        eprintln!("skipped: only root can mount a small disk");
        return;
    }
    let disk = Disk(&dir);
    fill_disk(&stage);
    drop(disk);
}

fn fill_disk(stage: &Stage) {
    std::os::unix::fs::symlink(stage.path("disk/full.mkv"), stage.path("out.mkv")).unwrap();
    fs::File::create(stage.path("disk/full.mkv")).unwrap().write_all(b"old").unwrap();
    fill(stage, stage.start("record KEY DIR/out.mkv --force --json --timeout 120"));
}

#[test]
fn a_file_that_exists_is_overwritten_only_if_that_is_asked_for() {
    let stage = Stage::new();
    fs::write(stage.path("out.mkv"), vec![b'x'; 100_000]).unwrap();
    let refused = stage.run("record KEY DIR/out.mkv --timeout 0");
    assert!(one_line(&refused, FAILED).contains("it exists; use --force"), "{refused:?}");
    let nobody = stage.run("record KEY DIR/out.mkv --timeout 0 --force");
    assert!(one_line(&nobody, FAILED).contains("is its publisher running"), "{nobody:?}");
    assert_eq!(fs::read(stage.path("out.mkv")).unwrap().len(), 100_000, "nothing to record, nothing is lost");

    let publisher = stage.start("publish KEY --pattern noise --size 8x8 --fps 100");
    let ended = stage.run("record KEY DIR/out.mkv --frames 2 --force --timeout 120 --json").succeeded();
    assert_eq!(ended.json()["file_bytes"], fs::metadata(stage.path("out.mkv")).unwrap().len());
    let nowhere = stage.run("record KEY -");
    assert!(one_line(&nowhere, 2).contains("goes into a file, not to standard output"), "{nowhere:?}");
    for (file, part) in [("DIR/no/out.mkv", "No such file"), ("DIR/run", "it is a directory")] {
        let ended = stage.run(&format!("record KEY {file} --force --timeout 120"));
        assert!(one_line(&ended, FAILED).contains(part), "{ended:?}");
    }
    publisher.signal(Signal::TERM);
    publisher.end().succeeded();
}

#[test]
fn a_file_that_can_not_be_replayed_is_an_error_that_says_what_to_do() {
    let stage = Stage::new();
    record(&stage, "--pattern seq --size 8x8 --frames 2 --fps 0");
    let bytes = fs::read(stage.path("out.mkv")).unwrap();
    let mut newer = bytes.clone();
    let version = newer.windows(4).rposition(|bytes| bytes == b"cufr").unwrap() + 7;
    newer[version] = 2;
    for (name, bytes) in [
        ("text", &b"hello, this is not a recording"[..]),
        ("empty", b""),
        ("header", &bytes[..100]),
        ("no-frame", &bytes[..version + 100]),
        ("newer", &newer),
    ] {
        fs::write(stage.path(name), bytes).unwrap();
    }
    mkfifoat(CWD, stage.path("fifo"), Mode::RUSR).unwrap();
    for (name, part) in [
        ("text", "it is not a recording; make one with cuframes record"),
        ("empty", "it is not a recording"),
        ("header", "it ends before its first frame; record it again"),
        ("no-frame", "it has no whole frame; record it again"),
        ("newer", "version 2 of the layout"),
        ("missing", "No such file"),
        ("run", "it is not a regular file; copy it into one"),
        ("fifo", "it is not a regular file; copy it into one"),
    ] {
        let text = one_line(&stage.run(&format!("replay DIR/{name} KEY")), FAILED);
        assert!(text.contains(part) && text.contains(name), "{text}");
    }
    assert!(stage.leftovers().is_empty());
}
