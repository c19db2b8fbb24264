//! The mock GPU is as strict as CUDA, and shows what CUDA only lets happen.

#![expect(clippy::unwrap_used, reason = "a failure ends the test")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cuframes_core::RingSize;
use cuframes_core::error::ErrorCode;
use cuframes_core::gpu::{Call, Device, Export, GpuError, Import};
use cuframes_core::shm::header::SlotMemory;
use cuframes_testkit::mock_gpu::{Finding, MockDevice, MockError, MockGpu, MockPool, result};

const FRAME: u64 = 10;
const TIMEOUT: Duration = Duration::from_secs(1);

fn ring(slots: u64) -> RingSize {
    RingSize::new(slots).unwrap()
}

/// A process with a pool of two frames, and what opens the first.
fn exporter(gpu: &MockGpu) -> (MockDevice, MockPool, SlotMemory) {
    let process = gpu.process(0);
    let pool = process.alloc_pool(ring(2), FRAME).unwrap();
    let memory = process.export_mem(&pool, 0).unwrap();
    (process, pool, memory)
}

fn native<T>(result: Result<T, MockError>) -> Option<i32> {
    result.err().and_then(|error| error.native())
}

#[test]
fn a_copy_is_two_steps_and_half_a_frame_can_be_seen() {
    let gpu = MockGpu::new(1);
    let (publisher, mut pool, memory) = exporter(&gpu);
    let subscriber = gpu.process(0);
    let mapping = subscriber.open_mem(&memory, FRAME, &[]).unwrap();
    let (writing, reading) = (publisher.stream(), subscriber.stream());
    let see = || {
        let mut frame = [0xEE; 10];
        subscriber.copy_out(&reading, &mapping, &mut frame, TIMEOUT).unwrap();
        frame
    };
    publisher.copy_in(&writing, &mut pool, 0, &[1; 10]).unwrap();
    assert_eq!((writing.pending(), see()), (2, [0; 10]), "a stream that nobody waits for stands still");
    assert!(writing.step());
    assert_eq!(see(), [1, 1, 1, 1, 1, 0, 0, 0, 0, 0]);
    assert!(writing.step());
    assert_eq!(see(), [1; 10]);
    assert!(!writing.step());
}

#[test]
fn a_read_is_two_steps_too() {
    let gpu = MockGpu::new(1);
    let (publisher, mut pool, memory) = exporter(&gpu);
    let subscriber = gpu.process(0);
    let mapping = subscriber.open_mem(&memory, FRAME, &[]).unwrap();
    let (writing, reading) = (publisher.stream(), subscriber.stream());
    let read = subscriber.launch_read(&reading, &mapping);
    assert!(reading.step());
    publisher.copy_in(&writing, &mut pool, 0, &[1; 10]).unwrap();
    writing.run();
    assert_eq!(read.bytes(), None);
    gpu.run_all();
    assert_eq!(read.bytes().unwrap(), [0, 0, 0, 0, 0, 1, 1, 1, 1, 1]);
}

#[test]
fn a_handle_can_t_be_opened_by_its_own_process_nor_on_another_device() {
    let gpu = MockGpu::new(2);
    let (publisher, _pool, memory) = exporter(&gpu);
    let (_event, handle) = publisher.create_event().unwrap();
    let elsewhere = gpu.process(1);
    assert_eq!(native(publisher.open_mem(&memory, FRAME, &[])), Some(result::INVALID_CONTEXT));
    assert_eq!(native(publisher.open_event(&handle)), Some(result::INVALID_CONTEXT));
    assert_eq!(native(elsewhere.open_mem(&memory, FRAME, &[])), Some(result::PEER_ACCESS_UNSUPPORTED));
    assert_eq!(native(elsewhere.open_event(&handle)), Some(result::PEER_ACCESS_UNSUPPORTED));
}

