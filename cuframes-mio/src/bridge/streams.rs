//! [`Streams`]: the streams of other hosts that are published here.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

use cuframes_bridge::stream::{Fate, FrameInfo, Greeting};
use cuframes_core::ring::ClaimAsError;
use cuframes_core::wire::ShutdownReason;
use cuframes_core::{Instant, Key, Policy, RingSize, Timeouts};

use super::errand::Errand;
use super::event::{Events, IntakeEvent};
use super::numbers::Numbers;
use super::station::Station;
use crate::error::Error;
use crate::producer::mapped_bytes;
use crate::publisher::Publisher;

/// How streams are published here.
#[derive(Clone, Debug)]
pub(super) struct Terms {
    /// The only stream that is wanted.
    pub(super) key: Option<Key>,
    /// What comes before a stream's name here.
    pub(super) prefix: String,
    /// Nothing is published: frames are asked for.
    pub(super) on_demand: bool,
    /// How many frames are published, of all streams together.
    pub(super) frames: u64,
    pub(super) ring_size: Option<RingSize>,
    pub(super) policy: Option<Policy>,
    pub(super) timeouts: Timeouts,
    pub(super) run_dir: Option<PathBuf>,
    /// Bytes of shared memory for all streams.
    pub(super) memory: u64,
    /// How long a stream without a sender is kept.
    pub(super) linger: Duration,
    /// How many streams there are at a time: as many as senders.
    pub(super) streams: usize,
}

/// The streams that are published here, under their names here. Making and ending them takes its time, so it is done in threads:
/// meanwhile the others go on.
#[derive(Debug)]
pub(super) struct Streams {
    terms: Terms,
    berths: HashMap<Key, Berth>,
    /// What was published under a name before.
    pasts: HashMap<Key, Past>,
    /// Frames that were published.
    published: u64,
    /// Streams that end, with their bytes.
    endings: Vec<(Key, Errand<()>, u64)>,
    /// Bytes of shared memory that are in use.
    used: u64,
    pub(super) events: Events<IntakeEvent>,
}

impl Streams {
    pub(super) fn new(terms: Terms) -> Self {
        Self {
            terms,
            berths: HashMap::new(),
            pasts: HashMap::new(),
            published: 0,
            endings: Vec::new(),
            used: 0,
            events: Events::new(),
        }
    }

    /// Whether a stream of this name there is wanted.
    pub(super) fn wants(&self, key: &Key) -> bool {
        self.terms.key.as_ref().is_none_or(|wanted| wanted == key)
    }

    /// What a stream of another host is called here.
    pub(super) fn name(&self, key: &Key) -> Result<Key, String> {
        let name = format!("{}{key}", self.terms.prefix);
        name.parse().map_err(|error| format!("stream {key} can't be called {name} here: {error}"))
    }

    /// A stream has a sender, by its name there.
    pub(super) fn joined(&mut self, key: &Key) {
        let Ok(name) = self.name(key) else { return };
        if let Some(alone) = self.berths.get_mut(&name).and_then(Berth::alone_mut) {
            *alone = None;
        }
        if let Some(past) = self.pasts.get_mut(&name) {
            past.alone = None;
        }
    }

    /// The sender of a stream is gone.
    pub(super) fn left(&mut self, now: Instant, key: &Key) {
        let Ok(name) = self.name(key) else { return };
        match self.berths.get_mut(&name) {
            Some(berth) => {
                if let Some(alone) = berth.alone_mut() {
                    *alone = Some(now);
                }
            }
            // It ends for the next publisher of its sender, who may come back.
            None if self.endings.iter().any(|(ending, ..)| *ending == name) => {
                if let Some(past) = self.pasts.get_mut(&name) {
                    past.alone = Some(now);
                }
            }
            None => _ = self.pasts.remove(&name),
        }
    }

    /// A frame was published.
    pub(super) const fn count(&mut self) {
        self.published = self.published.saturating_add(1);
    }

    /// Whether as many frames are published as there are to be.
    pub(super) const fn is_complete(&self) -> bool {
        self.published >= self.terms.frames
    }

