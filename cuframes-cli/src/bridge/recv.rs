//! `cuframes bridge recv`: the frames of other hosts, published here.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::time::{Duration, Instant};

use cuframes_core::{FrameMeta, Key, Timeouts};
use cuframes_mio::bridge::{Fate, IntakeEvent, LinkFault, StreamReceiver, StreamReceiverBuilder};
use cuframes_mio::net::Endpoint;
use serde::Serialize;

use super::{Legs, Spent, cpu_per_frame, loop_failed, warn};
use crate::args::BridgeRecvArgs;
use crate::console::Console;
use crate::error::{Failure, failed};
use crate::hops::{Direction, Teller, Times};
use crate::output::{self, Count, REFRESH};
use crate::signals::Signals;
use crate::stats::{End, fps, human};

/// How it went: the object that `--json` prints.
#[derive(Serialize)]
struct Report {
    listen: String,
    senders: usize,
    /// Frames that were published, of all streams.
    frames: u64,
    /// Those that were not.
    left_out: u64,
    /// Those that could not be.
    refused: u64,
    streams: Vec<Flowed>,
    cpu_ns_per_frame: Option<u64>,
    fps: f64,
    seconds: f64,
    /// `None` while it goes on.
    end: Option<End>,
}

/// One stream, as it is called here.
#[derive(Serialize)]
struct Flowed {
    key: String,
    frames: u64,
    left_out: u64,
    refused: u64,
    /// How often it was published: once more for each other publisher or format at the sender.
    publications: u64,
    /// Of the last publication.
    first_seq: Option<u64>,
    last_seq: Option<u64>,
    #[serde(flatten)]
    spent: Spent,
}

impl Report {
    /// One line, and one for each stream.
    fn lines(&self) -> Vec<String> {
        [self.head()].into_iter().chain(self.streams.iter().map(ToString::to_string)).collect()
    }

    /// For a terminal that is not wide: two for each stream.
    fn rows(&self) -> Vec<String> {
        let rows = self
            .streams
            .iter()
            .flat_map(|stream| [format!("{stream:#}")].into_iter().chain(stream.spent.row()));
        [self.head()].into_iter().chain(rows).collect()
    }

    /// All of them together.
    fn head(&self) -> String {
        let Self { listen, senders, frames, left_out, refused, .. } = self;
        let (senders, frames) = (Count(*senders, "sender"), Count(*frames, "frame"));
        let mut line = format!("<- {listen}: {senders}, {frames}, {:.1}/s", self.fps);
        for (count, what) in [(left_out, "left out"), (refused, "refused")] {
            if *count > 0 {
                line = format!("{line}, {count} {what}");
            }
        }
        if let Some(ns) = self.cpu_ns_per_frame {
            line = format!("{line}, {} CPU per frame", human(ns));
        }
        if let Some(end) = self.end {
            line = format!("{line} ({end})");
        }
        line
    }
}

/// One line; the short form (`{:#}`) has no times.
impl fmt::Display for Flowed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, frames, left_out, spent, .. } = self;
        write!(f, "{key}: {}, {left_out} left out", Count(*frames, "frame"))?;
        if f.alternate() { Ok(()) } else { write!(f, "{spent}") }
    }
}

pub(super) fn run(
    args: &BridgeRecvArgs,
    run_dir: Option<&Path>,
    signals: &Signals,
    console: &Console,
) -> Result<(), Failure> {
    let mut receiver = settings(args, run_dir).listen().map_err(|error| failed!("{error}"))?;
    announce(args, &receiver, console);
    let mut receiving = Receiving::new(args, receiver.endpoint(), console);
    let end = receiving.serve(&mut receiver, run_dir, signals)?;
    receiver.shut_down().map_err(loop_failed)?;
    while let Some(event) = receiver.next_event(Some(Duration::ZERO)).map_err(loop_failed)? {
        receiving.count(event);
    }
    let report = receiving.report(&receiver, Some(end));
    let text = if args.link.json { output::json(&report)? } else { report.lines().join("\n") };
    console.print(&text, signals)
}

