//! Streams that do not get on: freeing and closing would wait for them for ever, so nobody does.

use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::Duration;

use cuframes_core::Backend;
use cuframes_core::error::ErrorCode;
use cuframes_core::gpu::{Call, Device as _, Export as _, GpuError as _, Import as _};
use cuframes_cuda::{Cuda, CudaError, Stream};
use fake_cuda::{EntryPoint as E, Report, StillOpen};

use crate::double::{PATIENCE, alone, alone_with, check, reports_of};
use crate::memory::{BACKENDS, ring};
use crate::remote::{Exporter, Importer};

/// Lets a stream stand still until what this gives is dropped.
fn hold(cuda: &Cuda, stream: &Stream) -> Sender<()> {
    let (resume, is_resumed) = mpsc::channel();
    cuda.notify(stream, Box::new(move || is_resumed.recv().unwrap_or_default())).unwrap();
    resume
}

/// Nobody broke a rule. What is open is not looked at: a device that does not get on keeps it.
fn check_rules(reports: &Option<Vec<Report>>) {
    for report in reports.iter().flatten() {
        assert_eq!(report.violations, Vec::<String>::new(), "{report:?}");
    }
}

#[test]
fn who_waits_for_an_exporter_that_was_killed_gets_a_timeout_and_can_end() {
    let reports = reports_of(&[], || {
        let (exporter, offer) = Exporter::new(0, Backend::CUDA_IPC);
        let cuda = Cuda::open_as(0, Backend::CUDA_IPC).unwrap();
        let mapping = cuda.open_mem(&offer.slots[2], 1000, &[]).unwrap();
        let event = cuda.open_event(&offer.event).unwrap();
        let stuck = cuda.stream().unwrap();
        cuda.wait_event(&stuck, &event).unwrap();
        exporter.kill();
        let mut out = [0xEE; 1000];
        let error = cuda.copy_out(&stuck, &mapping, &mut out, MOMENT).unwrap_err();
        assert_eq!((error.call(), error.code()), (Call::CopyOut, ErrorCode::TIMEOUT), "{error}");
        assert_eq!(out, [0xEE; 1000]);
        for _ in 0..10 {
            let error = cuda.synchronize(&stuck, MOMENT).unwrap_err();
            assert_eq!((error.call(), error.code()), (Call::Synchronize, ErrorCode::TIMEOUT), "{error}");
        }
        // Other streams go on, with memory and event of their own.
        let stream = cuda.stream().unwrap();
        let mut pool = cuda.alloc_pool(ring(1), 10).unwrap();
        cuda.copy_in(&stream, &mut pool, 0, &[1; 10]).unwrap();
        cuda.synchronize(&stream, PATIENCE).unwrap();
        // The driver would wait for the one that stands still.
        cuda.free_pool(pool).unwrap();
        cuda.close_mem(mapping).unwrap();
        drop((event, stuck));
    });
    check_rules(&reports);
    let Some(reports) = reports else { return };
    // Who was killed reports nothing.
    let [report] = &reports[..] else { panic!("{reports:?}") };
    let closed = [E::cuMemFree_v2, E::cuMemFreeHost, E::cuIpcCloseMemHandle].map(|call| report.count(call));
    assert_eq!(closed, [0; 3]);
    let StillOpen { allocations, pinned_host_memory, ipc_imports, primary_retains, streams, events, .. } =
        report.open;
    assert_eq!((allocations, pinned_host_memory, ipc_imports, primary_retains), (1, 1, 1, 1));
    // However often somebody waited: the one that watches the stream, and that of the buffer.
    assert_eq!((streams, events), (0, 2));
}

