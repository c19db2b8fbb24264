//! What publishers and subscribers measure, and the reports that they make of it.

use std::fmt;
use std::time::{Duration, Instant};

use cuframes_core::SubscriberBit;
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::output::Count;

/// Counts frames and times them.
#[derive(Debug)]
pub(crate) struct Stats {
    /// All that is counted; what is computed from the rest is not in it yet.
    counts: Received,
    latency: Durations,
    /// When the first and the last frame arrived.
    arrivals: Option<(Instant, Instant)>,
}

impl Stats {
    /// For a subscriber that checks the bytes of its frames, or does not.
    pub(crate) fn new(is_checked: bool) -> Self {
        let counts = Received { is_checked, ..Received::default() };
        Self { counts, latency: Durations::new(), arrivals: None }
    }

    /// A publisher gave us a bit; `reconnects` were before.
    pub(crate) fn joined(&mut self, bit: Option<SubscriberBit>, reconnects: u64) {
        self.counts.bit = bit.map(SubscriberBit::get);
        self.counts.reconnects = reconnects;
    }

    /// A frame arrived and was not overwritten while in use; `is_torn` if it holds another frame's bytes all the same.
    pub(crate) fn frame(&mut self, arrival: Arrival, is_torn: bool) {
        let Arrival { at, seq, lost, latency_ns } = arrival;
        self.counts.frames += 1;
        self.counts.dropped += lost;
        self.counts.torn += u64::from(is_torn);
        self.counts.first_seq.get_or_insert(seq);
        self.counts.last_seq = Some(seq);
        self.latency.record(latency_ns);
        self.arrivals = Some((self.arrivals.map_or(at, |(first, _)| first), at));
    }

    /// This many frames did not arrive, or were overwritten while in use.
    pub(crate) fn lost(&mut self, frames: u64) {
        self.counts.dropped = self.counts.dropped.saturating_add(frames);
    }

    pub(crate) fn frames(&self) -> u64 {
        self.counts.frames
    }

    /// The state of things.
    pub(crate) fn report(&self, end: Option<End>) -> Received {
        let latency_ns = self.latency.report();
        let fps = self.arrivals.map_or(0.0, |(first, last)| fps(self.counts.frames - 1, last - first));
        Received { latency_ns, fps, end, ..self.counts.clone() }
    }
}

/// How long something took, each time.
#[derive(Debug)]
pub(crate) struct Durations(Histogram<u64>);

impl Durations {
    pub(crate) fn new() -> Self {
        #[expect(
            clippy::expect_used,
            reason = "the bounds are constants that the crate's documentation allows"
        )]
        Self(Histogram::new_with_bounds(1, MAX_LATENCY_NS, 3).expect("valid bounds"))
    }

    pub(crate) fn record(&mut self, ns: u64) {
        self.0.saturating_record(ns);
    }

    /// `None` if there was nothing.
    pub(crate) fn report(&self) -> Option<Latency> {
        let percentile = |p| self.0.value_at_percentile(p);
        (!self.0.is_empty()).then(|| Latency {
            p50: percentile(50.0),
            p90: percentile(90.0),
            p99: percentile(99.0),
            p999: percentile(99.9),
            max: self.0.max(),
        })
    }
}

/// A frame as it arrives.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    pub(crate) at: Instant,
    pub(crate) seq: u64,
    /// Frames since the one before it that did not arrive.
    pub(crate) lost: u64,
    /// Since its commit.
    pub(crate) latency_ns: u64,
}

/// What `publish` has done.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
pub(crate) struct Published {
    /// Where the frames are: "host", "cuda" or "cuda-vmm".
    pub(crate) memory: String,
    pub(crate) frames: u64,
    pub(crate) fps: f64,
    pub(crate) subscribers: usize,
    /// `None` while it goes on.
    pub(crate) end: Option<End>,
}

impl fmt::Display for Published {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { frames, fps, subscribers, end, .. } = self;
        let (frames, subscribers) = (Count(*frames, "frame"), Count(*subscribers, "subscriber"));
        write!(f, "{frames}, {fps:.1} fps, {subscribers}")?;
        end.map_or(Ok(()), |end| write!(f, " ({end})"))
    }
}

/// What `subscribe` has got: the object that `--json` prints.
#[derive(Serialize, Deserialize, Clone, PartialEq, Default, Debug)]
pub(crate) struct Received {
    pub(crate) frames: u64,
    /// Numbers since the first frame received that did not arrive: frames that were overwritten, and numbers that the
    /// publisher passed over because their slot was leased.
    pub(crate) dropped: u64,
    /// Frames that `--check-seq` found to hold another frame's bytes.
    pub(crate) torn: u64,
    /// Whether it looked.
    #[serde(skip)]
    pub(crate) is_checked: bool,
    /// `None` before the first frame, as are the next two.
    pub(crate) first_seq: Option<u64>,
    pub(crate) last_seq: Option<u64>,
    pub(crate) latency_ns: Option<Latency>,
    /// The bit in the ring; `None` before the subscription.
    pub(crate) bit: Option<u8>,
    /// How often it went on with another publisher, or with the same one again. Each publisher counts its frames from 1.
    pub(crate) reconnects: u64,
    pub(crate) fps: f64,
    /// `None` while it goes on.
    pub(crate) end: Option<End>,
}

