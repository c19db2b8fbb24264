//! Contexts, and what must be so before a call.

use std::thread;

use fake_cuda::{Code, EntryPoint as E};

use crate::common::Machine;

#[test]
fn nothing_works_before_cu_init_but_asking_for_versions_and_names() {
    let process = Machine::new().bare_process_with(|_| {});
    let early =
        [E::cuInit, E::cuDriverGetVersion, E::cuGetErrorName, E::cuGetErrorString, E::cuGetProcAddress_v2];
    for entry_point in E::ALL.iter().copied() {
        let expected = if early.contains(&entry_point) { Ok(()) } else { Err(Code::NOT_INITIALIZED) };
        assert_eq!(process.driver.call(entry_point).map(drop), expected, "{entry_point}");
    }
    assert_eq!(process.call(E::cuDriverGetVersion).driver_version(), 12_040);
    assert_eq!(process.call(E::cuInit).init(1), Err(Code::INVALID_VALUE));
}

#[test]
fn memory_streams_and_events_need_a_current_context() {
    let process = Machine::new().bare_process_with(|_| {});
    process.call(E::cuInit).init(0).unwrap();
    for entry_point in [E::cuMemAlloc_v2, E::cuIpcCloseMemHandle, E::cuStreamCreate, E::cuEventRecord] {
        assert_eq!(process.driver.call(entry_point).unwrap_err(), Code::INVALID_CONTEXT);
    }
    process.enter(0);
    process.alloc(1);
}

#[test]
fn each_thread_has_its_own_stack_of_contexts() {
    let process = Machine::new().process_with(|config| config.devices = 2);
    let first = process.call(E::cuCtxGetCurrent).ctx_get();
    let second = process.call(E::cuDevicePrimaryCtxRetain).primary_ctx_retain(1).unwrap();
    process.call(E::cuCtxPushCurrent_v2).ctx_push(second).unwrap();
    assert_eq!(process.call(E::cuCtxGetDevice).ctx_device(), Ok(1));
    thread::scope(|scope| {
        scope.spawn(|| {
            assert_eq!(process.call(E::cuCtxGetCurrent).ctx_get(), 0);
            assert_eq!(process.driver.call(E::cuMemAlloc_v2).unwrap_err(), Code::INVALID_CONTEXT);
            assert_eq!(process.call(E::cuCtxPopCurrent_v2).ctx_pop(), Err(Code::INVALID_CONTEXT));
        });
    });
    assert_eq!(process.call(E::cuCtxPopCurrent_v2).ctx_pop(), Ok(second));
    assert_eq!(process.call(E::cuCtxGetCurrent).ctx_get(), first);
    process.call(E::cuCtxSetCurrent).ctx_set(second).unwrap();
    assert_eq!(process.report().open.context_stack, 1, "it replaced the other");
    process.call(E::cuCtxSetCurrent).ctx_set(0).unwrap();
    assert_eq!(process.report().open.context_stack, 0);
}

#[test]
fn a_context_that_was_released_as_often_as_retained_is_destroyed() {
    let process = Machine::new().process();
    let context = process.enter(0);
    process.call(E::cuDevicePrimaryCtxRelease_v2).primary_ctx_release(0).unwrap();
    assert_eq!(process.call(E::cuDevicePrimaryCtxGetState).primary_ctx_is_active(0), Ok(true));
    process.call(E::cuDevicePrimaryCtxRelease_v2).primary_ctx_release(0).unwrap();
    assert_eq!(process.call(E::cuDevicePrimaryCtxGetState).primary_ctx_is_active(0), Ok(false));
    assert_eq!(process.driver.call(E::cuMemAlloc_v2).unwrap_err(), Code::CONTEXT_IS_DESTROYED);
    assert_eq!(process.call(E::cuCtxPushCurrent_v2).ctx_push(context), Err(Code::INVALID_CONTEXT));
    let again = process.call(E::cuDevicePrimaryCtxRelease_v2).primary_ctx_release(0);
    assert_eq!(again, Err(Code::INVALID_CONTEXT));
    assert!(process.report().violations.is_empty(), "nothing was in it");
}

#[test]
fn a_context_that_ends_with_something_in_it_is_a_violation() {
    let process = Machine::new().process();
    process.alloc(1);
    process.stream();
    process.call(E::cuDevicePrimaryCtxRelease_v2).primary_ctx_release(0).unwrap();
    assert!(process.violation().ends_with("ends with memory, streams in it"));
}
