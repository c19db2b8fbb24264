//! What somebody else wrote into the region, against a witness that only the publisher can write (X-6, D-23).

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a failure ends the test")]

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use cuframes_core::ring::{FrameLost, Outside, RingReader, RingWriter, Seat, Seq, Standing, Testimony};
use cuframes_core::roster::{Departure, Roster};
use cuframes_core::shm::RegionWords;
use cuframes_core::wire::subscribe::Subscribed;
use cuframes_core::{Features, Instant, Policy, RingSize, SubscriberBit, SubscriberMode};
use cuframes_testkit::heap::{HeapRegion, HeapRing, PID, QUARANTINE, request};

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

    fn standing(&self, bit: SubscriberBit) -> Option<Standing> {
        let words = &self.0.subscribers[usize::from(bit.get())];
        Some(Standing { state: words.state.load(Relaxed), term: words.term.load(Relaxed) })
    }
}

/// A ring of three slots with a witness.
struct Witnessed {
    ring: HeapRing,
    witness: HeapRegion,
}

impl Witnessed {
    fn new() -> Self {
        Self::with(Policy::DROP_OLDEST)
    }

    fn with(policy: Policy) -> Self {
        let mut ring = HeapRing::new(3, policy);
        let witness: HeapRegion = Arc::new(RegionWords::zeroed());
        for slot in &witness.slots {
            slot.seq.store(u64::MAX, Relaxed);
        }
        let region = Arc::clone(&ring.region);
        ring.roster = Roster::new(Arc::clone(&region), QUARANTINE).with_witness(Arc::clone(&witness));
        let members = Arc::clone(ring.roster.membership());
        ring.writer = RingWriter::new(region, members, RING_SIZE, policy).with_witness(Arc::clone(&witness));
        Self { ring, witness }
    }

    fn join(&mut self, mode: SubscriberMode, features: Features) -> RingReader<HeapRegion, Seeing> {
        let subscribed = self.ring.roster.admit(PID, request(mode, features)).unwrap();
        self.attach(subscribed, mode, features)
    }

    fn attach(
        &self,
        subscribed: Subscribed,
        mode: SubscriberMode,
        features: Features,
    ) -> RingReader<HeapRegion, Seeing> {
        let (region, seeing) = (Arc::clone(&self.ring.region), Seeing(Arc::clone(&self.witness)));
        let initial = subscribed.initial_seq.resolve(0);
        RingReader::new(Seat::new(region, seeing, RING_SIZE, subscribed.bit, initial, features, false), mode)
    }
}

const RING_SIZE: RingSize = RingSize::new(3).unwrap();

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
fn whose_a_bit_is_only_the_witness_says() {
    for policy in [Policy::DROP_OLDEST, Policy::STRICT_WAIT] {
        let mut witnessed = Witnessed::with(policy);
        // While it attaches, while it takes a frame, and while it gives it back.
        let words = Arc::clone(&witnessed.ring.region);
        let subscribed = witnessed.ring.roster.admit(PID, request(STRICT, LEASE)).unwrap();
        for word in [&words.subscribers[1].state, &words.subscribers[1].term] {
            word.store(77, Relaxed);
        }
        let mut reader = witnessed.attach(subscribed, STRICT, LEASE);
        for _ in 0..7 {
            witnessed.ring.publish(0);
            assert!(reader.seat().is_held());
            reader.next().unwrap().release().unwrap();
        }
        assert_eq!(witnessed.ring.roster.restore(), 2);
        assert!(reader.seat().is_held());
    }
}

#[test]
fn who_is_evicted_is_not_told_by_others_that_it_is_not() {
    for features in [LEASE, Features::NONE] {
        let mut witnessed = Witnessed::new();
        let mut reader = witnessed.join(STRICT, features);
        let (bit, words) = (reader.seat().bit(), Arc::clone(&witnessed.ring.region));
        witnessed.ring.publish(0);
        let [first, second] = [reader.next().unwrap(), {
            witnessed.ring.publish(0);
            reader.next().unwrap()
        }];
        let term = words.subscribers[1].term.load(Relaxed);
        witnessed.ring.roster.leave(Instant::ZERO, bit, Departure::Abrupt);
        words.subscribers[1].state.store(2, Relaxed);
        words.subscribers[1].term.store(term, Relaxed);
        assert!(!reader.seat().is_held());
        assert_eq!(first.release(), Err(FrameLost::Evicted));
        // Nor when the bit has its next holder, of whom the region says no term without LEASE.
        witnessed.ring.roster.handle_timeout(Instant::ZERO + QUARANTINE);
        let next = witnessed.join(STRICT, features);
        words.subscribers[1].term.store(term, Relaxed);
        assert!(next.seat().is_held() && !reader.seat().is_held());
        assert_eq!(second.release(), Err(FrameLost::Evicted));
        assert_eq!(words.subscribers[1].last_seen_seq.load(Relaxed), 2, "what the next holder was promised");
    }
}

#[test]
fn a_frame_is_had_by_its_number_only_where_the_publisher_said_that_it_is() {
    for features in [LEASE, LEASE.union(Features::NO_ACK), Features::NONE] {
        let mut witnessed = Witnessed::new();
        let mut reader = witnessed.join(STRICT, features);
        for _ in 0..3 {
            witnessed.ring.publish(0);
        }
        let [third, first, second] = [0, 1, 2].map(|slot| &witnessed.ring.region.slots[slot].seq);
        // Frame 1 is said to be frame 9; and frame 3, in the slot of frame 2.
        first.store(9, Relaxed);
        second.store(3, Relaxed);
        let mut get = |seq| reader.get(Seq::new(seq).unwrap()).map(|frame| frame.slot());
        assert_eq!([9, 2, 3].map(&mut get), [None, None, Some(0)]);
        // Where it is not said any more nobody finds it.
        third.store(7, Relaxed);
        assert_eq!([3, 7].map(&mut get), [None; 2]);
        second.store(2, Relaxed);
        assert_eq!(get(2), Some(2));
        let leases = witnessed.ring.region.slots.iter().map(|slot| slot.lease_bitmap.load(Relaxed));
        assert_eq!(leases.sum::<u64>(), 0, "none is left behind");
    }
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
