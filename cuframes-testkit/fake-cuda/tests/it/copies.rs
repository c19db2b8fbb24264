//! Copies: what they read, and when.

use std::thread;
use std::time::Duration;

use fake_cuda::{Code, EntryPoint as E, GRANULE, HostSource, When};

use crate::common::{Gate, Machine, until};

#[test]
fn what_is_copied_in_within_and_out_is_the_same() {
    let process = Machine::new().process();
    let bytes: Vec<u8> = (0..=255).cycle().take(3_000_001).collect();
    let [from, to] = [0, 0].map(|_| process.alloc(4_000_000));
    process.write(from + 7, &bytes).unwrap();
    process.call(E::cuMemcpyDtoD_v2).copy_within(to + 1, from + 7, 3_000_001, When::Now).unwrap();
    assert_eq!(process.read(to + 1, 3_000_001), Ok(bytes));
    process.call(E::cuMemsetD8_v2).set_bytes(to + 10, 9, 5, When::Now).unwrap();
    assert_eq!(process.read(to + 9, 7).unwrap(), [8, 9, 9, 9, 9, 9, 14]);
    process.write(to, &[]).unwrap();
}

#[test]
fn pageable_memory_is_staged_at_the_call() {
    let process = Machine::new().process();
    let (stream, address) = (process.stream(), process.alloc(4));
    let gate = Gate::in_stream(&process, stream);
    let mut source = vec![1; 4];
    process.write_in(stream, address, &source);
    source.fill(2);
    drop(gate);
    process.finish(stream);
    assert_eq!(process.read(address, 4).unwrap(), [1; 4]);
}

#[test]
fn pinned_memory_is_read_when_the_stream_comes_to_it() {
    let process = Machine::new().process();
    let (stream, address) = (process.stream(), process.alloc(4));
    let gate = Gate::in_stream(&process, stream);
    let host = process.call(E::cuMemAllocHost_v2).mem_alloc_host(4).unwrap();
    host.write(0, &[1; 4]);
    let from = HostSource::Pinned(host.clone());
    process.call(E::cuMemcpyHtoDAsync_v2).copy_in(address, from, When::InStream(stream)).unwrap();
    host.write(0, &[2; 4]);
    drop(gate);
    process.finish(stream);
    assert_eq!(process.read(address, 4).unwrap(), [2; 4]);
}

#[test]
fn a_copy_to_pageable_memory_is_done_before_it_returns_and_one_to_pinned_memory_is_not() {
    let process = Machine::new().process();
    let (stream, address) = (process.stream(), process.alloc(4));
    process.write_in(stream, address, &[5; 4]);
    let call = process.call(E::cuMemcpyDtoHAsync_v2);
    assert_eq!(call.copy_out(address, 4, When::InStream(stream)).unwrap(), [5; 4]);

    let host = process.call(E::cuMemAllocHost_v2).mem_alloc_host(4).unwrap();
    host.write(0, &[0; 4]);
    let gate = Gate::in_stream(&process, stream);
    call.copy_out_pinned(host.clone(), address, When::InStream(stream)).unwrap();
    assert_eq!(host.read(0, 4), [0; 4]);
    drop(gate);
    process.finish(stream);
    assert_eq!(host.read(0, 4), [5; 4]);
}

#[test]
fn a_write_comes_in_two_halves() {
    let machine = Machine::new();
    let process = machine.process_with(|config| config.stream_delay = Duration::from_millis(20));
    let (stream, address) = (process.free_stream(), process.alloc(4));
    let is_torn = || process.read(address, 4).unwrap() == [1, 1, 0, 0];
    let is_done = || process.call(E::cuStreamQuery).stream_query(stream).is_ok();
    // Whether somebody looks in the right moments is chance. It is torn long enough to be seen so twice.
    let is_seen_torn = |start: &dyn Fn()| {
        process.write(address, &[0; 4]).unwrap();
        start();
        while !is_torn() && !is_done() {}
        thread::sleep(Duration::from_millis(5));
        let still = is_torn();
        process.finish(stream);
        assert_eq!(process.read(address, 4).unwrap(), [1; 4]);
        still
    };
    until(|| is_seen_torn(&|| process.write_in(stream, address, &[1; 4])));
    let when = When::InStream(stream);
    until(|| is_seen_torn(&|| process.call(E::cuMemsetD8Async).set_bytes(address, 1, 4, when).unwrap()));
}

#[test]
fn memory_must_not_go_while_a_stream_uses_it() {
    let process = Machine::new().impatient_process();
    let stream = process.stream();
    let device = process.alloc(GRANULE);
    let gate = Gate::in_stream(&process, stream);
    let host = process.call(E::cuMemAllocHost_v2).mem_alloc_host(4).unwrap();
    let host_address = host.address();
    let call = process.call(E::cuMemcpyHtoDAsync_v2);
    call.copy_in(device, HostSource::Pinned(host), When::InStream(stream)).unwrap();
    process.is_stuck(process.free(device));
    process.is_stuck(process.call(E::cuMemFreeHost).mem_free_host(host_address));
    assert_eq!(process.report().violations.len(), 4);
    // Stream-ordered memory may.
    let pool = process.call(E::cuMemAllocAsync).mem_alloc_async(4, stream).unwrap();
    process.write_in(stream, pool, &[1; 4]);
    process.call(E::cuMemFreeAsync).mem_free_async(pool, stream).unwrap();
    drop(gate);
    process.finish(stream);
    assert_eq!(process.report().violations.len(), 4);
}

#[test]
fn memory_that_a_stream_has_used_may_go() {
    let process = Machine::new().process();
    let stream = process.stream();
    for _ in 0..100 {
        let address = process.alloc(4);
        process.write_in(stream, address, &[1; 4]);
        process.finish(stream);
        process.free(address).unwrap();
    }
    assert!(process.report().violations.is_empty());
}

#[test]
fn pinned_memory_ends_where_it_ends() {
    let process = Machine::new().process();
    let host = process.call(E::cuMemAllocHost_v2).mem_alloc_host(5000).unwrap();
    assert_eq!(host.address() % 4096, 0);
    let pinned = |address, len| process.call(E::cuMemcpyHtoD_v2).pinned(address, len);
    assert_eq!(pinned(host.address() + 4990, 10).unwrap().unwrap().address(), host.address() + 4990);
    assert_eq!(pinned(host.address() + 4990, 11).unwrap_err(), Code::INVALID_VALUE);
    assert!(pinned(host.address() + 5000, 1).unwrap().is_none());
    let free = || process.call(E::cuMemFreeHost).mem_free_host(host.address());
    assert_eq!((process.report().open.pinned_host_memory, free().is_ok()), (1, true));
    assert_eq!((process.report().open.pinned_host_memory, free()), (0, Err(Code::INVALID_VALUE)));
}