    /// Whether there is to be one more than those that are published, and being received.
    fn has_frames_left(&self) -> bool {
        let coming = self.berths.values().filter(|berth| matches!(berth, Berth::Away)).count();
        let coming = u64::try_from(coming).unwrap_or(u64::MAX);
        self.published.saturating_add(coming) < self.terms.frames
    }

    /// Puts a stream back that was away; it is without a sender since then.
    pub(super) fn put(&mut self, station: Box<Station>, alone: Option<Instant>) {
        self.berths.insert(station.key.clone(), Berth::Here(station, alone));
    }

    /// Where a frame is to go.
    pub(super) fn decide(&mut self, greeting: &Greeting, info: &FrameInfo) -> Decision {
        if self.terms.on_demand {
            return Decision::Skip(Fate::Skipped("frames are asked for here".into()));
        }
        let ring_size = self.terms.ring_size.unwrap_or(greeting.ring_size);
        let key = match self.name(&greeting.key) {
            Ok(key) => key,
            Err(why) => return Decision::Skip(Fate::Refused(why)),
        };
        // What is sent again may be of a publisher before this one.
        if let Some(fate) = self.pasts.get(&key).and_then(|past| past.fate(info)) {
            return Decision::Skip(fate);
        }
        if self.endings.iter().any(|(ending, ..)| *ending == key) {
            return Decision::Wait;
        }
        if self.berths.get(&key).is_some_and(Berth::is_made)
            && let Err(why) = self.opened(&key)
        {
            return Decision::Skip(Fate::Refused(why));
        }
        let may_be = self.berths.contains_key(&key) || self.has_frames_left() && self.has_room();
        if !may_be {
            return Decision::Wait;
        }
        match self.berths.get(&key) {
            Some(Berth::Away | Berth::Opening(_)) => return Decision::Wait,
            Some(Berth::Here(station, _)) if !station.is_of(info) => {
                if !self.has_frames_left() {
                    return Decision::Wait;
                }
                if station.epoch != info.epoch {
                    let numbers = station.numbers.clone();
                    self.pasts.entry(key.clone()).or_default().remember(station.epoch, numbers);
                }
                self.end(&key, ShutdownReason::UPGRADE);
                return Decision::Wait;
            }
            // One that is published already needs no slot.
            Some(Berth::Here(station, _)) if info.seq <= station.numbers.newest() => {
                return Decision::Skip(station.numbers.fate(info.seq));
            }
            _ if !self.has_frames_left() => return Decision::Wait,
            Some(Berth::Here(..)) => {}
            None => {
                let opened = self.open(key, info, ring_size);
                return opened.map_or_else(|why| Decision::Skip(Fate::Refused(why)), |()| Decision::Wait);
            }
        }
        let Some(Berth::Here(mut station, alone)) = self.berths.remove(&key) else { return Decision::Wait };
        match station.claim(info) {
            Ok(()) => {
                self.berths.insert(key, Berth::Away);
                Decision::Receive(Place::Slot(station))
            }
            Err(error) => {
                let decision = match error {
                    ClaimAsError::Stalled(_) if station.waits => Decision::Wait,
                    error => {
                        station.numbers.leave_out(info.seq);
                        Decision::Skip(Fate::Skipped(error.to_string()))
                    }
                };
                self.put(station, alone);
                decision
            }
        }
    }

    /// Whether a frame of so many bytes may be kept in memory; as what a slice is long.
    pub(super) fn room_for(&self, bytes: u64) -> Result<usize, String> {
        let len = usize::try_from(bytes).ok().filter(|_| bytes <= self.terms.memory);
        len.ok_or_else(|| self.too_large(bytes))
    }

    /// Streams that have ended are gone, and those that were made for somebody who is gone are here.
    pub(super) fn reap(&mut self) {
        let used = &mut self.used;
        self.endings.retain(|(_, ending, bytes)| {
            let is_over = ending.is_over();
            if is_over {
                *used -= bytes;
            }
            !is_over
        });
        let forsaken = self.berths.iter().filter(|(_, berth)| berth.is_forsaken() && berth.is_made());
        for key in forsaken.map(|(key, _)| key.clone()).collect::<Vec<_>>() {
            if self.opened(&key).is_err() {
                self.pasts.remove(&key);
            }
        }
    }

