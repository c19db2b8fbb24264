//! One frame of a stream becomes a picture: with the right size and colours, complete or not at all.

use std::fs;
use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::thread;

use cuframes_core::{Format, FrameMeta, Policy, RingSize};
use cuframes_mio::{Departures, Publisher};
use png::ColorType;
use rustix::process::{Signal, geteuid};

use crate::errors::{FAILED, one_line};
use crate::stage::{Process, Stage, read_all, wait_until};
use crate::stills::{Picture, publish, snapshot};

/// The only file of a test directory that is neither the run directory nor named.
fn strangers(stage: &Stage, known: &[&str]) -> Vec<String> {
    let entries = fs::read_dir(stage.path("")).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name != "run" && !known.contains(&name.as_str())).collect()
}

#[test]
fn the_bars_of_every_format_have_their_colours() {
    for format in Format::ALL.into_iter().filter(|format| *format != Format::BYTES) {
        let stage = Stage::new();
        let line = format!("publish KEY --pattern bars --size 160x90 --format {format} --fps 1/1000");
        let _publisher = stage.start(&line);
        stage.wait_for_socket();
        let picture = snapshot(&stage, "");
        assert_eq!(picture.size, (160, 90), "{format}");
        let (colour, channels) = match format {
            Format::GRAY8 | Format::GRAY16 => (ColorType::Grayscale, 1),
            Format::RGBA32 | Format::BGRA32 => (ColorType::Rgba, 4),
            _ => (ColorType::Rgb, 3),
        };
        assert_eq!(picture.colour, colour, "{format}");
        // Frame 1 has moved to the left by 4 pixels; the middle of a bar is as it was.
        let middles = (0..8).map(|bar| &picture.bytes[(45 * 160 + bar * 20 + 6) * channels..][..channels]);
        for (bar, (found, mut expected)) in middles.zip(BARS).enumerate() {
            if channels == 1 {
                expected = [GREYS[bar]; 3];
            }
            let is_near = found.iter().zip(expected).all(|(found, expected)| found.abs_diff(expected) <= 1);
            assert!(is_near, "{format}, bar {bar}: {found:?} instead of {expected:?}");
            assert!(channels < 4 || found[3] == 255, "{format}");
        }
    }
}

#[test]
fn frames_of_any_size_and_pitch_are_exact() {
    for (width, height, pitches) in
        [(1, 1, (7, 5)), (7, 5, (24, 19)), (640, 3, (640, 640)), (33, 31, (99, 77))]
    {
        let stage = Stage::new();
        let meta = FrameMeta::with_pitches(Format::GRAY8, width, height, pitches.0, 0).unwrap();
        let pixels: Vec<u8> = (0..width * height).map(|n| u8::try_from(n * 7 % 256).unwrap()).collect();
        let publisher = publish(&stage, meta, std::slice::from_ref(&pixels));
        let picture = snapshot(&stage, "");
        let expected = Picture { size: (width, height), colour: ColorType::Grayscale, bytes: pixels };
        assert!(picture == expected, "{width}x{height}");
        drop(publisher);

        let (chroma_width, chroma_height) = (width.div_ceil(2), height.div_ceil(2));
        let stage = Stage::new();
        let meta =
            FrameMeta::with_pitches(Format::I420, width, height, pitches.0, pitches.1.max(chroma_width));
        let plane = |value, w, h| vec![value; usize::try_from(w * h).unwrap()];
        let [luma, u, v] = [
            plane(81, width, height),
            plane(90, chroma_width, chroma_height),
            plane(240, chroma_width, chroma_height),
        ];
        let _publisher = publish(&stage, meta.unwrap(), &[luma, u, v]);
        let picture = snapshot(&stage, "");
        assert_eq!((picture.size, picture.colour), ((width, height), ColorType::Rgb));
        assert!(
            picture.bytes.chunks(3).all(|pixel| pixel == [254, 0, 0]),
            "{width}x{height}: all of it is red"
        );
    }
}

