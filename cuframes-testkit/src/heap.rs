//! A ring in ordinary memory, with everything around it that a test needs to play both sides.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use cuframes_core::ring::{Frame, Outside, RingReader, RingWriter, Seat};
use cuframes_core::roster::Roster;
use cuframes_core::session::SubscribeRequest;
use cuframes_core::shm::{RegionWords, SlotWords, SubscriberWords, Word};
use cuframes_core::wire::subscribe::{InitialSeq, Subscribed};
use cuframes_core::{Features, Instant, Policy, RingSize, SubscriberMode};

/// A region in ordinary memory.
pub type HeapRegion<W = AtomicU64> = Arc<RegionWords<W>>;

/// A reader of a [`HeapRegion`].
pub type HeapReader<W = AtomicU64> = RingReader<HeapRegion<W>, Bell>;

/// A frame that a [`HeapReader`] handed out.
pub type HeapFrame<W = AtomicU64> = Frame<HeapRegion<W>, Bell>;

/// A ring of ordinary words.
pub type HeapRing = Ring<AtomicU64>;

/// A publisher's side of a ring in ordinary memory: region, roster and writer.
#[derive(Debug)]
pub struct Ring<W: Word> {
    /// The shared words.
    pub region: HeapRegion<W>,
    /// Who is subscribed.
    pub roster: Roster<HeapRegion<W>>,
    /// The writer.
    pub writer: RingWriter<HeapRegion<W>>,
    ring_size: RingSize,
}

impl<W: Word> Ring<W> {
    /// A fresh ring of `slots` slots.
    ///
    /// # Panics
    /// If `slots` is not 1..=16.
    #[must_use]
    pub fn new(slots: u64, policy: Policy) -> Self {
        let ring_size = RingSize::new(slots).unwrap();
        let region = HeapRegion::new(RegionWords::<W>::zeroed());
        for slot in &region.slots {
            slot.seq.store(u64::MAX, Ordering::Relaxed);
        }
        let roster = Roster::new(Arc::clone(&region), QUARANTINE);
        let writer = RingWriter::new(Arc::clone(&region), Arc::clone(roster.membership()), ring_size, policy);
        Self { region, roster, writer, ring_size }
    }

    /// Takes a subscriber in.
    ///
    /// # Panics
    /// If no bit is free.
    pub fn join(&mut self, mode: SubscriberMode, features: Features) -> HeapReader<W> {
        let subscribed = self.roster.admit(PID, request(mode, features)).unwrap();
        self.attach(subscribed, mode, features, false)
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
    ) -> HeapReader<W> {
        reader(&self.region, self.ring_size, subscribed, mode, features, plain)
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
pub fn reader<W: Word>(
    region: &HeapRegion<W>,
    ring_size: RingSize,
    subscribed: Subscribed,
    mode: SubscriberMode,
    features: Features,
    plain: bool,
) -> HeapReader<W> {
    let InitialSeq::Full(initial_seq) = subscribed.initial_seq else { panic!("short initial_seq") };
    let region = Arc::clone(region);
    let seat = Seat::new(region, Bell::default(), ring_size, subscribed.bit, initial_seq, features, plain);
    RingReader::new(seat, mode)
}

/// All words of a region, in the order in which they lie there (§2).
pub fn words<W>(region: &RegionWords<W>) -> impl Iterator<Item = &W> {
    let h = &region.header;
    let fixed = [&h.magic_version, &h.lib_major_minor, &h.lib_patch, &h.producer_pid];
    let modes = [&h.ring_size, &h.ownership_mode, &h.policy, &h.max_subscribers];
    let live = [&h.global_seq, &h.subscriber_bitmap, &h.shutdown_flag];
    let extensions = [&h.features, &h.backend, &h.epoch, &h.publisher_parked, &h.reserved_b];
    let header = fixed.into_iter().chain(modes).chain(&h.meta).chain(&h.ipc_event_handle);
    header
        .chain(live)
        .chain(extensions)
        .chain(region.slots.iter().flat_map(slot_words))
        .chain(region.subscribers.iter().flat_map(subscriber_words))
}

fn slot_words<W>(s: &SlotWords<W>) -> impl Iterator<Item = &W> {
    let frame = [&s.seq, &s.pts_ns, &s.ack_bitmap, &s.written_bytes];
    let memory = frame.into_iter().chain(&s.mem_handle).chain(&s.cuda_ptr_external);
    memory.chain([&s.lease_bitmap, &s.reserved_a, &s.mem_offset]).chain(&s.reserved_b)
}

fn subscriber_words<W>(s: &SubscriberWords<W>) -> impl Iterator<Item = &W> {
    let numbers = [&s.state, &s.consumer_pid, &s.last_seen_seq, &s.last_ack_ns];
    let named = numbers.into_iter().chain(&s.consumer_name);
    named.chain([&s.wake_mode, &s.parked, &s.term]).chain(&s.reserved)
}

/// A request as a driver would pass it on.
///
/// # Panics
/// Never.
#[must_use]
pub fn request(mode: SubscriberMode, features: Features) -> SubscribeRequest {
    SubscribeRequest { name: "test".parse().unwrap(), cuda_device: -1, mode, features }
}

/// Counts how often the publisher was woken.
#[derive(Debug, Default)]
pub struct Bell(AtomicUsize);

impl Bell {
    /// How often it was rung.
    #[must_use]
    pub fn rings(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

impl Outside for Bell {
    fn now(&self) -> Instant {
        Instant::from_nanos(77)
    }

    fn wake_publisher(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// The process of every subscriber here.
pub const PID: u64 = 4711;
/// How long a bit stays unused after its subscriber vanished.
pub const QUARANTINE: Duration = Duration::from_secs(10);
