//! `cuframes replay`: publishes a recording.

use std::fmt;
use std::fs::File;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use cuframes_mio::ServedPublisher;
use indicatif::HumanBytes;
use rustix::fs::{Mode, OFlags};
use serde::Serialize;

use crate::args::ReplayArgs;
use crate::console::Console;
use crate::error::{Failure, failed};
use crate::gauge::Gauge;
use crate::memory::{Canvas, Stamp};
use crate::output::{Count, Progress, REFRESH};
use crate::publish::{Plan, Show, publish, report, say_who_was_evicted, with_slot};
use crate::rate::Pacer;
use crate::recording::{Facts, Frame, Reader, Tail, unpack};
use crate::signals::Signals;
use crate::stats::{End, Published, fps};

/// Publishes until the recording ends, enough frames are out or a signal comes; subscribers are told why.
pub(crate) fn run(
    args: &ReplayArgs,
    run_dir: Option<&Path>,
    signals: &Signals,
    console: &Console,
) -> Result<(), Failure> {
    let mut progress = Progress::start(&args.report, console)?;
    let mut player = Player::open(args)?;
    if player.reader.is_cut() {
        let name = args.file.display();
        progress.say(&format!("cuframes: {name} is not complete: it is replayed up to its last whole frame"));
    }
    let ReplayArgs { key, memory, ring, wait, .. } = args;
    let plan = Plan { key, run_dir, memory, ring, wait };
    let meta = player.reader.stream().meta;
    let (replayed, outcome) = publish(&plan, meta, &mut player, &mut progress, signals)?;
    console.print(&progress.finish(key, &replayed, args.json)?, signals)?;
    outcome
}

/// Plays a recording.
struct Player<'a> {
    args: &'a ReplayArgs,
    reader: Reader<File>,
    /// What was read in the first round.
    contents: Contents,
    rounds: u64,
    /// Whether something was read in this round.
    is_under_way: bool,
    stored: Vec<u8>,
}

impl<'a> Player<'a> {
    fn open(args: &'a ReplayArgs) -> Result<Self, Failure> {
        let name = args.file.display();
        // Of a named pipe nobody waits for the writer.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let file = rustix::fs::open(&args.file, flags, Mode::empty()).map(File::from);
        let file =
            file.map_err(|error| failed!("can't open {name}: {}; check the path", io::Error::from(error)))?;
        if !file.metadata().is_ok_and(|metadata| metadata.is_file()) {
            return Err(failed!("can't replay {name}: it is not a regular file; copy it into one first"));
        }
        let mut reader = Reader::open(file).map_err(|problem| failed!("can't replay {name}: {problem}"))?;
        if reader.next().map_err(|error| unreadable(args, &error))?.is_err() {
            return Err(failed!("can't replay {name}: it has no whole frame; record it again"));
        }
        reader.rewind();
        let contents = Contents::default();
        Ok(Self { args, reader, contents, rounds: 1, is_under_way: false, stored: Vec::new() })
    }

    /// Reads the next frame, or answers `None` at the end.
    fn next(&mut self) -> Result<Option<Frame>, Failure> {
        let Self { args, reader, .. } = self;
        loop {
            match reader.next().map_err(|error| unreadable(args, &error))? {
                Ok(frame) => {
                    reader.read(&frame, &mut self.stored).map_err(|error| unreadable(args, &error))?;
                    self.is_under_way = true;
                    if self.rounds == 1 {
                        self.contents.add(&frame.facts);
                    }
                    return Ok(Some(frame));
                }
                Err(Tail::Damaged(position)) => {
                    return Err(failed!(
                        "{} is damaged at byte {position}, after {}, which are published; take it from a copy",
                        args.file.display(),
                        Count(self.contents.frames, "frame")
                    ));
                }
                // Somebody may have taken its frames away meanwhile.
                Err(Tail::Complete | Tail::Cut) if args.repeat && self.is_under_way => {
                    reader.rewind();
                    self.is_under_way = false;
                    self.rounds += 1;
                }
                Err(Tail::Complete | Tail::Cut) => return Ok(None),
            }
        }
    }

