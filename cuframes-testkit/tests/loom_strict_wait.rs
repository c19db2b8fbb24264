//! Models of SYNC POINT ack: under STRICT_WAIT no frame is overwritten before every required subscriber is done with it
//! (I4, D-5, D-6).

#![cfg(loom)]
#![expect(clippy::unwrap_used, reason = "a failure ends the test")]

use std::sync::atomic::Ordering::Release;

use cuframes_core::shm::{Region, Word};
use cuframes_core::{Features, Policy, SubscriberMode};
use cuframes_testkit::loom::weakened::{AckOfNextFrame, AckWithoutNumber};
use cuframes_testkit::loom::{AsShipped, Field, LoomReader, LoomRing, Weakening, check};
use loom::thread;

const STRICT: SubscriberMode = SubscriberMode::STRICT_ORDER;
const WORDS: &[Field] =
    &[Field::GlobalSeq, Field::Seq, Field::LastSeenSeq, Field::AckBitmap, Field::LeaseBitmap];

/// Reads up to `frames` frames, each of which must be the one after the last.
fn read_on<K: Weakening>(reader: &mut LoomReader<K>, frames: usize, last: u64) -> u64 {
    (0..frames).map_while(|_| reader.read_next()).fold(last, |last, seen| {
        assert!(seen.seq == last + 1 && seen.lost == 0, "lost: {seen:?} after {last}");
        assert!(seen.is_whole() && seen.released.is_ok(), "lost: {seen:?}");
        seen.seq
    })
}

/// Readers read while the writer goes around the ring.
fn nobody_loses<K: Weakening, const N: usize>(slots: u64, features: [Features; N], frames: usize) {
    let mut ring = LoomRing::<K>::new(slots, Policy::STRICT_WAIT, WORDS);
    let readers = features.map(|features| ring.join(STRICT, features));
    for _ in 0..slots {
        ring.writer.publish().unwrap();
    }
    let reading = readers.map(|mut reader| {
        thread::spawn(move || {
            let last = read_on(&mut reader, frames, 0);
            (reader, last)
        })
    });
    for _ in 0..=slots {
        ring.writer.publish();
    }
    for reading in reading {
        let (mut reader, last) = reading.join().unwrap();
        let last = read_on(&mut reader, usize::MAX, last);
        assert_eq!(last, ring.writer.ring.newest(), "lost");
    }
}

fn one_slot_and_one_reader<K: Weakening>() {
    nobody_loses::<K, _>(1, [Features::NONE], 2);
}

fn three_slots_and_one_reader<K: Weakening>() {
    nobody_loses::<K, _>(3, [Features::LEASE], 2);
}

fn two_slots_and_two_readers<K: Weakening>() {
    nobody_loses::<K, _>(2, [Features::NONE, Features::LEASE], 2);
}

/// A foreign subscriber sets the bit of a frame that it has acknowledged once more, when the next may be there already.
fn late_bit<K: Weakening>() {
    let mut ring = LoomRing::<K>::new(1, Policy::STRICT_WAIT, WORDS);
    let reader = ring.join(STRICT, Features::NONE);
    ring.writer.publish().unwrap();
    let acknowledging = thread::spawn(move || {
        let seat = reader.ring.seat();
        let (slot, bit) = (seat.region().slot(0), seat.bit());
        slot.ack_bitmap.fetch_or(bit.mask(), Release);
        seat.region().subscriber(bit.get().into()).last_seen_seq.store(1, Release);
        slot.ack_bitmap.fetch_or(bit.mask(), Release);
    });
    ring.writer.publish();
    ring.writer.publish();
    acknowledging.join().unwrap();
    ring.writer.publish();
    ring.writer.publish();
    assert!(ring.writer.ring.newest() <= 2, "frame 2 was overwritten");
}

// 55 executions, under 1 s.
#[test]
fn nobody_loses_a_frame_of_one_slot() {
    check(one_slot_and_one_reader::<AsShipped>);
}

#[test]
#[should_panic(expected = "lost")]
fn a_frame_of_one_slot_is_lost_if_it_is_acknowledged_with_the_one_before() {
    check(one_slot_and_one_reader::<AckOfNextFrame>);
}

// 4355 executions, under 1 s.
#[test]
fn nobody_loses_a_frame_of_three_slots() {
    check(three_slots_and_one_reader::<AsShipped>);
}

#[test]
#[should_panic(expected = "lost")]
fn a_frame_of_three_slots_is_lost_if_it_is_acknowledged_with_the_one_before() {
    check(three_slots_and_one_reader::<AckOfNextFrame>);
}

// 202010 executions, 18 s.
#[test]
fn two_readers_lose_no_frame() {
    check(two_slots_and_two_readers::<AsShipped>);
}

#[test]
#[should_panic(expected = "lost")]
fn two_readers_lose_a_frame_that_is_acknowledged_with_the_one_before() {
    check(two_slots_and_two_readers::<AckOfNextFrame>);
}

// 282 executions, under 1 s.
#[test]
fn a_bit_that_is_set_late_does_not_count_for_the_next_frame() {
    check(late_bit::<AsShipped>);
}

#[test]
#[should_panic(expected = "frame 2 was overwritten")]
fn a_bit_that_is_set_late_counts_for_the_next_frame_if_no_number_is_given() {
    check(late_bit::<AckWithoutNumber>);
}
