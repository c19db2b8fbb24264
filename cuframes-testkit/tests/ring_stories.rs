//! The ring as a publisher and its subscribers live it, one step at a time (§5, D-4 to D-7, D-17, X-2, X-3).

use std::sync::atomic::Ordering::Relaxed;

use cuframes_core::ring::{Frame, FrameLost};
use cuframes_core::roster::Departure;
use cuframes_core::wire::subscribe::{InitialSeq, Subscribed};
use cuframes_core::{Features, Instant, Policy, SubscriberBit, SubscriberMode};
use cuframes_testkit::heap::{HeapReader, HeapRing, PID};

const NEWEST: SubscriberMode = SubscriberMode::NEWEST_ONLY;
const STRICT: SubscriberMode = SubscriberMode::STRICT_ORDER;
const LEASE: Features = Features::LEASE;

/// The numbers and gaps that `next` hands out until it has nothing.
fn drain(reader: &mut HeapReader) -> Vec<(u64, u64)> {
    std::iter::from_fn(|| reader.next()).map(|frame| (frame.seq().get(), frame.lost())).collect()
}

#[test]
fn the_first_frame_is_number_1_and_lies_in_slot_1() {
    let mut ring = HeapRing::new(3, Policy::DROP_OLDEST);
    let mut reader = ring.join(NEWEST, LEASE);
    assert!(reader.next().is_none());
    let claim = ring.writer.claim().unwrap();
    assert_eq!((claim.seq().get(), claim.slot()), (1, 1));
    assert!(reader.next().is_none(), "nothing is published before commit");
    let committed = claim.commit(-5, 12);
    assert_eq!(committed.seq.get(), 1);
    let frame = reader.next().unwrap();
    assert_eq!((frame.seq().get(), frame.slot(), frame.pts_ns(), frame.written_bytes()), (1, 1, -5, 12));
    assert!(reader.next().is_none());
}

#[test]
fn strict_order_hands_out_every_frame_and_newest_only_the_last() {
    let mut ring = HeapRing::new(4, Policy::DROP_OLDEST);
    let (mut strict, mut newest) = (ring.join(STRICT, LEASE), ring.join(NEWEST, LEASE));
    ring.publish(0);
    assert_eq!((drain(&mut strict), drain(&mut newest)), (vec![(1, 0)], vec![(1, 0)]));
    for _ in 0..3 {
        ring.publish(0);
    }
    assert_eq!(drain(&mut strict), [(2, 0), (3, 0), (4, 0)]);
    assert_eq!(drain(&mut newest), [(4, 2)]);
}

#[test]
fn a_strict_reader_that_was_overrun_goes_on_with_the_oldest_frame_and_is_told_the_gap() {
    let mut ring = HeapRing::new(3, Policy::DROP_OLDEST);
    let mut reader = ring.join(STRICT, LEASE);
    ring.publish(0);
    assert_eq!(drain(&mut reader), [(1, 0)]);
    for _ in 0..7 {
        ring.publish(0);
    }
    assert_eq!(drain(&mut reader), [(6, 4), (7, 0), (8, 0)]);
}

#[test]
fn who_joins_late_starts_with_the_current_frame_and_has_lost_nothing() {
    for mode in [STRICT, NEWEST] {
        let mut ring = HeapRing::new(4, Policy::DROP_OLDEST);
        for _ in 0..6 {
            ring.publish(0);
        }
        let mut reader = ring.join(mode, LEASE);
        assert_eq!(drain(&mut reader), [(6, 0)]);
        ring.publish(0);
        assert_eq!(drain(&mut reader), [(7, 0)]);
    }
}

#[test]
fn who_joins_late_and_finds_the_current_frame_overwritten_has_lost_nothing_either() {
    let mut ring = HeapRing::new(2, Policy::DROP_OLDEST);
    ring.publish(0);
    let mut reader = ring.join(STRICT, LEASE);
    for _ in 0..4 {
        ring.publish(0);
    }
    assert_eq!(drain(&mut reader), [(4, 0), (5, 0)]);
}

