//! Arguments about starting together: those of `barrier`, and those that `publish`, `replay` and `subscribe` have.

use std::time::Duration;

use clap::{Args, Subcommand};
use cuframes_mio::barrier::{Barrier, BarrierBuilder, Join, JoinBuilder};
use cuframes_mio::net::Endpoint;

use super::seconds;
use crate::error::Failure;

#[derive(Args, Debug)]
pub(crate) struct BarrierArgs {
    #[command(subcommand)]
    pub(crate) side: BarrierSide,
}

#[derive(Subcommand, Debug)]
pub(crate) enum BarrierSide {
    /// Wait until all participants are there
    #[command(after_help = WAIT_EXAMPLES)]
    Wait(BarrierWaitArgs),
    /// Be one of them, and wait for the others
    #[command(after_help = JOIN_EXAMPLES)]
    Join(BarrierJoinArgs),
}

#[derive(Args, Debug)]
pub(crate) struct BarrierWaitArgs {
    #[arg(value_name = "ADDR", default_value = DEFAULT_ADDRESS, value_parser = address, help = ADDRESS_HELP)]
    pub(crate) endpoint: Endpoint,
    #[command(flatten)]
    pub(crate) expected: ExpectedArgs,
    /// How long to wait for all of them together
    #[arg(long, value_name = "SECS", default_value = "30", value_parser = seconds)]
    pub(crate) timeout: Duration,
    /// Print one JSON object at the end
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct BarrierJoinArgs {
    #[arg(value_name = "ADDR", default_value = DEFAULT_ADDRESS, value_parser = peer_address, help = ADDRESS_HELP)]
    pub(crate) endpoint: Endpoint,
    #[command(flatten)]
    pub(crate) place: PlaceArgs,
    /// How long everything together may take
    #[arg(long, value_name = "SECS", default_value = "30", value_parser = seconds)]
    pub(crate) timeout: Duration,
    /// A name for this participant
    #[arg(long, default_value = "cuframes")]
    pub(crate) name: String,
    /// Print one JSON object at the end
    #[arg(long)]
    pub(crate) json: bool,
}

/// Who is expected.
#[derive(Args, Debug)]
pub(crate) struct ExpectedArgs {
    /// How many participants there are
    #[arg(long = "expect", value_name = "N", value_parser = clap::value_parser!(u16).range(1..=300))]
    pub(crate) count: u16,
    /// Index of the first one
    #[arg(long, value_name = "I", default_value_t = 0)]
    pub(crate) first_index: u16,
    /// Let a participant that starts again fail the start, instead of beginning anew
    #[arg(long)]
    pub(crate) no_restarts: bool,
}

/// Who this is.
#[derive(Args, Debug)]
pub(crate) struct PlaceArgs {
    /// Index of this participant
    #[arg(long, value_name = "I")]
    pub(crate) index: u16,
    /// How many participants there are: only for one who waits and does not say it, as those of other makes
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) of: Option<u16>,
    /// Index of the first one: with --of
    #[arg(long, value_name = "I", default_value_t = 0, requires = "of")]
    pub(crate) first_index: u16,
}

/// The barrier of a publisher.
#[derive(Args, Debug)]
pub(crate) struct StartArgs {
    #[arg(long = "barrier", value_name = "ADDR", value_parser = address, requires = "count", help = PUBLISH_HELP)]
    pub(crate) endpoint: Option<Endpoint>,
    /// How many participants there are at the barrier
    #[arg(
        long = "expect",
        value_name = "N",
        value_parser = clap::value_parser!(u16).range(1..=300),
        requires = "endpoint",
    )]
    pub(crate) count: Option<u16>,
    /// How long to wait for all of them together
    #[arg(long, value_name = "SECS", default_value = "30", value_parser = seconds, requires = "endpoint")]
    pub(crate) barrier_timeout: Duration,
}

/// The place of a subscriber at its publisher's barrier.
#[derive(Args, Debug)]
pub(crate) struct TogetherArgs {
    #[arg(
        long = "barrier",
        value_name = "ADDR",
        value_parser = peer_address,
        requires = "index",
        conflicts_with = "reconnect",
        help = SUBSCRIBE_HELP,
    )]
    pub(crate) endpoint: Option<Endpoint>,
    /// Index of this participant at the barrier
    #[arg(long, value_name = "I", requires = "endpoint")]
    pub(crate) index: Option<u16>,
    /// How long everything at the barrier may take
    #[arg(long, value_name = "SECS", default_value = "30", value_parser = seconds, requires = "endpoint")]
    pub(crate) barrier_timeout: Duration,
}

impl BarrierWaitArgs {
    pub(crate) fn builder(&self) -> BarrierBuilder {
        let ExpectedArgs { count, first_index, no_restarts } = self.expected;
        let builder = Barrier::builder(self.endpoint.clone(), count).timeout(self.timeout);
        builder.first_index(first_index).restarts(!no_restarts)
    }
}

