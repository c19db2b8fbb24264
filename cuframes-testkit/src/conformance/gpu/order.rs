//! Events and streams: what is done before what.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cuframes_core::error::ErrorCode;
use cuframes_core::gpu::{Call, Device, EventHandle, Export};

use super::{Bench, Lab, PATIENCE, refused};

pub(super) fn no_event_opens_as_one_that_was_never_recorded<L: Lab>(bench: &Bench<'_, L>) {
    let importer = bench.lab.importer();
    let stream = bench.lab.import_stream(&importer);
    let event = importer.open_event(&EventHandle::NONE).unwrap();
    importer.wait_event(&stream, &event).unwrap();
    importer.synchronize(&stream, PATIENCE).unwrap();
}

pub(super) fn waiting_for_an_event_that_was_never_recorded_is_over_at_once<L: Lab>(bench: &Bench<'_, L>) {
    let (event, handle) = bench.exporter.create_event().unwrap();
    let importer = bench.lab.importer();
    let stream = bench.lab.import_stream(&importer);
    let opened = importer.open_event(&handle).unwrap();
    importer.wait_event(&stream, &opened).unwrap();
    importer.synchronize(&stream, PATIENCE).unwrap();
    drop(opened);
    bench.exporter.wait_event(&bench.stream, &event).unwrap();
    bench.finish();
    drop(event);
}

pub(super) fn who_waits_for_a_record_sees_what_was_written_before_it<L: Lab>(bench: &Bench<'_, L>) {
    observe_after(bench, &[&[1; 70_001]]);
}

pub(super) fn a_second_record_replaces_the_first<L: Lab>(bench: &Bench<'_, L>) {
    observe_after(bench, &[&[1; 70_001], &[2; 70_001]]);
}

/// Writes and records each frame in the same slot without waiting; who then waits for the event sees the last one. It
/// waits in every backend: where the event is none, the writer waits before the frame is passed on.
fn observe_after<L: Lab>(bench: &Bench<'_, L>, frames: &[&[u8]]) {
    let len = frames.first().unwrap().len();
    let mut exported = bench.pool(1, u64::try_from(len).unwrap());
    let (event, handle) = bench.exporter.create_event().unwrap();
    let reader = bench.reader(&exported);
    let opened = reader.importer.open_event(&handle).unwrap();
    for frame in frames {
        bench.write(&mut exported, 0, frame);
        bench.exporter.record_event(&bench.stream, &event).unwrap();
    }
    if handle == EventHandle::NONE {
        bench.finish();
    }
    reader.importer.wait_event(&reader.stream, &opened).unwrap();
    assert_eq!(reader.read(0, len), *frames.last().unwrap());
    drop(opened);
    reader.close();
    bench.finish();
    drop(event);
    bench.free(exported);
}

pub(super) fn a_wait_is_for_the_record_that_was_the_latest<L: Lab>(bench: &Bench<'_, L>) {
    let Bench { lab, exporter, stream: first } = bench;
    let second = &lab.export_stream(exporter);
    let (event, handle) = exporter.create_event().unwrap();
    let (turn, _) = exporter.create_event().unwrap();
    let importer = lab.importer();
    let reading = lab.import_stream(&importer);
    let opened = importer.open_event(&handle).unwrap();
    bench.hold(first);
    exporter.record_event(first, &event).unwrap();
    importer.wait_event(&reading, &opened).unwrap();
    // One is held after the other: CUDA may call host functions one at a time, and a stream is held by one that blocks.
    exporter.record_event(first, &turn).unwrap();
    exporter.wait_event(second, &turn).unwrap();
    bench.hold(second);
    exporter.record_event(second, &event).unwrap();
    bench.resume(first);
    exporter.synchronize(first, PATIENCE).unwrap();
    // The second record is not the one that was waited for.
    importer.synchronize(&reading, PATIENCE).unwrap();
    importer.wait_event(&reading, &opened).unwrap();
    let waited = importer.synchronize(&reading, MOMENT);
    if L::HAS_STREAMS && handle != EventHandle::NONE {
        refused(waited, Call::Synchronize, &[ErrorCode::TIMEOUT]);
    } else {
        waited.unwrap();
    }
    bench.resume(second);
    importer.synchronize(&reading, PATIENCE).unwrap();
    drop(opened);
    exporter.synchronize(second, PATIENCE).unwrap();
    drop((event, turn));
}

pub(super) fn a_notification_comes_when_the_work_before_it_is_done<L: Lab>(bench: &Bench<'_, L>) {
    let called = Arc::new(AtomicBool::new(false));
    let call = Arc::clone(&called);
    bench.hold(&bench.stream);
    bench.exporter.notify(&bench.stream, Box::new(move || call.store(true, Ordering::Release))).unwrap();
    assert_eq!(called.load(Ordering::Acquire), !L::HAS_STREAMS);
    bench.resume(&bench.stream);
    bench.finish();
    assert!(called.load(Ordering::Acquire));
}

pub(super) fn synchronizing_with_a_stream_that_stands_still_times_out<L: Lab>(bench: &Bench<'_, L>) {
    let Bench { exporter, stream, .. } = bench;
    exporter.synchronize(stream, Duration::ZERO).unwrap();
    let (event, _) = exporter.create_event().unwrap();
    bench.hold(stream);
    exporter.record_event(stream, &event).unwrap();
    let synchronized = exporter.synchronize(stream, MOMENT);
    if L::HAS_STREAMS {
        refused(synchronized, Call::Synchronize, &[ErrorCode::TIMEOUT]);
    } else {
        synchronized.unwrap();
    }
    bench.resume(stream);
    bench.finish();
    drop(event);
}

/// How long to wait for what won't come.
const MOMENT: Duration = Duration::from_millis(10);
