//! [`Claim`]: a slot that is being written.

use std::mem;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use cuframes_core::gpu::{EventHandle, Export};
use cuframes_core::ring::Ticket;
use cuframes_core::wire::meta::Plane;
use cuframes_core::{FrameMeta, Instant};

use crate::aside::SetAside;
use crate::clock;
use crate::error::Error;
use crate::held::{Held, PATIENCE};
use crate::host::HostMemory;
use crate::pen::{Pen, Pending};
use crate::producer::{Frames, Producer};

/// Memory for the next frame. No reader sees it before it is committed; dropping it publishes nothing.
///
/// In host memory write [`bytes_mut`](Claim::bytes_mut) or [`plane_rows_mut`](Claim::plane_rows_mut), then
/// [`commit`](Self::commit). On a device enqueue the work that writes [`device_ptr`](Self::device_ptr), then
/// [`commit_on`](Self::commit_on) the same stream. If it comes to nothing after that, [`cancel_on`](Self::cancel_on) the
/// stream: dropping it gives the slot to the next claim at once, while the work may still write it.
#[derive(Debug)]
#[must_use = "a claim that is not committed publishes nothing"]
pub struct Claim<'a, B: Export<Fd = OwnedFd> = HostMemory> {
    producer: &'a mut Producer<B>,
    /// Until it is committed.
    ticket: Option<Ticket>,
    seq: u64,
    slot: usize,
}

impl Claim<'_> {
    /// The frame's memory, `frame_size_bytes` long, planes where [`FrameMeta::planes`] puts them. What an earlier frame
    /// left there is still in it.
    #[must_use]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        let pool = self.producer.frames.pool.as_mut();
        pool.map_or(&mut [], |pool| pool.slot_bytes_mut(self.slot))
    }

    /// The rows of plane `index`, without the padding after each; `None` past the last plane.
    #[must_use]
    pub fn plane_rows_mut(&mut self, index: usize) -> Option<impl Iterator<Item = &mut [u8]>> {
        let Plane { offset, pitch, row_bytes, rows } = self.meta().planes().nth(index)?;
        let row_bytes = usize::try_from(row_bytes).ok()?;
        let rows = usize::try_from(rows).ok()?;
        let plane = self.bytes_mut().get_mut(usize::try_from(offset).ok()?..)?;
        let pitched = plane.chunks_mut(usize::try_from(pitch).ok()?);
        Some(pitched.take(rows).filter_map(move |row| row.get_mut(..row_bytes)))
    }
}

impl<'a, B: Export<Fd = OwnedFd>> Claim<'a, B> {
    #[inline]
    pub(crate) fn new(producer: &'a mut Producer<B>, ticket: Ticket) -> Self {
        let (seq, slot) = (ticket.seq().get(), ticket.slot());
        Self { producer, ticket: Some(ticket), seq, slot }
    }

    /// The number the frame will have.
    #[must_use]
    pub const fn seq(&self) -> u64 {
        self.seq
    }

    /// The slot that it is in, 0 to `ring_size - 1`.
    #[must_use]
    pub const fn slot(&self) -> usize {
        self.slot
    }

    /// Geometry of the frame.
    #[must_use]
    pub const fn meta(&self) -> &FrameMeta {
        &self.producer.meta
    }

    /// The backend whose memory it is.
    #[must_use]
    pub fn backend(&self) -> &B {
        &self.producer.frames.backend
    }

    /// Where the frame is in the device's address space: a `CUdeviceptr`, or an address in this process.
    #[must_use]
    pub fn device_ptr(&self) -> u64 {
        let pool = self.producer.frames.pool.as_ref();
        pool.and_then(|pool| self.backend().pool_ptr(pool, self.slot)).unwrap_or(0)
    }

    /// Each plane, with its address in the device's address space.
    pub fn plane_ptrs(&self) -> impl Iterator<Item = (u64, Plane)> {
        let base = self.device_ptr();
        self.meta().planes().map(move |plane| (base + plane.offset, plane))
    }

    /// Enqueues a copy of `bytes` to the start of the frame. They are not needed any more when this returns.
    ///
    /// For large frames this is faster than copying to [`bytes_mut`](Claim::bytes_mut): where the ring does not fit in the
    /// processor's cache, the copy goes past it.
    ///
    /// # Errors
    /// [`Error::Device`], also for more bytes than a frame has.
    pub fn copy_in(&mut self, stream: &B::Stream, bytes: &[u8]) -> Result<(), Error> {
        let Producer { frames, key, .. } = &mut *self.producer;
        let Some(pool) = &mut frames.pool else { return Ok(()) };
        frames.backend.copy_in(stream, pool, self.slot, bytes).map_err(|error| Error::device(key, error))
    }

    /// Publishes the whole frame, stamped with the current time, and returns its number. It must be complete: work of a
    /// device that writes it is done.
    pub fn commit(self) -> u64 {
        let size = self.meta().frame_size_bytes;
        let now = clock::now();
        self.commit_at(now, now.as_nanos(), size)
    }

