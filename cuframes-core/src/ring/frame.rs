//! [`Frame`]: a frame that a subscriber holds.

use alloc::sync::Arc;
use core::fmt;

use super::seat::{Outside, Seat};
use super::seq::Seq;
use crate::shm::Region;

/// A published frame, held until it is released or dropped; it may be sent to another thread, and several may be held.
///
/// Under LEASE the frame is not overwritten while it is held (I3). Without LEASE it may be: check
/// [`is_intact`](Self::is_intact) *after* the bytes were copied, hold one frame at a time, and release them in order.
#[derive(Debug)]
pub struct Frame<R: Region, O: Outside> {
    seat: Arc<Seat<R, O>>,
    seq: u64,
    slot: usize,
    pts_ns: i64,
    written_bytes: u64,
    lost: u64,
    /// It was taken by its number: whether it will be needed again is not ours to say.
    by_number: bool,
    released: bool,
}

impl<R: Region, O: Outside> Frame<R, O> {
    pub(super) const fn new(
        seat: Arc<Seat<R, O>>,
        seq: u64,
        slot: usize,
        pts_ns: i64,
        written_bytes: u64,
    ) -> Self {
        Self { seat, seq, slot, pts_ns, written_bytes, lost: 0, by_number: false, released: false }
    }

    pub(super) const fn set_lost(&mut self, lost: u64) {
        self.lost = lost;
    }

    pub(super) const fn set_by_number(&mut self) {
        self.by_number = true;
    }

    /// Its number.
    #[must_use]
    pub fn seq(&self) -> Seq {
        Seq::new(self.seq).unwrap_or(Seq::FIRST)
    }

    /// The slot that holds it, 0 to `ring_size - 1`.
    #[must_use]
    pub const fn slot(&self) -> usize {
        self.slot
    }

    /// The publisher's time stamp in nanoseconds.
    #[must_use]
    pub const fn pts_ns(&self) -> i64 {
        self.pts_ns
    }

    /// Valid bytes of the frame as the publisher wrote it (D-35): check it against the memory before use.
    #[must_use]
    pub const fn written_bytes(&self) -> u64 {
        self.written_bytes
    }

    /// Numbers between the frame handed out before and this one: frames that this subscriber did not get.
    #[must_use]
    pub const fn lost(&self) -> u64 {
        self.lost
    }

    /// The seat that holds the frame.
    #[must_use]
    pub const fn seat(&self) -> &Arc<Seat<R, O>> {
        &self.seat
    }

    /// Whether everything read from the frame up to now was the frame's (D-4).
    #[must_use]
    pub fn is_intact(&self) -> bool {
        self.seat.is_intact(self.slot, self.seq)
    }

    /// What [`release`](Self::release) would say now: whether the frame is still ours, and everything read from it up to now
    /// was the frame's. It stays held.
    ///
    /// # Errors
    /// [`FrameLost`] if what was read may not have been this frame.
    pub fn check(&self) -> Result<(), FrameLost> {
        if !self.seat.is_held() {
            Err(FrameLost::Evicted)
        } else if self.is_intact() {
            Ok(())
        } else {
            Err(FrameLost::Overwritten)
        }
    }

    /// Acknowledges the frame and gives its lease back. Call it when all work that reads the frame has *finished*.
    ///
    /// One that was [taken by its number](super::RingReader::get) is not acknowledged.
    ///
    /// # Errors
    /// [`FrameLost`] if what was read may not have been this frame.
    pub fn release(mut self) -> Result<(), FrameLost> {
        self.give_back()
    }

    /// As [`release`](Self::release), but does not drop the seat, with what the driver has in it: if this was the last to
    /// hold it, it is returned. For threads on which it must not be dropped.
    pub fn release_apart(mut self) -> (Result<(), FrameLost>, Option<Seat<R, O>>) {
        let result = self.give_back();
        let seat = Arc::clone(&self.seat);
        drop(self);
        (result, Arc::into_inner(seat))
    }

    fn give_back(&mut self) -> Result<(), FrameLost> {
        if self.released {
            return Ok(());
        }
        self.released = true;
        let result = self.check();
        if result == Err(FrameLost::Evicted) {
            // Others may have written that: if the bit is ours after all, the reader says the rest.
            if !self.by_number {
                self.seat.note_done(self.seq);
            }
            if self.seat.leases() {
                self.seat.forget_lease(self.slot);
            }
        } else {
            if !self.by_number {
                self.seat.ack(self.slot, self.seq);
            }
            if self.seat.leases() {
                self.seat.clear_lease(self.slot);
            }
            self.seat.wake_publisher();
        }
        result.inspect_err(|lost| self.seat.outside().frame_lost(*lost))
    }
}

impl<R: Region, O: Outside> Drop for Frame<R, O> {
    fn drop(&mut self) {
        // Whoever wants to know calls `release`.
        let _ = self.give_back();
    }
}

/// What was read may not have been the frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum FrameLost {
    /// The publisher overwrote the slot (OVERWRITTEN).
    Overwritten,
    /// The publisher took the lease back, or is gone (EVICTED).
    Evicted,
}

impl fmt::Display for FrameLost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Overwritten => "the frame was overwritten while it was in use: read faster or use LEASE",
            Self::Evicted => {
                "the frame's lease ended before it was released: the publisher evicted us or is gone"
            }
        })
    }
}

impl core::error::Error for FrameLost {}
