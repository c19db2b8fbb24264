//! Models of SYNC POINTs wake-up and publish: a subscriber that sleeps is woken by the next commit (I1, I6, X-3).

#![cfg(loom)]
#![expect(clippy::unwrap_used, reason = "a failure ends the test")]

use cuframes_core::{Features, Policy, SubscriberMode};
use cuframes_testkit::loom::weakened::{NoFenceAfterParked, NoFenceAfterPublication, NumberBeforeFrame};
use cuframes_testkit::loom::{AsShipped, Field, LoomRing, Weakening, check};
use loom::thread;

const WORDS: &[Field] = &[Field::GlobalSeq, Field::Seq, Field::Parked, Field::WakeMode];

/// A reader sleeps until it has the last of two frames.
fn sleeps<K: Weakening>() {
    let mut ring = LoomRing::<K>::new(1, Policy::DROP_OLDEST, WORDS);
    let mut reader = ring.join(SubscriberMode::NEWEST_ONLY, Features::WAKE_HINT);
    let reading = thread::spawn(move || while reader.read_sleeping().seq < 2 {});
    ring.writer.publish().unwrap();
    ring.writer.publish().unwrap();
    reading.join().unwrap();
}

/// Two readers sleep, of which one never says so.
fn two_sleep<K: Weakening>() {
    let mut ring = LoomRing::<K>::new(2, Policy::DROP_OLDEST, WORDS);
    let readers = [Features::WAKE_HINT, Features::NONE];
    let reading = readers.map(|features| {
        let mut reader = ring.join(SubscriberMode::NEWEST_ONLY, features);
        thread::spawn(move || reader.read_sleeping())
    });
    ring.writer.publish().unwrap();
    for reading in reading {
        reading.join().unwrap();
    }
}

// 36133 executions, 3 s.
#[test]
fn a_subscriber_that_sleeps_is_woken_by_the_next_commit() {
    check(sleeps::<AsShipped>);
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_subscriber_sleeps_for_ever_without_its_own_fence() {
    check(sleeps::<NoFenceAfterParked>);
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_subscriber_sleeps_for_ever_without_the_writers_fence() {
    check(sleeps::<NoFenceAfterPublication>);
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_subscriber_sleeps_beside_a_frame_whose_number_came_before_it() {
    check(sleeps::<NumberBeforeFrame>);
}

// 2898 executions, under 1 s.
#[test]
fn two_subscribers_that_sleep_are_woken_by_the_next_commit() {
    check(two_sleep::<AsShipped>);
}

#[test]
#[should_panic(expected = "deadlock")]
fn one_of_two_subscribers_sleeps_for_ever_without_its_own_fence() {
    check(two_sleep::<NoFenceAfterParked>);
}