#[test]
fn handles_of_another_machine_or_an_earlier_publisher_mean_nothing() {
    let (gpu, other) = (MockGpu::new(1), MockGpu::new(1));
    let (publisher, pool, memory) = exporter(&gpu);
    let (event, handle) = publisher.create_event().unwrap();
    let (_, _other_pool, _) = exporter(&other);
    assert_eq!(native(other.process(0).open_mem(&memory, FRAME, &[])), Some(result::INVALID_VALUE));
    assert_eq!(native(other.process(0).open_event(&handle)), Some(result::INVALID_HANDLE));
    drop(event);
    publisher.free_pool(pool).unwrap();
    assert_eq!(native(gpu.process(0).open_mem(&memory, FRAME, &[])), Some(result::INVALID_VALUE));
    assert_eq!(native(gpu.process(0).open_event(&handle)), Some(result::INVALID_HANDLE));
    assert_eq!(gpu.findings(), []);
}

#[test]
fn a_handle_names_the_whole_allocation_and_opens_at_its_base() {
    let gpu = MockGpu::new(1);
    let publisher = gpu.process(0);
    let memory = publisher.malloc(100);
    let mut pool = publisher.register_external(vec![memory, memory.plus(50)], FRAME).unwrap();
    let stream = publisher.stream();
    publisher.copy_in(&stream, &mut pool, 0, &[1; 10]).unwrap();
    publisher.copy_in(&stream, &mut pool, 1, &[2; 10]).unwrap();
    stream.run();
    let [first, second] = [0, 1].map(|slot| publisher.export_mem(&pool, slot).unwrap());
    assert_eq!((first.handle, first.offset, second.offset), (second.handle, 0, 50));
    assert_ne!(first.ptr_external, second.ptr_external);
    // Who does not know X-5 sees its neighbour.
    let subscriber = gpu.process(0);
    for (memory, value) in [(second, 2), (SlotMemory { offset: 0, ..second }, 1)] {
        let mapping = subscriber.open_mem(&memory, FRAME, &[]).unwrap();
        let mut frame = [0; 10];
        subscriber.copy_out(&subscriber.stream(), &mapping, &mut frame, TIMEOUT).unwrap();
        assert_eq!(frame, [value; 10]);
    }
    drop(pool);
    assert_eq!(gpu.findings(), [Finding::Allocated { process: 0, allocation: 0 }], "it is the caller's");
}

#[test]
fn external_memory_must_be_the_callers_own_and_of_no_pool() {
    let gpu = MockGpu::new(1);
    let publisher = gpu.process(0);
    let (plain, pooled) = (publisher.malloc(15), publisher.malloc_async(15));
    let register = |process: &MockDevice, pointer| process.register_external(vec![pointer], FRAME);
    assert!(register(&publisher, pooled).unwrap_err().to_string().contains("use cuMemAlloc"));
    assert_eq!(native(register(&publisher, plain.plus(6))), Some(result::INVALID_VALUE));
    assert_eq!(native(register(&gpu.process(0), plain)), Some(result::INVALID_CONTEXT));
    register(&publisher, plain.plus(5)).unwrap();
    publisher.free(plain);
    assert_eq!(native(register(&publisher, plain)), Some(result::INVALID_VALUE));
}

#[test]
fn freeing_what_others_have_open_is_found_and_so_is_its_use() {
    let gpu = MockGpu::new(1);
    let (publisher, pool, memory) = exporter(&gpu);
    let subscriber = gpu.process(0);
    let mapping = subscriber.open_mem(&memory, FRAME, &[]).unwrap();
    publisher.free_pool(pool).unwrap();
    let freed = Finding::FreedWhileMapped { process: 1, allocation: 0 };
    assert_eq!(gpu.findings(), [freed, Finding::Mapped { process: 1, allocation: 0 }]);
    let copied = subscriber.copy_out(&subscriber.stream(), &mapping, &mut [0; 10], TIMEOUT);
    assert_eq!(copied.unwrap_err().code(), ErrorCode::CUDA);
    drop(mapping);
    assert_eq!(gpu.findings(), [freed, Finding::UseAfterFree { process: 1, allocation: 0 }]);
}

