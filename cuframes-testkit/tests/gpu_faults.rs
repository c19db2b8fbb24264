//! Every call of the GPU fails once, on each side, the first time and any later time: whoever made it has an error that
//! names it, everybody else goes on, and nothing is left open.

#![expect(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a failure ends the test")]

use cuframes_core::gpu::{Call, GpuError};
use cuframes_core::{Features, Policy, SubscriberMode};
use cuframes_testkit::mock_gpu::{MockDevice, MockError, MockGpu, MockPointer, result};
use cuframes_testkit::studio::{Guest, Studio, frame_size, picture};

/// How the publisher shares its memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Handles,
    Descriptors,
    External,
}

/// What came of a stream.
struct Outcome {
    /// The calls that failed, of the publisher and of each guest.
    errors: Vec<MockError>,
    /// The frame of each round, if it was published.
    published: Vec<Option<u64>>,
    /// For each guest what it saw, and whether a call of it failed.
    guests: Vec<(Vec<u64>, bool)>,
}

const ROUNDS: usize = 5;
/// When the guest in the middle leaves.
const LEAVES_AFTER: usize = 3;

/// A whole stream: three subscribers come, read in different ways, and leave at different times.
fn perform(kind: Kind, gpu: &MockGpu) -> Result<Outcome, MockError> {
    let mut lent = None;
    let frames = |device: &MockDevice| -> Vec<MockPointer> {
        let base = device.malloc(100 + 2 * frame_size());
        lent = Some((device.clone(), base));
        vec![base.plus(100), base.plus(100 + frame_size())]
    };
    let studio = match kind {
        Kind::External => Studio::external(gpu, frames),
        _ => Studio::new(gpu, 2, Policy::DROP_OLDEST),
    };
    let outcome = studio.map(play);
    if let Some((device, base)) = lent {
        device.free(base);
    }
    outcome
}

fn play(mut studio: Studio) -> Outcome {
    for _ in 0..3 {
        studio.join(0, SubscriberMode::STRICT_ORDER, Features(u32::MAX));
    }
    let (mut errors, mut published) = (Vec::new(), Vec::new());
    let mut seen = vec![Vec::new(); 3];
    for round in 0..ROUNDS {
        let frame = studio.publish();
        published.push(frame.as_ref().ok().copied());
        errors.extend(frame.err());
        for (guest, seen) in studio.guests.iter_mut().zip(&mut seen) {
            if guest.is_attached() {
                seen.extend(if round % 2 == 0 { copy(guest) } else { read_with_a_kernel(guest) });
            }
        }
        studio.settle();
        if round + 1 == LEAVES_AFTER {
            studio.guests[1].leave();
            studio.settle();
        }
    }
    studio.shut_down();
    studio.guests.iter_mut().for_each(Guest::leave);
    studio.settle();
    assert!(!studio.camera.is_open());
    errors.append(&mut studio.errors);
    errors.extend(studio.guests.iter().filter_map(|guest| guest.error));
    let failed = studio.guests.iter().map(|guest| guest.error.is_some());
    Outcome { errors, published, guests: seen.into_iter().zip(failed).collect() }
}

fn copy(guest: &mut Guest) -> Option<u64> {
    let (seq, bytes) = guest.see()?;
    assert_eq!(bytes, picture(seq));
    Some(seq)
}

fn read_with_a_kernel(guest: &mut Guest) -> Option<u64> {
    let seq = guest.take()?;
    let reading = guest.start().and_then(|reading| guest.release_after().map(|()| reading));
    match reading {
        Ok(reading) => {
            guest.stream.run();
            assert_eq!(reading.bytes(), Some(picture(seq)));
            Some(seq)
        }
        Err(error) => {
            guest.fail(error);
            None
        }
    }
}

fn machine(kind: Kind) -> MockGpu {
    if kind == Kind::Descriptors { MockGpu::vmm(1) } else { MockGpu::new(1) }
}

/// Lets each call fail, one in each stream, and returns the kinds that there are.
fn let_every_call_fail(kind: Kind) -> Vec<Call> {
    let gpu = machine(kind);
    let calm = perform(kind, &gpu).unwrap();
    assert!(calm.errors.is_empty() && gpu.findings().is_empty());
    calm.check_guests(|_| false);
    for call in Call::ALL {
        for nth in 1..=gpu.calls(*call) {
            let gpu = machine(kind);
            gpu.fail(*call, nth, result::UNKNOWN);
            let is_it = |error: &MockError| (error.call(), error.native()) == (*call, Some(result::UNKNOWN));
            match perform(kind, &gpu) {
                Err(error) => assert!(is_it(&error), "{call} {nth}: {error}"),
                Ok(outcome) => {
                    let [error] = &outcome.errors[..] else { panic!("{call} {nth}: {:?}", outcome.errors) };
                    assert!(is_it(error), "{call} {nth}: {error}");
                    // Whoever the publisher has no descriptors for is refused.
                    outcome.check_guests(|guest| *call == Call::ExportFds && guest + 1 == nth);
                }
            }
            assert_eq!(gpu.findings(), [], "{call} {nth}");
        }
    }
    Call::ALL.iter().copied().filter(|call| gpu.calls(*call) > 0).collect()
}

impl Outcome {
    /// Everybody saw all that was published while it was there, unless a call of its own failed, or it was refused. And the
    /// publisher lost a frame at most.
    fn check_guests(&self, is_refused: impl Fn(u64) -> bool) {
        assert!(self.published.iter().flatten().count() >= ROUNDS - 1);
        for (number, (seen, failed)) in (0..).zip(&self.guests) {
            let rounds = if number == 1 { LEAVES_AFTER } else { ROUNDS };
            let there = if is_refused(number) { 0 } else { rounds };
            let published: Vec<u64> = self.published[..there].iter().flatten().copied().collect();
            assert!(*seen == published || *failed && published.starts_with(seen), "{number}: {seen:?}");
        }
    }
}

/// All calls of the traits but these.
fn all_but(left_out: &[Call]) -> Vec<Call> {
    let is_there = |call: &Call| *call != Call::Open && !left_out.contains(call);
    Call::ALL.iter().copied().filter(is_there).collect()
}

#[test]
fn any_call_may_fail_where_memory_is_shared_over_handles() {
    assert_eq!(let_every_call_fail(Kind::Handles), all_but(&[Call::RegisterExternal, Call::ExportFds]));
}

#[test]
fn any_call_may_fail_where_memory_is_shared_over_descriptors() {
    assert_eq!(let_every_call_fail(Kind::Descriptors), all_but(&[Call::RegisterExternal]));
}

#[test]
fn any_call_may_fail_where_memory_is_the_callers_own() {
    assert_eq!(let_every_call_fail(Kind::External), all_but(&[Call::AllocPool, Call::ExportFds]));
}
