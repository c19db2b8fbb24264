//! Frames by their number (D-7), and subscribers of which none is required (NO_ACK, X-7), one step at a time.

#![expect(clippy::unwrap_used, reason = "a failure ends the test")]

use std::sync::atomic::Ordering::Relaxed;

use cuframes_core::ring::{FrameLost, Seq, StallClock, Stalled};
use cuframes_core::roster::Departure;
use cuframes_core::{Features, Instant, Policy, SubscriberMode, Timeouts};
use cuframes_testkit::heap::{HeapFrame, HeapReader, HeapRing};

const NEWEST: SubscriberMode = SubscriberMode::NEWEST_ONLY;
const STRICT: SubscriberMode = SubscriberMode::STRICT_ORDER;
const LEASE: Features = Features::LEASE;
const NO_ACK: Features = Features::NO_ACK;
const WITH_HINT: Features = LEASE.union(Features::WAKE_HINT);

fn get(reader: &mut HeapReader, seq: u64) -> Option<HeapFrame> {
    let frame = reader.get(Seq::new(seq).unwrap())?;
    assert_eq!((frame.seq().get(), frame.lost(), frame.pts_ns()), (seq, 0, seq.cast_signed()));
    Some(frame)
}

fn publish(ring: &mut HeapRing, frames: usize) {
    for _ in 0..frames {
        let next = ring.writer.newest() + 1;
        assert_eq!(ring.publish(next.cast_signed()), next);
    }
}

/// The numbers that can be had now.
fn there(reader: &mut HeapReader) -> Vec<u64> {
    (1..=20).filter(|seq| get(reader, *seq).is_some()).collect()
}

fn leases(ring: &HeapRing) -> Vec<u64> {
    ring.region.slots.iter().map(|slot| slot.lease_bitmap.load(Relaxed)).take(4).collect()
}

#[test]
fn every_frame_that_is_there_can_be_had_in_any_order_also_from_before_we_joined() {
    for features in [LEASE, Features::NONE] {
        let mut ring = HeapRing::new(3, Policy::DROP_OLDEST);
        publish(&mut ring, 4);
        let mut reader = ring.join(NEWEST, features);
        assert_eq!(there(&mut reader), [2, 3, 4]);
        publish(&mut ring, 1);
        let frames: Vec<_> = [5, 3, 4].into_iter().map(|seq| get(&mut reader, seq).unwrap()).collect();
        for frame in frames {
            assert_eq!((frame.check(), frame.release()), (Ok(()), Ok(())));
        }
        assert!(get(&mut reader, 2).is_none() && get(&mut reader, u64::MAX - 1).is_none());
        assert_eq!(leases(&ring), [0; 4]);
    }
}

#[test]
fn a_frame_is_found_in_whatever_slot_has_its_number() {
    for features in [LEASE, Features::NONE] {
        let mut ring = HeapRing::new(3, Policy::DROP_OLDEST);
        publish(&mut ring, 3);
        let mut reader = ring.join(NEWEST, features);
        // As a publisher that numbers its slots in another way.
        ring.region.slots[0].seq.store(7, Relaxed);
        ring.region.slots[0].pts_ns.store(7, Relaxed);
        let frame = get(&mut reader, 7).unwrap();
        assert_eq!(frame.slot(), 0);
        assert_eq!(leases(&ring), if features == LEASE { [0b10, 0, 0, 0] } else { [0; 4] });
        drop(frame);
        // The one that is being written, of which nothing is left behind.
        ring.region.slots[1].seq.store(u64::MAX, Relaxed);
        assert!(get(&mut reader, 1).is_none());
        assert_eq!(leases(&ring), [0; 4]);
    }
}

