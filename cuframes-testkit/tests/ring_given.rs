//! Frames that had their numbers before they came here (§5.1, §5.2): numbers are left out, and slots are not taken in turn.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a failure ends the test")]

use std::sync::atomic::Ordering::Relaxed;

use cuframes_core::ring::{ClaimAsError, Seq, Stalled};
use cuframes_core::roster::Departure;
use cuframes_core::shm::Region;
use cuframes_core::{Features, Instant, Policy, SubscriberMode};
use cuframes_testkit::heap::{HeapReader, HeapRing, PID, request};

const NEWEST: SubscriberMode = SubscriberMode::NEWEST_ONLY;
const STRICT: SubscriberMode = SubscriberMode::STRICT_ORDER;
const LEASE: Features = Features::LEASE;
const LAST: u64 = u64::MAX - 1;

fn number(seq: u64) -> Seq {
    Seq::new(seq).unwrap()
}

/// Who is in the way of a number: acknowledgements, leases, and the frame that it is about.
fn stall(ring: &mut HeapRing, seq: u64) -> (u64, u64, Option<u64>) {
    let Err(ClaimAsError::Stalled(stalled)) = ring.writer.claim_as(number(seq)).map(drop) else {
        panic!("{seq} is not stalled")
    };
    assert_eq!(ring.writer.stalled_as(number(seq)), Some(stalled));
    (stalled.waiting_for_acks, stalled.waiting_for_leases, stalled.frame().map(Seq::get))
}

fn passed(ring: &mut HeapRing, seq: u64) -> u64 {
    assert_eq!(ring.writer.stalled_as(number(seq)), None);
    match ring.writer.claim_as(number(seq)).map(drop) {
        Err(ClaimAsError::Passed { newest }) => newest,
        other => panic!("{other:?}"),
    }
}

/// The numbers and gaps that `next` hands out until it has nothing.
fn drain(reader: &mut HeapReader) -> Vec<(u64, u64)> {
    std::iter::from_fn(|| reader.next())
        .map(|frame| {
            assert_eq!(
                (frame.pts_ns().cast_unsigned(), frame.written_bytes()),
                (frame.seq().get(), frame.seq().get())
            );
            (frame.seq().get(), frame.lost())
        })
        .collect()
}

/// Every kind of subscriber of every kind of ring.
fn rings() -> impl Iterator<Item = (u64, Policy, SubscriberMode, Features)> {
    let sizes = [1, 2, 4, 16].into_iter();
    let policies = |size| [Policy::DROP_OLDEST, Policy::STRICT_WAIT].map(|policy| (size, policy));
    let modes = |(size, policy)| [NEWEST, STRICT].map(|mode| (size, policy, mode));
    let hint = Features::WAKE_HINT;
    let features =
        move |(size, policy, mode)| [hint, hint.union(LEASE)].map(|features| (size, policy, mode, features));
    sizes.flat_map(policies).flat_map(modes).flat_map(features)
}

#[test]
fn a_frame_arrives_under_the_number_that_it_was_given_however_far_that_is_and_the_gap_is_lost() {
    for (size, policy, mode, features) in rings() {
        for jump in [1, size.saturating_sub(1).max(1), size, size + 1, 1000, LAST - 2 * size - 3] {
            let mut ring = HeapRing::new(size, policy);
            let mut reader = ring.join(mode, features);
            for seq in 1..=size {
                ring.publish_as(seq);
                assert_eq!(drain(&mut reader), [(seq, 0)]);
            }
            assert!(reader.park());
            let seq = size + jump;
            let committed = ring.writer.claim_as(number(seq)).unwrap().commit(seq.cast_signed(), seq);
            assert_eq!((committed.seq.get(), committed.frames, committed.wake), (seq, 1, 0b10), "it sleeps");
            reader.unpark();
            assert_eq!(drain(&mut reader), [(seq, jump - 1)], "{size} {policy} {mode:?} {features} {jump}");
            // Awake, it is told nothing; and the numbers go on from there.
            for next in seq + 1..=seq + size {
                let claim = ring.writer.claim().unwrap();
                assert_eq!((claim.seq().get(), claim.slot()), (next, usize::try_from(next % size).unwrap()));
                assert_eq!(claim.commit(next.cast_signed(), next).wake, 0);
                assert_eq!(drain(&mut reader), [(next, 0)]);
            }
            assert!(reader.park(), "nothing is left");
        }
    }
}

