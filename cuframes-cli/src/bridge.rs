//! `cuframes bridge`: frames to another host.

mod fetch;
mod recv;
mod send;

use std::fmt;
use std::io;
use std::path::Path;
use std::time::Duration;

use cuframes_mio::bridge::{NoRdma, choose};
use cuframes_mio::net::Endpoint;
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

use crate::args::{BridgeArgs, BridgeEnd, LinkArgs};
use crate::console::Console;
use crate::error::{Failure, failed};
use crate::hops::Times;
use crate::signals::Signals;
use crate::stats::{Durations, Latency, human};

pub(crate) fn run(
    args: &BridgeArgs,
    run_dir: Option<&Path>,
    signals: &Signals,
    console: &Console,
) -> Result<(), Failure> {
    match &args.end {
        BridgeEnd::Send(args) => {
            check(&args.link)?;
            send::run(args, run_dir, signals, console)
        }
        BridgeEnd::Recv(args) => {
            check(&args.link)?;
            match args.fetch.zip(args.key.as_ref()).zip(args.output.as_ref()) {
                Some(((fetch, key), output)) => fetch::run(args, key, fetch, output, signals, console),
                None => recv::run(args, run_dir, signals, console),
            }
        }
    }
}

/// What carries the frames is chosen once. There is no RDMA in this build, so there is nothing to ask the other side.
fn check(link: &LinkArgs) -> Result<(), Failure> {
    let chosen = choose(link.transport.into(), false, true);
    chosen.map(drop).map_err(|error: NoRdma| failed!("{error}: it is not in this build; use --transport tcp"))
}

/// Says what it means, if others than processes of this host can be at the other end.
fn warn(endpoint: &Endpoint, what: &str, who: &str, console: &Console) {
    if endpoint.is_local() {
        return;
    }
    let port = match endpoint {
        Endpoint::Tcp(address) => address.port(),
        _ => 0,
    };
    console.say(&format!(
        "cuframes: {what} {endpoint}: there is no authentication and no encryption, {who}; through networks that you don't trust \
         use WireGuard, or ssh at the sender (ssh -N -L {port}:127.0.0.1:{port} HOST) and 127.0.0.1:{port} at both ends"
    ));
}

#[expect(clippy::needless_pass_by_value, reason = "for `map_err`")]
fn loop_failed(error: io::Error) -> Failure {
    failed!("the event loop of the bridge failed: {error}")
}

/// Where the time of frames goes.
#[derive(Debug)]
struct Legs {
    before: Durations,
    wire: Durations,
    publish: Durations,
}

impl Legs {
    fn new() -> Self {
        Self { before: Durations::new(), wire: Durations::new(), publish: Durations::new() }
    }

    fn record(&mut self, Times { before_ns, wire_ns, publish_ns }: Times) {
        if before_ns != 0 {
            self.before.record(before_ns);
        }
        self.wire.record(wire_ns);
        self.publish.record(publish_ns);
    }

    fn report(&self) -> Spent {
        let Self { before, wire, publish } = self;
        Spent { before_ns: before.report(), wire_ns: wire.report(), publish_ns: publish.report() }
    }
}

/// [`Legs`] for a report; `None` where nothing is known.
#[derive(Serialize, Clone, Copy, Default, Debug)]
struct Spent {
    /// From a frame's time stamp until it is sent, by the sender's clock.
    before_ns: Option<Latency>,
    /// From its first byte at the receiver to its last.
    wire_ns: Option<Latency>,
    /// The wait for a slot, and from the last byte until it is published.
    publish_ns: Option<Latency>,
}

impl Spent {
    /// A short row of its own; `None` while nothing is known.
    fn row(&self) -> Option<String> {
        let legs = [("before", self.before_ns), ("wire", self.wire_ns), ("publish", self.publish_ns)];
        let legs = legs.into_iter().filter_map(|(name, time)| {
            let Latency { p50, p99, .. } = time?;
            Some(format!("{name} {} ({})", human(p50), human(p99)))
        });
        let legs: Vec<_> = legs.collect();
        (!legs.is_empty()).then(|| format!("  p50 (p99): {}", legs.join(", ")))
    }
}

impl fmt::Display for Spent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { before_ns, wire_ns, publish_ns } = self;
        for (name, time) in [("before", before_ns), ("wire", wire_ns), ("publish", publish_ns)] {
            if let Some(Latency { p50, p99, .. }) = time {
                write!(f, ", {name} p50 {} p99 {}", human(*p50), human(*p99))?;
            }
        }
        Ok(())
    }
}

/// CPU time of this process for each of `frames`, in nanoseconds; `None` without any.
fn cpu_per_frame(frames: u64) -> Option<u64> {
    let used = Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).ok()?;
    u64::try_from(used.as_nanos()).ok()?.checked_div(frames)
}
