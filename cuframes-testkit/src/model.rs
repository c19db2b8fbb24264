//! [`ModelRing`]: the ring beside a model of §5 that knows no atomics, and checks after each operation that they agree.
//!
//! Subscribers may misbehave. One that [scribbles in its own name](Stage::scribble_own) is not predicted any more, but
//! changes nothing for the others (I7). After [scribbles](Stage::scribble_any) over what only readers believe, the writer
//! is still predicted. After any others, what is left is that the writer keeps its own position, takes no slot whose lease
//! counts, and can always go on after evictions (D-23, D-31).

mod stage;
mod stall;

pub use stage::{Join, Stage, Subscriber};

use cuframes_core::ring::{ClaimAsError, Committed, RingWriter, Seq, StallClock, Stalled};
use cuframes_core::roster::Departure;
use cuframes_core::{Policy, SubscriberBit, Timeouts};

use crate::heap::{HeapRegion, Ring};
use stall::ModelClock;

/// A ring, a model of it, and everybody around it.
#[derive(Debug)]
pub struct ModelRing {
    writer: RingWriter<HeapRegion>,
    clock: StallClock,
    model_clock: ModelClock,
    /// Everything but the writer: it goes on while the writer holds a claim.
    pub stage: Stage,
}

/// Why the model expects that nothing can be claimed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Blocked {
    Waits(Waits),
    /// The number is no greater than the newest one.
    Passed,
    /// There is no greater number.
    NoNumber,
}

/// Whom a claim waits for.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Waits {
    /// The bits of those that have not acknowledged `frame`.
    acks: u64,
    /// The bits of those that hold leases.
    leases: u64,
    /// 0 if several frames would do.
    frame: u64,
}

impl From<&Stalled> for Waits {
    fn from(stalled: &Stalled) -> Self {
        let (acks, leases) = (stalled.waiting_for_acks, stalled.waiting_for_leases);
        Self { acks, leases, frame: stalled.frame().map_or(0, Seq::get) }
    }
}

impl ModelRing {
    /// A fresh ring of `slots` slots.
    #[must_use]
    pub fn new(slots: u64, policy: Policy) -> Self {
        let Ring { region, roster, writer, .. } = Ring::new(slots, policy);
        let timeouts = Timeouts::default();
        Self {
            writer,
            clock: StallClock::new(&timeouts),
            model_clock: ModelClock::new(&timeouts),
            stage: Stage::new(region, roster, slots, policy),
        }
    }

    /// Claims a slot, lets others do something `meanwhile`, and commits the frame or drops the claim. If nothing can be
    /// claimed, whoever is over its deadline is evicted. Says whether there was a claim.
    pub fn publish(&mut self, commit: bool, meanwhile: impl FnOnce(&mut Stage)) -> bool {
        self.publish_as(None, commit, meanwhile)
    }

    /// As [`publish`](Self::publish), under a number that is given.
    pub fn publish_as(
        &mut self,
        number: Option<Seq>,
        commit: bool,
        meanwhile: impl FnOnce(&mut Stage),
    ) -> bool {
        let Self { writer, clock, model_clock, stage } = self;
        let expected = stage.claim(number.map(Seq::get));
        let stalled = number.map_or_else(|| writer.stalled(), |number| writer.stalled_as(number));
        if stage.is_predictable() {
            let expected = expected.err().filter(|blocked| *blocked != Blocked::Passed);
            let found = stalled.map(|stalled| match stalled {
                Stalled::NO_NUMBER => Blocked::NoNumber,
                stalled => Blocked::Waits(Waits::from(&stalled)),
            });
            assert_eq!(found, expected);
        }
        let claimed = match number {
            Some(number) => writer.claim_as(number),
            None => writer.claim().map_err(ClaimAsError::from),
        };
        match claimed {
            Ok(claim) => {
                let seq = claim.seq().get();
                stage.check_claim(number.map(Seq::get), seq, claim.slot(), expected);
                clock.clear();
                model_clock.clear();
                stage.invalidate(claim.slot());
                meanwhile(stage);
                if commit {
                    let Committed { seq: committed, wake, .. } = claim.commit(seq.cast_signed(), seq);
                    assert_eq!(committed.get(), seq);
                    stage.committed(seq, wake);
                }
                true
            }
            Err(ClaimAsError::Stalled(Stalled::NO_NUMBER)) => {
                assert_eq!(expected, Err(Blocked::NoNumber));
                false
            }
            Err(ClaimAsError::Stalled(stalled)) => {
                stage.check_stall(number.map(Seq::get), &stalled, expected);
                let waits = Waits::from(&stalled);
                let accused = model_clock.stalled(stage.now(), waits, |bit| stage.holder(bit));
                assert_eq!(clock.stalled(stage.now(), &stalled, writer.members()), accused != 0);
                assert_eq!(clock.deadline(), model_clock.deadline());
                self.evict(accused);
                false
            }
            Err(error) => {
                assert_eq!(
                    (error, expected),
                    (ClaimAsError::Passed { newest: stage.newest() }, Err(Blocked::Passed))
                );
                false
            }
        }
    }

    /// Announces that the writer sleeps. The next claim that succeeds ends it.
    pub fn park(&mut self) {
        self.writer.park();
        self.stage.set_publisher_parked();
    }

    /// Whatever came before: a publisher that gives everybody their time and evicts those who are over it can go on.
    pub fn check_that_claims_end(&mut self) {
        // Each second round at the latest evicts somebody, and there are 31 at most.
        let claimed = (0..=2 * SubscriberBit::MAX).any(|_| {
            self.stage.wait(Timeouts::default().lease);
            self.publish(true, |_| {})
        });
        let claimed = claimed || self.stage.claim(None) == Err(Blocked::NoNumber);
        assert!(claimed, "no claim although everybody who was in the way was evicted");
    }

    fn evict(&mut self, accused: u64) {
        let bits = self.stage.take_accused();
        assert_eq!(bits, accused);
        for bit in SubscriberBit::in_bitmap(bits) {
            self.stage.leave_bit(bit, Departure::Abrupt);
        }
    }
}