    /// Whether there are any that are being made for somebody who is gone.
    pub(super) fn has_forsaken(&self) -> bool {
        self.berths.values().any(Berth::is_forsaken)
    }

    /// Ends those that have been without a sender for too long.
    pub(super) fn handle_timeout(&mut self, now: Instant) {
        let linger = self.terms.linger;
        let is_due = |berth: &Berth| matches!(berth, Berth::Here(_, Some(since)) if *since + linger <= now);
        let due = self.berths.iter().filter(|(_, berth)| is_due(berth)).map(|(key, _)| key.clone());
        for key in due.collect::<Vec<_>>() {
            self.end(&key, ShutdownReason::NORMAL);
            self.pasts.remove(&key);
        }
        self.pasts.retain(|_, past| past.alone.is_none_or(|since| since + linger > now));
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let alone = self.berths.values().filter_map(|berth| match berth {
            Berth::Here(_, Some(since)) => Some(*since),
            _ => None,
        });
        let pasts = self.pasts.values().filter_map(|past| past.alone);
        alone.chain(pasts).min().map(|since| since + self.terms.linger)
    }

    /// Ends all, and waits for that.
    pub(super) fn end_all(&mut self) {
        for key in self.berths.keys().cloned().collect::<Vec<_>>() {
            // What could not be made need not be ended.
            let _ = self.opened(&key);
            self.end(&key, ShutdownReason::NORMAL);
        }
        self.pasts.clear();
        for (_, ending, bytes) in self.endings.drain(..) {
            let _ = ending.wait();
            self.used -= bytes;
        }
    }

    /// Whether there may be one more. Otherwise the one that has been without a sender for longest makes room, as one of them is:
    /// each stream has one sender at most.
    fn has_room(&mut self) -> bool {
        if self.berths.len() + self.endings.len() < self.terms.streams {
            return true;
        }
        if self.endings.is_empty() {
            let alone = self.berths.iter().filter_map(|(key, berth)| match berth {
                Berth::Here(_, Some(since)) => Some((*since, key)),
                _ => None,
            });
            if let Some(key) = alone.min_by_key(|(since, _)| *since).map(|(_, key)| key.clone()) {
                self.end(&key, ShutdownReason::NORMAL);
                self.pasts.remove(&key);
            }
        }
        false
    }

    /// Begins to make the memory of a stream.
    fn open(&mut self, key: Key, info: &FrameInfo, ring_size: RingSize) -> Result<(), String> {
        let bytes = mapped_bytes(&info.meta, ring_size);
        if bytes > self.terms.memory.saturating_sub(self.used) {
            return Err(self.too_large(bytes));
        }
        let mut builder =
            Publisher::builder(key.clone(), info.meta).ring_size(ring_size).timeouts(self.terms.timeouts);
        if let Some(run_dir) = &self.terms.run_dir {
            builder = builder.run_dir(run_dir);
        }
        let (policy, info) = (self.terms.policy.unwrap_or(info.policy), *info);
        let work = Errand::start("cuframes-open", move || Station::open(builder, policy, &info, bytes));
        let work = work.map_err(|error| format!("no thread can be started for it: {error}"))?;
        self.used += bytes;
        self.berths.insert(key, Berth::Opening(Box::new(Opening { work, info, bytes, alone: None })));
        Ok(())
    }

    /// A stream whose memory was made is published; waits for that.
    fn opened(&mut self, key: &Key) -> Result<(), String> {
        let opening = match self.berths.remove(key) {
            Some(Berth::Opening(opening)) => opening,
            Some(other) => {
                self.berths.insert(key.clone(), other);
                return Ok(());
            }
            None => return Ok(()),
        };
        let Opening { work, info, bytes, alone } = *opening;
        match work.wait() {
            Some(Ok(station)) => {
                self.events.push(IntakeEvent::Published { key: key.clone(), info });
                self.put(station, alone);
                Ok(())
            }
            failed => {
                self.used -= bytes;
                let why = failed.and_then(Result::err).map(|error| error.to_string());
                Err(why.unwrap_or_else(|| format!("stream {key}: making its memory has failed")))
            }
        }
    }