#[test]
fn alpha_is_kept() {
    let stage = Stage::new();
    let meta = FrameMeta::new(Format::BGRA32, 2, 1).unwrap();
    let _publisher = publish(&stage, meta, &[vec![3, 2, 1, 0, 30, 20, 10, 128]]);
    let picture = snapshot(&stage, "");
    assert_eq!(picture.bytes, [1, 2, 3, 0, 10, 20, 30, 128]);
    assert_eq!(picture.colour, ColorType::Rgba);
}

#[test]
fn matrix_and_range_are_those_that_were_asked_for_and_the_matrix_follows_the_height() {
    let first = |stage: &Stage, options: &str| snapshot(stage, options).bytes[..3].to_vec();
    for (height, auto) in [(719, "bt601"), (720, "bt709")] {
        let stage = Stage::new();
        let meta = FrameMeta::new(Format::I444, 2, height).unwrap();
        let plane = |value| vec![value; usize::try_from(2 * height).unwrap()];
        let _publisher = publish(&stage, meta, &[plane(63), plane(102), plane(240)]);
        assert_eq!(first(&stage, "--matrix bt709"), [255, 1, 0], "red");
        assert_eq!(first(&stage, "--matrix bt601"), [233, 0, 2]);
        assert_eq!(first(&stage, "--matrix bt601 --range full"), [220, 0, 17]);
        assert_eq!(first(&stage, ""), first(&stage, &format!("--matrix {auto} --range limited")));
    }
}

#[test]
fn the_report_says_what_was_written() {
    let stage = Stage::new();
    let publisher = publish(&stage, FrameMeta::new(Format::GRAY8, 3, 2).unwrap(), &[vec![1, 2, 3, 4, 5, 6]]);
    let report = stage.run("snapshot KEY DIR/out.png --json").succeeded().json();
    let file = stage.path("out.png");
    assert_eq!(report["key"], stage.key.as_str());
    assert_eq!((&report["seq"], &report["format"]), (&1.into(), &"gray8".into()));
    assert_eq!((&report["width"], &report["height"]), (&3.into(), &2.into()));
    assert_eq!(report["file"], file.to_str().unwrap());
    assert_eq!(report["bytes"], fs::metadata(&file).unwrap().len());
    assert!(report["pts_ns"].as_i64().unwrap() > 0);
    let said = stage.run("snapshot KEY DIR/out.png").succeeded().stdout;
    assert!(said.contains("frame 1, gray8 3x2, written to") && said.contains("out.png ("), "{said}");
    drop(publisher);
}

