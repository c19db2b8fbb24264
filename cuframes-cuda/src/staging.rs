//! [`Staging`]: page-locked host memory for copies, kept from one to the next.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::ffi::{Context, Failed, HostBuffer};

/// Buffers that are in nobody's hands; the device may still be busy with some of them.
#[derive(Debug, Default)]
pub(crate) struct Staging(Mutex<Vec<HostBuffer>>);

impl Staging {
    /// A buffer of at least `len` bytes that the device is done with.
    pub(crate) fn take(&self, context: &Arc<Context>, len: usize) -> Result<HostBuffer, Failed> {
        let (found, superfluous) = self.search(len);
        // Freed without the lock: the driver may take its time.
        drop(superfluous);
        match found {
            Some(buffer) => Ok(buffer),
            None => HostBuffer::new(context, len),
        }
    }

    /// Keeps a buffer for who comes next.
    pub(crate) fn put(&self, buffer: HostBuffer) {
        self.lock().push(buffer);
    }

    /// A buffer that fits, and those that are idle and more than should be kept.
    fn search(&self, len: usize) -> (Option<HostBuffer>, Vec<HostBuffer>) {
        let mut buffers = self.lock();
        let (idle, busy): (Vec<_>, Vec<_>) =
            buffers.drain(..).partition(|buffer| buffer.is_done() == Ok(true));
        buffers.extend(busy);
        let (mut fitting, mut superfluous): (Vec<_>, Vec<_>) =
            idle.into_iter().partition(|buffer| buffer.len() >= len);
        let found = fitting.pop();
        while let Some(buffer) = fitting.pop() {
            if fitting.len() < KEPT { buffers.push(buffer) } else { superfluous.push(buffer) }
        }
        (found, superfluous)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<HostBuffer>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How many idle buffers are kept beside the one in use.
const KEPT: usize = 3;
