//! Models of SYNC POINTs lease and release: a frame is not overwritten while it is leased (I3, X-2).

#![cfg(loom)]
#![expect(clippy::unwrap_used, reason = "a failure ends the test")]

use std::sync::atomic::Ordering::Relaxed;

use cuframes_core::ring::Seq;
use cuframes_core::roster::Departure;
use cuframes_core::shm::{Region, Word};
use cuframes_core::{Features, Instant, Policy, SubscriberMode};
use cuframes_testkit::loom::weakened::{
    ForgetsLeases, LeavesUnsaid, NoState, OneLook, WeakFenceAfterInvalid, WeakFenceAfterLease,
};
use cuframes_testkit::loom::{AsShipped, Field, LoomRing, Seen, Weakening, check};
use loom::thread;

const WORDS: &[Field] = &[Field::GlobalSeq, Field::Seq, Field::LeaseBitmap];

/// Whatever was read under a lease is whole.
fn judge(seen: &[Seen]) {
    for seen in seen {
        assert!(seen.is_whole(), "overwritten: {seen:?}");
    }
}

fn no_lease_is_left<K: Weakening>(ring: &LoomRing<K>) {
    for slot in 0..3 {
        let leases = ring.place.region.slot(slot).lease_bitmap.load(Relaxed);
        assert_eq!(leases, 0, "a lease of slot {slot} is left behind");
    }
}

/// The writer wants the only slot while a reader takes its frame and gives it back.
fn wanted<K: Weakening>() -> (LoomRing<K>, Option<Seen>, Option<u64>) {
    let mut ring = LoomRing::<K>::new(1, Policy::DROP_OLDEST, WORDS);
    ring.writer.publish().unwrap();
    let mut reader = ring.join(SubscriberMode::NEWEST_ONLY, Features::LEASE);
    let reading = thread::spawn(move || reader.read_next());
    let published = ring.writer.publish();
    (ring, reading.join().unwrap(), published)
}

fn frame_is_whole<K: Weakening>() {
    let (_, seen, _) = wanted::<K>();
    judge(seen.as_slice());
}

fn frame_is_not_called_lost<K: Weakening>() {
    let (ring, seen, _) = wanted::<K>();
    if let Some(seen) = seen {
        assert_eq!(seen.released, Ok(()), "called lost: {seen:?}");
    }
    no_lease_is_left(&ring);
}

/// As `wanted`, by the frame's number; a reader that gives it back says whether it holds its lease.
fn wanted_by_number<K: Weakening>() {
    let mut ring = LoomRing::<K>::new(1, Policy::DROP_OLDEST, WORDS);
    ring.writer.publish().unwrap();
    let mut reader = ring.join(SubscriberMode::NEWEST_ONLY, Features::LEASE.union(Features::NO_ACK));
    let reading = thread::spawn(move || {
        let frame = reader.ring.get(Seq::FIRST)?;
        let is_held = frame.check();
        Some((is_held, reader.read(frame)))
    });
    let published = ring.writer.publish();
    let seen = reading.join().unwrap();
    assert!(seen.is_some() || published.is_some(), "both backed off");
    if let Some((is_held, seen)) = seen {
        judge(&[seen]);
        assert_eq!((is_held, seen.released), (Ok(()), Ok(())), "overwritten: {seen:?}");
        assert_eq!(seen.seq, 1);
    }
    no_lease_is_left(&ring);
}

/// The reader is evicted and the slot is overwritten while it reads and releases its frame.
fn evicted_frame_is_called_lost<K: Weakening>() {
    let words = [WORDS, &[Field::State]].concat();
    let mut ring = LoomRing::<K>::new(1, Policy::DROP_OLDEST, &words);
    let mut reader = ring.join(SubscriberMode::NEWEST_ONLY, Features::LEASE);
    ring.writer.publish().unwrap();
    let bit = reader.ring.seat().bit();
    let frame = reader.ring.next().unwrap();
    let reading = thread::spawn(move || reader.read(frame));
    let LoomRing { mut roster, mut writer, .. } = ring;
    let writing = thread::spawn(move || writer.publish());
    roster.leave(Instant::ZERO, bit, Departure::Abrupt);
    let seen = reading.join().unwrap();
    assert!(seen.released.is_err() || seen.is_whole(), "called intact: {seen:?}");
    writing.join().unwrap();
}

