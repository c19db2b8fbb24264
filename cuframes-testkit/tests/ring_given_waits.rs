//! Numbers that are given under STRICT_WAIT, and how long each subscriber may keep the writer waiting for one (D-6, D-31).
#![expect(clippy::unwrap_used, clippy::panic, reason = "a failure ends the test")]

use std::collections::VecDeque;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use cuframes_core::ring::{Accusation, ClaimAsError, Seq, StallClock};
use cuframes_core::roster::Departure;
use cuframes_core::shm::Region;
use cuframes_core::{Features, Instant, Policy, SubscriberBit, SubscriberMode, Timeouts};
use cuframes_testkit::heap::HeapRing;
use cuframes_testkit::strategies::config;
use proptest::prelude::*;

const STRICT: SubscriberMode = SubscriberMode::STRICT_ORDER;
const LEASE: Features = Features::LEASE;

fn number(seq: u64) -> Seq {
    Seq::new(seq).unwrap()
}

fn at(ms: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(ms)
}

/// Tells the clock what a claim of `seq` finds, and returns whether somebody is over its deadline.
fn look(ring: &mut HeapRing, clock: &mut StallClock, now: u64, seq: u64) -> bool {
    let Err(ClaimAsError::Stalled(stalled)) = ring.writer.claim_as(number(seq)).map(drop) else {
        panic!("{seq} is not stalled")
    };
    clock.stalled(at(now), &stalled, ring.writer.members())
}

fn accused(ring: &HeapRing) -> Vec<(u8, Accusation)> {
    ring.roster.take_accused().map(|(bit, accusation)| (bit.get(), accusation)).collect()
}

#[test]
fn who_reads_each_frame_in_time_is_not_accused_because_the_last_of_them_is_wanted() {
    let mut ring = HeapRing::new(4, Policy::STRICT_WAIT);
    let mut clock = StallClock::new(&Timeouts::default());
    let (mut moves, _hangs) = (ring.join(STRICT, LEASE), ring.join(STRICT, LEASE));
    for seq in 1..=4 {
        ring.publish_as(seq);
    }
    // The slot of frame 4. One second is what each may take; the other one reads nothing.
    for now in [0, 500, 900] {
        assert!(!look(&mut ring, &mut clock, now, 8));
    }
    drop(moves.next());
    assert!(look(&mut ring, &mut clock, 1000, 8));
    assert_eq!(accused(&ring), [(2, Accusation::Ack)], "only who hangs");
    ring.roster.leave(at(1000), SubscriberBit::new(2).unwrap(), Departure::Abrupt);
    for frame in 2..=4 {
        for ms in [0, 500, 900] {
            assert!(!look(&mut ring, &mut clock, frame * 1000 + ms, 8), "frame {frame}");
        }
        drop(moves.next());
    }
    ring.publish_as(8);
}

#[test]
fn for_each_frame_the_time_runs_once_whatever_is_said_to_have_been_read() {
    let mut ring = HeapRing::new(4, Policy::STRICT_WAIT);
    let mut clock = StallClock::new(&Timeouts::default());
    let _hangs = ring.join(STRICT, LEASE);
    for seq in 1..=4 {
        ring.publish_as(seq);
    }
    // Somebody else says now that it has read a frame, and now that it has not.
    let mut over_at = None;
    for (now, said) in (0..30_000).step_by(100).zip([0, 2].into_iter().cycle()) {
        ring.region.subscriber(1).last_seen_seq.store(said, Relaxed);
        if look(&mut ring, &mut clock, now, 8) {
            over_at = Some(now);
            break;
        }
    }
    // Frame 3 is found in the way at 100 ms.
    assert!(over_at.is_some_and(|over_at| (1100..=1200).contains(&over_at)), "{over_at:?}");
}

