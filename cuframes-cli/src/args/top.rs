//! Arguments of `top`.

use std::time::Duration;

use clap::{Args, ValueEnum};
use cuframes_core::Key;

use super::seconds;

#[derive(Args, Debug)]
pub(crate) struct TopArgs {
    /// Open this stream at once
    pub(crate) key: Option<Key>,
    /// Time between two looks, at least 0.1
    #[arg(long, value_name = "SECS", default_value = "1", value_parser = pause)]
    pub(crate) interval: Duration,
    /// End after this many looks
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,
    /// By what to sort
    #[arg(long, value_enum, default_value_t = Sort::Key)]
    pub(crate) sort: Sort,
    /// Show only streams with this in their keys
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub(crate) filter: String,
    /// Print one JSON object for each look, to whatever standard output is
    #[arg(long)]
    pub(crate) json: bool,
}

/// What streams are sorted by.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sort {
    /// Alphabetically
    Key,
    /// Most frames a second first
    Fps,
    /// Most subscribers first
    Subscribers,
    /// Largest lag of a subscriber first
    Lag,
    /// Most frames lost first
    Lost,
}

pub(super) fn pause(text: &str) -> Result<Duration, String> {
    let pause = seconds(text)?;
    if pause < Duration::from_millis(100) { Err("use 0.1 or more".into()) } else { Ok(pause) }
}

pub(crate) const EXAMPLES: &str = "\
EXAMPLES:
  cuframes top
  cuframes top cam0
  cuframes top --sort lag --interval 0.5
  cuframes top --json --count 1

KEYS: up and down (or k and j) select a stream, Enter opens it and goes back, s sorts by the next column, / filters by key, \
Esc goes back, q quits.

LAG is how many frames the slowest subscriber is behind. LOST are frames that were overwritten before a subscriber was done with \
them, since this program has looked; for one that takes only the newest frame, those that it meant to skip, too, if the ring was over \
by then. Neither is known of one that has acknowledged nothing, as workers (cuframes work), which take frames by their numbers. \
LATENCY is the time from \
a frame's time stamp until a subscriber was done with it, to 10 ms.
With --json it ends when nobody reads standard output any more.
Below its subscribers are the bridges of a stream (cuframes bridge): -> to another host, <- from one, with the means of the last second: BEFORE \
from a frame's time stamp until it is sent, WIRE from its first byte at the other host to its last, PUBLISH until it is published there.
Nothing is written, locked or connected to.";
