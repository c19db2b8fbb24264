//! Which device it is, and over which backend its memory is shared.

use std::sync::Arc;

use cuframes_core::Backend;
use cuframes_core::error::ErrorCode;
use cuframes_core::gpu::{Call, Device as _, Export as _, GpuError as _, Import as _};
use cuframes_cuda::{Cause, Choice, Cuda, External};

use crate::double::{PATIENCE, alone, alone_with};
use crate::memory::{BACKENDS, ring};
use crate::remote::Importer;

#[test]
fn descriptors_are_chosen_where_they_work() {
    alone(|| {
        let cuda = Cuda::open(0).unwrap();
        assert_eq!((cuda.backend(), cuda.choice()), (Backend::CUDA_VMM, &Choice::VmmWorks));
        assert!(cuda.name().contains("test double"));
        let legacy = cuda.with_backend(Backend::CUDA_IPC).unwrap();
        assert_eq!(
            (legacy.backend(), legacy.choice(), legacy.uuid()),
            (Backend::CUDA_IPC, &Choice::Asked, cuda.uuid())
        );
        assert!(cuda.with_backend(Backend::HOST).is_err() && Cuda::open_as(0, Backend::HOST).is_err());
    });
}

#[test]
fn legacy_handles_are_chosen_where_the_device_has_no_descriptors() {
    // Attribute 102: virtual memory management; 103: its memory as file descriptors.
    for attribute in ["102=0", "103=0"] {
        alone_with(&[("FAKE_CUDA_ATTRIBUTES", attribute)], || {
            let cuda = Cuda::open(0).unwrap();
            assert_eq!((cuda.backend(), cuda.choice()), (Backend::CUDA_IPC, &Choice::VmmUnsupported));
        });
    }
}

#[test]
fn a_question_that_fails_is_not_taken_for_a_no() {
    alone_with(&[("FAKE_CUDA_FAIL", "cuDeviceGetAttribute@1=999")], || {
        let cuda = Cuda::open(0).unwrap();
        assert!(
            matches!(cuda.choice(), Choice::VmmFails(error) if error.native() == Some(999)),
            "{}",
            cuda.choice()
        );
    });
}

#[test]
fn legacy_handles_are_chosen_where_descriptors_fail_and_the_choice_says_so() {
    alone_with(&[("FAKE_CUDA_FAIL", "cuMemExportToShareableHandle@*=801")], || {
        let cuda = Cuda::open(0).unwrap();
        let Choice::VmmFails(error) = cuda.choice() else { panic!("{}", cuda.choice()) };
        assert_eq!((cuda.backend(), error.native()), (Backend::CUDA_IPC, Some(801)));
        let text = cuda.choice().to_string();
        assert!(
            text.contains("cuMemExportToShareableHandle") && text.contains("CUDA_ERROR_NOT_SUPPORTED (801)"),
            "{text}"
        );
    });
}

#[test]
fn a_device_on_which_neither_way_works_is_refused_with_both_causes() {
    let variables = [("FAKE_CUDA_IPC", "refused"), ("FAKE_CUDA_READ_ONLY", "refused")];
    alone_with(&variables, || no_way(["cuMemSetAccess failed", "cuIpcGetMemHandle failed"]));
}

#[test]
fn a_device_that_says_no_to_one_way_and_refuses_the_other_is_refused_with_both_causes() {
    let variables = [("FAKE_CUDA_IPC", "refused"), ("FAKE_CUDA_ATTRIBUTES", "102=0")];
    alone_with(&variables, || no_way(["the device says that it can't", "cuIpcGetMemHandle failed"]));
}

fn no_way(causes: [&str; 2]) {
    let error = Cuda::open(0).unwrap_err();
    assert!(matches!(error.cause(), Cause::NoWay { .. }), "{error}");
    assert_eq!((error.call(), error.code()), (Call::Open, ErrorCode::UNSUPPORTED));
    let text = error.to_string();
    assert!(causes.iter().all(|cause| text.contains(cause)) && !text.contains('\n'), "{text}");
    assert!(text.ends_with("use host memory"), "{text}");
}

#[test]
fn a_device_without_memory_to_try_is_no_device_that_can_not_share() {
    for attributes in ["", "102=0"] {
        let variables = [("FAKE_CUDA_MEMORY", "1048576"), ("FAKE_CUDA_ATTRIBUTES", attributes)];
        alone_with(&variables, || {
            let error = Cuda::open(0).unwrap_err();
            assert_eq!((error.call(), error.code()), (Call::Open, ErrorCode::OUT_OF_MEMORY), "{error}");
        });
    }
}

