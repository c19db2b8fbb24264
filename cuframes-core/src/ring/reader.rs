//! [`RingReader`]: a subscriber's end of the ring (§5.3, D-4, D-7, D-17, X-2, X-3, X-6).

use alloc::sync::Arc;
use core::iter;
use core::sync::atomic::Ordering::{Acquire, Relaxed};

use super::frame::Frame;
use super::seat::{Outside, Seat};
use super::seq::{Seq, slot_of};
use crate::config::SubscriberMode;
use crate::shm::layout::INVALID_SEQ;
use crate::shm::{Region, Word};

/// Reads frames out of a ring.
#[derive(Debug)]
pub struct RingReader<R: Region, O: Outside> {
    seat: Arc<Seat<R, O>>,
    mode: SubscriberMode,
    /// The number of the last frame that was handed out or given up.
    cursor: u64,
    /// `global_seq` when `next` last found nothing.
    looked: u64,
    /// How often `next` was called, for a reader that never parks.
    calls: u32,
    /// No frame was handed out yet: what was published before we joined is not lost.
    joining: bool,
}

impl<R: Region, O: Outside> RingReader<R, O> {
    /// A reader whose first frame is the current one (D-17). An unknown mode reads like NEWEST_ONLY.
    #[must_use]
    pub fn new(seat: Arc<Seat<R, O>>, mode: SubscriberMode) -> Self {
        let cursor = seat.initial_seq.saturating_sub(1);
        Self { seat, mode, cursor, looked: 0, calls: 0, joining: true }
    }