impl BarrierJoinArgs {
    /// The participant, if there can be such a one.
    pub(crate) fn builder(&self) -> Result<JoinBuilder, Failure> {
        let PlaceArgs { index, of, first_index } = self.place;
        let builder = Join::builder(self.endpoint.clone(), index).timeout(self.timeout).name(&self.name);
        let Some(count) = of else { return Ok(builder) };
        match index.checked_sub(first_index) {
            Some(rank) if rank < count => Ok(builder.of(count, first_index)),
            _ => Err(Failure::Usage(format!(
                "index {index} is none of {count} participants from index {first_index} on; see --help"
            ))),
        }
    }
}

impl StartArgs {
    /// The barrier, if there is to be one.
    pub(crate) fn builder(&self) -> Option<BarrierBuilder> {
        let builder = Barrier::builder(self.endpoint.clone()?, self.count?);
        Some(builder.timeout(self.barrier_timeout))
    }
}

impl TogetherArgs {
    /// The participant, if it is to be one.
    pub(crate) fn builder(&self) -> Option<JoinBuilder> {
        Some(Join::builder(self.endpoint.clone()?, self.index?).timeout(self.barrier_timeout))
    }
}

/// An endpoint, one of TCP without `tcp://`, or the port of one on loopback.
pub(super) fn address(text: &str) -> Result<Endpoint, String> {
    if let Ok(port) = text.parse::<u64>() {
        let port = u16::try_from(port).map_err(|_| format!("{text} is no port: use 0 to 65535"))?;
        return Ok(Endpoint::Tcp(([127, 0, 0, 1], port).into()));
    }
    let is_short = !text.contains("://") && text.contains(':');
    let resolved =
        if is_short { Endpoint::resolve(&format!("tcp://{text}")) } else { Endpoint::resolve(text) };
    resolved.map_err(|error| error.to_string())
}

/// The [`address`] of somebody who listens there already.
pub(super) fn peer_address(text: &str) -> Result<Endpoint, String> {
    match address(text)? {
        Endpoint::Tcp(address) if address.port() == 0 => {
            Err("use the port that the other side says, not 0".into())
        }
        endpoint => Ok(endpoint),
    }
}

const DEFAULT_ADDRESS: &str = "tcp://127.0.0.1:5555";
const ADDRESS_HELP: &str = "Where they meet: HOST:PORT, ipc://PATH, or a port of 127.0.0.1";
const PUBLISH_HELP: &str = "Publish the first frame only when as many participants as --expect says have joined here: \
                            HOST:PORT, ipc://PATH, or a port of 127.0.0.1";
const SUBSCRIBE_HELP: &str = "Join the publisher's barrier here, with --index, and let it start when all are there: \
                              HOST:PORT, ipc://PATH, or a port of 127.0.0.1";

pub(crate) const EXAMPLES: &str = "\
EXAMPLES:
  cuframes barrier wait --expect 2
  cuframes barrier join --index 0

It is the start-up handshake of TokenSpeed's and vLLM's engines: ZeroMQ sockets and msgpack. See docs/start.md.";

const WAIT_EXAMPLES: &str = "\
EXAMPLES:
  cuframes barrier wait --expect 2
  cuframes barrier wait ipc:///tmp/start --expect 8 --timeout 120 --json

A line on the terminal says who is in and who is missing. --json has end (started, signal or failure), participants (index, name and frames \
of each, once it has started) and missing (index and progress of each).
The protocol has no authentication: whoever can connect can join, or make the start fail.
The exit code is 0 when all are there; 1 if they are not in time, one of them breaks the protocol or cancels, or a signal ends this; 2 for wrong usage.";

const JOIN_EXAMPLES: &str = "\
EXAMPLES:
  cuframes barrier join --index 0
  cuframes barrier join ipc:///tmp/start --index 1 --name recorder --json
  cuframes barrier join tcp://127.0.0.1:5557 --index 3 --of 4

It waits for the side that waits, too. One of another make does not say when all are there: then this ends when it is in.
--json has end (started, signal or failure), index, stream (its key, or null) and confirmed (whether the other side has said that all are there).
The exit code is 0 when all are there; 1 if that fails, with the reason that the other side gives, or a signal ends this; 2 for wrong usage.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bare_port_is_one_of_loopback_and_tcp_need_not_be_said() {
        for text in ["5555", "127.0.0.1:5555", "tcp://127.0.0.1:5555"] {
            assert_eq!(address(text).unwrap().to_string(), DEFAULT_ADDRESS, "{text}");
        }
        assert_eq!(address("[::1]:5555").unwrap().to_string(), "tcp://[::1]:5555");
        assert_eq!(address("ipc:///tmp/start").unwrap().to_string(), "ipc:///tmp/start");
        assert!(address("70000").unwrap_err().contains("0 to 65535"));
        assert!(address("0").is_ok());
        assert!(["0", "127.0.0.1:0", "tcp://[::1]:0"].iter().all(|text| peer_address(text).is_err()));
        assert_eq!(peer_address("5555"), address("5555"));
        for text in ["", "nowhere", "127.0.0.1:", "127.0.0.1:70000", "http://127.0.0.1:80"] {
            assert!(address(text).unwrap_err().contains("tcp://HOST:PORT"), "{text}");
        }
    }
}
