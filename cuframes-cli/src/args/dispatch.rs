//! Arguments of `dispatch` and `work`.

use std::ffi::OsString;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use clap::{ArgGroup, Args, ValueEnum};
use cuframes_core::Key;
use cuframes_mio::dispatch::{Fit, Roi, Version, WhenFull};
use cuframes_mio::net::Endpoint;

use super::barrier::{address, peer_address};
use super::{BackendArgs, seconds};

#[derive(Args, Debug)]
#[command(
    group = ArgGroup::new("stream or grid").args(["key", "grid"]).required(true),
    mut_arg("backend", |backend| backend.default_value("auto").conflicts_with("grid")),
    mut_arg("device", |device| device.conflicts_with("grid")),
)]
pub(crate) struct DispatchArgs {
    #[command(flatten)]
    pub(crate) frames: FramesArgs,
    #[command(flatten)]
    pub(crate) grid: GridArgs,
    /// Name of the task, by which workers ask for it; on a stream once more for each task that waits for the one before
    /// [default: frames of a stream, blocks of a grid]
    #[arg(long = "task", value_name = "NAME", value_parser = task)]
    pub(crate) tasks: Vec<String>,
    #[arg(long, value_name = "ADDR", default_value = "tcp://127.0.0.1:0", value_parser = address, help = LISTEN_HELP)]
    pub(crate) listen: Endpoint,
    /// How often a block is tried again that failed, or was lost with its worker
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub(crate) retries: u32,
    /// How long a worker may have a block before somebody else gets it; 0 for ever
    #[arg(long, value_name = "SECS", default_value = "600", value_parser = seconds)]
    pub(crate) timeout: Duration,
    /// Start this many workers for each task [default: none, wait for others to connect]
    #[arg(long, value_name = "N", requires = "command", value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) workers: Option<u16>,
    /// How often workers that end too early are started again, all of a task together
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub(crate) restarts: usize,
    /// Speak the protocol from before daisy's release
    #[arg(long)]
    pub(crate) w0: bool,
    /// Print one JSON object for each block when it has ended
    #[arg(long)]
    pub(crate) each: bool,
    /// Print one JSON object at the end
    #[arg(long)]
    pub(crate) json: bool,
    /// Program of a worker, with its arguments
    #[arg(last = true, value_name = "CMD", requires = "workers")]
    pub(crate) command: Vec<OsString>,
}

/// The frames of a stream are handed out.
#[derive(Args, Debug)]
pub(crate) struct FramesArgs {
    /// Name of the stream whose frames are handed out
    pub(crate) key: Option<Key>,
    /// Cut frames into tiles of this size, smaller at the far edges [default: a block is a whole frame]
    #[arg(long, value_name = "HxW", conflicts_with = "grid", value_parser = tile)]
    pub(crate) tile: Option<(u32, u32)>,
    /// How many frames may be on their way, each of which keeps a slot of the ring [default: all but two of its slots]
    #[arg(long, value_name = "N", conflicts_with = "grid", value_parser = clap::value_parser!(u8).range(1..=15))]
    pub(crate) queue: Option<u8>,
    /// What to do about a new frame when that many are: drop the oldest one that nobody has begun, or let it wait in the ring
    /// [default: as the publisher: drop with drop-oldest; wait with strict-wait, once there are workers]
    #[arg(long, value_enum, conflicts_with = "grid")]
    pub(crate) when_full: Option<WhenFullArg>,
    /// Hand out this many frames, and end
    #[arg(long, value_name = "N", conflicts_with = "grid", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) frames: Option<u64>,
    /// How long to wait for the stream to appear [default: 5]
    #[arg(long, value_name = "SECS", conflicts_with = "grid", value_parser = seconds)]
    pub(crate) wait: Option<Duration>,
    #[command(flatten)]
    pub(crate) memory: BackendArgs,
}

/// The blocks of a box are handed out.
#[derive(Args, Debug)]
pub(crate) struct GridArgs {
    /// A box that is cut into blocks, each number along one axis: [OFFSET,...:]LENGTHx...
    #[arg(long, value_name = "BOX", allow_hyphen_values = true, requires = "block")]
    pub(crate) grid: Option<Extent>,
    /// Size of a block
    #[arg(long, value_name = "LENGTHx...", requires = "grid")]
    pub(crate) block: Option<Extent>,
    /// What a block reads around what it writes, along each axis [default: nothing]
    #[arg(long, value_name = "LENGTHx...", requires = "grid")]
    pub(crate) margin: Option<Extent>,
    /// What to do about blocks at the far edge of the box, where whole ones do not fit
    #[arg(long, value_enum, default_value = "valid", conflicts_with = "key")]
    pub(crate) fit: FitArg,
}

