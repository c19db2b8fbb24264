//! Models of the membership while the writer publishes on another thread: who joins is promised what follows (SYNC POINT
//! join, D-5), who leaves holds nothing up, and what a leaver still writes hits nobody else (D-19, D-31).

#![cfg(loom)]
#![expect(clippy::unwrap_used, reason = "a failure ends the test")]

use std::mem::forget;

use cuframes_core::ring::{Accusation, StallClock};
use cuframes_core::roster::Departure;
use cuframes_core::{Features, Instant, Policy, SubscriberBit, SubscriberMode, Timeouts};
use cuframes_testkit::heap::{PID, request};
use cuframes_testkit::loom::weakened::{
    ExcusedWhileItJoins, LeavesWithoutEffect, NoFenceAfterPublication, NoFenceInJoin, SameTerm,
    SlotStaysValid, StateBeforeTerm,
};
use cuframes_testkit::loom::{AsShipped, Field, LoomRing, Weakening, check};
use loom::thread;

const STRICT: SubscriberMode = SubscriberMode::STRICT_ORDER;
const NEWEST: SubscriberMode = SubscriberMode::NEWEST_ONLY;
const LEASE: Features = Features::LEASE;
const WORDS: &[Field] = &[Field::GlobalSeq, Field::Seq, Field::LastSeenSeq, Field::LeaseBitmap, Field::State];
const SEAT: &[Field] = &[Field::State, Field::Term];

fn first() -> SubscriberBit {
    SubscriberBit::new(1).unwrap()
}

/// Somebody joins while the writer goes around a ring of `slots` slots.
fn joins<K: Weakening>(slots: u64) {
    let LoomRing { mut roster, mut writer, place: _ } = LoomRing::<K>::new(slots, Policy::STRICT_WAIT, WORDS);
    writer.publish().unwrap();
    let joining = thread::spawn(move || {
        roster.admit(PID, request(STRICT, Features::NONE)).unwrap().initial_seq.resolve(0)
    });
    for _ in 0..=slots {
        writer.publish();
    }
    let initial_seq = joining.join().unwrap();
    while writer.publish().is_some() {}
    let kept = writer.ring.newest() - initial_seq;
    assert_eq!(kept, slots, "of what was promised a frame was overwritten");
}

/// As `joins`, on a bit that somebody else had before.
fn joins_after<K: Weakening>() {
    let mut ring = LoomRing::<K>::new(1, Policy::STRICT_WAIT, WORDS);
    let mut reader = ring.join(STRICT, Features::NONE);
    ring.writer.publish().unwrap();
    reader.read_next().unwrap();
    let LoomRing { mut roster, mut writer, place: _ } = ring;
    let joining = thread::spawn(move || {
        roster.leave(Instant::ZERO, first(), Departure::Clean);
        roster.admit(PID, request(STRICT, Features::NONE)).unwrap().initial_seq.resolve(0)
    });
    writer.publish();
    writer.publish();
    let initial_seq = joining.join().unwrap();
    while writer.publish().is_some() {}
    assert_eq!(writer.ring.newest() - initial_seq, 1, "of what was promised a frame was overwritten");
}

/// As `joins`, on a bit of whose last holder no frame was required.
fn joins_after_no_ack<K: Weakening>() {
    let mut ring = LoomRing::<K>::new(1, Policy::STRICT_WAIT, WORDS);
    drop(ring.join(STRICT, Features::NO_ACK));
    ring.writer.publish().unwrap();
    let LoomRing { mut roster, mut writer, place: _ } = ring;
    roster.leave(Instant::ZERO, first(), Departure::Clean);
    let joining = thread::spawn(move || {
        roster.admit(PID, request(STRICT, Features::NONE)).unwrap().initial_seq.resolve(0)
    });
    writer.publish();
    writer.publish();
    let initial_seq = joining.join().unwrap();
    while writer.publish().is_some() {}
    assert_eq!(writer.ring.newest() - initial_seq, 1, "of what was promised a frame was overwritten");
}

/// The writer waits for somebody who leaves instead of reading.
fn leaves<K: Weakening>() {
    let mut ring = LoomRing::<K>::new(1, Policy::STRICT_WAIT, WORDS);
    let _reader = ring.join(STRICT, LEASE);
    ring.writer.publish().unwrap();
    let LoomRing { mut roster, mut writer, place } = ring;
    let leaving = thread::spawn(move || {
        roster.leave(Instant::ZERO, first(), Departure::Clean);
        place.publisher_bell.ring();
    });
    assert_eq!(writer.publish_sleeping(), 2);
    leaving.join().unwrap();
}

