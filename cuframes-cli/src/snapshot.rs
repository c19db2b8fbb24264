//! `cuframes snapshot`: one frame of a stream as a PNG picture.

mod target;

use std::fmt;
use std::path::Path;
use std::time::Instant;

use cuframes_core::{FrameMeta, Key};
use png::{BitDepth, ColorType, Encoder};
use serde::Serialize;

pub(crate) use self::target::{Begun, Target};
use crate::args::{ColourArgs, SnapshotArgs, Stream};
use crate::console::Console;
use crate::error::{Failure, failed};
use crate::output::{REFRESH, json};
use crate::picture::{Channels, MatrixChoice, Picture, Range};
use crate::signals::Signals;
use crate::taker::{self, Taken};

/// Takes a frame, writes it, and says what it was.
pub(crate) fn run(
    args: &SnapshotArgs,
    run_dir: Option<&Path>,
    signals: &Signals,
    console: &Console,
) -> Result<(), Failure> {
    // First: nobody should have to wait for a frame to learn of a wrong path.
    let target = Target::find(&args.out)?;
    let shot = take(args, run_dir, signals)?;
    let file = encode(&args.key, &shot)?;
    let FrameMeta { format, width, height, .. } = shot.meta;
    let report = Report {
        key: args.key.as_str(),
        seq: shot.seq,
        pts_ns: shot.pts_ns,
        format: format.to_string(),
        width,
        height,
        file: args.out.to_string(),
        bytes: file.len(),
    };
    keep((&target, &args.out), &file, (&report, args.json), signals, console)
}

/// Writes the file of one frame, and says what it is.
pub(crate) fn keep(
    (target, out): (&Target, &Stream),
    file: &[u8],
    (report, as_json): (&Report<'_>, bool),
    signals: &Signals,
    console: &Console,
) -> Result<(), Failure> {
    if !matches!(target, Target::File { .. }) {
        // Its reader may be slow, or gone for ever, or never come.
        signals
            .insist_with(|| 1)
            .map_err(|error| failed!("can't handle signals: {error}; raise the limits (ulimit -u)"))?;
    }
    target.write(file)?;
    let text = if as_json { json(report)? } else { report.to_string() };
    // The picture has standard output to itself.
    if *out == Stream::Standard {
        console.say(&text);
        Ok(())
    } else {
        console.print(&text, signals)
    }
}

/// A frame as a PNG file.
pub(crate) fn png(
    key: &Key,
    (seq, pts_ns): (u64, i64),
    meta: &FrameMeta,
    frame: &[u8],
) -> Result<Vec<u8>, Failure> {
    let (channels, bytes) = read(key, meta, frame, COLOUR)?;
    encode(key, &Shot { seq, pts_ns, meta: *meta, channels, bytes })
}

/// A frame as pixels.
struct Shot {
    seq: u64,
    pts_ns: i64,
    meta: FrameMeta,
    channels: Channels,
    bytes: Vec<u8>,
}

/// What was written: the object that `--json` prints.
#[derive(Serialize, Debug)]
pub(crate) struct Report<'a> {
    pub(crate) key: &'a str,
    pub(crate) seq: u64,
    pub(crate) pts_ns: i64,
    pub(crate) format: String,
    pub(crate) width: u32,
    pub(crate) height: u32,
    pub(crate) file: String,
    pub(crate) bytes: usize,
}

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, seq, format, width, height, file, bytes, .. } = self;
        write!(f, "{key}: frame {seq}, {format} {width}x{height}, written to {file} ({bytes} bytes)")
    }
}

/// Waits for a frame that nobody overwrites while it is read.
fn take(args: &SnapshotArgs, run_dir: Option<&Path>, signals: &Signals) -> Result<Shot, Failure> {
    let SnapshotArgs { key, memory, timeout, .. } = args;
    let start = Instant::now();
    let Some(mut taker) = taker::subscribe(key, memory, run_dir, *timeout, signals)? else {
        return Err(stopped(key));
    };
    loop {
        let left = timeout.saturating_sub(start.elapsed());
        match taker.take(left.min(REFRESH))? {
            Taken::Frame { seq, pts_ns, .. } => {
                let mut seen = None;
                let is_whole = taker.look(&mut |meta, frame| {
                    seen = Some((*meta, read(key, meta, frame, args.colour)?));
                    Ok(())
                })?;
                if let (true, Some((meta, (channels, bytes)))) = (is_whole, seen) {
                    return Ok(Shot { seq, pts_ns, meta, channels, bytes });
                }
            }
            Taken::Ended => {
                return Err(failed!(
                    "stream {key}: it ended before there was a frame; start its publisher again"
                ));
            }
            Taken::Nothing => {}
        }
        if signals.raised() {
            return Err(stopped(key));
        }
        if left.is_zero() {
            return Err(failed!(
                "stream {key}: no frame for {timeout:?}; is its source stalled? --timeout allows more"
            ));
        }
    }
}

fn stopped(key: &Key) -> Failure {
    failed!("stream {key}: a signal came before a frame did; nothing was written")
}

/// All rows of a frame, as PNG wants them.
fn read(
    key: &Key,
    meta: &FrameMeta,
    frame: &[u8],
    colour: ColourArgs,
) -> Result<(Channels, Vec<u8>), Failure> {
    let mut picture = Picture::new(meta, colour).ok_or_else(|| no_picture(key, meta))?;
    let channels = picture.channels();
    let mut bytes = Vec::new();
    for y in 0..meta.height {
        let row = picture.row(frame, y);
        match channels {
            Channels::Grey => bytes.extend(row.iter().map(|[grey, ..]| *grey)),
            Channels::Rgb => bytes.extend(row.iter().flat_map(|&[r, g, b, _]| [r, g, b])),
            Channels::Rgba => bytes.extend_from_slice(row.as_flattened()),
        }
    }
    Ok((channels, bytes))
}

/// The frames of a stream can't be shown.
pub(crate) fn no_picture(key: &Key, meta: &FrameMeta) -> Failure {
    failed!(
        "stream {key}: its frames are {}, which are no pictures; cuframes subscribe can measure them",
        meta.format
    )
}

fn encode(key: &Key, shot: &Shot) -> Result<Vec<u8>, Failure> {
    compress(shot).map_err(|error| failed!("stream {key}: can't write frame {} as PNG: {error}", shot.seq))
}

fn compress(shot: &Shot) -> Result<Vec<u8>, png::EncodingError> {
    let mut file = Vec::new();
    let mut encoder = Encoder::new(&mut file, shot.meta.width, shot.meta.height);
    encoder.set_color(match shot.channels {
        Channels::Grey => ColorType::Grayscale,
        Channels::Rgb => ColorType::Rgb,
        Channels::Rgba => ColorType::Rgba,
    });
    encoder.set_depth(BitDepth::Eight);
    let mut writer = encoder.write_header()?;
    writer.write_image_data(&shot.bytes)?;
    writer.finish()?;
    Ok(file)
}

/// What frames are taken for where nobody says otherwise.
const COLOUR: ColourArgs = ColourArgs { matrix: MatrixChoice::Auto, range: Range::Limited };
