use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;

use super::*;
use crate::Format;
use crate::config::{Backend, Features, Ownership, Policy};
use crate::gpu::EventHandle;
use crate::wire::hello::ConsumerName;
use crate::wire::meta::FrameMeta;

/// A region as a publisher makes it, with a ring of 4.
fn fresh() -> Snapshot {
    let words = RegionWords::zeroed();
    let header = StreamHeader {
        lib_version: [0, 1, 0],
        producer_pid: 42,
        ring_size: RingSize::new(4).unwrap(),
        ownership: Ownership::LIBRARY,
        policy: Policy::DROP_OLDEST,
        meta: FrameMeta::new(Format::GRAY8, 16, 2).unwrap(),
        ipc_event_handle: EventHandle::NONE,
        features: Features::LEASE,
        backend: Backend::HOST,
        epoch: 7,
    };
    header.write(&words);
    Snapshot { words }
}

/// With frames 3, 4, 5 and 6, and a subscriber with bit 2 that is done with 4 and holds 5.
fn flowing() -> Snapshot {
    let snapshot = fresh();
    let RegionWords { header, slots, subscribers } = &snapshot.words;
    header.global_seq.store(6, Relaxed);
    header.subscriber_bitmap.store(0b100, Relaxed);
    for seq in 3..=6 {
        let slot = &slots[usize::try_from(seq % 4).unwrap()];
        slot.seq.store(seq, Relaxed);
        slot.pts_ns.store(seq * 1000, Relaxed);
        slot.written_bytes.store(32, Relaxed);
    }
    slots[1].lease_bitmap.store(0b100, Relaxed);
    let eye = &subscribers[2];
    eye.state.store(subscriber_state::ACTIVE, Relaxed);
    eye.consumer_pid.store(99, Relaxed);
    eye.last_seen_seq.store(4, Relaxed);
    eye.last_ack_ns.store(4500, Relaxed);
    eye.wake_mode.store(1, Relaxed);
    eye.parked.store(1, Relaxed);
    eye.term.store(3, Relaxed);
    let name: ConsumerName = "eye".parse().unwrap();
    super::super::layout::copy_in(&eye.consumer_name, &name.to_region_bytes());
    snapshot
}

#[test]
fn every_word_is_where_the_document_puts_it() {
    let mut bytes = vec![0; REGION_SIZE + 100];
    for (offset, word) in (0_u64..).step_by(8).zip(bytes.chunks_exact_mut(8)) {
        word.copy_from_slice(&offset.to_le_bytes());
    }
    let snapshot = Snapshot::of(&bytes).unwrap();
    let named = snapshot.words();
    assert_eq!(named.len() * 8, REGION_SIZE);
    for (offset, word) in (0..).step_by(8).zip(&named) {
        assert_eq!((word.offset, word.value), (offset, to_u64(offset)), "{word:?}");
    }
    assert_eq!((named[24].field, named[24].of), ("global_seq", None));
    assert_eq!((named[32 + 24].field, named[32 + 24].of), ("seq", Some((Part::Slot, 1))));
    let Snapshot { words } = snapshot;
    assert_eq!(words.header.magic_version.load(Relaxed), 0);
    assert_eq!(words.header.meta[7].load(Relaxed), 0x78);
    assert_eq!(words.header.global_seq.load(Relaxed), 0xC0);
    assert_eq!(words.header.reserved_b.load(Relaxed), 0xF8);
    assert_eq!(words.slots[15].seq.load(Relaxed), 0x100 + 15 * 0xC0);
    assert_eq!(words.slots[15].lease_bitmap.load(Relaxed), 0x100 + 15 * 0xC0 + 0x80);
    assert_eq!(words.subscribers[31].term.load(Relaxed), 0xD00 + 31 * 0x80 + 0x50);
    assert_eq!(words.subscribers[31].reserved[4].load(Relaxed), 0x1CF8);
}

#[test]
fn less_than_a_region_is_none() {
    for len in [0, 1, 256, REGION_SIZE - 1] {
        let violation = Snapshot::of(&vec![0; len]).unwrap_err();
        let (needed, available) = (to_u64(REGION_SIZE), to_u64(len));
        assert_eq!(violation.problem, Problem::Truncated { needed, available });
    }
}

#[test]
fn a_stream_is_told_as_it_is() {
    let snapshot = flowing();
    assert_eq!(snapshot.header().unwrap().producer_pid, 42);
    assert_eq!((snapshot.newest(), snapshot.active()), (6, 0b100));
    assert!(!snapshot.is_shutting_down() && !snapshot.is_publisher_parked());
    let slots: Vec<_> = snapshot.slots().map(|slot| (slot.seq, slot.pts_ns, slot.leases)).collect();
    assert_eq!(slots, [(Some(4), 4000, 0), (Some(5), 5000, 4), (Some(6), 6000, 0), (Some(3), 3000, 0)]);
    assert_eq!(snapshot.newest_slot().unwrap().slot, 2);
    let subscribers: Vec<_> = snapshot.subscribers().collect();
    let [eye] = &subscribers[..] else { panic!("{subscribers:?}") };
    assert_eq!((eye.bit, eye.pid, &*eye.name, eye.last_seen, eye.term), (2, 99, "eye", 4, 3));
    assert!(eye.is_active() && eye.is_parked && eye.says_when_it_sleeps);
    assert_eq!((snapshot.lag_of(eye), snapshot.leases_of(eye)), (Some(2), 1));
    assert_eq!(snapshot.faults(), []);
    // One that has acknowledged nothing may take frames by their numbers.
    let silent = SubscriberState { last_ack_ns: 0, ..eye.clone() };
    assert_eq!(snapshot.lag_of(&silent), None);
}

