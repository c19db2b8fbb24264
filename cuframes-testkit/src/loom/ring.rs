//! [`LoomRing`]: a ring of the model checker's words, with both its sides and their eventfds.

use std::array;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use ::loom::sync::{Condvar, Mutex};
use cuframes_core::ring::{
    Claim, Frame, FrameLost, Outside, RingReader, RingWriter, Seat, Seq, Standing, Testimony,
};
use cuframes_core::roster::Roster;
use cuframes_core::shm::{Region, Word};
use cuframes_core::wire::subscribe::{InitialSeq, Subscribed};
use cuframes_core::{Features, Instant, Policy, RingSize, SubscriberBit, SubscriberMode};

use super::word::{self, Field, LoomRegion, LoomWord, Weakening};
use crate::heap::{PID, request};

/// The publisher of a ring, and the ring.
#[derive(Debug)]
pub struct LoomRing<K: Weakening> {
    /// Who is subscribed.
    pub roster: Roster<Arc<LoomRegion<K>>>,
    /// The writer.
    pub writer: LoomWriter<K>,
    /// What subscribers share with it.
    pub place: Arc<Place<K>>,
}

/// The shared memory, and a bell for everybody who may sleep.
#[derive(Debug)]
pub struct Place<K: Weakening> {
    /// The region.
    pub region: Arc<LoomRegion<K>>,
    /// What only the publisher writes, if there is such a thing.
    witness: Option<Arc<LoomRegion<K>>>,
    /// The frames.
    pub frames: Frames<K>,
    /// Wakes the publisher.
    pub publisher_bell: Arc<Bell>,
    /// Wake subscribers 1 and 2.
    bells: [Bell; 2],
    ring_size: RingSize,
}

/// A writer that fills the frames it publishes and wakes whom it must.
#[derive(Debug)]
pub struct LoomWriter<K: Weakening> {
    /// The shipped writer.
    pub ring: RingWriter<Arc<LoomRegion<K>>>,
    place: Arc<Place<K>>,
}

/// A reader that reads the frames it is given.
#[derive(Debug)]
pub struct LoomReader<K: Weakening> {
    /// The shipped reader.
    pub ring: RingReader<Arc<LoomRegion<K>>, Driver<K>>,
    place: Arc<Place<K>>,
}

/// What a reader saw of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Seen {
    /// Its number.
    pub seq: u64,
    /// Its time stamp, which is its number.
    pub pts_ns: i64,
    /// Numbers that were lost before it.
    pub lost: u64,
    /// Its content: twice its number.
    pub halves: [u64; 2],
    /// What releasing it said.
    pub released: Result<(), FrameLost>,
}

impl<K: Weakening> LoomRing<K> {
    /// A ring of `slots` slots; the words of the fields in `modelled` are the checker's.
    ///
    /// # Panics
    /// If `slots` is not 1..=16.
    #[must_use]
    pub fn new(slots: u64, policy: Policy, modelled: &[Field]) -> Self {
        Self::build(slots, policy, modelled, None)
    }

    /// As [`new`](Self::new), with a witness whose words of the fields in `witnessed` are the checker's.
    ///
    /// # Panics
    /// As [`new`](Self::new).
    #[must_use]
    pub fn witnessed(slots: u64, policy: Policy, modelled: &[Field], witnessed: &[Field]) -> Self {
        Self::build(slots, policy, modelled, Some(witnessed))
    }

    fn build(slots: u64, policy: Policy, modelled: &[Field], witnessed: Option<&[Field]>) -> Self {
        let ring_size = RingSize::new(slots).unwrap();
        let region = Arc::new(LoomRegion::new(ring_size.get(), modelled));
        let mut roster = Roster::new(Arc::clone(&region), QUARANTINE);
        let mut ring =
            RingWriter::new(Arc::clone(&region), Arc::clone(roster.membership()), ring_size, policy);
        let witness = witnessed.map(|fields| Arc::new(LoomRegion::new(ring_size.get(), fields)));
        if let Some(witness) = &witness {
            ring = ring.with_witness(Arc::clone(witness));
            roster = roster.with_witness(Arc::clone(witness));
        }
        let place = Arc::new(Place {
            region,
            witness,
            frames: Frames::new(ring_size),
            publisher_bell: Arc::default(),
            bells: array::from_fn(|_| Bell::default()),
            ring_size,
        });
        Self { roster, writer: LoomWriter { ring, place: Arc::clone(&place) }, place }
    }

