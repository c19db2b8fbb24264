//! [`SetAside`]: a claim that its publisher keeps while it does something else.

use std::sync::atomic::{AtomicU64, Ordering};

use cuframes_core::ring::Ticket;

/// A [claim that was set aside](crate::Claim::set_aside). It goes back to the publisher that it is from, to
/// [`ServedPublisher::resume_claim`](crate::ServedPublisher::resume_claim) or
/// [`Publisher::resume_claim`](crate::Publisher::resume_claim).
///
/// Until then the slot stays claimed. If this is lost, nothing is blocked: the publisher gives the slot up at its next claim.
#[derive(Debug)]
#[must_use = "the claim is given up at the next one unless it is resumed"]
pub struct SetAside {
    mark: u64,
    seq: u64,
}

impl SetAside {
    /// The number the frame will have.
    #[must_use]
    pub const fn seq(&self) -> u64 {
        self.seq
    }
}

/// Where a publisher keeps the one claim that was set aside, and by which mark it knows the [`SetAside`] for it again.
#[derive(Default, Debug)]
pub(crate) struct Shelf(Option<(u64, Ticket)>);

impl Shelf {
    /// Keeps the claim of number `seq`. There is no other: it would have been given up for this one.
    pub(crate) fn put(&mut self, seq: u64, ticket: Option<Ticket>) -> SetAside {
        let mark = MARKS.fetch_add(1, Ordering::Relaxed);
        self.0 = ticket.map(|ticket| (mark, ticket));
        SetAside { mark, seq }
    }

    /// The claim that `aside` is for, if it is here.
    pub(crate) fn take(&mut self, aside: &SetAside) -> Option<Ticket> {
        self.0.take_if(|(mark, _)| *mark == aside.mark).map(|(_, ticket)| ticket)
    }

    /// The slot of the claim that `aside` is for, if it is here.
    pub(crate) fn slot(&self, aside: &SetAside) -> Option<usize> {
        self.0.as_ref().filter(|(mark, _)| *mark == aside.mark).map(|(_, ticket)| ticket.slot())
    }

    /// The claim that is here, whoever has the [`SetAside`] for it.
    #[inline]
    pub(crate) fn clear(&mut self) -> Option<Ticket> {
        self.0.as_ref()?;
        self.0.take().map(|(_, ticket)| ticket)
    }
}

/// The next mark. No two claims of this process have the same, whichever publishers they are of.
static MARKS: AtomicU64 = AtomicU64::new(0);