#[derive(Args, Debug)]
#[command(mut_arg("backend", |backend| backend.default_value("auto")))]
pub(crate) struct WorkArgs {
    #[arg(long = "connect", value_name = "ADDR", value_parser = peer_address, help = CONNECT_HELP)]
    pub(crate) endpoint: Option<Endpoint>,
    /// Name of the task [default: as DAISY_CONTEXT says; frames with --stream]
    #[arg(long, value_name = "NAME", requires = "endpoint")]
    pub(crate) task: Option<String>,
    /// The stream whose frames are handed out there [default: as DAISY_CONTEXT says]
    #[arg(long, value_name = "KEY", requires = "endpoint")]
    pub(crate) stream: Option<Key>,
    /// Run this in a shell for each block, which is done if it ends with exit code 0; of a stream it has the pixels of the
    /// tile on its standard input [default: print the block]
    #[arg(long, value_name = "CMD")]
    pub(crate) exec: Option<OsString>,
    /// Check every byte of every frame; the publisher must use `--pattern seq`
    #[arg(long)]
    pub(crate) check_seq: bool,
    /// How many blocks to have at a time: with more than one the next is there when one is done
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) depth: u16,
    /// Speak the protocol from before daisy's release
    #[arg(long)]
    pub(crate) w0: bool,
    /// How long to try to connect; of this at most 5 seconds to the stream
    #[arg(long, value_name = "SECS", default_value = "30", value_parser = seconds)]
    pub(crate) connect_timeout: Duration,
    #[command(flatten)]
    pub(crate) memory: BackendArgs,
}

/// [`WhenFull`] as an argument.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WhenFullArg {
    /// Drop the oldest that nobody has begun
    Drop,
    /// Wait
    Wait,
}

impl From<WhenFullArg> for WhenFull {
    fn from(arg: WhenFullArg) -> Self {
        match arg {
            WhenFullArg::Drop => Self::Drop,
            WhenFullArg::Wait => Self::Wait,
        }
    }
}

/// [`Fit`] as an argument.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FitArg {
    /// Leave out what does not fit
    Valid,
    /// Let them go beyond it
    Overhang,
    /// Make them smaller
    Shrink,
}

impl From<FitArg> for Fit {
    fn from(fit: FitArg) -> Self {
        match fit {
            FitArg::Valid => Self::Valid,
            FitArg::Overhang => Self::Overhang,
            FitArg::Shrink => Self::Shrink,
        }
    }
}

/// A box: lengths along the axes, and where it begins.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Extent(pub(crate) Roi);

impl FromStr for Extent {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let error = || {
            format!(
                "{text:?} is no box: use lengths such as 1080x1920, or offsets before them as in 0,-8:1080x1920"
            )
        };
        let numbers = |text: &str, separator| {
            text.split(separator).map(str::parse).collect::<Result<Vec<i64>, _>>().map_err(|_| error())
        };
        let (offset, shape) = match text.split_once(':') {
            Some((offset, shape)) => (Some(numbers(offset, ',')?), numbers(shape, 'x')?),
            None => (None, numbers(text, 'x')?),
        };
        let offset = offset.unwrap_or_else(|| vec![0; shape.len()]);
        if offset.len() != shape.len() || shape.iter().any(|length| *length < 0) {
            return Err(error());
        }
        Ok(Self(Roi::new(&offset, &shape)))
    }
}

impl fmt::Display for Extent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(Roi { offset, shape }) = self;
        let join = |numbers: &[i64], by| numbers.iter().map(i64::to_string).collect::<Vec<_>>().join(by);
        write!(f, "{}:{}", join(offset, ","), join(shape, "x"))
    }
}

/// Rows and columns of a tile.
fn tile(text: &str) -> Result<(u32, u32), String> {
    let side = |side: &str| side.parse().ok().filter(|length: &u32| *length > 0);
    let sides = text.split_once('x').and_then(|(height, width)| Some((side(height)?, side(width)?)));
    sides.ok_or_else(|| format!("{text:?} is no tile: use rows and columns such as 540x960"))
}

/// The name of a task.
fn task(text: &str) -> Result<String, String> {
    match text {
        "" => Err("a task needs a name".into()),
        text if text.contains('@') => {
            Err(format!("{text:?} has an @, which separates the name from the stream"))
        }
        text => Ok(text.into()),
    }
}

pub(crate) const fn version(w0: bool) -> Version {
    if w0 { Version::W0 } else { Version::W2 }
}

const LISTEN_HELP: &str =
    "Where workers connect: HOST:PORT, ipc://PATH (only ours do), or a port of 127.0.0.1";
const CONNECT_HELP: &str = "Where the dispatcher is: HOST:PORT, ipc://PATH, or a port of 127.0.0.1 \
                            [default: as DAISY_CONTEXT says]";

