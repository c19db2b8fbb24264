//! Waiting: for events that come late, or never.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use cuframes_core::Backend;
use cuframes_core::error::ErrorCode;
use cuframes_core::gpu::{Call, Device as _, Export as _, GpuError as _, Import as _};
use cuframes_cuda::Cuda;
use fake_cuda::StillOpen;

use crate::double::{PATIENCE, alone, alone_with, reports_of};
use crate::memory::ring;
use crate::remote::Importer;

#[test]
fn a_copy_waits_for_what_its_stream_waits_for() {
    // Every step of a stream takes its time, so whoever does not wait reads what was there before.
    alone_with(&[("FAKE_CUDA_STREAM_DELAY_MS", "5")], || {
        let cuda = Cuda::open_as(0, Backend::CUDA_IPC).unwrap();
        let mut pool = cuda.alloc_pool(ring(1), 1000).unwrap();
        let stream = cuda.stream().unwrap();
        let (event, handle) = cuda.create_event().unwrap();
        let importer = Importer::new(0, Backend::CUDA_IPC);
        let reading = importer.stream();
        let opened = importer.open_event(&handle).unwrap();
        let mapping = importer.open_mem(&cuda.export_mem(&pool, 0).unwrap(), 1000, &[]).unwrap();
        for value in 1..5 {
            cuda.copy_in(&stream, &mut pool, 0, &[value; 1000]).unwrap();
            cuda.record_event(&stream, &event).unwrap();
            importer.wait_event(&reading, &opened).unwrap();
            let mut out = [0; 1000];
            importer.copy_out(&reading, &mapping, &mut out, PATIENCE).unwrap();
            assert_eq!(out, [value; 1000]);
        }
        importer.close_mem(mapping).unwrap();
        drop(opened);
        drop(event);
        cuda.free_pool(pool).unwrap();
    });
}

#[test]
fn a_notification_returns_at_once_and_comes_in_the_order_of_the_stream() {
    alone_with(&[("FAKE_CUDA_STREAM_DELAY_MS", "5")], || {
        let cuda = Cuda::open_as(0, Backend::CUDA_VMM).unwrap();
        let mut pool = cuda.alloc_pool(ring(4), 1000).unwrap();
        let stream = cuda.stream().unwrap();
        let (resume, is_resumed) = mpsc::channel::<()>();
        cuda.notify(&stream, Box::new(move || is_resumed.recv().unwrap())).unwrap();
        let (tell, told) = mpsc::channel();
        for slot in 0..4 {
            cuda.copy_in(&stream, &mut pool, slot, &[1; 1000]).unwrap();
            let tell = tell.clone();
            cuda.notify(&stream, Box::new(move || tell.send(slot).unwrap())).unwrap();
        }
        assert!(told.try_recv().is_err(), "the stream stands still");
        resume.send(()).unwrap();
        drop(tell);
        assert_eq!(told.iter().collect::<Vec<_>>(), [0, 1, 2, 3]);
        cuda.free_pool(pool).unwrap();
    });
}

#[test]
fn a_notification_that_panics_does_no_harm() {
    alone(|| {
        let cuda = Cuda::open_as(0, Backend::CUDA_VMM).unwrap();
        let stream = cuda.stream().unwrap();
        cuda.notify(&stream, Box::new(|| panic!("on purpose"))).unwrap();
        let called = Arc::new(AtomicBool::new(false));
        let call = Arc::clone(&called);
        cuda.notify(&stream, Box::new(move || call.store(true, Ordering::Release))).unwrap();
        cuda.synchronize(&stream, PATIENCE).unwrap();
        assert!(called.load(Ordering::Acquire));
    });
}

#[test]
fn a_notification_that_is_refused_is_dropped_without_having_been_called() {
    alone_with(&[("FAKE_CUDA_FAIL", "cuLaunchHostFunc@1=719")], || {
        let cuda = Cuda::open_as(0, Backend::CUDA_VMM).unwrap();
        let stream = cuda.stream().unwrap();
        let kept = Arc::new(());
        let given = Arc::clone(&kept);
        let error = cuda
            .notify(
                &stream,
                Box::new(move || {
                    drop(given);
                    panic!("it was refused");
                }),
            )
            .unwrap_err();
        assert_eq!((error.call(), error.native()), (Call::Notify, Some(719)), "{error}");
        assert_eq!(Arc::strong_count(&kept), 1);
        cuda.synchronize(&stream, PATIENCE).unwrap();
    });
}

#[test]
fn who_waits_is_told_when_the_question_fails() {
    let reports = reports_of(&[("FAKE_CUDA_FAIL", "cuEventQuery@*=719")], || {
        let cuda = Cuda::open_as(0, Backend::CUDA_VMM).unwrap();
        let stream = cuda.stream().unwrap();
        let (resume, is_resumed) = mpsc::channel::<()>();
        cuda.notify(&stream, Box::new(move || is_resumed.recv().unwrap())).unwrap();
        let error = cuda.synchronize(&stream, PATIENCE).unwrap_err();
        assert_eq!((error.call(), error.native()), (Call::Synchronize, Some(719)));
        let text = error.to_string();
        assert!(text.contains("cuEventQuery") && text.contains("restart the process"), "{text}");
        resume.send(()).unwrap();
    });
    // Nobody can tell whether the device is done.
    for report in reports.iter().flatten() {
        assert_eq!(report.open, StillOpen { events: 1, primary_retains: 1, ..StillOpen::default() });
        assert_eq!(report.violations, Vec::<String>::new());
    }
}

#[test]
fn streams_and_events_of_another_device_are_refused() {
    alone_with(&[("FAKE_CUDA_DEVICES", "2")], || {
        let [one, two] = [0, 1].map(|ordinal| Cuda::open_as(ordinal, Backend::CUDA_IPC).unwrap());
        let (stream, foreign) = (one.stream().unwrap(), two.stream().unwrap());
        let (event, _) = two.create_event().unwrap();
        let mut pool = two.alloc_pool(ring(1), 10).unwrap();
        let errors = [
            one.synchronize(&foreign, MOMENT).unwrap_err(),
            one.wait_event(&stream, &event).unwrap_err(),
            one.record_event(&stream, &event).unwrap_err(),
            one.notify(&foreign, Box::new(|| panic!("it was refused"))).unwrap_err(),
            one.copy_in(&stream, &mut pool, 0, &[1]).unwrap_err(),
            one.export_mem(&pool, 0).unwrap_err(),
            one.free_pool(pool).unwrap_err(),
        ];
        for error in errors {
            assert_eq!(error.code(), ErrorCode::INVALID_ARGUMENT, "{error}");
            assert!(error.to_string().ends_with("of the same device"), "{error}");
        }
    });
}

/// How long to wait for what won't come.
const MOMENT: Duration = Duration::from_millis(20);