#[test]
fn a_leased_frame_is_not_overwritten_and_costs_one_number() {
    let mut ring = HeapRing::new(2, Policy::DROP_OLDEST);
    let mut reader = ring.join(NEWEST, LEASE);
    ring.publish(0);
    let held = reader.next().unwrap();
    assert_eq!(ring.publish(0), 2);
    assert_eq!(ring.publish(0), 4, "number 3 would lie in the leased slot");
    assert_eq!(ring.publish(0), 6);
    assert!(held.is_intact());
    assert_eq!(held.release(), Ok(()));
    assert_eq!(ring.publish(0), 7);
    assert_eq!(drain(&mut reader), [(7, 5)]);
}

#[test]
fn when_every_slot_is_leased_the_claim_names_the_holders() {
    let mut ring = HeapRing::new(2, Policy::DROP_OLDEST);
    let (mut one, mut two) = (ring.join(NEWEST, LEASE), ring.join(STRICT, LEASE));
    ring.publish(0);
    let first = one.next().unwrap();
    ring.publish(0);
    let _second = (two.next().unwrap(), two.next().unwrap());
    let stalled = ring.writer.claim().unwrap_err();
    assert_eq!((stalled.waiting_for_acks, stalled.waiting_for_leases), (0, 0b110));
    assert_eq!(
        stalled.to_string(),
        "the ring is full: lease held by subscriber 1, lease held by subscriber 2"
    );
    drop(first);
    assert_eq!(ring.writer.claim().unwrap_err().waiting_for_leases, 0b100);
    assert_eq!(ring.region.header.global_seq.load(Relaxed), 2, "a stalled claim changes nothing");
}

#[test]
fn several_frames_are_held_at_once_and_released_in_any_order_on_any_thread() {
    let mut ring = HeapRing::new(4, Policy::STRICT_WAIT);
    let mut reader = ring.join(STRICT, LEASE);
    for _ in 0..4 {
        ring.publish(0);
    }
    let mut frames: Vec<_> = std::iter::from_fn(|| reader.next()).collect();
    assert_eq!(frames.len(), 4);
    let last = frames.pop().unwrap();
    std::thread::spawn(move || last.release().unwrap()).join().unwrap();
    let stalled = ring.writer.claim().unwrap_err();
    assert_eq!(stalled.waiting_for_leases, 0b10, "1 is acknowledged through 4, but still leased");
    drop(frames.remove(0));
    assert_eq!(ring.publish(0), 5);
    assert_eq!(drain(&mut reader), [(5, 0)], "while 2 and 3 are held");
    assert!(frames.iter().all(Frame::is_intact));
    assert_eq!(ring.region.subscribers[1].last_seen_seq.load(Relaxed), 5);
    drop(frames);
    assert_eq!(ring.region.subscribers[1].last_seen_seq.load(Relaxed), 5, "it never goes back");
}

#[test]
fn strict_wait_fills_the_whole_ring_before_it_waits_for_the_oldest_frame() {
    for features in [LEASE, Features::NONE] {
        let mut ring = HeapRing::new(3, Policy::STRICT_WAIT);
        let mut reader = ring.join(STRICT, features);
        for _ in 0..3 {
            ring.publish(0);
        }
        assert_eq!(ring.writer.claim().unwrap_err().waiting_for_acks, 0b10);
        drop(reader.next().unwrap());
        assert_eq!(ring.publish(0), 4);
        assert_eq!(
            ring.writer.claim().unwrap_err().to_string(),
            "the ring is full: no acknowledgement by subscriber 1"
        );
        assert_eq!(drain(&mut reader), [(2, 0), (3, 0), (4, 0)]);
    }
}

#[test]
fn strict_wait_does_not_wait_for_frames_that_somebody_skips_who_keeps_the_newest() {
    for features in [LEASE, Features::NONE] {
        let mut ring = HeapRing::new(3, Policy::STRICT_WAIT);
        let mut reader = ring.join(NEWEST, features);
        for newest in [3, 8, 13] {
            for _ in 0..3 {
                ring.publish(0);
            }
            let frame = reader.next().unwrap();
            assert_eq!(frame.seq().get(), newest);
            ring.publish(0);
            ring.publish(0);
            assert!(ring.writer.claim().is_err(), "it is still in use");
            assert_eq!(frame.release(), Ok(()));
            assert!(ring.writer.stalled().is_none());
            drop(drain(&mut reader));
        }
    }
}

