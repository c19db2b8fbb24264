//! What the commands that look make of the streams of the machine.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use cuframes_core::Key;
use cuframes_core::shm::Snapshot;
use cuframes_mio::{Liveness, Observer, Sighting};
use serde::{Serialize, Serializer};

use crate::error::printable;

/// How a stream is.
#[derive(Serialize, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "lowercase")]
pub(crate) enum State {
    Live,
    Stalled,
    Stale,
    Foreign,
    Unknown,
}

impl State {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Stalled => "stalled",
            Self::Stale => "stale",
            Self::Foreign => "foreign",
            Self::Unknown => "unknown",
        }
    }
}

/// The facts about a stream that people ask for first.
#[derive(Serialize, Debug)]
pub(crate) struct Facts {
    #[serde(serialize_with = "text")]
    pub(crate) key: Key,
    pub(crate) state: State,
    /// Why there is no more to tell.
    pub(crate) problem: Option<String>,
    pub(crate) format: Option<String>,
    pub(crate) width: Option<u32>,
    pub(crate) height: Option<u32>,
    pub(crate) frame_bytes: Option<u64>,
    pub(crate) ring_size: Option<u64>,
    pub(crate) policy: Option<String>,
    pub(crate) backend: Option<String>,
    /// The number of the newest frame, 0 before the first. Numbers are left out where slots were leased.
    pub(crate) newest: Option<u64>,
    /// Frames a second between two looks; `None` after a single one.
    pub(crate) fps: Option<f64>,
    /// Since the time stamp of the newest frame, if that is of `CLOCK_MONOTONIC`, or since a look has found it new.
    pub(crate) last_frame_age_s: Option<f64>,
    pub(crate) subscribers: Option<u32>,
    /// In the publisher's pid namespace.
    pub(crate) publisher_pid: Option<u64>,
    pub(crate) publisher_name: Option<String>,
    /// The user who owns it.
    pub(crate) uid: Option<u32>,
    /// Since its region was made.
    pub(crate) age_s: Option<f64>,
    pub(crate) socket: Option<PathBuf>,
    pub(crate) region: PathBuf,
}

/// A look at a stream, and when it was.
pub(crate) struct Look {
    pub(crate) at: Instant,
    pub(crate) sighting: Sighting,
    /// When a look has found a frame last that was not there at the look before.
    found: Option<Instant>,
}

impl Look {
    pub(crate) fn new(earlier: Option<&Self>, at: Instant, sighting: Sighting) -> Self {
        let found = earlier.and_then(|earlier| {
            let (before, now) = numbers(&earlier.sighting, &sighting)?;
            if now > before { Some(at) } else { earlier.found }
        });
        Self { at, sighting, found }
    }
}

/// The newest frames at two looks; `None` if it is not the same stream. Another publisher's numbers begin anew.
fn numbers(earlier: &Sighting, later: &Sighting) -> Option<(u64, u64)> {
    let [before, now] = [earlier, later].map(|sighting| sighting.snapshot.as_ref().ok());
    let (before, now) = before.zip(now)?;
    let epoch = |snapshot: &Snapshot| snapshot.header().ok().map(|header| header.epoch);
    (epoch(before)? == epoch(now)?).then(|| (before.newest(), now.newest()))
}

impl Facts {
    /// Those of the later one of two looks; frames are counted between them.
    pub(crate) fn of(earlier: Option<&Look>, look: &Look) -> Self {
        let Sighting { key, socket, region, snapshot, publisher, owner, since, .. } = &look.sighting;
        let foreign = look.sighting.foreign();
        let header = snapshot.as_ref().ok().and_then(|snapshot| snapshot.header().ok());
        let (snapshot, error) = match snapshot {
            Ok(snapshot) => (Some(snapshot), None),
            Err(error) => (None, Some(error.to_string())),
        };
        let age = since.and_then(|since| SystemTime::now().duration_since(since).ok());
        let flow = header.and(snapshot).map(|snapshot| Flow::of(earlier, look, age, snapshot));
        let state = match (publisher, &flow) {
            _ if foreign.is_some() => State::Foreign,
            (Liveness::Dead, _) => State::Stale,
            (Liveness::Alive, Some(flow)) if flow.is_stalled => State::Stalled,
            (Liveness::Alive, Some(_)) => State::Live,
            (_, Some(flow)) if flow.fps.is_some_and(|fps| fps > 0.0) => State::Live,
            _ => State::Unknown,
        };
        let pid = header.map(|header| header.producer_pid).filter(|pid| *pid != 0);
        let secs = |duration: Duration| duration.as_secs_f64();
        Self {
            key: key.clone(),
            state,
            problem: foreign.or(error),
            format: header.map(|header| named(header.meta.format.name(), header.meta.format.0)),
            width: header.map(|header| header.meta.width),
            height: header.map(|header| header.meta.height),
            frame_bytes: header.map(|header| header.meta.frame_size_bytes),
            ring_size: header.map(|header| header.ring_size.get().into()),
            policy: header.map(|header| named(header.policy.name(), header.policy.0)),
            backend: header.map(|header| named(header.backend.name(), header.backend.0)),
            newest: snapshot.map(Snapshot::newest),
            fps: flow.as_ref().and_then(|flow| flow.fps),
            last_frame_age_s: flow.and_then(|flow| flow.age).map(secs),
            subscribers: snapshot.map(|snapshot| snapshot.active().count_ones()),
            publisher_pid: pid,
            publisher_name: pid.filter(|_| *publisher == Liveness::Alive).and_then(process_name),
            uid: *owner,
            age_s: age.map(secs),
            socket: socket.clone(),
            region: region.clone(),
        }
    }
}

