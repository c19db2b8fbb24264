//! Frames that a device writes and reads later than the calls that ask for it: published and given back in stream order.

use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use cuframes_mio::core::error::ErrorCode;
use cuframes_mio::core::gpu::{Call, Import};
use cuframes_mio::core::wire::ShutdownReason;
use cuframes_mio::core::{Gone, Policy, Timeouts};
use cuframes_mio::{Error, Frame, FrameLost, ServedPublisher, Subscriber};

use crate::common::{LONG, STRICT, Stream, check, check_bytes, meta, next, until};
use crate::slow::{Slow, SlowStream};

fn picture(seq: u64) -> Vec<u8> {
    let words = usize::try_from(meta().frame_size_bytes).unwrap() / 8;
    seq.to_le_bytes().repeat(words)
}

/// Claims a frame, and lets the stream write and publish it.
fn publish_on(publisher: &mut ServedPublisher<Slow>, stream: &SlowStream) -> u64 {
    let mut claim = publisher.claim().unwrap();
    let seq = claim.seq();
    claim.copy_in(stream, &picture(seq)).unwrap();
    claim.commit_on(stream).unwrap()
}

fn serve(stream: &Stream, slots: u64, policy: Policy) -> (Slow, ServedPublisher<Slow>) {
    let device = Slow::new(&stream.key);
    let publisher = stream.publisher(slots, policy).create_on(device.clone()).unwrap();
    (device, publisher.serve().unwrap())
}

fn next_on(subscriber: &mut Subscriber<Slow>) -> Frame<Slow> {
    subscriber.next(LONG).unwrap().expect("a frame in time")
}

#[test]
fn a_frame_is_seen_when_the_stream_has_written_it_and_the_publisher_does_not_wait() {
    let stream = Stream::new();
    let (device, mut publisher) = serve(&stream, 4, Policy::DROP_OLDEST);
    // Anybody may read it: the memory is the host's.
    let mut subscriber = stream.subscriber("eye", STRICT).connect().unwrap();
    let work = device.stream();
    work.hold();
    assert_eq!(publish_on(&mut publisher, &work), 1);
    assert_eq!(publish_on(&mut publisher, &work), 2);
    assert!(subscriber.next(Duration::from_millis(30)).unwrap().is_none());
    assert_eq!((publisher.stats().frames, publisher.stats().last_publish_age), (0, None));
    work.resume();
    for seq in 1..=2 {
        let frame = next(&mut subscriber);
        assert_eq!(frame.seq(), seq);
        check(&frame);
    }
    assert_eq!((publisher.stats().frames, publisher.stats().skipped), (2, 0));
    device.check_threads();
    work.end();
}

#[test]
fn frames_of_two_streams_come_in_the_order_in_which_they_were_claimed() {
    let stream = Stream::new();
    let (device, mut publisher) = serve(&stream, 4, Policy::DROP_OLDEST);
    let mut subscriber = stream.subscriber("eye", STRICT).connect().unwrap();
    let [slow, fast] = [device.stream(), device.stream()];
    slow.hold();
    assert_eq!((publish_on(&mut publisher, &slow), publish_on(&mut publisher, &fast)), (1, 2));
    assert_eq!(publisher.claim().unwrap().commit(), 3);
    assert!(subscriber.next(Duration::from_millis(30)).unwrap().is_none());
    slow.resume();
    for seq in 1..=2 {
        let frame = next(&mut subscriber);
        check(&frame);
        assert_eq!((frame.seq(), frame.lost()), (seq, 0));
    }
    assert_eq!(next(&mut subscriber).seq(), 3);
    [slow, fast].iter().for_each(SlowStream::end);
}

#[test]
fn a_claim_waits_for_the_device_when_every_slot_is_being_written() {
    let stream = Stream::new();
    let (device, mut publisher) = serve(&stream, 2, Policy::DROP_OLDEST);
    let work = device.stream();
    work.hold();
    publish_on(&mut publisher, &work);
    publish_on(&mut publisher, &work);
    let error = publisher.claim_timeout(Duration::from_millis(10)).unwrap_err();
    assert!(matches!(&error, Error::Stalled { stalled, .. } if stalled.unfinished), "{error}");
    assert!(error.to_string().contains("frames that were claimed are not complete"), "{error}");
    let resuming = work.resume_soon();
    assert_eq!(publish_on(&mut publisher, &work), 3);
    resuming.join().unwrap();
    work.end();
}