#[test]
fn who_has_no_lease_and_still_uses_an_earlier_frame_acknowledges_nothing_that_it_skips() {
    let mut ring = HeapRing::new(3, Policy::STRICT_WAIT);
    let mut reader = ring.join(NEWEST, Features::NONE);
    ring.publish(0);
    let earlier = reader.next().unwrap();
    ring.publish(0);
    ring.publish(0);
    let newest = reader.next().unwrap();
    assert!(ring.writer.claim().is_err());
    assert!(earlier.is_intact());
    assert_eq!(earlier.release(), Ok(()));
    ring.publish(0);
    assert_eq!(newest.release(), Ok(()));
}

#[test]
fn who_was_evicted_acknowledges_nothing_in_the_name_of_the_next_holder_of_its_bit() {
    let mut ring = HeapRing::new(3, Policy::DROP_OLDEST);
    let mut reader = ring.join(NEWEST, LEASE);
    (0..3).for_each(|_| _ = ring.publish(0));
    let bit = reader.seat().bit();
    ring.roster.leave(Instant::ZERO, bit, Departure::Abrupt);
    let last_seen = || ring.region.subscribers[usize::from(bit.get())].last_seen_seq.load(Relaxed);
    let before = last_seen();
    assert_eq!(reader.next().unwrap().seq().get(), 3);
    assert_eq!(last_seen(), before);
}

#[test]
fn strict_wait_does_not_wait_for_frames_from_before_somebody_joined() {
    let mut ring = HeapRing::new(2, Policy::STRICT_WAIT);
    ring.publish(0);
    ring.publish(0);
    let mut late = ring.join(STRICT, LEASE);
    assert_eq!(ring.publish(0), 3);
    assert_eq!(ring.publish(0), 4);
    assert_eq!(ring.writer.claim().unwrap_err().waiting_for_acks, 0b10, "3 came after it joined");
    assert_eq!(drain(&mut late), [(3, 0), (4, 0)]);
}

#[test]
fn an_acknowledgement_that_comes_late_does_not_count_for_the_next_frame_in_the_slot() {
    let mut ring = HeapRing::new(1, Policy::STRICT_WAIT);
    let mut reader = ring.join(STRICT, Features::NONE);
    ring.publish(0);
    drop(reader.next().unwrap());
    ring.publish(0);
    // The bit of frame 1, set once more: the subscriber's word has moved, so bits no longer speak for it.
    ring.region.slots[0].ack_bitmap.fetch_or(0b10, Relaxed);
    assert_eq!(ring.writer.claim().unwrap_err().waiting_for_acks, 0b10);
}

#[test]
fn a_consumer_that_only_sets_ack_bits_is_judged_by_them() {
    let mut ring = HeapRing::new(1, Policy::STRICT_WAIT);
    let _reader = ring.join(STRICT, Features::NONE);
    for seq in 1..4 {
        assert_eq!(ring.publish(0), seq);
        assert_eq!(ring.writer.claim().unwrap_err().waiting_for_acks, 0b10);
        ring.region.slots[0].ack_bitmap.fetch_or(0b10, Relaxed);
    }
}

