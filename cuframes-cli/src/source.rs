//! Where the frames of `publish` come from: a y4m video or a test pattern.

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Chain, Cursor, Read, Seek, SeekFrom};
use std::os::fd::AsFd;
use std::rc::Rc;

use cuframes_core::{Format, FrameMeta};
use rustix::fs::{Mode, OFlags};

use crate::args::{Pattern, Size, SourceArgs, Stream};
use crate::convert::write_picture;
use crate::error::{Failure, failed};
use crate::pattern::{draw_bars, fill_noise, fill_seq};
use crate::rate::Rate;
use crate::signals::Signals;

/// A source of frames that all have the same geometry.
pub(crate) enum Source<'a> {
    Video(Box<Video<'a>>),
    Pattern { pattern: Pattern, meta: FrameMeta },
}

impl<'a> Source<'a> {
    /// Opens what the arguments name. A signal ends a video.
    pub(crate) fn open(args: &SourceArgs, signals: &'a Signals) -> Result<Self, Failure> {
        match (&args.y4m, args.pattern) {
            (Some(stream), _) => Ok(Self::Video(Box::new(Video::open(stream, args.repeat, signals)?))),
            (None, Some(pattern)) => {
                let meta = pattern_meta(pattern, args.format, args.size)?;
                Ok(Self::Pattern { pattern, meta })
            }
            (None, None) => Err(Failure::Usage("nothing to publish; use --y4m or --pattern".into())),
        }
    }

    /// Geometry of every frame.
    pub(crate) fn meta(&self) -> &FrameMeta {
        match self {
            Self::Video(video) => &video.meta,
            Self::Pattern { meta, .. } => meta,
        }
    }

    /// The rate that the source itself asks for.
    pub(crate) fn rate(&self) -> Rate {
        match self {
            Self::Video(video) => video.rate,
            Self::Pattern { .. } => Rate::DEFAULT,
        }
    }

    /// The next picture, or `None` at the end. Waits for a video that comes through a pipe.
    pub(crate) fn next(&mut self) -> Result<Option<Picture<'_>>, Failure> {
        match self {
            Self::Video(video) => Ok(video.next()?.map(Picture::Video)),
            Self::Pattern { pattern, .. } => Ok(Some(Picture::Pattern(*pattern))),
        }
    }
}

/// What one frame will show.
pub(crate) enum Picture<'a> {
    Video(y4m::Frame<'a>),
    Pattern(Pattern),
}

impl Picture<'_> {
    /// Writes the picture into the frame with this sequence number.
    pub(crate) fn write(&self, meta: &FrameMeta, seq: u64, frame: &mut [u8]) {
        match self {
            Self::Video(picture) => {
                let planes = [picture.get_y_plane(), picture.get_u_plane(), picture.get_v_plane()];
                write_picture(meta, planes, frame);
            }
            Self::Pattern(Pattern::Bars) => draw_bars(meta, frame, seq),
            Self::Pattern(Pattern::Noise) => fill_noise(frame, seq),
            Self::Pattern(Pattern::Seq) => fill_seq(frame, seq),
        }
    }
}

/// A y4m video from a file or a pipe.
pub(crate) struct Video<'a> {
    input: Input<'a>,
    decoder: y4m::Decoder<Chain<Cursor<Vec<u8>>, Input<'a>>>,
    name: String,
    meta: FrameMeta,
    rate: Rate,
    /// Where the first frame starts, if the video is to be repeated.
    start: Option<u64>,
    /// Frames read so far.
    frames: u64,
}

impl<'a> Video<'a> {
    fn open(stream: &Stream, repeat: bool, signals: &'a Signals) -> Result<Self, Failure> {
        let (name, file) = match stream {
            // Without O_NONBLOCK no signal would end the wait for the writer of a named pipe.
            Stream::File(path) => (
                path.display().to_string(),
                rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK, Mode::empty())
                    .map(File::from)
                    .map_err(io::Error::from),
            ),
            Stream::Standard if repeat => {
                return Err(Failure::Usage(
                    "standard input can't be repeated; use --loop with a file".into(),
                ));
            }
            Stream::Standard => {
                ("standard input".into(), io::stdin().as_fd().try_clone_to_owned().map(File::from))
            }
        };
        let file = file.map_err(|error| failed!("can't open {name}: {error}; check the path of --y4m"))?;
        let mut input = Input::new(file, signals);
        let header = input.read_header().map_err(|error| unreadable(&name, &error))?;
        let meta = parse_header(&header).map_err(|problem| failed!("can't publish {name}: {problem}"))?;
        let start = u64::try_from(header.len()).ok().filter(|_| repeat);
        let decoder = y4m::Decoder::new(Cursor::new(header).chain(input.clone()))
            .map_err(|error| failed!("can't publish {name}: {}", explain(&error)))?;
        let rate = real_rate(decoder.get_framerate());
        Ok(Self { input, decoder, name, meta, rate, start, frames: 0 })
    }

    fn next(&mut self) -> Result<Option<y4m::Frame<'_>>, Failure> {
        let (name, signals) = (&self.name, self.input.signals());
        if self.input.is_at_end().map_err(|error| unreadable(name, &error))? {
            match self.start {
                _ if signals.raised() => return Ok(None),
                _ if self.frames == 0 => {
                    return Err(failed!(
                        "can't publish {name}: it has no frames; check the program that made it"
                    ));
                }
                None => return Ok(None),
                Some(start) => self.input.rewind_to(start).map_err(|error| unreadable(name, &error))?,
            }
        }
        match self.decoder.read_frame() {
            Ok(frame) => {
                self.frames += 1;
                Ok(Some(frame))
            }
            Err(y4m::Error::EOF) if signals.raised() => Ok(None),
            Err(error) => Err(failed!("can't read frame {} of {name}: {}", self.frames + 1, explain(&error))),
        }
    }
}