#[test]
fn what_is_published_before_somebody_joins_is_not_lost_to_it_whatever_its_number() {
    for (size, policy, mode, features) in rings() {
        let mut ring = HeapRing::new(size, policy);
        let mut first = ring.join(mode, features);
        ring.publish_as(5000);
        assert_eq!(drain(&mut first), [(5000, 0)], "the first frame of the stream");
        let mut second = ring.join(mode, features);
        assert_eq!(drain(&mut second), [(5000, 0)], "the current one");
        ring.publish_as(7000);
        assert_eq!([drain(&mut first), drain(&mut second)], [[(7000, 1999)], [(7000, 1999)]]);
    }
}

#[test]
fn a_reader_in_order_gets_all_that_is_in_the_ring_across_every_gap() {
    let mut ring = HeapRing::new(4, Policy::DROP_OLDEST);
    let (mut strict, mut newest) = (ring.join(STRICT, LEASE), ring.join(NEWEST, Features::NONE));
    // Slots 1, 3, 2 and 0.
    for seq in [1, 7, 1002, 4000] {
        ring.publish_as(seq);
    }
    assert_eq!(drain(&mut strict), [(1, 0), (7, 5), (1002, 994), (4000, 2997)]);
    assert_eq!(drain(&mut newest), [(4000, 0)], "it has had no frame before");
    // Over 1002, in slot 2; the others stay where they are.
    ring.publish_as(LAST);
    assert_eq!(drain(&mut strict), [(LAST, LAST - 4001)]);
    assert_eq!([1, 7, 4000].map(|seq| strict.get(number(seq)).is_some()), [true; 3]);
    assert!([2, 1002, 4001].iter().all(|seq| strict.get(number(*seq)).is_none()));
}

#[test]
fn a_number_that_is_used_or_claimed_or_passed_is_refused_and_nothing_changes() {
    for policy in [Policy::DROP_OLDEST, Policy::STRICT_WAIT] {
        let mut ring = HeapRing::new(4, policy);
        let mut reader = ring.join(STRICT, LEASE);
        ring.publish_as(10);
        assert_eq!([1, 9, 10].map(|seq| passed(&mut ring, seq)), [10; 3]);
        let ticket = ring.writer.claim_as(number(12)).unwrap().detach();
        assert_eq!(ring.writer.newest_claimed(), 12);
        assert_eq!([10, 11, 12].map(|seq| passed(&mut ring, seq)), [12; 3], "12 is claimed");
        assert_eq!(ring.publish(13), 13);
        assert_eq!(drain(&mut reader).len(), 1, "13 waits for 12");
        let committed = ring.writer.commit(ticket, 12, 12);
        assert_eq!((committed.seq.get(), committed.frames), (12, 2));
        assert_eq!(reader.next().unwrap().seq(), number(12));
        assert_eq!(reader.next().unwrap().seq(), number(13));
        let refused = ring.writer.claim_as(number(13)).map(drop).unwrap_err();
        assert_eq!(refused.to_string(), "the number is not above the newest one, 13");
    }
}

#[test]
fn the_number_of_a_claim_that_was_dropped_and_lower_ones_are_free_again() {
    let mut ring = HeapRing::new(4, Policy::DROP_OLDEST);
    let mut reader = ring.join(STRICT, LEASE);
    ring.publish_as(1);
    drop(ring.writer.claim_as(number(9)).unwrap());
    assert!(reader.next().is_none(), "its slot is not valid");
    let ticket = ring.writer.claim_as(number(9)).unwrap().detach();
    let _ = ring.writer.cancel(ticket);
    assert_eq!(ring.publish_as(5), 5);
    assert_eq!(ring.writer.claim().unwrap().seq(), number(6));
    assert_eq!(drain(&mut reader), [(5, 0)]);
}

#[test]
fn drop_oldest_takes_the_slot_of_the_number_and_no_other() {
    let mut ring = HeapRing::new(2, Policy::DROP_OLDEST);
    let mut reader = ring.join(STRICT, LEASE);
    ring.publish_as(1);
    let held = reader.next().unwrap();
    for seq in [3, 101, LAST - 1] {
        assert_eq!(stall(&mut ring, seq), (0, 0b10, None));
    }
    assert!(held.is_intact() && ring.writer.stalled().is_none());
    assert_eq!(ring.publish_as(4), 4, "the other slot is free");
    assert_eq!(stall(&mut ring, 5), (0, 0b10, None));
    assert_eq!(held.release(), Ok(()));
    assert_eq!(ring.publish_as(5), 5);
    // Without a lease nobody is waited for.
    let mut slow = ring.join(STRICT, Features::NONE);
    let unleased = slow.next().unwrap();
    ring.publish_as(7);
    assert!(unleased.release().is_err());
}

