//! [`Staging`]: page-locked host memory for copies, kept from one to the next.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::ffi::{Context, Failed, HostBuffer};

/// Buffers that are in nobody's hands; the device may still be busy with some of them.
///
/// Freeing one waits for all streams of the context, so copies free none, and what is more than [`KEPT`] stays until a
/// [`trim`](Self::trim). There are never more than copies were under way at once: a frame of a ring has one.
#[derive(Debug, Default)]
pub(crate) struct Staging(Mutex<Vec<HostBuffer>>);

impl Staging {
    /// A buffer of at least `len` bytes that the device is done with: the shortest, if there is one.
    pub(crate) fn take(&self, context: &Arc<Context>, len: usize) -> Result<HostBuffer, Failed> {
        let mut buffers = self.lock();
        let fits = |buffer: &HostBuffer| buffer.len() >= len && buffer.is_done() == Ok(true);
        let fitting = buffers.iter().enumerate().filter(|(_, buffer)| fits(buffer));
        let shortest = fitting.min_by_key(|(_, buffer)| buffer.len()).map(|(at, _)| at);
        let found = shortest.map(|at| buffers.swap_remove(at));
        drop(buffers);
        found.map_or_else(|| HostBuffer::new(context, len), Ok)
    }

    /// Keeps a buffer for who comes next.
    pub(crate) fn put(&self, buffer: HostBuffer) {
        self.lock().push(buffer);
    }

    /// Frees idle buffers that are more than should be kept, the longest first. For calls that may wait for all streams.
    pub(crate) fn trim(&self) {
        let mut buffers = self.lock();
        let (mut idle, busy): (Vec<_>, Vec<_>) =
            buffers.drain(..).partition(|buffer| buffer.is_done() == Ok(true));
        idle.sort_by_key(HostBuffer::len);
        let superfluous = idle.split_off(KEPT.min(idle.len()));
        buffers.extend(idle.into_iter().chain(busy));
        // Freed without the lock: the driver may take its time.
        drop(buffers);
        drop(superfluous);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<HostBuffer>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How many idle buffers are kept.
const KEPT: usize = 4;