    fn report(&self, published: Published, bytes: u64, elapsed: Duration) -> Replayed {
        let Self { args, reader, contents: Contents { first, last, missing, .. }, rounds, .. } = self;
        let file = Some(reader.progress()).filter(|_| !args.repeat);
        let file = file.map(|(done, all)| Gauge::new(done.into(), all.into(), elapsed));
        let frames = args.frames.map(|all| Gauge::new(published.frames.into(), all.into(), elapsed));
        Replayed {
            recorded_key: reader.stream().title.clone(),
            first_seq: first.map(|facts| facts.seq),
            last_seq: last.map(|facts| facts.seq),
            missing: *missing,
            is_cut: reader.is_cut(),
            rounds: *rounds,
            bytes,
            gauge: [file, frames]
                .into_iter()
                .flatten()
                .reduce(Gauge::nearer)
                .filter(|_| published.end.is_none()),
            published,
        }
    }
}

impl Show for Player<'_> {
    type Report = Replayed;

    fn stream<B: Canvas>(
        &mut self,
        publisher: &mut ServedPublisher<B>,
        kept: &mut B::Kept,
        progress: &mut Progress<'_>,
        signals: &Signals,
    ) -> (Replayed, Result<(), Failure>) {
        let start = Instant::now();
        let mut counted = Counted { frames: 0, bytes: 0, last: start };
        let end = self.play(start, &mut counted, publisher, kept, progress, signals);
        let Counted { frames, bytes, last } = counted;
        let fps = fps(frames.saturating_sub(1), last - start);
        let reason = *end.as_ref().unwrap_or(&End::Failure);
        (self.report(report(publisher, frames, fps, Some(reason)), bytes, last - start), end.map(drop))
    }
}

/// What is out.
struct Counted {
    frames: u64,
    bytes: u64,
    /// When the last frame was published.
    last: Instant,
}

impl Player<'_> {
    /// Publishes one frame after the other, and counts them.
    fn play<B: Canvas>(
        &mut self,
        start: Instant,
        counted: &mut Counted,
        publisher: &mut ServedPublisher<B>,
        kept: &mut B::Kept,
        progress: &mut Progress<'_>,
        signals: &Signals,
    ) -> Result<End, Failure> {
        let Counted { frames, bytes, last } = counted;
        let mut clock = match self.args.fps {
            Some(rate) => Clock::Rate(Pacer::new(rate, start)),
            None => Clock::Stamps(None),
        };
        loop {
            if signals.raised() {
                return Ok(End::Signal);
            }
            if Some(*frames) == self.args.frames {
                return Ok(End::Frames);
            }
            // Read before a slot is taken: nobody can have a slot while it is being written.
            let Some(Frame { facts, .. }) = self.next()? else { return Ok(End::Stream) };
            let rounds = i64::try_from(self.rounds - 1).unwrap_or(i64::MAX);
            let pts_ns = facts.pts_ns.saturating_add(self.contents.period_ns().saturating_mul(rounds));
            // In slices: progress goes on.
            let mut now = Instant::now();
            let (since, delay) = (now, clock.delay(now, pts_ns));
            while let left = delay.saturating_sub(now - since)
                && !left.is_zero()
                && !signals.wait(left.min(REFRESH))
            {
                now = Instant::now();
                progress.show(now, *frames, |fps| {
                    self.report(report(publisher, *frames, fps, None), *bytes, now - start)
                })?;
            }
            if signals.raised() {
                return Ok(End::Signal);
            }
            let stamp = Stamp { pts_ns, written_bytes: facts.written_bytes };
            let (meta, stored) = (&self.reader.stream().meta, &self.stored);
            let published = with_slot(publisher, signals, |claim| {
                B::publish(claim, kept, Some(stamp), |frame| unpack(meta, stored, frame))
            });
            if published?.is_none() {
                return Ok(End::Signal);
            }
            *frames += 1;
            *bytes += u64::try_from(stored.len()).unwrap_or(0);
            *last = Instant::now();
            say_who_was_evicted(publisher, progress);
            progress.show(*last, *frames, |fps| {
                self.report(report(publisher, *frames, fps, None), *bytes, *last - start)
            })?;
        }
    }
}

/// What is in a recording, as far as it was read.
#[derive(Clone, Copy, Default, Debug)]
struct Contents {
    frames: u64,
    first: Option<Facts>,
    last: Option<Facts>,
    /// Numbers between the first and the last frame that are not there.
    missing: u64,
}

