//! Joining, leaving, being evicted, and what happens to the bit afterwards (§4.2, D-5, D-8, D-19, D-31).

#![expect(clippy::unwrap_used, reason = "a failure ends the test")]

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use cuframes_core::error::ErrorCode;
use cuframes_core::ring::{Accusation, FrameLost, StallClock};
use cuframes_core::roster::Departure;
use cuframes_core::{Features, Instant, Policy, SubscriberBit, SubscriberMode, Timeouts};
use cuframes_testkit::heap::{HeapRing, PID, request};

const STRICT: SubscriberMode = SubscriberMode::STRICT_ORDER;
const LEASE: Features = Features::LEASE;

fn at(millis: i64) -> Instant {
    Instant::from_nanos(millis * 1_000_000)
}

fn bit(number: u64) -> SubscriberBit {
    SubscriberBit::new(number).unwrap()
}

fn admitted(ring: &mut HeapRing) -> Result<u8, ErrorCode> {
    ring.roster.admit(PID, request(STRICT, LEASE)).map(|subscribed| subscribed.bit.get())
}

fn accused(ring: &HeapRing) -> Vec<(u8, Accusation)> {
    ring.roster.take_accused().map(|(bit, of)| (bit.get(), of)).collect()
}

#[test]
fn thirty_one_subscribers_fit_and_the_next_is_told_too_many() {
    let mut ring = HeapRing::new(2, Policy::DROP_OLDEST);
    for expected in 1..=31 {
        assert_eq!(admitted(&mut ring), Ok(expected));
    }
    assert_eq!(admitted(&mut ring), Err(ErrorCode::TOO_MANY));
    assert_eq!(ring.region.header.subscriber_bitmap.load(Relaxed), 0xFFFF_FFFE);
    assert_eq!(ring.roster.members().count(), 31);
    ring.roster.leave(at(0), bit(17), Departure::Clean);
    assert_eq!(admitted(&mut ring), Ok(17));
}

#[test]
fn the_bit_of_who_said_goodbye_is_free_at_once_and_its_slot_is_clean() {
    let mut ring = HeapRing::new(2, Policy::STRICT_WAIT);
    drop(ring.join(STRICT, LEASE.union(Features::WAKE_HINT)));
    ring.roster.leave(at(0), bit(1), Departure::Clean);
    let words = &ring.region.subscribers[1];
    let all = [&words.state, &words.consumer_pid, &words.last_seen_seq, &words.wake_mode, &words.parked];
    assert!(
        all.into_iter().chain([&words.term]).chain(&words.consumer_name).all(|word| word.load(Relaxed) == 0)
    );
    assert_eq!(ring.region.header.subscriber_bitmap.load(Relaxed), 0);
    assert_eq!(ring.roster.poll_timeout(), None);
    assert_eq!(admitted(&mut ring), Ok(1));
}

#[test]
fn the_bit_of_who_vanished_is_quarantined_until_its_time_is_over() {
    let mut ring = HeapRing::new(2, Policy::DROP_OLDEST);
    assert_eq!(admitted(&mut ring), Ok(1));
    ring.roster.leave(at(500), bit(1), Departure::Abrupt);
    assert_eq!(ring.region.subscribers[1].state.load(Relaxed), 3);
    assert_eq!(admitted(&mut ring), Ok(2));
    assert_eq!(ring.roster.poll_timeout(), Some(at(10_500)));
    assert_eq!(ring.roster.handle_timeout(at(10_499)), 0);
    assert_eq!(admitted(&mut ring), Ok(3));
    // A late lease of the vanished one, which nobody but its successor would inherit.
    ring.region.slots[0].lease_bitmap.fetch_or(0b10, Relaxed);
    assert_eq!(ring.roster.handle_timeout(at(10_500)), 0b10, "that bit is free now");
    assert_eq!(ring.roster.poll_timeout(), None);
    assert_eq!(ring.region.slots[0].lease_bitmap.load(Relaxed), 0);
    assert_eq!(admitted(&mut ring), Ok(1));
}

