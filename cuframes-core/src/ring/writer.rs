//! [`RingWriter`]: the publisher's end of the ring (§5, D-4 to D-7, X-2, X-3).
//!
//! One writer per region. Claiming and committing touch the region and process-private atomics only: no lock, no
//! allocation, no system call. The numbers I1 to I8 and the SYNC POINTs are explained in [the module](super).

use alloc::sync::Arc;
use core::ops::Range;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::backlog::{Backlog, Stamp};
use super::claim::{Claim, Committed, Ticket};
use super::members::Members;
use super::seq::{Seq, slot_of};
use super::stall::{ClaimAsError, Stalled};
use crate::config::{Policy, RingSize, SubscriberBit};
use crate::shm::layout::{INVALID_SEQ, SLOTS, restore};
use crate::shm::{Region, Word};

/// Writes frames into a ring.
#[derive(Debug)]
pub struct RingWriter<R: Region> {
    region: R,
    members: Arc<Members<R::Word>>,
    ring_size: RingSize,
    policy: Policy,
    /// The newest published number, 0 before the first.
    newest: u64,
    /// What is claimed and not published (I8).
    backlog: Backlog,
    /// What each slot holds: our own copy, because the region's can be written by others (I7).
    held: [u64; SLOTS],
    /// Whether `publisher_parked` is set.
    parked: bool,
    /// Numbers were left out by [`claim_as`](Self::claim_as): the next slot need not have the oldest frame.
    has_gaps: bool,
    /// What is said about the slots once more, where nobody else can write.
    witness: Option<R>,
}

impl<R: Region> RingWriter<R> {
    /// A writer for a fresh region, in which nothing is published yet.
    #[must_use]
    pub const fn new(region: R, members: Arc<Members<R::Word>>, ring_size: RingSize, policy: Policy) -> Self {
        Self {
            region,
            members,
            ring_size,
            policy,
            newest: 0,
            backlog: Backlog::EMPTY,
            held: [INVALID_SEQ; SLOTS],
            parked: false,
            has_gaps: false,
            witness: None,
        }
    }

    /// Says everything about the slots in `witness`, too: a region like a fresh one, which nobody else can write.
    /// The [roster](crate::roster::Roster::with_witness) needs it as well.
    #[must_use]
    pub fn with_witness(mut self, witness: R) -> Self {
        self.witness = Some(witness);
        self
    }

