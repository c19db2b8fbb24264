//! A video goes through a stream and comes out as it was, frame for frame.

use std::fs::{self, File};
use std::process::{Command, Stdio};

use crate::stage::{Stage, end, frames, read_all, video};

/// A clip made by ffmpeg where it is installed, else one that is made here.
fn clip(stage: &Stage) -> Vec<u8> {
    let path = stage.path("clip.y4m");
    let made = Command::new("ffmpeg")
        .args("-v error -f lavfi -i testsrc2=size=322x242:rate=25 -frames:v 40 -pix_fmt yuv420p".split(' '))
        .arg(&path)
        .status();
    if !made.is_ok_and(|status| status.success()) {
        eprintln!("ffmpeg is not installed: this test uses a video of noise");
        fs::write(&path, video("W322 H242 F25:1 C420jpeg", 322 * 242 * 3 / 2, 40)).unwrap();
    }
    fs::read(&path).unwrap()
}

#[test]
fn strict_subscribers_write_the_published_video_byte_for_byte() {
    for subscribers in [1, 3] {
        let stage = Stage::new();
        let clip = clip(&stage);
        let writers: Vec<_> = (0..subscribers)
            .map(|n| {
                stage.start(&format!("subscribe KEY --mode strict --y4m DIR/{n}.y4m --json --timeout 120"))
            })
            .collect();
        stage
            .run(&format!(
                "publish KEY --y4m DIR/clip.y4m --fps 0 --ring 3 --policy strict-wait --wait-for {subscribers} \
                 --wait-timeout 120"
            ))
            .succeeded();
        for (n, writer) in writers.into_iter().enumerate() {
            let report = end(writer).succeeded().json();
            assert_eq!(
                (&report["frames"], &report["dropped"], &report["end"]),
                (&40.into(), &0.into(), &"stream".into())
            );
            assert!(
                frames(&fs::read(stage.path(&format!("{n}.y4m"))).unwrap()) == frames(&clip),
                "subscriber {n}"
            );
        }
        assert_eq!(stage.leftovers(), [""; 0].map(std::path::PathBuf::from));
    }
}

#[test]
fn a_video_of_any_8_bit_format_and_odd_size_goes_from_pipe_to_pipe() {
    for (colour_space, bytes) in [("420jpeg", 7 * 5 + 2 * 4 * 3), ("444", 3 * 7 * 5), ("mono", 7 * 5)] {
        let stage = Stage::new();
        let clip = video(&format!("W7 H5 F25:1 C{colour_space}"), bytes, 20);
        fs::write(stage.path("clip.y4m"), &clip).unwrap();
        let mut reader = stage.start("subscribe KEY --mode strict --y4m - --rate 25 --timeout 120");
        let publisher = stage
            .cuframes("publish KEY --y4m - --fps 0 --policy strict-wait --wait-for 1 --wait-timeout 120")
            .stdin(File::open(stage.path("clip.y4m")).unwrap())
            .spawn()
            .unwrap();
        let written = read_all(reader.stdout.take().unwrap());
        assert!(written == clip, "{colour_space}");
        end(publisher).succeeded();
        let reader = end(reader).succeeded();
        assert!(reader.stderr.contains("20 frames"), "the summary makes way for the video: {reader:?}");
    }
}

#[test]
fn a_repeated_video_and_an_nv12_pattern_come_out_whole() {
    let stage = Stage::new();
    let clip = video("W6 H4 F25:1 C420jpeg", 36, 2);
    fs::write(stage.path("clip.y4m"), &clip).unwrap();
    let reader = stage.start("subscribe KEY --mode strict --y4m DIR/out.y4m --timeout 120");
    stage
        .run("publish KEY --y4m DIR/clip.y4m --loop --frames 5 --fps 0 --policy strict-wait --wait-for 1 --wait-timeout 120")
        .succeeded();
    end(reader).succeeded();
    let (one, both) = (&frames(&clip)[..42], frames(&clip));
    assert_eq!(frames(&fs::read(stage.path("out.y4m")).unwrap()), [both, both, one].concat());

    let reader = stage.start("subscribe KEY --mode strict --y4m DIR/bars.y4m --timeout 120");
    stage
        .run("publish KEY --pattern bars --size 16x2 --frames 1 --policy strict-wait --wait-for 1 --wait-timeout 120")
        .succeeded();
    end(reader).succeeded();
    let bars = fs::read(stage.path("bars.y4m")).unwrap();
    assert_eq!(frames(&bars).len(), "FRAME\n".len() + 16 * 2 + 2 * 8);
}

#[test]
fn ffmpeg_reads_what_a_subscriber_writes_to_a_pipe() {
    if Command::new("ffmpeg").arg("-version").stdout(Stdio::null()).status().is_err() {
        eprintln!("skipped: ffmpeg is not installed");
        return;
    }
    let stage = Stage::new();
    let mut reader = stage.start("subscribe KEY --mode strict --y4m - --timeout 120");
    let ffmpeg = Command::new("ffmpeg")
        .args("-v error -i - -f framemd5 -".split(' '))
        .stdin(reader.stdout.take().unwrap())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    stage
        .run("publish KEY --pattern bars --size 64x48 --frames 10 --fps 0 --policy strict-wait --wait-for 1 --wait-timeout 120")
        .succeeded();
    end(reader).succeeded();
    let ffmpeg = end(ffmpeg).succeeded();
    assert_eq!(ffmpeg.stdout.lines().filter(|line| !line.starts_with('#')).count(), 10);
}
