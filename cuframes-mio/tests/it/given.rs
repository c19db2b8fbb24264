//! Frames that are published under numbers that they had before.

use std::thread;
use std::time::Duration;

use crate::common::{LONG, NEWEST, STRICT, Stream, check, fill, next, until};
use crate::embed::Loop;
use cuframes_mio::core::error::ErrorCode;
use cuframes_mio::core::ring::Seq;
use cuframes_mio::core::{Policy, SubscriberMode, Timeouts};
use cuframes_mio::{ClaimAsError, Error, EventSource, Leave, MemberEvent, ServedPublisher, Stalled, now};

const LAST: u64 = u64::MAX - 1;

/// Publishes frame `seq`; its bytes say which it is.
fn publish_as(publisher: &mut ServedPublisher, seq: u64) {
    let mut claim = publisher.try_claim_as(seq).unwrap();
    fill(&mut claim);
    assert_eq!(claim.commit(), seq);
}

fn serve(stream: &Stream, slots: u64, policy: Policy) -> ServedPublisher {
    stream.publisher(slots, policy).create().unwrap().serve().unwrap()
}

/// Those with a lease of 100 ms.
fn short() -> Timeouts {
    let mut timeouts = Timeouts::default();
    timeouts.lease = Duration::from_millis(100);
    timeouts
}

/// Who is in the way of number `seq`.
fn stalled(publisher: &mut ServedPublisher, seq: u64) -> Stalled {
    match publisher.try_claim_as(seq).map(drop) {
        Err(ClaimAsError::Stalled(stalled)) => stalled,
        other => panic!("{other:?}"),
    }
}

#[test]
fn frames_arrive_under_the_numbers_that_they_were_given_and_the_gaps_are_lost() {
    let kinds =
        [Policy::DROP_OLDEST, Policy::STRICT_WAIT].map(|policy| [NEWEST, STRICT].map(|mode| (policy, mode)));
    for (policy, mode) in kinds.into_iter().flatten() {
        let stream = Stream::new();
        let mut publisher = serve(&stream, 4, policy);
        let mut subscriber = stream.subscriber("eye", mode).connect().unwrap();
        let numbers = [7, 8, 11, 15, 20, 1020, LAST - 1];
        let (mut last, mut lost) = (None, 0);
        for seq in numbers {
            publish_as(&mut publisher, seq);
            let frame = next(&mut subscriber);
            check(&frame);
            let gap = last.map_or(0, |last| seq - last - 1);
            assert_eq!((frame.seq(), frame.lost()), (seq, gap));
            (last, lost) = (Some(seq), lost + gap);
        }
        let stats = subscriber.stats();
        assert_eq!((stats.frames, stats.lost), (7, lost));
        let stats = publisher.stats();
        assert_eq!((stats.frames, stats.skipped), (7, LAST - 1 - 7));
        // Numbers that are not given go on from there, until there is none.
        assert_eq!(publisher.claim().unwrap().commit(), LAST);
        assert_eq!(next(&mut subscriber).seq(), LAST);
        assert_eq!(publisher.try_claim().map(drop).unwrap_err(), Stalled::NO_NUMBER);
        let error = publisher.claim().map(drop).unwrap_err();
        assert!(error.to_string().contains("the greatest number is used: publish a new stream"), "{error}");
    }
}

/// Whether a subscriber sleeps or looks all the time.
fn is_told_of_each(mode: SubscriberMode, policy: Policy, sleeps: bool) {
    let stream = Stream::new();
    let mut publisher = serve(&stream, 4, policy);
    let mut subscriber = stream.subscriber("eye", mode).connect().unwrap();
    let reading = thread::spawn(move || {
        let mut taken = Vec::new();
        while taken.last() != Some(&LAST) {
            let frame = if sleeps { Some(next(&mut subscriber)) } else { subscriber.try_next().unwrap() };
            if let Some(frame) = frame {
                check(&frame);
                taken.push(frame.seq());
            }
        }
        taken
    });
    let mut published = Vec::new();
    let mut seq = 0;
    for n in 0..200 {
        // By 1 to 37, and now and then by far more; each slot comes after each other one.
        seq += 1 + n * 7 % 37 + if n % 50 == 49 { 1 << 40 } else { 0 };
        let claim = publisher.claim_as_timeout(seq, LONG);
        let mut claim = claim.unwrap();
        fill(&mut claim);
        claim.commit();
        published.push(seq);
    }
    let mut claim = publisher.claim_as_timeout(LAST, LONG).unwrap();
    fill(&mut claim);
    claim.commit();
    published.push(LAST);
    let taken = reading.join().unwrap();
    assert!(taken.is_sorted() && taken.iter().all(|seq| published.contains(seq)));
    if policy == Policy::STRICT_WAIT && mode == STRICT {
        assert_eq!(taken, published, "nobody loses a frame");
    }
    assert_eq!(publisher.stats().left.evicted_for_ack, 0);
}

