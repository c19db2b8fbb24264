//! A writer that can't go on: [`Stalled`] says who it waits for, [`StallClock`] how long each of them may take.

use core::fmt;
use core::time::Duration;

use super::members::{Accusation, Members};
use crate::config::{SubscriberBit, Timeouts};
use crate::shm::Word;
use crate::shm::layout::SUBSCRIBERS;
use crate::time::Instant;

/// Why `claim` found no slot, and who is in the way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stalled {
    /// Bit per subscriber that has not acknowledged the frame (STRICT_WAIT).
    pub waiting_for_acks: u64,
    /// Bit per subscriber that holds a lease: of the one slot under STRICT_WAIT, of any slot under DROP_OLDEST.
    pub waiting_for_leases: u64,
    /// The frame that would be overwritten (STRICT_WAIT), or 0 where every slot is leased (DROP_OLDEST).
    pub(super) seq: u64,
}

impl Stalled {
    /// A DROP_OLDEST writer finds every slot leased, by these.
    pub(super) const fn on_leases(leases: u64) -> Self {
        Self { waiting_for_acks: 0, waiting_for_leases: leases, seq: 0 }
    }

    /// Nobody is in the way, but this process has no ring to claim in: it was forked from the one that has (P-20).
    pub const FORKED: Self = Self::on_leases(0);

    /// Bit per subscriber that is in the way.
    #[must_use]
    pub const fn bits(&self) -> u64 {
        self.waiting_for_acks | self.waiting_for_leases
    }
}

impl fmt::Display for Stalled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::FORKED {
            return f.write_str("the ring belongs to the process that this one was forked from");
        }
        let mut separator = "the ring is full: ";
        for (bits, what) in
            [(self.waiting_for_acks, "no acknowledgement"), (self.waiting_for_leases, "lease held")]
        {
            for bit in SubscriberBit::in_bitmap(bits) {
                write!(f, "{separator}{what} by subscriber {bit}")?;
                separator = ", ";
            }
        }
        Ok(())
    }
}

impl core::error::Error for Stalled {}

/// Times how long each subscriber has kept the writer waiting (D-31), by the publisher's clock alone (D-8).
///
/// The clock of a subscriber starts when a claim first finds it in the way of a frame, and starts again for the next
/// frame: one that is slow but moves on is never evicted.
#[derive(Debug)]
pub struct StallClock {
    consumer_ack: Duration,
    lease: Duration,
    /// The frame that the clocks are about.
    seq: u64,
    /// Per bit and cause: since when, in which term.
    since: [[Option<(Instant, u64)>; 2]; SUBSCRIBERS],
    running: bool,
}

impl StallClock {
    /// A clock with these deadlines, not running.
    #[must_use]
    pub const fn new(timeouts: &Timeouts) -> Self {
        Self {
            consumer_ack: timeouts.consumer_ack,
            lease: timeouts.lease,
            seq: 0,
            since: [[None; 2]; SUBSCRIBERS],
            running: false,
        }
    }

    /// A claim succeeded: nobody is in the way.
    pub fn clear(&mut self) {
        if self.running {
            self.since = [[None; 2]; SUBSCRIBERS];
            self.running = false;
        }
    }

    /// A claim failed at `now`. Accuses whoever is over its deadline, and returns whether somebody is.
    pub fn stalled<W: Word>(&mut self, now: Instant, stalled: &Stalled, members: &Members<W>) -> bool {
        if self.seq != stalled.seq {
            self.clear();
            self.seq = stalled.seq;
        }
        self.running = true;
        let causes = [
            (Accusation::Ack, stalled.waiting_for_acks, self.consumer_ack),
            (Accusation::Lease, stalled.waiting_for_leases, self.lease),
        ];
        let mut accused = false;
        for (number, of_bit) in (0..).zip(&mut self.since) {
            for (since, (accusation, bits, limit)) in of_bit.iter_mut().zip(causes) {
                let Some(bit) = SubscriberBit::new(number).filter(|bit| bits & bit.mask() != 0) else {
                    *since = None;
                    continue;
                };
                let term = members.term(bit);
                let start = since.filter(|(_, of_term)| *of_term == term).unwrap_or((now, term)).0;
                *since = Some((start, term));
                if start + limit <= now {
                    members.accuse(bit, term, accusation);
                    accused = true;
                }
            }
        }
        accused
    }

    /// When the next subscriber is over its deadline, if a claim has failed and none has succeeded since.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        if !self.running {
            return None;
        }
        let limits = [self.consumer_ack, self.lease];
        self.since
            .iter()
            .flat_map(|of_bit| of_bit.iter().zip(limits))
            .filter_map(|(since, limit)| Some((*since)?.0 + limit))
            .min()
    }
}
