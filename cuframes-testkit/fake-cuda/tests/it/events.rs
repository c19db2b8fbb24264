//! Events, in one process and between two.

use std::fs::File;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use fake_cuda::{Code, EntryPoint as E, EventHandle};
use rustix::fs::{FlockOperation, flock};

use crate::common::{Gate, Machine, Process, until};

const INTERPROCESS: u32 = 4 | 2;

fn share(exporter: &Process, event: u64, importer: &Process) -> u64 {
    let handle = exporter.call(E::cuIpcGetEventHandle).ipc_get_event_handle(event).unwrap();
    importer.call(E::cuIpcOpenEventHandle).ipc_open_event_handle(&handle).unwrap()
}

fn wait(process: &Process, stream: u64, event: u64) {
    process.call(E::cuStreamWaitEvent).stream_wait_event(stream, event, 0).unwrap();
}

#[test]
fn an_event_is_complete_when_what_was_before_its_record_is_done() {
    let process = Machine::new().process();
    let (stream, event) = (process.stream(), process.event(0));
    assert!(process.is_complete(event), "it was never recorded");
    let gate = Gate::in_stream(&process, stream);
    process.record(event, stream);
    assert!(!process.is_complete(event));
    drop(gate);
    process.call(E::cuEventSynchronize).event_synchronize(event).unwrap();
    assert!(process.is_complete(event));
}

#[test]
fn a_stream_waits_for_the_record_that_was_the_last_when_it_was_asked_to() {
    let process = Machine::new().process();
    let [writer, reader, later] = [0, 0, 0].map(|_| process.free_stream());
    let event = process.event(2);
    wait(&process, reader, event);
    process.finish(reader);

    let gate = Gate::in_stream(&process, writer);
    process.record(event, writer);
    wait(&process, reader, event);
    let is_done = || process.call(E::cuStreamQuery).stream_query(reader).is_ok();
    thread::sleep(Duration::from_millis(10));
    assert!(!is_done());
    // A later record, which is not complete, holds nobody up.
    let _later_gate = Gate::in_stream(&process, later);
    process.record(event, later);
    drop(gate);
    process.finish(reader);
    assert!(!process.is_complete(event));
}

#[test]
fn records_of_two_streams_complete_in_any_order() {
    let machine = Machine::new();
    let process = machine.process_with(|config| {
        // The first record is never complete, the second is at once.
        config.faults = vec!["cuEventRecord@1=hang".parse().unwrap()];
    });
    let [stuck, quick, waits] = [0, 0, 0].map(|_| process.free_stream());
    let event = process.event(2);
    process.record(event, stuck);
    wait(&process, waits, event);
    process.record(event, quick);
    until(|| process.is_complete(event));
    assert_eq!(process.call(E::cuStreamQuery).stream_query(waits), Err(Code::NOT_READY));
}

#[test]
fn an_event_of_one_process_is_waited_for_in_another() {
    let machine = Machine::new();
    let [exporter, importer] = [machine.process(), machine.process()];
    let [done, released] = [exporter.event(INTERPROCESS), exporter.event(INTERPROCESS)];
    let [their_done, their_released] = [done, released].map(|event| share(&exporter, event, &importer));
    let address = exporter.alloc(4);
    let ours = importer.open(&exporter.export(address).unwrap()).unwrap();
    let (write, read) = (exporter.stream(), importer.stream());

    let gate = Gate::in_stream(&exporter, write);
    exporter.write_in(write, address, &[3; 4]);
    exporter.record(done, write);
    assert!(!importer.is_complete(their_done));
    wait(&importer, read, their_done);
    importer.record(their_released, read);
    assert!(!exporter.is_complete(released), "recorded there, seen here");
    drop(gate);
    exporter.call(E::cuEventSynchronize).event_synchronize(released).unwrap();
    assert_eq!(importer.read(ours, 4).unwrap(), [3; 4]);

    for event in [their_done, their_released] {
        importer.call(E::cuEventDestroy_v2).event_destroy(event).unwrap();
    }
    for event in [done, released] {
        exporter.call(E::cuEventDestroy_v2).event_destroy(event).unwrap();
    }
    assert!(exporter.report().violations.is_empty() && importer.report().violations.is_empty());
}