#[test]
fn whoever_sleeps_is_woken_for_each_number_and_the_publisher_for_each_release() {
    for mode in [NEWEST, STRICT] {
        for policy in [Policy::DROP_OLDEST, Policy::STRICT_WAIT] {
            is_told_of_each(mode, policy, true);
        }
    }
}

#[test]
fn whoever_is_awake_finds_each_number() {
    for mode in [NEWEST, STRICT] {
        for policy in [Policy::DROP_OLDEST, Policy::STRICT_WAIT] {
            is_told_of_each(mode, policy, false);
        }
    }
}

#[test]
fn a_number_that_is_used_is_refused_and_so_is_what_is_no_number() {
    let stream = Stream::new();
    let mut publisher = serve(&stream, 4, Policy::DROP_OLDEST);
    let passed = |newest| Some(ClaimAsError::Passed { newest });
    assert_eq!(publisher.try_claim_as(0).err(), passed(0));
    assert_eq!(publisher.try_claim_as(u64::MAX).err(), Some(ClaimAsError::Stalled(Stalled::NO_NUMBER)));
    publish_as(&mut publisher, 9);
    assert_eq!([0, 1, 8, 9].map(|seq| publisher.try_claim_as(seq).err()), [passed(9); 4]);
    let error = publisher.claim_as_timeout(9, LONG).map(drop).unwrap_err();
    assert_eq!(error.code(), ErrorCode::INVALID_ARGUMENT);
    let expected =
        format!("stream {}: seq must be above every number that is published or claimed", stream.key);
    assert_eq!(error.to_string(), expected);
    let never = publisher.claim_as_timeout(u64::MAX, LONG).map(drop);
    assert!(matches!(never, Err(Error::Stalled { timeout: Duration::ZERO, .. })));
    publish_as(&mut publisher, 10);
    let stats = publisher.stats();
    assert_eq!((stats.frames, stats.skipped), (2, 8));
    let mut driven = Stream::new().publisher(2, Policy::DROP_OLDEST).create().unwrap();
    assert_eq!(driven.try_claim_as(now(), 5).unwrap().commit(), 5);
    assert_eq!([0, 5].map(|seq| driven.try_claim_as(now(), seq).err()), [passed(5); 2]);
}

#[test]
fn a_leased_slot_stalls_its_numbers_only_until_it_is_given_back() {
    let stream = Stream::new();
    let mut publisher = serve(&stream, 2, Policy::DROP_OLDEST);
    let mut subscriber = stream.subscriber("holder", NEWEST).connect().unwrap();
    publish_as(&mut publisher, 1);
    let held = next(&mut subscriber);
    let found = stalled(&mut publisher, 3);
    assert_eq!((found.waiting_for_leases, found.waiting_for_acks, found.unfinished), (0b10, 0, false));
    let error = publisher.claim_as_timeout(5, Duration::from_millis(20)).map(drop).unwrap_err();
    assert!(error.to_string().contains("lease held by subscriber 1; 1 is holder"), "{error}");
    publish_as(&mut publisher, 6);
    assert_eq!(stalled(&mut publisher, 7).bits(), 0b10);
    // A claim that waits is woken.
    let waiting = thread::spawn(move || {
        let mut claim = publisher.claim_as_timeout(7, LONG).unwrap();
        fill(&mut claim);
        claim.commit();
        publisher
    });
    check(&held);
    held.release().unwrap();
    let publisher = waiting.join().unwrap();
    let frame = next(&mut subscriber);
    check(&frame);
    let stats = publisher.stats();
    assert!((6..=7).contains(&frame.seq()) && stats.left.evicted_for_lease == 0 && stats.lease_stalls >= 2);
}