pub(super) fn settings(args: &BridgeRecvArgs, run_dir: Option<&Path>) -> StreamReceiverBuilder {
    let mut builder = StreamReceiver::builder(args.listen.clone())
        .prefix(&args.prefix)
        .memory(args.memory)
        .linger(args.linger)
        .stall(args.link.stall);
    if let Some(key) = &args.key {
        builder = builder.key(key.clone());
    }
    if let Some(slots) = args.slots {
        builder = builder.ring_size(slots);
    }
    if let Some(frames) = args.frames {
        builder = builder.frames(frames);
    }
    if let Some(policy) = args.policy {
        builder = builder.policy(policy);
    }
    if let Some(patience) = args.patience {
        let mut timeouts = Timeouts::default();
        (timeouts.consumer_ack, timeouts.lease) = (patience, patience);
        builder = builder.timeouts(timeouts);
    }
    if let Some(run_dir) = run_dir {
        builder = builder.run_dir(run_dir);
    }
    builder
}

/// Says where it listens, and who else may send if that is so.
pub(super) fn announce(args: &BridgeRecvArgs, receiver: &StreamReceiver, console: &Console) {
    let endpoint = receiver.endpoint();
    warn(endpoint, "receiving at", "whoever can connect can publish here", console);
    let to = match endpoint {
        Endpoint::Tcp(address) if address.ip().is_unspecified() => format!("HOST:{}", address.port()),
        Endpoint::Tcp(address) => address.to_string(),
        other => other.to_string(),
    };
    let key = args.key.as_ref().map_or("KEY", Key::as_str);
    console.say(&format!("waiting for frames; send them with: cuframes bridge send {key} --to {to}"));
}

/// What has happened so far.
struct Receiving<'a> {
    args: &'a BridgeRecvArgs,
    endpoint: String,
    console: &'a Console,
    start: Instant,
    /// By their names here.
    flows: BTreeMap<Key, Flow>,
    /// Why frames of a stream, by its name there, could not be published; each reason is said once.
    told: BTreeMap<Key, String>,
    frames: u64,
    left_out: u64,
    refused: u64,
    /// When the rate was counted last, and how many frames there were.
    rate: (Instant, u64, f64),
}

/// One stream.
struct Flow {
    legs: Legs,
    teller: Teller,
    /// Its sender is there.
    is_connected: bool,
    left_out: u64,
    refused: u64,
    frames: u64,
    publications: u64,
    first_seq: Option<u64>,
    last_seq: Option<u64>,
}

impl<'a> Receiving<'a> {
    fn new(args: &'a BridgeRecvArgs, endpoint: &Endpoint, console: &'a Console) -> Self {
        let start = Instant::now();
        Self {
            args,
            endpoint: endpoint.to_string(),
            console,
            start,
            flows: BTreeMap::new(),
            told: BTreeMap::new(),
            frames: 0,
            left_out: 0,
            refused: 0,
            rate: (start, 0, 0.0),
        }
    }

    /// Publishes until there are enough frames, or a signal comes.
    fn serve(
        &mut self,
        receiver: &mut StreamReceiver,
        run_dir: Option<&Path>,
        signals: &Signals,
    ) -> Result<End, Failure> {
        let mut line = output::Line::new(self.console);
        loop {
            if signals.raised() {
                return Ok(End::Signal);
            }
            if Some(self.frames) == self.args.frames {
                return Ok(End::Frames);
            }
            let now = Instant::now();
            self.measure(now);
            line.show_with(now, || self.report(receiver, None).rows());
            for (key, flow) in &mut self.flows {
                flow.teller.tell(now, key, run_dir, (flow.is_connected, flow.left_out + flow.refused));
            }
            if let Some(event) = receiver.next_event(Some(REFRESH)).map_err(loop_failed)? {
                self.say(&event);
                self.count(event);
            }
        }
    }

    fn measure(&mut self, now: Instant) {
        let (since, earlier, _) = self.rate;
        let elapsed = now.saturating_duration_since(since);
        if elapsed >= SECOND {
            self.rate = (now, self.frames, fps(self.frames - earlier, elapsed));
        }
    }

    /// What a stream of another host is called here.
    fn name(&self, key: &Key) -> Option<Key> {
        format!("{}{key}", self.args.prefix).parse().ok()
    }

    /// Those of a stream of another host, if it is or was published here.
    fn flow(&mut self, key: &Key) -> Option<&mut Flow> {
        let name = self.name(key)?;
        self.flows.get_mut(&name)
    }