#[test]
fn standard_output_gets_the_picture_and_nothing_else() {
    let stage = Stage::new();
    let _publisher = publish(&stage, FrameMeta::new(Format::GRAY8, 2, 1).unwrap(), &[vec![8, 9]]);
    let mut process = stage.start("snapshot KEY - --json");
    let picture = Picture::decode(read_all(process.child().stdout.take().unwrap()));
    assert_eq!((picture.size, picture.bytes), ((2, 1), vec![8, 9]));
    let ended = process.end().succeeded();
    assert!(ended.stderr.starts_with(r#"{"key":""#) && ended.stderr.contains(r#""file":"-""#), "{ended:?}");
    assert_eq!(strangers(&stage, &[]), [""; 0]);
}

#[test]
fn a_file_is_replaced_where_a_link_leads_and_keeps_its_permissions() {
    let stage = Stage::new();
    let _publisher = publish(&stage, FrameMeta::new(Format::GRAY8, 2, 1).unwrap(), &[vec![8, 9]]);
    fs::write(stage.path("real.png"), "old").unwrap();
    fs::set_permissions(stage.path("real.png"), fs::Permissions::from_mode(0o640)).unwrap();
    symlink("real.png", stage.path("link.png")).unwrap();
    stage.run("snapshot KEY DIR/link.png").succeeded();
    assert!(stage.path("link.png").is_symlink());
    assert_eq!(Picture::read(&stage.path("real.png")).bytes, [8, 9]);
    assert_eq!(fs::metadata(stage.path("real.png")).unwrap().permissions().mode() & 0o777, 0o640);
    assert_eq!(strangers(&stage, &["real.png", "link.png"]), [""; 0]);
}

#[test]
fn a_pipe_gets_the_picture_and_stays_a_pipe() {
    let stage = Stage::new();
    let _publisher = publish(&stage, FrameMeta::new(Format::GRAY8, 2, 1).unwrap(), &[vec![8, 9]]);
    let path = stage.path("pipe.png");
    if !Command::new("mkfifo").arg(&path).status().is_ok_and(|status| status.success()) {
        return eprintln!("skipped: there is no mkfifo");
    }
    let reader = thread::spawn({
        let path = path.clone();
        move || fs::read(path).unwrap()
    });
    stage.run("snapshot KEY DIR/pipe.png").succeeded();
    assert_eq!(Picture::decode(reader.join().unwrap()).bytes, [8, 9]);
    assert!(fs::metadata(path).unwrap().file_type().is_fifo());
}

#[test]
fn a_signal_ends_it_where_nobody_comes_to_read_the_pipe() {
    let stage = Stage::new();
    if !Command::new("mkfifo").arg(stage.path("pipe.png")).status().is_ok_and(|status| status.success()) {
        return eprintln!("skipped: there is no mkfifo");
    }
    let publisher =
        stage.start("publish KEY --pattern bars --size 64x32 --frames 1 --wait-for 1 --wait-timeout 120");
    stage.wait_for_socket();
    let snapshot = stage.start("snapshot KEY DIR/pipe.png");
    // It has its frame, and nothing but the pipe to wait for.
    publisher.end().succeeded();
    snapshot.signal(Signal::TERM);
    assert_eq!(snapshot.end().code(), Some(1));
}

#[test]
fn where_no_file_can_be_that_is_said_before_there_is_a_stream() {
    let stage = Stage::new();
    for (out, part) in [
        ("DIR/no/where.png", "create the directory"),
        ("DIR/", "it is a directory"),
        ("DIR/run", "it is a directory"),
    ] {
        let text = one_line(&stage.run(&format!("snapshot KEY {out} --timeout 1000")), FAILED);
        assert!(text.contains(part), "{out}: {text}");
    }
}

#[test]
fn a_stream_that_is_not_there_or_has_no_frame_or_no_pictures_leaves_no_file() {
    let stage = Stage::new();
    let text = one_line(&stage.run("snapshot KEY DIR/out.png --timeout 0"), FAILED);
    assert!(text.contains("is its publisher running"), "{text}");
    let waiting = stage.start("publish KEY --pattern seq --wait-for 31 --wait-timeout 1000");
    stage.wait_for_socket();
    let text = one_line(&stage.run("snapshot KEY DIR/out.png --timeout 0.3"), FAILED);
    assert!(text.contains("no frame for 300ms"), "{text}");
    let late = stage.start("snapshot KEY DIR/out.png --timeout 1000");
    wait_until("the handler of SIGTERM", || catches_term(&late));
    late.signal(Signal::TERM);
    let text = one_line(&late.end(), FAILED);
    assert!(text.contains("a signal came before"), "{text}");
    waiting.signal(Signal::TERM);
    waiting.end().succeeded();
    let _bytes = stage.start("publish KEY --pattern seq --format bytes --size 100x1 --fps 100");
    stage.wait_for_socket();
    let text = one_line(&stage.run("snapshot KEY DIR/out.png --timeout 120"), FAILED);
    assert!(text.contains("its frames are bytes, which are no pictures"), "{text}");
    assert_eq!(strangers(&stage, &[]), [""; 0]);
}

#[test]
fn a_read_only_file_is_kept_and_so_is_every_file_of_a_directory_that_is_closed() {
    let stage = Stage::new();
    let _publisher = publish(&stage, FrameMeta::new(Format::GRAY8, 2, 1).unwrap(), &[vec![8, 9]]);
    fs::write(stage.path("kept.png"), "old").unwrap();
    fs::set_permissions(stage.path("kept.png"), fs::Permissions::from_mode(0o444)).unwrap();
    let text = one_line(&stage.run("snapshot KEY DIR/kept.png"), FAILED);
    assert!(text.contains("read-only"), "{text}");
    assert_eq!(fs::read(stage.path("kept.png")).unwrap(), b"old");

    // Root may write everywhere, so somebody else has to try; whether there is a stream does not matter.
    fs::create_dir(stage.path("closed")).unwrap();
    fs::write(stage.path("closed/mine.png"), "old").unwrap();
    fs::set_permissions(stage.path(""), fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(stage.path("closed/mine.png"), fs::Permissions::from_mode(0o644)).unwrap();
    let mut command = stage.cuframes("snapshot KEY DIR/closed/mine.png --timeout 0");
    if !geteuid().is_root() {
        return eprintln!("skipped another user's file: only root can be somebody else");
    }
    command.uid(NOBODY);
    match Process::try_start(&mut command) {
        Ok(child) => assert!(one_line(&child.end(), FAILED).contains("read-only")),
        Err(error) => eprintln!("skipped another user's file: nobody else may run the program: {error}"),
    }
    assert_eq!(fs::read(stage.path("closed/mine.png")).unwrap(), b"old");
}

#[test]
fn a_full_disk_leaves_the_old_file_and_nothing_else() {
    let stage = Stage::new();
    let _publisher = stage.start("publish KEY --pattern noise --size 256x256 --format rgb24 --fps 1/1000");
    stage.wait_for_socket();
    let disk = stage.path("disk");
    fs::create_dir(&disk).unwrap();
    let Some(_mounted) = Mounted::new(&disk) else {
        return eprintln!("skipped: a small disk can't be mounted here");
    };
    fs::write(disk.join("out.png"), "old").unwrap();
    let text = one_line(&stage.run("snapshot KEY DIR/disk/out.png --timeout 120"), FAILED);
    assert!(text.contains("No space left on device") && text.contains("disk/out.png"), "{text}");
    assert_eq!(fs::read(disk.join("out.png")).unwrap(), b"old");
    assert_eq!(fs::read_dir(&disk).unwrap().count(), 1);
}

/// A disk of 64 KiB.
struct Mounted<'a>(&'a Path);

impl<'a> Mounted<'a> {
    fn new(at: &'a Path) -> Option<Self> {
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=64k", "tmpfs"]).arg(at);
        mount.output().is_ok_and(|output| output.status.success()).then_some(Self(at))
    }
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0).status();
    }
}

