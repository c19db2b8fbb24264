//! Where a video is written: nothing is lost by accident, and nobody waits for whoever does not read.

use std::fs::{self, File};
use std::io::Read as _;
use std::process::{Command, Stdio};

use rustix::fs::{CWD, Mode, mkfifoat};
use rustix::process::Signal;

use crate::errors::{FAILED, one_line};
use crate::stage::{Process, Stage, strict, video};

#[test]
fn a_video_takes_the_place_of_another_only_if_that_is_asked_for() {
    let stage = Stage::new();
    let clip = video("W6 H4 F25:1", 36, 3);
    fs::write(stage.path("clip.y4m"), &clip).unwrap();
    let refused = stage.run("subscribe KEY --y4m DIR/clip.y4m --timeout 120");
    assert!(one_line(&refused, FAILED).contains("it exists; use --force"), "{refused:?}");
    let nobody = stage.run("subscribe KEY --y4m DIR/clip.y4m --force --timeout 0");
    assert!(one_line(&nobody, FAILED).contains("is its publisher running"), "{nobody:?}");
    assert!(fs::read(stage.path("clip.y4m")).unwrap() == clip, "nothing came, nothing is lost");
    // The file that is being published is read to its end.
    let reader =
        stage.start("subscribe KEY --mode strict --y4m DIR/clip.y4m --force --rate 25 --timeout 120");
    stage.run(&format!("publish KEY --y4m DIR/clip.y4m --fps 0 {}", strict(1))).succeeded();
    reader.end().succeeded();
    let written = fs::read(stage.path("clip.y4m")).unwrap();
    assert!(crate::stage::frames(&written) == crate::stage::frames(&clip));
    let nowhere = stage.run("subscribe KEY --y4m DIR/no/out.y4m --timeout 120");
    assert!(one_line(&nowhere, FAILED).contains("No such file"), "{nowhere:?}");
    let reader = stage.start("subscribe KEY --mode strict --y4m /dev/null --timeout 120");
    stage.run(&format!("publish KEY --y4m DIR/clip.y4m --fps 0 {}", strict(1))).succeeded();
    assert!(reader.end().succeeded().stdout.contains("3 frames"));
}

#[test]
fn a_publisher_does_not_wait_while_a_named_pipe_has_no_reader() {
    let stage = Stage::new();
    mkfifoat(CWD, stage.path("fifo"), Mode::RUSR | Mode::WUSR).unwrap();
    let publisher = stage.start("publish KEY --pattern seq --size 64x4 --fps 100 --policy strict-wait");
    stage.wait_for_socket();
    let writer = stage.start("subscribe KEY --y4m DIR/fifo --timeout 120");
    // For longer than its patience.
    stage.run("subscribe KEY --mode strict --frames 250 --timeout 120").succeeded();
    let mut reader = File::open(stage.path("fifo")).unwrap();
    let mut header = [0; 9];
    reader.read_exact(&mut header).unwrap();
    assert_eq!(&header, b"YUV4MPEG2");
    drop(reader);
    writer.end().succeeded();
    publisher.signal(Signal::TERM);
    let publisher = publisher.end().succeeded();
    assert!(!publisher.stderr.contains("evicted"), "{publisher:?}");
}

#[test]
fn a_recording_that_can_not_be_begun_leaves_nothing_and_takes_nothing_away() {
    let stage = Stage::new();
    let publisher = stage.start("publish KEY --pattern seq --size 64x4 --fps 100");
    stage.wait_for_socket();
    fs::create_dir(stage.path("place")).unwrap();
    fs::write(stage.path("place/old.mkv"), "old").unwrap();
    for options in ["DIR/place/new.mkv", "DIR/place/old.mkv --force"] {
        let program = stage.cuframes(&format!("record KEY {options} --timeout 120"));
        let mut limited = Command::new("sh");
        limited.args(["-c", "ulimit -f 0; exec \"$0\" \"$@\""]).arg(program.get_program());
        limited.args(program.get_args()).env("CUFRAMES_RUN_DIR", stage.run_dir());
        let ended = Process::start(limited.stdout(Stdio::piped()).stderr(Stdio::piped())).end();
        assert!(one_line(&ended, FAILED).contains("can't begin"), "{ended:?}");
    }
    let left: Vec<_> =
        fs::read_dir(stage.path("place")).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(left, [stage.path("place/old.mkv")]);
    assert_eq!(fs::read(stage.path("place/old.mkv")).unwrap(), b"old");
    publisher.signal(Signal::TERM);
    publisher.end().succeeded();
    // Before there is a stream.
    let nowhere = stage.run("record KEY DIR/no/out.mkv --timeout 100000");
    assert!(one_line(&nowhere, FAILED).contains("No such file"), "{nowhere:?}");
}
