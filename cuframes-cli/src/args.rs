//! The command line: commands, options and the values they take.
//!
//! Whatever can be judged without looking at the machine is judged here and is wrong usage (exit code 2).

mod barrier;
mod bench;
mod bridge;
mod dispatch;
mod doctor;
mod exporter;
mod generate;
mod look;
mod record;
mod replay;
mod snapshot;
mod top;
mod values;
mod view;

use std::convert::Infallible;
use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{ArgGroup, Args, Parser, Subcommand, ValueEnum};
use cuframes_core::wire::hello::ConsumerName;
use cuframes_core::{Format, Key, Policy, RingSize, SubscriberMode};

use self::values::{milliseconds, one_of, real_rate, ring_size, seconds, some_seconds};
use crate::rate::Rate;

pub(crate) use self::barrier::{
    BarrierArgs, BarrierJoinArgs, BarrierSide, BarrierWaitArgs, StartArgs, TogetherArgs,
};
pub(crate) use self::bench::BenchArgs;
pub(crate) use self::bridge::{BridgeArgs, BridgeEnd, BridgeRecvArgs, BridgeSendArgs, Fetch, LinkArgs};
pub(crate) use self::dispatch::{DispatchArgs, FitArg, GridArgs, WhenFullArg, WorkArgs, version};
pub(crate) use self::doctor::DoctorArgs;
pub(crate) use self::exporter::ExporterArgs;
pub(crate) use self::generate::{CompletionsArgs, ManArgs};
pub(crate) use self::look::{GcArgs, InspectArgs, LsArgs};
pub(crate) use self::record::RecordArgs;
pub(crate) use self::replay::ReplayArgs;
pub(crate) use self::snapshot::{ColourArgs, SnapshotArgs};
pub(crate) use self::top::{Sort, TopArgs};
pub(crate) use self::view::ViewArgs;

/// Share video frames between processes on one host, without copying them.
#[derive(Parser, Debug)]
#[command(name = "cuframes", version, arg_required_else_help = true, after_help = EXAMPLES)]
pub(crate) struct Cli {
    /// Directory of the streams' sockets [default: $CUFRAMES_RUN_DIR, /run/cuframes,
    /// $XDG_RUNTIME_DIR/cuframes or /tmp/cuframes-UID, the first that can be used; demo has one of its own by default, bench always]
    #[arg(long, global = true, value_name = "DIR")]
    pub(crate) run_dir: Option<PathBuf>,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Run one publisher and several subscribers, check every byte and show what it costs
    #[command(after_help = DEMO_EXAMPLES)]
    Demo(DemoArgs),
    /// Publish a y4m video or a test pattern as a stream
    #[command(after_help = PUBLISH_EXAMPLES)]
    Publish(PublishArgs),
    /// Subscribe to a stream: measure it, check it, or write it as a y4m video
    #[command(after_help = SUBSCRIBE_EXAMPLES)]
    Subscribe(SubscribeArgs),
    /// Start together with other processes: wait for them, or be one that is waited for
    #[command(after_help = barrier::EXAMPLES)]
    Barrier(BarrierArgs),
    /// Hand the frames of a stream, or other blocks of work, to workers: each to one of them
    #[command(after_help = dispatch::DISPATCH_EXAMPLES)]
    Dispatch(DispatchArgs),
    /// Take blocks of work from a dispatcher
    #[command(after_help = dispatch::WORK_EXAMPLES)]
    Work(WorkArgs),
    /// Send the frames of a stream to another host, and publish them there
    #[command(after_help = bridge::EXAMPLES)]
    Bridge(BridgeArgs),
    /// Record a stream into a Matroska file, every byte and time stamp of it
    #[command(after_help = record::EXAMPLES)]
    Record(RecordArgs),
    /// Publish a recording as it was
    #[command(after_help = replay::EXAMPLES)]
    Replay(ReplayArgs),
    /// Write one frame of a stream as a PNG picture
    #[command(after_help = snapshot::EXAMPLES)]
    Snapshot(SnapshotArgs),
    /// Show a stream in the terminal
    #[command(after_help = view::EXAMPLES)]
    View(ViewArgs),
    /// Measure latency, cost and throughput on this machine, next to the least that they can be
    #[command(after_help = bench::EXAMPLES)]
    Bench(BenchArgs),
    /// List the streams of this machine, and how they are
    #[command(after_help = look::LS_EXAMPLES)]
    Ls(LsArgs),
    /// Tell everything that a stream's region says, and what in it breaks the protocol
    #[command(after_help = look::INSPECT_EXAMPLES)]
    Inspect(InspectArgs),
    /// Show all streams on a live screen: rates, losses, latency, how far each subscriber is behind
    #[command(after_help = top::EXAMPLES)]
    Top(TopArgs),
    /// Serve figures about all streams to Prometheus, and a small page to people
    #[command(after_help = exporter::EXAMPLES)]
    Exporter(ExporterArgs),
    /// Remove what publishers and bridges that died have left
    #[command(after_help = look::GC_EXAMPLES)]
    Gc(GcArgs),
    /// Find out whether streams can work on this machine, and what to do where they can't
    #[command(after_help = doctor::EXAMPLES)]
    Doctor(DoctorArgs),
    /// Write a script that completes commands and options in a shell
    #[command(after_help = generate::COMPLETIONS_EXAMPLES)]
    Completions(CompletionsArgs),
    /// Write the manual
    #[command(after_help = generate::MAN_EXAMPLES)]
    Man(ManArgs),
}