/// Somebody is evicted, does not know it yet, and takes a lease that it never gives back.
fn leases_late<K: Weakening>() {
    let mut ring = LoomRing::<K>::new(1, Policy::DROP_OLDEST, WORDS);
    let mut reader = ring.join(NEWEST, LEASE);
    ring.writer.publish().unwrap();
    let leasing = thread::spawn(move || forget(reader.ring.next()));
    let LoomRing { mut roster, mut writer, place } = ring;
    let evicting = thread::spawn(move || {
        roster.leave(Instant::ZERO, first(), Departure::Abrupt);
        place.publisher_bell.ring();
    });
    assert_eq!(writer.publish_sleeping(), 2);
    leasing.join().unwrap();
    evicting.join().unwrap();
}

/// Somebody is evicted who reads a frame under a lease; the writer overwrites the frame.
fn evicted<K: Weakening>() {
    let mut ring = LoomRing::<K>::new(1, Policy::DROP_OLDEST, WORDS);
    let mut reader = ring.join(NEWEST, LEASE);
    ring.writer.publish().unwrap();
    let frame = reader.ring.next().unwrap();
    let reading = thread::spawn(move || reader.read(frame));
    let LoomRing { mut roster, mut writer, place: _ } = ring;
    let evicting = thread::spawn(move || roster.leave(Instant::ZERO, first(), Departure::Abrupt));
    writer.publish();
    evicting.join().unwrap();
    let seen = reading.join().unwrap();
    assert!(seen.is_whole() || seen.released.is_err(), "torn and not called lost: {seen:?}");
}

/// Somebody who is evicted releases its frame late, when the next subscriber has leased the same slot.
fn releases_late<K: Weakening>(departure: Departure) {
    let mut ring = LoomRing::<K>::new(1, Policy::DROP_OLDEST, WORDS);
    let mut reader = ring.join(NEWEST, LEASE);
    ring.writer.publish().unwrap();
    let frame = reader.ring.next().unwrap();
    let releasing = thread::spawn(move || drop(frame));
    ring.roster.leave(Instant::ZERO, first(), departure);
    let mut next = ring.join(NEWEST, LEASE);
    let frame = next.ring.next().unwrap();
    ring.writer.publish();
    let seen = next.read(frame);
    releasing.join().unwrap();
    assert!(
        seen.is_whole() && seen.released.is_ok(),
        "the next subscriber's frame was overwritten: {seen:?}"
    );
}

/// Somebody who has left looks whether the bit is its own, while the next subscriber gets it.
fn looks_late<K: Weakening>(mut ring: LoomRing<K>) {
    let reader = ring.join(NEWEST, LEASE);
    let looking = thread::spawn(move || [(); 2].map(|()| reader.ring.seat().is_held()));
    ring.roster.leave(Instant::ZERO, first(), Departure::Clean);
    ring.roster.admit(PID, request(NEWEST, LEASE)).unwrap();
    assert_ne!(looking.join().unwrap(), [false, true], "the bit is its own again");
}

fn looks_late_at_the_region<K: Weakening>() {
    looks_late(LoomRing::<K>::new(1, Policy::DROP_OLDEST, SEAT));
}

fn looks_late_at_the_witness<K: Weakening>() {
    looks_late(LoomRing::<K>::witnessed(1, Policy::DROP_OLDEST, &[], SEAT));
}

/// The writer is about to accuse somebody who leaves, and whose bit is given to another.
fn accused_late<K: Weakening>() {
    let mut ring = LoomRing::<K>::new(1, Policy::STRICT_WAIT, WORDS);
    let _reader = ring.join(STRICT, Features::NONE);
    ring.writer.publish().unwrap();
    let LoomRing { mut roster, mut writer, place: _ } = ring;
    let mut clock = StallClock::new(&Timeouts::default());
    let mut look = move |now| {
        if let Err(stalled) = writer.ring.claim().map(drop) {
            clock.stalled(now, &stalled, writer.ring.members());
        }
    };
    look(Instant::ZERO);
    let waiting = thread::spawn(move || look(Instant::ZERO + Timeouts::default().consumer_ack));
    roster.leave(Instant::ZERO, first(), Departure::Clean);
    roster.admit(PID, request(STRICT, Features::NONE)).unwrap();
    waiting.join().unwrap();
    let accused: Vec<(SubscriberBit, Accusation)> = roster.take_accused().collect();
    assert_eq!(accused, [], "who has only just joined is accused");
}

