//! Handles and descriptors: whose they are, how often they are opened, and what they turn out to be.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread;

use cuframes_core::Backend;
use cuframes_core::error::ErrorCode;
use cuframes_core::gpu::{Call, Device as _, Export as _, GpuError as _, Import as _};
use cuframes_cuda::{Cause, Cuda, External};
use fake_cuda::{EntryPoint as E, Report};
use rustix::io::{FdFlags, fcntl_getfd};

use crate::double::{PATIENCE, alone, check, reports_of};
use crate::memory::ring;
use crate::remote::{Exporter, Importer};

#[test]
fn what_this_process_exported_is_refused_before_the_driver_is_asked() {
    let reports = reports_of(&[], || {
        let cuda = Cuda::open_as(0, Backend::CUDA_IPC).unwrap();
        let pool = cuda.alloc_pool(ring(2), 10).unwrap();
        let (event, handle) = cuda.create_event().unwrap();
        let memory = cuda.export_mem(&pool, 1).unwrap();
        // Whichever object of the process is asked.
        let other = Cuda::open_as(0, Backend::CUDA_IPC).unwrap();
        let error = other.open_mem(&memory, 10, &[]).unwrap_err();
        assert_eq!((error.call(), error.cause()), (Call::OpenMem, &Cause::OwnHandle));
        let error = other.open_event(&handle).unwrap_err();
        assert_eq!((error.call(), error.cause()), (Call::OpenEvent, &Cause::OwnHandle));
        assert!(error.to_string().contains("other processes"), "{error}");
        // Two frames in one allocation: it is ours until both are gone.
        let buffer = Arc::new(cuda.alloc(100).unwrap());
        let [one, two] = [0, 50].map(|offset| {
            cuda.register_external(vec![External::new(Arc::clone(&buffer), offset)], 50).unwrap()
        });
        let memory = cuda.export_mem(&one, 0).unwrap();
        assert_eq!(memory.handle, cuda.export_mem(&two, 0).unwrap().handle);
        cuda.free_pool(two).unwrap();
        assert_eq!(other.open_mem(&memory, 50, &[]).unwrap_err().cause(), &Cause::OwnHandle);
        cuda.free_pool(one).unwrap();
        cuda.free_pool(pool).unwrap();
        drop(event);
    });
    for report in reports.iter().flatten() {
        check(report);
        assert_eq!(report.count(E::cuIpcOpenMemHandle_v2) + report.count(E::cuIpcOpenEventHandle), 0);
    }
}

#[test]
fn threads_that_open_and_close_the_same_handle_never_open_it_twice() {
    // With a driver that refuses a second opening.
    let reports = reports_of(&[("FAKE_CUDA_IPC_REOPEN", "fail")], || {
        let (exporter, offer) = Exporter::new(0, Backend::CUDA_IPC);
        let cudas = [(); 2].map(|()| Cuda::open_as(0, Backend::CUDA_IPC).unwrap());
        thread::scope(|scope| {
            for (thread, cuda) in (0..8).zip(cudas.iter().cycle()) {
                let offer = &offer;
                scope.spawn(move || {
                    let stream = cuda.stream().unwrap();
                    for round in 0..50 {
                        let slot = (thread + round) % usize::from(Exporter::SLOTS);
                        let mapping = cuda.open_mem(&offer.slots[slot], 1000, &[]).unwrap();
                        let mut out = [0; 1000];
                        cuda.copy_out(&stream, &mapping, &mut out, PATIENCE).unwrap();
                        assert_eq!(usize::from(out[999]), slot + 1);
                        if round % 2 == 0 {
                            cuda.close_mem(mapping).unwrap();
                        }
                    }
                });
            }
        });
        // Nothing is open any more, so the memory can go.
        exporter.end();
    });
    for report in reports.iter().flatten() {
        check(report);
        assert_eq!(report.count(E::cuIpcOpenMemHandle_v2), report.count(E::cuIpcCloseMemHandle));
        if report.count(E::cuIpcOpenMemHandle_v2) > 0 {
            // What was opened is closed, not freed (C-9).
            assert_eq!(report.count(E::cuMemFree_v2), 0);
        }
    }
}

#[test]
fn programs_that_are_started_inherit_no_descriptor_of_memory() {
    alone(|| {
        let cuda = Cuda::open_as(0, Backend::CUDA_VMM).unwrap();
        let pool = cuda.alloc_pool(ring(2), 10).unwrap();
        for (_, fd) in cuda.export_fds(&pool).unwrap() {
            assert_eq!(fcntl_getfd(&fd).unwrap(), FdFlags::CLOEXEC);
        }
        cuda.free_pool(pool).unwrap();
    });
}