#[test]
fn who_hangs_is_accused_although_each_claim_is_for_another_number() {
    for (policy, cause, limit) in
        [(Policy::DROP_OLDEST, Accusation::Lease, 2000), (Policy::STRICT_WAIT, Accusation::Ack, 1000)]
    {
        let mut ring = HeapRing::new(4, policy);
        let mut clock = StallClock::new(&Timeouts::default());
        let mut hangs = ring.join(STRICT, LEASE);
        for seq in 1..=4 {
            ring.publish_as(seq);
        }
        let leased: Vec<_> = (0..4).filter_map(|_| hangs.next()).collect();
        // What can't be claimed is dropped, and the next number is tried.
        let mut seqs = 5..;
        for now in (0..limit).step_by(100) {
            assert!(!look(&mut ring, &mut clock, now, seqs.next().unwrap()));
        }
        assert_eq!(clock.deadline(), Some(at(limit)));
        let over = look(&mut ring, &mut clock, limit, seqs.next().unwrap());
        assert!(over && accused(&ring) == [(1, cause)]);
        drop(leased);
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    /// So much above the newest number.
    Publish(u64),
    /// A reader takes so many frames.
    Read(usize, usize),
    /// It releases the oldest of those that it holds.
    Release(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let jump = prop_oneof![4 => 1..=3_u64, 3 => 1..=17_u64, 1 => 1..=100_000_u64];
    prop_oneof![
        5 => jump.prop_map(Step::Publish),
        2 => (0..3_usize, 1..=3_usize).prop_map(|(reader, frames)| Step::Read(reader, frames)),
        2 => (0..3_usize).prop_map(Step::Release),
    ]
}

proptest! {
    #![proptest_config(config(512))]

    /// Under STRICT_WAIT each reader in order gets each published frame once, and who has released everything is not in the way
    /// of any number.
    #[test]
    fn nobody_loses_a_frame_under_strict_wait_whatever_the_numbers(
        size in 1..=16_u64,
        leases in any::<[bool; 3]>(),
        steps in prop::collection::vec(step(), 0..200),
    ) {
        let mut ring = HeapRing::new(size, Policy::STRICT_WAIT);
        let mut readers = leases.map(|leases| {
            let features = if leases { LEASE } else { Features::NONE };
            (ring.join(STRICT, features), VecDeque::new(), Vec::new())
        });
        let mut published = Vec::new();
        for step in steps {
            match step {
                Step::Publish(jump) => {
                    let seq = ring.writer.newest() + jump;
                    match ring.writer.claim_as(number(seq)) {
                        Ok(claim) => {
                            let _ = claim.commit(seq.cast_signed(), seq);
                            published.push(seq);
                        }
                        Err(error) => {
                            let holders = readers.iter().enumerate().filter(|(_, (reader, held, seen))| {
                                !held.is_empty() || seen.len() < published.len() || reader.seat().leases()
                            });
                            let holders = holders.fold(0, |bits, (n, _)| bits | 2 << n);
                            prop_assert!(matches!(error, ClaimAsError::Stalled(stalled)
                                if stalled.bits() != 0 && stalled.bits() & !holders == 0));
                        }
                    }
                }
                Step::Read(reader, frames) => {
                    let (reader, held, seen) = &mut readers[reader];
                    // Without leases one frame is held at a time.
                    let most = if reader.seat().leases() { frames } else { 1 - held.len().min(1) };
                    for _ in 0..most {
                        let Some(frame) = reader.next() else { break };
                        prop_assert_eq!(frame.lost(), match seen.last() {
                            Some(last) => frame.seq().get() - last - 1,
                            None => 0,
                        });
                        seen.push(frame.seq().get());
                        held.push_back(frame);
                    }
                }
                Step::Release(reader) => {
                    if let Some(frame) = readers[reader].1.pop_front() {
                        prop_assert_eq!(frame.release(), Ok(()));
                    }
                }
            }
        }
        for (reader, held, seen) in &mut readers {
            held.clear();
            seen.extend(std::iter::from_fn(|| reader.next()).map(|frame| frame.seq().get()));
            prop_assert_eq!(&*seen, &published, "each of them, once");
        }
        for slot in 1..=size {
            let seq = ring.writer.newest() + slot;
            prop_assert_eq!(ring.writer.stalled_as(number(seq)), None);
        }
    }
}
