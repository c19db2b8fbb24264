//! Virtual memory management.

use std::fs::File;

use fake_cuda::{AccessDesc, AllocationProp, Code, EntryPoint as E, GRANULE, Location, NEW_MEMORY, Result};

use crate::common::{Gate, Machine, Process};

/// Memory that is made, mapped and may be used as these flags say.
fn mapped(process: &Process, size: u64, handle_types: u32, flags: u32) -> (u64, u64) {
    let prop = AllocationProp::on(0, handle_types);
    let handle = process.call(E::cuMemCreate).mem_create(size, &prop, 0).unwrap();
    (handle, map(process, size, handle, flags))
}

fn map(process: &Process, size: u64, handle: u64, flags: u32) -> u64 {
    let base = process.call(E::cuMemAddressReserve).mem_address_reserve(size, 0, 0).unwrap();
    process.call(E::cuMemMap).mem_map(base, size, 0, handle, 0).unwrap();
    access(process, base, size, flags).unwrap();
    base
}

fn access(process: &Process, base: u64, size: u64, flags: u32) -> Result<()> {
    let desc = AccessDesc { location: Location::device(0), flags };
    process.call(E::cuMemSetAccess).mem_set_access(base, size, &[desc])
}

#[test]
fn memory_that_was_exported_as_a_descriptor_is_the_same_in_another_process() {
    let machine = Machine::new();
    let [exporter, importer] = [machine.process(), machine.process()];
    let (handle, theirs) = mapped(&exporter, GRANULE, 1, 3);
    let fd = exporter.call(E::cuMemExportToShareableHandle).mem_export(handle, 1, 0).unwrap();
    let imported = importer.call(E::cuMemImportFromShareableHandle).mem_import(fd, 1).unwrap();
    let ours = map(&importer, GRANULE, imported, 3);
    assert_eq!(importer.read(ours, 3).unwrap(), [NEW_MEMORY; 3]);
    exporter.write(theirs + 9, b"frame").unwrap();
    assert_eq!(importer.read(ours + 9, 5).unwrap(), b"frame");
    let prop = importer.call(E::cuMemGetAllocationPropertiesFromHandle).mem_properties(imported);
    assert_eq!(prop, Ok(AllocationProp::on(0, 1)));
    // It outlives its exporter.
    drop(exporter);
    assert_eq!(importer.read(ours + 9, 5).unwrap(), b"frame");
}

#[test]
fn only_memory_that_was_made_for_it_is_exported() {
    let process = Machine::new().process();
    let (private, _) = mapped(&process, GRANULE, 0, 3);
    let (shared, _) = mapped(&process, GRANULE, 1, 3);
    let export =
        |handle, kind, flags| process.call(E::cuMemExportToShareableHandle).mem_export(handle, kind, flags);
    assert_eq!(export(private, 1, 0).unwrap_err(), Code::INVALID_VALUE);
    assert_eq!(export(shared, 2, 0).unwrap_err(), Code::INVALID_VALUE);
    assert_eq!(export(shared, 1, 1).unwrap_err(), Code::INVALID_VALUE);
    assert_eq!(export(1234, 1, 0).unwrap_err(), Code::INVALID_VALUE);
    export(shared, 1, 0).unwrap();
}

#[test]
fn a_descriptor_of_something_else_is_refused_and_so_is_a_device_that_is_not_seen() {
    let machine = Machine::new();
    let exporter = machine.process_with(|config| config.devices = 2);
    let elsewhere = machine.process_with(|config| (config.devices, config.visible) = (2, Some(vec![1])));
    let (handle, _) = mapped(&exporter, GRANULE, 1, 3);
    let fd = exporter.call(E::cuMemExportToShareableHandle).mem_export(handle, 1, 0).unwrap();
    let import = |fd| elsewhere.call(E::cuMemImportFromShareableHandle).mem_import(fd, 1);
    assert_eq!(import(fd.try_clone().unwrap()), Err(Code::INVALID_DEVICE));
    assert_eq!(import(File::open("/proc/self/exe").unwrap().into()), Err(Code::INVALID_VALUE));
    assert_eq!(import(File::open("/dev/null").unwrap().into()), Err(Code::INVALID_VALUE));
    let call = exporter.call(E::cuMemImportFromShareableHandle);
    assert_eq!(call.mem_import(fd, 2), Err(Code::INVALID_VALUE));
}