#[test]
fn a_device_that_stands_still_is_an_error_of_the_claim_and_the_memory_is_kept_until_it_goes_on() {
    let stream = Stream::new();
    let device = Slow::new(&stream.key);
    let mut timeouts = Timeouts::default();
    (timeouts.consumer_ack, timeouts.lease) = (Duration::from_millis(20), Duration::from_millis(30));
    timeouts.shutdown_grace = Duration::from_millis(50);
    let builder = stream.publisher(1, Policy::STRICT_WAIT).timeouts(timeouts);
    let mut publisher = builder.create_on(device.clone()).unwrap().serve().unwrap();
    let work = device.stream();
    work.hold();
    publish_on(&mut publisher, &work);
    let error = publisher.claim().unwrap_err();
    assert_eq!(error.code(), ErrorCode::TIMEOUT, "{error}");
    drop(publisher);
    assert_eq!(device.open(), 1, "the stream may still write it");
    stream.assert_nothing_left();
    work.end();
    until("the memory to be freed", || device.open() == 0);
    device.check_threads();
}

#[test]
fn a_stream_that_ends_waits_for_what_the_device_still_writes() {
    let stream = Stream::new();
    let (device, mut publisher) = serve(&stream, 2, Policy::DROP_OLDEST);
    let work = device.stream();
    work.hold();
    publish_on(&mut publisher, &work);
    let resuming = work.resume_soon();
    drop(publisher);
    assert_eq!(device.open(), 0);
    resuming.join().unwrap();
    device.check_threads();
    work.end();
}

#[test]
fn what_a_device_still_writes_is_published_before_the_end_is_announced() {
    let stream = Stream::new();
    let (device, mut publisher) = serve(&stream, 2, Policy::DROP_OLDEST);
    let mut subscriber = stream.subscriber("eye", STRICT).connect().unwrap();
    let work = device.stream();
    work.hold();
    publish_on(&mut publisher, &work);
    let resuming = work.resume_soon();
    let ending = thread::spawn(move || publisher.shut_down(ShutdownReason::NORMAL));
    check(&next(&mut subscriber));
    assert!(matches!(subscriber.next(LONG), Err(Error::Gone { gone: Gone::Shutdown(_), .. })));
    drop(subscriber);
    ending.join().unwrap().unwrap();
    resuming.join().unwrap();
    work.end();
}

#[test]
fn a_frame_that_a_stream_still_reads_is_not_overwritten() {
    for policy in [Policy::DROP_OLDEST, Policy::STRICT_WAIT] {
        let stream = Stream::new();
        let (device, mut publisher) = serve(&stream, 1, policy);
        let mut subscriber = stream.subscriber("eye", STRICT).connect_on(device.clone()).unwrap();
        let [writing, reading] = [device.stream(), device.stream()];
        publish_on(&mut publisher, &writing);
        let frame = next_on(&mut subscriber);
        reading.hold();
        frame.wait_on(&reading).unwrap();
        let (sender, receiver) = channel();
        let (pointer, seq) = (frame.device_ptr(), frame.seq());
        assert_ne!(pointer, 0);
        // What a kernel does: it reads the frame when the stream comes to it.
        let (backend, view) =
            (cuframes_mio::HostMemory::new(stream.key.clone()), frame.mapping().unwrap().view.clone());
        reading.enqueue(move || {
            let mut bytes = picture(0);
            backend.copy_out(&(), &view, &mut bytes, LONG).unwrap();
            sender.send(bytes).unwrap();
        });
        frame.release_after(&reading).unwrap();
        assert!(publisher.claim_timeout(Duration::from_millis(30)).is_err(), "the stream has not read it");
        reading.resume();
        publish_on(&mut publisher, &writing);
        check_bytes(seq, &receiver.recv_timeout(LONG).unwrap());
        assert_eq!(next_on(&mut subscriber).seq(), 2);
        device.check_threads();
        [writing, reading].iter().for_each(SlowStream::end);
    }
}

#[test]
fn what_the_last_frame_held_is_closed_but_not_by_the_device_s_thread() {
    let stream = Stream::new();
    let (device, mut publisher) = serve(&stream, 2, Policy::DROP_OLDEST);
    let mut subscriber = stream.subscriber("eye", STRICT).connect_on(device.clone()).unwrap();
    let work = device.stream();
    publish_on(&mut publisher, &work);
    let frame = next_on(&mut subscriber);
    drop(subscriber);
    work.hold();
    frame.release_after(&work).unwrap();
    assert_eq!(device.open(), 1 + 2);
    work.resume();
    until("the memory to be closed", || device.open() == 1);
    until("the subscriber to be gone", || publisher.members().is_empty());
    device.check_threads();
    work.end();
}

