//! The ring under real threads: every word of every frame that is handed out as intact belongs to that frame (P-1, P-2).

#![expect(clippy::indexing_slicing, clippy::unwrap_used, reason = "a failure ends the test")]

use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::thread;

use cuframes_core::{Features, Policy, SubscriberMode};
use cuframes_testkit::heap::{HeapReader, HeapRing};

/// The memory of 16 slots, read and written as words, so that a torn frame is a wrong number and not undefined behaviour.
type Pool = Arc<[[AtomicU64; WORDS]; 16]>;

/// Long enough that a writer and a reader overlap in the middle of a frame.
const WORDS: usize = 256;
const FRAMES: u64 = 20_000;

#[derive(Default, Debug)]
struct Seen {
    frames: u64,
    lost: u64,
    overwritten: u64,
    last: u64,
}

fn read(mut reader: HeapReader, pool: &Pool, done: &AtomicBool, lease: bool) -> Seen {
    let mut seen = Seen::default();
    loop {
        let finished = done.load(Acquire);
        let Some(frame) = reader.next() else {
            if finished {
                return seen;
            }
            thread::yield_now();
            continue;
        };
        let seq = frame.seq().get();
        assert!(seq > seen.last, "{seq} after {}", seen.last);
        let words: Vec<u64> = pool[frame.slot()].iter().map(|word| word.load(Relaxed)).collect();
        let (lost, pts) = (frame.lost(), frame.pts_ns());
        match frame.release() {
            Ok(()) => {
                let wrong = words.iter().find(|word| **word != seq);
                assert_eq!(wrong, None, "frame {seq} is torn");
                assert_eq!(pts.cast_unsigned(), seq);
                seen.frames += 1;
            }
            Err(error) => {
                assert!(!lease, "frame {seq}: {error}");
                seen.overwritten += 1;
            }
        }
        seen.lost += lost;
        seen.last = seq;
    }
}

fn run(slots: u64, policy: Policy, readers: &[(SubscriberMode, Features)]) -> Vec<Seen> {
    let mut ring = HeapRing::new(slots, policy);
    let pool: Pool = Arc::new(std::array::from_fn(|_| std::array::from_fn(|_| AtomicU64::new(0))));
    let done = Arc::new(AtomicBool::new(false));
    let threads: Vec<_> = readers
        .iter()
        .map(|&(mode, features)| {
            let (reader, pool, done) = (ring.join(mode, features), Arc::clone(&pool), Arc::clone(&done));
            thread::spawn(move || read(reader, &pool, &done, features.contains(Features::LEASE)))
        })
        .collect();
    let mut published = 0;
    while published < FRAMES {
        let Ok(claim) = ring.writer.claim() else {
            thread::yield_now();
            continue;
        };
        let seq = claim.seq().get();
        for word in &pool[claim.slot()] {
            word.store(seq, Relaxed);
        }
        let _ = claim.commit(seq.cast_signed(), 0);
        published += 1;
    }
    done.store(true, std::sync::atomic::Ordering::Release);
    let seen: Vec<Seen> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    let newest = ring.writer.newest();
    assert!(seen.iter().all(|seen| seen.last <= newest));
    assert!(
        ring.region.slots.iter().all(|slot| slot.lease_bitmap.load(Relaxed) == 0),
        "a lease was left behind"
    );
    seen
}

const NEWEST: SubscriberMode = SubscriberMode::NEWEST_ONLY;
const STRICT: SubscriberMode = SubscriberMode::STRICT_ORDER;

#[test]
fn leased_frames_are_never_torn_under_drop_oldest() {
    for slots in [1, 2, 3, 8] {
        let readers = [(NEWEST, Features::LEASE), (STRICT, Features::LEASE)];
        for seen in run(slots, Policy::DROP_OLDEST, &readers) {
            assert!(seen.frames > 0 && seen.overwritten == 0, "ring of {slots}: {seen:?}");
        }
    }
}

#[test]
fn frames_without_a_lease_are_intact_or_reported_under_drop_oldest() {
    for slots in [1, 2, 3, 8] {
        let readers = [(NEWEST, Features::NONE), (STRICT, Features::NONE)];
        for seen in run(slots, Policy::DROP_OLDEST, &readers) {
            assert!(seen.frames > 0, "ring of {slots}: {seen:?}");
        }
    }
}

#[test]
fn nobody_loses_a_frame_under_strict_wait() {
    for slots in [1, 2, 8] {
        for features in [Features::LEASE, Features::NONE] {
            for seen in run(slots, Policy::STRICT_WAIT, &[(STRICT, features), (STRICT, Features::LEASE)]) {
                let Seen { frames, lost, overwritten, last } = seen;
                assert_eq!((frames, lost, overwritten, last), (FRAMES, 0, 0, FRAMES), "ring of {slots}");
            }
        }
    }
}

/// Frames without bytes: the writer wants every slot again and again, also those that are just being leased.
#[test]
fn a_writer_that_never_rests_neither_breaks_nor_keeps_a_lease() {
    for slots in [2, 3, 8] {
        let mut ring = HeapRing::new(slots, Policy::DROP_OLDEST);
        let done = Arc::new(AtomicBool::new(false));
        let readers: Vec<_> = [NEWEST, STRICT, STRICT]
            .map(|mode| (ring.join(mode, Features::LEASE), Arc::clone(&done)))
            .into_iter()
            .map(|(mut reader, done)| {
                thread::spawn(move || {
                    while !done.load(Relaxed) {
                        if let Some(frame) = reader.next() {
                            assert_eq!(frame.release(), Ok(()));
                        }
                    }
                })
            })
            .collect();
        let mut published = 0;
        while published < 500_000 {
            if let Ok(claim) = ring.writer.claim() {
                let _ = claim.commit(0, 0);
                published += 1;
            }
        }
        done.store(true, Relaxed);
        readers.into_iter().for_each(|reader| reader.join().unwrap());
        assert!(
            ring.region.slots.iter().all(|slot| slot.lease_bitmap.load(Relaxed) == 0),
            "a lease was left behind"
        );
    }
}
