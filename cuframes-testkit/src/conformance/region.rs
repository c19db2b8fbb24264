//! What a region must do, whatever memory its words are in (§2, D-1, D-23): each word has a place of its own, is an atomic
//! word, and is the same one for everybody who has the region.
//!
//! [`region_conformance!`](crate::region_conformance) makes a test of each case.

use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::thread;

use cuframes_core::gpu::{EventHandle, MemHandle};
use cuframes_core::ring::{Frame, RingReader};
use cuframes_core::shm::header::SlotMemory;
use cuframes_core::shm::{Region, StreamHeader, Word};
use cuframes_core::{Backend, Features, Format, FrameMeta, Ownership, Policy, RingSize, SubscriberMode};

use crate::heap::{Bell, Ring};
use crate::layout::{SIZE, slot, subscriber, words};
use crate::vectors::vector;

/// A kind of memory that regions are in.
pub trait Memory: Sized {
    /// A region as one process has it.
    type View: Region;

    /// The memory of one region, all zero.
    fn new() -> Self;

    /// Another view of the region.
    fn view(&self) -> Self::View;

    /// The region as bytes, where somebody else can see them.
    fn bytes(&self) -> Option<Vec<u8>>;
}

/// Makes a module `$name` with a test for each case of the [suite](self), on regions in `$memory`, a [`Memory`].
#[macro_export]
macro_rules! region_conformance {
    ($name:ident, $memory:ident) => {
        $crate::conformance_tests!(
            $name,
            $crate::conformance::region,
            $memory,
            [
                every_word_lies_where_the_document_puts_it,
                every_word_has_a_place_of_its_own,
                a_number_of_a_slot_or_subscriber_that_is_too_large_wraps_around,
                a_new_region_has_the_golden_bytes,
                the_static_part_reads_back,
                every_word_does_what_a_word_does,
                two_views_are_of_one_region,
                a_region_lives_as_long_as_one_view_of_it,
                a_reader_gets_the_frames_of_a_writer_that_drops_the_oldest,
                a_reader_gets_every_frame_of_a_writer_that_waits,
                slots_beyond_the_ring_are_never_touched,
                no_bit_is_lost_between_two_threads,
                no_exchange_is_lost_between_two_threads,
                frames_pass_between_threads,
            ]
        );
    };
}

/// §2: the offsets of all words, as addresses and as bytes.
pub fn every_word_lies_where_the_document_puts_it<M: Memory>() {
    let memory = M::new();
    let view = memory.view();
    let words = words(&view);
    let offsets: Vec<usize> = words.iter().map(|(offset, _)| *offset).collect();
    assert_eq!(offsets, (0..SIZE).step_by(8).collect::<Vec<_>>(), "the whole region, without a gap");
    // The words of a model checker are larger.
    if size_of::<<M::View as Region>::Word>() == 8 {
        let base = (&raw const view.header().magic_version).addr();
        for (offset, word) in &words {
            assert_eq!(std::ptr::from_ref(*word).addr() - base, *offset);
        }
    }
    for (offset, word) in &words {
        word.store(mark(*offset), Relaxed);
    }
    if let Some(bytes) = memory.bytes() {
        for (offset, bytes) in (0..).step_by(8).zip(bytes.chunks_exact(8)).take(words.len()) {
            assert_eq!(bytes, mark(offset).to_le_bytes(), "the bytes at {offset:#06x}");
        }
    }
}

/// §2: no two fields share a word.
pub fn every_word_has_a_place_of_its_own<M: Memory>() {
    let view = M::new().view();
    for (offset, word) in words(&view) {
        assert_eq!(word.load(Relaxed), 0, "{offset:#06x} at first");
        word.store(mark(offset), Relaxed);
    }
    for (offset, word) in words(&view) {
        assert_eq!(word.load(Relaxed), mark(offset), "{offset:#06x} when all were written");
    }
}