    /// Takes a slot for the next frame and makes it invalid, so that no reader takes what is written there for a frame.
    ///
    /// DROP_OLDEST takes the first slot that nobody holds a lease of, from that of the next number on; each leased slot costs
    /// one number, which readers see as a gap. STRICT_WAIT takes the slot of the next number and no other (D-6).
    ///
    /// # Errors
    /// [`Stalled`] names who must acknowledge or release first; nothing has changed then. After the last number there is, it
    /// is [`Stalled::NO_NUMBER`] for ever.
    #[inline]
    pub fn claim(&mut self) -> Result<Claim<'_, R>, Stalled> {
        self.claim_or(|_, stalled| Err(stalled))
    }

    /// As [`claim`](Self::claim), but calls `wait` whenever nothing can be claimed, and tries again when it returns.
    ///
    /// # Errors
    /// Whatever `wait` fails with.
    #[inline]
    pub fn claim_or<E>(
        &mut self,
        mut wait: impl FnMut(&mut Self, Stalled) -> Result<(), E>,
    ) -> Result<Claim<'_, R>, E> {
        loop {
            match self.take_one_of(self.next_numbers()) {
                Ok(ticket) => return Ok(Claim::new(self, ticket)),
                Err(stalled) => wait(self, stalled)?,
            }
        }
    }

    /// Takes the slot of frame number `seq`, for a frame that had its number before it came here. The numbers between the
    /// newest one and this stay unused: readers see them as a gap, as where a slot was leased.
    ///
    /// It is this slot or none, under DROP_OLDEST, too. So whoever keeps the newest frame until the next one comes is in the
    /// way of a number that lies a multiple of `ring_size` above it, as it is of every one in a ring of one slot.
    ///
    /// A claim that waits is this one again and again, after [`park`](Self::park).
    ///
    /// # Errors
    /// [`ClaimAsError::Passed`] if a number that is no smaller is published or claimed, and [`ClaimAsError::Stalled`] as
    /// [`claim`](Self::claim). Nothing has changed then.
    pub fn claim_as(&mut self, seq: Seq) -> Result<Claim<'_, R>, ClaimAsError> {
        let newest = self.newest_claimed();
        if seq.get() <= newest {
            return Err(ClaimAsError::Passed { newest });
        }
        let ticket = self.take_one_of(only(seq))?;
        self.has_gaps |= seq.get() - newest > 1;
        Ok(Claim::new(self, ticket))
    }

    /// As [`Claim::commit`].
    #[inline]
    pub(super) fn commit_claimed(&mut self, ticket: Ticket, pts_ns: i64, written_bytes: u64) -> Committed {
        let Ticket { seq, slot } = ticket;
        if self.backlog.is_empty() {
            self.publish(seq, slot, Stamp { pts_ns, written_bytes });
            return self.published(seq, 1);
        }
        self.backlog.claim(seq, self.ring_size);
        self.commit(ticket, pts_ns, written_bytes)
    }

    /// As [`Claim::detach`].
    #[inline]
    pub(super) fn detach(&mut self, ticket: &Ticket) {
        self.backlog.claim(ticket.seq, self.ring_size);
    }

    /// Commits a frame that was [detached](Claim::detach), as [`Claim::commit`] does. It is published as soon as every frame
    /// that was claimed before it is committed or cancelled, too: by this call, or by theirs.
    #[expect(clippy::needless_pass_by_value, reason = "a ticket is good once")]
    pub fn commit(&mut self, ticket: Ticket, pts_ns: i64, written_bytes: u64) -> Committed {
        let Ticket { seq, slot } = ticket;
        let stamp = Stamp { pts_ns, written_bytes };
        if self.backlog.take_only(seq, slot) {
            self.publish(seq, slot, stamp);
            return self.published(seq, 1);
        }
        self.backlog.commit(seq, self.ring_size, stamp);
        self.publish_in_order(seq)
    }

    /// Gives up a frame that was detached: its slot stays invalid, and its number unused. Publishes those that waited for it.
    #[expect(clippy::needless_pass_by_value, reason = "a ticket is good once")]
    pub fn cancel(&mut self, ticket: Ticket) -> Committed {
        let Ticket { seq, .. } = ticket;
        self.backlog.remove(seq, self.ring_size);
        self.publish_in_order(seq)
    }

    /// Whether a frame is detached and not published.
    #[must_use]
    pub const fn has_backlog(&self) -> bool {
        !self.backlog.is_empty()
    }

    /// Announces that the writer is about to sleep until somebody acknowledges or releases. Claim once more
    /// after this and before sleeping; a claim that succeeds ends it.
    pub fn park(&mut self) {
        self.parked = true;
        // SYNC POINT: publisher-wake-up. Either the next claim sees the release, or the reader sees this word.
        self.region.header().publisher_parked.store(1, Relaxed);
        self.members.full_fence();
    }

    /// Whether the writer is parked.
    #[must_use]
    pub const fn is_parked(&self) -> bool {
        self.parked
    }

    /// Who is in the way of the next [`claim`](Self::claim), if somebody is; changes nothing.
    #[must_use]
    pub fn stalled(&self) -> Option<Stalled> {
        self.first_free(self.next_numbers(), Self::unleased).err()
    }

    /// Who is in the way of [`claim_as`](Self::claim_as) with this number, if somebody is; changes nothing. Nobody is if the
    /// number is passed.
    #[must_use]
    pub fn stalled_as(&self, seq: Seq) -> Option<Stalled> {
        if seq.get() <= self.newest_claimed() {
            None
        } else {
            self.first_free(only(seq), Self::unleased).err()
        }
    }

    /// The newest published number, 0 before the first.
    #[must_use]
    pub const fn newest(&self) -> u64 {
        self.newest
    }

    /// The newest number that is published or claimed, 0 before the first. A claimed one is not used if it is cancelled.
    #[inline]
    #[must_use]
    pub fn newest_claimed(&self) -> u64 {
        self.backlog.newest().unwrap_or(self.newest)
    }

    /// Who takes part.
    #[must_use]
    pub const fn members(&self) -> &Arc<Members<R::Word>> {
        &self.members
    }

    /// Says once more what is published, where somebody has written over it: whoever does not find a frame because of that
    /// would keep a writer waiting that writes nothing meanwhile.
    fn restore(&self) {
        restore(&self.region.header().global_seq, self.newest);
        for slot in 0..self.ring_size.get().into() {
            if self.held(slot) != INVALID_SEQ {
                restore(&self.region.slot(slot).seq, self.held(slot));
            }
        }
    }

    fn unpark(&mut self) {
        self.parked = false;
        self.region.header().publisher_parked.store(0, Relaxed);
    }

    /// The numbers that the next claim may take; there is none after the last one.
    #[inline]
    fn next_numbers(&self) -> Range<u64> {
        let next = 1 + self.newest_claimed();
        // STRICT_WAIT takes the first one only.
        next..next.saturating_add(self.ring_size.get().into())
    }

    /// Takes the slot of one of `numbers`.
    #[inline]
    fn take_one_of(&mut self, numbers: Range<u64>) -> Result<Ticket, Stalled> {
        match self.first_free(numbers, Self::invalidate) {
            Ok((seq, slot)) => {
                self.set_held(slot, INVALID_SEQ);
                // Said of a writer that is awake, by somebody else, it would cost each release a system call.
                if self.parked || self.region.header().publisher_parked.load(Relaxed) != 0 {
                    self.unpark();
                }
                Ok(Ticket { seq, slot })
            }
            Err(stalled) => {
                self.restore();
                Err(stalled)
            }
        }
    }

    /// The first of `numbers` whose slot is free, and that slot, or who is in the way. Under STRICT_WAIT only the first one counts,
    /// and everybody has to be done with the frame in its slot (I4). `look` says who holds a lease of a slot (I3).
    #[inline]
    fn first_free(
        &self,
        numbers: Range<u64>,
        look: impl Fn(&Self, usize) -> Result<(), u64>,
    ) -> Result<(u64, usize), Stalled> {
        if numbers.is_empty() {
            return Err(Stalled::NO_NUMBER);
        }
        if self.policy == Policy::STRICT_WAIT {
            let (seq, slot) = (numbers.start, slot_of(numbers.start, self.ring_size));
            if self.backlog.holds(slot) {
                return Err(Stalled::UNFINISHED);
            }
            let acks = self.not_done(slot);
            if acks != 0 {
                return Err(self.behind(seq, slot, acks));
            }
            return match look(self, slot) {
                Ok(()) => Ok((seq, slot)),
                Err(leases) => Err(Stalled::on_frame(self.frame_in(slot), 0, leases)),
            };
        }
        let mut stalled = Stalled::on_leases(0);
        for seq in numbers {
            let slot = slot_of(seq, self.ring_size);
            if self.backlog.holds(slot) {
                stalled.unfinished = true;
                continue;
            }
            match look(self, slot) {
                Ok(()) => return Ok((seq, slot)),
                Err(leases) => stalled.waiting_for_leases |= leases,
            }
        }
        Err(stalled)
    }

    /// STRICT_WAIT: who is not done with the frame in `slot` (I4).
    #[inline]
    fn not_done(&self, slot: usize) -> u64 {
        match self.held(slot) {
            INVALID_SEQ => 0,
            seq => self.members.not_done(&self.region, slot, seq),
        }
    }

    /// STRICT_WAIT: some are not done with the frame in `slot`, where `seq` belongs, and it may be leased: their times run at
    /// once.
    #[inline]
    fn behind(&self, seq: u64, slot: usize, acks: u64) -> Stalled {
        let wanted = (self.held(slot), acks);
        // Otherwise the oldest frame is in the slot of the next number.
        let has_gaps = self.has_gaps || seq != 1 + self.newest_claimed();
        let (seq, acks) = if has_gaps { self.furthest_behind(wanted) } else { wanted };
        Stalled::on_frame(seq, acks, self.leases(slot))
    }

    /// Where numbers were left out the frame that is to be overwritten need not be the oldest. Then those who are in its way are
    /// named who are furthest behind, for the oldest frame that they have to read first: who reads each in time is not asked
    /// for several at once.
    #[cold]
    fn furthest_behind(&self, wanted: (u64, u64)) -> (u64, u64) {
        let older = (0..self.ring_size.get().into()).filter(|slot| self.held(*slot) < wanted.0);
        let older = older.map(|slot| (self.held(slot), wanted.1 & self.not_done(slot)));
        older.filter(|(_, acks)| *acks != 0).min().unwrap_or(wanted)
    }

    /// Publishes what is complete and has nothing before it; `seq` is the frame that made it so.
    fn publish_in_order(&mut self, seq: u64) -> Committed {
        let mut frames = 0;
        while let Some((seq, stamp)) = self.backlog.pop(self.ring_size) {
            self.publish(seq, slot_of(seq, self.ring_size), stamp);
            frames += 1;
        }
        self.published(seq, frames)
    }

    /// Writes down that `slot` holds frame `seq`.
    #[inline]
    fn publish(&mut self, seq: u64, slot: usize, stamp: Stamp) {
        for region in self.witness.iter().chain([&self.region]) {
            let words = region.slot(slot);
            words.written_bytes.store(stamp.written_bytes, Relaxed);
            words.ack_bitmap.store(0, Relaxed);
            words.pts_ns.store(stamp.pts_ns.cast_unsigned(), Relaxed);
            // SYNC POINT: slot-validity. The witness is first: who finds the number here finds it there.
            words.seq.store(seq, Release);
        }
        // SYNC POINT: publish
        self.region.header().global_seq.store(seq, Release);
        self.set_held(slot, seq);
        self.newest = seq;
        self.members.published(seq);
    }

    /// Says who has to hear of the frames that were published.
    #[inline]
    fn published(&self, seq: u64, frames: u32) -> Committed {
        let mut wake = 0;
        if frames != 0 {
            // SYNC POINT: wake-up, join. Whoever parks from here on sees the number; whoever parked before is seen.
            self.members.full_fence();
            wake = self.sleepers();
        }
        // Readers have written what the next claim looks at. It comes while nobody waits for it.
        self.region.prefetch_lease(slot_of(seq + 1, self.ring_size));
        Committed { seq: Seq::new(seq).unwrap_or(Seq::FIRST), frames, wake }
    }

    /// The frame in `slot`, 0 for none.
    const fn frame_in(&self, slot: usize) -> u64 {
        match self.held(slot) {
            INVALID_SEQ => 0,
            seq => seq,
        }
    }

    /// The live subscribers that hold a lease of `slot` at this moment.
    fn leases(&self, slot: usize) -> u64 {
        self.region.slot(slot).lease_bitmap.load(Acquire) & self.members.leasing()
    }

    /// Whether nobody holds a lease of `slot` at this moment; says who does.
    fn unleased(&self, slot: usize) -> Result<(), u64> {
        match self.leases(slot) {
            0 => Ok(()),
            leases => Err(leases),
        }
    }

    /// Makes `slot` invalid unless a live subscriber holds a lease of it; says who does.
    #[inline]
    fn invalidate(&self, slot: usize) -> Result<(), u64> {
        let words = self.region.slot(slot);
        // A cheap look first: backing off below would make a held frame look invalid for a moment.
        let leases = words.lease_bitmap.load(Relaxed) & self.members.leasing();
        if leases != 0 {
            return Err(leases);
        }
        // SYNC POINT: slot-validity, lease. Whoever takes a lease from here on finds the slot invalid; whoever took it
        // before shows in the bitmap below. The membership is read after the bitmap: a lease of somebody who has just
        // joined counts.
        words.seq.store(INVALID_SEQ, Relaxed);
        self.members.full_fence();
        // SYNC POINT: release
        let leases = words.lease_bitmap.load(Acquire) & self.members.leasing();
        if leases != 0 {
            words.seq.store(self.held(slot), Release);
            return Err(leases);
        }
        if let Some(witness) = &self.witness {
            witness.slot(slot).seq.store(INVALID_SEQ, Relaxed);
        }
        // SYNC POINT: slot-validity. Whoever reads what is written from here on also sees that its lease does not count,
        // and what the witness says.
        R::Word::fence(Release);
        Ok(())
    }

    /// The active subscribers that must be woken for a frame just published: those that don't say when they sleep, by
    /// their words (`wake_mode` 0) or for want of WAKE_HINT, and those that do. Costs two loads per active
    /// subscriber.
    #[inline]
    fn sleepers(&self) -> u64 {
        let active = self.members.active();
        // Who joins a bit after the look at `active` is promised no frame that was published before it (D-17).
        let silent = self.members.silent(active);
        let mut sleepers = silent;
        for bit in SubscriberBit::in_bitmap(active & !silent) {
            let words = self.region.subscriber(bit.get().into());
            if words.parked.load(Relaxed) == 1 || words.wake_mode.load(Relaxed) == 0 {
                sleepers |= bit.mask();
            }
        }
        sleepers
    }

    #[expect(
        clippy::indexing_slicing,
        reason = "slot_of is below ring_size, which is at most the array's length"
    )]
    const fn held(&self, slot: usize) -> u64 {
        self.held[slot]
    }

    #[expect(
        clippy::indexing_slicing,
        reason = "slot_of is below ring_size, which is at most the array's length"
    )]
    const fn set_held(&mut self, slot: usize, seq: u64) {
        self.held[slot] = seq;
    }
}

/// The one number that a claim may take. It is at most `u64::MAX - 1`.
const fn only(seq: Seq) -> Range<u64> {
    seq.get()..seq.get() + 1
}
