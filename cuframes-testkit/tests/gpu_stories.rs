//! Frames in GPU memory from the handshake to the last byte: when they are committed, read and released (§5, X-2, C-14,
//! C-15).

#![expect(clippy::unwrap_used, reason = "a failure ends the test")]

use std::time::Duration;

use cuframes_core::gpu::{Call, Device, GpuError};
use cuframes_core::{Features, Policy, SubscriberMode};
use cuframes_testkit::mock_gpu::{Finding, MockDevice, MockGpu, result};
use cuframes_testkit::studio::{Studio, frame_size, picture};

const NEWEST: SubscriberMode = SubscriberMode::NEWEST_ONLY;
const STRICT: SubscriberMode = SubscriberMode::STRICT_ORDER;
const LEASE: Features = Features::LEASE;
const ALL: Features = Features(u32::MAX);

fn studio(gpu: &MockGpu, slots: u64) -> Studio {
    Studio::new(gpu, slots, Policy::DROP_OLDEST).unwrap()
}

/// Frame number `seq` with the bytes that it must have.
fn whole(seq: u64) -> Option<(u64, Vec<u8>)> {
    Some((seq, picture(seq)))
}

#[test]
fn every_subscriber_gets_every_frame_over_handles_and_over_descriptors() {
    for gpu in [MockGpu::new(1), MockGpu::vmm(1)] {
        let mut studio = studio(&gpu, 3);
        for _ in 0..4 {
            let guest = studio.join(0, STRICT, ALL);
            assert!(studio.guests[guest].is_attached());
        }
        for seq in 1..=10 {
            assert_eq!(studio.publish().unwrap(), seq);
            for guest in &mut studio.guests {
                assert_eq!(guest.see(), whole(seq));
                assert_eq!(guest.see(), None);
            }
        }
        for guest in &mut studio.guests {
            guest.leave();
        }
        studio.shut_down();
        assert!(!studio.camera.is_open());
        assert_eq!(gpu.findings(), []);
    }
}

#[test]
fn a_frame_is_not_seen_before_the_publishers_stream_has_written_it() {
    let gpu = MockGpu::new(1);
    let mut studio = studio(&gpu, 2);
    studio.join(0, NEWEST, ALL);
    let Studio { ring, camera, guests, .. } = &mut studio;
    let claim = ring.writer.claim().unwrap();
    let done = camera.fill(claim.slot(), claim.seq().get()).unwrap();
    while !done.is_set() {
        assert_eq!(guests[0].take(), None);
        assert!(camera.stream.step());
    }
    assert_eq!(guests[0].take(), None, "not before the commit");
    let _ = claim.commit(0, frame_size());
    assert_eq!(guests[0].see(), whole(1));
}

#[test]
fn a_frame_that_is_committed_too_early_is_seen_torn() {
    let gpu = MockGpu::new(1);
    let mut studio = studio(&gpu, 2);
    studio.join(0, NEWEST, ALL);
    studio.publish().unwrap();
    studio.publish().unwrap();
    studio.publish_early().unwrap();
    let guest = &mut studio.guests[0];
    assert_eq!(guest.take(), Some(3));
    assert!(studio.camera.stream.step());
    let read = guest.start_without_waiting();
    guest.stream.run();
    let half = picture(1).len() / 2;
    assert_eq!(read.bytes().unwrap(), [&picture(3)[..half], &picture(1)[half..]].concat());
    assert!(guest.held[0].is_intact(), "and the ring can't tell");
}

#[test]
fn who_waits_for_the_event_of_a_plain_v1_publisher_gets_the_whole_frame() {
    let gpu = MockGpu::new(1);
    let mut studio = studio(&gpu, 2);
    let (patient, hasty) = (studio.join(0, NEWEST, ALL), studio.join(0, NEWEST, ALL));
    studio.publish_early().unwrap();
    let guest = &mut studio.guests[patient];
    assert_eq!(guest.take(), Some(1));
    let read = guest.start().unwrap();
    assert!(!guest.stream.step(), "the event was not reached yet");
    assert_eq!(studio.guests[hasty].see(), whole(1), "a copy to the host waits, too");
    studio.camera.stream.run();
    studio.guests[patient].stream.run();
    assert_eq!(read.bytes().unwrap(), picture(1));
}

#[test]
fn one_event_stands_for_the_newest_frame_so_a_wait_may_be_longer_than_needed_but_never_shorter() {
    let gpu = MockGpu::new(1);
    let mut studio = studio(&gpu, 3);
    studio.join(0, STRICT, ALL);
    studio.publish_early().unwrap();
    studio.publish_early().unwrap();
    let guest = &mut studio.guests[0];
    assert_eq!(guest.take(), Some(1));
    let read = guest.start().unwrap();
    // Two halves, the record and the notification of frame 1.
    for _ in 0..4 {
        assert!(studio.camera.stream.step());
    }
    assert!(!guest.stream.step());
    gpu.run_all();
    assert_eq!(read.bytes().unwrap(), picture(1));
}

