//! A writer that can't go on: [`Stalled`] says who it waits for, [`StallClock`] how long each of them may take; and
//! [`ClaimAsError`], for a number that can't be had.

use core::fmt;
use core::time::Duration;

use super::members::{Accusation, Members};
use super::seq::Seq;
use crate::config::{SubscriberBit, Timeouts};
use crate::shm::Word;
use crate::shm::layout::{INVALID_SEQ, SUBSCRIBERS};
use crate::time::Instant;

/// Why `claim` found no slot, and who is in the way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stalled {
    /// Bit per subscriber that has not acknowledged the frame (STRICT_WAIT). Where numbers were left out, others may be asked
    /// for later frames, when these have read the earlier ones.
    pub waiting_for_acks: u64,
    /// Bit per subscriber that holds a lease: of the one slot under STRICT_WAIT or for a given number, otherwise of any slot.
    pub waiting_for_leases: u64,
    /// Frames that were claimed and are not published yet are in the way: nobody but ourselves can end that.
    pub unfinished: bool,
    /// The frame that is not acknowledged or not given back (STRICT_WAIT), or 0 where slots are leased (DROP_OLDEST).
    pub(super) seq: u64,
}

impl Stalled {
    /// A DROP_OLDEST writer finds every slot that it may take leased, by these.
    pub(super) const fn on_leases(leases: u64) -> Self {
        Self { waiting_for_acks: 0, waiting_for_leases: leases, unfinished: false, seq: 0 }
    }

    /// A STRICT_WAIT writer waits for these to be done with frame `seq`.
    pub(super) const fn on_frame(seq: u64, acks: u64, leases: u64) -> Self {
        Self { waiting_for_acks: acks, waiting_for_leases: leases, unfinished: false, seq }
    }

    /// A STRICT_WAIT writer waits for a frame of its own.
    pub(super) const UNFINISHED: Self = Self { unfinished: true, ..Self::on_leases(0) };

    /// Nobody is in the way, but this process has no ring to claim in: it was forked from the one that has (P-20).
    pub const FORKED: Self = Self::on_leases(0);

    /// Nobody is in the way, but the greatest number is used, and there is none after it. It does not end: the stream does.
    pub const NO_NUMBER: Self = Self { seq: INVALID_SEQ, ..Self::on_leases(0) };

    /// Bit per subscriber that is in the way.
    #[must_use]
    pub const fn bits(&self) -> u64 {
        self.waiting_for_acks | self.waiting_for_leases
    }

    /// The frame that those in the way are to acknowledge or give back (STRICT_WAIT): the oldest, if they have several to read
    /// first. `None` where any of several frames would do.
    #[must_use]
    pub const fn frame(&self) -> Option<Seq> {
        Seq::new(self.seq)
    }
}

impl fmt::Display for Stalled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::FORKED {
            return f.write_str("the ring belongs to the process that this one was forked from");
        }
        if *self == Self::NO_NUMBER {
            return f.write_str("the greatest number is used: publish a new stream");
        }
        let mut separator = "the ring is full: ";
        if self.unfinished {
            write!(f, "{separator}frames that were claimed are not complete (does the device hang?)")?;
            separator = ", ";
        }
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

/// Why a given number can't be claimed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ClaimAsError {
    /// Its slot can't be taken now. It can be later.
    Stalled(Stalled),
    /// Numbers only grow, and it is not above the newest one.
    Passed {
        /// The newest number that is published or claimed.
        newest: u64,
    },
}

impl From<Stalled> for ClaimAsError {
    fn from(stalled: Stalled) -> Self {
        Self::Stalled(stalled)
    }
}

impl fmt::Display for ClaimAsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stalled(stalled) => stalled.fmt(f),
            Self::Passed { newest } => write!(f, "the number is not above the newest one, {newest}"),
        }
    }
}

impl core::error::Error for ClaimAsError {}

