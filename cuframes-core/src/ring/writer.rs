//! [`RingWriter`]: the publisher's end of the ring (§5, D-4 to D-7, X-2, X-3).
//!
//! One writer per region. Claiming and committing touch the region and process-private atomics only: no lock, no
//! allocation, no system call. The numbers I1 to I7 and the SYNC POINTs are explained in [the module](super).

use alloc::sync::Arc;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::backlog::{Backlog, Stamp};
use super::members::Members;
use super::seq::{Seq, slot_of};
use super::stall::Stalled;
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
    /// DROP_OLDEST overwrites the oldest frame that nobody holds a lease of; each leased slot costs one number, which
    /// readers see as a gap. STRICT_WAIT takes the oldest frame's slot and no other (D-6).
    ///
    /// # Errors
    /// [`Stalled`] names who must acknowledge or release first; nothing has changed then.
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
            match self.take() {
                Ok((seq, slot)) => {
                    // Said of a writer that is awake, by somebody else, it would cost each release a system call.
                    if self.parked || self.region.header().publisher_parked.load(Relaxed) != 0 {
                        self.unpark();
                    }
                    return Ok(Claim { writer: self, ticket: Ticket { seq, slot } });
                }
                Err(stalled) => {
                    self.restore();
                    wait(self, stalled)?;
                }
            }
        }
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

    /// Who is in the way of the next claim, if somebody is; changes nothing.
    #[must_use]
    pub fn stalled(&self) -> Option<Stalled> {
        let leases = |slot| self.leases(slot);
        let next = self.next();
        if self.policy == Policy::STRICT_WAIT {
            let slot = slot_of(next, self.ring_size);
            if self.backlog.holds(slot) {
                return Some(Stalled::UNFINISHED);
            }
            let seq = self.held(slot);
            let waiting_for_acks =
                if seq == INVALID_SEQ { 0 } else { self.members.not_done(&self.region, slot, seq) };
            let stalled = Stalled::on_frame(seq, waiting_for_acks, leases(slot));
            return (stalled.bits() != 0).then_some(stalled);
        }
        let mut stalled = Stalled::on_leases(0);
        for slot in 0..self.ring_size.get().into() {
            if self.backlog.holds(slot) {
                stalled.unfinished = true;
                continue;
            }
            match leases(slot) {
                0 => return None,
                holders => stalled.waiting_for_leases |= holders,
            }
        }
        Some(stalled)
    }

    /// The newest published number, 0 before the first.
    #[must_use]
    pub const fn newest(&self) -> u64 {
        self.newest
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

    /// The lowest number that is neither published nor claimed, nor below one that is.
    #[inline]
    fn next(&self) -> u64 {
        1 + self.backlog.newest().unwrap_or(self.newest)
    }

    /// The number and the slot of the next frame; the slot is invalid then.
    #[inline]
    fn take(&mut self) -> Result<(u64, usize), Stalled> {
        let next = self.next();
        if self.policy == Policy::STRICT_WAIT {
            let slot = slot_of(next, self.ring_size);
            return self.take_when_done(slot).map(|()| (next, slot));
        }
        let mut stalled = Stalled::on_leases(0);
        for seq in (next..).take(self.ring_size.get().into()) {
            let slot = slot_of(seq, self.ring_size);
            if self.backlog.holds(slot) {
                stalled.unfinished = true;
                continue;
            }
            match self.invalidate(slot) {
                Ok(()) => return Ok((seq, slot)),
                Err(leases) => stalled.waiting_for_leases |= leases,
            }
        }
        Err(stalled)
    }

    /// STRICT_WAIT: takes `slot` once everybody is done with its frame (I4) and nobody holds a lease of it (I3).
    fn take_when_done(&mut self, slot: usize) -> Result<(), Stalled> {
        if self.backlog.holds(slot) {
            return Err(Stalled::UNFINISHED);
        }
        let seq = self.held(slot);
        if seq != INVALID_SEQ {
            let acks = self.members.not_done(&self.region, slot, seq);
            if acks != 0 {
                // Whose time runs, too, while others are waited for.
                return Err(Stalled::on_frame(seq, acks, self.leases(slot)));
            }
        }
        self.invalidate(slot).map_err(|leases| Stalled::on_frame(seq, 0, leases))
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

    /// The live subscribers that hold a lease of `slot` at this moment.
    fn leases(&self, slot: usize) -> u64 {
        self.region.slot(slot).lease_bitmap.load(Acquire) & self.members.leasing()
    }

    /// Makes `slot` invalid unless a live subscriber holds a lease of it; says who does.
    #[inline]
    fn invalidate(&mut self, slot: usize) -> Result<(), u64> {
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
        self.set_held(slot, INVALID_SEQ);
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

/// A slot that is being written. Dropping it leaves the slot invalid and the number unused.
#[derive(Debug)]
#[must_use = "a claim that is not committed publishes nothing"]
pub struct Claim<'a, R: Region> {
    writer: &'a mut RingWriter<R>,
    ticket: Ticket,
}

impl<R: Region> Claim<'_, R> {
    /// The number the frame will have.
    #[must_use]
    pub fn seq(&self) -> Seq {
        self.ticket.seq()
    }

    /// The slot to write, 0 to `ring_size - 1`.
    #[must_use]
    pub const fn slot(&self) -> usize {
        self.ticket.slot()
    }

    /// Publishes the frame: `pts_ns` in nanoseconds, `written_bytes` of it valid (D-35). If frames that were claimed before
    /// it are [detached](Self::detach) and not committed yet, it is published after them.
    #[inline]
    pub fn commit(self, pts_ns: i64, written_bytes: u64) -> Committed {
        let Self { writer, ticket } = self;
        let Ticket { seq, slot } = ticket;
        if writer.backlog.is_empty() {
            writer.publish(seq, slot, Stamp { pts_ns, written_bytes });
            return writer.published(seq, 1);
        }
        writer.backlog.claim(seq, writer.ring_size);
        writer.commit(ticket, pts_ns, written_bytes)
    }

    /// Keeps the slot, and lets go of the writer: for a frame that is complete later, as one is that a GPU writes. Several
    /// may be on their way; they are published in the order of their numbers, whichever is complete first.
    #[inline]
    pub fn detach(self) -> Ticket {
        let Self { writer, ticket } = self;
        writer.backlog.claim(ticket.seq, writer.ring_size);
        ticket
    }
}

/// A slot that is being written while its writer does something else. It goes to [`RingWriter::commit`] or
/// [`RingWriter::cancel`] of that writer; if it is lost, so is its slot, and nothing claimed after it is ever published.
#[derive(PartialEq, Eq, Debug)]
#[must_use = "a ticket that is neither committed nor cancelled blocks the ring"]
pub struct Ticket {
    seq: u64,
    slot: usize,
}

impl Ticket {
    /// The number the frame will have.
    #[must_use]
    pub fn seq(&self) -> Seq {
        Seq::new(self.seq).unwrap_or(Seq::FIRST)
    }

    /// The slot to write, 0 to `ring_size - 1`.
    #[must_use]
    pub const fn slot(&self) -> usize {
        self.slot
    }
}

/// A frame that was committed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "the sleepers have to be woken"]
pub struct Committed {
    /// Its number.
    pub seq: Seq,
    /// How many frames were published: 0 while one before it is not complete, and more than 1 when it was waited for.
    pub frames: u32,
    /// Bit per subscriber whose eventfd has to be written.
    pub wake: u64,
}
