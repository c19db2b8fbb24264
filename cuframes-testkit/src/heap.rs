//! A ring with everything around it that a test needs to play both sides, by default in ordinary memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use cuframes_core::ring::{Frame, FrameLost, Outside, RingReader, RingWriter, Seat, Seq};
use cuframes_core::roster::Roster;
use cuframes_core::session::SubscribeRequest;
use cuframes_core::shm::layout::{INVALID_SEQ, SLOTS};
use cuframes_core::shm::{Region, RegionWords, Word};
use cuframes_core::wire::subscribe::{InitialSeq, Subscribed};
use cuframes_core::{Features, Instant, Policy, RingSize, SubscriberMode};

/// A region in ordinary memory.
pub type HeapRegion<W = AtomicU64> = Arc<RegionWords<W>>;

/// A reader of a [`HeapRegion`].
pub type HeapReader<W = AtomicU64> = RingReader<HeapRegion<W>, Bell>;

/// A frame that a [`HeapReader`] handed out.
pub type HeapFrame<W = AtomicU64> = Frame<HeapRegion<W>, Bell>;

/// A ring of ordinary words.
pub type HeapRing = Ring<HeapRegion>;

/// A publisher's side of a ring: region, roster and writer.
#[derive(Debug)]
pub struct Ring<R: Region> {
    /// The shared words.
    pub region: R,
    /// Who is subscribed.
    pub roster: Roster<R>,
    /// The writer.
    pub writer: RingWriter<R>,
    ring_size: RingSize,
}

impl<W: Word> Ring<HeapRegion<W>> {
    /// A fresh ring of `slots` slots.
    ///
    /// # Panics
    /// If `slots` is not 1..=16.
    #[must_use]
    pub fn new(slots: u64, policy: Policy) -> Self {
        Self::on(HeapRegion::new(RegionWords::zeroed()), slots, policy)
    }
}

impl<R: Region + Clone> Ring<R> {
    /// A fresh ring of `slots` slots in a region of zeros, whose header is left to the caller.
    ///
    /// # Panics
    /// If `slots` is not 1..=16.
    #[must_use]
    pub fn on(region: R, slots: u64, policy: Policy) -> Self {
        let ring_size = RingSize::new(slots).unwrap();
        for slot in 0..SLOTS {
            region.slot(slot).seq.store(INVALID_SEQ, Ordering::Relaxed);
        }
        let roster = Roster::new(region.clone(), QUARANTINE);
        let writer = RingWriter::new(region.clone(), Arc::clone(roster.membership()), ring_size, policy);
        Self { region, roster, writer, ring_size }
    }

    /// Takes a subscriber in.
    ///
    /// # Panics
    /// If no bit is free.
    pub fn join(&mut self, mode: SubscriberMode, features: Features) -> RingReader<R, Bell> {
        self.join_through(self.region.clone(), mode, features)
    }

    /// Takes a subscriber in that has its own view of the region.
    ///
    /// # Panics
    /// If no bit is free.
    pub fn join_through<V: Region>(
        &mut self,
        view: V,
        mode: SubscriberMode,
        features: Features,
    ) -> RingReader<V, Bell> {
        let subscribed = self.roster.admit(PID, request(mode, features)).unwrap();
        reader(view, self.ring_size, subscribed, mode, features, false)
    }

    /// A reader in the place that was assigned; `plain` as if the publisher knew no extension.
    ///
    /// # Panics
    /// If `initial_seq` is a short one.
    #[must_use]
    pub fn attach(
        &self,
        subscribed: Subscribed,
        mode: SubscriberMode,
        features: Features,
        plain: bool,
    ) -> RingReader<R, Bell> {
        reader(self.region.clone(), self.ring_size, subscribed, mode, features, plain)
    }

    /// Publishes frame `seq`, whose number is its time stamp and its length, too; returns it.
    ///
    /// # Panics
    /// If it can't be claimed.
    pub fn publish_as(&mut self, seq: u64) -> u64 {
        let claim = self.writer.claim_as(Seq::new(seq).unwrap()).unwrap();
        claim.commit(seq.cast_signed(), seq).seq.get()
    }

    /// Publishes a frame with time stamp `pts_ns` and returns its number.
    ///
    /// # Panics
    /// If nothing can be claimed.
    pub fn publish(&mut self, pts_ns: i64) -> u64 {
        self.writer.claim().unwrap().commit(pts_ns, 0).seq.get()
    }
}

/// A reader of a ring of `ring_size` slots in the place that was assigned; `plain` as if the publisher knew no extension.
///
/// # Panics
/// If `initial_seq` is a short one.
#[must_use]
pub fn reader<R: Region>(
    region: R,
    ring_size: RingSize,
    subscribed: Subscribed,
    mode: SubscriberMode,
    features: Features,
    plain: bool,
) -> RingReader<R, Bell> {
    let InitialSeq::Full(initial_seq) = subscribed.initial_seq else { panic!("short initial_seq") };
    let seat = Seat::new(region, Bell::default(), ring_size, subscribed.bit, initial_seq, features, plain);
    RingReader::new(seat, mode)
}

/// A request as a driver would pass it on.
///
/// # Panics
/// Never.
#[must_use]
pub fn request(mode: SubscriberMode, features: Features) -> SubscribeRequest {
    SubscribeRequest { name: "test".parse().unwrap(), cuda_device: -1, mode, features }
}

/// Counts how often the publisher was woken, and which frames were lost.
#[derive(Debug, Default)]
pub struct Bell {
    rings: AtomicUsize,
    overwritten: AtomicUsize,
    evicted: AtomicUsize,
    away: AtomicBool,
}

impl Bell {
    /// How often it was rung.
    #[must_use]
    pub fn rings(&self) -> usize {
        self.rings.load(Ordering::Relaxed)
    }

    /// Frames that were released and had been overwritten, and those whose lease had ended.
    #[must_use]
    pub fn lost(&self) -> (usize, usize) {
        (self.overwritten.load(Ordering::Relaxed), self.evicted.load(Ordering::Relaxed))
    }

    /// From now on this is a copy of the seat, in a child that was forked.
    pub fn fork(&self) {
        self.away.store(true, Ordering::Relaxed);
    }
}

impl Outside for Bell {
    fn now(&self) -> Instant {
        Instant::from_nanos(77)
    }

    fn wake_publisher(&self) {
        self.rings.fetch_add(1, Ordering::Relaxed);
    }

    fn frame_lost(&self, lost: FrameLost) {
        let count = if lost == FrameLost::Overwritten { &self.overwritten } else { &self.evicted };
        count.fetch_add(1, Ordering::Relaxed);
    }

    fn is_here(&self) -> bool {
        !self.away.load(Ordering::Relaxed)
    }
}

/// The process of every subscriber here.
pub const PID: u64 = 4711;
/// How long a bit stays unused after its subscriber vanished.
pub const QUARANTINE: Duration = Duration::from_secs(10);
