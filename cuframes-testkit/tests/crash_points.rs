//! Writer and reader killed after each of their stores in turn: whoever is left goes on correctly (I1 to I4).

#![expect(clippy::indexing_slicing, reason = "a failure ends the test")]

use std::sync::atomic::Ordering::Relaxed;

use cuframes_core::roster::Departure;
use cuframes_core::shm::Word;
use cuframes_core::{Features, Instant, Policy, SubscriberMode};
use cuframes_testkit::heap::{HeapReader, HeapRegion, Ring};
use cuframes_testkit::step::{StepWord, die_after, meanwhile};

const STRICT: SubscriberMode = SubscriberMode::STRICT_ORDER;
const CASES: [(Policy, Features); 4] = [
    (Policy::STRICT_WAIT, Features::LEASE),
    (Policy::STRICT_WAIT, Features::NONE),
    (Policy::DROP_OLDEST, Features::LEASE),
    (Policy::DROP_OLDEST, Features::NONE),
];

/// A ring and the frames behind it: two words each, so that a torn one shows.
struct Stream {
    ring: Ring<HeapRegion<StepWord>>,
    frames: [[StepWord; 2]; 16],
}

impl Stream {
    fn new(slots: u64, policy: Policy) -> Self {
        let frames = std::array::from_fn(|_| std::array::from_fn(|_| StepWord::new(0)));
        Self { ring: Ring::new(slots, policy), frames }
    }

    /// Publishes a frame, if one can be claimed.
    fn publish(&mut self) -> Option<u64> {
        let claim = self.ring.writer.claim().ok()?;
        let seq = claim.seq().get();
        for half in &self.frames[claim.slot()] {
            half.store(seq, Relaxed);
        }
        Some(claim.commit(seq.cast_signed(), seq).seq.get())
    }

    /// Takes every frame that is there; each one that is called intact must be whole.
    fn drain(&self, reader: &mut HeapReader<StepWord>) -> Vec<u64> {
        let mut taken = Vec::new();
        while let Some(frame) = reader.next() {
            let (seq, slot) = (frame.seq().get(), frame.slot());
            let halves = self.frames[slot].each_ref().map(|half| half.load(Relaxed));
            if frame.release().is_ok() {
                assert_eq!(halves, [seq; 2], "frame {seq} is called intact");
                taken.push(seq);
            }
        }
        taken
    }

    fn newest(&self) -> u64 {
        self.ring.region.header.global_seq.load(Relaxed)
    }
}

#[test]
fn a_reader_goes_on_whatever_the_writers_last_store_was() {
    for (policy, features) in CASES {
        for stores in 0.. {
            let mut stream = Stream::new(2, policy);
            let mut reader = stream.ring.join(STRICT, features);
            let mut taken = Vec::new();
            let ended = die_after(stores, || {
                for _ in 0..4 {
                    stream.publish();
                    meanwhile(|| taken.extend(stream.drain(&mut reader)));
                }
            });
            taken.extend(stream.drain(&mut reader));
            assert!(
                taken.is_sorted_by(|a, b| a < b),
                "{policy} {features}, after {stores} stores: {taken:?}"
            );
            let newest = stream.newest();
            if policy == Policy::STRICT_WAIT {
                assert_eq!(taken, (1..=newest).collect::<Vec<_>>(), "{features}, after {stores} stores");
            }
            assert!(taken.last().is_none_or(|last| *last <= newest));
            if ended.is_some() {
                assert!(stores > 20 && newest == 4, "the script came to its end after {stores} stores");
                break;
            }
        }
    }
}

#[test]
fn a_leased_frame_stays_the_readers_whatever_the_writers_last_store_was() {
    for stores in 0.. {
        let mut stream = Stream::new(1, Policy::DROP_OLDEST);
        let mut reader = stream.ring.join(STRICT, Features::LEASE);
        stream.publish().unwrap();
        let held = reader.next().unwrap();
        // A writer whose cheap look finds no lease yet backs off after its second look.
        stream.ring.region.slots[0].lease_bitmap.store(0, Relaxed);
        let ended = die_after(stores, || {
            let words = &stream.ring.region.slots[0];
            words.seq.store(u64::MAX, Relaxed);
            meanwhile(|| words.lease_bitmap.store(0b10, Relaxed));
            words.seq.store(1, Relaxed);
        });
        assert!(held.is_intact(), "after {stores} stores");
        held.release().unwrap();
        if ended.is_some() {
            break;
        }
    }
}

#[test]
fn the_publisher_and_the_others_go_on_whatever_a_readers_last_store_was() {
    for (policy, features) in CASES {
        for stores in 0.. {
            let mut stream = Stream::new(2, policy);
            let mut doomed = stream.ring.join(STRICT, features.union(Features::WAKE_HINT));
            let mut good = stream.ring.join(STRICT, features);
            let bit = doomed.seat().bit();
            let mut taken = Vec::new();
            let ended = die_after(stores, || {
                meanwhile(|| stream.publish());
                let first = doomed.next();
                meanwhile(|| (stream.publish(), taken.extend(stream.drain(&mut good))));
                let second = doomed.next();
                drop(first);
                meanwhile(|| (stream.publish(), taken.extend(stream.drain(&mut good))));
                drop((second, doomed.next()));
                if doomed.next().is_none() && doomed.park() {
                    doomed.unpark();
                }
            });
            if let Some(stalled) = stream.ring.writer.stalled() {
                assert_eq!(stalled.bits(), bit.mask(), "{policy} {features}, after {stores} stores");
            }
            stream.ring.roster.leave(Instant::ZERO, bit, Departure::Abrupt);
            stream.ring.roster.process_gone(bit);
            for slot in &stream.ring.region.slots {
                assert_eq!(slot.lease_bitmap.load(Relaxed) & bit.mask(), 0);
            }
            // The next holder of the bit starts clean, and nobody waits for the dead.
            let mut next = stream.ring.join(STRICT, features);
            assert_eq!(next.seat().bit(), bit);
            stream.drain(&mut next);
            for _ in 0..5 {
                let published = stream.publish().unwrap();
                taken.extend(stream.drain(&mut good));
                assert_eq!(
                    stream.drain(&mut next),
                    [published],
                    "{policy} {features}, after {stores} stores"
                );
            }
            assert_eq!(taken.last(), Some(&stream.newest()));
            if policy == Policy::STRICT_WAIT {
                assert_eq!(
                    taken,
                    (1..=stream.newest()).collect::<Vec<_>>(),
                    "{features}, after {stores} stores"
                );
            }
            if ended.is_some() {
                assert!(stores > 5, "the script came to its end after {stores} stores");
                break;
            }
        }
    }
}
