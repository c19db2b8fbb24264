//! Everything that can go wrong from outside: one line that names the cause and the remedy, and the right exit code.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;

use rustix::process::{Signal, geteuid};

use crate::stage::{Ended, Process, Stage, strict, video, wait_until};

pub(crate) const FAILED: i32 = 1;
const WRONG_USAGE: i32 = 2;

/// Runs a command that must fail and returns its one line.
#[track_caller]
fn error(stage: &Stage, line: &str, code: i32) -> String {
    one_line(&stage.run(line), code)
}

#[track_caller]
pub(crate) fn one_line(ended: &Ended, code: i32) -> String {
    assert_eq!(ended.code(), Some(code), "{ended:?}");
    assert_eq!(ended.stderr.lines().count(), 1, "{ended:?}");
    let line = ended.stderr.trim_end().strip_prefix("cuframes: ").expect("the name of the program");
    assert!(line.contains("; "), "no remedy: {line}");
    line.to_string()
}

#[test]
fn arguments_that_nobody_can_use_are_wrong_usage() {
    let stage = Stage::new();
    for (line, part) in [
        ("publish KEY", "--y4m <FILE>|--pattern <PATTERN>"),
        ("publish KEY --pattern seq --y4m DIR/x", "cannot be used with"),
        ("publish KEY --y4m DIR/x --size 2x2", "cannot be used with"),
        ("publish KEY --y4m - --loop", "use --loop with a file"),
        ("bench --jobs spin,fly", "possible values: spin, wake, publish, flow, handshake, death, policies"),
        ("bench --rounds 0", "0 is not in 1.."),
        ("bench --plot DIR/x.png", "only SVG can be written; give it a name in .svg"),
        ("bench --jobs flow --plot DIR/x.svg", "add the job spin or wake"),
        ("publish KEY --pattern zebra", "possible values: bars, noise, seq"),
        ("publish KEY --pattern seq --ring 0", "1 to 16 frames"),
        ("publish KEY --pattern seq --ring 17", "1 to 16 frames"),
        ("publish KEY --pattern seq --size 0x720", "WIDTHxHEIGHT"),
        ("publish KEY --pattern seq --size 1280x0", "WIDTHxHEIGHT"),
        ("publish KEY --pattern seq --size 1280", "WIDTHxHEIGHT"),
        ("publish KEY --pattern seq --size 4294967296x1", "from 1 to 4294967295"),
        ("publish KEY --pattern seq --size 4294967295x1", "use a smaller frame"),
        ("publish KEY --pattern seq --size 4294967040x4294967295 --format i444", "use a smaller frame"),
        ("publish KEY --pattern seq --format yuv", "possible values: nv12, p010"),
        ("publish KEY --pattern seq --format bytes --size 8x2", "must be 1"),
        ("publish KEY --pattern bars --format bytes --size 8x1", "use --pattern seq or noise"),
        ("publish KEY --pattern seq --policy strict", "drop-oldest, strict-wait"),
        ("publish KEY --pattern seq --fps fast", "30000/1001"),
        ("publish KEY --pattern seq --fps=-1", "30000/1001"),
        ("publish KEY --pattern seq --frames 0", "0 is not in 1.."),
        ("publish KEY --pattern seq --wait-for 32", "32 is not in 1..=31"),
        ("publish KEY --pattern seq --wait-timeout 3", "--wait-for <N>"),
        ("publish a/b --pattern seq", "use 1 to 63 of a-z"),
        ("subscribe", "<KEY>"),
        ("subscribe KEY --mode oldest", "newest, strict"),
        ("subscribe KEY --timeout soon", "a number of seconds"),
        ("subscribe KEY --y4m DIR/x --rate 0", "above 0"),
        ("subscribe KEY --rate 25", "--y4m <FILE>"),
        ("subscribe KEY --delay 0.5", "whole number of milliseconds"),
        ("record KEY", "<FILE>"),
        ("record KEY DIR/x --mode oldest", "newest, strict"),
        ("record KEY DIR/x --frames 0", "0 is not in 1.."),
        ("record KEY DIR/x --duration soon", "a number of seconds"),
        ("replay DIR/x", "<KEY>"),
        ("replay DIR/x KEY --fps fast", "30000/1001"),
        ("replay DIR/x KEY --wait-timeout 3", "--wait-for <N>"),
        ("bridge send KEY", "--to <ADDR>"),
        ("bridge send KEY --to 99999", "0 to 65535"),
        ("bridge send KEY --to 1 --strict --on-demand", "cannot be used with"),
        ("bridge send KEY --to 1 --window 0", "0 is not in 1..=15"),
        ("bridge send KEY --to 1 --transport pigeon", "possible values: auto, tcp, rdma"),
        ("bridge recv --fetch newest --output x", "--key <KEY>"),
        ("bridge recv --key KEY --fetch newest", "--output <FILE>"),
        ("bridge recv --key KEY --fetch 0 --output x", "the number of a frame"),
        ("bridge recv --key KEY --fetch 1 --output x --prefix far-", "cannot be used with"),
        ("bridge recv --output x", "--fetch <SEQ|newest>"),
        ("bridge recv --memory lots", "64M or 2G"),
        ("exporter --listen nowhere", "use HOST:PORT, or a port of 127.0.0.1"),
        ("snapshot KEY", "<OUT.png>"),
        ("snapshot KEY x.png --matrix bt2020", "possible values: auto, bt601, bt709"),
        ("snapshot KEY x.png --range tv", "possible values: limited, full"),
        ("snapshot KEY x.png --timeout soon", "a number of seconds"),
        ("view", "<KEY>"),
        ("view KEY --fps 0", "0 is not in 1..=1000"),
        ("view KEY --frames 0", "0 is not in 1.."),
        ("demo --subscribers 0", "0 is not in 1..=31"),
        ("demo --ring 17", "1 to 16 frames"),
        ("demo --format bytes", "must be 1"),
        ("demo --frobnicate", "--frobnicate"),
        ("frobnicate", "frobnicate"),
    ] {
        let text = error(&stage, line, WRONG_USAGE);
        assert!(text.contains(part), "{line}: {text}");
    }
    assert!(stage.leftovers().is_empty());
}