#[test]
fn a_publisher_notices_what_would_keep_every_subscriber_from_opening_its_frames() {
    for fault in [
        ("FAKE_CUDA_READ_ONLY", "refused"),
        ("FAKE_CUDA_ATTRIBUTES", "102=0"),
        ("FAKE_CUDA_ATTRIBUTES", "103=0"),
    ] {
        alone_with(&[fault], || {
            let cuda = Cuda::open_as(0, Backend::CUDA_VMM).unwrap();
            let error = cuda.alloc_pool(ring(2), 10).unwrap_err();
            assert_eq!((error.call(), error.code()), (Call::AllocPool, ErrorCode::UNSUPPORTED), "{error}");
            assert!(error.to_string().contains("publish over cuda (legacy IPC handles)"), "{error}");
            let cuda = Cuda::open(0).unwrap();
            assert_eq!(cuda.backend(), Backend::CUDA_IPC);
            cuda.free_pool(cuda.alloc_pool(ring(2), 10).unwrap()).unwrap();
        });
    }
}

#[test]
fn a_part_of_a_gpu_is_called_what_nvidia_smi_calls_it() {
    alone_with(&[("FAKE_CUDA_NAME", "NVIDIA A100 MIG 1g.5gb")], || {
        assert!(Cuda::open(0).unwrap().uuid().to_string().starts_with("MIG-"));
    });
}

#[test]
fn a_device_that_is_not_there_is_refused_with_the_way_to_see_which_are() {
    alone(|| {
        for ordinal in [1, -1, i32::MAX] {
            let error = Cuda::open(ordinal).unwrap_err();
            assert_eq!((error.call(), error.native()), (Call::Open, Some(101)), "{error}");
            assert!(error.to_string().contains("CUDA_VISIBLE_DEVICES"), "{error}");
        }
    });
}

#[test]
fn a_device_is_the_same_whatever_ordinal_a_process_has_for_it() {
    alone_with(&[("FAKE_CUDA_DEVICES", "2")], || {
        for backend in BACKENDS {
            let cuda = Cuda::open_as(0, backend).unwrap();
            let mut pool = cuda.alloc_pool(ring(1), 10).unwrap();
            let stream = cuda.stream().unwrap();
            cuda.copy_in(&stream, &mut pool, 0, &[5; 10]).unwrap();
            cuda.synchronize(&stream, PATIENCE).unwrap();
            let importer = Importer::with(1, backend, &[("FAKE_CUDA_VISIBLE", "1,0")]);
            let fds: Vec<_> = cuda.export_fds(&pool).unwrap().into_iter().map(|(_, fd)| fd).collect();
            let mapping = importer.open_mem(&cuda.export_mem(&pool, 0).unwrap(), 10, &fds).unwrap();
            let mut out = [0; 10];
            importer.copy_out(&importer.stream(), &mapping, &mut out, PATIENCE).unwrap();
            assert_eq!(out, [5; 10]);
            importer.close_mem(mapping).unwrap();
            cuda.free_pool(pool).unwrap();
        }
    });
}

#[test]
fn memory_on_another_device_is_refused_and_both_are_named() {
    alone_with(&[("FAKE_CUDA_DEVICES", "2")], || {
        let [first, second] = [0, 1].map(|ordinal| Cuda::open_as(ordinal, Backend::CUDA_VMM).unwrap());
        let pool = first.alloc_pool(ring(1), 10).unwrap();
        let fds: Vec<_> = first.export_fds(&pool).unwrap().into_iter().map(|(_, fd)| fd).collect();
        let memory = first.export_mem(&pool, 0).unwrap();
        // In the same process, which is possible over descriptors: and what fails closes what it had opened.
        let error = second.open_mem(&memory, 10, &fds).unwrap_err();
        let (ours, theirs) = (second.uuid(), first.uuid());
        assert_eq!((error.call(), error.cause()), (Call::OpenMem, &Cause::OtherDevice { ours, theirs }));
        let text = error.to_string();
        assert!(text.contains(&ours.to_string()) && text.contains(&theirs.to_string()), "{text}");
        first.free_pool(pool).unwrap();
        // The driver refuses a legacy handle there, and does not say whose it is.
        let legacy = first.with_backend(Backend::CUDA_IPC).unwrap();
        let pool = legacy.alloc_pool(ring(1), 10).unwrap();
        let importer = Importer::new(1, Backend::CUDA_IPC);
        let error = importer.open_mem(&legacy.export_mem(&pool, 0).unwrap(), 10, &[]).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("on another device") && text.contains(&ours.to_string()), "{text}");
        legacy.free_pool(pool).unwrap();
        // And what a publisher has elsewhere is not the publisher's device.
        let buffer = Arc::new(second.alloc(100).unwrap());
        let error = legacy.register_external(vec![External::new(buffer, 0)], 100).unwrap_err();
        let text = error.to_string();
        assert!(text.contains(&ours.to_string()) && text.contains("allocate it on this one"), "{text}");
    });
}