/// The writer wants the slot of a number that is given while a reader takes the frame there, and the other slot is free.
fn given_number<K: Weakening>() {
    let mut ring = LoomRing::<K>::new(2, Policy::DROP_OLDEST, WORDS);
    ring.writer.publish().unwrap();
    let mut reader = ring.join(SubscriberMode::NEWEST_ONLY, Features::LEASE);
    let reading = thread::spawn(move || reader.read_next());
    let published = ring.writer.publish_as(Seq::new(5).unwrap());
    assert!(published.is_none_or(|seq| seq == 5), "another number");
    let seen = reading.join().unwrap();
    judge(seen.as_slice());
    assert!(seen.is_some() || published.is_some(), "both backed off");
    no_lease_is_left(&ring);
}

fn somebody_gets_the_slot<K: Weakening>() {
    let (_, seen, published) = wanted::<K>();
    assert!(seen.is_some() || published.is_some(), "both backed off");
}

/// One reader holds two frames at once while the writer goes around a ring of three.
fn two_frames<K: Weakening>() {
    let mut ring = LoomRing::<K>::new(3, Policy::DROP_OLDEST, WORDS);
    let mut reader = ring.join(SubscriberMode::STRICT_ORDER, Features::LEASE);
    ring.writer.publish().unwrap();
    ring.writer.publish().unwrap();
    let reading = thread::spawn(move || {
        let frames = [reader.ring.next(), reader.ring.next()];
        frames.map(|frame| frame.map(|frame| reader.read(frame)))
    });
    for _ in 0..3 {
        ring.writer.publish();
    }
    let seen: Vec<_> = reading.join().unwrap().into_iter().flatten().collect();
    judge(&seen);
    no_lease_is_left(&ring);
}

/// Two readers lease the two frames of a ring, of which the writer wants one or the other.
fn two_readers<K: Weakening>() {
    let mut ring = LoomRing::<K>::new(2, Policy::DROP_OLDEST, WORDS);
    let readers = [SubscriberMode::STRICT_ORDER, SubscriberMode::NEWEST_ONLY]
        .map(|mode| ring.join(mode, Features::LEASE));
    ring.writer.publish().unwrap();
    ring.writer.publish().unwrap();
    let reading = readers.map(|mut reader| thread::spawn(move || reader.read_next()));
    ring.writer.publish();
    for reading in reading {
        judge(reading.join().unwrap().as_slice());
    }
    no_lease_is_left(&ring);
}

/// The reader looks after its lease bits while it holds a frame that the writer wants; and once more when it holds none,
/// after somebody else has written one.
fn tidied<K: Weakening>() {
    let mut ring = LoomRing::<K>::new(1, Policy::DROP_OLDEST, WORDS);
    ring.writer.publish().unwrap();
    let mut reader = ring.join(SubscriberMode::NEWEST_ONLY, Features::LEASE);
    let reading = thread::spawn(move || {
        let frame = reader.ring.next();
        let _ = reader.ring.park();
        let seen = frame.map(|frame| reader.read(frame));
        (reader, seen)
    });
    ring.writer.publish();
    let (reader, seen) = reading.join().unwrap();
    judge(seen.as_slice());
    ring.place.region.slot(0).lease_bitmap.fetch_or(reader.ring.seat().bit().mask(), Relaxed);
    let _ = reader.ring.park();
    no_lease_is_left(&ring);
}

/// Somebody else has given the lease of a frame back, so there is another one in its slot. The reader takes that while
/// another thread releases the first.
fn given_back_twice<K: Weakening>() {
    let mut ring = LoomRing::<K>::new(1, Policy::DROP_OLDEST, WORDS);
    let mut reader = ring.join(SubscriberMode::NEWEST_ONLY, Features::LEASE);
    ring.writer.publish().unwrap();
    let first = reader.ring.next().unwrap();
    ring.place.region.slot(0).lease_bitmap.store(0, Relaxed);
    ring.writer.publish().unwrap();
    let releasing = thread::spawn(move || drop(first));
    let frame = reader.ring.next();
    releasing.join().unwrap();
    ring.writer.publish();
    judge(frame.map(|frame| reader.read(frame)).as_slice());
    no_lease_is_left(&ring);
}

