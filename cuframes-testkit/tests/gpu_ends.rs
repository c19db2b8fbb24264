//! How streams of GPU frames end: who dies, who leaves, what fails, who lies (D-12, D-28, D-30, C-7, P-8, P-9).

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a failure ends the test")]

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use cuframes_core::error::{ErrorCode, Gone};
use cuframes_core::gpu::{Call, GpuError, MemHandle};
use cuframes_core::session::Closed;
use cuframes_core::shm::header::SlotMemory;
use cuframes_core::wire::ShutdownReason;
use cuframes_core::{Features, Policy, SubscriberMode};
use cuframes_testkit::mock_gpu::{Finding, MockGpu};
use cuframes_testkit::studio::{Studio, picture};

const STRICT: SubscriberMode = SubscriberMode::STRICT_ORDER;
const ALL: Features = Features(u32::MAX);

/// A publisher of three slots, and so many subscribers.
fn studio(gpu: &MockGpu, guests: usize) -> Studio {
    let mut studio = Studio::new(gpu, 3, Policy::DROP_OLDEST).unwrap();
    for _ in 0..guests {
        studio.join(0, STRICT, ALL);
    }
    studio
}

/// Publishes a frame, and lets each of these guests see it.
fn publish_to(studio: &mut Studio, guests: &[usize]) {
    let seq = studio.publish().unwrap();
    for guest in guests {
        assert_eq!(studio.guests[*guest].see(), Some((seq, picture(seq))), "guest {guest}");
    }
}

fn is_mapped(gpu: &MockGpu) -> bool {
    gpu.findings().iter().any(|finding| matches!(finding, Finding::Mapped { .. }))
}

#[test]
fn a_subscriber_that_dies_leaves_no_mapping_and_no_lease() {
    for gpu in [MockGpu::new(1), MockGpu::vmm(1)] {
        let mut studio = studio(&gpu, 2);
        studio.publish().unwrap();
        let guest = &mut studio.guests[0];
        let process = guest.device.process();
        guest.take().unwrap();
        let _ = guest.start().unwrap();
        guest.release_after().unwrap();
        studio.publish().unwrap();
        studio.guests[0].take().unwrap();
        let leased = |studio: &Studio| -> u64 {
            let words = studio.ring.region.slots.iter().map(|slot| &slot.lease_bitmap);
            words.map(|word| word.load(Relaxed)).sum()
        };
        assert_eq!(leased(&studio), 0b100, "one slot: the frame that its stream reads, and the one it holds");
        studio.kill(0);
        assert_eq!(leased(&studio), 0);
        let left = gpu.findings();
        assert!(!left.iter().any(|of| matches!(of, Finding::Mapped { process: of, .. } if *of == process)));
        assert_eq!(studio.ring.roster.members().count(), 1);
        publish_to(&mut studio, &[]);
        let again = studio.join(0, STRICT, ALL);
        assert_eq!(studio.guests[again].bit.unwrap().get(), 1, "its bit is free: its process is gone");
    }
}

#[test]
fn forty_subscribers_that_die_leave_the_stream_as_it_was() {
    let gpu = MockGpu::new(1);
    let mut studio = studio(&gpu, 1);
    for _ in 0..40 {
        let guest = studio.join(0, STRICT, ALL);
        publish_to(&mut studio, &[0]);
        studio.guests[guest].take().unwrap();
        studio.kill(guest);
    }
    publish_to(&mut studio, &[0]);
    studio.guests[0].leave();
    studio.shut_down();
    assert_eq!(gpu.findings(), []);
}

#[test]
fn a_publisher_frees_its_memory_when_the_last_importer_has_closed_it() {
    let gpu = MockGpu::new(1);
    let mut studio = studio(&gpu, 3);
    publish_to(&mut studio, &[0, 1, 2]);
    studio.publish().unwrap();
    studio.shut_down();
    for guest in 0..3 {
        assert!(studio.camera.is_open() && is_mapped(&gpu), "guest {guest} is still there");
        assert_eq!(studio.guests[guest].see(), Some((2, picture(2))), "what is published may be read (D-30)");
        studio.guests[guest].leave();
        studio.settle();
    }
    assert!(!studio.camera.is_open());
    assert_eq!(gpu.findings(), []);
}