#[derive(Args, Debug)]
pub(crate) struct DemoArgs {
    /// Number of subscriber processes, 1 to 31
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=31))]
    pub(crate) subscribers: u8,
    /// Number of frames to publish
    #[arg(long, value_name = "N", default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) frames: u64,
    #[arg(long, value_name = "WxH", default_value = "1920x1080", help = SIZE_HELP)]
    pub(crate) size: Size,
    /// Pixel format
    #[arg(long, default_value_t = Format::NV12, value_parser = one_of(&Format::ALL, Format::name))]
    pub(crate) format: Format,
    #[arg(long, value_name = "N[/D]", default_value_t = Rate::UNLIMITED, help = FPS_HELP)]
    pub(crate) fps: Rate,
    #[command(flatten)]
    pub(crate) ring: RingArgs,
    #[command(flatten)]
    pub(crate) memory: BackendArgs,
    /// End the demo when one of its processes has said nothing for this long, its first word apart
    #[arg(long, value_name = "SECS", default_value = "20", value_parser = seconds)]
    pub(crate) patience: Duration,
    /// Print one JSON object at the end
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct PublishArgs {
    /// Name of the stream
    pub(crate) key: Key,
    #[command(flatten)]
    pub(crate) source: SourceArgs,
    /// Frames per second, 0 for as fast as possible [default: the video's own rate, 30 for a pattern]
    #[arg(long, value_name = "N[/D]")]
    pub(crate) fps: Option<Rate>,
    /// Stop after this many frames
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) frames: Option<u64>,
    #[command(flatten)]
    pub(crate) ring: RingArgs,
    #[command(flatten)]
    pub(crate) memory: BackendArgs,
    #[command(flatten)]
    pub(crate) wait: WaitArgs,
    /// Print one JSON object at the end: memory (where the frames are), frames, fps, subscribers and end
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) report: ReportArgs,
}

/// Whom a publisher waits for at first.
#[derive(Args, Debug)]
pub(crate) struct WaitArgs {
    /// Publish the first frame only when this many subscribers are there
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=31))]
    pub(crate) wait_for: Option<u8>,
    /// How long to wait for them
    #[arg(long, value_name = "SECS", default_value = "30", value_parser = seconds, requires = "wait_for")]
    pub(crate) wait_timeout: Duration,
    /// How long a subscriber may keep it waiting for one frame before it is evicted
    /// [default: 1 for a frame that it has not read, 2 for one that it holds]
    #[arg(long, value_name = "SECS", value_parser = some_seconds)]
    pub(crate) patience: Option<Duration>,
    #[command(flatten)]
    pub(crate) start: StartArgs,
}

/// Where the frames of `publish` come from.
#[derive(Args, Debug)]
#[command(group = ArgGroup::new("video or pattern").args(["y4m", "pattern"]).required(true))]
pub(crate) struct SourceArgs {
    /// Publish this y4m video, `-` for standard input
    #[arg(long, value_name = "FILE")]
    pub(crate) y4m: Option<Stream>,
    /// Publish a test pattern: moving colour bars, noise, or the frame's sequence number in every 8-byte word
    #[arg(long, value_enum)]
    pub(crate) pattern: Option<Pattern>,
    #[arg(long, value_name = "WxH", default_value = "1280x720", conflicts_with = "y4m", help = SIZE_HELP)]
    pub(crate) size: Size,
    /// Pixel format of the pattern
    #[arg(
        long,
        default_value_t = Format::NV12,
        value_parser = one_of(&Format::ALL, Format::name),
        conflicts_with = "y4m",
    )]
    pub(crate) format: Format,
    /// Start the file again when it ends
    #[arg(long = "loop", conflicts_with = "pattern")]
    pub(crate) repeat: bool,
}

