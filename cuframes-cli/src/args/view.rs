//! `cuframes view`: its arguments.

use std::time::Duration;

use clap::Args;
use cuframes_core::Key;

use super::snapshot::ColourArgs;
use super::{BackendArgs, seconds};

#[derive(Args, Debug)]
#[command(mut_arg("backend", |backend| backend.default_value("auto")))]
pub(crate) struct ViewArgs {
    /// Name of the stream
    pub(crate) key: Key,
    /// Show at most this many frames per second
    #[arg(long, value_name = "N", default_value_t = 15, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) fps: u32,
    /// Stop after this many frames
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) frames: Option<u64>,
    #[command(flatten)]
    pub(crate) colour: ColourArgs,
    /// How long to wait for the stream to appear
    #[arg(long, value_name = "SECS", default_value = "5", value_parser = seconds)]
    pub(crate) timeout: Duration,
    #[command(flatten)]
    pub(crate) memory: BackendArgs,
}

pub(super) const EXAMPLES: &str = "\
EXAMPLES:
  cuframes view cam0
  cuframes view cam0 --fps 5
  COLORTERM=truecolor cuframes view cam0

Each character shows two pixels, one above the other, in 24-bit colours if COLORTERM is truecolor or 24bit, in 256 colours \
otherwise. The picture follows the size of the terminal.
q, Esc, Ctrl-C, SIGINT, SIGTERM and SIGHUP (not if it was ignored, as nohup does) end it.
The exit code is 0 at the end of the stream, after --frames, on a key or a signal; 1 if something failed; 2 for wrong usage.";