    /// Takes a subscriber in.
    ///
    /// # Panics
    /// If no bit is free.
    pub fn join(&mut self, mode: SubscriberMode, features: Features) -> LoomReader<K> {
        let subscribed = self.roster.admit(PID, request(mode, features)).unwrap();
        self.place.attach(subscribed, mode, features)
    }
}

impl<K: Weakening> Place<K> {
    /// A reader in the seat that was assigned.
    ///
    /// # Panics
    /// If `initial_seq` is a short one.
    #[must_use]
    pub fn attach(
        self: &Arc<Self>,
        subscribed: Subscribed,
        mode: SubscriberMode,
        features: Features,
    ) -> LoomReader<K> {
        let InitialSeq::Full(initial_seq) = subscribed.initial_seq else { panic!("short initial_seq") };
        let region = Arc::clone(&self.region);
        let driver = Driver { bell: Arc::clone(&self.publisher_bell), witness: self.witness.clone() };
        let seat = word::seat(|| {
            Seat::new(region, driver, self.ring_size, subscribed.bit, initial_seq, features, false)
        });
        LoomReader { ring: RingReader::new(seat, mode), place: Arc::clone(self) }
    }

    /// The bell of subscriber `bit`, 1 or 2.
    fn bell(&self, bit: SubscriberBit) -> &Bell {
        let [one, two] = &self.bells;
        if bit.get() == 1 { one } else { two }
    }
}

impl<K: Weakening> LoomWriter<K> {
    /// Publishes a frame; `None` if nothing can be claimed.
    pub fn publish(&mut self) -> Option<u64> {
        self.publish_or(|_, _| Err(())).ok()
    }

    /// Publishes a frame; sleeps until it can.
    pub fn publish_sleeping(&mut self) -> u64 {
        let publish = self.publish_or(|ring, bell| {
            if ring.is_parked() {
                bell.wait();
            } else {
                ring.park();
            }
            Ok::<_, ()>(())
        });
        publish.unwrap_or_default()
    }

    fn publish_or<E>(
        &mut self,
        mut wait: impl FnMut(&mut RingWriter<Arc<LoomRegion<K>>>, &Bell) -> Result<(), E>,
    ) -> Result<u64, E> {
        let claim = self.ring.claim_or(|ring, _| wait(ring, &self.place.publisher_bell))?;
        Ok(fill_and_commit(&self.place, claim))
    }

    /// Publishes a frame under a number that is given; `None` if it can't be claimed.
    pub fn publish_as(&mut self, seq: Seq) -> Option<u64> {
        let claim = self.ring.claim_as(seq).ok()?;
        Some(fill_and_commit(&self.place, claim))
    }

    /// Publishes a frame under a number that is given; sleeps until it can.
    pub fn publish_sleeping_as(&mut self, seq: Seq) -> u64 {
        loop {
            if let Some(seq) = self.publish_as(seq) {
                return seq;
            }
            if self.ring.is_parked() {
                self.place.publisher_bell.wait();
            } else {
                self.ring.park();
            }
        }
    }
}

impl<K: Weakening> LoomReader<K> {
    /// Reads and releases the next frame, if there is one.
    pub fn read_next(&mut self) -> Option<Seen> {
        let frame = self.ring.next()?;
        Some(self.read(frame))
    }

    /// Reads and releases the next frame; sleeps until there is one.
    pub fn read_sleeping(&mut self) -> Seen {
        loop {
            if let Some(seen) = self.read_next() {
                return seen;
            }
            if self.ring.park() {
                self.place.bell(self.ring.seat().bit()).wait();
                self.ring.unpark();
            }
        }
    }

