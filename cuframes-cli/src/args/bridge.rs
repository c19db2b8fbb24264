//! Arguments of `bridge send` and `bridge recv`.

use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use cuframes_core::{Key, Policy, RingSize};
use cuframes_mio::bridge::Transport;
use cuframes_mio::net::Endpoint;

use super::barrier::{address, peer_address};
use super::{BackendArgs, Stream, one_of, ring_size, seconds, some_seconds};

#[derive(Args, Debug)]
pub(crate) struct BridgeArgs {
    #[command(subcommand)]
    pub(crate) end: BridgeEnd,
}

#[derive(Subcommand, Debug)]
pub(crate) enum BridgeEnd {
    /// Send the frames of a stream to another host
    #[command(after_help = SEND_EXAMPLES)]
    Send(BridgeSendArgs),
    /// Publish the frames that other hosts send
    #[command(after_help = RECV_EXAMPLES)]
    Recv(BridgeRecvArgs),
}

#[derive(Args, Debug)]
#[command(mut_arg("backend", |backend| backend.default_value("auto")))]
pub(crate) struct BridgeSendArgs {
    /// Name of the stream
    pub(crate) key: Key,
    #[arg(long, value_name = "ADDR", value_parser = peer_address, help = TO_HELP)]
    pub(crate) to: Endpoint,
    #[command(flatten)]
    pub(crate) link: LinkArgs,
    /// Keep each frame until it has arrived, and take no more than --window of them: a strict-wait publisher waits then
    /// [default: leave out frames that the link is too slow for, the newest counts]
    #[arg(long)]
    pub(crate) strict: bool,
    /// Send frames only when the receiver asks for one (recv --fetch)
    #[arg(long, conflicts_with_all = ["strict", "window", "frames"])]
    pub(crate) on_demand: bool,
    /// How many frames may be on their way, each of which keeps a slot of the ring
    /// [default: 2; with --strict all but two of the slots]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=15))]
    pub(crate) window: Option<u8>,
    /// Send this many frames, and end
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) frames: Option<u64>,
    /// Go on with the next publisher when this one is gone, and wait for the first one, too
    #[arg(long)]
    pub(crate) reconnect: bool,
    /// How long to wait for the stream to appear [default: 5; no limit with --reconnect]
    #[arg(long, value_name = "SECS", value_parser = seconds)]
    pub(crate) wait: Option<Duration>,
    /// How long what is on its way may still take at the end
    #[arg(long, value_name = "SECS", default_value = "10", value_parser = seconds)]
    pub(crate) patience: Duration,
    #[command(flatten)]
    pub(crate) memory: BackendArgs,
}

#[derive(Args, Debug)]
pub(crate) struct BridgeRecvArgs {
    #[arg(long, value_name = "ADDR", default_value = "tcp://127.0.0.1:7447", value_parser = address, help = LISTEN_HELP)]
    pub(crate) listen: Endpoint,
    #[command(flatten)]
    pub(crate) link: LinkArgs,
    /// Take this stream only, by its name at the sender [default: all]
    #[arg(long)]
    pub(crate) key: Option<Key>,
    /// What comes before the name of each stream here [default: nothing]
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true, value_parser = prefix)]
    pub(crate) prefix: String,
    /// Frames in each ring, 1 to 16 [default: as many as at the sender]
    #[arg(long = "ring", value_name = "N", value_parser = ring_size)]
    pub(crate) slots: Option<RingSize>,
    /// What to do about a subscriber that is slow [default: as at the sender]
    #[arg(long, value_parser = one_of(&[Policy::DROP_OLDEST, Policy::STRICT_WAIT], Policy::name))]
    pub(crate) policy: Option<Policy>,
    /// How long a subscriber may keep a stream waiting for one frame before it is evicted
    /// [default: 1 for a frame that it has not read, 2 for one that it holds]
    #[arg(long, value_name = "SECS", value_parser = some_seconds)]
    pub(crate) patience: Option<Duration>,
    /// Memory for all streams, with K, M or G behind the number if you like; a stream that needs more is refused
    #[arg(long, value_name = "BYTES", default_value = "2G", value_parser = bytes)]
    pub(crate) memory: u64,
    /// How long a stream stays when its sender is gone; one that comes back goes on with it
    #[arg(long, value_name = "SECS", default_value = "30", value_parser = seconds)]
    pub(crate) linger: Duration,
    /// Publish this many frames, and end
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) frames: Option<u64>,
    /// Publish nothing: ask the sender of --key for one frame, by its number or for the newest, and end
    #[arg(
        long,
        value_name = "SEQ|newest",
        requires = "key",
        requires = "output",
        conflicts_with_all = ["prefix", "slots", "policy", "patience", "linger", "frames"],
    )]
    pub(crate) fetch: Option<Fetch>,
    /// Where that frame goes: as a picture if the name ends in .png, otherwise its bytes; `-` for standard output
    #[arg(long, value_name = "FILE", requires = "fetch")]
    pub(crate) output: Option<Stream>,
    /// How long to wait for its sender
    #[arg(long, value_name = "SECS", default_value = "30", value_parser = seconds, requires = "fetch")]
    pub(crate) wait: Duration,
}

