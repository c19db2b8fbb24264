//! [`Model`]: what `top` and `exporter` know of the streams, from one look to the next.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use cuframes_core::Key;
use cuframes_core::shm::Snapshot;
use cuframes_core::shm::snapshot::SubscriberState;
use cuframes_mio::Sighting;
use serde::Serialize;

use crate::args::Sort;
use crate::hops::{self, Hop};
use crate::survey::{Facts, Look, age};

/// All streams, and what was seen of them before.
#[derive(Default)]
pub(crate) struct Model {
    past: BTreeMap<Key, Past>,
    pub(crate) streams: Vec<Stream>,
}

/// What is kept of a stream.
struct Past {
    look: Look,
    rates: VecDeque<f64>,
    lost: BTreeMap<Holder, Lost>,
}

/// A subscriber: a bit, and how often it was assigned.
type Holder = (u8, u64);

/// Frames that a subscriber lost.
#[derive(Clone, Copy, Default)]
struct Lost {
    frames: u64,
    /// Those up to this number are counted.
    counted: u64,
}

/// One look, for programs.
#[derive(Serialize)]
pub(crate) struct Report<'a> {
    pub(crate) streams: Vec<&'a Stream>,
    /// Directories that could not be looked at.
    pub(crate) troubles: Vec<String>,
    /// Whether the exporter shows frames.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) has_pictures: Option<bool>,
}

/// A stream, as it is shown.
#[derive(Serialize)]
pub(crate) struct Stream {
    #[serde(flatten)]
    pub(crate) facts: Facts,
    /// Of the slowest subscriber.
    pub(crate) lag: u64,
    /// Of all subscribers.
    pub(crate) leases: usize,
    /// Slots that somebody holds.
    pub(crate) leased_slots: usize,
    pub(crate) lost: u64,
    pub(crate) latency_s: Option<f64>,
    pub(crate) subscribers_seen: Vec<Subscriber>,
    /// Its ways to other hosts and from them.
    pub(crate) hops: Vec<Hop>,
    /// Frames a second at the last looks, oldest first.
    #[serde(skip)]
    pub(crate) rates: Vec<f64>,
}

/// A subscriber, as it is shown.
#[derive(Serialize)]
pub(crate) struct Subscriber {
    pub(crate) bit: u8,
    pub(crate) name: String,
    pub(crate) pid: u64,
    /// `None` if it has acknowledged nothing; then nothing is known to be lost, either.
    pub(crate) lag: Option<u64>,
    pub(crate) leases: usize,
    pub(crate) lost: u64,
    pub(crate) latency_s: Option<f64>,
    pub(crate) is_asleep: bool,
}

impl Model {
    /// Takes in what was just seen.
    pub(crate) fn look(&mut self, at: Instant, sightings: Vec<Sighting>) {
        let mut before = std::mem::take(&mut self.past);
        let mut hops = hops::of(&sightings);
        self.streams.clear();
        for sighting in sightings {
            let key = sighting.key.clone();
            let past = before.remove(&key);
            let look = Look::new(past.as_ref().map(|past| &past.look), at, sighting);
            let facts = Facts::of(past.as_ref().map(|past| &past.look), &look);
            let (mut rates, earlier) = past.map(|past| (past.rates, past.lost)).unwrap_or_default();
            rates.extend(facts.fps);
            if rates.len() > REMEMBERED {
                rates.pop_front();
            }
            let (subscribers, lost) = match &look.sighting.snapshot {
                Ok(snapshot) => subscribers(snapshot, facts.ring_size.unwrap_or(0), &earlier),
                Err(_) => Default::default(),
            };
            self.streams.push(Stream {
                lag: subscribers.iter().filter_map(|subscriber| subscriber.lag).max().unwrap_or(0),
                leases: subscribers.iter().map(|subscriber| subscriber.leases).sum(),
                leased_slots: look.sighting.snapshot.as_ref().map_or(0, leased_slots),
                lost: lost.values().map(|lost| lost.frames).sum(),
                latency_s: subscribers.iter().filter_map(|subscriber| subscriber.latency_s).reduce(f64::max),
                subscribers_seen: subscribers,
                hops: hops.remove(&key).unwrap_or_default(),
                rates: rates.iter().copied().collect(),
                facts,
            });
            self.past.insert(key, Past { look, rates, lost });
        }
    }

