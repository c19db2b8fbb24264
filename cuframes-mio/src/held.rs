//! [`Held`]: what is finished when the stream of a device has come so far.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::lock::lock;

/// Something that waits for a device, and belongs to whoever takes it first: the device, or we, if it can't be told.
#[derive(Debug)]
pub(crate) struct Held<T>(Arc<Mutex<Option<T>>>);

impl<T: Send + 'static> Held<T> {
    pub(crate) fn new(held: T) -> Self {
        Self(Arc::new(Mutex::new(Some(held))))
    }

    /// For [`notify`](cuframes_core::gpu::Device::notify): gives it to `finish`.
    pub(crate) fn when_done(&self, finish: impl FnOnce(T) + Send + 'static) -> Box<dyn FnOnce() + Send> {
        let theirs = Self(Arc::clone(&self.0));
        Box::new(move || {
            if let Some(held) = theirs.take() {
                finish(held);
            }
        })
    }

    pub(crate) fn take(&self) -> Option<T> {
        lock(&self.0).take()
    }
}

/// How long a stream that could not be told may take to finish.
pub(crate) const PATIENCE: Duration = Duration::from_secs(1);
