//! [`Claim`]: a slot that is being written.

use std::sync::Arc;

use cuframes_core::ring;
use cuframes_core::{FrameMeta, Instant};

use crate::clock;
use crate::host::HostPool;
use crate::shared::Shared;
use crate::shm::MappedRegion;

/// Memory for the next frame. No reader sees it before [`commit`](Self::commit); dropping it publishes nothing.
#[derive(Debug)]
#[must_use = "a claim that is not committed publishes nothing"]
pub struct Claim<'a> {
    pub(crate) claim: ring::Claim<'a, Arc<MappedRegion>>,
    pub(crate) pool: &'a mut HostPool,
    pub(crate) shared: &'a Shared,
    pub(crate) meta: &'a FrameMeta,
}

impl Claim<'_> {
    /// The number the frame will have.
    #[must_use]
    pub fn seq(&self) -> u64 {
        self.claim.seq().get()
    }

    /// Geometry of the frame.
    #[must_use]
    pub const fn meta(&self) -> &FrameMeta {
        self.meta
    }

    /// The frame's memory, `frame_size_bytes` long, planes where [`FrameMeta::planes`] puts them. What an earlier frame
    /// left there is still in it.
    #[must_use]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.pool.slot_bytes_mut(self.claim.slot())
    }

    /// Publishes the whole frame, stamped with the current time, and returns its number.
    pub fn commit(self) -> u64 {
        let (now, size) = (clock::now(), self.meta.frame_size_bytes);
        self.commit_at(now, now.as_nanos(), size)
    }

    /// Publishes the frame with a time stamp in nanoseconds and the number of valid bytes: all `frame_size_bytes`, or
    /// fewer for format BYTES (D-35). Returns its number.
    pub fn commit_with(self, pts_ns: i64, written_bytes: u64) -> u64 {
        self.commit_at(clock::now(), pts_ns, written_bytes)
    }

    fn commit_at(self, now: Instant, pts_ns: i64, written_bytes: u64) -> u64 {
        if !self.shared.home.is_here() {
            // Of a child that was forked meanwhile nobody shall see anything (P-20).
            return self.seq();
        }
        let committed = self.claim.commit(pts_ns, written_bytes.min(self.meta.frame_size_bytes));
        let seq = committed.seq.get();
        self.shared.counters.published(seq, now);
        if committed.wake != 0 {
            self.shared.wake(committed.wake);
        }
        seq
    }
}
