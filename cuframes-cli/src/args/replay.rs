//! Arguments of `cuframes replay`.

use std::path::PathBuf;

use clap::Args;
use cuframes_core::Key;

use super::{BackendArgs, ReportArgs, RingArgs, WaitArgs};
use crate::rate::Rate;

#[derive(Args, Debug)]
pub(crate) struct ReplayArgs {
    /// The recording
    pub(crate) file: PathBuf,
    /// Name of the stream
    pub(crate) key: Key,
    /// Frames per second, 0 for as fast as possible [default: as their time stamps say]
    #[arg(long, value_name = "N[/D]")]
    pub(crate) fps: Option<Rate>,
    /// Stop after this many frames
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) frames: Option<u64>,
    /// Start the recording again when it ends; its time stamps go on then
    #[arg(long = "loop")]
    pub(crate) repeat: bool,
    #[command(flatten)]
    pub(crate) ring: RingArgs,
    #[command(flatten)]
    pub(crate) memory: BackendArgs,
    #[command(flatten)]
    pub(crate) wait: WaitArgs,
    /// Print one JSON object at the end
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) report: ReportArgs,
}

pub(crate) const EXAMPLES: &str = "\
EXAMPLES:
  cuframes replay cam0.mkv cam0
  cuframes replay cam0.mkv cam0 --loop
  cuframes replay cam0.mkv test --fps 0 --policy strict-wait --wait-for 1
  cuframes replay cam0.mkv test --fps 30000/1001 --frames 100

Frames have the geometry, the bytes and the time stamps that they had when they were recorded; what lies between the rows of a picture \
is not recorded. Their numbers start at 1, as in every stream. What is missing in the recording is reported, and left out. As the time \
stamps are old, the latency that subscribers measure means nothing.
A recording that was cut off is replayed up to its last whole frame.
SIGINT, SIGTERM and SIGHUP (the terminal was closed; not if it was ignored, as nohup does) end the stream: subscribers are told, \
and nothing is left behind. A second signal ends the program at once.
The exit code is 0 at the end of the recording, after --frames, or on a signal; 1 if something failed; 2 for wrong usage.";