#[test]
fn towards_a_plain_publisher_every_frame_is_acknowledged_by_bit_also_those_skipped() {
    let mut ring = HeapRing::new(4, Policy::DROP_OLDEST);
    for _ in 0..2 {
        ring.publish(0);
    }
    let bit = SubscriberBit::new(5).unwrap();
    let subscribed = Subscribed { bit, initial_seq: InitialSeq::Full(2) };
    let mut reader = ring.attach(subscribed, NEWEST, Features::NONE, true);
    let acks =
        |ring: &HeapRing| [1, 2, 3, 0].map(|slot: usize| ring.region.slots[slot].ack_bitmap.load(Relaxed));
    drop(reader.next().unwrap());
    assert_eq!(acks(&ring), [0; 4], "no bit for a frame up to initial_seq");
    for _ in 0..2 {
        ring.publish(0);
    }
    assert_eq!(reader.next().unwrap().seq().get(), 4);
    assert_eq!(acks(&ring), [0, 0, bit.mask(), bit.mask()], "3 was skipped, 4 was read");
    assert_eq!(ring.region.subscribers[5].last_seen_seq.load(Relaxed), 4);
}

#[test]
fn a_publisher_that_numbers_its_slots_in_another_way_is_understood() {
    let mut ring = HeapRing::new(4, Policy::DROP_OLDEST);
    let (mut strict, mut newest) = (ring.join(STRICT, Features::NONE), ring.join(NEWEST, Features::NONE));
    for (slot, seq) in [(3, 1), (0, 2), (2, 3)] {
        ring.region.slots[slot].seq.store(seq, Relaxed);
    }
    ring.region.header.global_seq.store(3, Relaxed);
    assert_eq!(drain(&mut strict), [(1, 0), (2, 0), (3, 0)]);
    assert_eq!(drain(&mut newest), [(3, 0)]);
}

#[test]
fn a_claim_that_is_dropped_publishes_nothing_and_keeps_its_number() {
    let mut ring = HeapRing::new(2, Policy::DROP_OLDEST);
    let mut reader = ring.join(STRICT, LEASE);
    ring.publish(0);
    ring.publish(0);
    drop(ring.writer.claim().unwrap());
    assert_eq!(drain(&mut reader), [(2, 0)], "the slot of number 1 was given up");
    assert_eq!(ring.publish(0), 3);
    assert_eq!(drain(&mut reader), [(3, 0)]);
}

#[test]
fn without_a_lease_an_overwritten_frame_is_reported() {
    let mut ring = HeapRing::new(2, Policy::DROP_OLDEST);
    let mut reader = ring.join(NEWEST, Features::NONE);
    ring.publish(0);
    let frame = reader.next().unwrap();
    ring.publish(0);
    assert!(frame.is_intact());
    let claim = ring.writer.claim().unwrap();
    assert!(!frame.is_intact(), "from the claim on");
    drop(claim);
    assert_eq!(frame.release(), Err(FrameLost::Overwritten));
}

#[test]
fn a_commit_names_whoever_sleeps_or_never_says_so() {
    let mut ring = HeapRing::new(4, Policy::DROP_OLDEST);
    let mut hinting = ring.join(NEWEST, Features::WAKE_HINT);
    let _plain = ring.join(NEWEST, Features::NONE);
    let mut wake = || ring.writer.claim().unwrap().commit(0, 0).wake;
    assert_eq!(wake(), 0b100, "who sets no wake_mode is always woken");
    assert!(!hinting.park(), "a frame is there that it has not looked at");
    drop(hinting.next());
    assert!(hinting.next().is_none() && hinting.park());
    assert_eq!(wake(), 0b110);
    hinting.unpark();
    assert_eq!(wake(), 0b100);
}

#[test]
fn a_parked_publisher_is_woken_by_a_release_and_stops_being_parked_when_it_can_claim() {
    let mut ring = HeapRing::new(1, Policy::STRICT_WAIT);
    let mut reader = ring.join(STRICT, LEASE.union(Features::WAKE_HINT));
    ring.publish(0);
    let frame = reader.next().unwrap();
    assert!(ring.writer.claim().is_err());
    ring.writer.park();
    assert!(ring.writer.claim().is_err());
    let seat = std::sync::Arc::clone(frame.seat());
    assert_eq!(seat.outside().rings(), 0);
    drop(frame);
    assert_eq!(seat.outside().rings(), 1);
    ring.publish(0);
    drop(reader.next());
    assert_eq!(seat.outside().rings(), 1, "awake again: nobody rings");
}

