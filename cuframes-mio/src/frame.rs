//! [`Frame`]: a frame that a subscriber holds.

use std::mem;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::BytesMut;
use cuframes_core::gpu::Import;
use cuframes_core::ring::{self, FrameLost, Outside, Standing, Testimony};
use cuframes_core::shm::StreamHeader;
use cuframes_core::wire::meta::Plane;
use cuframes_core::wire::subscribe::Unsubscribe;
use cuframes_core::{FrameMeta, Instant, Key, SubscriberBit};

use crate::error::Error;
use crate::held::{Held, PATIENCE};
use crate::host::HostMemory;
use crate::lock::lock;
use crate::prefetch::{Access, prefetch};
use crate::shm::{MappedRegion, REGION_BYTES, Witness};
use crate::tally::{Common, Mapped};
use crate::wake::EventFd;
use crate::{clock, fdpass, reaper};

/// A published frame. It may be sent to another thread, and several may be held at once; dropping it releases it.
///
/// Under LEASE, which our publishers grant, the publisher does not overwrite it while it is held, so
/// [`bytes`](Frame::bytes) gives its memory. A frame that is held for longer than the publisher's `lease` timeout while
/// the publisher needs the slot is taken back and may be overwritten (D-31): what was read is worth something if
/// [`release`](Self::release) says so.
///
/// In a device's memory it is read by work that is enqueued on a stream: first [`wait_on`](Self::wait_on) that stream, then
/// the work that reads [`device_ptr`](Self::device_ptr), then [`release_after`](Self::release_after).
///
/// It keeps what it needs of its publisher: it stays readable when that one is gone, and when its subscriber has attached
/// to another one. Geometry and [`epoch`](Self::epoch) are those of its own stream.
#[derive(Debug)]
pub struct Frame<B: Import<Fd = OwnedFd> = HostMemory> {
    pub(crate) inner: ring::Frame<Arc<MappedRegion>, Attachment<B>>,
    pub(crate) lost: u64,
}

