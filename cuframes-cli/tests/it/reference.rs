//! Pictures are what ffmpeg makes of the same frames.

use std::process::{Command, Stdio};
use std::time::Duration;

use cuframes_core::{Format, FrameMeta};
use cuframes_mio::Subscriber;

use crate::stage::{Stage, video};
use crate::stills::{publish, snapshot};

const SIZE: (u32, u32) = (322, 242);

const YUV: [(Format, &str); 4] =
    [(Format::I420, "yuv420p"), (Format::NV12, "nv12"), (Format::I444, "yuv444p"), (Format::P010, "p010le")];

/// Bilinear, as we do it; everything else as exactly as ffmpeg can.
const FLAGS: &str = "accurate_rnd+full_chroma_int+full_chroma_inp+bilinear";

/// The newest frame of a stream without padding.
fn raw(stage: &Stage) -> Vec<u8> {
    let builder = Subscriber::builder(stage.key.parse().unwrap()).run_dir(stage.run_dir());
    let mut subscriber = builder.timeout(Duration::from_secs(120)).connect().unwrap();
    let frame = subscriber.next(Duration::from_secs(120)).unwrap().unwrap();
    (0..3).filter_map(|plane| frame.plane_rows(plane)).flatten().flatten().copied().collect()
}

/// What ffmpeg makes of a raw frame: RGB. `None` if it is not installed.
fn converted(frame: &[u8], format: &str, filter: &str) -> Option<Vec<u8>> {
    let (width, height) = SIZE;
    let mut ffmpeg = Command::new("ffmpeg")
        .args(["-v", "error", "-f", "rawvideo", "-pix_fmt", format, "-s", &format!("{width}x{height}")])
        .args(["-i", "-", "-vf", filter, "-f", "rawvideo", "-pix_fmt", "rgb24", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .ok()?;
    let mut input = ffmpeg.stdin.take().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || std::io::Write::write_all(&mut input, frame).unwrap());
        let output = ffmpeg.wait_with_output().unwrap();
        assert!(output.status.success(), "{output:?}");
        Some(output.stdout)
    })
}

/// The peak signal-to-noise ratio in dB; without any difference, infinity.
fn psnr(a: &[u8], b: &[u8]) -> f64 {
    assert_eq!(a.len(), b.len());
    let squares: f64 = a.iter().zip(b).map(|(a, b)| f64::from(a.abs_diff(*b)).powi(2)).sum();
    let samples = f64::from(u32::try_from(a.len()).unwrap());
    10.0 * (255.0 * 255.0 * samples / squares).log10()
}

/// Compares the picture of the stream with ffmpeg's, for both matrices.
fn compare(
    stage: &Stage,
    (format, name): (Format, &str),
    what: &str,
    filter: impl Fn(&str) -> String,
    least: f64,
) {
    let frame = raw(stage);
    for matrix in ["bt601", "bt709"] {
        let Some(reference) = converted(&frame, name, &filter(matrix)) else {
            return eprintln!("skipped: ffmpeg is not installed");
        };
        let psnr = psnr(&snapshot(stage, &format!("--matrix {matrix} --range limited")).bytes, &reference);
        eprintln!("{what} in {format}, {matrix}: {psnr:.1} dB");
        assert!(psnr >= least, "{what} in {format}, {matrix}: {psnr:.1} dB");
    }
}

fn in_one_step(matrix: &str) -> String {
    format!("scale=in_color_matrix={matrix}:in_range=limited:flags={FLAGS}")
}

/// With chroma of full size and 12 bits in between. When ffmpeg makes RGB of 4:2:0 in one step it takes a short cut: it
/// interpolates the rows of chroma only half.
fn in_two_steps(matrix: &str) -> String {
    format!("scale=flags={FLAGS},format=yuv444p12le,{}", in_one_step(matrix))
}

