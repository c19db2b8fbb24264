//! Pools, handles and mappings: what is written is read, what means nothing is refused, what was opened is closed.

use std::thread;

use cuframes_core::error::ErrorCode;
use cuframes_core::gpu::{Call, Device, EventHandle, Export, Import, MemHandle};
use cuframes_core::shm::header::SlotMemory;
use cuframes_core::wire::FdPurpose;
use cuframes_core::{Backend, RingSize};

use super::{Bench, Exported, INVALID, Lab, PATIENCE, Reader, refused, ring};

pub(super) fn every_slot_reads_back_what_was_written<L: Lab>(bench: &Bench<'_, L>) {
    let sizes = [1, 7, 8, 9, 255, 4095, 4096, 4097, 5003, 65_537];
    for (slots, len) in (1..=RingSize::MAX).zip(sizes.into_iter().cycle()) {
        let mut exported = bench.pool(slots, u64::try_from(len).unwrap());
        let pattern = |slot| (0..len).map(|i| byte(i * 7 + slot * 31 + 1)).collect::<Vec<u8>>();
        for slot in 0..usize::from(slots) {
            bench.write(&mut exported, slot, &pattern(slot));
        }
        bench.finish();
        let reader = bench.reader(&exported);
        for slot in 0..usize::from(slots) {
            assert_eq!(reader.read(slot, len), pattern(slot), "slot {slot} of {slots}, {len} bytes");
        }
        reader.close();
        bench.free(exported);
    }
}

pub(super) fn a_pool_is_all_zero_at_birth<L: Lab>(bench: &Bench<'_, L>) {
    // Twice: the second pool may get the memory of the first.
    for _ in 0..2 {
        let mut exported = bench.pool(3, 5003);
        let reader = bench.reader(&exported);
        for slot in 0..3 {
            assert_eq!(reader.read(slot, 5003), [0; 5003]);
            bench.write(&mut exported, slot, &[0xAB; 5003]);
        }
        bench.finish();
        reader.close();
        bench.free(exported);
    }
}

pub(super) fn a_write_changes_no_other_slot_and_nothing_behind_its_end<L: Lab>(bench: &Bench<'_, L>) {
    for written in 0..4 {
        let mut exported = bench.pool(4, 4099);
        bench.write(&mut exported, written, &[0xFF; 4098]);
        bench.finish();
        let reader = bench.reader(&exported);
        for slot in 0..4 {
            let (frame, last) = (reader.read(slot, 4098), reader.read(slot, 4099).pop());
            assert_eq!(frame, [if slot == written { 0xFF } else { 0 }; 4098]);
            assert_eq!(last, Some(0));
        }
        reader.close();
        bench.free(exported);
    }
}

pub(super) fn slot_memories_are_distinct_and_stable<L: Lab>(bench: &Bench<'_, L>) {
    let exported = bench.pool(16, 4096);
    for (slot, memory) in exported.memories.iter().enumerate() {
        assert_eq!(bench.exporter.export_mem(&exported.pool, slot).unwrap(), *memory);
        assert!(exported.memories.iter().skip(slot + 1).all(|other| other.handle != memory.handle));
        assert_eq!(memory.offset, 0, "a pool of the backend's own");
    }
    bench.free(exported);
}

pub(super) fn descriptors_are_those_that_the_backend_sends<L: Lab>(bench: &Bench<'_, L>) {
    let exported = bench.pool(5, 4096);
    let pool = vec![(FdPurpose::HOST_POOL, 0, 1)];
    let slots = (0..5).map(|index| (FdPurpose::CUDA_VMM, index, 5)).collect();
    let expected = match bench.exporter.backend() {
        Backend::CUDA_IPC => vec![vec![]],
        Backend::HOST => vec![pool],
        Backend::CUDA_VMM => vec![slots],
        // One that is not in the protocol has no purposes of its own, and CUDA_VMM goes to none but its peers.
        _ => vec![vec![], pool],
    };
    let fds = bench.exporter.export_fds(&exported.pool).unwrap();
    let sent: Vec<_> = fds.iter().map(|(sent, _)| (sent.purpose, sent.index, sent.count)).collect();
    assert!(expected.contains(&sent), "{sent:?} is none of {expected:?}");
    assert_eq!(bench.lab.importer().backend(), bench.exporter.backend());
    // Those that came first are of no use any more when these are opened: everybody gets their own.
    let fds = fds.into_iter().map(|(_, fd)| fd).collect();
    let exported = Exported { fds, ..exported };
    bench.reader(&exported).close();
    bench.free(exported);
}