#[derive(Args, Debug)]
#[command(mut_arg("backend", |backend| backend.default_value("auto")))]
pub(crate) struct SubscribeArgs {
    /// Name of the stream
    pub(crate) key: Key,
    /// Which frames to take: always the newest one, or every frame in order
    #[arg(
        long,
        default_value_t = SubscriberMode::NEWEST_ONLY,
        value_parser = one_of(&[SubscriberMode::NEWEST_ONLY, SubscriberMode::STRICT_ORDER], SubscriberMode::name),
    )]
    pub(crate) mode: SubscriberMode,
    /// Stop after this many frames
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) frames: Option<u64>,
    /// Name under which the publisher sees this subscriber
    #[arg(long, default_value = "cuframes")]
    pub(crate) name: ConsumerName,
    /// Write the frames to this y4m video, `-` for standard output
    #[arg(long, value_name = "FILE")]
    pub(crate) y4m: Option<Stream>,
    /// Overwrite the y4m video if it exists; devices and named pipes need no --force
    #[arg(long, requires = "y4m")]
    pub(crate) force: bool,
    /// Frame rate to write into the y4m header
    #[arg(long, value_name = "N[/D]", default_value_t = Rate::DEFAULT, value_parser = real_rate, requires = "y4m")]
    pub(crate) rate: Rate,
    /// Check every byte of every frame; the publisher must use `--pattern seq`
    #[arg(long)]
    pub(crate) check_seq: bool,
    /// Go on with the next publisher when this one is gone, and wait for the first one, too
    #[arg(long)]
    pub(crate) reconnect: bool,
    /// How long to wait for the stream to appear, and then for each frame
    /// [default: 5 for the stream, no limit for a frame; no limit with --reconnect]
    #[arg(long, value_name = "SECS", value_parser = seconds)]
    pub(crate) timeout: Option<Duration>,
    /// Look for each frame for this long before sleeping: less latency for more CPU time
    #[arg(long, value_name = "SECS", default_value = "0", value_parser = seconds, hide_default_value = true)]
    pub(crate) spin: Duration,
    #[command(flatten)]
    pub(crate) together: TogetherArgs,
    /// Hold each frame for this long, to play a slow consumer
    #[arg(long, value_name = "MS", default_value = "0", value_parser = milliseconds, hide_default_value = true)]
    pub(crate) delay: Duration,
    #[command(flatten)]
    pub(crate) memory: BackendArgs,
    /// Print one JSON object at the end
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) report: ReportArgs,
}

/// Where frames are.
#[derive(Args, Debug)]
pub(crate) struct BackendArgs {
    /// Where the frames are
    #[arg(long, value_enum, value_name = "WHERE", default_value = "host")]
    pub(crate) backend: MemoryKind,
    /// Which GPU, counted from 0 as in CUDA_VISIBLE_DEVICES
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(i32).range(0..))]
    pub(crate) device: i32,
}

/// Kinds of memory for frames.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum MemoryKind {
    /// Host memory
    Host,
    /// GPU memory, shared over CUDA IPC handles: needs a common pid and ipc namespace
    Cuda,
    /// GPU memory, shared over file descriptors
    CudaVmm,
    /// Publish: a GPU's if one can be used, otherwise the host's. Subscribe: wherever the stream has them
    Auto,
}

/// The ring that a publisher makes.
#[derive(Args, Debug)]
pub(crate) struct RingArgs {
    /// Frames in the ring, 1 to 16
    #[arg(long = "ring", value_name = "N", default_value = "8", value_parser = ring_size)]
    pub(crate) slots: RingSize,
    /// What to do about a subscriber that is slow: drop-oldest overwrites what it has not read, and waits only while every
    /// frame of the ring is being held; strict-wait waits for it
    #[arg(
        long,
        default_value_t = Policy::DROP_OLDEST,
        value_parser = one_of(&[Policy::DROP_OLDEST, Policy::STRICT_WAIT], Policy::name),
    )]
    pub(crate) policy: Policy,
}

/// How a command says what it does: to people, or to the process of a demo that started it.
#[derive(Args, Debug)]
pub(crate) struct ReportArgs {
    /// Report progress as JSON lines to the parent process with this id, and end when it is gone
    #[arg(long = "report-to", value_name = "PID", hide = true)]
    pub(crate) parent: Option<i32>,
    /// Tell on standard error who comes and goes, and why; twice: and what is tried meanwhile. Lines are left out while
    /// nobody reads them
    #[arg(short, long, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
}

/// What `publish` draws without a video.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Pattern {
    Bars,
    Noise,
    Seq,
}

