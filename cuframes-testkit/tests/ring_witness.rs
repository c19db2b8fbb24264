//! Numbers that somebody else wrote into the region, against a witness that only the publisher can write (X-6, D-23).

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a failure ends the test")]

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use cuframes_core::ring::{FrameLost, Outside, RingReader, RingWriter, Seat, Testimony};
use cuframes_core::shm::RegionWords;
use cuframes_core::{Features, Instant, Policy, RingSize, SubscriberMode};
use cuframes_testkit::heap::{HeapRegion, HeapRing, PID, request};

const STRICT: SubscriberMode = SubscriberMode::STRICT_ORDER;
const NEWEST: SubscriberMode = SubscriberMode::NEWEST_ONLY;
const LEASE: Features = Features::LEASE;

/// A subscriber's view of the witness.
#[derive(Debug)]
struct Seeing(HeapRegion);

impl Outside for Seeing {
    fn now(&self) -> Instant {
        Instant::ZERO
    }

    fn wake_publisher(&self) {}

    fn testimony(&self, slot: usize) -> Option<Testimony> {
        let words = &self.0.slots[slot];
        let [seq, pts_ns, written_bytes] =
            [&words.seq, &words.pts_ns, &words.written_bytes].map(|word| word.load(Relaxed));
        Some(Testimony { seq, pts_ns, written_bytes })
    }
}

/// A ring of three slots with a witness.
struct Witnessed {
    ring: HeapRing,
    witness: HeapRegion,
}

impl Witnessed {
    fn new() -> Self {
        let mut ring = HeapRing::new(3, Policy::DROP_OLDEST);
        let witness: HeapRegion = Arc::new(RegionWords::zeroed());
        for slot in &witness.slots {
            slot.seq.store(u64::MAX, Relaxed);
        }
        let members = Arc::clone(ring.roster.membership());
        let region = Arc::clone(&ring.region);
        ring.writer = RingWriter::new(region, members, RingSize::new(3).unwrap(), Policy::DROP_OLDEST)
            .with_witness(Arc::clone(&witness));
        Self { ring, witness }
    }

    fn join(&mut self, mode: SubscriberMode, features: Features) -> RingReader<HeapRegion, Seeing> {
        let subscribed = self.ring.roster.admit(PID, request(mode, features)).unwrap();
        let (region, seeing) = (Arc::clone(&self.ring.region), Seeing(Arc::clone(&self.witness)));
        let initial = subscribed.initial_seq.resolve(0);
        let ring_size = RingSize::new(3).unwrap();
        RingReader::new(Seat::new(region, seeing, ring_size, subscribed.bit, initial, features, false), mode)
    }
}

#[test]
fn what_was_published_is_read_as_without_a_witness() {
    for features in [LEASE, Features::NONE] {
        let mut witnessed = Witnessed::new();
        let mut reader = witnessed.join(STRICT, features);
        for seq in 1..=10 {
            let claim = witnessed.ring.writer.claim().unwrap();
            assert_eq!(claim.commit(70 + seq, 5).seq.get(), seq.cast_unsigned());
            let frame = reader.next().unwrap();
            assert_eq!((frame.seq().get(), frame.pts_ns()), (seq.cast_unsigned(), 70 + seq));
            assert_eq!((frame.written_bytes(), frame.lost()), (5, 0));
            frame.release().unwrap();
        }
        assert!(reader.next().is_none());
    }
}

#[test]
fn a_number_that_somebody_else_wrote_names_no_frame_and_hides_none() {
    for features in [LEASE, Features::NONE] {
        for mode in [STRICT, NEWEST] {
            let mut witnessed = Witnessed::new();
            let mut reader = witnessed.join(mode, features);
            witnessed.ring.publish(0);
            drop(reader.next().unwrap());
            let words = &witnessed.ring.region;
            // Slot 1 holds frame 1, slots 2 and 0 nothing.
            for (slot, forged) in [(1, 4), (2, 2), (0, 3)] {
                words.slots[slot].seq.store(forged, Relaxed);
            }
            words.header.global_seq.store(9, Relaxed);
            assert!(reader.next().is_none());
            let leases = words.slots.iter().map(|slot| slot.lease_bitmap.load(Relaxed));
            assert_eq!(leases.sum::<u64>(), 0, "none is left behind");
            // Slots 2, 0 and 1; then slot 0 is the only one that still says what it holds.
            for seq in 2..=4 {
                assert_eq!(witnessed.ring.publish(0), seq);
            }
            let forged = if mode == STRICT { [(1, 2), (2, 9)] } else { [(1, 9), (2, 4)] };
            for (slot, forged) in forged {
                witnessed.ring.region.slots[slot].seq.store(forged, Relaxed);
            }
            assert_eq!(reader.next().unwrap().seq().get(), 3);
        }
    }
}