// 336 executions, under 1 s.
#[test]
fn a_leased_frame_is_not_overwritten() {
    check(frame_is_whole::<AsShipped>);
}

#[test]
#[should_panic(expected = "overwritten")]
fn a_leased_frame_is_overwritten_with_a_weaker_fence_in_the_writer() {
    check(frame_is_whole::<WeakFenceAfterInvalid>);
}

#[test]
#[should_panic(expected = "overwritten")]
fn a_leased_frame_is_overwritten_with_a_weaker_fence_in_the_reader() {
    check(frame_is_whole::<WeakFenceAfterLease>);
}

// 336 executions, under 1 s.
#[test]
fn a_leased_frame_is_not_called_lost_while_its_number_is_put_back() {
    check(frame_is_not_called_lost::<AsShipped>);
}

#[test]
#[should_panic(expected = "called lost")]
fn a_leased_frame_is_called_lost_if_the_region_does_not_say_whose_the_bit_is() {
    check(frame_is_not_called_lost::<NoState>);
}

// 11043 executions, 2 s.
#[test]
fn a_frame_whose_lease_ended_is_not_called_intact_when_it_was_overwritten() {
    check(evicted_frame_is_called_lost::<AsShipped>);
}

#[test]
#[should_panic(expected = "called intact")]
fn a_frame_whose_lease_ended_is_called_intact_if_the_region_does_not_say_that_the_reader_left() {
    check(evicted_frame_is_called_lost::<LeavesUnsaid>);
}

// 75 executions, under 1 s.
#[test]
fn a_frame_that_was_had_by_its_number_is_not_overwritten() {
    check(wanted_by_number::<AsShipped>);
}

#[test]
#[should_panic(expected = "overwritten")]
fn a_frame_that_was_had_by_its_number_is_overwritten_with_a_weaker_fence_in_the_reader() {
    check(wanted_by_number::<WeakFenceAfterLease>);
}

// 336 executions, under 1 s.
#[test]
fn a_leased_frame_is_not_overwritten_for_a_given_number() {
    check(given_number::<AsShipped>);
}

#[test]
#[should_panic(expected = "overwritten")]
fn a_leased_frame_is_overwritten_for_a_given_number_with_a_weaker_fence_in_the_writer() {
    check(given_number::<WeakFenceAfterInvalid>);
}

// 336 executions, under 1 s.
#[test]
fn the_writer_or_the_reader_gets_the_slot() {
    check(somebody_gets_the_slot::<AsShipped>);
}

#[test]
#[should_panic(expected = "both backed off")]
fn both_back_off_if_the_reader_looks_only_once() {
    check(somebody_gets_the_slot::<OneLook<AsShipped>>);
}

// 30366 executions, 4 s.
#[test]
fn frames_that_are_leased_at_once_are_not_overwritten() {
    check(two_frames::<AsShipped>);
}

#[test]
#[should_panic(expected = "overwritten")]
fn frames_that_are_leased_at_once_are_overwritten_with_a_weaker_fence() {
    check(two_frames::<WeakFenceAfterInvalid>);
}

// Two readers that look for as long as it takes would let each other look for ever.
// 38063 executions, 6 s.
#[test]
fn frames_leased_by_two_readers_are_not_overwritten() {
    check(two_readers::<OneLook<AsShipped>>);
}

#[test]
#[should_panic(expected = "overwritten")]
fn frames_leased_by_two_readers_are_overwritten_with_a_weaker_fence() {
    check(two_readers::<OneLook<WeakFenceAfterLease>>);
}

// 338 executions, under 1 s.
#[test]
fn a_reader_that_looks_after_its_leases_keeps_those_that_it_holds() {
    check(tidied::<AsShipped>);
}

#[test]
#[should_panic(expected = "overwritten")]
fn a_reader_that_does_not_know_what_it_holds_gives_it_back() {
    check(tidied::<ForgetsLeases>);
}

// 209 executions, under 1 s.
#[test]
fn the_lease_of_a_frame_does_not_end_with_that_of_the_one_before_in_the_slot() {
    check(given_back_twice::<AsShipped>);
}

#[test]
#[should_panic(expected = "overwritten")]
fn the_lease_of_a_frame_ends_with_that_of_the_one_before_if_the_reader_does_not_know_what_it_holds() {
    check(given_back_twice::<ForgetsLeases>);
}