/// D-23: "both mask every index".
pub fn a_number_of_a_slot_or_subscriber_that_is_too_large_wraps_around<M: Memory>() {
    let view = M::new().view();
    for (index, wrapped) in [(16, 0), (17, 1), (0xFFFF_FFF5, 5), (usize::MAX, 15)] {
        assert!(std::ptr::eq(view.slot(index), view.slot(wrapped)), "slot {index}");
    }
    for (bit, wrapped) in [(32, 0), (33, 1), (0xFFFF_FFE5, 5), (usize::MAX, 31)] {
        assert!(std::ptr::eq(view.subscriber(bit), view.subscriber(wrapped)), "subscriber {bit}");
    }
}

/// §2.5: the initial content.
pub fn a_new_region_has_the_golden_bytes<M: Memory>() {
    let memory = M::new();
    let view = memory.view();
    let plain = StreamHeader { features: Features::NONE, backend: Backend::CUDA_IPC, epoch: 0, ..header(8) };
    plain.write(&view);
    let golden = vector("region_empty");
    for ((offset, word), bytes) in words(&view).into_iter().zip(golden.chunks_exact(8)) {
        assert_eq!(word.load(Relaxed).to_le_bytes(), bytes, "{offset:#06x}");
    }
    if let Some(bytes) = memory.bytes() {
        assert!(bytes.starts_with(&golden), "as bytes");
    }
}

/// §2.4: what a publisher wrote is what a subscriber copies out.
pub fn the_static_part_reads_back<M: Memory>() {
    let memory = M::new();
    let (ours, theirs) = (memory.view(), memory.view());
    let handle = |index: u8| SlotMemory {
        handle: MemHandle([0x40 + index; 64]),
        ptr_external: [0x80 + index; 32],
        offset: u64::from(index) << 40,
    };
    for index in 0..16 {
        handle(index).write(&ours, index.into());
    }
    header(16).write(&ours);
    assert_eq!(StreamHeader::read(&theirs), Ok(header(16)));
    for index in 0..16 {
        assert_eq!(SlotMemory::read(&theirs, index.into()), handle(index), "slot {index}");
    }
}

/// §2, Access: loads, stores and read-modify-writes of whole words, each of which leaves all others alone.
pub fn every_word_does_what_a_word_does<M: Memory>() {
    let view = M::new().view();
    for (offset, word) in words(&view) {
        word.store(0x8000_0000_0000_0001, Release);
        assert_eq!(word.load(Acquire), 0x8000_0000_0000_0001, "store at {offset:#06x}");
        assert_eq!(word.fetch_or(0xF0, AcqRel), 0x8000_0000_0000_0001, "or at {offset:#06x}");
        assert_eq!(word.fetch_and(!1, AcqRel), 0x8000_0000_0000_00F1, "and at {offset:#06x}");
        assert_eq!(word.load(Acquire), 0x8000_0000_0000_00F0, "bits at {offset:#06x}");
        let wrong = word.compare_exchange(0xF0, 7, AcqRel, Acquire);
        assert_eq!(wrong, Err(0x8000_0000_0000_00F0), "exchange of another value at {offset:#06x}");
        let right = word.compare_exchange(0x8000_0000_0000_00F0, mark(offset), AcqRel, Acquire);
        assert_eq!(right, Ok(0x8000_0000_0000_00F0), "exchange at {offset:#06x}");
    }
    for (offset, word) in words(&view) {
        assert_eq!(word.load(Relaxed), mark(offset), "{offset:#06x} in the end");
    }
}

/// §2: both sides map the same words.
pub fn two_views_are_of_one_region<M: Memory>() {
    let memory = M::new();
    let (ours, theirs) = (memory.view(), memory.view());
    for (offset, word) in words(&ours) {
        word.store(mark(offset), Relaxed);
    }
    for (offset, word) in words(&theirs) {
        assert_eq!(word.load(Relaxed), mark(offset), "{offset:#06x}, there");
        word.fetch_or(1, Relaxed);
    }
    for (offset, word) in words(&ours) {
        assert_eq!(word.load(Relaxed), mark(offset) | 1, "{offset:#06x}, and back");
    }
}