#[test]
fn time_and_length_are_those_that_the_publisher_gave() {
    for features in [LEASE, Features::NONE] {
        let mut witnessed = Witnessed::new();
        let mut reader = witnessed.join(STRICT, features);
        let _ = witnessed.ring.writer.claim().unwrap().commit(77, 8);
        witnessed.ring.region.slots[1].pts_ns.store(1, Relaxed);
        witnessed.ring.region.slots[1].written_bytes.store(2, Relaxed);
        let frame = reader.next().unwrap();
        assert_eq!((frame.pts_ns(), frame.written_bytes()), (77, 8));
    }
}

#[test]
fn a_frame_whose_lease_somebody_else_gave_back_says_that_it_was_overwritten() {
    let mut witnessed = Witnessed::new();
    let mut reader = witnessed.join(STRICT, LEASE);
    witnessed.ring.publish(0);
    let frame = reader.next().unwrap();
    witnessed.ring.region.slots[1].lease_bitmap.store(0, Relaxed);
    witnessed.ring.publish(0);
    witnessed.ring.publish(0);
    assert!(frame.is_intact());
    // Now slot 1 is written again; whatever somebody else says about it.
    let region = Arc::clone(&witnessed.ring.region);
    let claim = witnessed.ring.writer.claim().unwrap();
    for forged in [1, u64::MAX] {
        region.slots[1].seq.store(forged, Relaxed);
        assert!(!frame.is_intact());
    }
    let _ = claim.commit(0, 0);
    region.slots[1].seq.store(1, Relaxed);
    assert!(!frame.is_intact());
    assert_eq!(frame.release(), Err(FrameLost::Overwritten));
}

#[test]
fn a_writer_that_puts_a_number_back_leaves_the_frame_as_it_was() {
    let mut witnessed = Witnessed::new();
    let mut reader = witnessed.join(STRICT, LEASE);
    witnessed.ring.publish(0);
    let frame = reader.next().unwrap();
    // In the moment between the two stores the word says this.
    witnessed.ring.region.slots[1].seq.store(u64::MAX, Relaxed);
    assert!(frame.is_intact());
    witnessed.ring.region.slots[1].seq.store(1, Relaxed);
    frame.release().unwrap();
}

#[test]
fn a_roster_puts_right_what_it_alone_writes() {
    let mut ring = HeapRing::new(2, Policy::DROP_OLDEST);
    let mut reader = ring.join(STRICT, LEASE);
    assert_eq!(ring.roster.restore(), 0);
    let words = &ring.region.subscribers[1];
    for word in [&words.state, &words.term, &words.consumer_pid, &words.consumer_name[0]] {
        word.store(0x5A5A, Relaxed);
    }
    ring.region.subscribers[7].state.store(2, Relaxed);
    ring.region.header.shutdown_flag.store(1, Relaxed);
    ring.region.header.subscriber_bitmap.store(0, Relaxed);
    assert!(!reader.seat().is_held());
    assert_eq!(ring.roster.restore(), 7);
    assert_eq!(ring.roster.restore(), 0);
    assert!(reader.seat().is_held() && !reader.is_shutting_down());
    ring.publish(0);
    reader.next().unwrap().release().unwrap();
}

#[test]
fn what_others_left_in_a_free_seat_does_not_count_for_the_next_holder() {
    let mut ring = HeapRing::new(1, Policy::DROP_OLDEST);
    ring.region.slots[0].lease_bitmap.store(u64::MAX, Relaxed);
    ring.region.subscribers[1].last_seen_seq.store(u64::MAX, Relaxed);
    let _reader = ring.join(STRICT, LEASE);
    assert_eq!(ring.publish(0), 1);
    assert_eq!(ring.region.subscribers[1].last_seen_seq.load(Relaxed), 0);
}