/// What both ends of a link have.
#[derive(Args, Debug)]
pub(crate) struct LinkArgs {
    /// What carries the frames
    #[arg(long, value_enum, default_value = "auto")]
    pub(crate) transport: TransportArg,
    /// For how long nothing may go on before the connection is given up: in the middle of a frame, and at the sender until one
    /// is answered, so more than --patience at the receiver
    #[arg(long, value_name = "SECS", default_value = "60", value_parser = some_seconds)]
    pub(crate) stall: Duration,
    /// Print one JSON object at the end
    #[arg(long)]
    pub(crate) json: bool,
}

/// [`Transport`] as an argument.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TransportArg {
    /// RDMA where both ends have it, otherwise TCP; this build has none
    Auto,
    /// TCP
    Tcp,
    /// RDMA or nothing
    Rdma,
}

impl From<TransportArg> for Transport {
    fn from(arg: TransportArg) -> Self {
        match arg {
            TransportArg::Auto => Self::Auto,
            TransportArg::Tcp => Self::Tcp,
            TransportArg::Rdma => Self::Rdma,
        }
    }
}

/// Which frame is asked for; `None` is the newest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Fetch(pub(crate) Option<u64>);

impl std::str::FromStr for Fetch {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "newest" {
            return Ok(Self(None));
        }
        let seq = text.parse().ok().filter(|seq| (1..=MAX_SEQ).contains(seq));
        seq.map(|seq| Self(Some(seq)))
            .ok_or_else(|| "use the number of a frame, from 1 on, or newest".to_string())
    }
}

/// A number of bytes: `500000`, `64M`.
fn bytes(text: &str) -> Result<u64, String> {
    let (digits, shift) = match text.strip_suffix(['k', 'K']) {
        Some(digits) => (digits, 10),
        None => match text.strip_suffix(['m', 'M']) {
            Some(digits) => (digits, 20),
            None => text.strip_suffix(['g', 'G']).map_or((text, 0), |digits| (digits, 30)),
        },
    };
    let number = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(1 << shift));
    number
        .filter(|number| *number > 0)
        .ok_or_else(|| "use a number of bytes such as 500000, 64M or 2G".into())
}

/// What may come before the name of a stream.
fn prefix(text: &str) -> Result<String, String> {
    let name = format!("{text}0").parse::<Key>();
    name.map(|_| text.to_owned()).map_err(|error| format!("no stream can be called so: {error}"))
}

/// The largest number that fits beside the bit that marks a request.
const MAX_SEQ: u64 = (1 << 63) - 1;

const TO_HELP: &str = "Where cuframes bridge recv is: HOST:PORT, ipc://PATH, or a port of 127.0.0.1";
const LISTEN_HELP: &str = "Where senders connect: HOST:PORT, ipc://PATH, or a port of 127.0.0.1";

