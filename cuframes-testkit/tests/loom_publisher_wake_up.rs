//! Models of SYNC POINT publisher-wake-up: a writer that sleeps is woken by whatever lets it go on (I6, X-3).

#![cfg(loom)]
#![expect(clippy::unwrap_used, reason = "a failure ends the test")]

use cuframes_core::ring::Seq;
use cuframes_core::{Features, Policy, SubscriberMode};
use cuframes_testkit::heap::{PID, request};
use cuframes_testkit::loom::weakened::{NoFenceAfterPublisherParked, NoFenceAfterRelease, OneLook};
use cuframes_testkit::loom::{AsShipped, Field, LoomRing, Weakening, check};
use loom::thread;

const STRICT: SubscriberMode = SubscriberMode::STRICT_ORDER;

/// Under STRICT_WAIT the writer sleeps until the only frame is acknowledged.
fn for_an_acknowledgement<K: Weakening>() {
    let words = [Field::GlobalSeq, Field::Seq, Field::LastSeenSeq, Field::PublisherParked];
    let mut ring = LoomRing::<K>::new(1, Policy::STRICT_WAIT, &words);
    let mut reader = ring.join(STRICT, Features::WAKE_HINT);
    ring.writer.publish().unwrap();
    let reading = thread::spawn(move || reader.read_next());
    assert_eq!(ring.writer.publish_sleeping(), 2);
    reading.join().unwrap().unwrap();
}

/// Under DROP_OLDEST it sleeps if the only slot is leased when it wants it: by a reader that reads the frame, or by one
/// that has come too late for it.
fn for_a_release<K: Weakening>() {
    let words = [Field::GlobalSeq, Field::Seq, Field::LeaseBitmap, Field::PublisherParked];
    let mut ring = LoomRing::<K>::new(1, Policy::DROP_OLDEST, &words);
    let mut reader = ring.join(STRICT, Features::LEASE.union(Features::WAKE_HINT));
    ring.writer.publish().unwrap();
    let reading = thread::spawn(move || reader.read_next());
    assert_eq!(ring.writer.publish_sleeping(), 2);
    reading.join().unwrap();
}

/// As `for_an_acknowledgement` and `for_a_release`, for the slot of a number that is given: not the next one, which is free.
fn for_a_given_number<K: Weakening>(policy: Policy, features: Features) {
    let words =
        [Field::GlobalSeq, Field::Seq, Field::LastSeenSeq, Field::LeaseBitmap, Field::PublisherParked];
    let mut ring = LoomRing::<K>::new(2, policy, &words);
    let mut reader = ring.join(STRICT, features.union(Features::WAKE_HINT));
    ring.writer.publish().unwrap();
    let reading = thread::spawn(move || reader.read_next());
    assert_eq!(ring.writer.publish_sleeping_as(Seq::new(3).unwrap()), 3);
    reading.join().unwrap();
}

/// Somebody joins, who is waited for until it is known which frames it was promised.
fn for_a_join<K: Weakening>(ring_the_bell: bool) {
    let words = [Field::GlobalSeq, Field::Seq, Field::LastSeenSeq, Field::PublisherParked];
    let LoomRing { mut roster, mut writer, place } = LoomRing::<K>::new(1, Policy::STRICT_WAIT, &words);
    writer.publish().unwrap();
    let joining = thread::spawn(move || {
        roster.admit(PID, request(STRICT, Features::WAKE_HINT)).unwrap();
        if ring_the_bell {
            place.publisher_bell.ring();
        }
    });
    assert_eq!(writer.publish_sleeping(), 2);
    joining.join().unwrap();
}

// 115 executions, under 1 s.
#[test]
fn a_writer_that_sleeps_is_woken_by_an_acknowledgement() {
    check(for_an_acknowledgement::<AsShipped>);
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_writer_sleeps_for_ever_without_its_own_fence() {
    check(for_an_acknowledgement::<NoFenceAfterPublisherParked>);
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_writer_sleeps_for_ever_without_the_readers_fence() {
    check(for_an_acknowledgement::<NoFenceAfterRelease>);
}

// 521 executions, under 1 s.
#[test]
fn a_writer_that_sleeps_is_woken_by_a_release() {
    check(for_a_release::<AsShipped>);
}

// 14219 executions, under 1 s.
#[test]
fn a_writer_that_sleeps_is_woken_by_a_reader_that_gave_up() {
    check(for_a_release::<OneLook<AsShipped>>);
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_writer_sleeps_beside_a_free_slot_without_the_readers_fence() {
    check(for_a_release::<NoFenceAfterRelease>);
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_writer_sleeps_beside_a_free_slot_without_its_own_fence() {
    check(for_a_release::<OneLook<NoFenceAfterPublisherParked>>);
}

// 115 executions, under 1 s.
#[test]
fn a_writer_that_sleeps_for_a_given_number_is_woken_by_an_acknowledgement() {
    check(|| for_a_given_number::<AsShipped>(Policy::STRICT_WAIT, Features::NONE));
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_writer_sleeps_for_a_given_number_for_ever_without_the_readers_fence() {
    check(|| for_a_given_number::<NoFenceAfterRelease>(Policy::STRICT_WAIT, Features::NONE));
}

// 521 executions, under 1 s.
#[test]
fn a_writer_that_sleeps_for_a_given_number_is_woken_by_a_release() {
    check(|| for_a_given_number::<AsShipped>(Policy::DROP_OLDEST, Features::LEASE));
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_writer_sleeps_for_a_given_number_for_ever_without_its_own_fence() {
    check(|| {
        for_a_given_number::<OneLook<NoFenceAfterPublisherParked>>(Policy::DROP_OLDEST, Features::LEASE);
    });
}

// 134 executions, under 1 s.
#[test]
fn a_writer_that_sleeps_because_somebody_joins_is_woken_by_the_roster() {
    check(|| for_a_join::<AsShipped>(true));
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_writer_sleeps_for_ever_if_nobody_says_that_the_join_is_over() {
    check(|| for_a_join::<AsShipped>(false));
}