    /// Reads a frame and releases it.
    pub fn read(&self, frame: Frame<Arc<LoomRegion<K>>, Driver<K>>) -> Seen {
        let halves = self.place.frames.read(frame.slot());
        let (seq, pts_ns, lost) = (frame.seq().get(), frame.pts_ns(), frame.lost());
        Seen { seq, pts_ns, lost, halves, released: frame.release() }
    }
}

impl Seen {
    /// Whether the content is this frame's.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.halves == [self.seq; 2]
    }
}

/// The memory of the frames: two words for each slot, so that a torn frame shows.
#[derive(Debug)]
pub struct Frames<K>(Vec<[LoomWord<K>; 2]>);

impl<K: Weakening> Frames<K> {
    fn new(ring_size: RingSize) -> Self {
        Self((0..ring_size.get()).map(|_| array::from_fn(|_| LoomWord::of_frame())).collect())
    }

    /// Writes half of a frame, then the other half.
    pub fn write(&self, slot: usize, seq: u64) {
        for half in self.0.get(slot).into_iter().flatten() {
            half.store(seq, Relaxed);
        }
    }

    /// Writes half of a frame.
    pub fn write_half(&self, slot: usize, seq: u64) {
        if let Some([half, _]) = self.0.get(slot) {
            half.store(seq, Relaxed);
        }
    }

    /// Reads both halves.
    #[must_use]
    pub fn read(&self, slot: usize) -> [u64; 2] {
        self.0.get(slot).map(|halves| halves.each_ref().map(|half| half.load(Relaxed))).unwrap_or_default()
    }
}

/// An eventfd.
#[derive(Debug, Default)]
pub struct Bell {
    rung: Mutex<bool>,
    changed: Condvar,
}

impl Bell {
    /// Wakes whoever sleeps on it, now or the next time.
    ///
    /// # Panics
    /// Never.
    pub fn ring(&self) {
        *self.rung.lock().unwrap() = true;
        self.changed.notify_one();
    }

    /// Sleeps until it was rung since the last time.
    ///
    /// # Panics
    /// If it is never rung: when all threads of a model wait the checker says deadlock.
    pub fn wait(&self) {
        let mut rung = self.rung.lock().unwrap();
        while !*rung {
            rung = self.changed.wait(rung).unwrap();
        }
        *rung = false;
    }
}

/// What a subscriber's driver supplies.
#[derive(Debug)]
pub struct Driver<K: Weakening> {
    bell: Arc<Bell>,
    witness: Option<Arc<LoomRegion<K>>>,
}

impl<K: Weakening> Outside for Driver<K> {
    fn now(&self) -> Instant {
        Instant::ZERO
    }

    fn wake_publisher(&self) {
        self.bell.ring();
    }

    fn testimony(&self, slot: usize) -> Option<Testimony> {
        let words = self.witness.as_ref()?.slot(slot);
        Some(Testimony {
            seq: words.seq.load(Relaxed),
            pts_ns: words.pts_ns.load(Relaxed),
            written_bytes: words.written_bytes.load(Relaxed),
        })
    }

    fn standing(&self, bit: SubscriberBit) -> Option<Standing> {
        let words = self.witness.as_ref()?.subscriber(bit.get().into());
        Some(Standing { state: words.state.load(Relaxed), term: words.term.load(Relaxed) })
    }
}

fn fill_and_commit<K: Weakening>(place: &Place<K>, claim: Claim<'_, Arc<LoomRegion<K>>>) -> u64 {
    let seq = claim.seq().get();
    place.frames.write(claim.slot(), seq);
    let committed = claim.commit(seq.cast_signed(), seq);
    for bit in SubscriberBit::in_bitmap(committed.wake) {
        place.bell(bit).ring();
    }
    seq
}

/// Of a roster on virtual time.
const QUARANTINE: Duration = Duration::from_secs(10);
