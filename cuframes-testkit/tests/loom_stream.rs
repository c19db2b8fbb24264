//! Models of a whole stream under STRICT_WAIT: both sides sleep and wake each other, and every frame arrives (I4, I6).

#![cfg(loom)]
#![expect(clippy::unwrap_used, reason = "a failure ends the test")]

use cuframes_core::{Features, Policy, SubscriberMode};
use cuframes_testkit::loom::weakened::{NoFenceAfterParked, NoFenceAfterPublisherParked};
use cuframes_testkit::loom::{AsShipped, Field, LoomRing, Weakening, check};
use loom::thread;

/// Three frames through a ring of `slots` slots.
fn stream<K: Weakening>(slots: u64, features: Features) {
    let words = [
        Field::GlobalSeq,
        Field::Seq,
        Field::LastSeenSeq,
        Field::LeaseBitmap,
        Field::Parked,
        Field::PublisherParked,
    ];
    let mut ring = LoomRing::<K>::new(slots, Policy::STRICT_WAIT, &words);
    let mut reader = ring.join(SubscriberMode::STRICT_ORDER, features.union(Features::WAKE_HINT));
    let reading = thread::spawn(move || [1, 2, 3].map(|_| reader.read_sleeping()));
    for seq in 1..=3 {
        assert_eq!(ring.writer.publish_sleeping(), seq);
    }
    for (seq, seen) in (1..).zip(reading.join().unwrap()) {
        assert!(seen.seq == seq && seen.lost == 0 && seen.is_whole() && seen.released.is_ok(), "{seen:?}");
    }
}

// 77235 executions, 9 s.
#[test]
fn three_frames_arrive_through_one_slot() {
    check(|| stream::<AsShipped>(1, Features::NONE));
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_stream_through_one_slot_stops_without_the_subscribers_fence_before_it_sleeps() {
    check(|| stream::<NoFenceAfterParked>(1, Features::NONE));
}

// 59005 executions, 8 s.
#[test]
fn three_leased_frames_arrive_through_two_slots() {
    check(|| stream::<AsShipped>(2, Features::LEASE));
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_stream_through_two_slots_stops_without_the_writers_fence_before_it_sleeps() {
    check(|| stream::<NoFenceAfterPublisherParked>(2, Features::LEASE));
}