/// Buffered bytes of a video, shared with the decoder, so that the end of the input is seen between two frames.
#[derive(Clone)]
struct Input<'a>(Rc<RefCell<BufReader<UntilSignal<'a>>>>);

impl<'a> Input<'a> {
    fn new(file: File, signals: &'a Signals) -> Self {
        Self(Rc::new(RefCell::new(BufReader::new(UntilSignal { file, signals }))))
    }

    fn signals(&self) -> &'a Signals {
        self.0.borrow().get_ref().signals
    }

    /// The first line, as far as a decoder would read it.
    fn read_header(&mut self) -> io::Result<Vec<u8>> {
        let mut header = Vec::new();
        self.0.borrow_mut().by_ref().take(MAX_HEADER).read_until(b'\n', &mut header)?;
        Ok(header)
    }

    fn is_at_end(&self) -> io::Result<bool> {
        Ok(self.0.borrow_mut().fill_buf()?.is_empty())
    }

    fn rewind_to(&self, position: u64) -> io::Result<()> {
        self.0.borrow_mut().seek(SeekFrom::Start(position)).map(drop)
    }
}

impl Read for Input<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.borrow_mut().read(buf)
    }
}

/// A file that is at its end once a signal came, so that no read waits longer than that.
struct UntilSignal<'a> {
    file: File,
    signals: &'a Signals,
}

impl Read for UntilSignal<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if self.signals.wait_readable(self.file.as_fd())? { self.file.read(buf) } else { Ok(0) }
    }
}

impl Seek for UntilSignal<'_> {
    fn seek(&mut self, position: SeekFrom) -> io::Result<u64> {
        self.file.seek(position)
    }
}

/// The geometry in the first line of a y4m video.
///
/// The decoder names no colour space that it doesn't know, and multiplies sizes without a check: both are done here.
fn parse_header(header: &[u8]) -> Result<FrameMeta, String> {
    let header = header
        .strip_prefix(b"YUV4MPEG2 ")
        .and_then(|header| header.strip_suffix(b"\n"))
        .ok_or_else(|| format!("it is not a y4m video; {CONVERT}"))?;
    let header = String::from_utf8_lossy(header);
    let field = |tag: char| header.split(' ').filter_map(|field| field.strip_prefix(tag)).next_back();
    let size = |tag| field(tag).and_then(|text| text.parse().ok()).ok_or("its header has no valid size");
    let format = match field('C') {
        None | Some("420" | "420jpeg" | "420mpeg2" | "420paldv") => Format::I420,
        Some("444") => Format::I444,
        Some("mono") => Format::GRAY8,
        Some(other) => {
            return Err(format!("its colour space is {other}, not 420, 444 or mono of 8 bits; {CONVERT}"));
        }
    };
    FrameMeta::new(format, size('W')?, size('H')?).map_err(|error| error.to_string())
}

fn unreadable(name: &str, error: &io::Error) -> Failure {
    failed!("can't read {name}: {error}; check that it is a file, or a pipe without --loop")
}

fn explain(error: &y4m::Error) -> String {
    match error {
        y4m::Error::EOF => "it ends in the middle; the frames before it are published".into(),
        y4m::Error::OutOfMemory => "a frame has more than 1 GiB; make the picture smaller".into(),
        y4m::Error::IoError(error) => format!("{error}; check the disk that it is on"),
        _ => format!("it is not valid y4m; {CONVERT}"),
    }
}

/// The rate in a y4m header, which may say 0:0 for "unknown".
fn real_rate(ratio: y4m::Ratio) -> Rate {
    match (u32::try_from(ratio.num), u32::try_from(ratio.den)) {
        (Ok(num), Ok(den)) if num > 0 && den > 0 => Rate { num, den },
        _ => Rate::DEFAULT,
    }
}

/// The geometry of a pattern of this size.
pub(crate) fn pattern_meta(pattern: Pattern, format: Format, size: Size) -> Result<FrameMeta, Failure> {
    if (pattern, format) == (Pattern::Bars, Format::BYTES) {
        return Err(Failure::Usage(
            "bytes are no picture to draw bars in; use --pattern seq or noise".into(),
        ));
    }
    FrameMeta::new(format, size.width, size.height).map_err(|error| Failure::Usage(error.to_string()))
}

/// As much as the decoder takes.
const MAX_HEADER: u64 = 1024;