#[test]
fn a_frame_that_somebody_holds_is_there_for_others_and_held_by_each_for_itself() {
    for policy in [Policy::DROP_OLDEST, Policy::STRICT_WAIT] {
        let mut ring = HeapRing::new(2, policy);
        let (mut dispatcher, mut worker) = (ring.join(STRICT, LEASE), ring.join(NEWEST, LEASE.union(NO_ACK)));
        publish(&mut ring, 2);
        let held = dispatcher.next().unwrap();
        drop(dispatcher.next().unwrap());
        let frame = get(&mut worker, 1).unwrap();
        assert!(get(&mut worker, 1).is_none(), "once at a time");
        held.release().unwrap();
        let holders = |stalled: Stalled| (stalled.waiting_for_acks, stalled.waiting_for_leases);
        if policy == Policy::STRICT_WAIT {
            assert_eq!(holders(ring.writer.claim().unwrap_err()), (0, 0b100));
        } else {
            // It skips the slot, and numbers with it.
            assert_eq!([ring.publish(4), ring.publish(6)], [4, 6]);
            assert_eq!(there(&mut dispatcher), [1, 6]);
        }
        assert_eq!((frame.check(), frame.release()), (Ok(()), Ok(())));
        ring.publish(0);
        assert!(get(&mut worker, 1).is_none());
    }
}

#[test]
fn frames_by_their_number_acknowledge_nothing_and_those_in_turn_come_all_the_same() {
    for features in [LEASE, Features::NONE] {
        for plain in [false, true] {
            let mut ring = HeapRing::new(3, Policy::STRICT_WAIT);
            let request = cuframes_testkit::heap::request(STRICT, features);
            let subscribed = ring.roster.admit(1, request).unwrap();
            let features = if plain { Features::NONE } else { features };
            let mut reader = ring.attach(subscribed, STRICT, features, plain);
            publish(&mut ring, 3);
            for seq in [3, 1, 2] {
                get(&mut reader, seq).unwrap().release().unwrap();
            }
            assert_eq!(ring.writer.claim().unwrap_err().waiting_for_acks, 0b10);
            let words = &ring.region.subscribers[1];
            assert_eq!((words.last_seen_seq.load(Relaxed), words.last_ack_ns.load(Relaxed)), (0, 0));
            for seq in 1..=3 {
                let frame = reader.next().unwrap();
                assert_eq!((frame.seq().get(), frame.lost()), (seq, 0));
                frame.release().unwrap();
                publish(&mut ring, 1);
                get(&mut reader, seq + 3).unwrap().release().unwrap();
            }
        }
    }
}

#[test]
fn what_is_held_by_its_number_is_not_handed_out_in_turn_as_well() {
    let mut ring = HeapRing::new(4, Policy::DROP_OLDEST);
    let (mut strict, mut newest) = (ring.join(STRICT, LEASE), ring.join(NEWEST, LEASE));
    publish(&mut ring, 3);
    let [second, third] = [get(&mut strict, 2), get(&mut newest, 3)].map(Option::unwrap);
    let in_turn = |reader: &mut HeapReader| reader.next().map(|frame| (frame.seq().get(), frame.lost()));
    assert_eq!([(); 3].map(|()| in_turn(&mut strict)), [Some((1, 0)), Some((3, 1)), None]);
    assert_eq!(in_turn(&mut newest), Some((2, 0)));
    assert_eq!(in_turn(&mut newest), None);
    drop(third);
    assert_eq!(in_turn(&mut newest), Some((3, 0)));
    second.release().unwrap();
}

#[test]
fn a_frame_can_be_asked_whether_it_is_still_what_it_was_without_being_given_back() {
    let mut ring = HeapRing::new(2, Policy::DROP_OLDEST);
    let (mut leasing, mut plain) = (ring.join(NEWEST, LEASE), ring.join(NEWEST, Features::NONE));
    publish(&mut ring, 1);
    let (leased, other) = (get(&mut leasing, 1).unwrap(), get(&mut plain, 1).unwrap());
    assert_eq!([leased.check(), other.check()], [Ok(()); 2]);
    ring.region.slots[1].seq.store(3, Relaxed);
    assert_eq!([leased.check(), other.check()], [Err(FrameLost::Overwritten); 2]);
    ring.roster.leave(Instant::ZERO, leasing.seat().bit(), Departure::Abrupt);
    assert_eq!(leased.check(), Err(FrameLost::Evicted));
    assert_eq!(leasing.seat().outside().lost(), (0, 0), "it counts when it is given back");
    assert_eq!([leased.release(), other.release()], [Err(FrameLost::Evicted), Err(FrameLost::Overwritten)]);
    assert_eq!((leasing.seat().outside().lost(), plain.seat().outside().lost()), ((0, 1), (1, 0)));
}