pub(super) fn opened_twice_is_closed_twice<L: Lab>(bench: &Bench<'_, L>) {
    let mut exported = bench.pool(2, 100);
    bench.write(&mut exported, 1, &[5; 100]);
    bench.finish();
    let mut reader = bench.reader(&exported);
    let again = reader.importer.open_mem(exported.memories.get(1).unwrap(), 100, &exported.fds).unwrap();
    let first = reader.mappings.pop().unwrap();
    reader.importer.close_mem(first).unwrap();
    reader.mappings.push(again);
    assert_eq!(reader.read(1, 100), [5; 100], "closing one left the other open");
    reader.close();
    bench.reader(&exported).close();
    bench.free(exported);
}

pub(super) fn a_ring_is_opened_as_a_whole_or_not_at_all<L: Lab>(bench: &Bench<'_, L>) {
    let mut exported = bench.pool(3, 100);
    for (slot, value) in (0..3).zip(1..) {
        bench.write(&mut exported, slot, &[value; 100]);
    }
    bench.finish();
    let reader = bench.reader(&exported);
    let backend = bench.exporter.backend();
    assert!(reader.importer.opens(backend) && !reader.importer.opens(Backend(77)));
    let open = |slots: &[SlotMemory]| reader.importer.open_ring(backend, slots, 100, &exported.fds);
    let ring = open(&exported.memories).unwrap();
    for (mapping, value) in ring.iter().zip(1..) {
        let mut frame = [0; 100];
        reader.importer.copy_out(&reader.stream, mapping, &mut frame, PATIENCE).unwrap();
        assert_eq!(frame, [value; 100]);
    }
    assert_eq!(ring.len(), 3);
    ring.into_iter().for_each(|mapping| reader.importer.close_mem(mapping).unwrap());
    let mut slots = exported.memories.clone();
    slots.last_mut().unwrap().handle = MemHandle([0xFF; 64]);
    // What was opened before the one that means nothing is closed again: the lab looks.
    let codes = [ErrorCode::INVALID_ARGUMENT, ErrorCode::PROTOCOL, ErrorCode::CUDA];
    refused(open(&slots), Call::OpenMem, &codes);
    reader.close();
    bench.free(exported);
}

pub(super) fn every_frame_has_an_address_of_its_own<L: Lab>(bench: &Bench<'_, L>) {
    let exported = bench.pool(16, 5003);
    let reader = bench.reader(&exported);
    let pool = |slot| bench.exporter.pool_ptr(&exported.pool, slot);
    let apart = |mut pointers: Vec<u64>| {
        pointers.sort_unstable();
        pointers.first() != Some(&0)
            && pointers.iter().zip(pointers.iter().skip(1)).all(|(a, b)| b - a >= 5003)
    };
    assert!(apart((0..16).map(|slot| pool(slot).unwrap()).collect()));
    assert!(apart(reader.mappings.iter().map(|mapping| reader.importer.mapping_ptr(mapping)).collect()));
    assert_eq!(pool(16), None);
    reader.close();
    bench.free(exported);
}

pub(super) fn two_importers_see_the_same_frame<L: Lab>(bench: &Bench<'_, L>) {
    let mut exported = bench.pool(2, 333);
    let (one, two) = (bench.reader(&exported), bench.reader(&exported));
    bench.write(&mut exported, 0, &[1; 333]);
    bench.finish();
    assert_eq!((one.read(0, 333), two.read(0, 333)), (vec![1; 333], vec![1; 333]));
    one.close();
    bench.write(&mut exported, 0, &[2; 333]);
    bench.finish();
    assert_eq!(two.read(0, 333), [2; 333], "one that left does not matter to the other");
    two.close();
    bench.free(exported);
}

pub(super) fn a_pool_is_freed_when_the_importers_have_closed_it<L: Lab>(bench: &Bench<'_, L>) {
    let exported = bench.pool(16, 4096);
    let readers = [bench.reader(&exported), bench.reader(&exported)];
    readers.into_iter().for_each(Reader::close);
    bench.free(exported);
    bench.lab.check_nothing_is_left();
}

pub(super) fn what_is_dropped_is_closed_too<L: Lab>(bench: &Bench<'_, L>) {
    let exported = bench.pool(3, 4096);
    let (event, handle) = bench.exporter.create_event().unwrap();
    let reader = bench.reader(&exported);
    let opened = reader.importer.open_event(&handle).unwrap();
    // On another thread, where no context is current (C-10).
    let (mappings, pool) = (reader.mappings, exported.pool);
    thread::scope(|scope| {
        scope.spawn(|| drop((opened, mappings))).join().unwrap();
        scope.spawn(|| drop((event, pool))).join().unwrap();
    });
}