/// How frames come.
struct Flow {
    fps: Option<f64>,
    age: Option<Duration>,
    is_stalled: bool,
}

impl Flow {
    /// Of a stream that is so old.
    fn of(earlier: Option<&Look>, look: &Look, stream: Option<Duration>, snapshot: &Snapshot) -> Self {
        let fps = earlier.and_then(|earlier| {
            let (before, now) = numbers(&earlier.sighting, &look.sighting)?;
            let elapsed = look.at.saturating_duration_since(earlier.at);
            Some(crate::stats::fps(now.saturating_sub(before), elapsed) * share_used(snapshot))
        });
        // Stamps of a recording, or of another host, say nothing about today.
        let found = look.found.map(|found| look.at.saturating_duration_since(found));
        let age = [age_of_newest(snapshot), found].into_iter().flatten().min();
        let has_flowed = fps.is_some_and(|fps| fps > 0.0);
        let patience = SOON.max(interval(snapshot).unwrap_or_default().saturating_mul(5));
        // A source may never begin.
        let is_old = |age: Duration| age > patience;
        let waits = if snapshot.newest() == 0 { stream.is_some_and(is_old) } else { age.is_none_or(is_old) };
        Self { fps, age, is_stalled: !has_flowed && waits }
    }
}

/// How long ago the newest frame was stamped; `None` if its stamp is not of `CLOCK_MONOTONIC`.
fn age_of_newest(snapshot: &Snapshot) -> Option<Duration> {
    let now = cuframes_mio::now().as_nanos();
    age(now, snapshot.newest_slot()?.pts_ns)
}

/// How long before `now` something was; `None` if that can't be.
pub(crate) fn age(now_ns: i64, then_ns: i64) -> Option<Duration> {
    if then_ns <= 0 {
        return None;
    }
    u64::try_from(now_ns.checked_sub(then_ns)?).ok().map(Duration::from_nanos)
}

/// Which share of the numbers have frames: a publisher leaves one out for each slot that is leased when it comes to it.
fn share_used(snapshot: &Snapshot) -> f64 {
    let numbers = || snapshot.slots().filter_map(|slot| slot.seq);
    let span = numbers().max().zip(numbers().min()).map_or(0, |(newest, oldest)| newest - oldest);
    let frames = u32::try_from(numbers().count()).unwrap_or(u32::MAX);
    match u32::try_from(span) {
        Ok(span) if span != 0 => f64::from(frames.saturating_sub(1)) / f64::from(span),
        _ => 1.0,
    }
}

/// The mean time between the frames that are in the ring, by their stamps.
fn interval(snapshot: &Snapshot) -> Option<Duration> {
    let stamps = || snapshot.slots().filter(|slot| slot.seq.is_some());
    let (oldest, newest) = (stamps().min_by_key(|slot| slot.seq)?, stamps().max_by_key(|slot| slot.seq)?);
    let frames = newest.seq?.checked_sub(oldest.seq?).filter(|frames| *frames != 0)?;
    let time = u64::try_from(newest.pts_ns.checked_sub(oldest.pts_ns)?).ok()?;
    Some(Duration::from_nanos(time / frames))
}

/// The directories that were looked at, in words.
pub(crate) fn run_dirs(observer: &Observer) -> String {
    let dirs: Vec<_> = observer.run_dirs().map(|dir| dir.display().to_string()).collect();
    dirs.join(", ")
}

/// The name of a number, or the number.
pub(crate) fn named(name: Option<&str>, number: impl Into<u64>) -> String {
    name.map_or_else(|| number.into().to_string(), ToString::to_string)
}

/// The name of a process that can be seen. It is printable: it goes to terminals.
pub(crate) fn process_name(pid: u64) -> Option<String> {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    Some(printable(name.trim_end()))
}

pub(crate) fn text<S: Serializer>(value: &impl ToString, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&value.to_string())
}

/// How long no frame may come before a stream counts as stalled.
const SOON: Duration = Duration::from_secs(1);