impl<B: Import<Fd = OwnedFd>> Frame<B> {
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
        self.attachment().epoch
    }

    /// The stream that it is of.
    #[must_use]
    pub fn key(&self) -> &Key {
        &self.attachment().key
    }

    /// Geometry of the frame.
    #[must_use]
    pub fn meta(&self) -> &FrameMeta {
        &self.attachment().meta
    }

    /// Valid bytes: all of the frame, or fewer for format BYTES (D-35).
    #[must_use]
    pub fn len(&self) -> usize {
        usize::try_from(self.valid_bytes()).unwrap_or(usize::MAX)
    }

    /// Whether the frame has no valid byte.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The backend that opened its memory.
    #[must_use]
    pub fn backend(&self) -> &B {
        &self.attachment().memory.backend
    }

    /// The memory of its slot, as the backend knows it.
    #[must_use]
    pub fn mapping(&self) -> Option<&B::Mapping> {
        self.attachment().memory.mappings.get(self.inner.slot())
    }

    /// Where the frame is in the device's address space: a `CUdeviceptr`, or an address in this process.
    #[must_use]
    pub fn device_ptr(&self) -> u64 {
        self.mapping().map_or(0, |mapping| self.backend().mapping_ptr(mapping))
    }

    /// Each plane, with its address in the device's address space.
    pub fn plane_ptrs(&self) -> impl Iterator<Item = (u64, Plane)> {
        let base = self.device_ptr();
        self.meta().planes().map(move |plane| (base + plane.offset, plane))
    }

    /// The frame's memory. `None` without LEASE: then use [`copy_to`](Frame::copy_to); and in the memory of a device, of which
    /// [`copy_to_host`](Self::copy_to_host) makes a copy.
    #[must_use]
    pub fn bytes(&self) -> Option<&[u8]> {
        let mapping = self.mapping().filter(|_| self.inner.seat().leases())?;
        self.backend().bytes(mapping, self.valid_bytes())
    }

    /// The rows of plane `index`, without the padding after each; `None` where [`bytes`](Self::bytes) is, past the last plane, or
    /// if not all of it is among the valid bytes.
    #[must_use]
    pub fn plane_rows(&self, index: usize) -> Option<impl Iterator<Item = &[u8]>> {
        self.rows(self.meta().planes().nth(index)?)
    }

    /// The rows of any part of the frame that [`planes`](FrameMeta::planes) or [`tile_planes`](FrameMeta::tile_planes) gave,
    /// without what is between them. `None` where [`bytes`](Self::bytes) is, or if not all of them are among the valid bytes.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # use cuframes_mio::Subscriber;
    /// # use cuframes_mio::core::Tile;
    /// # let mut subscriber = Subscriber::builder("cam0".parse()?).connect()?;
    /// let frame = subscriber.next(Duration::from_secs(1))?.ok_or("no frame for a second")?;
    /// // The 64 x 64 pixels that begin at row 128 and column 256.
    /// let tile = Tile { y: 128, x: 256, height: 64, width: 64 };
    /// for part in frame.meta().tile_planes(&tile)? {
    ///     for row in frame.rows(part).ok_or("not in host memory, or without a lease")? {
    ///         println!("{} bytes", row.len());
    ///     }
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn rows(&self, plane: Plane) -> Option<impl Iterator<Item = &[u8]>> {
        let Plane { offset, pitch, row_bytes, rows } = plane;
        if row_bytes == 0 || pitch < row_bytes {
            return None;
        }
        // The last row may be without the padding after it.
        let len = u64::from(pitch) * u64::from(rows.checked_sub(1)?) + u64::from(row_bytes);
        let (from, to) = (usize::try_from(offset).ok()?, usize::try_from(offset.checked_add(len)?).ok()?);
        let row_bytes = usize::try_from(row_bytes).ok()?;
        let part = self.bytes()?.get(from..to)?;
        Some(part.chunks(usize::try_from(pitch).ok()?).filter_map(move |row| row.get(..row_bytes)))
    }

    /// Lets the work that is enqueued on `stream` after this wait for the publisher's work that writes the frame. Nothing but a
    /// plain v1 publisher publishes frames that are not complete: for those of all others there is nothing to wait for.
    ///
    /// # Errors
    /// [`Error::Device`].
    pub fn wait_on(&self, stream: &B::Stream) -> Result<(), Error> {
        let Attachment { memory, key, .. } = self.attachment();
        memory.backend.wait_event(stream, &memory.event).map_err(|error| Error::device(key, error))
    }

    /// Copies the valid bytes to the front of `to`, through `stream`, and returns how many there are; if `to` is shorter the
    /// rest is cut. Blocks until they are there.
    ///
    /// # Errors
    /// [`Error::Lost`] if the frame was overwritten during the copy, or [`Error::Device`], also if it takes longer than
    /// `timeout`: what is in `to` is worth nothing then.
    pub fn copy_to_host(&self, stream: &B::Stream, to: &mut [u8], timeout: Duration) -> Result<usize, Error> {
        let len = self.len().min(to.len());
        let to = to.get_mut(..len).unwrap_or_default();
        let key = &self.attachment().key;
        self.wait_on(stream)?;
        if let Some(mapping) = self.mapping() {
            let copied = self.backend().copy_out(stream, mapping, to, timeout);
            copied.map_err(|error| Error::device(key, error))?;
        }
        let lost = FrameLost::Overwritten;
        if self.inner.is_intact() { Ok(len) } else { Err(Error::Lost { key: key.clone(), lost }) }
    }

    /// What [`release`](Self::release) would say now; the frame stays held. For who passes on in pieces what comes out of it.
    ///
    /// # Errors
    /// [`FrameLost`], as [`release`](Self::release).
    pub fn check(&self) -> Result<(), FrameLost> {
        self.inner.check()
    }

    /// Gives the frame back and says whether it was this frame all the time.
    ///
    /// # Errors
    /// [`FrameLost`] if it was overwritten, or the publisher had taken the lease back: what was computed from it may be
    /// wrong.
    pub fn release(self) -> Result<(), FrameLost> {
        self.inner.release()
    }

    /// Gives the frame back when everything that is enqueued on `stream` until now is done; returns at once. Should it have
    /// been overwritten by then, [`SubscriberStats`](crate::SubscriberStats) count it. A program that ends before the stream
    /// has come so far, or drops its subscriber, is no reason for anybody else to wait; but it should synchronize with the
    /// stream first, and wait until no bytes are [mapped](crate::SubscriberStats::mapped_bytes) any more: what the last frame
    /// held is closed by a thread of ours.
    ///
    /// # Errors
    /// [`Error::Device`], or [`Error::System`] if the thread can't be started. The frame is given back when the stream is done,
    /// which is waited for, for a second at most. If that is too short, or can't be told, what is enqueued may still read it: then it
    /// is never given back, and its memory stays mapped. The publisher takes the lease back at its deadline (D-31).
    pub fn release_after(self, stream: &B::Stream) -> Result<(), Error> {
        let Attachment { memory, key, .. } = self.attachment();
        // Nothing that keeps the memory open: the publisher is told when the last frame is gone.
        let (backend, key) = (Arc::clone(&memory.backend), key.clone());
        if !B::STREAMS {
            let _ = self.release();
            return Ok(());
        }
        let held = Held::new(self);
        let give_back = held.when_done(|frame: Self| {
            // We may be on a thread of the driver's, where nothing may be unmapped.
            if let (_, Some(seat)) = frame.inner.release_apart() {
                reaper::hand_over(Box::new(seat));
            }
        });
        let started = reaper::start().map_err(|error| Error::system(&key, "start a thread", error));
        let notify = || backend.notify(stream, give_back).map_err(|error| Error::device(&key, error));
        started.and_then(|()| notify()).inspect_err(|_| {
            let frame = held.take();
            if backend.synchronize(stream, PATIENCE).is_err() {
                mem::forget(frame);
            }
        })
    }

    /// "A subscriber must not use more than `frame_size_bytes`, whatever the word says. A plain v1 publisher may leave 0, which says
    /// nothing" (D-35).
    fn valid_bytes(&self) -> u64 {
        let size = self.meta().frame_size_bytes;
        match self.inner.written_bytes() {
            0 if self.epoch() == 0 => size,
            written => written.min(size),
        }
    }

    fn attachment(&self) -> &Attachment<B> {
        self.inner.seat().outside()
    }
}