#[test]
fn a_descriptor_that_is_no_device_memory_is_refused() {
    alone(|| {
        let cuda = Cuda::open_as(0, Backend::CUDA_VMM).unwrap();
        let pool = cuda.alloc_pool(ring(1), 10).unwrap();
        let memory = cuda.export_mem(&pool, 0).unwrap();
        let importer = Importer::new(0, Backend::CUDA_VMM);
        for path in ["/dev/null", "/proc/self/exe"] {
            let fd = OwnedFd::from(File::open(path).unwrap());
            let error = importer.open_mem(&memory, 10, &[fd]).unwrap_err();
            assert_eq!((error.call(), error.code()), (Call::OpenMem, ErrorCode::INVALID_ARGUMENT), "{error}");
            assert!(error.to_string().contains("not memory of a CUDA device"), "{error}");
        }
        cuda.free_pool(pool).unwrap();
    });
}

#[test]
fn a_descriptor_of_less_memory_than_a_frame_is_refused() {
    alone(|| {
        let cuda = Cuda::open_as(0, Backend::CUDA_VMM).unwrap();
        let small = cuda.alloc_pool(ring(1), 10).unwrap();
        let large = cuda.alloc_pool(ring(1), 10 << 20).unwrap();
        let fds: Vec<_> = cuda.export_fds(&small).unwrap().into_iter().map(|(_, fd)| fd).collect();
        let memory = cuda.export_mem(&large, 0).unwrap();
        let importer = Importer::new(0, Backend::CUDA_VMM);
        let error = importer.open_mem(&memory, 10 << 20, &fds).unwrap_err();
        assert_eq!((error.call(), error.code()), (Call::OpenMem, ErrorCode::INVALID_ARGUMENT), "{error}");
        assert!(error.to_string().contains("smaller than a frame"), "{error}");
        cuda.free_pool(small).unwrap();
        cuda.free_pool(large).unwrap();
    });
}

#[test]
fn a_process_that_can_not_see_the_exporter_is_told_what_to_share() {
    let reports = reports_of(&[], || {
        let (exporter, offer) = Exporter::new(0, Backend::CUDA_IPC);
        // What the driver says where legacy handles cross namespaces, and what it says of a process that is gone.
        let fail = "cuIpcOpenMemHandle_v2@*=201,cuIpcOpenEventHandle@*=201";
        let importer = Importer::with(0, Backend::CUDA_IPC, &[("FAKE_CUDA_FAIL", fail)]);
        let check = |text: String| {
            assert!(text.contains("CUDA_ERROR_INVALID_CONTEXT (201)"), "{text}");
            assert!(text.contains("pid and ipc namespaces") && text.contains("cuda-vmm"), "{text}");
        };
        check(importer.open_mem(&offer.slots[0], 1000, &[]).unwrap_err().to_string());
        check(importer.open_event(&offer.event).unwrap_err().to_string());
        exporter.kill();
        let cuda = Cuda::open_as(0, Backend::CUDA_IPC).unwrap();
        check(cuda.open_mem(&offer.slots[0], 1000, &[]).unwrap_err().to_string());
    });
    check_all(&reports);
}

#[test]
fn descriptors_need_neither_the_exporter_nor_its_namespaces() {
    let reports = reports_of(&[], || {
        let (exporter, offer) = Exporter::new(0, Backend::CUDA_VMM);
        exporter.kill();
        let cuda = Cuda::open_as(0, Backend::CUDA_VMM).unwrap();
        let stream = cuda.stream().unwrap();
        let ring = cuda.open_ring(Backend::CUDA_VMM, &offer.slots, 1000, &offer.fds).unwrap();
        drop(offer);
        for (mapping, value) in ring.into_iter().zip(1..) {
            let mut out = [0; 1000];
            cuda.copy_out(&stream, &mapping, &mut out, PATIENCE).unwrap();
            assert_eq!(out, [value; 1000]);
            cuda.close_mem(mapping).unwrap();
        }
    });
    check_all(&reports);
}

/// Everybody but who was killed has closed everything.
fn check_all(reports: &Option<Vec<Report>>) {
    for report in reports.iter().flatten() {
        check(report);
    }
}
