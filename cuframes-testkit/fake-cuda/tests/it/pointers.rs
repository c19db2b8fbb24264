//! What pointers say about themselves.

use fake_cuda::{
    AllocationProp, Code, EntryPoint as E, GRANULE, PointerAttribute as A, PointerValue, Result,
};

use crate::common::{Machine, Process};

fn ask(process: &Process, attribute: A, address: u64) -> Result<PointerValue> {
    process.call(E::cuPointerGetAttribute).pointer_attribute(attribute, address)
}

#[test]
fn only_memory_of_cu_mem_alloc_says_that_legacy_ipc_takes_it() {
    let machine = Machine::new();
    let [process, other] = [machine.process(), machine.process()];
    let plain = process.alloc(1);
    let pool = process.call(E::cuMemAllocAsync).mem_alloc_async(1, 0).unwrap();
    let managed = process.call(E::cuMemAllocManaged).mem_alloc_managed(1, 1).unwrap();
    let imported = process.open(&other.export(other.alloc(1)).unwrap()).unwrap();
    let is_ipc = |address| ask(&process, A::IS_LEGACY_IPC_CAPABLE, address).unwrap();
    assert_eq!(is_ipc(plain), PointerValue::Word(1));
    for address in [pool, managed, imported] {
        assert_eq!(is_ipc(address), PointerValue::Word(0));
    }
    assert_eq!(ask(&process, A::IS_MANAGED, managed), Ok(PointerValue::Word(1)));
    assert_ne!(ask(&process, A::MEMPOOL_HANDLE, pool), Ok(PointerValue::Long(0)));
    assert_eq!(ask(&process, A::MEMPOOL_HANDLE, plain), Ok(PointerValue::Long(0)));
}

#[test]
fn a_pointer_knows_its_device_context_and_range() {
    let process = Machine::new().process_with(|config| config.devices = 2);
    let context = process.enter(1);
    let address = process.alloc(100);
    let inside = address + 10;
    assert_eq!(ask(&process, A::DEVICE_ORDINAL, inside), Ok(PointerValue::Word(1)));
    assert_eq!(ask(&process, A::CONTEXT, inside), Ok(PointerValue::Long(context)));
    assert_eq!(ask(&process, A::MEMORY_TYPE, inside), Ok(PointerValue::Word(2)));
    assert_eq!(ask(&process, A::DEVICE_POINTER, inside), Ok(PointerValue::Long(inside)));
    assert_eq!(ask(&process, A::RANGE_START, inside), Ok(PointerValue::Long(address)));
    assert_eq!(ask(&process, A::RANGE_SIZE, inside), Ok(PointerValue::Long(100)));
    assert_eq!(ask(&process, A::HOST_POINTER, inside), Err(Code::INVALID_VALUE));
    assert_eq!(ask(&process, A(99), inside), Err(Code::INVALID_VALUE));
    let id = ask(&process, A::BUFFER_ID, address).unwrap();
    process.free(address).unwrap();
    assert_eq!(ask(&process, A::CONTEXT, address), Err(Code::INVALID_VALUE));
    assert_ne!(ask(&process, A::BUFFER_ID, process.alloc(100)), Ok(id));
}

#[test]
fn pinned_memory_is_of_the_host_and_pageable_memory_is_nothing() {
    let process = Machine::new().process();
    let host = process.call(E::cuMemAllocHost_v2).mem_alloc_host(100).unwrap();
    let inside = host.address() + 1;
    assert_eq!(ask(&process, A::MEMORY_TYPE, inside), Ok(PointerValue::Word(1)));
    assert_eq!(ask(&process, A::HOST_POINTER, inside), Ok(PointerValue::Long(inside)));
    assert_eq!(ask(&process, A::RANGE_SIZE, inside), Ok(PointerValue::Long(100)));
    assert_eq!(ask(&process, A::MEMORY_TYPE, host.address() + 100), Err(Code::INVALID_VALUE));
    assert_eq!(ask(&process, A::MEMORY_TYPE, 4096), Err(Code::INVALID_VALUE));
}

#[test]
fn mapped_memory_has_no_context_but_handle_types() {
    let process = Machine::new().process();
    let handle = process.call(E::cuMemCreate).mem_create(GRANULE, &AllocationProp::on(0, 1), 0).unwrap();
    let base = process.call(E::cuMemAddressReserve).mem_address_reserve(GRANULE, 0, 0).unwrap();
    process.call(E::cuMemMap).mem_map(base, GRANULE, 0, handle, 0).unwrap();
    assert_eq!(ask(&process, A::CONTEXT, base), Ok(PointerValue::Long(0)));
    assert_eq!(ask(&process, A::ALLOWED_HANDLE_TYPES, base), Ok(PointerValue::Long(1)));
    assert_eq!(ask(&process, A::IS_LEGACY_IPC_CAPABLE, base), Ok(PointerValue::Word(0)));
    assert_eq!(ask(&process, A::ACCESS_FLAGS, base), Ok(PointerValue::Word(0)));
}