#[test]
fn a_publisher_that_waits_for_everybody_does_not_wait_for_who_takes_a_picture() {
    let stage = Stage::new();
    let meta = FrameMeta::new(Format::GRAY8, 16, 16).unwrap();
    let builder = Publisher::builder(stage.key.parse().unwrap(), meta).run_dir(stage.run_dir());
    let builder = builder.policy(Policy::STRICT_WAIT).ring_size(RingSize::new(2).unwrap());
    let mut publisher = builder.create().unwrap().serve().unwrap();
    let process = stage.start("snapshot KEY DIR/still.png --timeout 120");
    wait_until("the subscriber", || !publisher.members().is_empty());
    process.signal(Signal::STOP);
    for _ in 0..20 {
        publisher.claim().unwrap().commit();
    }
    assert_eq!((publisher.stats().left, publisher.members().len()), (Departures::default(), 1));
    process.signal(Signal::CONT);
    process.end().succeeded();
}

/// Whether a process has a handler for SIGTERM by now.
fn catches_term(process: &Process) -> bool {
    let status = fs::read_to_string(format!("/proc/{}/status", process.id())).unwrap();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
    u64::from_str_radix(mask.trim(), 16).unwrap() & (1 << (Signal::TERM.as_raw() - 1)) != 0
}

/// The user id that owns nothing.
const NOBODY: u32 = 65534;

/// White, yellow, cyan, green, magenta, red, blue and black at 75 %.
const BARS: [[u8; 3]; 8] = [
    [191, 191, 191],
    [191, 191, 0],
    [0, 191, 191],
    [0, 191, 0],
    [191, 0, 191],
    [191, 0, 0],
    [0, 0, 191],
    [0, 0, 0],
];

/// The luma of the same.
const GREYS: [u8; 8] = [180, 162, 131, 112, 84, 65, 35, 16];
