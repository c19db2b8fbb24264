//! Arguments of `dispatch` and `work`.

use std::ffi::OsString;
use std::fmt;
use std::num::NonZeroUsize;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, ValueEnum};
use cuframes_mio::dispatch::{Fit, Roi, Version};
use cuframes_mio::net::Endpoint;

use super::barrier::address;
use super::seconds;

#[derive(Args, Debug)]
pub(crate) struct DispatchArgs {
    /// The box that is cut into blocks, each number along one axis: [OFFSET,...:]LENGTHx...
    #[arg(long, value_name = "BOX", allow_hyphen_values = true)]
    pub(crate) grid: Extent,
    /// Size of a block
    #[arg(long, value_name = "LENGTHx...")]
    pub(crate) block: Extent,
    /// What a block reads around what it writes, along each axis [default: nothing]
    #[arg(long, value_name = "LENGTHx...")]
    pub(crate) margin: Option<Extent>,
    /// What to do about blocks at the far edge of the box
    #[arg(long, value_enum, default_value = "valid")]
    pub(crate) fit: FitArg,
    /// Name of the task, by which workers ask for it
    #[arg(long, value_name = "NAME", default_value = "blocks")]
    pub(crate) task: String,
    #[arg(long, value_name = "ADDR", default_value = "tcp://127.0.0.1:0", value_parser = address, help = LISTEN_HELP)]
    pub(crate) listen: Endpoint,
    /// How often a block is tried again that failed, or was lost with its worker
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub(crate) retries: u32,
    /// How long a worker may have a block before somebody else gets it; 0 for ever
    #[arg(long, value_name = "SECS", default_value = "600", value_parser = seconds)]
    pub(crate) timeout: Duration,
    /// Start this many workers [default: none, wait for others to connect]
    #[arg(long, value_name = "N", requires = "command")]
    pub(crate) workers: Option<NonZeroUsize>,
    /// How often workers that end too early are started again, all together
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub(crate) restarts: usize,
    /// Speak the protocol from before daisy's release
    #[arg(long)]
    pub(crate) w0: bool,
    /// Print one JSON object at the end
    #[arg(long)]
    pub(crate) json: bool,
    /// Program of a worker, with its arguments
    #[arg(last = true, value_name = "CMD", requires = "workers")]
    pub(crate) command: Vec<OsString>,
}

#[derive(Args, Debug)]
pub(crate) struct WorkArgs {
    #[arg(long = "connect", value_name = "ADDR", value_parser = address, requires = "task", help = CONNECT_HELP)]
    pub(crate) endpoint: Option<Endpoint>,
    /// Name of the task [default: as DAISY_CONTEXT says]
    #[arg(long, value_name = "NAME", requires = "endpoint")]
    pub(crate) task: Option<String>,
    /// Run this in a shell for each block, which is done if it ends with exit code 0 [default: print the block]
    #[arg(long, value_name = "CMD")]
    pub(crate) exec: Option<OsString>,
    /// How many blocks to have at a time: with more than one the next is there when one is done
    #[arg(long, value_name = "N", default_value = "1")]
    pub(crate) depth: NonZeroUsize,
    /// Speak the protocol from before daisy's release
    #[arg(long)]
    pub(crate) w0: bool,
    /// How long to try to connect
    #[arg(long, value_name = "SECS", default_value = "30", value_parser = seconds)]
    pub(crate) connect_timeout: Duration,
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

pub(crate) const fn version(w0: bool) -> Version {
    if w0 { Version::W0 } else { Version::W2 }
}

const LISTEN_HELP: &str =
    "Where workers connect: tcp://HOST:PORT, ipc://PATH (only ours do), or a port of 127.0.0.1";
const CONNECT_HELP: &str = "Where the dispatcher is: tcp://HOST:PORT, ipc://PATH, or a port of 127.0.0.1 \
                            [default: as DAISY_CONTEXT says]";

pub(crate) const DISPATCH_EXAMPLES: &str = "\
EXAMPLES:
  cuframes dispatch --grid 1080x1920 --block 270x480 --workers 4 -- cuframes work --exec 'echo $CUFRAMES_BLOCK'
  cuframes dispatch --grid 0,0,0:100x1000x1000 --block 10x100x100 --margin 0x8x8 --workers 2 --json -- cuframes work
  cuframes dispatch --grid 64 --block 1 --listen 127.0.0.1:5600 --timeout 60 --workers 1 -- cuframes work

Each block goes to one worker, and to another one if that one ends, fails or is late. A worker is told where to connect by \
DAISY_CONTEXT in its environment: cuframes work, or one that uses Python's daisy.Client.
The protocol has no authentication: whoever can connect gets blocks.
The exit code is 0 if every block was done; 1 if one failed or was given up; 2 for wrong usage.";

pub(crate) const WORK_EXAMPLES: &str = "\
EXAMPLES:
  cuframes dispatch --grid 64 --block 1 --workers 1 -- cuframes work
  cuframes dispatch --grid 64x64 --block 16x16 --workers 2 -- cuframes work --depth 2 --exec 'test $CUFRAMES_BLOCK -lt 99'

The command of --exec has in its environment CUFRAMES_TASK, CUFRAMES_BLOCK (its number), and as numbers along each axis \
CUFRAMES_READ_OFFSET, CUFRAMES_READ_SHAPE, CUFRAMES_WRITE_OFFSET, CUFRAMES_WRITE_SHAPE, as in 0,270 and 270x480.
Without it each block is printed as one line of JSON, and is done.
The exit code is 0 when the dispatcher has nothing more, whatever failed; 1 if it can't be reached; 2 for wrong usage.";

#[cfg(test)]
mod tests {
    use super::*;

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
