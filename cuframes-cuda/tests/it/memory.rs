//! What the driver is asked for, and what subscribers can see: sizes, rights, host memory for copies.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use cuframes_core::error::ErrorCode;
use cuframes_core::gpu::{Call, Device as _, Export as _, GpuError as _, Import as _};
use cuframes_core::{Backend, RingSize};
use cuframes_cuda::{Cause, Cuda, External, Stream};
use fake_cuda::{EntryPoint as E, StillOpen};

use crate::double::{PATIENCE, alone, alone_with, check, reports_of};
use crate::remote::Importer;

pub(crate) const BACKENDS: [Backend; 2] = [Backend::CUDA_IPC, Backend::CUDA_VMM];

pub(crate) fn ring(slots: u64) -> RingSize {
    RingSize::new(slots).unwrap()
}

#[test]
fn a_subscriber_sees_nothing_but_zeros_behind_a_frame() {
    alone(|| {
        for backend in BACKENDS {
            let cuda = Cuda::open_as(0, backend).unwrap();
            // What lies in the same page is somebody's too.
            let secret = cuda.alloc(100).unwrap();
            let mut pools = [(); 2].map(|()| cuda.alloc_pool(ring(2), 100).unwrap());
            let stream = cuda.stream().unwrap();
            for (pool, slot) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
                cuda.copy_in(&stream, &mut pools[pool], slot, &[0xAA; 100]).unwrap();
            }
            cuda.synchronize(&stream, PATIENCE).unwrap();
            let importer = Importer::new(0, backend);
            let reading = importer.stream();
            let fds: Vec<_> = cuda.export_fds(&pools[0]).unwrap().into_iter().map(|(_, fd)| fd).collect();
            let mut memory = cuda.export_mem(&pools[0], 1).unwrap();
            if backend == Backend::CUDA_VMM {
                // Whoever wants to see more says that there is more.
                memory.handle.0[16..24].copy_from_slice(&u64::MAX.to_le_bytes());
            }
            let mapping = importer.open_mem(&memory, PAGE, &fds).unwrap();
            let mut page = vec![0xEE; usize::try_from(PAGE).unwrap()];
            importer.copy_out(&reading, &mapping, &mut page, PATIENCE).unwrap();
            assert_eq!(page[..100], [0xAA; 100]);
            assert!(page[100..].iter().all(|byte| *byte == 0));
            importer.close_mem(mapping).unwrap();
            let more = importer.open_mem(&memory, PAGE + 1, &fds).unwrap_err();
            let codes = [ErrorCode::PROTOCOL, ErrorCode::INVALID_ARGUMENT];
            assert!(more.call() == Call::OpenMem && codes.contains(&more.code()), "{more}");
            pools.into_iter().for_each(|pool| cuda.free_pool(pool).unwrap());
            drop(secret);
        }
    });
}

#[test]
fn an_importer_of_either_kind_opens_rings_of_both() {
    alone(|| {
        for kind in BACKENDS {
            let importer = Importer::new(0, kind);
            let reading = importer.stream();
            for backend in BACKENDS {
                let cuda = Cuda::open_as(0, backend).unwrap();
                let mut pool = cuda.alloc_pool(ring(2), 9).unwrap();
                let stream = cuda.stream().unwrap();
                cuda.copy_in(&stream, &mut pool, 1, b"a message").unwrap();
                cuda.synchronize(&stream, PATIENCE).unwrap();
                let slots: Vec<_> = (0..2).map(|slot| cuda.export_mem(&pool, slot).unwrap()).collect();
                let fds: Vec<_> = cuda.export_fds(&pool).unwrap().into_iter().map(|(_, fd)| fd).collect();
                let ring = importer.open_ring(backend, &slots, 9, &fds).unwrap();
                let mut out = [0; 9];
                importer.copy_out(&reading, &ring[1], &mut out, PATIENCE).unwrap();
                assert_eq!(out, *b"a message");
                ring.into_iter().for_each(|mapping| importer.close_mem(mapping).unwrap());
                let unknown = importer.open_ring(Backend::HOST, &slots, 9, &fds).unwrap_err();
                assert_eq!(unknown.code(), ErrorCode::INVALID_ARGUMENT, "{unknown}");
                cuda.free_pool(pool).unwrap();
            }
        }
    });
}