#[test]
fn a_process_that_stands_still_in_the_middle_of_a_record_stops_nobody_who_looks() {
    let machine = Machine::new();
    let [exporter, importer] = [machine.process(), machine.process()];
    let (event, stream) = (exporter.event(INTERPROCESS), exporter.stream());
    let theirs = share(&exporter, event, &importer);
    exporter.record(event, stream);
    exporter.finish(stream);
    let handle = exporter.call(E::cuIpcGetEventHandle).ipc_get_event_handle(event).unwrap();
    let words = machine.find(&format!("e{}", EventHandle::from_bytes(&handle).unwrap().event));
    let file = File::options().read(true).write(true).open(words).unwrap();
    flock(&file, FlockOperation::LockExclusive).unwrap();
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let context = importer.call(E::cuDevicePrimaryCtxRetain).primary_ctx_retain(0).unwrap();
        importer.call(E::cuCtxSetCurrent).ctx_set(context).unwrap();
        sender.send(importer.is_complete(theirs)).unwrap();
    });
    assert_eq!(receiver.recv_timeout(Duration::from_secs(60)), Ok(true));
}

#[test]
fn many_records_are_kept_apart() {
    let machine = Machine::new();
    let [exporter, importer] = [machine.process(), machine.process()];
    let (event, stream) = (exporter.event(INTERPROCESS), exporter.stream());
    let theirs = share(&exporter, event, &importer);
    for _ in 0..1000 {
        exporter.record(event, stream);
        importer.call(E::cuEventSynchronize).event_synchronize(theirs).unwrap();
        assert!(exporter.is_complete(event));
    }
}

#[test]
fn an_interprocess_event_must_not_be_timed() {
    let process = Machine::new().process();
    for flags in [4, 5, 8, 6 | 16] {
        let event = process.call(E::cuEventCreate).event_create(flags);
        assert_eq!(event, Err(Code::INVALID_VALUE), "{flags}");
    }
    process.event(INTERPROCESS | 1);
}

#[test]
fn only_an_interprocess_event_has_a_handle_and_not_in_its_own_process() {
    let machine = Machine::new();
    let [exporter, importer] = [machine.process(), machine.process()];
    let handle = |process: &Process, event| process.call(E::cuIpcGetEventHandle).ipc_get_event_handle(event);
    let private = exporter.event(2);
    assert_eq!(handle(&exporter, private), Err(Code::INVALID_HANDLE));
    let event = exporter.event(INTERPROCESS);
    let theirs = share(&exporter, event, &importer);
    assert_eq!(handle(&importer, theirs), Err(Code::INVALID_HANDLE));
    let own = handle(&exporter, event).unwrap();
    let open = |process: &Process, bytes| process.call(E::cuIpcOpenEventHandle).ipc_open_event_handle(bytes);
    assert_eq!(open(&exporter, &own), Err(Code::INVALID_CONTEXT));
    assert_eq!(open(&importer, &[0; 64]), Err(Code::INVALID_VALUE));
    exporter.call(E::cuEventDestroy_v2).event_destroy(event).unwrap();
    assert_eq!(open(&importer, &own), Err(Code::INVALID_HANDLE));
}

#[test]
fn an_event_must_not_be_destroyed_while_another_process_waits_for_it() {
    let machine = Machine::new();
    let exporter = machine.process_with(|config| config.streams_hang = true);
    let importer = machine.process();
    let [waited_for, open_only] = [exporter.event(INTERPROCESS), exporter.event(INTERPROCESS)];
    let theirs = share(&exporter, waited_for, &importer);
    share(&exporter, open_only, &importer);
    exporter.record(waited_for, exporter.stream());
    wait(&importer, importer.stream(), theirs);
    exporter.call(E::cuEventDestroy_v2).event_destroy(open_only).unwrap();
    assert!(exporter.report().violations.is_empty(), "open is not waited for");
    exporter.call(E::cuEventDestroy_v2).event_destroy(waited_for).unwrap();
    assert!(exporter.violation().contains("another process waits for this event"));
    // Who uses it from now on breaks a rule too.
    wait(&importer, importer.stream(), theirs);
    assert!(importer.violation().contains("the exporter destroyed this event"));
}

#[test]
fn unknown_handles_and_flags_are_refused() {
    let process = Machine::new().process_with(|config| config.devices = 2);
    let (event, stream) = (process.event(0), process.stream());
    assert_eq!(process.call(E::cuEventQuery).event_query(stream), Err(Code::INVALID_HANDLE));
    assert_eq!(process.call(E::cuEventRecord).event_record(event, event), Err(Code::INVALID_HANDLE));
    let call = process.call(E::cuStreamWaitEvent);
    assert_eq!(call.stream_wait_event(stream, event, 2), Err(Code::INVALID_VALUE));
    process.enter(1);
    let elsewhere = process.stream();
    assert_eq!(process.call(E::cuEventRecord).event_record(event, elsewhere), Err(Code::INVALID_HANDLE));
    process.call(E::cuEventDestroy_v2).event_destroy(event).unwrap();
    assert_eq!(process.call(E::cuEventDestroy_v2).event_destroy(event), Err(Code::INVALID_HANDLE));
}