#[test]
fn a_quarantine_ends_when_the_process_is_gone() {
    let mut ring = HeapRing::new(2, Policy::DROP_OLDEST);
    assert_eq!(admitted(&mut ring), Ok(1));
    ring.roster.process_gone(bit(1));
    assert_eq!(admitted(&mut ring), Ok(2), "who is still subscribed keeps the bit");
    ring.roster.leave(at(0), bit(1), Departure::Abrupt);
    ring.roster.process_gone(bit(1));
    assert_eq!(admitted(&mut ring), Ok(1));
}

#[test]
fn who_leaves_is_not_waited_for_any_more() {
    let mut ring = HeapRing::new(1, Policy::STRICT_WAIT);
    let (mut gone, mut good) = (ring.join(STRICT, LEASE), ring.join(STRICT, LEASE));
    ring.publish(0);
    let held = gone.next().unwrap();
    drop(good.next());
    assert_eq!(ring.writer.claim().unwrap_err().bits(), 0b10);
    ring.roster.leave(at(0), bit(1), Departure::Abrupt);
    assert_eq!(ring.publish(0), 2);
    assert_eq!(held.release(), Err(FrameLost::Evicted));
    let words = &ring.region.subscribers[1];
    assert_eq!(words.last_seen_seq.load(Relaxed), 0, "an evicted frame leaves the region alone");
}

#[test]
fn a_frame_that_outlives_its_bit_does_not_touch_the_next_holder_of_it() {
    let mut ring = HeapRing::new(2, Policy::DROP_OLDEST);
    let mut first = ring.join(STRICT, LEASE);
    ring.publish(0);
    let old = first.next().unwrap();
    ring.roster.leave(at(0), bit(1), Departure::Abrupt);
    ring.roster.handle_timeout(at(10_000));
    let mut second = ring.join(STRICT, LEASE);
    assert_eq!(second.seat().bit(), bit(1));
    let held = second.next().unwrap();
    assert_eq!((old.slot(), old.release()), (held.slot(), Err(FrameLost::Evicted)));
    assert_eq!(ring.region.slots[held.slot()].lease_bitmap.load(Relaxed), 0b10);
    assert_eq!(held.release(), Ok(()));
}

#[test]
fn a_frame_that_outlives_the_connection_leaves_the_region_alone() {
    let mut ring = HeapRing::new(2, Policy::DROP_OLDEST);
    let mut reader = ring.join(STRICT, LEASE);
    ring.publish(0);
    let frame = reader.next().unwrap();
    reader.seat().detach();
    assert_eq!(frame.release(), Err(FrameLost::Evicted));
    assert_eq!(ring.region.slots[1].lease_bitmap.load(Relaxed), 0b10);
}

#[test]
fn who_does_not_acknowledge_for_a_second_is_accused_by_the_publishers_own_clock() {
    let mut ring = HeapRing::new(1, Policy::STRICT_WAIT);
    let mut clock = StallClock::new(&Timeouts::default());
    let _reader = ring.join(STRICT, Features::NONE);
    ring.publish(0);
    // A stamp that the subscriber writes changes nothing (D-8).
    ring.region.subscribers[1].last_ack_ns.store(u64::MAX / 2, Relaxed);
    let mut stalled = |ring: &mut HeapRing, now| {
        let stalled = ring.writer.claim().unwrap_err();
        clock.stalled(now, &stalled, ring.writer.members()).then_some(clock.deadline())
    };
    assert_eq!(stalled(&mut ring, at(0)), None);
    assert_eq!(stalled(&mut ring, at(999)), None);
    assert_eq!(accused(&ring), []);
    assert_eq!(stalled(&mut ring, at(1000)), Some(Some(at(1000))));
    assert_eq!(accused(&ring), [(1, Accusation::Ack)]);
    assert_eq!(accused(&ring), [], "once");
}