#[test]
fn strict_wait_waits_until_the_frame_in_the_slot_is_acknowledged() {
    let stream = Stream::new();
    let mut publisher = serve(&stream, 4, Policy::STRICT_WAIT);
    let mut subscriber = stream.subscriber("eye", STRICT).connect().unwrap();
    for seq in [1, 2, 3] {
        publish_as(&mut publisher, seq);
    }
    let found = stalled(&mut publisher, 7);
    assert_eq!((found.waiting_for_acks, found.frame()), (0b10, Seq::new(1)));
    assert_eq!(next(&mut subscriber).seq(), 1);
    // Slots 1 and 0 are free, slot 3 is not.
    publish_as(&mut publisher, 4);
    for seq in [2, 3] {
        assert_eq!(stalled(&mut publisher, 7).bits(), 0b10);
        let frame = next(&mut subscriber);
        check(&frame);
        assert_eq!(frame.seq(), seq);
    }
    publish_as(&mut publisher, 7);
    assert_eq!([next(&mut subscriber).seq(), next(&mut subscriber).seq()], [4, 7]);
    assert_eq!(publisher.stats().ack_stalls, 2);
}

#[test]
fn whoever_is_in_the_way_of_a_number_for_too_long_is_evicted() {
    for waits in [true, false] {
        let stream = Stream::new();
        let builder = stream.publisher(2, Policy::DROP_OLDEST).timeouts(short());
        let mut publisher = builder.create().unwrap().serve().unwrap();
        let mut subscriber = stream.subscriber("holder", NEWEST).connect().unwrap();
        publish_as(&mut publisher, 1);
        let held = next(&mut subscriber);
        if waits {
            publisher.claim_as_timeout(3, LONG).unwrap().commit();
        } else {
            until("the eviction", || publisher.try_claim_as(3).is_ok());
            publish_as(&mut publisher, 3);
        }
        assert!(held.release().is_err());
        assert_eq!(publisher.stats().left.evicted_for_lease, 1);
    }
}

/// A publisher in a loop, whose ring has `slots` slots, and a subscriber that holds frame 1.
fn held_in_a_loop(stream: &Stream, slots: u64) -> (Loop, cuframes_mio::Frame) {
    let publisher = stream.publisher(slots, Policy::DROP_OLDEST).timeouts(short()).create().unwrap();
    let mut lives = Loop::new(publisher, stream.subscriber("holder", NEWEST).start().unwrap());
    while !lives.subscriber.is_ready() {
        lives.turn();
    }
    lives.publisher.try_claim_as(now(), 1).unwrap().commit();
    let held = lives.subscriber.poll_next().unwrap().unwrap();
    (lives, held)
}

#[test]
fn a_loop_evicts_whoever_is_in_the_way_of_a_number_that_is_tried_again() {
    let stream = Stream::new();
    let (mut lives, held) = held_in_a_loop(&stream, 2);
    let mut wake_ups = 0;
    while lives.publisher.try_claim_as(now(), 3).map(cuframes_mio::Claim::commit).is_err() {
        lives.turn();
        wake_ups += 1;
    }
    // It is woken when it is worth trying again, and not all the time.
    assert!((1..50).contains(&wake_ups), "{wake_ups}");
    assert!(held.release().is_err());
    assert_eq!(lives.publisher.members().count(), 0);
}

#[test]
fn a_loop_wakes_a_number_that_waits_when_the_lease_is_given_back() {
    let stream = Stream::new();
    let (mut lives, held) = held_in_a_loop(&stream, 2);
    assert!(matches!(lives.publisher.try_claim_as(now(), 3).map(drop), Err(ClaimAsError::Stalled(_))));
    held.release().unwrap();
    lives.turn();
    assert_eq!(lives.publisher.try_claim_as(now(), 3).unwrap().commit(), 3);
    assert_eq!(lives.publisher.stats().left.evicted_for_lease, 0);
}

#[test]
fn nobody_is_evicted_for_a_number_that_was_dropped_unless_no_other_could_be_had() {
    for (slots, is_evicted) in [(2, false), (1, true)] {
        let stream = Stream::new();
        let (mut lives, held) = held_in_a_loop(&stream, slots);
        let publisher = &mut lives.publisher;
        let start = now();
        assert!(publisher.try_claim_as(start, 3).map(drop).is_err());
        let due = start + short().lease;
        assert!(publisher.poll_timeout().is_some_and(|at| at <= due), "it may want to try again");
        publisher.handle_timeout(due);
        assert!(publisher.poll_timeout().is_none_or(|at| at > due), "once");
        assert_eq!(publisher.members().count(), usize::from(!is_evicted));
        let left = std::iter::from_fn(|| publisher.poll_event())
            .any(|event| matches!(event, MemberEvent::Left(_, Leave::Evicted(_))));
        assert_eq!(left, is_evicted);
        // Another number is free, and nobody is in its way; or the holder was still there for this one.
        assert_eq!(publisher.try_claim_as(due, 4).unwrap().commit(), 4);
        assert_eq!(held.release().is_err(), is_evicted);
    }
}