#[test]
fn a_lease_is_held_until_the_readers_stream_has_passed() {
    let gpu = MockGpu::new(1);
    let mut studio = studio(&gpu, 2);
    studio.join(0, NEWEST, ALL);
    studio.publish().unwrap();
    let guest = &mut studio.guests[0];
    guest.take().unwrap();
    let read = guest.start().unwrap();
    guest.release_after().unwrap();
    assert!(guest.held.is_empty(), "the application is done with it");
    assert_eq!(studio.publish().unwrap(), 2);
    assert_eq!(studio.publish().unwrap(), 4, "the slot of frame 1 is still leased");
    assert!(studio.guests[0].stream.step());
    assert_eq!(studio.publish().unwrap(), 6);
    studio.guests[0].stream.run();
    assert_eq!(read.bytes().unwrap(), picture(1));
    assert_eq!(studio.publish().unwrap(), 7, "and now it is not");
}

#[test]
fn a_lease_that_is_released_too_early_shows_a_torn_frame() {
    let gpu = MockGpu::new(1);
    let mut studio = studio(&gpu, 1);
    studio.join(0, NEWEST, ALL);
    studio.publish().unwrap();
    let guest = &mut studio.guests[0];
    guest.take().unwrap();
    let read = guest.start().unwrap();
    assert!(guest.stream.step());
    guest.held.clear();
    studio.publish().unwrap();
    studio.guests[0].stream.run();
    let half = picture(1).len() / 2;
    assert_eq!(read.bytes().unwrap(), [&picture(1)[..half], &picture(2)[half..]].concat());
}

#[test]
fn a_release_that_can_t_be_arranged_in_stream_order_waits_for_the_stream() {
    let gpu = MockGpu::new(1);
    let mut studio = studio(&gpu, 2);
    studio.join(0, NEWEST, ALL);
    studio.publish().unwrap();
    let guest = &mut studio.guests[0];
    guest.take().unwrap();
    let read = guest.start().unwrap();
    gpu.fail(Call::Notify, 1, result::UNKNOWN);
    assert_eq!(guest.release_after().unwrap_err().call(), Call::Notify);
    assert_eq!(read.bytes().unwrap(), picture(1), "before the lease ended");
    assert_eq!((studio.publish().unwrap(), studio.publish().unwrap()), (2, 3), "and it has ended");
}

#[test]
fn without_a_lease_a_frame_that_was_overwritten_meanwhile_says_so() {
    let gpu = MockGpu::new(1);
    let mut studio = studio(&gpu, 2);
    studio.join(0, NEWEST, Features::NONE);
    studio.publish().unwrap();
    let guest = &mut studio.guests[0];
    guest.take().unwrap();
    let read = guest.start().unwrap();
    assert!(guest.stream.step());
    studio.publish().unwrap();
    assert!(studio.guests[0].held[0].is_intact());
    studio.publish().unwrap();
    studio.guests[0].stream.run();
    assert_ne!(read.bytes().unwrap(), picture(1));
    assert!(!studio.guests[0].held[0].is_intact());
    studio.guests[0].held.pop().unwrap().release().expect_err("it was overwritten");
}

#[test]
fn a_publisher_that_waits_for_everybody_goes_on_when_the_last_stream_has_passed() {
    let gpu = MockGpu::new(1);
    let mut studio = Studio::new(&gpu, 1, Policy::STRICT_WAIT).unwrap();
    for _ in 0..3 {
        studio.join(0, STRICT, ALL);
    }
    studio.publish().unwrap();
    for guest in &mut studio.guests {
        guest.take().unwrap();
        let _ = guest.start().unwrap();
        guest.release_after().unwrap();
    }
    for bit in 1..=3 {
        let waiting = studio.ring.writer.stalled().expect("somebody still reads");
        assert_eq!(waiting.bits() & ((1 << bit) - 1), 0, "those whose stream has passed are done");
        studio.guests[bit - 1].stream.run();
    }
    assert_eq!(studio.publish().unwrap(), 2);
}

#[test]
fn frames_of_the_callers_own_are_read_where_they_are() {
    let gpu = MockGpu::new(1);
    let mut memory = None;
    let frames = |device: &MockDevice| {
        let base = device.malloc(100 + 3 * frame_size());
        memory = Some(base);
        (0..3).map(|slot| base.plus(100 + slot * frame_size())).collect()
    };
    let mut studio = Studio::external(&gpu, frames).unwrap();
    let (knows, does_not) = (studio.join(0, STRICT, ALL), studio.join(0, STRICT, LEASE));
    assert!(!studio.guests[does_not].is_attached(), "it would read at the base (X-5)");
    for seq in 1..=5 {
        studio.publish().unwrap();
        assert_eq!(studio.guests[knows].see(), whole(seq));
    }
    studio.guests[knows].leave();
    studio.shut_down();
    assert_eq!(gpu.findings(), [Finding::Allocated { process: 0, allocation: 0 }], "the caller's");
    studio.camera.device.free(memory.unwrap());
    assert_eq!(gpu.findings(), []);
}

#[test]
fn waiting_for_a_stream_that_stands_still_ends_with_a_timeout() {
    let gpu = MockGpu::new(1);
    let mut studio = studio(&gpu, 2);
    studio.join(0, NEWEST, ALL);
    studio.camera.stream.hold();
    studio.publish_early().unwrap();
    let guest = &mut studio.guests[0];
    assert_eq!(guest.see(), None);
    assert_eq!(guest.error.unwrap().to_string(), "copy_out: CUDA error 600: the stream does not go on");
    guest.device.synchronize(&guest.stream, Duration::ZERO).unwrap_err();
}