#[test]
fn the_help_and_the_version_are_no_errors() {
    let stage = Stage::new();
    let commands = [
        "demo",
        "publish",
        "subscribe",
        "record",
        "replay",
        "bridge",
        "bridge send",
        "bridge recv",
        "snapshot",
        "view",
        "ls",
        "top",
        "inspect",
        "gc",
        "doctor",
        "exporter",
        "barrier",
        "barrier wait",
        "barrier join",
        "dispatch",
        "work",
        "bench",
        "completions",
        "man",
    ];
    for command in ["".to_string()].into_iter().chain(commands.map(|command| format!("{command} "))) {
        let help = stage.run(&format!("{command}--help")).succeeded().stdout;
        assert!(help.contains("EXAMPLES:"), "{help}");
    }
    assert!(stage.run("--version").succeeded().stdout.starts_with("cuframes "));
    assert_eq!(stage.run("").code(), Some(WRONG_USAGE));
}

#[test]
fn a_stream_that_nobody_publishes_is_an_error_that_says_where_we_looked() {
    let stage = Stage::new();
    let text = error(&stage, "subscribe KEY --timeout 0", FAILED);
    assert!(text.contains(stage.run_dir().to_str().unwrap()), "{text}");
    assert!(text.contains("is its publisher running"), "{text}");
    let text = error(&stage, "subscribe KEY --timeout 0 --run-dir DIR/nowhere", FAILED);
    assert!(text.contains("/nowhere"), "{text}");
}

