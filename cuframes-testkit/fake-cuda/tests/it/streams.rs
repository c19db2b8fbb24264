//! Streams: order, the default stream, host functions, hanging.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use fake_cuda::{Code, EntryPoint as E, GRANULE, When};

use crate::common::{Gate, Machine, until};

#[test]
fn a_stream_does_one_thing_after_the_other() {
    let process = Machine::new().process();
    let (stream, address) = (process.stream(), process.alloc(4));
    let gate = Gate::in_stream(&process, stream);
    let (sender, receiver) = mpsc::channel();
    for number in 1..=3 {
        process.write_in(stream, address, &[number; 4]);
        let sender = sender.clone();
        process.host(stream, move || sender.send(number).unwrap());
    }
    assert_eq!(process.call(E::cuStreamQuery).stream_query(stream), Err(Code::NOT_READY));
    drop(gate);
    process.finish(stream);
    assert_eq!(process.call(E::cuStreamQuery).stream_query(stream), Ok(()));
    assert_eq!(receiver.try_iter().collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!(process.read(address, 4).unwrap(), [3; 4]);
}

#[test]
fn the_default_stream_and_blocking_streams_wait_for_each_other() {
    let process = Machine::new().process();
    let [one, other] = [process.stream(), process.stream()];
    let address = process.alloc(8);
    let set = |byte, stream| {
        let when = When::InStream(stream);
        process.call(E::cuMemsetD8Async).set_bytes(address, byte, 8, when).unwrap();
    };
    let is_done = |stream| process.call(E::cuStreamQuery).stream_query(stream).is_ok();
    let gates = [one, other].map(|stream| Gate::in_stream(&process, stream));
    set(1, one);
    set(2, 0);
    let [first, second] = gates;
    drop(first);
    process.finish(one);
    thread::sleep(Duration::from_millis(10));
    assert!(!is_done(0), "it waits for the other, too");
    drop(second);
    process.finish(0);
    assert_eq!(process.read(address, 8).unwrap(), [2; 8]);

    let gate = Gate::in_stream(&process, 0);
    set(3, one);
    thread::sleep(Duration::from_millis(10));
    assert!(!is_done(one));
    drop(gate);
    process.finish(one);
    assert_eq!(process.read(address, 1).unwrap(), [3]);
}

#[test]
fn a_non_blocking_stream_does_not_wait_for_the_default_stream_nor_the_other_way_round() {
    let process = Machine::new().process();
    let (stream, address) = (process.free_stream(), process.alloc(4));
    let gate = Gate::in_stream(&process, 0);
    process.write_in(stream, address, &[3; 4]);
    process.finish(stream);
    drop(gate);
    process.finish(0);

    let _gate = Gate::in_stream(&process, stream);
    assert_eq!(process.read(address, 4).unwrap(), [3; 4]);
}

#[test]
fn a_host_function_runs_on_another_thread_and_may_call_nothing() {
    let process = Arc::new(Machine::new().process());
    let stream = process.stream();
    let (sender, receiver) = mpsc::channel();
    let inside = Arc::clone(&process);
    process.host(stream, move || {
        let code = inside.driver.call(E::cuStreamQuery).map(drop);
        let name = inside.driver.call(E::cuGetErrorName).map(drop);
        sender.send((thread::current().id(), code, name)).unwrap();
    });
    let (thread, code, name) = receiver.recv().unwrap();
    assert_ne!(thread, thread::current().id());
    assert_eq!((code, name), (Err(Code::NOT_PERMITTED), Ok(())));
    assert_eq!(process.violation(), "cuStreamQuery was called from a host function");
    process.finish(stream);
}

#[test]
fn a_destroyed_stream_still_does_what_is_in_it() {
    let process = Machine::new().process();
    let (stream, address) = (process.free_stream(), process.alloc(4));
    let gate = Gate::in_stream(&process, stream);
    process.write_in(stream, address, &[4; 4]);
    process.call(E::cuStreamDestroy_v2).stream_destroy(stream).unwrap();
    assert_eq!(process.report().open.streams, 0);
    drop(gate);
    process.call(E::cuCtxSynchronize).ctx_synchronize().unwrap();
    assert_eq!(process.read(address, 4).unwrap(), [4; 4]);
    for handle in [stream, 0] {
        assert_eq!(process.call(E::cuStreamDestroy_v2).stream_destroy(handle), Err(Code::INVALID_HANDLE));
    }
}

#[test]
fn a_context_synchronises_all_its_streams() {
    let process = Machine::new().process();
    let count = Arc::new(AtomicU64::new(0));
    for _ in 0..3 {
        let count = Arc::clone(&count);
        process.host(process.free_stream(), move || _ = count.fetch_add(1, Ordering::Relaxed));
    }
    process.call(E::cuCtxSynchronize).ctx_synchronize().unwrap();
    assert_eq!(count.load(Ordering::Relaxed), 3);
}

#[test]
fn streams_that_hang_never_get_on_but_the_default_stream_does() {
    let machine = Machine::new();
    let process = machine.process_with(|config| config.streams_hang = true);
    let (stream, event, address) = (process.free_stream(), process.event(2), process.alloc(4));
    process.write_in(stream, address, &[1; 4]);
    process.record(event, stream);
    thread::sleep(Duration::from_millis(20));
    assert!(!process.is_complete(event));
    assert_eq!(process.call(E::cuStreamQuery).stream_query(stream), Err(Code::NOT_READY));
    process.write(address, &[2; 4]).unwrap();
    assert_eq!(process.read(address, 4).unwrap(), [2; 4]);
}

#[test]
fn one_call_can_hang_a_stream() {
    let machine = Machine::new();
    let process = machine.process_with(|config| {
        config.faults = vec!["cuMemsetD8Async@2=hang".parse().unwrap()];
    });
    let (stream, address) = (process.free_stream(), process.alloc(4));
    for byte in 1..=3 {
        let when = When::InStream(stream);
        process.call(E::cuMemsetD8Async).set_bytes(address, byte, 4, when).unwrap();
    }
    until(|| process.read(address, 4).unwrap() == [1; 4]);
    thread::sleep(Duration::from_millis(20));
    assert_eq!(process.read(address, 4).unwrap(), [1; 4]);
    assert_eq!(process.call(E::cuStreamQuery).stream_query(stream), Err(Code::NOT_READY));
}

#[test]
fn what_frees_memory_waits_for_all_streams_of_the_device() {
    let process = Arc::new(Machine::new().process());
    let address = process.alloc(GRANULE);
    let gates = [process.stream(), process.free_stream()].map(|stream| Gate::in_stream(&process, stream));
    let freeing = Arc::clone(&process);
    let thread = thread::spawn(move || {
        freeing.enter(0);
        freeing.free(address)
    });
    for gate in gates {
        thread::sleep(Duration::from_millis(20));
        assert!(!thread.is_finished());
        drop(gate);
    }
    assert_eq!(thread.join().unwrap(), Ok(()));
    assert_eq!(process.report().violations, Vec::<String>::new());
}

#[test]
fn host_functions_may_run_one_at_a_time() {
    let machine = Machine::new();
    for serial in [true, false] {
        let process = machine.process_with(|config| config.serial_host_functions = serial);
        let (sender, receiver) = mpsc::channel();
        let [one, other] = [process.free_stream(), process.free_stream()];
        let gate = Gate::in_stream(&process, one);
        // It has begun where nothing else in the stream is done.
        thread::sleep(Duration::from_millis(20));
        process.host(other, move || sender.send(()).unwrap());
        if serial {
            assert!(receiver.recv_timeout(Duration::from_millis(20)).is_err());
            drop(gate);
        }
        receiver.recv().unwrap();
    }
}

#[test]
fn each_thread_has_a_default_stream_of_its_own() {
    let process = Machine::new().process();
    let gate = Gate::in_stream(&process, 2);
    let is_done = || process.call(E::cuStreamQuery).stream_query(2).is_ok();
    assert!(!is_done());
    thread::scope(|scope| {
        scope.spawn(|| {
            process.enter(0);
            assert!(is_done(), "it is another one");
        });
    });
    // The default stream waits for it.
    process.host(0, || ());
    thread::sleep(Duration::from_millis(10));
    assert_eq!(process.call(E::cuStreamQuery).stream_query(1), Err(Code::NOT_READY));
    drop(gate);
    process.finish(0);
    process.finish(2);
}

#[test]
fn a_stream_has_one_flag() {
    let process = Machine::new().process();
    assert_eq!(process.call(E::cuStreamCreate).stream_create(2), Err(Code::INVALID_VALUE));
    assert_eq!(process.call(E::cuStreamSynchronize).stream_synchronize(99), Err(Code::INVALID_HANDLE));
}
