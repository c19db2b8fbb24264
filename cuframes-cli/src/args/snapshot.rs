//! `cuframes snapshot`: its arguments, and how YUV becomes RGB, which `view` asks for as well.

use std::time::Duration;

use clap::Args;
use cuframes_core::Key;

use super::{BackendArgs, Stream, seconds};
use crate::picture::{MatrixChoice, Range};

#[derive(Args, Debug)]
#[command(mut_arg("backend", |backend| backend.default_value("auto")))]
pub(crate) struct SnapshotArgs {
    /// Name of the stream
    pub(crate) key: Key,
    /// The PNG file, `-` for standard output
    #[arg(value_name = "OUT.png")]
    pub(crate) out: Stream,
    #[command(flatten)]
    pub(crate) colour: ColourArgs,
    /// How long to wait for the stream and its frame
    #[arg(long, value_name = "SECS", default_value = "5", value_parser = seconds)]
    pub(crate) timeout: Duration,
    #[command(flatten)]
    pub(crate) memory: BackendArgs,
    /// Print one JSON object: key, seq, pts_ns, format, width, height, file and bytes
    #[arg(long)]
    pub(crate) json: bool,
}

/// What the numbers of YUV formats mean; a frame does not say.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct ColourArgs {
    /// Which matrix YUV frames were made with
    #[arg(long, value_enum, default_value = "auto")]
    pub(crate) matrix: MatrixChoice,
    /// Which range YUV frames use
    #[arg(long, value_enum, default_value = "limited")]
    pub(crate) range: Range,
}

pub(super) const EXAMPLES: &str = "\
EXAMPLES:
  cuframes snapshot cam0 cam0.png
  cuframes snapshot cam0 cam0.png --matrix bt601 --range full --json
  cuframes snapshot cam0 - > cam0.png

The newest frame is taken, or the next one if there is none yet. The file gets its name when it is complete: whatever goes wrong, \
there is no half picture, and a file of that name stays as it was. One that is read-only is not replaced.
A YUV frame does not say what its numbers mean. Without --matrix it is bt709 from 720 rows on, bt601 below; the pattern bars of \
cuframes publish is always bt601. Chroma of 4:2:0 lies in the middle of its four pixels. Samples of more than 8 bits are rounded \
to 8, grey frames make grey pictures, and alpha is kept.
The exit code is 0 if the picture is there, 1 if something failed, 2 for wrong usage.";