/// Times how long each subscriber has kept the writer waiting (D-31), by the publisher's clock alone (D-8).
///
/// The clock of a subscriber starts when a claim first finds it in the way of a frame, and starts again for the next
/// frame: one that is slow but moves on is never evicted. For one frame it does not start twice, however often somebody
/// lets it look as if the subscriber was out of the way, and whatever numbers are claimed in vain meanwhile.
///
/// One frame waits for twice the longer deadline at most: time for somebody who acknowledges late and then holds a lease.
/// From then on whoever is in the way is accused at once, so that a region in which others are named one after the other
/// does not keep the writer for the sum of all their deadlines.
#[derive(Debug)]
pub struct StallClock {
    consumer_ack: Duration,
    lease: Duration,
    /// The frame that the clocks are about: until a claim succeeds it only grows, because frames that were read stay read.
    seq: u64,
    /// When it was first waited for, if it is.
    start: Option<Instant>,
    /// Per bit and cause: since when, in which term.
    since: [[Option<(Instant, u64)>; 2]; SUBSCRIBERS],
    /// Per cause, who was in the way at the last look.
    waiting: [u64; 2],
}

impl StallClock {
    /// A clock with these deadlines, not running.
    #[must_use]
    pub const fn new(timeouts: &Timeouts) -> Self {
        Self {
            consumer_ack: timeouts.consumer_ack,
            lease: timeouts.lease,
            seq: 0,
            start: None,
            since: [[None; 2]; SUBSCRIBERS],
            waiting: [0; 2],
        }
    }

    /// A claim succeeded: nobody is in the way.
    pub fn clear(&mut self) {
        if self.start.take().is_some() {
            self.since = [[None; 2]; SUBSCRIBERS];
            self.waiting = [0; 2];
        }
    }

    /// A claim failed at `now`. Accuses whoever is over its deadline, and returns whether somebody is.
    pub fn stalled<W: Word>(&mut self, now: Instant, stalled: &Stalled, members: &Members<W>) -> bool {
        if self.start.is_none() || stalled.seq > self.seq {
            self.clear();
            self.seq = stalled.seq;
        }
        self.waiting = [stalled.waiting_for_acks, stalled.waiting_for_leases];
        let start = *self.start.get_or_insert(now);
        for bit in SubscriberBit::in_bitmap(stalled.bits()) {
            let term = members.term(bit);
            let of_bit = self.since.get_mut(usize::from(bit.get())).into_iter().flatten();
            for (since, _) in of_bit.zip(self.waiting).filter(|(_, bits)| bits & bit.mask() != 0) {
                *since = since.filter(|(_, of_term)| *of_term == term).or(Some((now, term)));
            }
        }
        // Who has used up its own time goes first: that may be enough.
        let anybody = self.in_the_way().all(|(.., due)| due > now) && start + self.patience() <= now;
        let mut accused = false;
        for (bit, term, accusation, due) in self.in_the_way() {
            if anybody || due <= now {
                members.accuse(bit, term, accusation);
                accused = true;
            }
        }
        accused
    }

    /// When the next subscriber is over its deadline, if a claim has failed and none has succeeded since.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        let end = self.start? + self.patience();
        self.in_the_way().map(|(.., due)| due.min(end)).min()
    }

    /// Who was in the way at the last look: its bit and term, why, and when its own time is over.
    fn in_the_way(&self) -> impl Iterator<Item = (SubscriberBit, u64, Accusation, Instant)> {
        let causes = [(Accusation::Ack, self.consumer_ack), (Accusation::Lease, self.lease)];
        let [acks, leases] = self.waiting;
        SubscriberBit::in_bitmap(acks | leases)
            .filter_map(|bit| Some((bit, self.since.get(usize::from(bit.get()))?)))
            .flat_map(move |(bit, of_bit)| {
                of_bit.iter().zip(self.waiting).zip(causes).filter_map(
                    move |((since, bits), (accusation, limit))| {
                        let (since, term) = since.filter(|_| bits & bit.mask() != 0)?;
                        Some((bit, term, accusation, since + limit))
                    },
                )
            })
    }

    /// For how long claims have failed, without one that succeeded.
    #[must_use]
    pub fn waited(&self, now: Instant) -> Duration {
        self.start.map_or(Duration::ZERO, |start| now.saturating_since(start))
    }

    /// For how long one frame may wait, whoever is in its way.
    #[must_use]
    pub fn patience(&self) -> Duration {
        self.consumer_ack.max(self.lease).saturating_mul(2)
    }
}