pub(crate) const EXAMPLES: &str = "\
EXAMPLES:
  cuframes bridge recv
  cuframes bridge send cam0 --to 127.0.0.1:7447

Both on one host need another name for the stream: cuframes bridge recv --prefix far-
Two hosts, through ssh: cuframes bridge recv on the one that gets the frames; on the other one
  ssh -N -L 7447:127.0.0.1:7447 HOST &
  cuframes bridge send cam0 --to 127.0.0.1:7447

There is no authentication and no encryption: without ssh or WireGuard whoever can connect can publish. See docs/span.md.";

const SEND_EXAMPLES: &str = "\
EXAMPLES:
  cuframes bridge send cam0 --to 127.0.0.1:7447
  cuframes bridge send cam0 --to 127.0.0.1:7447 --strict --json
  cuframes bridge send cam0 --to 127.0.0.1:7447 --reconnect
  cuframes bridge send cam0 --to 127.0.0.1:7447 --on-demand

A receiver that is not there, or goes away, is looked for again and again. Frames arrive as they are, with their numbers and time stamps. \
DROPPED frames are those that the link was too slow for, or that were published while the receiver was not there; with --strict those \
that a drop-oldest publisher has overwritten meanwhile, and the numbers that it passes over because their slots are on their way. Frames in GPU memory are copied to the host here.
BEFORE is the time from a frame's time stamp until it is sent, WIRE from its first byte at the receiver to its last, PUBLISH until it is \
published there.
SIGINT, SIGTERM and SIGHUP (the terminal was closed; not if it was ignored, as nohup does) end it when what is on its way has arrived, or \
after --patience, or with a second signal, after which what is still on its way is given up.
The exit code is 0 at the end of the stream, after --frames, or on a signal; 1 if something failed, the receiver did not want the stream or a \
frame, or with --strict a frame that was sent did not arrive; 2 for wrong usage.";

const RECV_EXAMPLES: &str = "\
EXAMPLES:
  cuframes bridge recv
  cuframes bridge recv --listen 127.0.0.1:7448 --key cam0 --json
  cuframes bridge recv --prefix far- --policy drop-oldest --ring 4
  cuframes bridge recv --key cam0 --fetch newest --output cam0.png

Any number of streams, each from a sender of its own. Each is published under its name (with --prefix before it) as if it were from here: \
same numbers, time stamps and bytes, in host memory. Time stamps are of the sender's clock, so the latency that subscribers measure here \
means nothing between hosts whose clocks differ. With strict-wait a slow subscriber holds the sender up; with drop-oldest a frame \
whose slot is held is left out.
SIGINT, SIGTERM and SIGHUP (the terminal was closed; not if it was ignored, as nohup does) end it, and the streams with it.
The exit code is 0 after --frames, --fetch, or a signal; 1 if something failed, the frame is not there, or a signal came before it; 2 for \
wrong usage.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_asked_for_by_number_or_as_the_newest() {
        assert_eq!("newest".parse(), Ok(Fetch(None)));
        assert_eq!("17".parse(), Ok(Fetch(Some(17))));
        for text in ["", "0", "-1", "oldest", "9223372036854775808"] {
            assert!(text.parse::<Fetch>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_prefix_can_begin_the_name_of_a_stream() {
        assert_eq!(["", "far-", "far_2"].map(|text| prefix(text).unwrap()), ["", "far-", "far_2"]);
        assert!(["far/", "far ", &"x".repeat(Key::MAX_LEN)].iter().all(|text| prefix(text).is_err()));
    }

    #[test]
    fn bytes_have_short_names_for_large_numbers() {
        assert_eq!(["1", "1000", "4k", "64M", "2G"].map(bytes), [1, 1000, 4096, 64 << 20, 2 << 30].map(Ok));
        for text in ["", "0", "G", "0G", "1.5G", "-1", "2T", "99999999999G"] {
            assert!(bytes(text).is_err(), "{text}");
        }
    }
}