const CONVERT: &str = "convert it with ffmpeg -i IN -pix_fmt yuv420p OUT.y4m";

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::signals::Later;

    /// A video in a file of its own, and what reading all of it gives: the frames, or what went wrong.
    fn read_all(
        video: &[u8],
        repeat: bool,
        limit: usize,
    ) -> Result<(FrameMeta, Rate, Vec<Vec<u8>>), Failure> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("clip.y4m");
        fs::write(&path, video).unwrap();
        let signals = Signals::install(Later::Ends)?;
        let mut video = Video::open(&Stream::File(path), repeat, &signals)?;
        let mut frames = Vec::new();
        while frames.len() < limit {
            let Some(frame) = video.next()? else { break };
            frames.push([frame.get_y_plane(), frame.get_u_plane(), frame.get_v_plane()].concat());
        }
        Ok((video.meta, video.rate, frames))
    }

    fn problem(video: &[u8]) -> String {
        match read_all(video, false, 10) {
            Ok(_) => panic!("accepted"),
            Err(failure) => failure.to_string(),
        }
    }

    #[test]
    fn every_8_bit_420_is_i420_and_444_and_mono_are_themselves() {
        let cases = [
            ("", 6, Format::I420),
            (" C420", 6, Format::I420),
            (" C420jpeg XYSCSS=420JPEG", 6, Format::I420),
            (" C420mpeg2", 6, Format::I420),
            (" C420paldv", 6, Format::I420),
            (" C444", 12, Format::I444),
            (" Cmono", 4, Format::GRAY8),
        ];
        for (fields, bytes, format) in cases {
            let frame: Vec<u8> = (1..=bytes).collect();
            let mut video = format!("YUV4MPEG2 W2 H2 F30000:1001 Ip A1:1{fields}\n").into_bytes();
            for params in ["\n", " Ip\n"] {
                video.extend([b"FRAME", params.as_bytes(), &frame].concat());
            }
            let (meta, rate, frames) = read_all(&video, false, 10).unwrap();
            assert_eq!((meta.format, meta.width, meta.height), (format, 2, 2), "{fields}");
            assert_eq!(rate, Rate { num: 30000, den: 1001 });
            assert_eq!(frames, [&frame[..], &frame[..]]);
        }
    }

    #[test]
    fn other_colour_spaces_are_refused_with_the_ffmpeg_option_that_helps() {
        for name in ["422", "411", "420p10", "444p12", "444alpha", "mono16", "XYZ"] {
            let text = problem(format!("YUV4MPEG2 W2 H2 F25:1 C{name}\nFRAME\n").as_bytes());
            assert!(text.contains(&format!("colour space is {name}")), "{text}");
            assert!(text.contains("-pix_fmt yuv420p"), "{text}");
        }
    }

    #[test]
    fn what_is_no_video_is_refused_with_the_cause() {
        for (video, cause) in [
            (&b""[..], "not a y4m video"),
            (b"RIFF....AVI ", "not a y4m video"),
            (b"YUV4MPEG2 W2 H2", "not a y4m video"),
            (b"YUV4MPEG2 W2\n", "no valid size"),
            (b"YUV4MPEG2 W0 H2\n", "width is 0"),
            (b"YUV4MPEG2 W-2 H2\n", "no valid size"),
            (b"YUV4MPEG2 W99999999999 H2\n", "no valid size"),
            (b"YUV4MPEG2 W4294967295 H4294967295 C444\n", "too large"),
            (b"YUV4MPEG2 W65536 H65536\n", "more than 1 GiB"),
            (b"YUV4MPEG2 W2 H2 Fx\n", "not valid y4m"),
            (b"YUV4MPEG2 W2 H2\n", "it has no frames; check the program that made it"),
            (b"YUV4MPEG2 W2 H2\nGARBAGE\n", "frame 1 of"),
        ] {
            let text = problem(video);
            assert!(text.contains(cause), "{cause}: {text}");
            assert!(text.contains("clip.y4m"), "{text}");
        }
    }

    #[test]
    fn a_video_that_is_cut_is_read_up_to_the_cut_and_then_says_so() {
        let whole = b"YUV4MPEG2 W2 H2\nFRAME\n123456FRAME\n123456";
        for cut in 1..12 {
            let text = problem(&whole[..whole.len() - cut]);
            assert!(text.contains("frame 2 of") && text.contains("ends in the middle"), "{cut}: {text}");
        }
    }

    #[test]
    fn a_repeated_video_starts_again_after_its_last_frame() {
        let video = b"YUV4MPEG2 W2 H1 Cmono\nFRAME\nabFRAME\ncd";
        let (.., frames) = read_all(video, true, 5).unwrap();
        assert_eq!(frames, [b"ab", b"cd", b"ab", b"cd", b"ab"]);
    }

    #[test]
    fn an_unknown_rate_is_the_default_one() {
        for field in ["F0:0", "F25:0", "F0:1"] {
            let video = format!("YUV4MPEG2 W2 H1 {field} Cmono\nFRAME\nab");
            assert_eq!(read_all(video.as_bytes(), false, 1).unwrap().1, Rate::DEFAULT);
        }
    }
}