    /// Tells who comes and goes.
    fn say(&mut self, event: &IntakeEvent) {
        let console = self.console;
        let say = |key: &Key, text: &str| console.say(&format!("cuframes: stream {key}: {text}"));
        match event {
            IntakeEvent::Joined { key, strict } => {
                say(key, if *strict { "its sender is here, a strict one" } else { "its sender is here" });
            }
            IntakeEvent::Published { key, info } => {
                let FrameMeta { format, width, height, .. } = info.meta;
                say(key, &format!("published from frame {} on: {format} {width}x{height}", info.seq));
            }
            IntakeEvent::NotPublished { key, seq, fate: Fate::Refused(why) }
                if self.told.insert(key.clone(), why.clone()).as_ref() != Some(why) =>
            {
                say(key, &format!("frame {seq} can't be published: {why}"));
            }
            IntakeEvent::Left { key, fault } => {
                let why = fault.as_ref().map(|fault: &LinkFault| format!(": {fault}")).unwrap_or_default();
                match key {
                    Some(key) => say(key, &format!("its sender is gone{why}")),
                    None => console.say(&format!("cuframes: a sender was disconnected{why}")),
                }
            }
            IntakeEvent::Ended { key } => say(key, "published no more"),
            _ => {}
        }
    }

    fn count(&mut self, event: IntakeEvent) {
        match event {
            IntakeEvent::Joined { key, .. } => {
                if let Some(flow) = self.flow(&key) {
                    flow.is_connected = true;
                }
            }
            IntakeEvent::Left { key: Some(key), .. } => {
                self.told.remove(&key);
                if let Some(flow) = self.flow(&key) {
                    flow.is_connected = false;
                }
            }
            IntakeEvent::Published { key, .. } => {
                let flow = self.flows.entry(key).or_insert_with(|| Flow::new(&self.endpoint));
                (flow.is_connected, flow.first_seq, flow.last_seq) = (true, None, None);
                flow.publications += 1;
            }
            IntakeEvent::Frame { key, info, times } => {
                self.frames += 1;
                if let Some(flow) = self.flows.get_mut(&key) {
                    let (wire_ns, publish_ns) = (times.wire_ns, times.publish_ns);
                    let times = Times { before_ns: times.before_ns, wire_ns, publish_ns };
                    flow.legs.record(times);
                    flow.teller.frame(times);
                    flow.frames += 1;
                    flow.first_seq.get_or_insert(info.seq);
                    flow.last_seq = Some(info.seq);
                }
            }
            IntakeEvent::NotPublished { key, fate, .. } => {
                let (left_out, refused) = match fate {
                    Fate::Refused(_) => (0, 1),
                    // It is published already.
                    Fate::Had => (0, 0),
                    _ => (1, 0),
                };
                self.left_out += left_out;
                self.refused += refused;
                if let Some(flow) = self.flow(&key) {
                    flow.left_out += left_out;
                    flow.refused += refused;
                }
            }
            IntakeEvent::Ended { key } => {
                // Nobody can make the list grow for ever.
                if self.flows.len() > MAX_FLOWS {
                    self.flows.remove(&key);
                } else if let Some(flow) = self.flows.get_mut(&key) {
                    flow.teller.rest();
                }
            }
            _ => {}
        }
    }

    fn report(&self, receiver: &StreamReceiver, end: Option<End>) -> Report {
        let elapsed = self.start.elapsed();
        let (_, _, rate) = self.rate;
        Report {
            listen: self.endpoint.clone(),
            senders: receiver.senders(),
            frames: self.frames,
            left_out: self.left_out,
            refused: self.refused,
            streams: self.flows.iter().map(|(key, flow)| flow.report(key)).collect(),
            cpu_ns_per_frame: end.and_then(|_| cpu_per_frame(self.frames)),
            fps: if end.is_some() { fps(self.frames, elapsed) } else { rate },
            seconds: elapsed.as_secs_f64(),
            end,
        }
    }
}

impl Flow {
    fn new(endpoint: &str) -> Self {
        Self {
            legs: Legs::new(),
            teller: Teller::new(Direction::Recv, endpoint.into()),
            is_connected: true,
            left_out: 0,
            refused: 0,
            frames: 0,
            publications: 0,
            first_seq: None,
            last_seq: None,
        }
    }

    fn report(&self, key: &Key) -> Flowed {
        let &Self { frames, left_out, refused, publications, first_seq, last_seq, .. } = self;
        let (key, spent) = (key.to_string(), self.legs.report());
        Flowed { key, frames, left_out, refused, publications, first_seq, last_seq, spent }
    }
}

const SECOND: Duration = Duration::from_secs(1);
/// Streams that are told of at the end, of which more have ended.
const MAX_FLOWS: usize = 256;
