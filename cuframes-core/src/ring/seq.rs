//! [`Seq`]: the number of a frame, and the slot it lives in (D-7).

use core::fmt;

use crate::config::RingSize;
use crate::number::to_usize;
use crate::shm::layout::INVALID_SEQ;

/// The number of a published frame. The first is 1; numbers grow, and may skip some (D-7, X-2).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Seq(u64);

impl Seq {
    /// The first frame of a stream.
    pub const FIRST: Self = Self(1);

    /// Frame number `n`, or `None` for the two numbers that never name a frame: 0 (nothing yet) and `u64::MAX` (invalid).
    #[must_use]
    pub const fn new(n: u64) -> Option<Self> {
        match n {
            0 | INVALID_SEQ => None,
            n => Some(Self(n)),
        }
    }

    /// The number.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Seq({})", self.0)
    }
}

/// The slot of frame `seq`: `seq % ring_size` (D-7).
pub(super) fn slot_of(seq: u64, ring_size: RingSize) -> usize {
    to_usize(seq % u64::from(ring_size.get()))
}