pub(crate) const DISPATCH_EXAMPLES: &str = "\
EXAMPLES:
  cuframes publish cam0 --pattern seq &
  cuframes dispatch cam0 --frames 100 --workers 4 -- cuframes work --check-seq
  cuframes dispatch cam0 --frames 20 --tile 360x640 --workers 2 -- cuframes work --exec 'sha256sum'
  cuframes dispatch cam0 --frames 20 --task detect --task track --workers 1 --each -- cuframes work --exec true
  cuframes dispatch --grid 1080x1920 --block 270x480 --workers 4 -- cuframes work --exec 'echo $CUFRAMES_BLOCK'
  cuframes dispatch --grid 0,0,0:100x1000x1000 --block 10x100x100 --margin 0x8x8 --workers 2 --json -- cuframes work
  cuframes dispatch --grid 64 --block 1 --listen 127.0.0.1:5600 --timeout 60 --workers 1 -- cuframes work

Each block goes to one worker, and to another one if that one ends, fails or is late. A worker is told where to connect by \
DAISY_CONTEXT in its environment: cuframes work, or one that uses Python's daisy.Client.
A frame of a stream keeps its slot of the ring until its blocks have ended, so a stream needs slots for as many frames as are worked \
on at a time, and some to go on: see publish --ring. Workers subscribe to the stream themselves; nobody waits for them.
The protocol has no authentication: whoever can connect gets blocks.
A signal ends it: what is not done is given up, and all workers get SIGTERM and have 5 seconds to end; a second signal ends them at \
once. When all is done they have 5 seconds to end by themselves before that. Of a stream that is the usual end, of a grid it is a failure.
The exit code is 0 if every block was done, of a stream those of every frame that was not dropped or cut short by a signal; 1 if one \
failed or was given up, or the stream was lost; 2 for wrong usage.";

pub(crate) const WORK_EXAMPLES: &str = "\
EXAMPLES:
  cuframes dispatch --grid 64 --block 1 --workers 1 -- cuframes work
  cuframes dispatch --grid 64x64 --block 16x16 --workers 2 -- cuframes work --depth 2 --exec 'test $CUFRAMES_BLOCK -lt 99'
  cuframes publish cam0 --pattern bars &
  cuframes dispatch cam0 --frames 9 --listen 127.0.0.1:5600 &
  cuframes work --connect 127.0.0.1:5600 --stream cam0 --exec 'ffmpeg -v error -f rawvideo -pix_fmt $CUFRAMES_FORMAT \
-s ${CUFRAMES_WIDTH}x$CUFRAMES_HEIGHT -i - -y frame-$CUFRAMES_SEQ.png'

The command of --exec has in its environment CUFRAMES_TASK, CUFRAMES_BLOCK (its number), and as numbers along each axis \
CUFRAMES_READ_OFFSET, CUFRAMES_READ_SHAPE, CUFRAMES_WRITE_OFFSET, CUFRAMES_WRITE_SHAPE, as in 0,270 and 270x480.
For the frames of a stream the axes are the frame's number, rows and columns, and there are CUFRAMES_STREAM, CUFRAMES_SEQ, \
CUFRAMES_PTS_NS, CUFRAMES_FORMAT, CUFRAMES_WIDTH and CUFRAMES_HEIGHT (of the tile). Its standard input is the tile: the rows of each \
plane, without padding.
Without --exec each block is printed as one line of JSON, and is done; when nobody reads standard output any more, that is a failure, \
and what was not printed goes to another worker.
The exit code is 0 when the dispatcher has nothing more, whatever failed, or of a grid has closed the connection while there was no \
block here; 1 if it can't be reached, is gone, or the stream is lost; 2 for wrong usage.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tile_is_rows_and_columns() {
        assert_eq!(tile("540x960"), Ok((540, 960)));
        for text in ["", "540", "0x960", "540x", "-1x2", "1x2x3", "5000000000x1"] {
            assert!(tile(text).unwrap_err().contains("540x960"), "{text}");
        }
    }

    #[test]
    fn boxes_are_lengths_with_or_without_an_offset() {
        let parse = |text: &str| text.parse::<Extent>().map(|extent| extent.0);
        assert_eq!(parse("4"), Ok(Roi::new(&[0], &[4])));
        assert_eq!(parse("0,-8:10x20"), Ok(Roi::new(&[0, -8], &[10, 20])));
        assert_eq!(parse("0,-8:10x20").map(|roi| Extent(roi).to_string()), Ok("0,-8:10x20".into()));
        for text in ["", "x", "4x", "-4", "1:2x3", "1,2,3", "a"] {
            assert!(parse(text).unwrap_err().contains("1080x1920"), "{text}");
        }
    }
}