#[test]
fn the_lease_of_somebody_who_was_evicted_does_not_count() {
    let mut ring = HeapRing::new(2, Policy::DROP_OLDEST);
    let mut reader = ring.join(STRICT, LEASE);
    ring.publish_as(1);
    let held = reader.next().unwrap();
    assert_eq!(stall(&mut ring, 3), (0, 0b10, None));
    ring.roster.leave(Instant::ZERO, reader.seat().bit(), Departure::Abrupt);
    assert_eq!(ring.publish_as(3), 3);
    assert!(held.release().is_err());
}

#[test]
fn a_slot_that_is_being_written_is_waited_for() {
    for policy in [Policy::DROP_OLDEST, Policy::STRICT_WAIT] {
        let mut ring = HeapRing::new(4, policy);
        let ticket = ring.writer.claim_as(number(6)).unwrap().detach();
        let Err(ClaimAsError::Stalled(stalled)) = ring.writer.claim_as(number(10)).map(drop) else {
            panic!("slot 2 is claimed")
        };
        assert!(stalled.unfinished && stalled.bits() == 0);
        assert_eq!(ring.writer.stalled_as(number(10)), Some(stalled));
        let other = ring.writer.claim_as(number(11)).unwrap();
        drop(other);
        let _ = ring.writer.commit(ticket, 6, 6);
        assert_eq!(ring.publish_as(10), 10);
    }
}

#[test]
fn strict_wait_waits_for_who_is_furthest_behind_first_and_then_for_the_others() {
    let mut ring = HeapRing::new(4, Policy::STRICT_WAIT);
    let (mut a, mut b) = (ring.join(STRICT, LEASE), ring.join(STRICT, Features::NONE));
    for seq in 1..=4 {
        ring.publish_as(seq);
    }
    // Slot 3. Both have three frames to read.
    assert_eq!(stall(&mut ring, 7), (0b110, 0, Some(1)));
    drop((b.next(), b.next()));
    assert_eq!(stall(&mut ring, 7), (0b010, 0, Some(1)), "b is at 3");
    drop(a.next());
    assert_eq!(stall(&mut ring, 7), (0b010, 0, Some(2)));
    drop(a.next());
    assert_eq!(stall(&mut ring, 7), (0b110, 0, Some(3)));
    drop(b.next());
    let three = a.next().unwrap();
    assert_eq!(stall(&mut ring, 7), (0b010, 0b010, Some(3)), "it is leased, too");
    drop(a.next());
    assert_eq!(stall(&mut ring, 7), (0, 0b010, Some(3)), "done with 4 and so with 3, but it holds that");
    drop(three);
    assert_eq!(ring.publish_as(7), 7);
    assert_eq!((drain(&mut a), drain(&mut b)), (vec![(7, 2)], vec![(4, 0), (7, 2)]), "nobody loses a frame");
    // From then on the next slot need not have the oldest frame, for a number that is not given, either.
    for seq in [10, 13, 15] {
        ring.publish_as(seq);
    }
    assert_eq!(ring.publish(0), 16);
    let stalled = ring.writer.claim().map(drop).unwrap_err();
    assert_eq!(
        (stalled.frame(), stalled.waiting_for_acks),
        (Some(number(10)), 0b110),
        "not 13, in the slot of 17"
    );
}

#[test]
fn a_frame_that_is_only_skipped_is_done_with_however_far_the_numbers_jump() {
    for (size, jump) in [(4, 2), (4, 1001), (16, 17)] {
        let mut ring = HeapRing::new(size, Policy::STRICT_WAIT);
        let mut newest = ring.join(NEWEST, LEASE);
        // It acknowledges by bits, as towards a publisher that knows no extension.
        let subscribed = ring.roster.admit(PID, request(NEWEST, Features::NONE)).unwrap();
        let mut plain = ring.attach(subscribed, NEWEST, Features::NONE, true);
        ring.publish_as(1);
        ring.publish_as(2);
        ring.publish_as(2 + jump);
        // Both keep it until the next comes.
        let held = (newest.next().unwrap(), plain.next().unwrap());
        assert_eq!((held.0.lost(), held.1.lost(), held.1.seq()), (0, 0, number(2 + jump)));
        let next = 2 + jump + (1..).find(|n| [1, 2].contains(&((2 + jump + n) % size))).unwrap();
        assert_eq!(ring.publish_as(next), next, "{size} {jump}");
    }
}