#[test]
fn a_pool_that_does_not_fit_is_refused_with_the_bytes_that_were_needed() {
    alone_with(&[("FAKE_CUDA_MEMORY", "33554432")], || {
        for backend in BACKENDS {
            let cuda = Cuda::open_as(0, backend).unwrap();
            let error = cuda.alloc_pool(ring(16), 4 << 20).unwrap_err();
            assert_eq!((error.call(), error.code()), (Call::AllocPool, ErrorCode::OUT_OF_MEMORY), "{error}");
            assert!(error.to_string().contains("67108864 bytes were needed"), "{error}");
            // What it had got is free again.
            let pool = cuda.alloc_pool(ring(7), 4 << 20).unwrap();
            cuda.free_pool(pool).unwrap();
        }
    });
}

#[test]
fn many_copies_and_waits_need_a_few_events_and_buffers() {
    let reports = reports_of(&[("FAKE_CUDA_STREAM_DELAY_MS", "1")], || {
        let cuda = Cuda::open_as(0, Backend::CUDA_IPC).unwrap();
        let mut pool = cuda.alloc_pool(ring(2), 1000).unwrap();
        let stream = cuda.stream().unwrap();
        for value in 0..100 {
            cuda.copy_in(&stream, &mut pool, 0, &[value; 1000]).unwrap();
            cuda.synchronize(&stream, PATIENCE).unwrap();
        }
        cuda.free_pool(pool).unwrap();
    });
    for report in reports.iter().flatten() {
        check(report);
        assert!(report.count(E::cuMemcpyHtoDAsync_v2) == 100, "{report:?}");
        assert!(report.count(E::cuEventCreate) < 5 && report.count(E::cuMemAllocHost_v2) < 3, "{report:?}");
    }
}

#[test]
fn a_publisher_does_not_wait_for_its_stream_when_it_copies() {
    alone(|| {
        let cuda = Cuda::open_as(0, Backend::CUDA_IPC).unwrap();
        let mut pool = cuda.alloc_pool(ring(1), 1000).unwrap();
        let stream = cuda.stream().unwrap();
        let (resume, is_resumed) = std::sync::mpsc::channel::<()>();
        cuda.notify(&stream, Box::new(move || is_resumed.recv().unwrap())).unwrap();
        // More than are kept afterwards, and the caller's bytes are gone before the device has read any.
        for value in 0..8 {
            cuda.copy_in(&stream, &mut pool, 0, &vec![value; 1000]).unwrap();
        }
        resume.send(()).unwrap();
        cuda.synchronize(&stream, PATIENCE).unwrap();
        let importer = Importer::new(0, Backend::CUDA_IPC);
        let mapping = importer.open_mem(&cuda.export_mem(&pool, 0).unwrap(), 1000, &[]).unwrap();
        let mut out = [0; 1000];
        importer.copy_out(&importer.stream(), &mapping, &mut out, PATIENCE).unwrap();
        assert_eq!(out, [7; 1000]);
        importer.close_mem(mapping).unwrap();
        cuda.free_pool(pool).unwrap();
    });
}

#[test]
fn everything_works_on_threads_that_never_saw_the_device() {
    alone(|| {
        for backend in BACKENDS {
            let cuda = Cuda::open_as(0, backend).unwrap();
            let (stream, (event, _), mut pool) = on_another_thread(|| {
                (cuda.stream().unwrap(), cuda.create_event().unwrap(), cuda.alloc_pool(ring(2), 10).unwrap())
            });
            on_another_thread(|| cuda.copy_in(&stream, &mut pool, 1, &[1; 10]).unwrap());
            on_another_thread(|| cuda.record_event(&stream, &event).unwrap());
            on_another_thread(|| cuda.synchronize(&stream, PATIENCE).unwrap());
            drop(cuda);
            // The context goes with the last of these, on yet another one.
            on_another_thread(move || drop((pool, event, stream)));
        }
    });
}