    /// Ends a stream that is here.
    fn end(&mut self, key: &Key, reason: ShutdownReason) {
        match self.berths.remove(key) {
            Some(Berth::Here(station, _)) => {
                // Without a thread it has ended when this returns.
                let bytes = station.bytes;
                match station.end(reason) {
                    Ok(ending) => self.endings.push((key.clone(), ending, bytes)),
                    Err(_) => self.used -= bytes,
                }
                self.events.push(IntakeEvent::Ended { key: key.clone() });
            }
            Some(other) => _ = self.berths.insert(key.clone(), other),
            None => {}
        }
    }

    fn too_large(&self, bytes: u64) -> String {
        let Self { terms: Terms { memory, .. }, used, .. } = self;
        format!(
            "it needs {bytes} bytes of memory; of {memory} that may be used {} are left",
            memory.saturating_sub(*used)
        )
    }
}

/// Where a stream is.
#[derive(Debug)]
enum Berth {
    /// Its memory is being made.
    Opening(Box<Opening>),
    /// Here; without a sender since then.
    Here(Box<Station>, Option<Instant>),
    /// A frame of it is being received.
    Away,
}

#[derive(Debug)]
struct Opening {
    work: Errand<Result<Box<Station>, Error>>,
    /// Its first frame.
    info: FrameInfo,
    bytes: u64,
    /// Since when it is without a sender.
    alone: Option<Instant>,
}

impl Berth {
    /// Since when it is without a sender.
    const fn alone_mut(&mut self) -> Option<&mut Option<Instant>> {
        match self {
            Self::Opening(opening) => Some(&mut opening.alone),
            Self::Here(_, alone) => Some(alone),
            Self::Away => None,
        }
    }

    /// Whether its memory has been made, or could not be.
    fn is_made(&self) -> bool {
        matches!(self, Self::Opening(opening) if opening.work.is_over())
    }

    /// Its memory is being made, and nobody waits for that any more.
    fn is_forsaken(&self) -> bool {
        matches!(self, Self::Opening(opening) if opening.alone.is_some())
    }
}

/// Where the bytes of a frame go.
#[derive(Debug)]
pub(super) enum Place {
    Slot(Box<Station>),
    Bytes(Vec<u8>),
}

impl AsMut<[u8]> for Place {
    fn as_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Slot(station) => station.as_mut().as_mut(),
            Self::Bytes(bytes) => bytes,
        }
    }
}

/// What is to be done about a frame that is offered.
#[derive(Debug)]
pub(super) enum Decision {
    Receive(Place),
    Skip(Fate),
    Wait,
}

/// What was published under a name before.
#[derive(Debug, Default)]
struct Past {
    /// The publishers' random numbers, each with the numbers of its frames.
    publishers: Vec<(u64, Numbers)>,
    /// Since when it is without a sender, if there is no stream either.
    alone: Option<Instant>,
}

impl Past {
    /// A publisher is no more.
    fn remember(&mut self, epoch: u64, numbers: Numbers) {
        self.publishers.retain(|(other, _)| *other != epoch);
        if self.publishers.len() == MOST_PAST {
            self.publishers.remove(0);
        }
        self.publishers.push((epoch, numbers));
    }

    /// What became of a frame, if it is of one of them.
    fn fate(&self, info: &FrameInfo) -> Option<Fate> {
        let (_, numbers) = self.publishers.iter().find(|(epoch, _)| *epoch == info.epoch)?;
        numbers.is_past(info.seq).then(|| numbers.fate(info.seq))
    }
}

/// Publishers of one stream that are remembered: what a sender sends again can't be of more.
const MOST_PAST: usize = 16;
/// How often to look whether a slot is free, or an ended stream is gone.
pub(super) const LOOK_AGAIN: Duration = Duration::from_millis(1);
