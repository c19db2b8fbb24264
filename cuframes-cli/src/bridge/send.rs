//! `cuframes bridge send`: the frames of a stream on their way to another host.

use std::fmt;
use std::path::Path;
use std::time::{Duration, Instant};

use cuframes_core::{FrameMeta, SubscriberMode};
use cuframes_mio::bridge::{
    CourierEvent, Fate, FrameInfo, SenderEvent, SenderStats, StreamSender, StreamSenderBuilder,
};
use cuframes_mio::net::Plain;
use cuframes_mio::{Error, Reconnect, StreamEvent, Subscriber, SubscriberBuilder};
use serde::Serialize;

use super::{Legs, Spent, cpu_per_frame, loop_failed, warn};
use crate::args::BridgeSendArgs;
use crate::console::Console;
use crate::error::{Failure, failed};
use crate::hops::{Direction, Teller, Times};
use crate::memory::{View, copier, over_memory};
use crate::output::{self, Count, REFRESH};
use crate::signals::Signals;
use crate::stats::{Durations, End, Latency, fps, human};
use crate::subscribe::{attach, is_end};

/// How it went: the object that `--json` prints.
#[derive(Serialize, Default)]
struct Report<'a> {
    key: &'a str,
    to: String,
    strict: bool,
    /// Frames that were taken to be sent.
    sent: u64,
    /// Those that were published there.
    arrived: u64,
    /// Those that were not taken.
    dropped: u64,
    /// Those that the receiver left out.
    left_out: u64,
    /// Those that it could not publish.
    refused: u64,
    /// Those that were on their way when the connection was lost, or at the end.
    given_up: u64,
    resent: u64,
    /// Those that were asked for.
    fetched: u64,
    bytes: u64,
    lost_connections: u64,
    #[serde(flatten)]
    spent: Spent,
    /// From the beginning of the sending until the answer.
    round_trip_ns: Option<Latency>,
    cpu_ns_per_frame: Option<u64>,
    fps: f64,
    seconds: f64,
    /// `None` while it goes on.
    end: Option<End>,
}

impl Report<'_> {
    /// For a terminal that is not wide.
    fn rows(&self) -> Vec<String> {
        [format!("{self:#}")].into_iter().chain(self.spent.row()).collect()
    }
}

/// One line; the short form (`{:#}`) has no times.
impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, to, sent, arrived, dropped, left_out, refused, given_up, fetched, .. } = self;
        write!(
            f,
            "{key} -> {to}: {} sent, {arrived} arrived, {dropped} dropped, {:.1}/s",
            Count(*sent, "frame"),
            self.fps
        )?;
        let rest = [(left_out, "left out there"), (refused, "refused there"), (given_up, "given up")];
        for (count, what) in rest.into_iter().chain([(&self.resent, "sent again"), (fetched, "fetched")]) {
            if *count > 0 {
                write!(f, ", {count} {what}")?;
            }
        }
        if !f.alternate() {
            write!(f, "{}", self.spent)?;
        }
        if let Some(ns) = self.cpu_ns_per_frame {
            write!(f, ", {} CPU per frame", human(ns))?;
        }
        self.end.map_or(Ok(()), |end| write!(f, " ({end})"))
    }
}

pub(super) fn run(
    args: &BridgeSendArgs,
    run_dir: Option<&Path>,
    signals: &Signals,
    console: &Console,
) -> Result<(), Failure> {
    let BridgeSendArgs { key, memory, to, .. } = args;
    warn(to, "sending to", "whoever is on the way can read the frames", console);
    over_memory!(key, memory, |backend| run_on(args, &backend, run_dir, signals, console))
}

