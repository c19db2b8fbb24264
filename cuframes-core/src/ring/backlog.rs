//! [`Backlog`]: frames that were claimed and are not published yet, in the order of their numbers.

use super::seq::slot_of;
use crate::config::RingSize;
use crate::shm::layout::{INVALID_SEQ, SLOTS};

/// What a writer has claimed for work that is done later, such as a GPU's. Each frame has a slot of its own.
#[derive(Clone, Copy, Debug)]
pub(super) struct Backlog {
    /// Per slot: the number that it was claimed for, or `INVALID_SEQ`.
    claimed: [u64; SLOTS],
    /// Per slot: what the frame was committed with, once it was.
    committed: [Option<Stamp>; SLOTS],
    len: usize,
}

/// What a frame is committed with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stamp {
    pub(super) pts_ns: i64,
    pub(super) written_bytes: u64,
}

impl Backlog {
    pub(super) const EMPTY: Self = Self { claimed: [INVALID_SEQ; SLOTS], committed: [None; SLOTS], len: 0 };

    #[inline]
    pub(super) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether `slot` is claimed.
    #[inline]
    pub(super) fn holds(&self, slot: usize) -> bool {
        !self.is_empty() && self.claimed.get(slot).is_some_and(|claimed| *claimed != INVALID_SEQ)
    }

    /// Adds a frame.
    pub(super) fn claim(&mut self, seq: u64, ring_size: RingSize) {
        if let Some(claimed) = self.claimed.get_mut(slot_of(seq, ring_size)) {
            *claimed = seq;
            self.len += 1;
        }
    }

    /// Takes frame `seq` out of `slot` if it is the only one: nothing is before it, and nothing waits for it.
    #[inline]
    pub(super) fn take_only(&mut self, seq: u64, slot: usize) -> bool {
        match self.claimed.get_mut(slot) {
            Some(claimed) if *claimed == seq && self.len == 1 => {
                (*claimed, self.len) = (INVALID_SEQ, 0);
                true
            }
            _ => false,
        }
    }

    /// Notes that a frame is complete.
    pub(super) fn commit(&mut self, seq: u64, ring_size: RingSize, stamp: Stamp) {
        if let Some(slot) = self.slot_of(seq, ring_size)
            && let Some(committed) = self.committed.get_mut(slot)
        {
            *committed = Some(stamp);
        }
    }

    /// Takes a frame out.
    pub(super) fn remove(&mut self, seq: u64, ring_size: RingSize) {
        if let Some(slot) = self.slot_of(seq, ring_size)
            && let (Some(claimed), Some(committed)) =
                (self.claimed.get_mut(slot), self.committed.get_mut(slot))
        {
            (*claimed, *committed) = (INVALID_SEQ, None);
            self.len -= 1;
        }
    }

    /// Takes out the oldest frame, if it is complete.
    pub(super) fn pop(&mut self, ring_size: RingSize) -> Option<(u64, Stamp)> {
        if self.is_empty() {
            return None;
        }
        let oldest = self.claimed.iter().copied().min()?;
        let stamp = (*self.committed.get(slot_of(oldest, ring_size))?)?;
        self.remove(oldest, ring_size);
        Some((oldest, stamp))
    }

    /// The newest number, if there is one.
    #[inline]
    pub(super) fn newest(&self) -> Option<u64> {
        if self.is_empty() {
            return None;
        }
        self.claimed.iter().copied().filter(|claimed| *claimed != INVALID_SEQ).max()
    }

    /// The slot that is claimed for frame `seq`, if one is: a ticket may be another writer's.
    fn slot_of(&self, seq: u64, ring_size: RingSize) -> Option<usize> {
        Some(slot_of(seq, ring_size)).filter(|slot| self.claimed.get(*slot) == Some(&seq))
    }
}
