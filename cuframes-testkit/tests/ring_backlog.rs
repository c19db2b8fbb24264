//! Frames that are complete later than they are claimed (I8): published in order, each slot claimed once at a time.
#![expect(clippy::unwrap_used, reason = "a failure ends the test")]

use std::collections::BTreeMap;

use cuframes_core::ring::{Committed, Ticket};
use cuframes_core::{Features, Policy, SubscriberMode};
use cuframes_testkit::heap::{HeapReader, HeapRing};
use cuframes_testkit::strategies::config;
use proptest::prelude::*;

const STRICT: SubscriberMode = SubscriberMode::STRICT_ORDER;

fn detach(ring: &mut HeapRing) -> Ticket {
    ring.writer.claim().unwrap().detach()
}

/// The numbers that a reader gets now.
fn read(reader: &mut HeapReader) -> Vec<u64> {
    std::iter::from_fn(|| reader.next()).map(|frame| frame.seq().get()).collect()
}

fn frames(committed: Committed) -> (u64, u32) {
    (committed.seq.get(), committed.frames)
}

#[test]
fn whichever_frame_is_complete_first_they_are_published_in_the_order_of_their_numbers() {
    let mut ring = HeapRing::new(4, Policy::DROP_OLDEST);
    let mut reader = ring.join(STRICT, Features::LEASE);
    let [one, two, three] = [(); 3].map(|()| detach(&mut ring));
    assert_eq!(
        [&one, &two, &three].map(|ticket| (ticket.seq().get(), ticket.slot())),
        [(1, 1), (2, 2), (3, 3)]
    );
    let committed = ring.writer.commit(three, 30, 300);
    assert_eq!((frames(committed), committed.wake), ((3, 0), 0), "nobody is woken for nothing");
    assert_eq!(read(&mut reader), []);
    assert_eq!(frames(ring.writer.commit(one, 10, 100)), (1, 1));
    assert_eq!(read(&mut reader), [1]);
    let committed = ring.writer.commit(two, 20, 200);
    assert_eq!((frames(committed), committed.wake), ((2, 2), 0b10));
    let frames: Vec<_> = std::iter::from_fn(|| reader.next()).collect();
    let stamps: Vec<_> =
        frames.iter().map(|frame| (frame.seq().get(), frame.pts_ns(), frame.written_bytes())).collect();
    assert_eq!(stamps, [(2, 20, 200), (3, 30, 300)]);
    assert!(!ring.writer.has_backlog());
}

#[test]
fn a_frame_that_is_committed_at_once_waits_for_those_that_were_claimed_before_it() {
    let mut ring = HeapRing::new(4, Policy::DROP_OLDEST);
    let mut reader = ring.join(STRICT, Features::LEASE);
    let ticket = detach(&mut ring);
    assert_eq!(frames(ring.writer.claim().unwrap().commit(0, 0)), (2, 0));
    assert_eq!(read(&mut reader), []);
    assert_eq!(frames(ring.writer.commit(ticket, 0, 0)), (1, 2));
    assert_eq!(read(&mut reader), [1, 2]);
}

#[test]
fn a_cancelled_frame_lets_the_others_pass() {
    let mut ring = HeapRing::new(4, Policy::DROP_OLDEST);
    let mut reader = ring.join(STRICT, Features::LEASE);
    let [one, two] = [(); 2].map(|()| detach(&mut ring));
    assert_eq!(frames(ring.writer.commit(two, 0, 0)), (2, 0));
    assert_eq!(frames(ring.writer.cancel(one)), (1, 1));
    assert_eq!(read(&mut reader), [2]);
    // The number of the newest one is used again, as that of a claim that is dropped.
    let three = detach(&mut ring);
    assert_eq!(frames(ring.writer.cancel(three)), (3, 0));
    assert_eq!(ring.publish(0), 3);
}

#[test]
fn drop_oldest_passes_by_a_slot_that_is_being_written_and_stalls_when_all_are() {
    let mut ring = HeapRing::new(2, Policy::DROP_OLDEST);
    let [one, two] = [(); 2].map(|()| detach(&mut ring));
    let stalled = ring.writer.claim().unwrap_err();
    assert!(stalled.unfinished && stalled.bits() == 0);
    assert_eq!(ring.writer.stalled(), Some(stalled));
    assert_eq!(
        stalled.to_string(),
        "the ring is full: frames that were claimed are not complete (does the device hang?)"
    );
    let _ = ring.writer.commit(one, 0, 0);
    // Slot 1 is free; the next number that it holds is 3, after 2.
    let three = detach(&mut ring);
    assert_eq!((three.seq().get(), three.slot()), (3, 1));
    let _ = ring.writer.commit(two, 0, 0);
    let _ = ring.writer.cancel(three);
    assert_eq!(ring.writer.stalled(), None);
}