fn run_on<B: View>(
    args: &BridgeSendArgs,
    backend: &B,
    run_dir: Option<&Path>,
    signals: &Signals,
    console: &Console,
) -> Result<(), Failure> {
    let name = "cuframes-bridge".parse().map_err(|error| failed!("{error}"))?;
    let mut builder = Subscriber::builder(args.key.clone()).name(name);
    builder = match args.strict {
        true => builder.mode(SubscriberMode::STRICT_ORDER),
        // Nobody waits for a link.
        false => builder.mode(SubscriberMode::NEWEST_ONLY).no_ack(),
    };
    if let Some(run_dir) = run_dir {
        builder = builder.run_dir(run_dir);
    }
    let Some(subscriber) = find(args, builder, backend, signals)? else {
        // Nothing has begun.
        let (key, to, end) = (args.key.as_str(), args.to.to_string(), Some(End::Signal));
        return print(
            args,
            &Report { key, to, strict: args.strict, end, ..Report::default() },
            signals,
            console,
        );
    };
    let started = settings(args).start_over(subscriber, copier(), Plain);
    let mut sender = started.map_err(|error| failed!("{error}"))?;
    let mut sending = Sending::new(args, console);
    sending.serve(&mut sender, run_dir, signals)?;
    let report = sending.report(&sender, Some(sending.end(signals)));
    print(args, &report, signals, console)?;
    sending.verdict(&report)
}

fn print(
    args: &BridgeSendArgs,
    report: &Report<'_>,
    signals: &Signals,
    console: &Console,
) -> Result<(), Failure> {
    let text = if args.link.json { output::json(report)? } else { report.to_string() };
    console.print(&text, signals)
}

/// Waits for the stream to appear. `None` if a signal came first.
fn find<B: View>(
    args: &BridgeSendArgs,
    builder: SubscriberBuilder,
    backend: &B,
    signals: &Signals,
) -> Result<Option<Subscriber<B>>, Failure> {
    if !args.reconnect {
        return attach(&builder, backend, args.wait, signals);
    }
    let failed = |error: Error| failed!("{error}");
    let mut subscriber = builder.reconnect(Reconnect::default()).start_on(backend.clone()).map_err(failed)?;
    let start = Instant::now();
    while !subscriber.wait_until_ready(REFRESH).map_err(failed)? {
        if signals.raised() {
            return Ok(None);
        }
        if let Some(wait) = args.wait.filter(|wait| start.elapsed() >= *wait) {
            return Err(match subscriber.trouble() {
                Some(trouble) => failed!("{trouble} (waited for {wait:?}, --wait allows more)"),
                None => failed!("stream {}: it is not there after {wait:?}; --wait allows more", args.key),
            });
        }
    }
    Ok(Some(subscriber))
}

fn settings(args: &BridgeSendArgs) -> StreamSenderBuilder {
    let mut builder = StreamSender::builder(args.to.clone()).stall(args.link.stall).patience(args.patience);
    if args.strict {
        builder = builder.strict();
    }
    if args.on_demand {
        builder = builder.on_demand();
    }
    if let Some(window) = args.window {
        builder = builder.window(window.into());
    }
    if let Some(frames) = args.frames {
        builder = builder.frames(frames);
    }
    builder
}

/// What has happened so far.
struct Sending<'a> {
    args: &'a BridgeSendArgs,
    console: &'a Console,
    start: Instant,
    legs: Legs,
    round_trip: Durations,
    teller: Teller,
    left_out: u64,
    refused: u64,
    /// Frames that could not be read.
    unread: u64,
    /// Why the last frame was refused, as long as it is told once.
    why_not: Option<String>,
    /// It was said that the receiver is not there.
    is_missing: bool,
    /// A connection was lost, and no frame has arrived since.
    is_flapping: bool,
    has_connected: bool,
    /// A publisher was lost, and no other one has come.
    is_lost: bool,
    /// How the stream ended.
    stream_end: Option<Error>,
    /// The receiver does not want the stream.
    unwanted: Option<String>,
}

impl<'a> Sending<'a> {
    fn new(args: &'a BridgeSendArgs, console: &'a Console) -> Self {
        Self {
            args,
            console,
            start: Instant::now(),
            legs: Legs::new(),
            round_trip: Durations::new(),
            teller: Teller::new(Direction::Send, args.to.to_string()),
            left_out: 0,
            refused: 0,
            unread: 0,
            why_not: None,
            is_missing: false,
            is_flapping: false,
            has_connected: false,
            is_lost: false,
            stream_end: None,
            unwanted: None,
        }
    }