    /// Those that a filter lets through, sorted.
    pub(crate) fn shown(&self, filter: &str, sort: Sort) -> Vec<&Stream> {
        let mut shown: Vec<_> =
            self.streams.iter().filter(|stream| stream.facts.key.as_str().contains(filter)).collect();
        // They are sorted by key before; the larger number is first.
        match sort {
            Sort::Key => {}
            Sort::Fps => {
                let fps = |stream: &Stream| stream.facts.fps.unwrap_or(0.0);
                shown.sort_by(|a, b| fps(b).total_cmp(&fps(a)));
            }
            Sort::Subscribers => shown.sort_by_key(|stream| std::cmp::Reverse(stream.facts.subscribers)),
            Sort::Lag => shown.sort_by_key(|stream| std::cmp::Reverse(stream.lag)),
            Sort::Lost => shown.sort_by_key(|stream| std::cmp::Reverse(stream.lost)),
        }
        shown
    }
}

/// The active subscribers, and what each has lost.
fn subscribers(
    snapshot: &Snapshot,
    ring_size: u64,
    earlier: &BTreeMap<Holder, Lost>,
) -> (Vec<Subscriber>, BTreeMap<Holder, Lost>) {
    let mut all = BTreeMap::new();
    let active = snapshot.subscribers().filter(SubscriberState::is_active);
    let shown = active.map(|subscriber| {
        let holder = (subscriber.bit, subscriber.term);
        let lag = snapshot.lag_of(&subscriber);
        // As long as it has acknowledged nothing it is as if we had not looked.
        let earlier = earlier.get(&holder).filter(|_| lag.is_some());
        let lost = Lost::after(earlier, subscriber.last_seen, snapshot.newest(), ring_size);
        all.insert(holder, lost);
        Subscriber {
            bit: subscriber.bit,
            pid: subscriber.pid,
            lag,
            leases: snapshot.leases_of(&subscriber),
            lost: lost.frames,
            latency_s: latency(snapshot, &subscriber).map(|latency| latency.as_secs_f64()),
            is_asleep: subscriber.is_parked,
            name: subscriber.name,
        }
    });
    (shown.collect(), all)
}

/// Slots that a subscriber that is there holds.
fn leased_slots(snapshot: &Snapshot) -> usize {
    snapshot.slots().filter(|slot| slot.leases & snapshot.active() != 0).count()
}

impl Lost {
    /// Frames that are not in the ring any more, and that the subscriber is not done with.
    fn after(earlier: Option<&Self>, last_seen: u64, newest: u64, ring_size: u64) -> Self {
        let overwritten = newest.saturating_sub(ring_size);
        match earlier {
            // What was before we looked is not our count.
            None => Self { frames: 0, counted: overwritten.max(last_seen) },
            Some(Self { frames, counted }) => {
                let done = last_seen.max(*counted);
                let lost = overwritten.saturating_sub(done);
                Self { frames: frames + lost, counted: done.max(overwritten) }
            }
        }
    }
}

/// How long it took from the time stamp of the last frame that a subscriber was done with until it said so; `None` where the
/// frame is not in the ring any more, or its stamp is of another clock.
fn latency(snapshot: &Snapshot, subscriber: &SubscriberState) -> Option<Duration> {
    let slot = snapshot.slots().find(|slot| slot.seq == Some(subscriber.last_seen))?;
    // It is told by a clock that ticks every few milliseconds.
    let done = i64::try_from(subscriber.last_ack_ns).ok()?.checked_add(TICK_NS)?;
    age(done, slot.pts_ns).filter(|latency| *latency < Duration::from_secs(3600))
}

/// Rates that are kept for each stream.
const REMEMBERED: usize = 60;
/// By how much a coarse clock is late at most.
const TICK_NS: i64 = 10_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_lost_once_when_they_are_overwritten_before_their_subscriber_was_done() {
        let first = Lost::after(None, 10, 30, 8);
        assert_eq!((first.frames, first.counted), (0, 22), "what was before is nobody's count");
        // It stands still: 22 to 32 are overwritten.
        let second = Lost::after(Some(&first), 10, 40, 8);
        assert_eq!((second.frames, second.counted), (10, 32));
        let again = Lost::after(Some(&second), 10, 40, 8);
        assert_eq!(again.frames, 10);
        // It takes the newest, and keeps up from then on.
        let third = Lost::after(Some(&again), 40, 41, 8);
        let fourth = Lost::after(Some(&third), 48, 50, 8);
        assert_eq!((third.frames, fourth.frames), (10, 10));
        // A publisher whose numbers begin anew is another stream.
        assert_eq!(Lost::after(Some(&fourth), 0, 1, 8).frames, 10);
    }
}
