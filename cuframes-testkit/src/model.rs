//! [`ModelRing`]: the ring beside a model of §5 that knows no atomics, and checks after each operation that they agree.
//!
//! Subscribers may misbehave. One that [scribbles in its own name](Stage::scribble_own) is not predicted any more, but
//! changes nothing for the others (I7). After [scribbles](Stage::scribble_any) over what only readers believe, the writer
//! is still predicted. After any others, what is left is that the writer keeps its own position, takes no slot whose lease
//! counts, and can always go on after evictions (D-23, D-31).

mod stage;
mod stall;

pub use stage::{Join, Stage, Subscriber};

use cuframes_core::ring::{Committed, RingWriter, StallClock};
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

/// Whom a claim waits for, as the model sees it: acknowledgements, leases.
type Waits = (u64, u64);

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
        let Self { writer, clock, model_clock, stage } = self;
        let expected = stage.claim();
        if stage.is_predictable() {
            let stalled = writer.stalled();
            assert_eq!(stalled.is_some(), expected.is_err(), "{stalled:?}, expected {expected:?}");
        }
        match writer.claim() {
            Ok(claim) => {
                let seq = claim.seq().get();
                stage.check_claim(seq, claim.slot(), expected);
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
            Err(stalled) => {
                stage.check_stall(&stalled, expected);
                let waits = (stalled.waiting_for_acks, stalled.waiting_for_leases);
                let accused =
                    model_clock.stalled(stage.now(), stage.wanted(), waits, |bit| stage.holder(bit));
                assert_eq!(clock.stalled(stage.now(), &stalled, writer.members()), accused != 0);
                assert_eq!(clock.deadline(), model_clock.deadline());
                self.evict(accused);
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