/// §1.2: a subscriber unmaps the region while others use it, and may be the last who has it.
pub fn a_region_lives_as_long_as_one_view_of_it<M: Memory>() {
    let memory = M::new();
    let (ours, theirs) = (memory.view(), memory.view());
    ours.header().global_seq.store(41, Relaxed);
    drop((ours, memory));
    assert_eq!(theirs.header().global_seq.load(Relaxed), 41);
    theirs.header().global_seq.store(42, Relaxed);
    assert_eq!(theirs.header().global_seq.load(Relaxed), 42);
}

/// §5, DROP_OLDEST: what is still there arrives whole, and what is lost is counted.
pub fn a_reader_gets_the_frames_of_a_writer_that_drops_the_oldest<M: Memory>() {
    let memory = M::new();
    let mut ring = ring(&memory, 3, Policy::DROP_OLDEST);
    let mut strict = ring.join_through(memory.view(), SubscriberMode::STRICT_ORDER, Features::LEASE);
    let mut newest = ring.join_through(memory.view(), SubscriberMode::NEWEST_ONLY, Features::NONE);
    for round in 0..20 {
        for _ in 0..5 {
            ring.publish(pts(ring.writer.newest() + 1));
        }
        let last = (round + 1) * 5;
        let lost = if round == 0 { 0 } else { 2 };
        assert_eq!(taken(&mut strict), [(last - 2, lost), (last - 1, 0), (last, 0)]);
        assert_eq!(taken(&mut newest), [(last, if round == 0 { 0 } else { 4 })]);
    }
}

/// §5, STRICT_WAIT: nothing is lost, and the writer waits for who did not acknowledge.
pub fn a_reader_gets_every_frame_of_a_writer_that_waits<M: Memory>() {
    let memory = M::new();
    let mut ring = ring(&memory, 2, Policy::STRICT_WAIT);
    let mut reader = ring.join_through(memory.view(), SubscriberMode::STRICT_ORDER, Features::NONE);
    let bit = reader.seat().bit().mask();
    for round in 0..20 {
        let first = round * 2 + 1;
        assert_eq!([first, first + 1].map(|seq| ring.publish(pts(seq))), [first, first + 1]);
        let stalled = ring.writer.claim().unwrap_err();
        assert_eq!((stalled.waiting_for_acks, stalled.waiting_for_leases), (bit, 0));
        assert_eq!(taken(&mut reader), [(first, 0), (first + 1, 0)]);
    }
}

/// D-1: "slots from `ring_size` on stay zero except `seq`, which is `u64::MAX`".
pub fn slots_beyond_the_ring_are_never_touched<M: Memory>() {
    let memory = M::new();
    let mut ring = ring(&memory, 3, Policy::DROP_OLDEST);
    let mut reader = ring.join_through(memory.view(), SubscriberMode::STRICT_ORDER, Features::LEASE);
    for seq in 1..=40 {
        ring.publish(pts(seq));
        taken(&mut reader);
    }
    for (offset, word) in words(&memory.view()) {
        if (slot(3)..subscriber(0)).contains(&offset) {
            let expected = if (offset - slot(0)).is_multiple_of(slot(1) - slot(0)) { u64::MAX } else { 0 };
            assert_eq!(word.load(Relaxed), expected, "{offset:#06x}");
        }
    }
}

/// §2, Access: a read-modify-write is one step.
pub fn no_bit_is_lost_between_two_threads<M: Memory>() {
    let memory = M::new();
    let views = [memory.view(), memory.view()];
    thread::scope(|scope| {
        for (view, bit) in views.iter().zip([1, 2]) {
            scope.spawn(move || {
                for _ in 0..TURNS {
                    let word = &view.header().subscriber_bitmap;
                    assert_eq!(word.fetch_or(bit, AcqRel) & bit, 0, "somebody else set our bit");
                    assert_eq!(word.fetch_and(!bit, AcqRel) & bit, bit, "our bit was lost");
                }
            });
        }
    });
    assert_eq!(memory.view().header().subscriber_bitmap.load(Relaxed), 0);
}

