//! Models of SYNC POINT slot-validity: no torn frame is ever reported intact, without a lease (I2, D-4).

#![cfg(loom)]
#![expect(clippy::unwrap_used, reason = "a failure ends the test")]

use cuframes_core::{Features, Policy, SubscriberMode};
use cuframes_testkit::loom::weakened::{NoFenceAfterInvalid, NoFenceBeforeSecondLook, SlotStaysValid};
use cuframes_testkit::loom::{AsShipped, Field, LoomRing, Seen, Weakening, check};
use loom::thread;

const WORDS: &[Field] = &[Field::GlobalSeq, Field::Seq];

/// What was said to be intact is.
fn judge(seen: &[Seen]) {
    for seen in seen.iter().filter(|seen| seen.released.is_ok()) {
        assert!(seen.is_whole(), "torn: {seen:?}");
    }
}

/// The only slot is overwritten while it is read.
fn overwritten<K: Weakening>() {
    let mut ring = LoomRing::<K>::new(1, Policy::DROP_OLDEST, WORDS);
    ring.writer.publish().unwrap();
    let mut reader = ring.join(SubscriberMode::NEWEST_ONLY, Features::NONE);
    let reading = thread::spawn(move || reader.read_next());
    ring.writer.publish().unwrap();
    judge(reading.join().unwrap().as_slice());
}

/// A reader that wants every frame is overrun, and looks for the oldest that is left.
fn overrun<K: Weakening>() {
    let mut ring = LoomRing::<K>::new(2, Policy::DROP_OLDEST, WORDS);
    ring.writer.publish().unwrap();
    let mut reader = ring.join(SubscriberMode::STRICT_ORDER, Features::NONE);
    let reading = thread::spawn(move || [reader.read_next(), reader.read_next()]);
    ring.writer.publish().unwrap();
    ring.writer.publish().unwrap();
    let seen: Vec<_> = reading.join().unwrap().into_iter().flatten().collect();
    judge(&seen);
    let mut last = 0;
    for (index, seen) in seen.iter().enumerate() {
        let lost = if index == 0 { 0 } else { seen.seq - last - 1 };
        assert_eq!(seen.lost, lost, "a wrong count");
        last = seen.seq;
    }
}

/// The stamp that is handed out with a frame.
fn stamp<K: Weakening>() {
    let mut words = WORDS.to_vec();
    words.extend([Field::PtsNs, Field::WrittenBytes]);
    let mut ring = LoomRing::<K>::new(1, Policy::DROP_OLDEST, &words);
    ring.writer.publish().unwrap();
    let mut reader = ring.join(SubscriberMode::NEWEST_ONLY, Features::NONE);
    let reading = thread::spawn(move || {
        reader
            .ring
            .next()
            .map(|frame| (frame.seq().get(), frame.pts_ns().cast_unsigned(), frame.written_bytes()))
    });
    ring.writer.publish().unwrap();
    if let Some((seq, pts_ns, written_bytes)) = reading.join().unwrap() {
        assert_eq!((pts_ns, written_bytes), (seq, seq), "torn");
    }
}

/// A claim is given up in the middle of the frame, then the slot is claimed again.
fn given_up<K: Weakening>() {
    let mut ring = LoomRing::<K>::new(1, Policy::DROP_OLDEST, WORDS);
    ring.writer.publish().unwrap();
    let mut reader = ring.join(SubscriberMode::NEWEST_ONLY, Features::NONE);
    let reading = thread::spawn(move || [reader.read_next(), reader.read_next()]);
    let claim = ring.writer.ring.claim().unwrap();
    ring.place.frames.write_half(claim.slot(), u64::MAX);
    drop(claim);
    ring.writer.publish().unwrap();
    let seen: Vec<_> = reading.join().unwrap().into_iter().flatten().collect();
    judge(&seen);
}

// 2282 executions, under 1 s.
#[test]
fn no_torn_frame_is_reported_intact() {
    check(overwritten::<AsShipped>);
}

#[test]
#[should_panic(expected = "torn")]
fn a_torn_frame_is_found_if_the_slot_stays_valid() {
    check(overwritten::<SlotStaysValid>);
}

#[test]
#[should_panic(expected = "torn")]
fn a_torn_frame_is_found_without_the_writers_fence() {
    check(overwritten::<NoFenceAfterInvalid>);
}

#[test]
#[should_panic(expected = "torn")]
fn a_torn_frame_is_found_without_the_readers_fence() {
    check(overwritten::<NoFenceBeforeSecondLook>);
}

// 4063 executions, under 1 s.
#[test]
fn a_reader_that_is_overrun_gets_whole_frames_and_the_right_count_of_the_lost() {
    check(overrun::<AsShipped>);
}

#[test]
#[should_panic(expected = "torn")]
fn a_reader_that_is_overrun_gets_a_torn_frame_if_the_slot_stays_valid() {
    check(overrun::<SlotStaysValid>);
}

// 4489 executions, under 1 s.
#[test]
fn a_frame_is_handed_out_with_its_own_stamp() {
    check(stamp::<AsShipped>);
}

#[test]
#[should_panic(expected = "torn")]
fn a_frame_is_handed_out_with_another_stamp_without_the_readers_fence() {
    check(stamp::<NoFenceBeforeSecondLook>);
}

// 103252 executions, 7 s.
#[test]
fn a_claim_that_is_given_up_shows_nothing_of_its_frame() {
    check(given_up::<AsShipped>);
}

#[test]
#[should_panic(expected = "torn")]
fn a_claim_that_is_given_up_shows_half_a_frame_if_the_slot_stays_valid() {
    check(given_up::<SlotStaysValid>);
}
