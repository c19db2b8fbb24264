//! Models of the witness: whatever somebody else writes into the region, and whenever, no frame that is reported
//! intact is another one or torn (D-23).

#![cfg(loom)]
#![expect(clippy::unwrap_used, reason = "a failure ends the test")]

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use cuframes_core::shm::{Region, Word};
use cuframes_core::{Features, Policy, SubscriberMode};
use cuframes_testkit::loom::weakened::NoFenceBeforeSecondLook;
use cuframes_testkit::loom::{AsShipped, Field, LoomRing, Weakening, check};
use loom::thread;

const SHARED: &[Field] = &[Field::Seq, Field::LeaseBitmap];
const WITNESSED: &[Field] = &[Field::Seq, Field::PtsNs];

/// The only slot is overwritten while it is read. The reader plays the forger, too: it says in the region that the new
/// frame is there already, or gives the lease of the old one back as soon as it has it.
fn forged<K: Weakening>(mut ring: LoomRing<K>, features: Features) {
    ring.writer.publish().unwrap();
    let mut reader = ring.join(SubscriberMode::NEWEST_ONLY, features);
    let region = Arc::clone(&ring.place.region);
    let reading = thread::spawn(move || {
        if features == Features::NONE {
            region.slot(0).seq.store(2, Relaxed);
            region.header().global_seq.store(2, Relaxed);
        }
        let frame = reader.ring.next()?;
        if features == Features::LEASE {
            region.slot(0).lease_bitmap.store(0, Relaxed);
        }
        Some(reader.read(frame))
    });
    ring.writer.publish();
    if let Some(seen) = reading.join().unwrap().filter(|seen| seen.released.is_ok()) {
        assert!(seen.is_whole(), "torn: {seen:?}");
        assert_eq!(seen.pts_ns.cast_unsigned(), seen.seq, "torn, or another stamp: {seen:?}");
    }
}

fn with_witness<K: Weakening>(features: Features) {
    forged(LoomRing::<K>::witnessed(1, Policy::DROP_OLDEST, SHARED, WITNESSED), features);
}

fn without_witness(features: Features) {
    let mut words = SHARED.to_vec();
    words.push(Field::PtsNs);
    forged(LoomRing::<AsShipped>::new(1, Policy::DROP_OLDEST, &words), features);
}

// 121657 executions, 17 s on two busy cores.
#[test]
fn a_forged_number_makes_no_frame_of_other_bytes() {
    check(|| with_witness::<AsShipped>(Features::NONE));
}

// 579 executions, under 1 s.
#[test]
fn a_forged_number_and_release_make_no_frame_of_other_bytes() {
    check(|| with_witness::<AsShipped>(Features::LEASE));
}

#[test]
#[should_panic(expected = "torn")]
fn a_forged_number_makes_a_frame_of_other_bytes_without_a_witness() {
    check(|| without_witness(Features::NONE));
}

#[test]
#[should_panic(expected = "torn")]
fn a_forged_release_makes_a_frame_of_other_bytes_without_a_witness() {
    check(|| without_witness(Features::LEASE));
}

#[test]
#[should_panic(expected = "torn")]
fn a_forged_number_makes_a_frame_of_other_bytes_without_the_readers_fence() {
    check(|| with_witness::<NoFenceBeforeSecondLook>(Features::NONE));
}