pub(super) fn a_copy_out_of_range_is_refused_and_changes_nothing<L: Lab>(bench: &Bench<'_, L>) {
    let mut exported = bench.pool(2, 10);
    let reader = bench.reader(&exported);
    let mut copy_in = |slot, len| {
        let copied = bench.exporter.copy_in(&bench.stream, &mut exported.pool, slot, &vec![9; len]);
        refused(copied, Call::CopyIn, &INVALID);
    };
    copy_in(0, 11);
    copy_in(2, 10);
    copy_in(usize::MAX, 1);
    for slot in [2, usize::MAX] {
        refused(bench.exporter.export_mem(&exported.pool, slot), Call::ExportMem, &INVALID);
    }
    let mapping = reader.mappings.first().unwrap();
    let copied = reader.importer.copy_out(&reader.stream, mapping, &mut [0; 11], PATIENCE);
    refused(copied, Call::CopyOut, &INVALID);
    bench.finish();
    assert_eq!((reader.read(0, 10), reader.read(1, 10)), (vec![0; 10], vec![0; 10]));
    assert!(reader.read(0, 0).is_empty());
    reader.close();
    bench.free(exported);
}

pub(super) fn pools_that_no_memory_holds_are_refused<L: Lab>(bench: &Bench<'_, L>) {
    refused(bench.exporter.alloc_pool(ring(4), 0), Call::AllocPool, &INVALID);
    refused(bench.exporter.alloc_pool(ring(16), 1 << 50), Call::AllocPool, &[ErrorCode::OUT_OF_MEMORY]);
    let either = [ErrorCode::INVALID_ARGUMENT, ErrorCode::OUT_OF_MEMORY];
    refused(bench.exporter.alloc_pool(ring(16), u64::MAX), Call::AllocPool, &either);
}

pub(super) fn handles_that_mean_nothing_are_refused<L: Lab>(bench: &Bench<'_, L>) {
    let exported = bench.pool(2, 1000);
    let importer = bench.lab.importer();
    let good = *exported.memories.first().unwrap();
    let mut bad = vec![(SlotMemory { offset: u64::MAX, ..good }, 1000)];
    bad.push((SlotMemory { offset: 1 << 40, ..good }, 1000));
    bad.push((good, 1 << 40));
    bad.push((good, u64::MAX));
    for bytes in [[0; 64], [0xFF; 64], [0x41; 64]] {
        bad.push((SlotMemory { handle: MemHandle(bytes), ..good }, 1000));
    }
    // A handle whose first byte is another one, and one whose numbers are.
    for at in [0, 10] {
        let mut handle = good.handle;
        handle.0.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 0xFF);
        bad.push((SlotMemory { handle, ..good }, 1000));
    }
    let codes = [ErrorCode::INVALID_ARGUMENT, ErrorCode::PROTOCOL, ErrorCode::OUT_OF_MEMORY, ErrorCode::CUDA];
    for (memory, len) in bad {
        refused(importer.open_mem(&memory, len, &exported.fds), Call::OpenMem, &codes);
    }
    if !exported.fds.is_empty() {
        refused(importer.open_mem(&good, 1000, &[]), Call::OpenMem, &codes);
    }
    for bytes in [[0xFF; 64], [0x41; 64]] {
        refused(importer.open_event(&EventHandle(bytes)), Call::OpenEvent, &codes);
    }
    bench.reader(&exported).close();
    bench.free(exported);
}

pub(super) fn external_frames_are_shared_where_they_are<L: Lab>(bench: &Bench<'_, L>) {
    let Bench { lab, exporter, .. } = bench;
    let nothing = exporter.register_external(Vec::new(), 100);
    if !L::HAS_EXTERNAL {
        refused(nothing, Call::RegisterExternal, &[ErrorCode::UNSUPPORTED]);
        return;
    }
    refused(nothing, Call::RegisterExternal, &INVALID);
    let too_many = lab.externals(exporter, 17, 100);
    refused(exporter.register_external(too_many, 100), Call::RegisterExternal, &INVALID);
    let externals = lab.externals(exporter, 3, 100);
    let pool = exporter.register_external(externals, 100).unwrap();
    let mut exported = bench.export(pool, 3, 100);
    assert!(exported.memories.iter().all(|memory| memory.offset != 0), "none is at its allocation's start");
    let reader = bench.reader(&exported);
    for (slot, value) in (0..3).zip(1..) {
        bench.write(&mut exported, slot, &[value; 100]);
    }
    bench.finish();
    for (slot, value) in (0..3).zip(1..) {
        assert_eq!(reader.read(slot, 100), [value; 100]);
    }
    reader.close();
    bench.free(exported);
}

fn byte(n: usize) -> u8 {
    n.to_le_bytes()[0]
}