#[test]
fn the_context_stays_until_the_last_thing_that_needs_it_is_gone() {
    let reports = reports_of(&[], || {
        let cuda = Cuda::open_as(0, Backend::CUDA_VMM).unwrap();
        let pool = cuda.alloc_pool(ring(1), 10).unwrap();
        let (event, stream) = (cuda.create_event().unwrap().0, cuda.stream().unwrap());
        let called = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let call = Arc::clone(&called);
        cuda.notify(&stream, Box::new(move || call.store(true, std::sync::atomic::Ordering::Release)))
            .unwrap();
        cuda.synchronize(&stream, PATIENCE).unwrap();
        assert!(called.load(std::sync::atomic::Ordering::Acquire));
        drop((cuda, pool, stream));
        drop(event);
    });
    for report in reports.iter().flatten() {
        check(report);
        assert_eq!(report.count(E::cuDevicePrimaryCtxRetain), 1);
    }
}

#[test]
fn memory_of_the_callers_own_is_refused_where_it_has_no_handle_and_the_error_says_why() {
    // Attribute 115: whether the device has memory pools, from which cudarc takes its slices.
    with_cudarc("115=1", || {
        let cuda = Cuda::open_as(0, Backend::CUDA_IPC).unwrap();
        let context = cudarc::driver::CudaContext::new(0).unwrap();
        let slice = Arc::new(context.default_stream().alloc_zeros::<u8>(1000).unwrap());
        let refused = |external, size| cuda.register_external(vec![external], size).unwrap_err();
        let error = refused(External::new(slice, 0), 1000);
        assert_eq!((error.call(), error.code()), (Call::RegisterExternal, ErrorCode::INVALID_ARGUMENT));
        let text = error.to_string();
        assert!(
            text.contains("slot 0") && text.contains("cuMemAllocAsync") && text.contains("with cuMemAlloc"),
            "{text}"
        );
        let buffer = Arc::new(cuda.alloc(1000).unwrap());
        let at = |offset| External::new(Arc::clone(&buffer), offset);
        assert!(matches!(refused(at(0), 4 << 20).cause(), Cause::External { slot: 0, .. }));
        // The allocation is longer, but nobody said that its rest is to be shared.
        let error = refused(at(901), 100);
        assert!(error.to_string().contains("ends before the frame does"), "{error}");
        assert!(matches!(refused(at(1 << 40), 10).cause(), Cause::External { slot: 0, .. }));
        assert!(matches!(refused(at(u64::MAX), u64::MAX).cause(), Cause::External { .. }));
        let overlapping = cuda.register_external(vec![at(0), at(99)], 100).unwrap_err();
        assert!(matches!(overlapping.cause(), Cause::Argument { name: "frames", .. }), "{overlapping}");
        let vmm = cuda.with_backend(Backend::CUDA_VMM).unwrap();
        assert_eq!(vmm.register_external(vec![at(0)], 10).unwrap_err().code(), ErrorCode::UNSUPPORTED);
        cuda.free_pool(cuda.register_external(vec![at(0), at(100)], 100).unwrap()).unwrap();
    });
}