#[test]
fn what_could_not_be_closed_is_closed_when_the_stream_gets_on() {
    alone(|| {
        for backend in BACKENDS {
            let exporter = Exporter::new(0, Backend::CUDA_IPC);
            let cuda = Cuda::open_as(0, backend).unwrap();
            let mapping = cuda.open_mem_of(&exporter.1.slots[0]);
            let pools = [(); 2].map(|()| cuda.alloc_pool(ring(2), 10).unwrap());
            let stream = cuda.stream().unwrap();
            let resume = hold(&cuda, &stream);
            assert_eq!(cuda.synchronize(&stream, MOMENT).unwrap_err().code(), ErrorCode::TIMEOUT);
            let [first, second] = pools;
            cuda.free_pool(first).unwrap();
            cuda.close_mem(mapping).unwrap();
            // Everybody in the process has the same context.
            let other = Cuda::open_as(0, backend).unwrap();
            other.free_pool(other.alloc_pool(ring(1), 10).unwrap()).unwrap();
            drop(other);
            // It was not closed, so whoever wants it again has it.
            let again = cuda.open_mem_of(&exporter.1.slots[0]);
            drop(resume);
            cuda.synchronize(&stream, PATIENCE).unwrap();
            cuda.close_mem(again).unwrap();
            cuda.free_pool(second).unwrap();
            drop((cuda, stream));
            exporter.0.end();
        }
    });
}

/// Opens a frame of an [`Exporter`] over a legacy handle.
trait OpenMemOf {
    fn open_mem_of(&self, memory: &cuframes_core::shm::header::SlotMemory) -> cuframes_cuda::Mapping;
}

impl OpenMemOf for Cuda {
    fn open_mem_of(&self, memory: &cuframes_core::shm::header::SlotMemory) -> cuframes_cuda::Mapping {
        let [mapping] = <[_; 1]>::try_from(
            self.open_ring(Backend::CUDA_IPC, std::slice::from_ref(memory), 1000, &[]).unwrap(),
        )
        .unwrap();
        mapping
    }
}

#[test]
fn a_copy_that_is_given_up_leaves_its_memory_alone() {
    let reports = reports_of(&[], || {
        for backend in BACKENDS {
            for fail in [
                "cuMemcpyDtoHAsync_v2@2=hang",
                "cuEventRecord@2=700",
                "cuEventQuery@2=700",
                "cuEventQuery@*=700,cuStreamQuery@*=700",
            ] {
                give_copies_up(backend, fail);
            }
        }
    });
    check_rules(&reports);
}

/// Copies a frame out in a process in which this fails, and closes it there.
fn give_copies_up(backend: Backend, fail: &str) {
    let cuda = Cuda::open_as(0, backend).unwrap();
    let mut pool = cuda.alloc_pool(ring(2), 1000).unwrap();
    let stream = cuda.stream().unwrap();
    cuda.copy_in(&stream, &mut pool, 1, &[1; 1000]).unwrap();
    cuda.synchronize(&stream, PATIENCE).unwrap();
    let variables = [("FAKE_CUDA_FAIL", fail), ("FAKE_CUDA_STREAM_DELAY_MS", "20"), LIMIT];
    let importer = Importer::with(0, backend, &variables);
    let reading = importer.stream();
    let fds: Vec<_> = cuda.export_fds(&pool).unwrap().into_iter().map(|(_, fd)| fd).collect();
    let [used, other] =
        [0, 1].map(|slot| importer.open_mem(&cuda.export_mem(&pool, slot).unwrap(), 1000, &fds).unwrap());
    let mut out = [0; 1000];
    let copies = [(); 3].map(|()| importer.copy_out(&reading, &used, &mut out, MOMENT * 5));
    assert!(copies.iter().any(Result::is_err), "{fail}");
    importer.close_mem(used).unwrap();
    importer.close_mem(other).unwrap();
    // Its process ends with what it could not close.
    drop((reading, importer));
    cuda.free_pool(pool).unwrap();
}

#[test]
fn a_pool_that_the_device_does_not_zero_in_time_is_left_alone() {
    let variables = [("FAKE_CUDA_HANG_STREAM", "1"), LIMIT];
    let reports = reports_of(&variables, || {
        let error = alloc_pool(Backend::CUDA_IPC);
        assert_eq!(error.code(), ErrorCode::TIMEOUT, "{error}");
        assert!(error.to_string().contains("within 10s"), "{error}");
    });
    check_rules(&reports);
}

#[test]
fn a_pool_of_which_nobody_knows_whether_it_is_zero_is_left_alone() {
    let fail = ("FAKE_CUDA_FAIL", "cuEventQuery@*=700,cuStreamQuery@*=700");
    let reports = reports_of(&[fail, ("FAKE_CUDA_STREAM_DELAY_MS", "20"), LIMIT], || {
        for backend in BACKENDS {
            assert_eq!(alloc_pool(backend).native(), Some(700));
        }
    });
    check_rules(&reports);
}