#[test]
fn sizes_are_multiples_of_the_granularity() {
    let process = Machine::new().process();
    let prop = AllocationProp::on(0, 1);
    let granularity = process.call(E::cuMemGetAllocationGranularity).mem_granularity(&prop);
    assert_eq!(granularity, Ok(GRANULE));
    for size in [0, 1, GRANULE - 1, GRANULE + 512] {
        assert_eq!(process.call(E::cuMemCreate).mem_create(size, &prop, 0), Err(Code::INVALID_VALUE));
        let reserved = process.call(E::cuMemAddressReserve).mem_address_reserve(size, 0, 0);
        assert_eq!(reserved, Err(Code::INVALID_VALUE));
    }
    let create = |prop: &AllocationProp| process.call(E::cuMemCreate).mem_create(GRANULE, prop, 0);
    assert_eq!(create(&AllocationProp::on(1, 1)), Err(Code::INVALID_DEVICE));
    assert_eq!(create(&AllocationProp::on(0, 8)), Err(Code::NOT_SUPPORTED));
    assert_eq!(create(&AllocationProp { kind: 0, ..prop }), Err(Code::INVALID_VALUE));
    let too_much = process.call(E::cuMemCreate).mem_create(64 * GRANULE, &prop, 0);
    assert_eq!(too_much, Err(Code::OUT_OF_MEMORY));
}

#[test]
fn mapped_memory_is_used_only_as_was_granted() {
    let process = Machine::new().process_with(|config| config.devices = 2);
    let (_, base) = mapped(&process, GRANULE, 0, 0);
    assert_eq!(process.read(base, 1), Err(Code::INVALID_VALUE), "mapped, but granted to nobody");
    access(&process, base, GRANULE, 1).unwrap();
    assert_eq!(process.read(base, 1), Ok(vec![NEW_MEMORY]));
    assert_eq!(process.write(base, &[1]), Err(Code::INVALID_VALUE), "only to be read");
    let get = |device| process.call(E::cuMemGetAccess).mem_get_access(&Location::device(device), base);
    assert_eq!((get(0), get(1), get(2)), (Ok(1), Ok(0), Err(Code::INVALID_DEVICE)));
    access(&process, base, GRANULE, 3).unwrap();
    process.write(base, &[1]).unwrap();
    process.enter(1);
    assert_eq!(process.read(base, 1), Err(Code::INVALID_VALUE), "granted to the other device");
    assert_eq!(process.report().violations.len(), 3);
    assert_eq!(access(&process, base, GRANULE, 2), Err(Code::INVALID_VALUE));
}

#[test]
fn mappings_lie_in_one_reservation_and_not_over_each_other() {
    let process = Machine::new().process();
    let prop = AllocationProp::on(0, 0);
    let handle = process.call(E::cuMemCreate).mem_create(2 * GRANULE, &prop, 0).unwrap();
    let base = process.call(E::cuMemAddressReserve).mem_address_reserve(4 * GRANULE, 0, 0).unwrap();
    let map = |address, size, offset| process.call(E::cuMemMap).mem_map(address, size, offset, handle, 0);
    for (address, size, offset) in [
        (base + 3 * GRANULE, 2 * GRANULE, 0),
        (base, 3 * GRANULE, 0),
        (base, GRANULE, GRANULE),
        (base + 512, GRANULE, 0),
        (base, 512, 0),
        (GRANULE, GRANULE, 0),
    ] {
        assert_eq!(map(address, size, offset), Err(Code::INVALID_VALUE));
    }
    map(base + GRANULE, 2 * GRANULE, 0).unwrap();
    map(base + 3 * GRANULE, GRANULE, 0).unwrap();
    for address in [base, base + GRANULE, base + 2 * GRANULE] {
        assert_eq!(map(address, 2 * GRANULE, 0), Err(Code::INVALID_VALUE), "taken");
    }
    // Two mappings side by side are used like one, but each is a range of its own.
    access(&process, base + GRANULE, 3 * GRANULE, 3).unwrap();
    process.write(base + 3 * GRANULE - 2, b"abcd").unwrap();
    assert_eq!(process.read(base + GRANULE, 2).unwrap(), b"cd", "the same memory twice");
    assert_eq!(access(&process, base, 2 * GRANULE, 3), Err(Code::INVALID_VALUE));
    let range = process.call(E::cuMemGetAddressRange_v2).mem_address_range(base + 3 * GRANULE);
    assert_eq!(range, Ok((base + 3 * GRANULE, GRANULE)));
}

