//! Allocations.

use fake_cuda::{Code, EntryPoint as E, GRANULE, NEW_MEMORY, Result};

use crate::common::{Machine, Process};

fn range(process: &Process, address: u64) -> Result<(u64, u64)> {
    process.call(E::cuMemGetAddressRange_v2).mem_address_range(address)
}

#[test]
fn new_memory_is_not_zero_even_where_something_was() {
    let process = Machine::new().process();
    let [keep, gone] = [100, 100].map(|size| process.alloc(size));
    process.write(gone, &[1; 100]).unwrap();
    process.free(gone).unwrap();
    let again = process.alloc(100);
    assert_eq!(again, gone);
    for address in [keep, again] {
        assert_eq!(process.read(address, 100), Ok(vec![NEW_MEMORY; 100]));
    }
}

#[test]
fn small_allocations_share_a_block_and_large_ones_do_not() {
    let process = Machine::new().process();
    let [first, second, large, third] = [1, 1 << 20, GRANULE, 700].map(|size| process.alloc(size));
    assert_eq!(first % GRANULE, 0);
    assert_eq!((second - first, third - first), (512, 512 + (1 << 20)));
    assert_eq!(large % GRANULE, 0);
    assert!(large.abs_diff(first) >= GRANULE);
    assert_eq!(range(&process, second + 5), Ok((second, 1 << 20)), "the allocation, not the block");
    assert_eq!(range(&process, first + 1), Err(Code::INVALID_VALUE), "between two");
    // One that does not fit any more gets a block of its own.
    assert!(process.alloc(GRANULE - 512).abs_diff(first) >= GRANULE);
}

#[test]
fn a_hole_in_a_block_is_used_if_it_is_large_enough() {
    let process = Machine::new().process();
    let [first, second, third] = [1024, 1024, 1024].map(|size| process.alloc(size));
    process.free(first).unwrap();
    assert_eq!(process.alloc(1025), third + 1024);
    assert_eq!(process.alloc(1024), first);
    process.free(second).unwrap();
    assert_eq!(process.alloc(3), second);
}

#[test]
fn a_block_goes_with_its_last_allocation() {
    let machine = Machine::new();
    let process = machine.process();
    let [first, second] = [1, 1].map(|size| process.alloc(size));
    let free = || process.call(E::cuMemGetInfo_v2).mem_get_info().unwrap().0;
    assert_eq!(free(), (64 << 20) - GRANULE);
    process.free(first).unwrap();
    assert_eq!(free(), (64 << 20) - GRANULE);
    process.free(second).unwrap();
    assert_eq!(free(), 64 << 20);
    assert_ne!(process.alloc(1), first, "an address is not used twice");
}

#[test]
fn nobody_reaches_over_the_end() {
    let process = Machine::new().process();
    let [first, _second] = [512, 512].map(|size| process.alloc(size));
    let large = process.alloc(GRANULE);
    process.write(first, &[0; 512]).unwrap();
    for (address, len) in [(large, GRANULE + 1), (large + GRANULE, 1), (12, 1), (u64::MAX, 2)] {
        assert_eq!(process.read(address, len), Err(Code::INVALID_VALUE), "{address:#x}");
    }
    assert_eq!(process.report().violations.len(), 4);
    assert_eq!(
        process.report().violations[1],
        format!("cuMemcpyDtoH_v2: can't read 1 bytes at {:#x}", large + GRANULE)
    );
}

#[test]
fn memory_that_was_freed_is_not_there() {
    let process = Machine::new().process();
    let address = process.alloc(GRANULE);
    process.free(address).unwrap();
    assert_eq!(process.write(address, &[1]), Err(Code::INVALID_VALUE));
    assert_eq!(process.free(address), Err(Code::INVALID_VALUE));
    assert_eq!(process.report().violations.len(), 2);
}

#[test]
fn only_the_beginning_of_an_allocation_is_freed() {
    let process = Machine::new().process();
    let address = process.alloc(100);
    assert_eq!(process.free(address + 1), Err(Code::INVALID_VALUE));
    assert!(process.violation().contains("where no allocation begins"));
    process.free(address).unwrap();
}

#[test]
fn no_memory_is_no_memory() {
    let process = Machine::new().process();
    assert_eq!(process.call(E::cuMemAlloc_v2).mem_alloc(0), Err(Code::INVALID_VALUE));
    for size in [(64 << 20) + 1, u64::MAX] {
        assert_eq!(process.call(E::cuMemAlloc_v2).mem_alloc(size), Err(Code::OUT_OF_MEMORY));
    }
}

#[test]
fn addresses_are_of_no_host_and_of_no_other_process() {
    let machine = Machine::new();
    let [one, other] = [machine.process(), machine.process()];
    let (mine, foreign) = (one.alloc(1), other.alloc(1));
    assert!((1 << 48..1 << 56).contains(&mine));
    assert_ne!(mine, foreign);
    assert_eq!(one.read(foreign, 1), Err(Code::INVALID_VALUE));
}

#[test]
fn a_stream_frees_memory_of_its_pool_only() {
    let process = Machine::new().process();
    let stream = process.stream();
    let pool = process.call(E::cuMemAllocAsync).mem_alloc_async(1000, stream).unwrap();
    assert_eq!(process.read(pool, 1000), Ok(vec![NEW_MEMORY; 1000]));
    let plain = process.alloc(1);
    assert_eq!(process.call(E::cuMemFreeAsync).mem_free_async(plain, stream), Err(Code::INVALID_VALUE));
    process.call(E::cuMemFreeAsync).mem_free_async(pool, stream).unwrap();
    assert_eq!(process.report().open.allocations, 1);
    let unknown = process.call(E::cuMemAllocAsync).mem_alloc_async(1, 77);
    assert_eq!(unknown, Err(Code::INVALID_HANDLE));
}

#[test]
fn managed_memory_can_be_copied_to_and_freed() {
    let process = Machine::new().process();
    let address = process.call(E::cuMemAllocManaged).mem_alloc_managed(10, 1).unwrap();
    process.write(address, b"0123456789").unwrap();
    assert_eq!(process.read(address + 3, 2).unwrap(), b"34");
    process.free(address).unwrap();
    assert_eq!(process.call(E::cuMemAllocManaged).mem_alloc_managed(10, 9), Err(Code::INVALID_VALUE));
}
