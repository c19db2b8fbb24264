//! Arguments of `exporter`.

use std::net::SocketAddr;
use std::time::Duration;

use clap::Args;
use cuframes_mio::net::Endpoint;

use super::barrier::address;
use super::top::pause;

#[derive(Args, Debug)]
pub(crate) struct ExporterArgs {
    /// Where to listen: HOST:PORT, or a port of 127.0.0.1
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:9400", value_parser = listen)]
    pub(crate) listen: SocketAddr,
    /// Time between two looks at the streams, at least 0.1
    #[arg(long, value_name = "SECS", default_value = "1", value_parser = pause)]
    pub(crate) interval: Duration,
    /// Show the last frame of each stream on the page: each look at one subscribes for a moment
    #[arg(long)]
    pub(crate) pictures: bool,
}

/// An address of TCP.
fn listen(text: &str) -> Result<SocketAddr, String> {
    let remedy = || format!("{text:?} is no place to listen at: use HOST:PORT, or a port of 127.0.0.1");
    match address(text) {
        Ok(Endpoint::Tcp(address)) => Ok(address),
        // A host that is not known, for one.
        Err(error) if text.contains(':') && !text.contains("://") => Err(error),
        _ => Err(remedy()),
    }
}

pub(super) const EXAMPLES: &str = "\
EXAMPLES:
  cuframes exporter
  cuframes exporter --listen 9500 --pictures
  curl -s http://127.0.0.1:9400/metrics

/metrics is in Prometheus text format, for all streams; docs/grafana-dashboard.json shows it. / is a small page of the streams, \
/streams.json what is on it.
Nobody is asked for a password: whoever reaches the address sees keys, names of processes and, with --pictures, frames. Listen \
elsewhere than on 127.0.0.1 only where everybody may.
Without --pictures nothing is written, locked or connected to. SIGINT, SIGTERM and SIGHUP end it.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_listens_where_all_others_do_but_on_tcp_alone() {
        let local = Ok(([127, 0, 0, 1], 9500).into());
        assert_eq!(listen("9500"), local);
        assert_eq!(listen("127.0.0.1:9500"), local);
        assert_eq!(listen("localhost:9500").map(|address| address.port()), Ok(9500));
        for text in ["ipc:///tmp/x", "nowhere", "70000", ""] {
            assert!(listen(text).unwrap_err().contains("use HOST:PORT, or a port of 127.0.0.1"), "{text}");
        }
    }
}
