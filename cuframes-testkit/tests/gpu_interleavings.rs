//! Whatever the streams do and in whatever order: no reader takes a torn frame for a whole one, and nothing is left open
//! (D-4, X-2, C-15).

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a failure ends the test")]

use cuframes_core::{Features, Policy, SubscriberMode};
use cuframes_testkit::mock_gpu::{MockGpu, Reading};
use cuframes_testkit::studio::{Guest, Studio, frame_size, picture};
use proptest::prelude::*;

/// What happens next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    /// The publisher claims a slot and enqueues the writing of a frame, unless it is at it; it commits when that is done.
    Publish,
    /// The publisher's stream makes a step.
    Write,
    /// A guest takes a frame and enqueues a kernel that reads it.
    Take(usize),
    /// A guest's stream makes a step.
    Read(usize),
    /// A guest is done with the newest frame that it holds.
    Release(usize),
}
use Step::{Publish, Read, Release, Take, Write};

/// A guest whose frames are leases, and one whose frames are not.
const GUESTS: [Features; 2] = [Features(u32::MAX), Features::NONE];

fn step() -> impl Strategy<Value = Step> {
    let guest = || 0..GUESTS.len();
    prop_oneof![
        2 => Just(Publish),
        4 => Just(Write),
        2 => guest().prop_map(Take),
        3 => guest().prop_map(Read),
        2 => guest().prop_map(Release),
    ]
}

/// What the guests read.
#[derive(Default)]
struct Watch {
    /// For each guest the frames that its kernels read, by number.
    readings: [Vec<(u64, Reading)>; 2],
    /// Frames that were read, and whether they were what they should be.
    seen: Vec<bool>,
}

impl Watch {
    fn step(&mut self, guests: &mut [Guest], step: Step) {
        let (Take(number) | Read(number) | Release(number)) = step else { return };
        let (guest, readings) = (&mut guests[number], &mut self.readings[number]);
        let leases = GUESTS[number].contains(Features::LEASE);
        match step {
            // Without leases one frame is held at a time.
            Take(_) if leases || guest.held.is_empty() => {
                if let Some(seq) = guest.take() {
                    readings.push((seq, guest.start_without_waiting()));
                }
            }
            Read(_) => drop(guest.stream.step()),
            Release(_) if leases && !guest.held.is_empty() => guest.release_after().unwrap(),
            // Without a lease it counts if the ring says so after the kernel.
            Release(_)
                if readings.last().is_some_and(|(_, reading)| reading.bytes().is_some()) && !leases =>
            {
                let reading = readings.pop().unwrap();
                if guest.held.pop().unwrap().release().is_ok() {
                    self.see(&reading);
                }
            }
            _ => {}
        }
    }

    fn see(&mut self, (seq, reading): &(u64, Reading)) {
        self.seen.push(reading.bytes().unwrap() == picture(*seq));
    }
}

/// Plays the steps, and says of each frame that a guest takes for one whether it was whole. `early`: the publisher commits
/// before its stream has written the frame.
fn play(slots: u64, steps: &[Step], early: bool) -> Vec<bool> {
    let gpu = MockGpu::new(1);
    let mut studio = Studio::new(&gpu, slots, Policy::DROP_OLDEST).unwrap();
    for features in GUESTS {
        studio.join(0, SubscriberMode::NEWEST_ONLY, features);
    }
    let mut watch = Watch::default();
    let Studio { ring, camera, guests, .. } = &mut studio;
    let mut steps = steps.iter().copied();
    while let Some(step) = steps.next() {
        if step == Write {
            camera.stream.step();
        }
        watch.step(guests, step);
        // If every slot is leased the frame is dropped.
        if step == Publish
            && let Ok(claim) = ring.writer.claim()
        {
            let done = camera.fill(claim.slot(), claim.seq().get()).unwrap();
            while !early && !done.is_set() {
                match steps.next() {
                    Some(Write) => drop(camera.stream.step()),
                    Some(step) => watch.step(guests, step),
                    None => camera.stream.run(),
                }
            }
            let _ = claim.commit(0, frame_size());
        }
    }
    // Leaving waits for the kernels, so all that was taken under a lease was read.
    guests.iter_mut().for_each(Guest::leave);
    studio.shut_down();
    assert_eq!(gpu.findings(), []);
    for reading in std::mem::take(&mut watch.readings[0]) {
        watch.see(&reading);
    }
    watch.seen
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn no_frame_that_is_taken_for_whole_is_torn(
        slots in 1u64..=3,
        steps in proptest::collection::vec(step(), 0..120),
    ) {
        prop_assert!(play(slots, &steps, false).into_iter().all(|whole| whole));
    }
}

/// A frame is taken while it is half written over another one.
const HALF_WRITTEN: [Step; 10] =
    [Publish, Write, Write, Write, Write, Publish, Write, Take(0), Read(0), Read(0)];

#[test]
fn the_same_steps_show_a_torn_frame_if_it_is_committed_before_it_is_written() {
    assert_eq!(play(1, &HALF_WRITTEN, true), [false]);
    assert!(play(1, &HALF_WRITTEN, false).is_empty(), "there is no frame to take yet");
}

#[test]
fn the_steps_do_lead_to_frames_that_are_read_with_a_lease_and_without() {
    let publish = [Publish, Write, Write, Write, Write];
    let read = [Take(1), Read(1), Read(1)];
    let steps = [&publish[..], &[Take(0)], &read, &[Release(1)]].concat();
    assert_eq!(play(2, &steps, false), [true, true]);
    let overwritten = [&publish[..], &read, &publish, &publish, &[Release(1)]].concat();
    assert!(play(2, &overwritten, false).is_empty(), "the ring says that it is lost");
}
