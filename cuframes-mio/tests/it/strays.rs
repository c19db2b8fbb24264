//! One word of the region that somebody else writes over, once: a subscriber with a witness does not even notice, or puts
//! it right before it sleeps (D-23, X-6).

use std::fs::{File, OpenOptions};
use std::mem::offset_of;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::common::{STRICT, Stream, next, publish, until};
use cuframes_mio::core::Policy;
use cuframes_mio::core::shm::layout::{RegionWords, SlotWords, SubscriberWords};

/// The region, as anybody who has it can write it.
struct Stray(File);

impl Stray {
    fn new(stream: &Stream) -> Self {
        Self(OpenOptions::new().read(true).write(true).open(stream.region()).unwrap())
    }

    fn write(&self, at: usize, value: u64) {
        self.0.write_all_at(&value.to_le_bytes(), u64::try_from(at).unwrap()).unwrap();
    }

    fn read(&self, at: usize) -> u64 {
        let mut bytes = [0; 8];
        self.0.read_exact_at(&mut bytes, u64::try_from(at).unwrap()).unwrap();
        u64::from_le_bytes(bytes)
    }
}

const fn leases(slot: usize) -> usize {
    offset_of!(RegionWords<u64>, slots)
        + slot * size_of::<SlotWords<u64>>()
        + offset_of!(SlotWords<u64>, lease_bitmap)
}

/// The words of the first subscriber.
const FIRST: usize = offset_of!(RegionWords<u64>, subscribers) + size_of::<SubscriberWords<u64>>();
const STATE: usize = FIRST + offset_of!(SubscriberWords<u64>, state);
const TERM: usize = FIRST + offset_of!(SubscriberWords<u64>, term);
const LAST_SEEN_SEQ: usize = FIRST + offset_of!(SubscriberWords<u64>, last_seen_seq);

#[test]
fn a_term_that_is_written_over_while_a_subscriber_attaches_does_not_starve_it() {
    let stream = Stream::new();
    let mut publisher = stream.publisher(3, Policy::DROP_OLDEST).create().unwrap().serve().unwrap();
    let stray = Stray::new(&stream);
    let done = AtomicBool::new(false);
    let mut subscriber = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                stray.write(TERM, 77);
            }
        });
        let subscriber = stream.subscriber("good", STRICT).connect();
        done.store(true, Ordering::Relaxed);
        subscriber.unwrap()
    });
    until("the publisher to put it right", || stray.read(TERM) == 1);
    for seq in 1..=5 {
        assert_eq!(publish(&mut publisher), seq);
        let frame = next(&mut subscriber);
        assert_eq!((frame.seq(), frame.lost()), (seq, 0));
        frame.release().unwrap();
    }
}

#[test]
fn a_frame_that_is_taken_and_released_while_its_subscriber_looks_evicted_is_as_any_other() {
    let stream = Stream::new();
    let mut publisher = stream.publisher(3, Policy::STRICT_WAIT).create().unwrap().serve().unwrap();
    let mut subscriber = stream.subscriber("good", STRICT).connect().unwrap();
    let stray = Stray::new(&stream);
    for seq in 1..=5 {
        stray.write(STATE, 0);
        assert_eq!(publish(&mut publisher), seq);
        let frame = next(&mut subscriber);
        stray.write(STATE, 3);
        assert_eq!(frame.seq(), seq);
        frame.release().unwrap();
        assert_eq!([0, 1, 2].map(|slot| stray.read(leases(slot))), [0; 3]);
    }
}

#[test]
fn a_lease_that_a_subscriber_has_not_taken_is_gone_when_it_sleeps() {
    let stream = Stream::new();
    let mut publisher = stream.publisher(3, Policy::DROP_OLDEST).create().unwrap().serve().unwrap();
    let mut subscriber = stream.subscriber("good", STRICT).connect().unwrap();
    publish(&mut publisher);
    drop(next(&mut subscriber));
    let stray = Stray::new(&stream);
    stray.write(leases(2), subscriber.bit().unwrap().mask());
    assert!(subscriber.next(Duration::from_millis(1)).unwrap().is_none());
    assert_eq!(stray.read(leases(2)), 0);
    assert_eq!(publish(&mut publisher), 2);
}

#[test]
fn a_number_that_nobody_has_published_does_not_switch_strict_wait_off() {
    let stream = Stream::new();
    let mut publisher = stream.publisher(2, Policy::STRICT_WAIT).create().unwrap().serve().unwrap();
    let mut subscriber = stream.subscriber("good", STRICT).connect().unwrap();
    let stray = Stray::new(&stream);
    for round in 0..3 {
        for seq in [2 * round + 1, 2 * round + 2] {
            assert_eq!(publish(&mut publisher), seq);
        }
        stray.write(LAST_SEEN_SEQ, u64::MAX);
        assert!(publisher.claim_timeout(Duration::from_millis(20)).is_err());
        for seq in [2 * round + 1, 2 * round + 2] {
            let frame = next(&mut subscriber);
            assert_eq!((frame.seq(), frame.lost()), (seq, 0));
        }
    }
}