#[test]
fn descriptors_keep_memory_that_is_freed() {
    let gpu = MockGpu::vmm(1);
    let (publisher, mut pool, memory) = exporter(&gpu);
    let fds: Vec<u32> = publisher.export_fds(&pool).unwrap().into_iter().map(|(_, fd)| fd).collect();
    let stream = publisher.stream();
    publisher.copy_in(&stream, &mut pool, 0, &[3; 10]).unwrap();
    stream.run();
    let mapping = publisher.open_mem(&memory, FRAME, &fds).unwrap();
    publisher.free_pool(pool).unwrap();
    let mut frame = [0; 10];
    publisher.copy_out(&stream, &mapping, &mut frame, TIMEOUT).unwrap();
    assert_eq!(frame, [3; 10]);
    publisher.close_mem(mapping).unwrap();
    assert_eq!(gpu.findings(), []);
}

#[test]
fn work_that_comes_after_the_memory_is_gone_is_found() {
    let gpu = MockGpu::new(1);
    let (publisher, mut pool, memory) = exporter(&gpu);
    let subscriber = gpu.process(0);
    let mapping = subscriber.open_mem(&memory, FRAME, &[]).unwrap();
    let stream = subscriber.stream();
    let read = subscriber.launch_read(&stream, &mapping);
    subscriber.close_mem(mapping).unwrap();
    publisher.copy_in(&publisher.stream(), &mut pool, 1, &[1; 10]).unwrap();
    publisher.free_pool(pool).unwrap();
    gpu.run_all();
    assert_eq!(read.bytes(), None);
    let mut findings = gpu.findings();
    findings.sort();
    let after = |process, allocation| Finding::UseAfterFree { process, allocation };
    assert_eq!(findings, [after(0, 1), after(1, 0)]);
}

#[test]
fn an_event_that_its_exporter_dropped_never_comes() {
    let gpu = MockGpu::new(1);
    let (publisher, subscriber) = (gpu.process(0), gpu.process(0));
    let (event, handle) = publisher.create_event().unwrap();
    let opened = subscriber.open_event(&handle).unwrap();
    let (writing, reading) = (publisher.stream(), subscriber.stream());
    writing.hold();
    publisher.record_event(&writing, &event).unwrap();
    subscriber.wait_event(&reading, &opened).unwrap();
    drop(event);
    assert_eq!(native(subscriber.synchronize(&reading, TIMEOUT)), Some(result::NOT_READY));
    assert_eq!(native(subscriber.wait_event(&reading, &opened)), Some(result::INVALID_HANDLE));
    drop(opened);
    assert_eq!(gpu.findings(), [Finding::EventDroppedUnderWait { process: 1 }]);
}

#[test]
fn an_event_is_recorded_in_stream_order_and_run_until_stops_there() {
    let gpu = MockGpu::new(1);
    let (publisher, mut pool, _) = exporter(&gpu);
    let (event, _) = publisher.create_event().unwrap();
    let stream = publisher.stream();
    assert!(event.is_done(), "it was never recorded");
    publisher.copy_in(&stream, &mut pool, 0, &[1; 10]).unwrap();
    publisher.record_event(&stream, &event).unwrap();
    publisher.copy_in(&stream, &mut pool, 1, &[1; 10]).unwrap();
    assert!(!event.is_done());
    stream.run_until(&event);
    assert_eq!((event.is_done(), stream.pending()), (true, 2));
}

#[test]
fn what_belongs_to_another_process_is_refused_and_found() {
    let gpu = MockGpu::new(1);
    let (publisher, mut pool, memory) = exporter(&gpu);
    let (one, two) = (gpu.process(0), gpu.process(0));
    let mapping = one.open_mem(&memory, FRAME, &[]).unwrap();
    assert_eq!(native(two.copy_in(&two.stream(), &mut pool, 0, &[])), Some(result::INVALID_CONTEXT));
    assert_eq!(native(one.synchronize(&publisher.stream(), TIMEOUT)), Some(result::INVALID_CONTEXT));
    assert_eq!(native(two.close_mem(mapping)), Some(result::INVALID_CONTEXT));
    assert_eq!(native(two.free_pool(pool)), Some(result::INVALID_CONTEXT));
    let other = |process, call| Finding::OtherContext { process, call };
    let expected = [
        other(2, Call::CopyIn),
        other(1, Call::Synchronize),
        other(2, Call::CloseMem),
        other(2, Call::FreePool),
    ];
    assert_eq!(gpu.findings(), expected, "and yet they are closed");
}