#[test]
fn who_is_slow_but_moves_on_is_never_accused() {
    let mut ring = HeapRing::new(1, Policy::STRICT_WAIT);
    let mut clock = StallClock::new(&Timeouts::default());
    let mut reader = ring.join(STRICT, LEASE);
    for round in 0..5 {
        ring.publish(0);
        for now in [at(round * 900), at(round * 900 + 899)] {
            let stalled = ring.writer.claim().unwrap_err();
            assert!(!clock.stalled(now, &stalled, ring.writer.members()));
        }
        drop(reader.next().unwrap());
    }
    ring.publish(0);
    clock.clear();
    assert_eq!(clock.deadline(), None);
}

#[test]
fn who_holds_a_lease_for_two_seconds_while_the_ring_is_full_is_accused() {
    let mut ring = HeapRing::new(1, Policy::DROP_OLDEST);
    let mut clock = StallClock::new(&Timeouts::default());
    let mut reader = ring.join(STRICT, LEASE);
    ring.publish(0);
    let frame = reader.next().unwrap();
    for (now, over) in [(at(0), false), (at(1999), false), (at(2000), true)] {
        let stalled = ring.writer.claim().unwrap_err();
        assert_eq!(clock.stalled(now, &stalled, ring.writer.members()), over);
        assert_eq!(clock.deadline(), Some(at(2000)));
    }
    assert_eq!(accused(&ring), [(1, Accusation::Lease)]);
    ring.roster.leave(at(2000), bit(1), Departure::Abrupt);
    assert_eq!(ring.publish(0), 2);
    assert_eq!(frame.release(), Err(FrameLost::Evicted));
}

#[test]
fn under_strict_wait_the_time_of_a_lease_runs_while_others_do_not_acknowledge() {
    let mut ring = HeapRing::new(2, Policy::STRICT_WAIT);
    let mut clock = StallClock::new(&Timeouts::default());
    let (_hung, mut batch) = (ring.join(STRICT, LEASE), ring.join(STRICT, LEASE));
    ring.publish(0);
    ring.publish(0);
    let _held = batch.next().unwrap();
    // Its acknowledgement covers the frame that it holds.
    drop(batch.next().unwrap());
    let mut look = |ring: &mut HeapRing, now| {
        let stalled = ring.writer.stalled().unwrap();
        assert_eq!(ring.writer.claim().unwrap_err(), stalled);
        let over = clock.stalled(now, &stalled, ring.writer.members());
        (stalled.waiting_for_acks, stalled.waiting_for_leases, over)
    };
    assert_eq!(look(&mut ring, at(0)), (0b010, 0b100, false));
    assert_eq!(look(&mut ring, at(1000)), (0b010, 0b100, true));
    assert_eq!(accused(&ring), [(1, Accusation::Ack)]);
    ring.roster.leave(at(1000), bit(1), Departure::Abrupt);
    assert_eq!(look(&mut ring, at(1999)), (0, 0b100, false));
    assert_eq!(look(&mut ring, at(2000)), (0, 0b100, true));
    assert_eq!(accused(&ring), [(2, Accusation::Lease)]);
}

#[test]
fn an_accusation_does_not_hit_the_next_holder_of_the_bit() {
    let mut ring = HeapRing::new(1, Policy::STRICT_WAIT);
    let timeouts = Timeouts::default();
    let mut clock = StallClock::new(&timeouts);
    let _first = ring.join(STRICT, LEASE);
    ring.publish(0);
    let stalled = ring.writer.claim().unwrap_err();
    clock.stalled(at(0), &stalled, ring.writer.members());
    assert!(clock.stalled(at(0) + timeouts.consumer_ack, &stalled, ring.writer.members()));
    ring.roster.leave(at(1000), bit(1), Departure::Clean);
    let _second = ring.join(STRICT, LEASE);
    assert_eq!(accused(&ring), []);
    // And a clock that has run for the first does not run on for the second.
    assert!(!clock.stalled(at(2000), &stalled, ring.writer.members()));
    assert_eq!(clock.deadline(), Some(at(2000) + Duration::from_secs(1)));
}