impl Contents {
    fn add(&mut self, facts: &Facts) {
        let expected = self.last.map_or(facts.seq, |last| last.seq.saturating_add(1));
        self.frames += 1;
        self.missing = self.missing.saturating_add(facts.seq.saturating_sub(expected));
        self.first.get_or_insert(*facts);
        self.last = Some(*facts);
    }

    /// From the first frame of one round to that of the next: the last frame lasts as long as the others on average.
    fn period_ns(&self) -> i64 {
        let (Some(first), Some(last)) = (self.first, self.last) else { return 0 };
        let span = last.pts_ns.saturating_sub(first.pts_ns);
        let gaps = i64::try_from(self.frames).unwrap_or(i64::MAX) - 1;
        span.saturating_add(span.checked_div(gaps).unwrap_or(DEFAULT_FRAME_NS)).max(0)
    }
}

/// Says how long to wait before each frame.
#[derive(Debug)]
enum Clock {
    /// At this rate.
    Rate(Pacer),
    /// As the time stamps say: one of them, and when it was due.
    Stamps(Option<(Instant, i64)>),
}

impl Clock {
    /// Time until a frame with this time stamp is due; the caller waits for it, then publishes.
    fn delay(&mut self, now: Instant, pts_ns: i64) -> Duration {
        match self {
            Self::Rate(pacer) => pacer.delay(now),
            Self::Stamps(known) => {
                let due = known.and_then(|(at, pts)| {
                    let after = u64::try_from(i128::from(pts_ns) - i128::from(pts)).ok()?;
                    at.checked_add(Duration::from_nanos(after)).filter(|due| *due + MAX_LATE >= now)
                });
                // A stream that was held up, or whose time runs back, goes on from here: it doesn't rush to catch up.
                let due = due.unwrap_or(now);
                *known = Some((due, pts_ns));
                due.saturating_duration_since(now)
            }
        }
    }
}

/// What `replay` has published: the object that `--json` prints.
#[derive(Serialize, Clone, PartialEq, Debug)]
struct Replayed {
    /// The key that the stream had when it was recorded.
    recorded_key: String,
    /// Numbers that the first and the last of the frames had in the stream that was recorded.
    first_seq: Option<u64>,
    last_seq: Option<u64>,
    /// Numbers between these that are not in the file: frames that were dropped when it was recorded.
    missing: u64,
    /// The file was not completed, or its end was cut off.
    is_cut: bool,
    /// How often it was begun.
    rounds: u64,
    /// Bytes of pictures that were published.
    bytes: u64,
    #[serde(flatten)]
    published: Published,
    /// How far it is, where that is known.
    #[serde(skip)]
    gauge: Option<Gauge>,
}

impl fmt::Display for Replayed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { bytes, missing, gauge, published, .. } = self;
        write!(f, "{}, {}", Published { end: None, ..published.clone() }, HumanBytes(*bytes))?;
        if *missing > 0 {
            write!(f, ", {missing} missing in the recording")?;
        }
        gauge.map_or(Ok(()), |gauge| write!(f, " {gauge}"))?;
        published.end.map_or(Ok(()), |end| write!(f, " ({end})"))
    }
}

fn unreadable(args: &ReplayArgs, error: &io::Error) -> Failure {
    failed!(
        "can't read {}: {error}; check that it is a file, and the disk that it is on",
        args.file.display()
    )
}

/// What a frame may be late before the schedule starts anew.
const MAX_LATE: Duration = Duration::from_millis(200);
/// How long the only frame is shown.
const DEFAULT_FRAME_NS: i64 = 1_000_000_000 / 30;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_due_as_their_stamps_say_and_a_stall_moves_the_schedule() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut clock = Clock::Stamps(None);
        let mut delay = |now, pts_ms: i64| clock.delay(at(now), pts_ms.saturating_mul(1_000_000)).as_millis();
        assert_eq!(delay(0, -500), 0, "the first at once");
        assert_eq!(delay(0, -460), 40);
        assert_eq!(delay(70, -420), 10, "waits that end late don't add up");
        assert_eq!(delay(120, -415), 0, "35 ms late");
        assert_eq!(delay(120, -370), 10, "and on schedule again");
        assert_eq!(delay(5000, -330), 0, "a stall");
        assert_eq!(delay(5000, -290), 40, "a new schedule");
        assert_eq!(delay(5000, i64::MIN), 0, "time runs back");
        assert!(delay(5000, i64::MAX) > 1 << 40, "and far ahead");
    }
}
