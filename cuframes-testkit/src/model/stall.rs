//! [`ModelClock`]: how long each subscriber has kept the writer waiting for one frame (D-31).

use std::collections::BTreeMap;
use std::time::Duration;

use cuframes_core::{Instant, SubscriberBit, Timeouts};

use super::Waits;

/// Since when each subscriber is in the way.
#[derive(Debug)]
pub(super) struct ModelClock {
    limits: [Duration; 2],
    frame: u64,
    /// By bit and cause, 0 for an acknowledgement and 1 for a lease: since when, and which subscriber has the bit.
    since: BTreeMap<(u8, usize), (Instant, u64)>,
}

impl ModelClock {
    pub(super) fn new(timeouts: &Timeouts) -> Self {
        Self { limits: [timeouts.consumer_ack, timeouts.lease], frame: 0, since: BTreeMap::new() }
    }

    pub(super) fn clear(&mut self) {
        self.since.clear();
    }

    /// A claim of the slot of `frame` failed at `now`. Returns the bits that are over their deadline; `holder` says which
    /// subscriber has a bit.
    pub(super) fn stalled(
        &mut self,
        now: Instant,
        frame: u64,
        (acks, leases): Waits,
        holder: impl Fn(u8) -> u64,
    ) -> u64 {
        if self.frame != frame {
            self.clear();
            self.frame = frame;
        }
        let causes = [acks, leases];
        let waits = |bit: u8, cause: usize| causes.get(cause).is_some_and(|bits| bits >> bit & 1 == 1);
        self.since.retain(|(bit, cause), (_, of)| waits(*bit, *cause) && holder(*bit) == *of);
        let mut accused = 0;
        for (cause, limit) in self.limits.into_iter().enumerate() {
            for bit in (1..=SubscriberBit::MAX).filter(|bit| waits(*bit, cause)) {
                let (since, _) = *self.since.entry((bit, cause)).or_insert_with(|| (now, holder(bit)));
                if since + limit <= now {
                    accused |= 1 << bit;
                }
            }
        }
        accused
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        let limit = |cause: usize| self.limits.get(cause).copied().unwrap_or_default();
        self.since.iter().map(|((_, cause), (since, _))| *since + limit(*cause)).min()
    }
}