/// Width and height in pixels, both at least 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Size {
    pub(crate) width: u32,
    pub(crate) height: u32,
}

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parse = |side: &str| side.parse().ok().filter(|&n: &u32| n > 0);
        text.split_once('x')
            .and_then(|(width, height)| Some(Self { width: parse(width)?, height: parse(height)? }))
            .ok_or_else(|| {
                format!("use WIDTHxHEIGHT such as 1280x720, each a whole number from 1 to {}", u32::MAX)
            })
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}", self.width, self.height)
    }
}

/// A file, or one of the standard streams.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Stream {
    Standard,
    File(PathBuf),
}

impl From<OsString> for Stream {
    fn from(text: OsString) -> Self {
        if text == "-" { Self::Standard } else { Self::File(text.into()) }
    }
}

impl FromStr for Stream {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(OsString::from(text).into())
    }
}

impl fmt::Display for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Standard => f.write_str("-"),
            Self::File(path) => write!(f, "{}", path.display()),
        }
    }
}

const SIZE_HELP: &str = "Width and height in pixels; for format bytes the payload's size and 1";
const FPS_HELP: &str = "Frames per second, 0 for as fast as possible";

const EXAMPLES: &str = "\
EXAMPLES:
  cuframes demo
  cuframes publish cam0 --pattern bars
  cuframes subscribe cam0 --frames 100
  cuframes ls";

const DEMO_EXAMPLES: &str = "\
EXAMPLES:
  cuframes demo
  cuframes demo --subscribers 8 --policy strict-wait --ring 4
  cuframes demo --size 1280x720 --fps 60 --frames 600 --json
  cuframes demo --backend cuda-vmm

SIGINT, SIGTERM and SIGHUP (the terminal was closed) end it with all its processes; those that don't end within 5 seconds, or \
before a second signal, are killed.
The exit code is 0 only if no byte of any frame was wrong and every process ended well, also if a signal ended it: then the JSON \
object has interrupted as true.";

const PUBLISH_EXAMPLES: &str = "\
EXAMPLES:
  cuframes publish cam0 --pattern bars --size 1920x1080 --fps 30
  cuframes publish cam0 --pattern seq --policy strict-wait --wait-for 2 --frames 1000
  cuframes publish cam0 --pattern bars --backend auto
  cuframes publish cam0 --pattern bars --barrier 5555 --expect 2
  ffmpeg -i in.mp4 -pix_fmt yuv420p -f yuv4mpegpipe - | cuframes publish cam0 --y4m -
  ffmpeg -f v4l2 -i /dev/video0 -pix_fmt yuv420p -f yuv4mpegpipe - | cuframes publish cam0 --y4m -

The pattern seq fills a frame with its number, as 64-bit little-endian words; a shorter last word is cut.
With drop-oldest subscribers that hold many frames for long still slow the stream down, once they hold every frame of the ring: a \
larger --ring helps, and so does giving frames back early.
SIGINT, SIGTERM and SIGHUP (the terminal was closed; not if it was ignored, as nohup does) end the stream: subscribers are told, \
and nothing is left behind. A second signal ends the program at once.
The exit code is 0 at the end of the source, after --frames, or on a signal; 1 if something failed; 2 for wrong usage.";

const SUBSCRIBE_EXAMPLES: &str = "\
EXAMPLES:
  cuframes subscribe cam0 --frames 100
  cuframes subscribe cam0 --mode strict --check-seq --json
  cuframes subscribe cam0 --mode strict --y4m out.y4m
  cuframes subscribe cam0 --y4m - | ffplay -i -
  cuframes subscribe cam0 --reconnect --verbose
  cuframes subscribe cam0 --barrier 5555 --index 0

A video takes the place of another file only with --force, and when it has begun. A named pipe waits for its reader before this \
subscribes. A reader of the video that is slow makes this slow, and a publisher that has strict-wait waits for its patience (1 second \
by default, publish --patience) and then evicts it.
With --reconnect the end of the stream is not the end: one line on standard error says who was lost, and one who came.
SIGINT, SIGTERM and SIGHUP (the terminal was closed; not if it was ignored, as nohup does) end it.
The exit code is 0 at the end of the stream, after --frames, on a signal, or when nobody reads the video any more; 1 if something \
failed or a byte was wrong; 2 for wrong usage.";

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn sizes_are_two_positive_32_bit_numbers() {
        assert_eq!("1280x720".parse(), Ok(Size { width: 1280, height: 720 }));
        assert_eq!("1x4294967295".parse(), Ok(Size { width: 1, height: u32::MAX }));
        for text in ["", "x", "1280", "0x720", "1280x0", "1280x-1", "4294967296x1", "1280X720", "1x2x3"] {
            assert!(text.parse::<Size>().is_err(), "{text:?}");
        }
    }
}