/// The planes of a smooth picture: luma and both chromas change slowly in directions of their own.
fn gradient(format: Format) -> Vec<Vec<u8>> {
    let (width, height) = SIZE;
    let ramp =
        |n: u32, of: u32, low: u32, high: u32| u8::try_from(low + (high - low) * n / (of - 1)).unwrap();
    let pixels = |step: u32| {
        (0..height.div_ceil(step))
            .flat_map(move |y| (0..width.div_ceil(step)).map(move |x| (x * step, y * step)))
    };
    let luma: Vec<u8> = pixels(1).map(|(x, y)| ramp(x + y, width + height, 40, 210)).collect();
    let step = if format == Format::I444 { 1 } else { 2 };
    let u: Vec<u8> = pixels(step).map(|(x, _)| ramp(x, width, 80, 170)).collect();
    let v: Vec<u8> = pixels(step).map(|(_, y)| ramp(y, height, 90, 180)).collect();
    planes(format, &luma, &u, &v)
}

/// The planes of a format from 8-bit samples.
fn planes(format: Format, luma: &[u8], u: &[u8], v: &[u8]) -> Vec<Vec<u8>> {
    let uv: Vec<u8> = u.iter().zip(v).flat_map(|(u, v)| [*u, *v]).collect();
    let words = |bytes: &[u8]| bytes.iter().flat_map(|byte| [0, *byte]).collect();
    match format {
        Format::NV12 => vec![luma.to_vec(), uv],
        Format::P010 => vec![words(luma), words(&uv)],
        _ => vec![luma.to_vec(), u.to_vec(), v.to_vec()],
    }
}

#[test]
fn the_bars_are_those_of_ffmpeg() {
    for (format, name) in YUV {
        let stage = Stage::new();
        let (width, height) = SIZE;
        let line =
            format!("publish KEY --pattern bars --size {width}x{height} --format {format} --fps 1/1000");
        let _publisher = stage.start(&line);
        stage.wait_for_socket();
        compare(&stage, (format, name), "bars", in_one_step, 45.0);
    }
}

#[test]
fn a_smooth_picture_is_that_of_ffmpeg() {
    for (format, name) in YUV {
        let stage = Stage::new();
        let (width, height) = SIZE;
        let planes = gradient(format);
        let _publisher;
        let _process;
        // Where y4m has the format it goes that way.
        if let Some(colour_space) = [(Format::I420, "420jpeg"), (Format::I444, "444")]
            .into_iter()
            .find_map(|(has, colour_space)| (has == format).then_some(colour_space))
        {
            let mut clip = video(&format!("W{width} H{height} F25:1 C{colour_space}"), 0, 1);
            clip.extend(planes.concat());
            std::fs::write(stage.path("clip.y4m"), clip).unwrap();
            _process = stage.start("publish KEY --y4m DIR/clip.y4m --loop --fps 1/1000");
            stage.wait_for_socket();
        } else {
            _publisher = publish(&stage, FrameMeta::new(format, width, height).unwrap(), &planes);
        }
        compare(&stage, (format, name), "a smooth picture", in_one_step, 45.0);
        compare(&stage, (format, name), "a smooth picture in two steps", in_two_steps, 45.0);
    }
}

#[test]
fn chroma_between_rows_and_columns_is_that_of_ffmpeg_even_where_every_sample_differs() {
    for (format, name) in YUV {
        let stage = Stage::new();
        let (width, height) = SIZE;
        // Inside the range, and not so far from grey that colours are cut.
        let noise = |count: u32, header: &str| -> Vec<u8> {
            let count = usize::try_from(count).unwrap();
            let noise = video(header, count, 1);
            noise[noise.len() - count..].iter().map(|byte| 96 + byte / 4).collect()
        };
        let chroma = if format == Format::I444 { width * height } else { width * height / 4 };
        let (u, v) = (noise(chroma, "u"), noise(chroma, "v").into_iter().rev().collect::<Vec<_>>());
        let planes = planes(format, &noise(width * height, "y"), &u, &v);
        let _publisher = publish(&stage, FrameMeta::new(format, width, height).unwrap(), &planes);
        compare(&stage, (format, name), "noise", in_two_steps, 60.0);
    }
}