impl fmt::Display for Received {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { frames, fps, dropped, torn, latency_ns, reconnects, end, is_checked, .. } = self;
        write!(f, "{}, {fps:.1} fps, {dropped} dropped", Count(*frames, "frame"))?;
        if *is_checked {
            write!(f, ", {torn} torn")?;
        }
        if *reconnects > 0 {
            write!(f, ", {}", Count(*reconnects, "reconnect"))?;
        }
        if let Some(Latency { p50, p99, max, .. }) = latency_ns {
            write!(f, ", latency p50 {} p99 {} max {}", human(*p50), human(*p99), human(*max))?;
        }
        end.map_or(Ok(()), |end| write!(f, " ({end})"))
    }
}

/// A time in nanoseconds, to three digits; of `subscribe` that from commit to arrival.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Latency {
    pub(crate) p50: u64,
    pub(crate) p90: u64,
    pub(crate) p99: u64,
    pub(crate) p999: u64,
    pub(crate) max: u64,
}

/// Why a command came to its end.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum End {
    /// The stream, or the source of it, ended.
    Stream,
    /// As many frames as asked for.
    Frames,
    /// As long as asked for.
    Duration,
    /// All blocks have ended.
    Blocks,
    /// SIGINT or SIGTERM.
    Signal,
    /// Nobody reads the output any more.
    ClosedPipe,
    /// Something failed.
    Failure,
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Stream => "the stream ended",
            Self::Frames => "all frames asked for",
            Self::Duration => "as long as asked for",
            Self::Blocks => "all blocks have ended",
            Self::Signal => "stopped by a signal",
            Self::ClosedPipe => "the output was closed",
            Self::Failure => "failed",
        })
    }
}

/// `frames` in `time` as frames per second; 0 where no time has passed.
pub(crate) fn fps(frames: u64, time: Duration) -> f64 {
    #[expect(clippy::as_conversions, reason = "a rate for people: the 53 bits of an f64 are plenty")]
    let frames = frames as f64;
    if time.is_zero() { 0.0 } else { frames / time.as_secs_f64() }
}

/// A duration in the unit that makes it short: `85 ns`, `8.5 µs`, `12 ms`.
pub(crate) fn human(ns: u64) -> String {
    let (unit, name) = match ns {
        0..1_000 => return format!("{ns} ns"),
        1_000..1_000_000 => (1_000, "µs"),
        1_000_000..1_000_000_000 => (1_000_000, "ms"),
        _ => (1_000_000_000, "s"),
    };
    match (ns / unit, ns % unit * 10 / unit) {
        (whole @ 0..10, tenth) => format!("{whole}.{tenth} {name}"),
        (whole, _) => format!("{whole} {name}"),
    }
}

/// A longer latency counts as this one: an hour.
const MAX_LATENCY_NS: u64 = 3_600_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_counts_frames_gaps_and_the_rate_between_first_and_last() {
        let start = Instant::now();
        let mut stats = Stats::new(true);
        stats.joined(SubscriberBit::new(2), 1);
        for (i, (seq, lost)) in [(7, 0), (8, 0), (11, 2)].into_iter().enumerate() {
            let at = start + Duration::from_millis(100) * u32::try_from(i).unwrap();
            let latency_ns = 1_000_000 * (1 + u64::try_from(i).unwrap());
            stats.frame(Arrival { at, seq, lost, latency_ns }, seq == 8);
        }
        stats.lost(1);
        let report = stats.report(Some(End::Stream));
        assert_eq!((report.frames, report.dropped, report.torn), (3, 3, 1));
        assert_eq!((report.first_seq, report.last_seq, report.bit), (Some(7), Some(11), Some(2)));
        assert!(report.to_string().contains(", 3 dropped, 1 torn, 1 reconnect, latency"), "{report}");
        assert!((report.fps - 10.0).abs() < 1e-9);
        let latency = report.latency_ns.unwrap();
        assert!((1_990_000..2_010_000).contains(&latency.p50), "{latency:?}");
        assert!((2_990_000..3_010_000).contains(&latency.max), "{latency:?}");
    }

    #[test]
    fn without_a_frame_a_report_claims_nothing() {
        let json = serde_json::to_value(Stats::new(false).report(Some(End::Signal))).unwrap();
        assert_eq!(json["first_seq"], serde_json::Value::Null);
        assert_eq!(json["latency_ns"], serde_json::Value::Null);
        assert_eq!(json["end"], "signal");
    }

    #[test]
    fn durations_are_short() {
        let texts = [0, 999, 1_000, 8_540, 85_000, 999_999, 1_000_000, 12_345_678, 3_000_000_000].map(human);
        assert_eq!(
            texts,
            ["0 ns", "999 ns", "1.0 µs", "8.5 µs", "85 µs", "999 µs", "1.0 ms", "12 ms", "3.0 s"]
        );
    }
}