    /// Sends until it is over.
    fn serve<B: View>(
        &mut self,
        sender: &mut StreamSender<B>,
        run_dir: Option<&Path>,
        signals: &Signals,
    ) -> Result<(), Failure> {
        let mut line = output::Line::new(self.console);
        // How long what is on its way may take: a signal is heard, and a second one, after which it may take no time.
        let mut patience = None;
        loop {
            let is_finished = sender.courier().is_finished();
            let now = Instant::now();
            line.show_with(now, || self.report(sender, None).rows());
            let told = (sender.courier().is_connected(), self.dropped(sender));
            self.teller.tell(now, &self.args.key, run_dir, told);
            let wait = if is_finished { Duration::ZERO } else { REFRESH };
            match sender.next_event(Some(wait)).map_err(loop_failed)? {
                Some(event) => self.hear(event),
                None if is_finished => return Ok(()),
                None => self.say_trouble(sender),
            }
            let wanted = match signals.raised_again() {
                true => Some(Duration::ZERO),
                false => signals.raised().then_some(self.args.patience),
            };
            if let Some(wanted) = wanted.filter(|wanted| patience != Some(*wanted)) {
                patience = Some(wanted);
                sender.close(wanted).map_err(loop_failed)?;
            }
        }
    }

    fn hear(&mut self, event: CourierEvent) {
        let BridgeSendArgs { key, to, .. } = self.args;
        let say = |text: &str| self.console.say(&format!("cuframes: stream {key}: {text}"));
        match event {
            CourierEvent::Link(SenderEvent::Connected) => {
                if (self.is_missing || self.has_connected) && !self.is_flapping {
                    say(&format!("connected to {to}"));
                }
                (self.is_missing, self.has_connected) = (false, true);
            }
            CourierEvent::Link(SenderEvent::Lost { fault }) => {
                let why = fault.map(|fault| format!(": {fault}")).unwrap_or_default();
                // Whoever takes a connection and ends it again and again is told of once.
                if !self.is_flapping {
                    say(&format!("the connection to {to} is lost{why}; it is made again"));
                }
                self.is_flapping = true;
                // What can't be reached now was told.
                self.is_missing = true;
            }
            CourierEvent::Link(SenderEvent::Done { fate, info, round_trip, .. }) => {
                self.done(fate, &info, round_trip);
            }
            CourierEvent::Link(SenderEvent::Refused(text)) => self.unwanted = Some(text),
            CourierEvent::Stream(StreamEvent::Lost(error)) => {
                self.is_lost = true;
                self.console.say(&format!("cuframes: {error}; waiting for the next publisher"));
            }
            CourierEvent::Stream(StreamEvent::Attached { meta, .. }) if self.is_lost => {
                self.is_lost = false;
                let FrameMeta { format, width, height, .. } = meta;
                say(&format!("attached to a publisher again: {format} {width}x{height}"));
            }
            CourierEvent::Unread(error) => {
                if self.unread == 0 && !matches!(error, Error::Lost { .. }) {
                    self.console.say(&format!("cuframes: {error}; the frame is left out"));
                }
                self.unread += 1;
            }
            CourierEvent::Ended(error) => self.stream_end = Some(error),
            _ => {}
        }
    }

    /// The receiver has answered about a frame.
    fn done(&mut self, fate: Fate, info: &FrameInfo, round_trip: Duration) {
        if self.is_flapping {
            self.is_flapping = false;
            self.say(&format!("connected to {}", self.args.to));
        }
        match fate {
            Fate::Published(far) => {
                let (wire_ns, publish_ns) = (far.wire_ns, far.publish_ns);
                let times = Times { before_ns: info.before_ns, wire_ns, publish_ns };
                self.legs.record(times);
                self.teller.frame(times);
                self.round_trip.record(u64::try_from(round_trip.as_nanos()).unwrap_or(u64::MAX));
                self.why_not = None;
            }
            Fate::Skipped(why) => {
                self.left_out += 1;
                // The newest are wanted, not all.
                if self.args.strict {
                    self.say_why("left out", info.seq, why);
                }
            }
            Fate::Refused(why) => {
                self.refused += 1;
                self.say_why("refused", info.seq, why);
            }
            _ => {}
        }
    }