#[test]
fn a_fresh_region_has_no_fault_and_no_frame() {
    let snapshot = fresh();
    assert_eq!(snapshot.faults(), []);
    assert_eq!((snapshot.slots().count(), snapshot.newest_slot()), (4, None));
    assert_eq!(snapshot.subscribers().count(), 0);
}

#[test]
fn a_name_can_do_nothing_to_a_terminal() {
    assert_eq!(text(b"a\x1b[2J\x80b\0c"), "a?[2J?b");
    assert_eq!(text(&[b'x'; 32]), "x".repeat(32));
}

#[test]
fn every_word_that_breaks_the_document_is_named_with_its_place() {
    type Break = fn(&RegionWords<AtomicU64>);
    let cases: [(Break, &str); 18] = [
        (|r| r.header.ring_size.store(17, Relaxed), "ring_size at 0x0020 is 0x11: must be 1 to 16"),
        (|r| r.header.max_subscribers.store(31, Relaxed), "max_subscribers at 0x0038 is 0x1f: must be 32"),
        (
            |r| r.header.subscriber_bitmap.store(0b101, Relaxed),
            "subscriber_bitmap at 0x00c8 is 0x5: must be bits 1 to 31",
        ),
        (|r| r.header.shutdown_flag.store(2, Relaxed), "shutdown_flag at 0x00d0 is 0x2: must be 0 or 1"),
        (
            |r| r.header.publisher_parked.store(9, Relaxed),
            "publisher_parked at 0x00f0 is 0x9: must be 0 or 1",
        ),
        (|r| r.header.reserved_b.store(1, Relaxed), "reserved at 0x00f8 is 0x1: must be 0"),
        (
            |r| r.slots[0].seq.store(8, Relaxed),
            "slot 0: seq at 0x0100 is 0x8: must be 1 or more, and not newer than global_seq",
        ),
        (
            |r| r.slots[0].seq.store(3, Relaxed),
            "slot 0: seq at 0x0100 is 0x3: must be such that seq % ring_size is the slot",
        ),
        (
            |r| r.slots[9].seq.store(1, Relaxed),
            "slot 9: seq at 0x07c0 is 0x1: must be no frame: the ring is smaller",
        ),
        (
            |r| r.slots[1].written_bytes.store(1 << 20, Relaxed),
            "slot 1: written_bytes at 0x01d8 is 0x100000: must be at most frame_size_bytes",
        ),
        (
            |r| r.slots[2].ack_bitmap.store(1 << 32, Relaxed),
            "slot 2: ack_bitmap at 0x0290 is 0x100000000: must be bits 1 to 31",
        ),
        (
            |r| r.slots[3].lease_bitmap.store(0b1000, Relaxed),
            "slot 3: lease_bitmap at 0x03c0 is 0x8: must be bits of subscribers",
        ),
        (|r| r.slots[3].reserved_b[4].store(5, Relaxed), "slot 3: reserved at 0x03f8 is 0x5: must be 0"),
        (
            |r| r.subscribers[5].state.store(4, Relaxed),
            "subscriber 5: state at 0x0f80 is 0x4: must be 0 to 3",
        ),
        (
            |r| r.subscribers[0].state.store(1, Relaxed),
            "subscriber 0: state at 0x0d00 is 0x1: must be 0: this bit is never assigned",
        ),
        (
            |r| r.subscribers[5].state.store(2, Relaxed),
            "subscriber 5: state at 0x0f80 is 0x2: must be 2 if and only if the bit is in subscriber_bitmap",
        ),
        (
            |r| r.subscribers[2].last_seen_seq.store(7, Relaxed),
            "subscriber 2: last_seen_seq at 0x0e10 is 0x7: must be not newer than global_seq",
        ),
        (
            |r| r.subscribers[2].parked.store(2, Relaxed),
            "subscriber 2: parked at 0x0e48 is 0x2: must be 0 or 1",
        ),
    ];
    for (break_it, expected) in cases {
        let snapshot = flowing();
        break_it(&snapshot.words);
        let faults: Vec<_> = snapshot.faults().iter().map(ToString::to_string).collect();
        assert_eq!(faults, [expected]);
    }
}

#[test]
fn whatever_bytes_there_are_they_can_be_looked_at() {
    for seed in 0..200_u64 {
        let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let mut bytes = vec![0; REGION_SIZE];
        for byte in &mut bytes {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            *byte = state.to_le_bytes()[0];
        }
        let snapshot = Snapshot::of(&bytes).unwrap();
        assert!(snapshot.header().is_err());
        assert_eq!(snapshot.slots().count(), 16);
        assert!(snapshot.subscribers().all(|subscriber| snapshot.leases_of(&subscriber) <= 16));
        assert!(snapshot.faults().len() > 100);
    }
}
