//! Arguments of `bench`.

use std::path::PathBuf;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use cuframes_bench::Job;

#[derive(Args, Debug)]
pub(crate) struct BenchArgs {
    /// How often everything is measured
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) rounds: u32,
    /// What is measured [default: everything]
    #[arg(
        long,
        value_name = "JOB,...",
        value_delimiter = ',',
        value_parser = PossibleValuesParser::new(Job::ALL.map(Job::name)).try_map(|name| name.parse::<Job>()),
    )]
    pub(crate) jobs: Vec<Job>,
    /// Be done in some seconds: to see whether it works; the figures mean nothing
    #[arg(long)]
    pub(crate) quick: bool,
    /// Print one JSON object at the end
    #[arg(long)]
    pub(crate) json: bool,
    /// Draw the latencies of spin and wake into this SVG file
    #[arg(long, value_name = "FILE")]
    pub(crate) plot: Option<PathBuf>,
}

pub(crate) const EXAMPLES: &str = "\
EXAMPLES:
  cuframes bench
  cuframes bench --jobs spin,wake --rounds 9 --plot latency.svg
  cuframes bench --json > figures.json

JOBS:
  spin       one-way latency, both sides spin
  wake       latency to a reader that sleeps
  publish    time of the call that publishes, with readers that spin and readers that sleep
  flow       1080p and 4K frames a second, and the CPU time of each
  handshake  how long it takes to subscribe
  death      how long it takes until a killed process is noticed
  policies   what leases and strict waiting cost

Each is measured on cuframes and on the floor: the least that the kernel and the memory would take, written by hand. All of it \
takes two to three minutes on a machine that has nothing else to do, and means nothing on one that has. docs/performance.md says \
what exactly is measured.
SIGINT, SIGTERM and SIGHUP (the terminal was closed) end it with all its processes, and what there is by then is printed.
The exit code is 0 only if everything was measured.";