impl Frame {
    /// Copies the valid bytes to the front of `to` and returns how many there are; if `to` is shorter the rest is cut.
    ///
    /// # Errors
    /// [`FrameLost`] if the frame was overwritten during the copy: what is in `to` is worth nothing then.
    pub fn copy_to(&self, to: &mut [u8]) -> Result<usize, FrameLost> {
        let len = self.len().min(to.len());
        let to = to.get_mut(..len).unwrap_or_default();
        let copied = self.mapping().map_or(0, |view| view.copy_to(to));
        if self.inner.is_intact() { Ok(copied) } else { Err(FrameLost::Overwritten) }
    }
}

/// What the subscriber and all its frames hold on to. The last of them to go unmaps the memory and says UNSUBSCRIBE.
#[derive(Debug)]
pub(crate) struct Attachment<B: Import> {
    key: Key,
    meta: FrameMeta,
    epoch: u64,
    memory: Memory<B>,
    /// What only the publisher can say (X-6).
    witness: Option<Witness>,
    /// Wakes the publisher (X-3).
    bell: Option<EventFd>,
    mapped: Mapped,
    // Dropped last: UNSUBSCRIBE promises that nothing is mapped any more.
    goodbye: Goodbye,
}

/// The publisher's frames, open.
#[derive(Debug)]
pub(crate) struct Memory<B: Import> {
    pub(crate) backend: Arc<B>,
    /// By slot.
    pub(crate) mappings: Vec<B::Mapping>,
    /// What the publisher's work can be waited for by.
    pub(crate) event: B::Event,
}

impl<B: Import<Fd = OwnedFd>> Attachment<B> {
    pub(crate) fn new(
        key: Key,
        header: &StreamHeader,
        memory: Memory<B>,
        witness: Option<Witness>,
        bell: Option<EventFd>,
        common: &Arc<Common>,
    ) -> Self {
        let StreamHeader { meta, epoch, ring_size, .. } = *header;
        let regions = if witness.is_some() { 2 * REGION_BYTES } else { REGION_BYTES };
        let frames = meta.frame_size_bytes.saturating_mul(ring_size.get().into());
        let mapped = Mapped::new(Arc::clone(common), regions.saturating_add(frames));
        let goodbye = Goodbye { socket: Mutex::new(None), common: Arc::clone(common) };
        Self { key, meta, epoch, memory, witness, bell, mapped, goodbye }
    }

    /// Hands the connection over, to be ended when the last frame is released.
    pub(crate) fn say_goodbye_on(&self, socket: UnixStream) {
        *lock(&self.goodbye.socket) = Some(socket);
    }
}

impl<B: Import<Fd = OwnedFd>> Outside for Attachment<B> {
    fn now(&self) -> Instant {
        // Only for the eye, and once for each frame.
        clock::recent()
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

    fn prefetch(&self, slot: usize) {
        if let Some(witness) = &self.witness {
            witness.prefetch(slot);
        }
        let Memory { backend, mappings, .. } = &self.memory;
        if let Some(mapping) = mappings.get(slot).filter(|_| !B::STREAMS) {
            prefetch(backend.mapping_ptr(mapping), Access::Read);
        }
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