#[test]
fn a_lease_that_could_not_be_had_wakes_a_publisher_that_backed_off_for_it() {
    let mut ring = HeapRing::new(1, Policy::DROP_OLDEST);
    let mut reader = ring.join(NEWEST, LEASE.union(Features::WAKE_HINT));
    ring.publish(0);
    drop(ring.writer.claim().unwrap());
    ring.writer.park();
    assert!(reader.next().is_none(), "the slot is being written");
    assert!(reader.seat().outside().rings() > 0);
    assert_eq!(ring.region.slots[0].lease_bitmap.load(Relaxed), 0);
}

#[test]
fn the_region_shows_who_is_subscribed() {
    let mut ring = HeapRing::new(2, Policy::DROP_OLDEST);
    ring.publish(0);
    let _reader = ring.join(NEWEST, LEASE.union(Features::WAKE_HINT));
    let words = &ring.region.subscribers[1];
    assert_eq!(words.state.load(Relaxed), 2);
    assert_eq!(words.consumer_pid.load(Relaxed), PID);
    assert_eq!(words.last_seen_seq.load(Relaxed), 1, "initial_seq");
    assert_eq!(words.consumer_name[0].load(Relaxed).to_le_bytes(), *b"test\0\0\0\0");
    assert_eq!(words.wake_mode.load(Relaxed), 1);
    assert_eq!(ring.region.header.subscriber_bitmap.load(Relaxed), 0b10);
}

#[test]
fn numbers_that_no_writer_publishes_are_no_frames() {
    let mut ring = HeapRing::new(2, Policy::DROP_OLDEST);
    let (mut strict, mut newest) = (ring.join(STRICT, LEASE), ring.join(NEWEST, Features::NONE));
    ring.region.header.global_seq.store(u64::MAX, Relaxed);
    assert!(strict.next().is_none() && newest.next().is_none());
    ring.region.header.global_seq.store(u64::MAX - 1, Relaxed);
    assert!(strict.next().is_none() && newest.next().is_none());
    assert_eq!(ring.publish(0), 1);
    assert_eq!((drain(&mut strict), drain(&mut newest)), (vec![(1, 0)], vec![(1, 0)]));
}

#[test]
fn a_leased_frame_stays_intact_while_the_writer_puts_its_number_back() {
    let mut ring = HeapRing::new(1, Policy::DROP_OLDEST);
    let mut reader = ring.join(NEWEST, LEASE);
    ring.publish(0);
    let frame = reader.next().unwrap();
    // As a writer does for a moment before it sees the lease.
    ring.region.slots[0].seq.store(u64::MAX, Relaxed);
    assert!(frame.is_intact());
    assert_eq!(frame.release(), Ok(()));
}

#[test]
fn the_driver_is_told_of_each_frame_that_was_lost_however_it_is_given_back() {
    let mut ring = HeapRing::new(2, Policy::DROP_OLDEST);
    let (mut plain, mut leasing) = (ring.join(STRICT, Features::NONE), ring.join(STRICT, LEASE));
    ring.publish(0);
    let overwritten = plain.next().unwrap();
    for _ in 0..2 {
        ring.publish(0);
    }
    drop(overwritten);
    plain.next().unwrap().release().unwrap();
    let leased = leasing.next().unwrap();
    ring.roster.leave(Instant::ZERO, leasing.seat().bit(), Departure::Abrupt);
    assert_eq!(leased.release(), Err(FrameLost::Evicted));
    assert_eq!((plain.seat().outside().lost(), leasing.seat().outside().lost()), ((1, 0), (0, 1)));
}

#[test]
fn a_forked_copy_of_a_frame_does_not_give_the_lease_back() {
    let mut ring = HeapRing::new(1, Policy::DROP_OLDEST);
    let mut reader = ring.join(STRICT, LEASE);
    ring.publish(0);
    let frame = reader.next().unwrap();
    reader.seat().outside().fork();
    assert_eq!(frame.release(), Err(FrameLost::Evicted));
    assert_eq!(ring.writer.claim().unwrap_err().waiting_for_leases, 0b10);
    assert_eq!(reader.seat().outside().rings(), 0);
}