#[test]
fn a_run_directory_that_is_missing_or_closed_is_named() {
    let stage = Stage::new();
    let text = error(&stage, "publish KEY --pattern seq --run-dir DIR/no/where", FAILED);
    assert!(text.contains("/no/where") && text.contains("create its parent directory"), "{text}");

    // Root may enter everywhere, so somebody else has to try.
    let mut command = stage.cuframes("publish KEY --pattern seq");
    if geteuid().is_root() {
        command.uid(NOBODY);
    }
    fs::set_permissions(stage.path(""), fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(stage.run_dir(), fs::Permissions::from_mode(0o500)).unwrap();
    match Process::try_start(&mut command) {
        Ok(child) => {
            let text = one_line(&child.end(), FAILED);
            assert!(text.contains("not allowed to") && text.contains("/run"), "{text}");
        }
        Err(error) => eprintln!("skipped the closed directory: nobody else may run the program: {error}"),
    }
}

#[test]
fn a_second_publisher_of_a_key_is_refused_and_the_first_goes_on() {
    let stage = Stage::new();
    let first = stage.start("publish KEY --pattern seq --size 64x64 --fps 100");
    stage.wait_for_socket();
    let text = error(&stage, "publish KEY --pattern bars", FAILED);
    assert!(text.contains("exists already") && text.contains("use another key"), "{text}");
    stage.run("subscribe KEY --frames 3 --timeout 120").succeeded();
    first.signal(Signal::TERM);
    first.end().succeeded();
}

#[test]
fn a_video_that_can_not_be_published_is_an_error_that_says_what_to_do() {
    let stage = Stage::new();
    for (name, bytes) in [
        ("c422", video("W2 H2 C422", 8, 1)),
        ("c420p10", video("W2 H2 C420p10 XYSCSS=420P10", 12, 1)),
        ("alpha", video("W2 H2 C444alpha", 16, 1)),
        ("empty", Vec::new()),
        ("no-frames", video("W2 H2", 6, 0)),
    ] {
        fs::write(stage.path(name), bytes).unwrap();
    }
    for (name, part) in [
        ("c422", "-pix_fmt yuv420p"),
        ("c420p10", "-pix_fmt yuv420p"),
        ("alpha", "-pix_fmt yuv420p"),
        ("empty", "not a y4m video"),
        ("no-frames", "no frames"),
        ("missing", "No such file"),
        ("run", "Is a directory"),
    ] {
        let text = error(&stage, &format!("publish KEY --y4m DIR/{name}"), FAILED);
        assert!(text.contains(part) && text.contains(name), "{text}");
    }
    assert!(stage.leftovers().is_empty());
}

#[test]
fn a_video_that_is_cut_ends_the_stream_with_an_error_on_both_sides() {
    let stage = Stage::new();
    let mut clip = video("W6 H4 F25:1", 36, 3);
    clip.truncate(clip.len() - 1);
    fs::write(stage.path("cut.y4m"), clip).unwrap();
    let reader = stage.start("subscribe KEY --mode strict --json --timeout 120");
    let publisher = stage.run(&format!("publish KEY --y4m DIR/cut.y4m --json {}", strict(1)));
    let text = one_line(&publisher, FAILED);
    assert!(text.contains("frame 3 of") && text.contains("ends in the middle"), "{text}");
    let report = publisher.json();
    assert_eq!((&report["frames"], &report["end"]), (&2.into(), &"failure".into()), "{report}");
    let reader = reader.end();
    assert_eq!(
        (&reader.json()["frames"], &reader.json()["end"]),
        (&2.into(), &"failure".into()),
        "{reader:?}"
    );
    assert!(one_line(&reader, FAILED).contains("the publisher shut down (error)"), "{reader:?}");
}

#[test]
fn subscribers_that_do_not_come_are_counted() {
    let stage = Stage::new();
    let text = error(&stage, "publish KEY --pattern seq --wait-for 2 --wait-timeout 0.5", FAILED);
    assert!(text.contains("0 of 2 subscribers came within 500ms"), "{text}");
    assert!(stage.leftovers().is_empty());
}

#[test]
fn a_stalled_stream_ends_a_subscriber_that_does_not_want_to_wait() {
    let stage = Stage::new();
    let publisher = stage.start("publish KEY --pattern seq --size 64x64 --fps 1/1000");
    stage.wait_for_socket();
    let reader = stage.run("subscribe KEY --json --timeout 0.2");
    assert_eq!(reader.json()["end"], "failure", "{reader:?}");
    assert!(one_line(&reader, FAILED).contains("no frame for 200ms"), "{reader:?}");
    publisher.signal(Signal::TERM);
    publisher.end().succeeded();
}

#[test]
fn bytes_that_are_not_the_frames_own_fail_the_check() {
    let stage = Stage::new();
    let reader = stage.start("subscribe KEY --mode strict --check-seq --json --timeout 120");
    stage.run(&format!("publish KEY --pattern noise --size 64x4 --frames 5 {}", strict(1))).succeeded();
    let reader = reader.end();
    assert_eq!(reader.json()["torn"], 5, "{reader:?}");
    assert!(one_line(&reader, FAILED).contains("5 of 5 frames of stream"), "{reader:?}");
}

#[test]
fn a_format_that_y4m_does_not_have_is_refused_by_the_subscriber() {
    let stage = Stage::new();
    let publisher = stage.start("publish KEY --pattern bars --size 64x4 --format rgb24");
    stage.wait_for_socket();
    let reader = stage.run("subscribe KEY --y4m DIR/out.y4m --timeout 120");
    assert_eq!(reader.code(), Some(FAILED));
    assert!(reader.stderr.contains("only i420, nv12, i444 and gray8 fit"), "{reader:?}");
    assert!(!stage.path("out.y4m").exists());
    publisher.signal(Signal::TERM);
    publisher.end().succeeded();
}

#[test]
fn a_killed_publisher_is_an_error_of_its_subscribers_and_stands_in_nobodys_way() {
    let stage = Stage::new();
    let killed = stage.start("publish KEY --pattern seq --size 64x4");
    stage.wait_for_socket();
    let reader = stage.start("subscribe KEY --y4m DIR/out.y4m --timeout 120");
    wait_until("a frame", || fs::metadata(stage.path("out.y4m")).is_ok_and(|file| file.len() > 100));
    killed.signal(Signal::KILL);
    killed.end();
    let text = one_line(&reader.end(), FAILED);
    assert!(text.contains("the connection ended; start its publisher again"), "{text}");
    stage.run("publish KEY --pattern seq --size 64x4 --frames 1").succeeded();
    assert!(stage.leftovers().is_empty());
}

/// The user id that owns nothing.
const NOBODY: u32 = 65534;