fn alloc_pool(backend: Backend) -> CudaError {
    Cuda::open_as(0, backend).unwrap().alloc_pool(ring(2), 1000).unwrap_err()
}

#[test]
fn a_copy_that_can_not_be_watched_leaves_the_pool_alone_over_handles() {
    // The first is of the wait until the pool is zero.
    let variables = [("FAKE_CUDA_FAIL", "cuEventRecord@2=700"), ("FAKE_CUDA_STREAM_DELAY_MS", "20"), LIMIT];
    alone_with(&variables, || copy_without_a_watch(Backend::CUDA_IPC));
}

#[test]
fn a_copy_that_can_not_be_watched_leaves_the_pool_alone_over_descriptors() {
    let variables = [("FAKE_CUDA_FAIL", "cuEventRecord@2=700"), ("FAKE_CUDA_STREAM_DELAY_MS", "20"), LIMIT];
    alone_with(&variables, || copy_without_a_watch(Backend::CUDA_VMM));
}

fn copy_without_a_watch(backend: Backend) {
    let cuda = Cuda::open_as(0, backend).unwrap();
    let stream = cuda.stream().unwrap();
    let mut pool = cuda.alloc_pool(ring(1), 1000).unwrap();
    assert_eq!(cuda.copy_in(&stream, &mut pool, 0, &[1; 1000]).unwrap_err().native(), Some(700));
    cuda.free_pool(pool).unwrap();
    cuda.synchronize(&stream, PATIENCE).unwrap();
}

#[test]
fn closing_one_handle_keeps_nobody_from_opening_another() {
    alone(|| {
        let (exporter, offer) = Exporter::new(0, Backend::CUDA_IPC);
        let cuda = Cuda::open_as(0, Backend::CUDA_IPC).unwrap();
        let stream = cuda.stream().unwrap();
        let first = cuda.open_mem_of(&offer.slots[0]);
        let resume = hold(&cuda, &stream);
        thread::scope(|scope| {
            // The driver waits for the stream.
            let closing = scope.spawn(|| cuda.close_mem(first).unwrap());
            thread::sleep(MOMENT);
            let second = cuda.open_mem_of(&offer.slots[1]);
            assert!(!closing.is_finished());
            let same = scope.spawn(|| cuda.open_mem_of(&offer.slots[0]));
            thread::sleep(MOMENT);
            assert!(!same.is_finished(), "it is being closed");
            drop(resume);
            closing.join().unwrap();
            cuda.close_mem(same.join().unwrap()).unwrap();
            cuda.close_mem(second).unwrap();
        });
        drop((stream, cuda));
        exporter.end();
    });
}

#[test]
fn a_copy_frees_no_buffer() {
    let reports = reports_of(&[LIMIT], || {
        let cuda = Cuda::open_as(0, Backend::CUDA_VMM).unwrap();
        let mut pool = cuda.alloc_pool(ring(1), 1000).unwrap();
        let [stream, other] = [(); 2].map(|()| cuda.stream().unwrap());
        let resume = hold(&cuda, &stream);
        for value in 0..12 {
            cuda.copy_in(&stream, &mut pool, 0, &[value; 1000]).unwrap();
        }
        drop(resume);
        cuda.synchronize(&stream, PATIENCE).unwrap();
        // More are idle than are kept, and a stream stands still.
        let resume = hold(&cuda, &other);
        cuda.copy_in(&stream, &mut pool, 0, &[1; 1000]).unwrap();
        cuda.synchronize(&stream, PATIENCE).unwrap();
        drop(resume);
        cuda.synchronize(&other, PATIENCE).unwrap();
        cuda.free_pool(pool).unwrap();
    });
    for report in reports.iter().flatten() {
        check(report);
        assert_eq!(report.count(E::cuMemAllocHost_v2), 12, "they are used again");
    }
}

/// How long to wait for what won't come.
const MOMENT: Duration = Duration::from_millis(20);
/// Where nothing is held up a call that waits for the device is over at once.
const LIMIT: (&str, &str) = ("FAKE_CUDA_CLOSE_LIMIT_MS", "1000");