/// §2, Access: of two exchanges of the same value one fails.
pub fn no_exchange_is_lost_between_two_threads<M: Memory>() {
    let memory = M::new();
    let views = [memory.view(), memory.view()];
    thread::scope(|scope| {
        for view in &views {
            scope.spawn(move || {
                let word = &view.subscriber(31).last_seen_seq;
                for _ in 0..TURNS {
                    let mut found = word.load(Relaxed);
                    while let Err(other) = word.compare_exchange(found, found + 1, Release, Relaxed) {
                        found = other;
                    }
                }
            });
        }
    });
    assert_eq!(memory.view().subscriber(31).last_seen_seq.load(Relaxed), 2 * TURNS);
}

/// §5.8: what a writer did before it published a frame is seen by who finds the frame, on another processor too.
pub fn frames_pass_between_threads<M: Memory>() {
    let memory = M::new();
    let mut ring = ring(&memory, 4, Policy::STRICT_WAIT);
    let mut reader = ring.join_through(memory.view(), SubscriberMode::STRICT_ORDER, Features::LEASE);
    thread::scope(|scope| {
        scope.spawn(move || {
            for seq in 1..=TURNS {
                let claim = ring.writer.claim_or(|_, _| {
                    thread::yield_now();
                    Ok::<(), ()>(())
                });
                let _ = claim.unwrap().commit(pts(seq), seq);
            }
        });
        scope.spawn(move || {
            for seq in 1..=TURNS {
                let frame = loop {
                    match reader.next() {
                        Some(frame) => break frame,
                        None => thread::yield_now(),
                    }
                };
                assert_eq!((frame.seq().get(), frame.lost(), frame.written_bytes()), (seq, 0, seq));
                assert_eq!(frame.pts_ns(), pts(seq));
                frame.release().unwrap();
            }
        });
    });
}

/// A publisher of `slots` slots with a view of its own.
fn ring<M: Memory>(memory: &M, slots: u64, policy: Policy) -> Ring<Arc<M::View>> {
    let ring = Ring::on(Arc::new(memory.view()), slots, policy);
    StreamHeader { policy, ..header(slots) }.write(&ring.region);
    ring
}

fn header(slots: u64) -> StreamHeader {
    StreamHeader {
        lib_version: [0, 1, 0],
        producer_pid: 0x1234,
        ring_size: RingSize::new(slots).unwrap(),
        ownership: Ownership::LIBRARY,
        policy: Policy::DROP_OLDEST,
        meta: FrameMeta::new(Format::NV12, 1920, 1080).unwrap(),
        ipc_event_handle: EventHandle::NONE,
        features: Features::LEASE,
        backend: Backend::HOST,
        epoch: 0x0123_4567_89AB_CDEF,
    }
}

/// Takes all frames, checks their content and releases them: their numbers, and how many were lost before each.
fn taken<V: Region>(reader: &mut RingReader<V, Bell>) -> Vec<(u64, u64)> {
    let look = |frame: Frame<V, Bell>| {
        let (seq, lost) = (frame.seq().get(), frame.lost());
        assert_eq!(frame.pts_ns(), pts(seq), "frame {seq} has another content");
        assert_eq!(frame.release(), Ok(()), "frame {seq}");
        (seq, lost)
    };
    std::iter::from_fn(|| reader.next()).map(look).collect()
}

/// The time stamp that stands for the content of a frame.
fn pts(seq: u64) -> i64 {
    seq.wrapping_mul(0x9E37_79B9_7F4A_7C15).cast_signed()
}

/// A value that only the word at this offset has.
fn mark(offset: usize) -> u64 {
    u64::try_from(offset).unwrap() << 32 | 0xCC7C_1DCC
}

/// How often a thread does what may go wrong between threads.
const TURNS: u64 = 20_000;