#[test]
fn a_host_function_that_calls_the_driver_is_found() {
    let gpu = MockGpu::new(1);
    let (_publisher, _pool, memory) = exporter(&gpu);
    let subscriber = gpu.process(0);
    let mapping = subscriber.open_mem(&memory, FRAME, &[]).unwrap();
    let stream = subscriber.stream();
    // The last owner of the frame closes it, here.
    subscriber.notify(&stream, Box::new(move || drop(mapping))).unwrap();
    let (inner, called) = (subscriber.clone(), Arc::new(AtomicBool::new(false)));
    let call = Arc::clone(&called);
    let function = move || {
        call.store(inner.create_event().is_err(), Ordering::Relaxed);
    };
    subscriber.notify(&stream, Box::new(function)).unwrap();
    stream.run();
    assert!(called.load(Ordering::Relaxed));
    let from = |call| Finding::CalledFromHostFunction { process: 1, call };
    assert_eq!(gpu.findings()[..2], [from(Call::CloseMem), from(Call::CreateEvent)]);
}

#[test]
fn a_process_that_is_killed_leaves_nothing_and_what_it_gave_stays_with_who_has_it() {
    let gpu = MockGpu::new(1);
    let (publisher, pool, memory) = exporter(&gpu);
    let (event, handle) = publisher.create_event().unwrap();
    let (one, two) = (gpu.process(0), gpu.process(0));
    let [first, second] = [&one, &two].map(|process| process.open_mem(&memory, FRAME, &[]).unwrap());
    let opened = two.open_event(&handle).unwrap();
    one.kill();
    assert!(!gpu.findings().contains(&Finding::Mapped { process: one.process(), allocation: 0 }));
    publisher.kill();
    assert_eq!(native(publisher.export_mem(&pool, 0)), Some(result::CONTEXT_IS_DESTROYED));
    drop((first, pool, event));
    let mut frame = [1; 10];
    two.copy_out(&two.stream(), &second, &mut frame, TIMEOUT).unwrap();
    assert_eq!(frame, [0; 10], "its memory is there until the last one closes it (P-8)");
    assert!(one.open_mem(&memory, FRAME, &[]).is_err());
    drop((second, opened));
    assert_eq!(gpu.findings(), []);
}

#[test]
fn the_host_functions_of_a_process_that_is_killed_are_neither_called_nor_dropped() {
    let gpu = MockGpu::new(1);
    let process = gpu.process(0);
    let alive = Arc::new(());
    let held = Arc::clone(&alive);
    process.notify(&process.stream(), Box::new(move || drop(held))).unwrap();
    process.kill();
    gpu.run_all();
    assert_eq!(Arc::strong_count(&alive), 2);
}

#[test]
fn the_nth_call_of_a_kind_fails_with_the_code_that_the_test_wants() {
    let gpu = MockGpu::new(1);
    let process = gpu.process(0);
    let _first = process.create_event().unwrap();
    gpu.fail(Call::CreateEvent, 2, result::OUT_OF_MEMORY);
    let _second = process.create_event().unwrap();
    let error = process.create_event().unwrap_err();
    assert_eq!(error.to_string(), "create_event: CUDA error 2: as the test wants it");
    assert_eq!(error.code(), ErrorCode::OUT_OF_MEMORY);
    let _third = process.create_event().unwrap();
    assert_eq!(gpu.calls(Call::CreateEvent), 4);
}

#[test]
fn everything_left_open_is_found() {
    let gpu = MockGpu::new(1);
    let (publisher, pool, memory) = exporter(&gpu);
    let subscriber = gpu.process(0);
    let mapping = subscriber.open_mem(&memory, FRAME, &[]).unwrap();
    let (event, handle) = publisher.create_event().unwrap();
    let opened = subscriber.open_event(&handle).unwrap();
    let expected = [
        Finding::Allocated { process: 0, allocation: 0 },
        Finding::Allocated { process: 0, allocation: 1 },
        Finding::Mapped { process: 1, allocation: 0 },
        Finding::Event { process: 0 },
        Finding::Event { process: 1 },
    ];
    assert_eq!(gpu.findings(), expected);
    drop((mapping, opened));
    drop((pool, event));
    assert_eq!(gpu.findings(), []);
}
