//! One word of the region that somebody else has written over, once: what that costs has an end, as long as whoever alone
//! writes the word is alive (D-23).

#![expect(clippy::indexing_slicing, reason = "a failure ends the test")]

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use cuframes_core::ring::FrameLost;
use cuframes_core::roster::Departure;
use cuframes_core::{Features, Instant, Policy, SubscriberBit, SubscriberMode};
use cuframes_testkit::heap::{HeapReader, HeapRing};

const NEWEST: SubscriberMode = SubscriberMode::NEWEST_ONLY;
const STRICT: SubscriberMode = SubscriberMode::STRICT_ORDER;
const LEASE: Features = Features::LEASE;
const ALL: Features = Features::LEASE.union(Features::WAKE_HINT);

type Look = fn(&mut HeapReader) -> Vec<u64>;

/// Takes and releases everything that is there, and sleeps.
fn read_and_park(reader: &mut HeapReader) -> Vec<u64> {
    let seqs = std::iter::from_fn(|| reader.next()).map(|frame| frame.seq().get()).collect();
    assert!(reader.park());
    reader.unpark();
    seqs
}

/// As often as a reader that never sleeps finds nothing until it looks after its words.
fn spin(reader: &mut HeapReader) -> Vec<u64> {
    (0..1024).filter_map(|_| reader.next()).map(|frame| frame.seq().get()).collect()
}

fn lease(ring: &HeapRing, slot: usize) -> &AtomicU64 {
    &ring.region.slots[slot].lease_bitmap
}

#[test]
fn a_lease_bit_in_the_name_of_a_reader_is_gone_when_it_sleeps_or_has_looked_often() {
    for look in [read_and_park, spin] {
        let mut ring = HeapRing::new(3, Policy::DROP_OLDEST);
        let mut reader = ring.join(NEWEST, ALL);
        lease(&ring, 1).fetch_or(0b10, Relaxed);
        assert_eq!(ring.publish(0), 2, "slot 1 can't be had");
        drop(reader.next().unwrap());
        ring.writer.park();
        look(&mut reader);
        assert_eq!(reader.seat().outside().rings(), 1);
        assert_eq!([ring.publish(0), ring.publish(0)], [3, 4]);
    }
}

#[test]
fn a_reader_takes_no_lease_away_of_a_frame_that_is_held_on_whatever_thread() {
    let mut ring = HeapRing::new(3, Policy::DROP_OLDEST);
    let mut reader = ring.join(STRICT, LEASE);
    ring.publish(0);
    let frame = reader.next().unwrap();
    lease(&ring, 2).fetch_or(0b10, Relaxed);
    assert!(read_and_park(&mut reader).is_empty());
    assert_eq!([1, 2].map(|slot| lease(&ring, slot).load(Relaxed)), [0b10, 0]);
    std::thread::spawn(move || frame.release().unwrap()).join().unwrap();
    assert_eq!(lease(&ring, 1).load(Relaxed), 0);
}

#[test]
fn a_frame_beside_a_lease_bit_that_somebody_else_wrote_is_taken_all_the_same() {
    let mut ring = HeapRing::new(3, Policy::STRICT_WAIT);
    let mut reader = ring.join(STRICT, LEASE);
    ring.publish(0);
    lease(&ring, 1).fetch_or(0b10, Relaxed);
    reader.next().unwrap().release().unwrap();
    assert_eq!(lease(&ring, 1).load(Relaxed), 0);
}

#[test]
fn a_second_frame_in_the_slot_of_one_that_is_held_waits_and_hides_no_other() {
    let mut ring = HeapRing::new(2, Policy::DROP_OLDEST);
    let mut reader = ring.join(STRICT, LEASE);
    ring.publish(0);
    let first = reader.next().unwrap();
    // Somebody else gives the lease back.
    lease(&ring, 1).store(0, Relaxed);
    assert_eq!([ring.publish(0), ring.publish(0), ring.publish(0)], [2, 3, 4]);
    let fourth = reader.next().unwrap();
    assert_eq!((fourth.seq().get(), fourth.lost()), (4, 2), "number 3 is beside the first");
    assert_eq!(ring.publish(0), 5);
    assert!(reader.next().is_none());
    assert_eq!(first.release(), Err(FrameLost::Overwritten));
    let fifth = reader.next().unwrap();
    assert_eq!(fifth.seq().get(), 5);
    assert_eq!([0, 1].map(|slot| lease(&ring, slot).load(Relaxed)), [0b10; 2]);
}