    /// Says each reason once.
    fn say_why(&mut self, what: &str, seq: u64, why: String) {
        if self.why_not.as_ref() != Some(&why) {
            self.say(&format!("{} {what} frame {seq}: {why}", self.args.to));
            self.why_not = Some(why);
        }
    }

    fn say(&self, text: &str) {
        self.console.say(&format!("cuframes: stream {}: {text}", self.args.key));
    }

    /// Says once that the receiver can't be reached.
    fn say_trouble<B: View>(&mut self, sender: &StreamSender<B>) {
        if !self.is_missing
            && let Some((endpoint, error)) = sender.courier().driver().trouble()
        {
            self.is_missing = true;
            self.console.say(&format!(
                "cuframes: stream {}: can't reach {endpoint}: {error}; start cuframes bridge recv there, it is tried again",
                self.args.key
            ));
        }
    }

    fn dropped<B: View>(&self, sender: &StreamSender<B>) -> u64 {
        sender.courier().lost() + self.unread
    }

    fn end(&self, signals: &Signals) -> End {
        match &self.stream_end {
            _ if self.unwanted.is_some() => End::Failure,
            Some(error) if is_end(error) => End::Stream,
            Some(_) => End::Failure,
            None if signals.raised() => End::Signal,
            None => End::Frames,
        }
    }

    fn report<B: View>(&self, sender: &StreamSender<B>, end: Option<End>) -> Report<'a> {
        let SenderStats { delivered, bytes, given_up, resent, answered, lost_connections, .. } =
            sender.stats();
        let elapsed = self.start.elapsed();
        Report {
            key: self.args.key.as_str(),
            to: self.args.to.to_string(),
            strict: self.args.strict,
            sent: sender.courier().taken(),
            arrived: delivered,
            dropped: self.dropped(sender),
            left_out: self.left_out,
            refused: self.refused,
            given_up,
            resent,
            fetched: answered,
            bytes,
            lost_connections,
            spent: self.legs.report(),
            round_trip_ns: self.round_trip.report(),
            cpu_ns_per_frame: end.and_then(|_| cpu_per_frame(delivered + answered)),
            fps: if end.is_some() { fps(delivered, elapsed) } else { self.teller.fps() },
            seconds: elapsed.as_secs_f64(),
            end,
        }
    }

    /// Whether that was what was asked for.
    fn verdict(self, report: &Report<'_>) -> Result<(), Failure> {
        let BridgeSendArgs { key, to, strict, .. } = self.args;
        let &Report { sent, left_out, refused, given_up, end, .. } = report;
        if let Some(text) = self.unwanted {
            return Err(failed!(
                "stream {key}: {to} does not want it: {text}; change that there, or send it elsewhere"
            ));
        }
        if let Some(error) = self.stream_end.filter(|error| !is_end(error)) {
            return Err(failed!("{error}"));
        }
        if refused > 0 {
            return Err(failed!(
                "stream {key}: {refused} of {} could not be published at {to}; the lines above say why",
                Count(sent, "frame")
            ));
        }
        if !self.has_connected && end != Some(End::Signal) {
            return Err(failed!(
                "stream {key}: {to} could not be reached until the end; start cuframes bridge recv there first"
            ));
        }
        match left_out + given_up {
            missing if *strict && missing > 0 => Err(failed!(
                "stream {key}: {missing} of {} did not arrive at {to}: {left_out} were left out there, {given_up} given up here; a larger \
                 --ring there, and more --patience here, may help",
                Count(sent, "frame")
            )),
            _ => Ok(()),
        }
    }
}
