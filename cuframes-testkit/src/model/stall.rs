//! [`ModelClock`]: how long each subscriber has kept the writer waiting for one frame (D-31).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use cuframes_core::{Instant, SubscriberBit, Timeouts};

use super::Waits;

/// Since when each subscriber is in the way.
#[derive(Debug)]
pub(super) struct ModelClock {
    limits: [Duration; 2],
    frame: u64,
    /// When `frame` was first waited for.
    start: Option<Instant>,
    /// By bit and cause, 0 for an acknowledgement and 1 for a lease: since when, and which subscriber has the bit.
    since: BTreeMap<(u8, usize), (Instant, u64)>,
    /// Who was in the way at the last look.
    waiting: BTreeSet<(u8, usize)>,
}

impl ModelClock {
    pub(super) fn new(timeouts: &Timeouts) -> Self {
        let limits = [timeouts.consumer_ack, timeouts.lease];
        Self { limits, frame: 0, start: None, since: BTreeMap::new(), waiting: BTreeSet::new() }
    }

    pub(super) fn clear(&mut self) {
        self.start = None;
        self.since.clear();
        self.waiting.clear();
    }

    /// A claim failed at `now`. Returns the bits that are over their deadline; `holder` says which subscriber has a bit.
    pub(super) fn stalled(
        &mut self,
        now: Instant,
        Waits { acks, leases, frame }: Waits,
        holder: impl Fn(u8) -> u64,
    ) -> u64 {
        // A frame that was read stays read, whoever says that it was not.
        if self.start.is_none() || self.frame < frame {
            self.clear();
            self.frame = frame;
        }
        self.start.get_or_insert(now);
        self.since.retain(|(bit, _), (_, of)| holder(*bit) == *of);
        self.waiting.clear();
        for (cause, bits) in [acks, leases].into_iter().enumerate() {
            for bit in (1..=SubscriberBit::MAX).filter(|bit| bits >> bit & 1 == 1) {
                self.waiting.insert((bit, cause));
                self.since.entry((bit, cause)).or_insert_with(|| (now, holder(bit)));
            }
        }
        let over: u64 = self.dues().filter(|(_, due)| *due <= now).fold(0, |over, (bit, _)| over | 1 << bit);
        if over == 0 && self.end().is_some_and(|end| end <= now) { acks | leases } else { over }
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.dues().map(|(_, due)| due).min().into_iter().chain(self.end()).min()
    }

    /// When the frame has waited for long enough, whoever is in its way.
    fn end(&self) -> Option<Instant> {
        Some(self.start? + 2 * self.limits.into_iter().max()?)
    }

    /// Who is in the way, and until when it may be.
    fn dues(&self) -> impl Iterator<Item = (u8, Instant)> {
        self.waiting.iter().filter_map(|which| {
            let limit = *self.limits.get(which.1)?;
            Some((which.0, self.since.get(which)?.0 + limit))
        })
    }
}