    /// The next frame: the newest one, or the next in order. `None` if there is nothing new yet.
    ///
    /// [`Frame::lost`] counts the numbers between the frame before and this one.
    #[inline]
    #[expect(
        clippy::should_implement_trait,
        reason = "`None` means not yet, which an iterator could not say"
    )]
    pub fn next(&mut self) -> Option<Frame<R, O>> {
        self.calls = self.calls.wrapping_add(1);
        if self.calls.is_multiple_of(CALLS_BEFORE_TIDYING) {
            self.seat.tidy();
            // Whoever looks is awake, whatever somebody else wrote.
            self.unpark();
        }
        // Each further attempt needs a frame overwritten in the moment between two loads.
        for _ in 0..ATTEMPTS {
            // SYNC POINT: publish
            let newest = self.seat.region.header().global_seq.load(Acquire);
            self.looked = newest;
            // A number that names no frame can only have been written by somebody else (D-23).
            if newest <= self.cursor || newest == INVALID_SEQ {
                return None;
            }
            let wanted = if self.mode == SubscriberMode::STRICT_ORDER { self.cursor + 1 } else { newest };
            if let Some(frame) = self.take(wanted, slot_of(wanted, self.seat.ring_size)) {
                return Some(self.hand_out(frame));
            }
            // Overwritten, skipped by the writer, or numbered in another way (D-7): look into every slot.
            if let Some((seq, slot)) = self.best_after_cursor(newest)
                && let Some(frame) = self.take(seq, slot)
            {
                return Some(self.hand_out(frame));
            }
        }
        None
    }

    /// Frame `seq`, if it is there: published, and not overwritten yet. What [`next`](Self::next) hands out does not depend on
    /// it, but for a frame that is held already: that can't be had once more, neither here nor there, where it is skipped.
    ///
    /// Releasing it acknowledges nothing: of a subscriber that never calls `next` a STRICT_WAIT publisher must not require
    /// anything (NO_ACK, X-7). [`Frame::lost`] is 0. A frame that another subscriber holds under a lease is there until that
    /// one releases it, or is evicted; under LEASE it is there from then on for as long as it is held here.
    pub fn get(&mut self, seq: Seq) -> Option<Frame<R, O>> {
        self.seat.tidy();
        let (seq, ring_size) = (seq.get(), self.seat.ring_size);
        let first = slot_of(seq, ring_size);
        // Numbered in another way (D-7).
        let others = (0..ring_size.get().into())
            .filter(|slot| *slot != first && self.seat.region.slot(*slot).seq.load(Acquire) == seq);
        let mut frame = iter::once(first).chain(others).find_map(|slot| self.take(seq, slot))?;
        frame.set_by_number();
        Some(frame)
    }

    /// Announces that this subscriber is about to sleep on its eventfd. `false`: something was published since
    /// [`next`](Self::next) found nothing, so look again instead. Call [`unpark`](Self::unpark) afterwards.
    #[must_use]
    pub fn park(&self) -> bool {
        self.seat.tidy();
        let header = self.seat.region.header();
        // SYNC POINT: wake-up
        self.words().parked.store(1, Relaxed);
        self.seat.full_fence();
        if header.global_seq.load(Acquire) == self.looked {
            return true;
        }
        self.unpark();
        false
    }

    /// This subscriber is awake.
    pub fn unpark(&self) {
        self.words().parked.store(0, Relaxed);
    }

    /// Whether the publisher's region says that it is shutting down (§2 `shutdown_flag`). Then everything it has published
    /// is there for [`next`](Self::next) (D-30).
    #[must_use]
    pub fn is_shutting_down(&self) -> bool {
        // SYNC POINT: shutdown
        self.seat.region.header().shutdown_flag.load(Acquire) != 0
    }

    /// The seat.
    #[must_use]
    pub const fn seat(&self) -> &Arc<Seat<R, O>> {
        &self.seat
    }

    fn words(&self) -> &crate::shm::SubscriberWords<R::Word> {
        self.seat.region.subscriber(self.seat.bit.get().into())
    }

    /// Takes frame `seq` if `slot` still has it.
    fn take(&self, seq: u64, slot: usize) -> Option<Frame<R, O>> {
        let seat = &self.seat;
        // All that another processor has comes at once. Otherwise what is needed after the lease would come after it.
        seat.region.prefetch_lease(slot);
        seat.outside.prefetch(slot);
        let words = seat.region.slot(slot);
        let found = words.seq.load(Acquire);
        if seat.leases() {
            if found != seq && found != INVALID_SEQ {
                return None;
            }
            // SYNC POINT: lease
            if !seat.set_lease(slot) {
                return None;
            }
            self.seat.full_fence();
            if self.look_again(slot) != seq {
                return self.give_up(slot);
            }
        } else if found != seq {
            return None;
        }
        let (pts_ns, written, kept) = match seat.outside.testimony(slot) {
            // A number that the publisher did not write names no frame (D-23).
            Some(said) if said.seq != seq => return self.give_up(slot),
            Some(_) => {
                // SYNC POINT: slot-validity. What is read from here on is at least as new as the number was.
                R::Word::fence(Acquire);
                let said = seat.outside.testimony(slot)?;
                (said.pts_ns, said.written_bytes, false)
            }
            // A lease keeps these, too.
            None => (words.pts_ns.load(Relaxed), words.written_bytes.load(Relaxed), seat.leases()),
        };
        if kept || seat.is_intact(slot, seq) {
            return Some(Frame::new(Arc::clone(seat), seq, slot, pts_ns.cast_signed(), written));
        }
        self.give_up(slot)
    }

    /// Gives back what [`take`](Self::take) took.
    fn give_up(&self, slot: usize) -> Option<Frame<R, O>> {
        if self.seat.leases() {
            self.seat.clear_lease(slot);
            self.seat.wake_publisher();
        }
        None
    }

    /// The slot's number; while it is invalid the writer may be putting the number back because of our lease.
    fn look_again(&self, slot: usize) -> u64 {
        let words = self.seat.region.slot(slot);
        for _ in 0..R::Word::LOOKS {
            // SYNC POINT: slot-validity
            let found = words.seq.load(Acquire);
            if found != INVALID_SEQ {
                return found;
            }
            R::Word::pause();
        }
        INVALID_SEQ
    }

    /// The frame after the cursor that suits the mode best, of those that are there, and its slot.
    fn best_after_cursor(&self, newest: u64) -> Option<(u64, usize)> {
        let seat = &self.seat;
        let found = (0..seat.ring_size.get().into())
            .map(|slot| (seat.region.slot(slot).seq.load(Acquire), slot))
            .filter(|(seq, _)| (self.cursor + 1..=newest).contains(seq))
            // A frame that can't be taken must not hide the others: one beside another that we hold (its lease was given
            // back in our name), or one that is only a number that somebody else wrote.
            .filter(|(_, slot)| !seat.holds(*slot))
            .filter(|(seq, slot)| seat.outside.testimony(*slot).is_none_or(|said| said.seq == *seq));
        if self.mode == SubscriberMode::STRICT_ORDER { found.min() } else { found.max() }
    }

    fn hand_out(&mut self, mut frame: Frame<R, O>) -> Frame<R, O> {
        let first_missed = self.cursor + 1;
        let seq = frame.seq().get();
        if first_missed < seq {
            self.skip(first_missed, seq);
        }
        if !self.joining {
            frame.set_lost(seq - first_missed);
        }
        self.joining = false;
        self.cursor = seq;
        frame
    }

    /// Whether no frame is held but the one that is being handed out: each has its share of the seat.
    fn holds_only_one(&self) -> bool {
        let holds_only_one = Arc::strong_count(&self.seat) <= 2;
        // What was read of a frame on another thread was read before we say that we are done with it.
        R::Word::fence(Acquire);
        holds_only_one
    }

    /// We are done with the frames from `first_missed` up to `seq`, which we take instead of them (§5.4): the writer must not
    /// wait for them while we keep that one until the next.
    fn skip(&self, first_missed: u64, seq: u64) {
        if self.seat.plain {
            // Such a publisher may wait for every bit (D-5).
            for slot in 0..self.seat.ring_size.get().into() {
                let skipped = self.seat.region.slot(slot).seq.load(Acquire);
                if (first_missed..seq).contains(&skipped) {
                    self.seat.set_ack_bit(slot, skipped);
                }
            }
        } else if self.seat.leases() || self.holds_only_one() {
            self.seat.note_done(seq - 1);
            if self.seat.is_held() {
                self.seat.say_done_now();
                self.seat.wake_publisher();
            }
        }
    }
}

/// How often `next` starts over before it lets its caller sleep.
const ATTEMPTS: usize = 4;
/// How often `next` is called by a reader that never parks before it looks after what others wrote in its name.
const CALLS_BEFORE_TIDYING: u32 = 1024;
