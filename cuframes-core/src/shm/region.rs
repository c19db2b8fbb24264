//! [`Region`]: whoever can hand out the words of a region.

use alloc::sync::Arc;
use core::fmt;

use super::layout::{HeaderWords, RegionWords, SLOTS, SUBSCRIBERS, SlotWords, SubscriberWords};
use super::word::Word;

/// The words of one region. Indexes are masked, so that no number from the other side can reach outside (D-23).
pub trait Region: fmt::Debug + Send + Sync {
    /// The kind of its words.
    type Word: Word;
    /// The header.
    fn header(&self) -> &HeaderWords<Self::Word>;
    /// Slot `index`, modulo 16.
    fn slot(&self, index: usize) -> &SlotWords<Self::Word>;
    /// The subscriber slot of `bit`, modulo 32.
    fn subscriber(&self, bit: usize) -> &SubscriberWords<Self::Word>;
    /// `lease_bitmap` of slot `index`, modulo 16, is needed soon, to be written: a hint, which changes nothing.
    #[inline]
    fn prefetch_lease(&self, index: usize) {
        let _ = index;
    }
}

impl<W: Word> Region for RegionWords<W> {
    type Word = W;

    #[inline]
    fn header(&self) -> &HeaderWords<W> {
        &self.header
    }

    #[inline]
    #[expect(clippy::indexing_slicing, reason = "masked by the array's length")]
    fn slot(&self, index: usize) -> &SlotWords<W> {
        &self.slots[index % SLOTS]
    }

    #[inline]
    #[expect(clippy::indexing_slicing, reason = "masked by the array's length")]
    fn subscriber(&self, bit: usize) -> &SubscriberWords<W> {
        &self.subscribers[bit % SUBSCRIBERS]
    }
}

impl<R: Region + ?Sized> Region for Arc<R> {
    type Word = R::Word;

    #[inline]
    fn header(&self) -> &HeaderWords<R::Word> {
        (**self).header()
    }

    #[inline]
    fn slot(&self, index: usize) -> &SlotWords<R::Word> {
        (**self).slot(index)
    }

    #[inline]
    fn subscriber(&self, bit: usize) -> &SubscriberWords<R::Word> {
        (**self).subscriber(bit)
    }

    #[inline]
    fn prefetch_lease(&self, index: usize) {
        (**self).prefetch_lease(index);
    }
}