#[test]
fn a_reader_that_keeps_the_newest_frame_is_in_the_way_of_a_number_in_its_slot_only() {
    for policy in [Policy::DROP_OLDEST, Policy::STRICT_WAIT] {
        let mut ring = HeapRing::new(4, policy);
        let mut reader = ring.join(NEWEST, LEASE);
        let mut held = None;
        for seq in [1, 2, 3, 4, 9, 11, 1002] {
            ring.publish_as(seq);
            held = reader.next();
        }
        let Err(ClaimAsError::Stalled(stalled)) = ring.writer.claim_as(number(1006)).map(drop) else {
            panic!("the slot of 1002")
        };
        assert_eq!(stalled.bits(), 0b10);
        ring.publish_as(1007);
        drop(held);
        assert_eq!(drain(&mut reader), [(1007, 4)]);
        ring.publish_as(1010);
    }
}

#[test]
fn a_writer_that_sleeps_for_a_number_is_woken_and_its_claim_ends_the_sleep() {
    for policy in [Policy::DROP_OLDEST, Policy::STRICT_WAIT] {
        let mut ring = HeapRing::new(2, policy);
        let mut reader = ring.join(STRICT, LEASE.union(Features::WAKE_HINT));
        ring.publish_as(1);
        let held = reader.next().unwrap();
        ring.writer.park();
        let stalled = ring.writer.claim_as(number(3)).map(drop).unwrap_err();
        assert!(matches!(stalled, ClaimAsError::Stalled(stalled) if stalled.bits() == 0b10));
        assert!(ring.writer.is_parked(), "it still has to wait");
        let refused = ring.writer.claim_as(number(1)).map(drop).unwrap_err();
        assert!(matches!(refused, ClaimAsError::Passed { .. }) && ring.writer.is_parked());
        drop(held);
        assert_eq!(reader.seat().outside().rings(), 1);
        ring.publish_as(3);
        assert!(!ring.writer.is_parked());
        assert_eq!(ring.region.header.publisher_parked.load(Relaxed), 0);
    }
}

#[test]
fn a_writer_that_waits_for_a_number_puts_right_what_is_written_over_its_frames() {
    let mut ring = HeapRing::new(4, Policy::STRICT_WAIT);
    let mut reader = ring.join(STRICT, LEASE);
    for seq in [1, 6, 1003] {
        ring.publish_as(seq);
    }
    ring.region.header().global_seq.store(0, Relaxed);
    ring.region.slot(2).seq.store(77, Relaxed);
    assert_eq!(stall(&mut ring, 1007), (0b10, 0, Some(1)));
    assert_eq!(drain(&mut reader), [(1, 0), (6, 4), (1003, 996)]);
    ring.publish_as(1007);
}

#[test]
fn after_the_greatest_number_there_is_none_and_readers_bear_it() {
    for (size, policy, mode, features) in rings() {
        let mut ring = HeapRing::new(size, policy);
        let mut reader = ring.join(mode, features);
        ring.publish_as(LAST - 1);
        assert_eq!(drain(&mut reader), [(LAST - 1, 0)]);
        assert_eq!(ring.writer.claim().unwrap().commit(LAST.cast_signed(), LAST).seq, number(LAST));
        assert_eq!(drain(&mut reader), [(LAST, 0)]);
        assert_eq!(ring.writer.stalled(), Some(Stalled::NO_NUMBER));
        let stalled = ring.writer.claim().map(drop).unwrap_err();
        assert_eq!((stalled, stalled.bits(), stalled.frame()), (Stalled::NO_NUMBER, 0, None));
        assert_eq!(stalled.to_string(), "the greatest number is used: publish a new stream");
        assert_eq!(passed(&mut ring, LAST), LAST);
        assert!(reader.park() && reader.next().is_none() && reader.get(number(LAST)).is_some());
    }
}

#[test]
fn drop_oldest_tries_no_number_after_the_greatest() {
    let mut ring = HeapRing::new(4, Policy::DROP_OLDEST);
    let mut reader = ring.join(NEWEST, LEASE);
    // LAST is in slot 2.
    ring.publish_as(2);
    let held = reader.next().unwrap();
    ring.publish_as(LAST - 1);
    let stalled = ring.writer.claim().map(drop).unwrap_err();
    assert_eq!((stalled.waiting_for_leases, ring.writer.stalled()), (0b10, Some(stalled)));
    drop(held);
    assert_eq!(ring.publish(0), LAST);
}
