//! Arguments of the commands that look at streams, and at what is left of them: `ls`, `inspect` and `gc`.

use std::time::Duration;

use clap::Args;
use cuframes_core::Key;

use super::seconds;

#[derive(Args, Debug)]
pub(crate) struct LsArgs {
    /// For how long to count frames
    #[arg(long, value_name = "SECS", default_value = "1", value_parser = seconds)]
    pub(crate) window: Duration,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct InspectArgs {
    /// Name of the stream
    pub(crate) key: Key,
    /// Show every word of the region that is not zero, with its offset, too
    #[arg(long, conflicts_with = "json")]
    pub(crate) hex: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct GcArgs {
    /// Only what is left of these streams [default: of all]
    #[arg(value_name = "KEY")]
    pub(crate) keys: Vec<Key>,
    /// Say what would be removed, and remove nothing
    #[arg(short = 'n', long)]
    pub(crate) dry_run: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

pub(crate) const LS_EXAMPLES: &str = "\
EXAMPLES:
  cuframes ls
  cuframes ls --window 0.2 --json

STATE is
  live      its publisher lives, and frames come
  stalled   its publisher lives, and no frame has come for a while, by their time stamps: five times as long as usual, and a second at least
  stale     its publisher is gone, and has left files behind; the next one of that name removes them
  foreign   what has the name of its region is none
  unknown   its publisher can't be seen from here (another pid namespace), and no frame came; or its region can't be read

NEWEST is the number of the newest frame. Numbers are left out where a subscriber held the slot that was next.
Nothing is written, locked or connected to. The exit code is 1 if a directory can't be looked at.";

pub(crate) const INSPECT_EXAMPLES: &str = "\
EXAMPLES:
  cuframes inspect cam0
  cuframes inspect cam0 --hex
  cuframes inspect cam0 --json

LAG is how many frames a subscriber is behind, if it has acknowledged any (one that takes them by number does not); LEASES are the frames that it holds. Warnings name the words that break the \
protocol, twice in a row.
Nothing is written, locked or connected to. The exit code is 1 if there is no such stream, or its region can't be read.";

pub(crate) const GC_EXAMPLES: &str = "\
EXAMPLES:
  cuframes gc --dry-run
  cuframes gc
  cuframes gc cam0

Removes the sockets and regions of publishers that are dead, as the next publisher of that name would. Whether one is dead is \
decided by taking its locks; what lives, or may live, is left alone, and so is what is no region of a stream. And what bridges that are \
gone have told top.
The exit code is 1 if something could not be removed.";