#[test]
fn who_is_taken_out_of_the_way_and_put_back_again_is_accused_all_the_same() {
    // Somebody writes leases in the names of two others, in turn.
    let mut ring = HeapRing::new(1, Policy::DROP_OLDEST);
    let mut clock = StallClock::new(&Timeouts::default());
    let _named = [ring.join(STRICT, LEASE), ring.join(STRICT, LEASE)];
    ring.publish(0);
    let mut look = |ring: &mut HeapRing, leases, now| {
        ring.region.slots[0].lease_bitmap.store(leases, Relaxed);
        let stalled = ring.writer.claim().unwrap_err();
        clock.stalled(now, &stalled, ring.writer.members())
    };
    for now in (0..2000).step_by(200) {
        assert!(!look(&mut ring, 0b010, at(now)));
        assert!(!look(&mut ring, 0b100, at(now + 100)));
    }
    assert!(look(&mut ring, 0b010, at(2000)));
    assert_eq!(accused(&ring), [(1, Accusation::Lease)]);
    assert!(look(&mut ring, 0b100, at(2100)));
    assert_eq!(accused(&ring), [(2, Accusation::Lease)]);
}

#[test]
fn a_frame_waits_for_twice_the_longer_deadline_at_most_however_many_come_in_its_way() {
    let mut ring = HeapRing::new(1, Policy::DROP_OLDEST);
    let mut clock = StallClock::new(&Timeouts::default());
    let _named: Vec<_> = (0..5).map(|_| ring.join(STRICT, LEASE)).collect();
    ring.publish(0);
    let look = |ring: &mut HeapRing, clock: &mut StallClock, leases, now| {
        ring.region.slots[0].lease_bitmap.store(leases, Relaxed);
        let stalled = ring.writer.claim().unwrap_err();
        (clock.stalled(now, &stalled, ring.writer.members()), clock.deadline())
    };
    assert_eq!(look(&mut ring, &mut clock, 0b10, at(0)), (false, Some(at(2000))));
    assert_eq!(look(&mut ring, &mut clock, 0b100, at(1900)), (false, Some(at(3900))));
    assert_eq!(look(&mut ring, &mut clock, 0b1000, at(3800)), (false, Some(at(4000))));
    // Whose own time is over goes first, alone.
    assert!(look(&mut ring, &mut clock, 0b1100, at(4000)).0);
    assert_eq!(accused(&ring), [(2, Accusation::Lease)]);
    ring.roster.leave(at(4000), bit(2), Departure::Abrupt);
    assert!(look(&mut ring, &mut clock, 0b11000, at(4000)).0);
    assert_eq!(accused(&ring), [(3, Accusation::Lease), (4, Accusation::Lease)]);
    // The next frame has its own time.
    clock.clear();
    assert_eq!(look(&mut ring, &mut clock, 0b100000, at(5000)), (false, Some(at(7000))));
}

#[test]
fn a_publisher_knows_who_will_not_wake_it() {
    let mut ring = HeapRing::new(1, Policy::STRICT_WAIT);
    let _hinting = ring.join(STRICT, LEASE.union(Features::WAKE_HINT));
    let members = ring.writer.members();
    assert!(!members.any_silent(0b10));
    let _plain = ring.join(STRICT, Features::NONE);
    let members = ring.writer.members();
    assert!(members.any_silent(0b110) && !members.any_silent(0b10));
}

#[test]
fn a_plain_v1_subscriber_finds_zeros_in_what_v1_reserves() {
    let mut ring = HeapRing::new(2, Policy::DROP_OLDEST);
    let _plain = ring.join(STRICT, Features::NONE);
    let _leasing = ring.join(STRICT, LEASE);
    let reserved = |bit: usize| {
        let words = &ring.region.subscribers[bit];
        let extensions = [&words.wake_mode, &words.parked, &words.term];
        extensions.into_iter().chain(&words.reserved).map(|word| word.load(Relaxed)).collect::<Vec<_>>()
    };
    assert_eq!(reserved(1), [0; 8]);
    assert_eq!(reserved(2), [0, 0, 1, 0, 0, 0, 0, 0]);
}