#[test]
fn a_copy_to_the_host_waits_for_its_stream_and_not_for_ever() {
    let stream = Stream::new();
    let (device, mut publisher) = serve(&stream, 2, Policy::DROP_OLDEST);
    let mut subscriber = stream.subscriber("eye", STRICT).connect_on(device.clone()).unwrap();
    let work = device.stream();
    publish_on(&mut publisher, &work);
    let frame = next_on(&mut subscriber);
    let mut bytes = picture(0);
    assert_eq!(frame.copy_to_host(&work, &mut bytes, LONG).unwrap(), bytes.len());
    check_bytes(1, &bytes);
    assert_eq!(frame.copy_to_host(&work, &mut bytes[..13], LONG).unwrap(), 13);
    work.hold();
    let error = frame.copy_to_host(&work, &mut bytes, Duration::from_millis(10)).unwrap_err();
    assert_eq!(error.to_string(), format!("stream {}: copy_out: it takes too long", stream.key));
    work.end();
}

#[test]
fn an_unleased_frame_that_was_overwritten_during_the_copy_is_an_error() {
    let stream = Stream::new();
    let (device, mut publisher) = serve(&stream, 1, Policy::DROP_OLDEST);
    let features = cuframes_mio::core::Features(0b10_0101);
    let mut subscriber =
        stream.subscriber("eye", STRICT).features(features).connect_on(device.clone()).unwrap();
    let work = device.stream();
    publish_on(&mut publisher, &work);
    let frame = next_on(&mut subscriber);
    publish_on(&mut publisher, &work);
    let error = frame.copy_to_host(&work, &mut picture(0), LONG).unwrap_err();
    assert!(matches!(error, Error::Lost { lost: FrameLost::Overwritten, .. }), "{error}");
    assert_eq!(error.code(), ErrorCode::OVERWRITTEN);
    work.end();
}

#[test]
fn a_call_of_the_device_that_fails_is_an_error_that_names_it_and_the_stream_goes_on() {
    let stream = Stream::new();
    let (device, mut publisher) = serve(&stream, 2, Policy::DROP_OLDEST);
    let work = device.stream();
    let is = |error: &Error, call: Call| {
        error.to_string() == format!("stream {}: {call}: it was told to", stream.key)
    };
    let mut subscriber = stream.subscriber("eye", STRICT).connect_on(device.clone()).unwrap();
    // The publisher's.
    device.fail(Call::Notify);
    let error = publisher.claim().unwrap().commit_on(&work).unwrap_err();
    assert!(is(&error, Call::Notify), "{error}");
    device.fail(Call::CopyIn);
    let error = publisher.claim().unwrap().copy_in(&work, &[1]).unwrap_err();
    assert!(is(&error, Call::CopyIn), "{error}");
    assert_eq!(publish_on(&mut publisher, &work), 1, "no number was used");
    // The subscriber's.
    let frame = next_on(&mut subscriber);
    device.fail(Call::WaitEvent);
    assert!(is(&frame.wait_on(&work).unwrap_err(), Call::WaitEvent));
    device.fail(Call::Notify);
    assert!(is(&frame.release_after(&work).unwrap_err(), Call::Notify));
    for seq in 2..6 {
        assert_eq!(publish_on(&mut publisher, &work), seq, "the lease was given back");
        assert_eq!(next_on(&mut subscriber).seq(), seq);
    }
    drop(subscriber);
    until("the subscriber to be gone", || publisher.members().is_empty());
    // Whoever can't open the frames tells the publisher, and leaves nothing.
    for call in [Call::OpenMem, Call::OpenEvent] {
        device.fail(call);
        let error = stream.subscriber("blind", STRICT).connect_on(device.clone()).unwrap_err();
        assert!(is(&error, call), "{error}");
        assert_eq!(error.code(), ErrorCode::CUDA);
        until("the subscriber to be gone", || publisher.members().is_empty());
        assert_eq!(device.open(), 1);
    }
    drop(publisher);
    for call in [Call::AllocPool, Call::ExportMem, Call::ExportFds, Call::CreateEvent] {
        device.fail(call);
        let error = stream.publisher(2, Policy::DROP_OLDEST).create_on(device.clone()).unwrap_err();
        assert!(is(&error, call), "{error}");
        assert_eq!(device.open(), 0);
        stream.assert_nothing_left();
    }
    device.check_threads();
    work.end();
}

#[test]
fn who_can_not_open_the_frames_takes_no_place_from_those_who_can() {
    let stream = Stream::new();
    let (device, publisher) = serve(&stream, 2, Policy::DROP_OLDEST);
    // More than there are bits, in less time than a bit is quarantined.
    for _ in 0..40 {
        device.fail(Call::OpenMem);
        let error = stream.subscriber("blind", STRICT).connect_on(device.clone()).unwrap_err();
        assert!(matches!(error, Error::Device { .. }), "{error}");
    }
    stream.subscriber("eye", STRICT).connect_on(device.clone()).unwrap();
    let stats = publisher.stats();
    assert_eq!((stats.joined, stats.left.vanished, stats.refused.too_many), (41, 0, 0));
}