#[test]
fn memory_stays_as_long_as_it_has_a_handle_or_is_mapped() {
    let machine = Machine::new();
    let process = machine.process();
    let free = || process.call(E::cuMemGetInfo_v2).mem_get_info().unwrap().0;
    let whole = free();
    let (handle, base) = mapped(&process, GRANULE, 0, 3);
    process.write(base, b"x").unwrap();
    process.call(E::cuMemRelease).mem_release(handle).unwrap();
    assert_eq!(process.read(base, 1).unwrap(), b"x");
    assert_eq!(free(), whole - GRANULE);
    let free_addresses = || process.call(E::cuMemAddressFree).mem_address_free(base, GRANULE);
    assert_eq!(free_addresses(), Err(Code::INVALID_VALUE), "something is mapped there");
    let unmap = |size| process.call(E::cuMemUnmap).mem_unmap(base, size);
    assert_eq!(unmap(2 * GRANULE), Err(Code::INVALID_VALUE));
    unmap(GRANULE).unwrap();
    assert_eq!(free(), whole);
    assert_eq!(process.read(base, 1), Err(Code::INVALID_VALUE));
    free_addresses().unwrap();
    assert_eq!(free_addresses(), Err(Code::INVALID_VALUE));
    assert_eq!(process.call(E::cuMemRelease).mem_release(handle), Err(Code::INVALID_VALUE));
}

#[test]
fn memory_of_neither_kind_is_freed_as_the_other() {
    let process = Machine::new().process();
    let (_, base) = mapped(&process, GRANULE, 1, 3);
    assert_eq!(process.free(base), Err(Code::INVALID_VALUE));
    assert_eq!(process.export(base), Err(Code::INVALID_VALUE), "no legacy IPC");
    let plain = process.alloc(GRANULE);
    let unmapped = process.call(E::cuMemUnmap).mem_unmap(plain, GRANULE);
    assert_eq!(unmapped, Err(Code::INVALID_VALUE));
}

#[test]
fn memory_must_not_be_unmapped_while_a_stream_uses_it() {
    let process = Machine::new().impatient_process();
    let (_, base) = mapped(&process, GRANULE, 1, 3);
    let stream = process.stream();
    let gate = Gate::in_stream(&process, stream);
    process.write_in(stream, base, &[1; 4]);
    let unmap = || process.call(E::cuMemUnmap).mem_unmap(base, GRANULE);
    process.is_stuck(unmap());
    drop(gate);
    process.finish(stream);
    unmap().unwrap();
}

#[test]
fn memory_for_reading_only_can_be_refused() {
    let process = Machine::new().process_with(|config| config.read_only_refused = true);
    let (_, base) = mapped(&process, GRANULE, 1, 3);
    let read = AccessDesc { location: Location::device(0), flags: 1 };
    let granted = process.call(E::cuMemSetAccess).mem_set_access(base, GRANULE, &[read]);
    assert_eq!(granted, Err(Code::NOT_SUPPORTED));
}

#[test]
fn a_device_without_virtual_memory_says_so() {
    let process = Machine::new().process_with(|config| config.attributes = [(102, 0)].into());
    let create = process.call(E::cuMemCreate).mem_create(GRANULE, &AllocationProp::on(0, 0), 0);
    assert_eq!(create, Err(Code::NOT_SUPPORTED));
    let process = Machine::new().process_with(|config| config.attributes = [(103, 0)].into());
    let create = |types| process.call(E::cuMemCreate).mem_create(GRANULE, &AllocationProp::on(0, types), 0);
    assert_eq!(create(1), Err(Code::NOT_SUPPORTED));
    create(0).unwrap();
}
