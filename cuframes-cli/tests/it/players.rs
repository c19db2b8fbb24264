//! What others make of a recording: ffmpeg finds the pictures in it.

use std::process::{Command, Stdio};

use crate::stage::{Stage, strict};
use crate::watcher::Watcher;

/// Formats that ffmpeg knows when they are in Matroska, and what it calls them.
const KNOWN: [(&str, &str); 9] = [
    ("nv12", "nv12"),
    ("i420", "yuv420p"),
    ("i444", "yuv444p"),
    ("rgb24", "rgb24"),
    ("bgr24", "bgr24"),
    ("rgba32", "rgba"),
    ("bgra32", "bgra"),
    ("gray8", "gray"),
    ("gray16", "gray16le"),
];

/// Whether it is there; if not, that is said.
fn has(program: &str) -> bool {
    let found = Command::new(program).arg("-version").stdout(Stdio::null()).status().is_ok();
    if !found {
        eprintln!("skipped: {program} is not installed");
    }
    found
}

/// What a program says about the recording. It finds no error in it; of frames that come as fast as possible it may guess a strange
/// rate, and warn of that.
fn ask(stage: &Stage, program: &str, args: &str) -> Vec<u8> {
    let mut command = Command::new(program);
    command.args(["-v", "error"]);
    for word in args.split(' ') {
        if word == "FILE" {
            command.arg(stage.path("out.mkv"));
        } else {
            command.arg(word);
        }
    }
    let output = command.stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.is_empty(), "{program} {args}: {said}");
    output.stdout
}

#[test]
fn ffmpeg_finds_the_same_pictures_in_every_format_that_it_knows() {
    if !has("ffmpeg") || !has("ffprobe") {
        return;
    }
    for (format, pix_fmt) in KNOWN {
        for size in ["64x48", "65x49"] {
            let stage = Stage::new();
            let recorder = stage.start("record KEY DIR/out.mkv --timeout 120");
            let watcher = Watcher::start(&stage);
            let source = format!("--pattern noise --format {format} --size {size} --frames 12 --fps 0");
            stage.run(&format!("publish KEY {source} {}", strict(2))).succeeded();
            recorder.end().succeeded();
            let pictures: Vec<_> = watcher.end().into_iter().flat_map(|seen| seen.bytes).collect();
            let fields = "stream=codec_name,width,height,pix_fmt,nb_read_frames";
            let found =
                ask(&stage, "ffprobe", &format!("-count_frames -show_entries {fields} -of csv=p=0 FILE"));
            let found = String::from_utf8(found).unwrap();
            assert_eq!(found.trim(), format!("rawvideo,{},{pix_fmt},12", size.replace('x', ",")));
            // All frames, however close they are in time: it is not counted in frames.
            let decoded =
                ask(&stage, "ffmpeg", "-i FILE -fps_mode passthrough -enc_time_base -1 -f rawvideo -");
            assert!(decoded == pictures, "{format} {size}");
        }
    }
}

#[test]
fn ffmpeg_finds_the_time_of_each_frame_and_its_way_to_a_later_one() {
    if !has("ffmpeg") || !has("ffprobe") {
        return;
    }
    let stage = Stage::new();
    let recorder = stage.start("record KEY DIR/out.mkv --timeout 120");
    let watcher = Watcher::start(&stage);
    stage
        .run(&format!("publish KEY --pattern noise --size 16x16 --frames 24 --fps 10 {}", strict(2)))
        .succeeded();
    recorder.end().succeeded();
    let seen = watcher.end();
    let text = ask(&stage, "ffprobe", "-show_entries packet=pts -of csv=p=0 FILE");
    let text = String::from_utf8(text).unwrap();
    // What is said beside a frame gets a line of its own, which is empty.
    let lines = text.lines().filter(|line| !line.is_empty());
    let times: Vec<i64> = lines.map(|line| line.trim_matches(',').parse().unwrap()).collect();
    let first = seen[0].pts_ns;
    let expected: Vec<_> = seen.iter().map(|seen| seen.pts_ns - first).collect();
    assert_eq!(times, expected, "nanoseconds since the first frame");
    let later = ask(&stage, "ffmpeg", "-ss 1.5 -i FILE -frames:v 1 -f rawvideo -");
    let position = seen.iter().position(|seen| seen.bytes == later);
    assert!(position.is_some_and(|position| position >= 15), "{position:?}");
}

#[test]
fn ffmpeg_reads_a_recording_that_was_cut_off() {
    if !has("ffmpeg") {
        return;
    }
    let stage = Stage::new();
    let recorder = stage.start("record KEY DIR/out.mkv --timeout 120");
    let watcher = Watcher::start(&stage);
    stage
        .run(&format!("publish KEY --pattern noise --size 64x48 --frames 10 --fps 0 {}", strict(2)))
        .succeeded();
    recorder.end().succeeded();
    let pictures: Vec<_> = watcher.end().into_iter().map(|seen| seen.bytes).collect();
    let bytes = std::fs::read(stage.path("out.mkv")).unwrap();
    std::fs::write(stage.path("out.mkv"), &bytes[..bytes.len() / 2]).unwrap();
    let output = Command::new("ffmpeg")
        .args(["-v", "fatal", "-i"])
        .arg(stage.path("out.mkv"))
        .args(["-fps_mode", "passthrough", "-f", "rawvideo", "-"])
        .output()
        .unwrap();
    assert!(output.stdout.len() >= 4 * pictures[0].len(), "{output:?}");
    assert!(pictures.concat().starts_with(&output.stdout));
}