#[test]
fn a_publisher_that_is_dropped_waits_for_nobody_and_its_memory_is_freed_when_the_device_has_written_it() {
    let stream = Stream::new();
    let device = Slow::new(&stream.key);
    let mut publisher = stream.publisher(2, Policy::DROP_OLDEST).create_on(device.clone()).unwrap();
    let work = device.stream();
    work.hold();
    let mut claim = publisher.try_claim(cuframes_mio::now()).unwrap();
    claim.copy_in(&work, &picture(1)).unwrap();
    claim.commit_on(&work).unwrap();
    drop(publisher);
    assert_eq!(device.open(), 1, "the stream may still write it");
    work.resume();
    until("the memory to be freed", || device.open() == 0);
    device.check_threads();
    work.end();
}

#[test]
fn a_slot_that_work_may_still_write_is_given_up_in_the_order_of_its_stream() {
    let stream = Stream::new();
    let (device, mut publisher) = serve(&stream, 2, Policy::DROP_OLDEST);
    let mut subscriber = stream.subscriber("eye", STRICT).connect().unwrap();
    let (slow, fast) = (device.stream(), device.stream());
    slow.hold();
    let mut claim = publisher.claim().unwrap();
    let slot = claim.slot();
    claim.copy_in(&slow, &picture(77)).unwrap();
    claim.cancel_on(&slow).unwrap();
    let claim = publisher.claim().unwrap();
    assert_ne!(claim.slot(), slot, "it may still be written");
    drop(claim);
    assert_eq!(publish_on(&mut publisher, &fast), 2);
    slow.resume();
    check(&next(&mut subscriber));
    device.fail(Call::Notify);
    let mut claim = publisher.claim().unwrap();
    claim.copy_in(&slow, &picture(78)).unwrap();
    assert_eq!(claim.cancel_on(&slow).unwrap_err().code(), ErrorCode::CUDA);
    for _ in 0..4 {
        publish_on(&mut publisher, &fast);
        check(&next(&mut subscriber));
    }
    slow.end();
    fast.end();
}

#[test]
fn what_a_stream_may_still_write_when_it_fails_is_never_used_again() {
    for call in [Call::RecordEvent, Call::Notify] {
        let stream = Stream::new();
        let (device, mut publisher) = serve(&stream, 2, Policy::DROP_OLDEST);
        let work = device.stream();
        work.hold();
        let mut claim = publisher.claim().unwrap();
        let slot = claim.slot();
        claim.copy_in(&work, &picture(1)).unwrap();
        device.fail(call);
        claim.commit_on(&work).unwrap_err();
        for _ in 0..3 {
            assert_ne!(publisher.claim().unwrap().slot(), slot, "{call}");
        }
        work.end();
    }
}

#[test]
fn what_a_stream_may_still_read_when_it_fails_is_neither_given_back_nor_unmapped() {
    let stream = Stream::new();
    let device = Slow::new(&stream.key);
    let mut timeouts = Timeouts::default();
    timeouts.shutdown_grace = Duration::from_millis(50);
    let builder = stream.publisher(1, Policy::DROP_OLDEST).timeouts(timeouts);
    let mut publisher = builder.create_on(device.clone()).unwrap().serve().unwrap();
    let mut subscriber = stream.subscriber("eye", STRICT).connect_on(device.clone()).unwrap();
    let [writing, reading] = [device.stream(), device.stream()];
    publish_on(&mut publisher, &writing);
    let frame = next_on(&mut subscriber);
    reading.hold();
    device.fail(Call::Notify);
    assert_eq!(frame.release_after(&reading).unwrap_err().code(), ErrorCode::CUDA);
    assert_eq!(publisher.try_claim().unwrap_err().waiting_for_leases, subscriber.bit().unwrap().mask());
    drop((subscriber, publisher));
    assert_eq!(device.open(), 1, "the stream may still read it");
    [writing, reading].iter().for_each(SlowStream::end);
}

#[test]
fn a_claim_that_is_dropped_lets_those_after_it_pass() {
    let stream = Stream::new();
    let (device, mut publisher) = serve(&stream, 2, Policy::DROP_OLDEST);
    let mut subscriber = stream.subscriber("eye", STRICT).connect().unwrap();
    let work = device.stream();
    drop(publisher.claim().unwrap());
    work.hold();
    publish_on(&mut publisher, &work);
    drop(publisher.claim().unwrap());
    work.resume();
    assert_eq!(next(&mut subscriber).seq(), 1);
    work.end();
}
