//! `subscribe --reconnect` goes on with the next publisher, and says so.

use std::fs;

use rustix::process::Signal;

use crate::errors::{FAILED, one_line};
use crate::stage::{Process, Stage, wait_until};

/// Waits until the video that a subscriber writes has more than `bytes` bytes.
fn wait_for_video(stage: &Stage, bytes: u64) {
    wait_until("a frame", || fs::metadata(stage.path("out.y4m")).is_ok_and(|file| file.len() > bytes));
}

/// A publisher of small frames, after the first of which was written.
fn publisher(stage: &Stage, options: &str) -> Process {
    let before = fs::metadata(stage.path("out.y4m")).map_or(0, |file| file.len());
    let publisher = stage.start(&format!("publish KEY --pattern seq --format gray8 --fps 200 {options}"));
    // More than a header, which says little more than 50 bytes.
    wait_for_video(stage, before + 100);
    publisher
}

#[test]
fn it_is_there_before_its_publisher_goes_on_with_the_next_one_and_ends_on_a_signal() {
    let stage = Stage::new();
    let reader = stage.start("subscribe KEY --reconnect --mode strict --check-seq --y4m DIR/out.y4m --json");
    let killed = publisher(&stage, "--size 64x4");
    killed.signal(Signal::KILL);
    killed.end();
    let stopped = publisher(&stage, "--size 64x4");
    stopped.signal(Signal::TERM);
    stopped.end().succeeded();
    let last = publisher(&stage, "--size 64x4");
    reader.signal(Signal::INT);
    let reader = reader.end().succeeded();
    let report = reader.json();
    assert_eq!((&report["end"], &report["reconnects"]), (&"signal".into(), &2.into()));
    assert_eq!(report["torn"], 0);
    let lines: Vec<_> = reader.stderr.lines().collect();
    let [killed, again, stopped, and_again] = lines[..] else { panic!("{reader:?}") };
    let stream = format!("cuframes: stream {}: ", stage.key);
    for line in [killed, stopped] {
        assert!(line.starts_with(&stream) && line.ends_with("; waiting for the next publisher"), "{line}");
    }
    assert!(killed.contains("the connection ended") && stopped.contains("shut down (normal)"), "{reader:?}");
    for line in [again, and_again] {
        let start = format!("{stream}attached to a publisher again (pid ");
        assert!(line.starts_with(&start) && line.ends_with("): gray8 64x4"), "{line}");
    }
    last.signal(Signal::TERM);
    last.end().succeeded();
}

#[test]
fn another_format_ends_a_video_and_leaves_it_whole() {
    let stage = Stage::new();
    let reader = stage.start("subscribe KEY --reconnect --y4m DIR/out.y4m --json");
    let first = publisher(&stage, "--size 64x4");
    first.signal(Signal::TERM);
    first.end().succeeded();
    let second = stage.start("publish KEY --pattern seq --format gray8 --size 32x8 --fps 200");
    let reader = reader.end();
    assert_eq!(reader.json()["end"], "failure");
    let lines: Vec<_> = reader.stderr.lines().collect();
    assert_eq!(lines.len(), 3, "{reader:?}");
    assert!(lines[1].ends_with(": gray8 32x8, which is another format than before"), "{reader:?}");
    assert_eq!(reader.code(), Some(FAILED));
    let video = stage.path("out.y4m").display().to_string();
    let last =
        format!("it goes on as gray8 32x8, which does not fit into {video}; what came before is in there");
    assert!(lines[2].contains(&last), "{reader:?}");
    let video = fs::read(video).unwrap();
    let header = video.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    let frames = video[header..].chunks(b"FRAME\n".len() + 64 * 4);
    assert!(frames.len() > 0);
    for frame in frames {
        assert!(frame.starts_with(b"FRAME\n") && frame.len() == 6 + 64 * 4);
    }
    second.signal(Signal::TERM);
    second.end().succeeded();
}

#[test]
fn another_format_is_none_of_the_business_of_who_only_measures() {
    let stage = Stage::new();
    let reader = stage.start("subscribe KEY --reconnect --mode strict --check-seq --frames 6 --json");
    for size in ["64x4", "31x9"] {
        let line =
            format!("publish KEY --pattern seq --size {size} --frames 3 --wait-for 1 --wait-timeout 120");
        stage.run(&format!("{line} --policy strict-wait --format rgb24")).succeeded();
    }
    let report = reader.end().succeeded().json();
    assert_eq!((&report["torn"], &report["reconnects"]), (&0.into(), &1.into()), "{report}");
}

#[test]
fn a_signal_ends_it_while_it_waits_for_a_publisher() {
    let stage = Stage::new();
    let mut reader = stage.start("subscribe KEY --reconnect --json");
    let fds = format!("/proc/{}/fd", reader.child().id());
    wait_until("it waits", || {
        let links = fs::read_dir(&fds).into_iter().flatten().flatten();
        links
            .filter_map(|link| fs::read_link(link.path()).ok())
            .any(|path| path.ends_with("anon_inode:inotify"))
    });
    reader.signal(Signal::TERM);
    let reader = reader.end().succeeded();
    assert_eq!((&reader.json()["end"], &reader.json()["frames"]), (&"signal".into(), &0.into()));
    assert!(reader.stderr.is_empty(), "{reader:?}");
}

#[test]
fn who_does_not_want_to_wait_for_ever_hears_what_was_missing() {
    let stage = Stage::new();
    let text = one_line(&stage.run("subscribe KEY --reconnect --timeout 0.3"), FAILED);
    assert!(text.contains("not found in") && text.contains("--timeout allows more"), "{text}");
}

#[test]
fn verbose_commands_tell_on_standard_error_who_comes_and_goes() {
    let stage = Stage::new();
    let reader = stage.start("subscribe KEY --reconnect -v --json --frames 3");
    stage
        .run("publish KEY --pattern seq --size 64x4 --fps 100 --frames 50 --wait-for 1 --wait-timeout 120")
        .succeeded();
    let reader = reader.end().succeeded();
    let lines: Vec<_> = reader.stderr.lines().collect();
    let key = format!("key={} ", stage.key);
    assert!(lines.iter().all(|line| line.contains(" INFO ") && line.contains(&key)), "{reader:?}");
    assert!(
        lines.iter().any(|line| line.contains(" INFO attached ") && line.contains("width=64")),
        "{reader:?}"
    );
}
