//! Arguments of `exporter`.

use std::net::SocketAddr;
use std::time::Duration;

use clap::Args;

use super::top::pause;

#[derive(Args, Debug)]
pub(crate) struct ExporterArgs {
    /// Where to listen
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:9400")]
    pub(crate) listen: SocketAddr,
    /// Time between two looks at the streams, at least 0.1
    #[arg(long, value_name = "SECS", default_value = "1", value_parser = pause)]
    pub(crate) interval: Duration,
    /// Show the last frame of each stream on the page: each look at one subscribes for a moment
    #[arg(long)]
    pub(crate) pictures: bool,
}

pub(super) const EXAMPLES: &str = "\
EXAMPLES:
  cuframes exporter
  cuframes exporter --listen 127.0.0.1:9500 --pictures
  curl -s http://127.0.0.1:9400/metrics

/metrics is in Prometheus text format, for all streams; docs/grafana-dashboard.json shows it. / is a small page of the streams, \
/streams.json what is on it.
Nobody is asked for a password: whoever reaches the address sees keys, names of processes and, with --pictures, frames. Listen \
elsewhere than on 127.0.0.1 only where everybody may.
Without --pictures nothing is written, locked or connected to. SIGINT, SIGTERM and SIGHUP end it.";
