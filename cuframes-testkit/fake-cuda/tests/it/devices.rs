//! Devices: what they say, and which one is which.

use fake_cuda::{Code, EntryPoint as E, GRANULE};

use crate::common::{Machine, Process};

fn uuids(process: &Process) -> Vec<[u8; 16]> {
    let count = process.call(E::cuDeviceGetCount).device_count();
    (0..count).map(|device| process.call(E::cuDeviceGetUuid_v2).device_uuid(device).unwrap()).collect()
}

#[test]
fn every_name_says_that_this_is_a_test_double() {
    let machine = Machine::new();
    let usual = machine.process();
    assert_eq!(usual.call(E::cuDeviceGetName).device_name(0), Ok("fake CUDA device (test double)"));
    let named = machine.process_with(|config| config.name = Some("GeForce".to_owned()));
    assert_eq!(named.call(E::cuDeviceGetName).device_name(0), Ok("GeForce (fake CUDA device, test double)"));
}

#[test]
fn a_gpu_has_another_ordinal_but_the_same_uuid_and_bus_in_a_process_that_sees_them_in_another_order() {
    let machine = Machine::new();
    let all = machine.process_with(|config| config.devices = 3);
    let some = machine.process_with(|config| (config.devices, config.visible) = (3, Some(vec![2, 0])));
    let (all_uuids, some_uuids) = (uuids(&all), uuids(&some));
    assert_eq!(some_uuids, [all_uuids[2], all_uuids[0]]);
    assert!(all_uuids[0] != all_uuids[1] && all_uuids[1] != all_uuids[2] && all_uuids[0] != all_uuids[2]);
    let bus = |process: &Process, device| {
        process.call(E::cuDeviceGetPCIBusId).device_pci_bus_id(device).unwrap().to_owned()
    };
    assert_eq!(bus(&some, 0), bus(&all, 2));
    assert_eq!(bus(&all, 0), "0000:01:00.0");
}

#[test]
fn another_seed_is_another_machine() {
    let machine = Machine::new();
    let other = machine.process_with(|config| config.uuid_seed = 1);
    assert_ne!(uuids(&machine.process()), uuids(&other));
}

#[test]
fn there_is_no_device_behind_the_last() {
    let process = Machine::new().process();
    assert_eq!(process.call(E::cuDeviceGet).device_get(0), Ok(0));
    for device in [-1, 1] {
        assert_eq!(process.call(E::cuDeviceGet).device_get(device), Err(Code::INVALID_DEVICE));
    }
}

#[test]
fn attributes_are_as_set_or_as_usual_and_the_driver_behaves_like_them() {
    let machine = Machine::new();
    let usual = machine.process();
    let attribute =
        |process: &Process, number| process.call(E::cuDeviceGetAttribute).device_attribute(number, 0);
    assert_eq!(
        [41, 75, 102, 115, 125, 2].map(|number| attribute(&usual, number).unwrap()),
        [1, 8, 1, 1, 1, 0]
    );
    assert_eq!(attribute(&usual, 0), Err(Code::INVALID_VALUE));

    let poor = machine.process_with(|config| config.attributes = [(115, 0), (125, 0), (83, 0)].into());
    assert_eq!(attribute(&poor, 125), Ok(0));
    assert_eq!(poor.call(E::cuMemAllocAsync).mem_alloc_async(1, 0), Err(Code::NOT_SUPPORTED));
    assert_eq!(poor.call(E::cuMemAllocManaged).mem_alloc_managed(1, 1), Err(Code::NOT_SUPPORTED));
    assert_eq!(poor.call(E::cuEventCreate).event_create(6), Err(Code::NOT_SUPPORTED));
}

#[test]
fn a_machine_without_devices_does_not_initialise() {
    let process = Machine::new().bare_process_with(|config| config.devices = 0);
    assert_eq!(process.call(E::cuInit).init(0), Err(Code::NO_DEVICE));
    assert_eq!(process.driver.call(E::cuDeviceGetCount).unwrap_err(), Code::NOT_INITIALIZED);
}

#[test]
fn all_processes_together_have_the_memory_of_a_device() {
    let machine = Machine::new();
    let [one, other] =
        [0, 0].map(|_| machine.process_with(|config| (config.devices, config.memory) = (2, 4 * GRANULE)));
    let free = |process: &Process| process.call(E::cuMemGetInfo_v2).mem_get_info().unwrap();
    let first = one.alloc(3 * GRANULE);
    assert_eq!(free(&other), (GRANULE, 4 * GRANULE));
    assert_eq!(other.call(E::cuMemAlloc_v2).mem_alloc(GRANULE + 1), Err(Code::OUT_OF_MEMORY));
    other.alloc(GRANULE);
    assert_eq!(free(&one).0, 0);
    // The other device has its own.
    other.enter(1);
    other.alloc(4 * GRANULE);
    one.free(first).unwrap();
    assert_eq!(free(&one).0, 3 * GRANULE);
    // What a process had is free when it ends.
    drop(other);
    assert_eq!(free(&one).0, 4 * GRANULE);
}