#[test]
fn who_takes_frames_by_their_number_puts_right_what_others_wrote_in_its_name() {
    let mut ring = HeapRing::new(2, Policy::STRICT_WAIT);
    let mut reader = ring.join(NEWEST, WITH_HINT.union(NO_ACK));
    publish(&mut ring, 2);
    ring.region.slots[1].lease_bitmap.store(0b10, Relaxed);
    assert_eq!(ring.writer.claim().unwrap_err().waiting_for_leases, 0b10);
    ring.writer.park();
    assert!(get(&mut reader, 2).is_some());
    assert!(reader.seat().outside().rings() > 0, "the writer sleeps because of that");
    publish(&mut ring, 1);
}

#[test]
fn no_acknowledgement_is_waited_for_from_who_asked_for_that_and_every_one_from_others() {
    for features in [NO_ACK, LEASE.union(NO_ACK), WITH_HINT.union(NO_ACK)] {
        let mut ring = HeapRing::new(2, Policy::STRICT_WAIT);
        let (mut reader, mut silent) = (ring.join(STRICT, LEASE), ring.join(STRICT, features));
        let mut clock = StallClock::new(&Timeouts::default());
        publish(&mut ring, 2);
        for seq in 1..=10 {
            let stalled = ring.writer.claim().unwrap_err();
            assert_eq!(stalled, ring.writer.stalled().unwrap());
            assert_eq!((stalled.waiting_for_acks, stalled.waiting_for_leases), (0b10, 0));
            assert!(!clock.stalled(Instant::ZERO, &stalled, ring.writer.members()));
            let frame = reader.next().unwrap();
            assert_eq!((frame.seq().get(), frame.lost()), (seq, 0));
            frame.release().unwrap();
            publish(&mut ring, 1);
            clock.clear();
        }
        // It may look, too, and learns what it missed.
        assert_eq!(silent.next().map(|frame| (frame.seq().get(), frame.lost())), Some((11, 0)));
        publish(&mut ring, 0);
        assert_eq!(ring.roster.take_accused().count(), 0);
    }
}

#[test]
fn a_lease_of_who_need_not_acknowledge_is_waited_for_and_ends_in_time() {
    let mut ring = HeapRing::new(1, Policy::STRICT_WAIT);
    let mut reader = ring.join(STRICT, LEASE.union(NO_ACK));
    let mut clock = StallClock::new(&Timeouts::default());
    publish(&mut ring, 3);
    let frame = reader.next().unwrap();
    let stalled = ring.writer.claim().unwrap_err();
    assert_eq!((stalled.waiting_for_acks, stalled.waiting_for_leases), (0, 0b10));
    assert!(!clock.stalled(Instant::ZERO, &stalled, ring.writer.members()));
    let late = Instant::ZERO + Timeouts::default().lease;
    assert!(clock.stalled(late, &stalled, ring.writer.members()));
    let accused: Vec<_> = ring.roster.take_accused().map(|(bit, _)| bit).collect();
    assert_eq!(accused, [reader.seat().bit()]);
    ring.roster.leave(late, reader.seat().bit(), Departure::Abrupt);
    publish(&mut ring, 1);
    assert_eq!(frame.check(), Err(FrameLost::Evicted));
    assert!(get(&mut reader, 4).is_none_or(|frame| frame.check() == Err(FrameLost::Evicted)));
}

#[test]
fn what_was_asked_for_ends_with_who_asked() {
    let mut ring = HeapRing::new(1, Policy::STRICT_WAIT);
    for _ in 0..3 {
        let reader = ring.join(STRICT, NO_ACK);
        publish(&mut ring, 3);
        ring.roster.leave(Instant::ZERO, reader.seat().bit(), Departure::Clean);
        let mut next = ring.join(STRICT, LEASE);
        assert_eq!(next.seat().bit(), reader.seat().bit());
        publish(&mut ring, 1);
        assert_eq!(ring.writer.claim().unwrap_err().waiting_for_acks, 0b10);
        drop(next.next().unwrap());
        publish(&mut ring, 1);
        ring.roster.leave(Instant::ZERO, next.seat().bit(), Departure::Clean);
    }
}
