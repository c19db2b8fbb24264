//! Arguments of `cuframes record`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use cuframes_core::wire::hello::ConsumerName;
use cuframes_core::{Key, SubscriberMode};

use super::{BackendArgs, ReportArgs, one_of, seconds};

#[derive(Args, Debug)]
#[command(mut_arg("backend", |backend| backend.default_value("auto")))]
pub(crate) struct RecordArgs {
    /// Name of the stream
    pub(crate) key: Key,
    /// The file to make, in Matroska format: give it a name in .mkv
    pub(crate) file: PathBuf,
    /// Overwrite the file if it exists
    #[arg(long)]
    pub(crate) force: bool,
    /// Which frames to record: every frame in order, or always the newest one
    #[arg(
        long,
        default_value_t = SubscriberMode::STRICT_ORDER,
        value_parser = one_of(&[SubscriberMode::NEWEST_ONLY, SubscriberMode::STRICT_ORDER], SubscriberMode::name),
    )]
    pub(crate) mode: SubscriberMode,
    /// Stop after this many frames
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) frames: Option<u64>,
    /// Stop this long after the first frame
    #[arg(long, value_name = "SECS", value_parser = seconds)]
    pub(crate) duration: Option<Duration>,
    /// How long to wait for the stream to appear, and then for each frame
    /// [default: 5 for the stream, no limit for a frame]
    #[arg(long, value_name = "SECS", value_parser = seconds)]
    pub(crate) timeout: Option<Duration>,
    /// Name under which the publisher sees this subscriber
    #[arg(long, default_value = "cuframes-record")]
    pub(crate) name: ConsumerName,
    #[command(flatten)]
    pub(crate) memory: BackendArgs,
    /// Print one JSON object at the end
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) report: ReportArgs,
}

pub(crate) const EXAMPLES: &str = "\
EXAMPLES:
  cuframes record cam0 cam0.mkv
  cuframes record cam0 cam0.mkv --duration 60 --force
  cuframes record cam0 cam0.mkv --frames 1000 --json
  ffplay cam0.mkv
  cuframes replay cam0.mkv cam1

The file holds every byte of every picture: 1080p nv12 at 30 frames per second takes 93 MB a second. It can be replayed, and read \
by what reads Matroska, while it is being written, and however that ends. docs/recording.md says what is in it.
What can't be written in time is lost where the publisher has drop-oldest, and counted as dropped; a publisher that has strict-wait \
waits for it, for its patience (1 second by default, publish --patience), and then evicts it: that ends the recording with an error.
SIGINT, SIGTERM and SIGHUP (the terminal was closed; not if it was ignored, as nohup does) complete the file and end it.
The exit code is 0 at the end of the stream, after --frames or --duration, or on a signal; 1 if something failed, and then what \
came before is in the file; 2 for wrong usage.";