#[test]
fn a_frame_that_was_taken_or_released_while_its_bit_looked_lost_leaves_no_lease() {
    let mut ring = HeapRing::new(3, Policy::DROP_OLDEST);
    let mut reader = ring.join(STRICT, LEASE);
    ring.publish(0);
    let frame = reader.next().unwrap();
    ring.region.subscribers[1].state.store(0, Relaxed);
    ring.publish(0);
    assert_eq!(frame.release(), Err(FrameLost::Evicted));
    assert_eq!(reader.next().unwrap().release(), Err(FrameLost::Evicted));
    assert!(read_and_park(&mut reader).is_empty());
    assert_eq!(
        [1, 2].map(|slot| lease(&ring, slot).load(Relaxed)),
        [0b10; 2],
        "it may be somebody else's bit"
    );
    assert_eq!(ring.roster.restore(), 1);
    assert!(read_and_park(&mut reader).is_empty());
    assert_eq!([1, 2].map(|slot| lease(&ring, slot).load(Relaxed)), [0; 2]);
}

/// The word that says up to which frame the first subscriber is done.
fn last_seen(ring: &HeapRing) -> &AtomicU64 {
    &ring.region.subscribers[1].last_seen_seq
}

#[test]
fn a_number_that_was_not_published_yet_acknowledges_nothing() {
    for stray in [3, u64::MAX] {
        let mut ring = HeapRing::new(2, Policy::STRICT_WAIT);
        let mut reader = ring.join(STRICT, LEASE);
        assert_eq!([ring.publish(0), ring.publish(0)], [1, 2]);
        last_seen(&ring).store(stray, Relaxed);
        assert_eq!(ring.writer.claim().unwrap_err().waiting_for_acks, 0b10);
        drop(reader.next().unwrap());
        assert_eq!((last_seen(&ring).load(Relaxed), ring.publish(0)), (1, 3), "the next one says the truth");
    }
}

#[test]
fn what_somebody_else_acknowledged_or_took_back_is_put_right_before_the_reader_sleeps() {
    for stray in [0, 1, 3, u64::MAX] {
        let mut ring = HeapRing::new(2, Policy::STRICT_WAIT);
        let mut reader = ring.join(STRICT, ALL);
        assert_eq!([ring.publish(0), ring.publish(0)], [1, 2]);
        assert_eq!(read_and_park(&mut reader), [1, 2]);
        assert_eq!([ring.publish(0), ring.publish(0)], [3, 4]);
        let frames = [reader.next().unwrap(), reader.next().unwrap()];
        last_seen(&ring).store(stray, Relaxed);
        ring.writer.park();
        assert!(read_and_park(&mut reader).is_empty());
        assert_eq!(last_seen(&ring).load(Relaxed), 2);
        assert_eq!(reader.seat().outside().rings(), 1);
        assert_eq!(ring.writer.claim().unwrap_err().waiting_for_acks, 0b10);
        drop(frames);
        assert_eq!((last_seen(&ring).load(Relaxed), ring.publish(0)), (4, 5));
    }
}

#[test]
fn what_was_released_while_its_bit_looked_lost_is_acknowledged_when_it_is_ours_after_all() {
    let mut ring = HeapRing::new(1, Policy::STRICT_WAIT);
    let mut reader = ring.join(STRICT, ALL);
    ring.publish(0);
    ring.region.subscribers[1].term.store(77, Relaxed);
    assert_eq!(reader.next().unwrap().release(), Err(FrameLost::Evicted));
    assert!(read_and_park(&mut reader).is_empty());
    assert_eq!(ring.writer.claim().unwrap_err().bits(), 0b10);
    ring.writer.park();
    ring.roster.restore();
    assert!(read_and_park(&mut reader).is_empty());
    assert_eq!((reader.seat().outside().rings(), ring.publish(0)), (1, 2));
}