#[test]
fn a_slice_of_cudarc_is_shared_where_the_device_has_no_pools() {
    with_cudarc("115=0", || {
        let cuda = Cuda::open_as(0, Backend::CUDA_IPC).unwrap();
        let context = cudarc::driver::CudaContext::new(0).unwrap();
        let stream = context.default_stream();
        let small = Arc::new(stream.clone_htod(&[3_u8; 1000]).unwrap());
        let error = cuda.register_external(vec![External::new(small, 500)], 500).unwrap_err();
        assert!(error.to_string().contains("share its page"), "{error}");
        let odd = Arc::new(stream.clone_htod(&vec![3_u8; 3 << 20]).unwrap());
        let error = cuda.register_external(vec![External::new(odd, 0)], 500).unwrap_err();
        assert!(error.to_string().contains("a multiple of 2 MiB"), "{error}");
        let slice = Arc::new(stream.clone_htod(&vec![3_u8; 4 << 20]).unwrap());
        let pool = cuda.register_external(vec![External::new(slice, 500)], 500).unwrap();
        stream.synchronize().unwrap();
        let importer = Importer::new(0, Backend::CUDA_IPC);
        let memory = cuda.export_mem(&pool, 0).unwrap();
        assert_eq!(memory.ptr_external[..8], cuda.pool_ptr(&pool, 0).unwrap().to_le_bytes());
        let mapping = importer.open_mem(&memory, 500, &[]).unwrap();
        let mut out = [0; 500];
        importer.copy_out(&importer.stream(), &mapping, &mut out, Duration::from_secs(60)).unwrap();
        assert_eq!(out, [3; 500]);
        importer.close_mem(mapping).unwrap();
        cuda.free_pool(pool).unwrap();
    });
}

#[test]
fn the_owner_of_external_memory_is_asked_once_where_it_is() {
    let reports = reports_of(&[("FAKE_CUDA_ATTRIBUTES", "115=0")], || {
        let cuda = Cuda::open_as(0, Backend::CUDA_IPC).unwrap();
        let context = cudarc::driver::CudaContext::new(0).unwrap();
        let stream = context.new_stream().unwrap();
        let slice = Arc::new(stream.clone_htod(&vec![3_u8; 2 << 20]).unwrap());
        let pool = cuda.register_external(vec![External::new(slice, 0)], 500).unwrap();
        for _ in 0..100 {
            assert_ne!(cuda.pool_ptr(&pool, 0), Some(0));
            cuda.export_mem(&pool, 0).unwrap();
        }
        cuda.free_pool(pool).unwrap();
    });
    for report in reports.iter().flatten() {
        // Asked, a slice of cudarc's records an event, because there is more than one stream.
        assert!(report.count(E::cuEventRecord) < 50, "{report:?}");
    }
}

#[test]
fn streams_of_cudarc_are_used_as_they_are() {
    with_cudarc("115=0", || {
        let cuda = Cuda::open_as(0, Backend::CUDA_VMM).unwrap();
        let context = cudarc::driver::CudaContext::new(0).unwrap();
        let refused = Stream::from_cudarc(&cuda, context.per_thread_stream()).unwrap_err();
        assert!(refused.to_string().contains("per-thread default stream"), "{refused}");
        for theirs in [context.default_stream(), context.new_stream().unwrap()] {
            let stream = Stream::from_cudarc(&cuda, Arc::clone(&theirs)).unwrap();
            assert_eq!(stream.address(), theirs.cu_stream().addr());
            let mut pool = cuda.alloc_pool(ring(1), 4).unwrap();
            cuda.copy_in(&stream, &mut pool, 0, b"word").unwrap();
            let (event, _) = cuda.create_event().unwrap();
            cuda.record_event(&stream, &event).unwrap();
            cuda.synchronize(&stream, PATIENCE).unwrap();
            // Ours goes first, and theirs can still be used.
            drop(stream);
            theirs.synchronize().unwrap();
            cuda.free_pool(pool).unwrap();
        }
    });
}

fn on_another_thread<T: Send>(call: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| scope.spawn(call).join().unwrap())
}

/// cudarc leaves its context current on the threads that used it.
fn with_cudarc(attributes: &str, body: impl FnOnce()) {
    for report in reports_of(&[("FAKE_CUDA_ATTRIBUTES", attributes)], body).iter().flatten() {
        let context_stack = report.count(E::cuCtxSetCurrent);
        assert_eq!(report.open, StillOpen { context_stack, ..StillOpen::default() });
        assert_eq!(report.violations, Vec::<String>::new());
    }
}

const PAGE: u64 = 2 << 20;