#[test]
fn a_publisher_does_not_wait_for_ever_and_what_that_costs_is_seen() {
    let gpu = MockGpu::new(1);
    let mut studio = studio(&gpu, 2);
    studio.shut_down();
    studio.guests[0].leave();
    studio.advance(Duration::from_millis(999));
    assert!(studio.camera.is_open());
    studio.advance(Duration::from_millis(1));
    assert!(!studio.camera.is_open());
    let shutdown = Closed::Gone(Gone::Shutdown(ShutdownReason::NORMAL));
    assert_eq!(studio.guests[1].closed, Some(shutdown));
    let process = studio.guests[1].device.process();
    let expected = [0, 1, 2].map(|allocation| Finding::FreedWhileMapped { process, allocation });
    assert_eq!(gpu.findings(), expected, "undefined in CUDA, which is why there is a grace period");
}

#[test]
fn a_publisher_that_dies_leaves_nothing_open_with_its_subscribers() {
    let gpu = MockGpu::new(1);
    let mut studio = studio(&gpu, 2);
    studio.publish().unwrap();
    let guest = &mut studio.guests[0];
    guest.take().unwrap();
    let read = guest.start().unwrap();
    assert!(is_mapped(&gpu));
    studio.kill_publisher();
    assert_eq!(read.bytes(), Some(picture(1)), "work under way is waited for");
    for guest in &studio.guests {
        assert_eq!(guest.closed, Some(Closed::Gone(Gone::Disconnected)));
        assert!(!guest.is_attached() && guest.held.is_empty());
    }
    assert_eq!(gpu.findings(), []);
}

#[test]
fn who_waits_for_a_publisher_that_died_is_not_kept_for_ever() {
    let gpu = MockGpu::new(1);
    let mut studio = studio(&gpu, 1);
    studio.publish_early().unwrap();
    let guest = &mut studio.guests[0];
    guest.take().unwrap();
    let read = guest.start().unwrap();
    studio.kill_publisher();
    assert_eq!(read.bytes(), None);
    assert_eq!(
        studio.guests[0].error.unwrap().to_string(),
        "synchronize: CUDA error 600: the stream does not go on"
    );
    let process = studio.guests[0].device.process();
    assert_eq!(gpu.findings(), [Finding::EventDroppedUnderWait { process }], "and nothing is left open");
}

/// What a publisher changes in the region.
type Lie = fn(&mut SlotMemory);

#[test]
fn handles_of_a_hostile_publisher_are_refused_and_nothing_stays_open() {
    let lies: [(usize, Lie); 5] = [
        (0, |memory| memory.handle = MemHandle([0xFF; 64])),
        (2, |memory| memory.handle.0[9] = 0x7F),
        (1, |memory| memory.handle = MemHandle([0; 64])),
        (2, |memory| memory.offset = 1),
        (0, |memory| memory.offset = u64::MAX),
    ];
    for (slot, lie) in lies {
        let gpu = MockGpu::new(1);
        let mut studio = studio(&gpu, 1);
        let mut memory = SlotMemory::read(&studio.ring.region, slot);
        lie(&mut memory);
        memory.write(&studio.ring.region, slot);
        // It also says that frames may start anywhere.
        let honest = memory.offset == 0;
        if !honest {
            studio.claim_feature(Features::MEM_OFFSET);
        }
        let victim = studio.join(0, STRICT, ALL);
        let guest = &studio.guests[victim];
        let error = guest.error.unwrap();
        assert_eq!((error.call(), guest.is_attached()), (Call::OpenMem, false));
        assert_eq!(guest.closed, Some(Closed::Rejected(ErrorCode::INVALID_ARGUMENT)));
        assert_eq!(studio.ring.roster.members().count(), 1);
        publish_to(&mut studio, &[0]);
        studio.guests[0].leave();
        studio.shut_down();
        assert_eq!(gpu.findings(), []);
    }
}

#[test]
fn a_subscriber_on_another_device_is_told_so_and_the_others_go_on() {
    let gpu = MockGpu::new(2);
    let mut studio = studio(&gpu, 1);
    let elsewhere = studio.join(1, STRICT, ALL);
    let error = studio.guests[elsewhere].error.unwrap();
    assert_eq!(error.to_string(), "open_mem: CUDA error 217: it is on another device");
    assert_eq!(studio.guests[elsewhere].closed, Some(Closed::Rejected(ErrorCode::CUDA)));
    publish_to(&mut studio, &[0]);
}