    /// As [`commit`](Self::commit), with a time stamp in nanoseconds and the number of valid bytes: all `frame_size_bytes`,
    /// or fewer for format BYTES (D-35).
    pub fn commit_with(self, pts_ns: i64, written_bytes: u64) -> u64 {
        self.commit_at(clock::recent(), pts_ns, written_bytes)
    }

    /// Lets go of the publisher and keeps the slot: for a frame that is written piece by piece, between other work. What is
    /// written of it stays. The publisher's `resume_claim` gives the claim back.
    ///
    /// A publisher keeps one claim so. It gives it up, as if it had been dropped, at the next attempt to claim another, also at
    /// one that fails, and when the stream ends.
    pub fn set_aside(mut self) -> SetAside {
        self.producer.aside.put(self.seq, self.ticket.take())
    }

    fn commit_at(mut self, now: Instant, pts_ns: i64, written_bytes: u64) -> u64 {
        let Some(ticket) = self.ticket.take() else { return self.seq };
        let Producer { shared, pen, meta, .. } = &mut *self.producer;
        // Of a child that was forked meanwhile nobody shall see anything (P-20).
        if shared.home.is_here() {
            pen.commit(now, shared, ticket, pts_ns, written_bytes.min(meta.frame_size_bytes));
        }
        self.seq
    }

    /// Publishes the whole frame when everything enqueued on `stream` until now is done, stamped with the current time;
    /// returns its number at once. Frames become visible in the order in which they were claimed, also where they are
    /// committed on several streams.
    ///
    /// # Errors
    /// [`Error::Device`], or in a forked child [`Error::Forked`]: nothing is published then. After an error of the device the stream
    /// is waited for, for a second at most. If that is too short, or can't be told, what is enqueued may still write the slot: it
    /// is never used again, and because frames become visible in order, *no later frame of this publisher is published*: those
    /// that are claimed find no slot in the end ([`Stalled::unfinished`](cuframes_core::ring::Stalled)). Start it again then.
    pub fn commit_on(self, stream: &B::Stream) -> Result<u64, Error> {
        let size = self.meta().frame_size_bytes;
        self.commit_on_with(stream, clock::now().as_nanos(), size)
    }

    /// As [`commit_on`](Self::commit_on), with a time stamp in nanoseconds and the number of valid bytes, as in
    /// [`commit_with`](Self::commit_with).
    ///
    /// # Errors
    /// As [`commit_on`](Self::commit_on).
    pub fn commit_on_with(
        mut self,
        stream: &B::Stream,
        pts_ns: i64,
        written_bytes: u64,
    ) -> Result<u64, Error> {
        self.producer.here()?;
        if !B::STREAMS {
            // Everything was done when the calls that enqueued it returned.
            return Ok(self.commit_with(pts_ns, written_bytes));
        }
        // For plain v1 subscribers, who know nothing of our order (§5).
        let records = self.producer.frames.handle != EventHandle::NONE;
        let written_bytes = written_bytes.min(self.meta().frame_size_bytes);
        self.finish_on(stream, records, move |pending| pending.complete(pts_ns, written_bytes))
    }

    /// Gives the frame up when everything enqueued on `stream` until now is done; returns at once. As dropping it, but for a slot
    /// that enqueued work may still write: nobody claims it before that is over.
    ///
    /// # Errors
    /// As [`commit_on`](Self::commit_on): after an error of the device it is given up when the stream is done, within a second, or
    /// otherwise the slot is never used again and no later frame is published.
    pub fn cancel_on(mut self, stream: &B::Stream) -> Result<(), Error> {
        self.producer.here()?;
        if B::STREAMS {
            self.finish_on(stream, false, drop)?;
        }
        Ok(())
    }

    /// Lets `finish` have the frame when the device has come so far; before that, if it `records`, the event that says so.
    fn finish_on(
        &mut self,
        stream: &B::Stream,
        records: bool,
        finish: impl FnOnce(Pending) + Send + 'static,
    ) -> Result<u64, Error> {
        let Producer { shared, pen, frames: Frames { backend, event, .. }, key, .. } = &mut *self.producer;
        let (Pen::Shared(writer), Some(ticket)) = (pen, self.ticket.take()) else { return Ok(self.seq) };
        let held = Held::new(Pending::new(Arc::clone(writer), Arc::clone(shared), ticket));
        let recorded = if records { backend.record_event(stream, event) } else { Ok(()) };
        let notified = recorded.and_then(|()| backend.notify(stream, held.when_done(finish)));
        notified.map(|()| self.seq).map_err(|error| {
            let pending = held.take();
            if backend.synchronize(stream, PATIENCE).is_err() {
                // What is enqueued may still write the slot: it is never used again.
                mem::forget(pending);
            }
            Error::device(key, error)
        })
    }
}

impl<B: Export<Fd = OwnedFd>> Drop for Claim<'_, B> {
    fn drop(&mut self) {
        let Producer { shared, pen, .. } = &mut *self.producer;
        if let Some(ticket) = self.ticket.take().filter(|_| shared.home.is_here()) {
            pen.cancel(shared, ticket);
        }
    }
}
