//! Calls that fail on purpose, and what the prologue does.

use fake_cuda::{Code, EntryPoint as E};

use crate::common::Machine;

#[test]
fn the_call_that_shall_fail_fails_and_does_nothing() {
    let process = Machine::new().process_with(|config| {
        config.faults = vec!["cuMemAlloc_v2@2=2".parse().unwrap(), "cuEventCreate@*=46".parse().unwrap()];
    });
    process.alloc(1);
    assert_eq!(process.driver.call(E::cuMemAlloc_v2).unwrap_err(), Code::OUT_OF_MEMORY);
    process.alloc(1);
    for _ in 0..3 {
        assert_eq!(process.driver.call(E::cuEventCreate).unwrap_err(), Code::new(46));
    }
    let report = process.report();
    assert_eq!((report.open.allocations, report.open.events), (2, 0));
    assert_eq!((report.count(E::cuMemAlloc_v2), report.count(E::cuEventCreate)), (3, 3));
}

#[test]
fn every_entry_point_can_fail() {
    let machine = Machine::new();
    for entry_point in E::ALL.iter().copied() {
        let process = machine.bare_process_with(|config| {
            config.faults = vec![format!("{entry_point}@1=719").parse().unwrap()];
        });
        assert_eq!(process.driver.call(entry_point).unwrap_err(), Code::LAUNCH_FAILED);
    }
}

#[test]
fn codes_have_the_names_and_numbers_of_cuda() {
    let name = |number| Code::new(number).describe().map(|(name, _)| name.to_str().unwrap());
    assert_eq!(name(0), Some("CUDA_SUCCESS"));
    assert_eq!(name(201), Some("CUDA_ERROR_INVALID_CONTEXT"));
    assert_eq!(name(46), None);
    assert_eq!(
        format!("{:?} {:?}", Code::NOT_READY, Code::new(46)),
        "CUDA_ERROR_NOT_READY (600) CUresult 46"
    );
}