#[test]
fn a_reader_that_somebody_else_said_to_sleep_or_never_to_say_so_is_not_woken_for_ever() {
    let looks: [(Look, bool); 3] = [(read_and_park, false), (spin, false), (spin, true)];
    for (look, is_parked) in looks {
        let mut ring = HeapRing::new(2, Policy::DROP_OLDEST);
        let mut reader = ring.join(STRICT, ALL);
        let words = &ring.region.subscribers[1];
        let (word, stray) = if is_parked { (&words.parked, 1) } else { (&words.wake_mode, 0) };
        word.store(stray, Relaxed);
        assert_eq!(ring.writer.claim().unwrap().commit(0, 0).wake, 0b10);
        drop(reader.next().unwrap());
        look(&mut reader);
        assert_eq!(ring.writer.claim().unwrap().commit(0, 0).wake, 0);
    }
}

#[test]
fn a_lease_bit_of_somebody_without_leases_keeps_nobody_out() {
    for policy in [Policy::DROP_OLDEST, Policy::STRICT_WAIT] {
        let mut ring = HeapRing::new(1, policy);
        // The bit had a holder with leases before.
        drop(ring.join(STRICT, LEASE));
        ring.roster.leave(Instant::ZERO, SubscriberBit::new(1).unwrap(), Departure::Clean);
        let mut reader = ring.join(STRICT, Features::NONE);
        lease(&ring, 0).store(u64::MAX, Relaxed);
        assert_eq!(ring.publish(0), 1);
        drop(reader.next().unwrap());
        assert_eq!((ring.writer.stalled(), ring.publish(0)), (None, 2));
    }
}

#[test]
fn who_never_says_when_it_sleeps_is_woken_whatever_somebody_else_wrote_in_its_name() {
    let mut ring = HeapRing::new(2, Policy::DROP_OLDEST);
    let _reader = ring.join(STRICT, LEASE);
    ring.region.subscribers[1].wake_mode.store(1, Relaxed);
    assert_eq!(ring.writer.claim().unwrap().commit(0, 0).wake, 0b10);
}

#[test]
fn a_writer_that_somebody_else_said_to_sleep_is_not_woken_for_ever() {
    let mut ring = HeapRing::new(2, Policy::DROP_OLDEST);
    let mut reader = ring.join(STRICT, ALL);
    ring.publish(0);
    ring.region.header.publisher_parked.store(1, Relaxed);
    drop(reader.next().unwrap());
    assert_eq!(reader.seat().outside().rings(), 1);
    ring.publish(0);
    drop(reader.next().unwrap());
    assert_eq!(reader.seat().outside().rings(), 1);
}

#[test]
fn a_writer_that_waits_says_again_what_is_published() {
    for stray in [0, 1, 77, u64::MAX] {
        let mut ring = HeapRing::new(1, Policy::STRICT_WAIT);
        let mut reader = ring.join(STRICT, LEASE);
        for seq in 1..3 {
            assert_eq!(ring.publish(0), seq);
            ring.region.header.global_seq.store(seq - 1, Relaxed);
            assert!(reader.next().is_none());
            ring.region.slots[0].seq.store(stray, Relaxed);
            assert_eq!(ring.writer.claim().unwrap_err().waiting_for_acks, 0b10);
            assert_eq!(reader.next().unwrap().seq().get(), seq);
        }
        assert_eq!(ring.publish(0), 3);
        let _ = ring.writer.claim().unwrap_err();
        drop(reader.next().unwrap());
        drop(ring.writer.claim().unwrap());
        assert_eq!(ring.region.slots[0].seq.load(Relaxed), u64::MAX, "there is no frame any more");
    }
}
