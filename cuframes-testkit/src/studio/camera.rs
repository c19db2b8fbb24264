//! [`Camera`]: the publisher's frame memory, its event, and the stream that writes.

use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cuframes_core::gpu::{Device, EventHandle, Export};
use cuframes_core::shm::header::SlotMemory;
use cuframes_core::wire::control::EventFd;

use super::picture;
use crate::mock_gpu::{MockDevice, MockError, MockEvent, MockPool, MockStream};

/// What a publisher has on the GPU.
#[derive(Debug)]
pub struct Camera {
    /// Its process.
    pub device: MockDevice,
    /// The stream that writes frames.
    pub stream: MockStream,
    open: Option<(MockPool, MockEvent)>,
}

/// Whether a stream has come to a point.
#[derive(Clone, Debug, Default)]
pub struct Flag(Arc<AtomicBool>);

impl Flag {
    /// Whether it has.
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

impl Camera {
    /// Opens everything, and gives the handle of the event.
    pub(super) fn new(
        device: MockDevice,
        pool: impl FnOnce(&MockDevice) -> Result<MockPool, MockError>,
    ) -> Result<(Self, EventHandle), MockError> {
        let pool = pool(&device)?;
        // If this fails the pool is freed by dropping it.
        let (event, handle) = device.create_event()?;
        let stream = device.stream();
        Ok((Self { device, stream, open: Some((pool, event)) }, handle))
    }

    pub(super) fn export(&self, slot: usize) -> Result<SlotMemory, MockError> {
        self.device.export_mem(&self.open.as_ref().unwrap().0, slot)
    }

    pub(super) fn export_fds(&self) -> Result<Vec<(EventFd, u32)>, MockError> {
        self.device.export_fds(&self.open.as_ref().unwrap().0)
    }

    /// Enqueues the writing of frame `seq` into `slot`; says when it is done.
    ///
    /// # Errors
    /// A call of the GPU that failed; the frame must not be published then.
    ///
    /// # Panics
    /// If it was closed.
    pub fn fill(&mut self, slot: usize, seq: u64) -> Result<Flag, MockError> {
        let (pool, event) = self.open.as_mut().unwrap();
        self.device.copy_in(&self.stream, pool, slot, &picture(seq))?;
        self.device.record_event(&self.stream, event)?;
        let flag = Flag::default();
        let done = flag.clone();
        self.device.notify(&self.stream, Box::new(move || done.0.store(true, Ordering::Release)))?;
        Ok(flag)
    }

    /// Whether the memory is still there.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Frees the memory, then the event, which lives as long as anybody may wait for it (C-7).
    pub(super) fn close(&mut self) -> Result<(), MockError> {
        match self.open.take() {
            Some((pool, _event)) => self.device.free_pool(pool),
            None => Ok(()),
        }
    }

    pub(super) fn kill(&mut self) {
        self.device.kill();
        mem::forget(self.open.take());
    }
}