#[test]
fn drop_oldest_waits_where_some_slots_are_being_written_and_the_others_are_leased() {
    let mut ring = HeapRing::new(2, Policy::DROP_OLDEST);
    let mut reader = ring.join(STRICT, Features::LEASE);
    ring.publish(0);
    let held = reader.next().unwrap();
    let two = detach(&mut ring);
    let stalled = ring.writer.claim().unwrap_err();
    assert_eq!((stalled.unfinished, stalled.waiting_for_leases), (true, 0b10));
    assert_eq!(ring.writer.stalled(), Some(stalled));
    drop(held);
    let three = detach(&mut ring);
    assert_eq!(three.seq().get(), 3);
    let _ = ring.writer.commit(three, 0, 0);
    let _ = ring.writer.commit(two, 0, 0);
    assert_eq!(read(&mut reader), [2, 3]);
}

#[test]
fn strict_wait_waits_for_its_own_frame_and_then_for_everybody() {
    let mut ring = HeapRing::new(2, Policy::STRICT_WAIT);
    let mut reader = ring.join(STRICT, Features::LEASE);
    let [one, two] = [(); 2].map(|()| detach(&mut ring));
    let stalled = ring.writer.claim().unwrap_err();
    assert!(stalled.unfinished && ring.writer.stalled() == Some(stalled));
    let _ = ring.writer.commit(one, 0, 0);
    let stalled = ring.writer.claim().unwrap_err();
    assert_eq!((stalled.unfinished, stalled.waiting_for_acks), (false, 0b10));
    assert_eq!(read(&mut reader), [1]);
    let three = detach(&mut ring);
    let _ = ring.writer.commit(two, 0, 0);
    let _ = ring.writer.commit(three, 0, 0);
    assert_eq!(read(&mut reader), [2, 3], "nobody loses a frame");
}

#[test]
fn a_ticket_of_another_ring_changes_nothing() {
    let [mut ring, mut other] = [(); 2].map(|()| HeapRing::new(2, Policy::DROP_OLDEST));
    let foreign = detach(&mut other);
    assert_eq!(frames(ring.writer.commit(foreign, 0, 0)), (1, 0));
    let foreign = detach(&mut other);
    assert_eq!(frames(ring.writer.cancel(foreign)), (2, 0));
    assert!(!ring.writer.has_backlog() && ring.publish(0) == 1);
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Claim,
    Commit(prop::sample::Index),
    Cancel(prop::sample::Index),
    CommitAtOnce,
    Read,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => Just(Step::Claim),
        3 => any::<prop::sample::Index>().prop_map(Step::Commit),
        1 => any::<prop::sample::Index>().prop_map(Step::Cancel),
        1 => Just(Step::CommitAtOnce),
        2 => Just(Step::Read),
    ]
}

proptest! {
    #![proptest_config(config(512))]

    /// A reader that keeps up gets each frame that was committed exactly once, in order, whatever was complete first.
    #[test]
    fn every_committed_frame_is_published_once_and_in_order(
        slots in 1u64..=16,
        strict in any::<bool>(),
        steps in prop::collection::vec(step(), 0..200),
    ) {
        let policy = if strict { Policy::STRICT_WAIT } else { Policy::DROP_OLDEST };
        let mut ring = HeapRing::new(slots, policy);
        let mut reader = ring.join(STRICT, Features::LEASE);
        let mut tickets: Vec<Ticket> = Vec::new();
        // By number: whether it was committed.
        let mut pending: BTreeMap<u64, bool> = BTreeMap::new();
        let (mut expected, mut seen) = (Vec::new(), Vec::new());
        for step in steps.into_iter().chain([Step::Read]) {
            match step {
                Step::Claim => match ring.writer.claim() {
                    Ok(claim) => {
                        let ticket = claim.detach();
                        let number = ticket.seq().get();
                        prop_assert!(pending.keys().all(|other| other % slots != number % slots && *other < number));
                        pending.insert(number, false);
                        tickets.push(ticket);
                    }
                    Err(stalled) => prop_assert!(stalled.bits() != 0 || stalled.unfinished),
                },
                Step::CommitAtOnce => {
                    if let Ok(claim) = ring.writer.claim() {
                        let number = claim.seq().get();
                        pending.insert(number, true);
                        let _ = claim.commit(number.cast_signed(), number);
                    }
                }
                Step::Commit(which) if !tickets.is_empty() => {
                    let ticket = tickets.swap_remove(which.index(tickets.len()));
                    let number = ticket.seq().get();
                    pending.insert(number, true);
                    let _ = ring.writer.commit(ticket, number.cast_signed(), number);
                }
                Step::Cancel(which) if !tickets.is_empty() => {
                    let ticket = tickets.swap_remove(which.index(tickets.len()));
                    pending.remove(&ticket.seq().get());
                    let _ = ring.writer.cancel(ticket);
                }
                Step::Commit(_) | Step::Cancel(_) => {}
                Step::Read => seen.extend(read(&mut reader)),
            }
            while let Some(first) = pending.first_entry().filter(|first| *first.get()) {
                expected.push(first.remove_entry().0);
            }
            // It keeps up: nothing that is published is overwritten before it is read.
            seen.extend(read(&mut reader));
            prop_assert_eq!(&seen, &expected);
            prop_assert_eq!(ring.writer.has_backlog(), !pending.is_empty());
            prop_assert_eq!(ring.writer.newest(), expected.last().copied().unwrap_or(0));
        }
    }
}