// 1717 executions, under 1 s.
#[test]
fn who_joins_gets_every_frame_that_it_was_promised() {
    check(|| joins::<AsShipped>(1));
}

#[test]
#[should_panic(expected = "a frame was overwritten")]
fn who_joins_is_promised_too_much_without_the_rosters_fence() {
    check(|| joins::<NoFenceInJoin>(1));
}

#[test]
#[should_panic(expected = "a frame was overwritten")]
fn who_joins_is_promised_too_much_without_the_writers_fence() {
    check(|| joins::<NoFenceAfterPublication>(1));
}

// 6916 executions, under 1 s.
#[test]
fn who_joins_a_ring_of_two_slots_gets_every_frame_that_it_was_promised() {
    check(|| joins::<AsShipped>(2));
}

#[test]
#[should_panic(expected = "a frame was overwritten")]
fn who_joins_a_ring_of_two_slots_is_promised_too_much_without_the_rosters_fence() {
    check(|| joins::<NoFenceInJoin>(2));
}

// 60782 executions, 6 s.
#[test]
fn who_joins_on_a_used_bit_gets_every_frame_that_it_was_promised() {
    check(joins_after::<AsShipped>);
}

#[test]
#[should_panic(expected = "a frame was overwritten")]
fn who_joins_on_a_used_bit_is_promised_too_much_without_the_rosters_fence() {
    check(joins_after::<NoFenceInJoin>);
}

#[test]
fn who_joins_on_a_bit_of_which_nothing_was_required_gets_every_frame_that_it_was_promised() {
    check(joins_after_no_ack::<AsShipped>);
}

#[test]
#[should_panic(expected = "a frame was overwritten")]
fn who_joins_on_a_bit_of_which_nothing_was_required_is_promised_too_much_if_that_stays_so_meanwhile() {
    check(joins_after_no_ack::<ExcusedWhileItJoins>);
}

// 1910 executions, under 1 s.
#[test]
fn who_leaves_holds_nothing_up() {
    check(leaves::<AsShipped>);
}

#[test]
#[should_panic(expected = "deadlock")]
fn who_leaves_holds_the_writer_up_if_it_stays_a_member() {
    check(leaves::<LeavesWithoutEffect>);
}

// 32351 executions, 6 s.
#[test]
fn a_lease_of_who_was_evicted_holds_nothing_up() {
    check(leases_late::<AsShipped>);
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_lease_of_who_was_evicted_holds_the_writer_up_if_it_stays_a_member() {
    check(leases_late::<LeavesWithoutEffect>);
}

// 5603 executions, under 1 s.
#[test]
fn who_is_evicted_is_told_that_its_frame_is_torn() {
    check(evicted::<AsShipped>);
}

#[test]
#[should_panic(expected = "torn and not called lost")]
fn who_is_evicted_is_not_told_if_the_slot_stays_valid() {
    check(evicted::<SlotStaysValid>);
}

// 64 executions, under 1 s.
#[test]
fn a_late_release_does_not_hit_the_next_subscriber() {
    check(|| releases_late::<AsShipped>(Departure::Abrupt));
}

#[test]
#[should_panic(expected = "the next subscriber's frame was overwritten")]
fn a_late_release_hits_the_next_subscriber_without_a_quarantine() {
    check(|| releases_late::<AsShipped>(Departure::Clean));
}

// 1708 executions, under 1 s.
#[test]
fn a_bit_is_never_its_last_holders_again() {
    check(looks_late_at_the_region::<AsShipped>);
}

#[test]
#[should_panic(expected = "the bit is its own again")]
fn a_bit_is_its_last_holders_again_if_its_state_comes_before_its_term() {
    check(looks_late_at_the_region::<StateBeforeTerm>);
}

// 3705 executions, under 1 s.
#[test]
fn a_bit_is_never_its_last_holders_again_in_the_witness() {
    check(looks_late_at_the_witness::<AsShipped>);
}

#[test]
#[should_panic(expected = "the bit is its own again")]
fn a_bit_is_its_last_holders_again_in_the_witness_if_its_state_comes_before_its_term() {
    check(looks_late_at_the_witness::<StateBeforeTerm>);
}

// 6043 executions, under 1 s.
#[test]
fn a_late_accusation_does_not_hit_the_next_subscriber() {
    check(accused_late::<AsShipped>);
}

#[test]
#[should_panic(expected = "who has only just joined is accused")]
fn a_late_accusation_hits_the_next_subscriber_if_terms_are_not_counted() {
    check(accused_late::<SameTerm>);
}
