//! [`Claim`]: a slot that is being written, and what becomes of it: a [`Ticket`], or [`Committed`] (§5.2).

use super::seq::Seq;
use super::writer::RingWriter;
use crate::shm::Region;

/// A slot that is being written. Dropping it leaves the slot invalid and the number unused.
#[derive(Debug)]
#[must_use = "a claim that is not committed publishes nothing"]
pub struct Claim<'a, R: Region> {
    writer: &'a mut RingWriter<R>,
    ticket: Ticket,
}

impl<'a, R: Region> Claim<'a, R> {
    #[inline]
    pub(super) const fn new(writer: &'a mut RingWriter<R>, ticket: Ticket) -> Self {
        Self { writer, ticket }
    }

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
        writer.commit_claimed(ticket, pts_ns, written_bytes)
    }

    /// Keeps the slot, and lets go of the writer: for a frame that is complete later, as one is that a GPU writes. Several
    /// may be on their way; they are published in the order of their numbers, whichever is complete first.
    #[inline]
    pub fn detach(self) -> Ticket {
        let Self { writer, ticket } = self;
        writer.detach(&ticket);
        ticket
    }
}

/// A slot that is being written while its writer does something else. It goes to [`RingWriter::commit`] or
/// [`RingWriter::cancel`] of that writer; if it is lost, so is its slot, and nothing claimed after it is ever published.
#[derive(PartialEq, Eq, Debug)]
#[must_use = "a ticket that is neither committed nor cancelled blocks the ring"]
pub struct Ticket {
    pub(super) seq: u64,
    pub(super) slot: usize,
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
