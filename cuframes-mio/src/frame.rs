//! [`Frame`]: a frame that a subscriber holds, in host memory.

use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::BytesMut;
use cuframes_core::ring::{self, FrameLost, Outside, Standing, Testimony};
use cuframes_core::wire::meta::Plane;
use cuframes_core::wire::subscribe::Unsubscribe;
use cuframes_core::{FrameMeta, Instant, SubscriberBit};

use crate::host::HostView;
use crate::shm::{MappedRegion, REGION_BYTES, Witness, to_u64};
use crate::tally::{Common, Mapped};
use crate::wake::EventFd;
use crate::{clock, fdpass};

/// A published frame. It may be sent to another thread, and several may be held at once; dropping it releases it.
///
/// Under LEASE, which our publishers grant, the publisher does not overwrite it while it is held, so
/// [`bytes`](Self::bytes) gives its memory. A frame that is held for longer than the publisher's `lease` timeout while
/// the publisher needs the slot is taken back and may be overwritten (D-31): what was read is worth something if
/// [`release`](Self::release) says so.
///
/// It keeps what it needs of its publisher: it stays readable when that one is gone, and when its subscriber has attached
/// to another one. Geometry and [`epoch`](Self::epoch) are those of its own stream.
#[derive(Debug)]
pub struct Frame {
    pub(crate) inner: ring::Frame<Arc<MappedRegion>, Attachment>,
    pub(crate) lost: u64,
}

impl Frame {
    /// Its number.
    #[must_use]
    pub fn seq(&self) -> u64 {
        self.inner.seq().get()
    }

    /// The publisher's time stamp: nanoseconds of `CLOCK_MONOTONIC`, unless the publisher chose another clock.
    #[must_use]
    pub const fn pts_ns(&self) -> i64 {
        self.inner.pts_ns()
    }

    /// How many frames between the one handed out before and this one this subscriber did not get.
    #[must_use]
    pub const fn lost(&self) -> u64 {
        self.lost
    }

    /// The random number of the publisher that it is from; 0 from a plain v1 publisher. Where it differs from that of the
    /// frame before, another publisher has taken over: numbers start again, and the geometry may be another one (D-24).
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.inner.seat().outside().epoch
    }

    /// Geometry of the frame.
    #[must_use]
    pub fn meta(&self) -> &FrameMeta {
        &self.inner.seat().outside().meta
    }

    /// Valid bytes: all of the frame, or fewer for format BYTES (D-35).
    #[must_use]
    pub fn len(&self) -> usize {
        let size = self.meta().frame_size_bytes;
        usize::try_from(self.inner.written_bytes().min(size)).unwrap_or(usize::MAX)
    }

    /// Whether the frame has no valid byte.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The frame's memory, or `None` without LEASE: then use [`copy_to`](Self::copy_to).
    #[must_use]
    pub fn bytes(&self) -> Option<&[u8]> {
        let seat = self.inner.seat();
        seat.leases().then(|| seat.outside().view.slot_bytes(self.inner.slot(), self.inner.written_bytes()))
    }

    /// The rows of plane `index`, without the padding after each; `None` where [`bytes`](Self::bytes) is, or past the last plane.
    #[must_use]
    pub fn plane_rows(&self, index: usize) -> Option<impl Iterator<Item = &[u8]>> {
        let Plane { offset, pitch, row_bytes, rows } = self.meta().planes().nth(index)?;
        let plane = self.bytes()?.get(usize::try_from(offset).ok()?..)?;
        let row_bytes = usize::try_from(row_bytes).ok()?;
        let rows = usize::try_from(rows).ok()?;
        Some(
            plane.chunks(usize::try_from(pitch).ok()?).take(rows).filter_map(move |row| row.get(..row_bytes)),
        )
    }

    /// Copies the valid bytes to the front of `to` and returns how many there are; if `to` is shorter the rest is cut.
    ///
    /// # Errors
    /// [`FrameLost`] if the frame was overwritten during the copy: what is in `to` is worth nothing then.
    pub fn copy_to(&self, to: &mut [u8]) -> Result<usize, FrameLost> {
        let len = self.len().min(to.len());
        let to = to.get_mut(..len).unwrap_or_default();
        let copied = self.inner.seat().outside().view.copy_to(self.inner.slot(), to);
        if self.inner.is_intact() { Ok(copied) } else { Err(FrameLost::Overwritten) }
    }

    /// Gives the frame back and says whether it was this frame all the time.
    ///
    /// # Errors
    /// [`FrameLost`] if it was overwritten, or the publisher had taken the lease back: what was computed from it may be
    /// wrong.
    pub fn release(self) -> Result<(), FrameLost> {
        self.inner.release()
    }
}

/// What the subscriber and all its frames hold on to. The last of them to go unmaps the memory and says UNSUBSCRIBE.
#[derive(Debug)]
pub(crate) struct Attachment {
    pub(crate) meta: FrameMeta,
    epoch: u64,
    pub(crate) view: HostView,
    /// What only the publisher can say.
    witness: Option<Witness>,
    /// Wakes the publisher.
    bell: Option<EventFd>,
    mapped: Mapped,
    // Dropped last: UNSUBSCRIBE promises that nothing is mapped any more.
    goodbye: Goodbye,
}

impl Attachment {
    pub(crate) fn new(
        (meta, epoch): (FrameMeta, u64),
        view: HostView,
        witness: Option<Witness>,
        bell: Option<EventFd>,
        common: &Arc<Common>,
    ) -> Self {
        let regions = if witness.is_some() { 2 * REGION_BYTES } else { REGION_BYTES };
        let mapped = Mapped::new(Arc::clone(common), regions + to_u64(view.mapped_bytes()));
        let goodbye = Goodbye { socket: Mutex::new(None), common: Arc::clone(common) };
        Self { meta, epoch, view, witness, bell, mapped, goodbye }
    }

    /// Hands the connection over, to be ended when the last frame is released.
    pub(crate) fn say_goodbye_on(&self, socket: UnixStream) {
        *self.goodbye.socket.lock().unwrap_or_else(PoisonError::into_inner) = Some(socket);
    }
}

impl Outside for Attachment {
    fn now(&self) -> Instant {
        clock::now()
    }

    fn wake_publisher(&self) {
        if let Some(bell) = &self.bell {
            // A descriptor that can't be rung is the publisher's own fault; it looks again at its deadline.
            let _ = bell.ring();
        }
    }

    fn frame_lost(&self, lost: FrameLost) {
        self.mapped.common.frame_lost(lost);
    }

    fn is_here(&self) -> bool {
        self.mapped.common.home.is_here()
    }

    fn testimony(&self, slot: usize) -> Option<Testimony> {
        self.witness.as_ref().map(|witness| witness.testimony(slot))
    }

    fn standing(&self, bit: SubscriberBit) -> Option<Standing> {
        self.witness.as_ref().map(|witness| witness.standing(bit))
    }
}

/// A connection that says UNSUBSCRIBE when it is dropped (D-10).
#[derive(Debug)]
struct Goodbye {
    socket: Mutex<Option<UnixStream>>,
    common: Arc<Common>,
}

impl Drop for Goodbye {
    fn drop(&mut self) {
        let socket = self.socket.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        // A forked child must not speak for its parent (P-20).
        if let Some(socket) = socket.filter(|_| self.common.home.is_here()) {
            let mut message = BytesMut::new();
            Unsubscribe.encode(&mut message);
            // If the publisher is gone or does not read, the end of the connection has to do.
            let _ = fdpass::send(&socket, &message, None);
        }
    }
}
