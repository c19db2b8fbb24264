//! Models of SYNC POINT ack: under STRICT_WAIT no frame is overwritten before every required subscriber is done with it
//! (I4, D-5, D-6).

#![cfg(loom)]
#![expect(clippy::unwrap_used, reason = "a failure ends the test")]

use std::sync::atomic::Ordering::{Acquire, Release};

use cuframes_core::ring::Seq;
use cuframes_core::shm::{Region, Word};
use cuframes_core::{Features, Policy, SubscriberMode};
use cuframes_testkit::loom::weakened::{AckOfNextFrame, AckWithoutNumber, JoinsWithoutEffect, NoFenceInAck};
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
fn nobody_loses<K: Weakening, const N: usize>(
    (slots, words): (u64, &[Field]),
    features: [Features; N],
    frames: usize,
) {
    let mut ring = LoomRing::<K>::new(slots, Policy::STRICT_WAIT, words);
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
    nobody_loses::<K, _>((1, WORDS), [Features::NONE], 2);
}

fn three_slots_and_one_reader<K: Weakening>() {
    nobody_loses::<K, _>((3, WORDS), [Features::LEASE], 2);
}

fn two_slots_and_two_readers<K: Weakening>() {
    // With the lease bits four times as many.
    let words = [Field::GlobalSeq, Field::Seq, Field::LastSeenSeq, Field::AckBitmap];
    nobody_loses::<K, _>((2, &words), [Features::NONE, Features::LEASE], 2);
}

/// The numbers are given, so that the slots are not taken in turn: of each frame somebody who reads in order sees the bytes,
/// or that it was not published.
fn given_numbers<K: Weakening>(features: Features) {
    let mut ring = LoomRing::<K>::new(2, Policy::STRICT_WAIT, WORDS);
    let mut reader = ring.join(STRICT, features);
    for _ in 0..2 {
        ring.writer.publish().unwrap();
    }
    let take = |reader: &mut LoomReader<K>, most| -> Vec<u64> {
        let seen = (0..most).map_while(|_| reader.read_next()).inspect(|seen| {
            assert!(seen.is_whole() && seen.released.is_ok(), "lost: {seen:?}");
        });
        seen.map(|seen| seen.seq).collect()
    };
    let reading = thread::spawn(move || {
        let taken = take(&mut reader, 2);
        (reader, taken)
    });
    let mut published = vec![1, 2];
    // The slot of frame 2, while frame 1 is there; then that of frame 1.
    for seq in [4, 9] {
        published.extend(ring.writer.publish_as(Seq::new(seq).unwrap()));
    }
    let (mut reader, mut taken) = reading.join().unwrap();
    taken.extend(take(&mut reader, usize::MAX));
    assert_eq!(taken, published, "lost");
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

/// Two frames are released at once. What the publisher is told of it never goes back; and if somebody else says something
/// there, it is told again.
fn released_at_once<K: Weakening>(forged: bool) {
    let mut ring = LoomRing::<K>::new(2, Policy::STRICT_WAIT, &[Field::LastSeenSeq]);
    let mut reader = ring.join(STRICT, Features::LEASE);
    ring.writer.publish().unwrap();
    ring.writer.publish().unwrap();
    let releasing =
        [(); 2].map(|()| reader.ring.next().unwrap()).map(|frame| thread::spawn(move || drop(frame)));
    let word = &ring.place.region.subscriber(1).last_seen_seq;
    if forged {
        word.store(77, Release);
    } else {
        let seen = [(); 2].map(|()| word.load(Acquire));
        assert!(seen.is_sorted(), "it went back: {seen:?}");
    }
    for releasing in releasing {
        releasing.join().unwrap();
    }
    let _ = reader.ring.park();
    assert_eq!(word.load(Acquire), 2, "not acknowledged");
}

// 55 executions, under 1 s.
#[test]
fn nobody_loses_a_frame_of_one_slot() {
    check(one_slot_and_one_reader::<AsShipped>);
}

#[test]
#[should_panic(expected = "lost")]
fn a_frame_of_one_slot_is_lost_if_nobody_is_waited_for() {
    check(one_slot_and_one_reader::<JoinsWithoutEffect>);
}

// 27752 executions, 4 s.
#[test]
fn nobody_loses_a_frame_of_three_slots() {
    check(three_slots_and_one_reader::<AsShipped>);
}

#[test]
#[should_panic(expected = "lost")]
fn a_frame_of_three_slots_is_lost_if_it_is_acknowledged_with_the_one_before() {
    check(three_slots_and_one_reader::<AckOfNextFrame>);
}

// 113510 executions, 13 s.
#[test]
fn two_readers_lose_no_frame() {
    check(two_slots_and_two_readers::<AsShipped>);
}

#[test]
#[should_panic(expected = "lost")]
fn two_readers_lose_a_frame_that_is_acknowledged_with_the_one_before() {
    check(two_slots_and_two_readers::<AckOfNextFrame>);
}

// 2161 executions, under 1 s.
#[test]
fn nobody_loses_a_frame_whose_number_was_given() {
    check(|| given_numbers::<AsShipped>(Features::LEASE));
}

#[test]
#[should_panic(expected = "lost")]
fn a_frame_is_lost_to_a_given_number_if_it_is_acknowledged_with_the_one_before() {
    check(|| given_numbers::<AckOfNextFrame>(Features::NONE));
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

// 3798 executions, under 1 s.
#[test]
fn an_acknowledgement_never_goes_back() {
    check(|| released_at_once::<AsShipped>(false));
}

#[test]
#[should_panic(expected = "it went back")]
fn an_acknowledgement_goes_back_without_the_fence_between_two_looks() {
    check(|| released_at_once::<NoFenceInAck>(false));
}

// 1902 executions, under 1 s.
#[test]
fn an_acknowledgement_is_said_again_if_somebody_else_wrote_there() {
    check(|| released_at_once::<AsShipped>(true));
}

#[test]
#[should_panic(expected = "not acknowledged")]
fn an_acknowledgement_is_not_said_again_if_only_its_bit_is_set() {
    check(|| released_at_once::<AckWithoutNumber>(true));
}
