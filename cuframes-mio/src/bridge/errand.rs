//! [`Errand`]: something that takes its time, away from the event loop.

use std::io;
use std::thread::{self, JoinHandle};

/// Work in a thread of its own. It is waited for when this is dropped: a stream that is made or ended in it would leave files
/// behind if the process ended meanwhile.
#[derive(Debug)]
pub(super) struct Errand<T>(Option<JoinHandle<T>>);

impl<T: Send + 'static> Errand<T> {
    /// Starts it; 15 bytes of the thread's name are kept.
    pub(super) fn start(name: &str, work: impl FnOnce() -> T + Send + 'static) -> io::Result<Self> {
        thread::Builder::new().name(name.into()).spawn(work).map(|thread| Self(Some(thread)))
    }

    pub(super) fn is_over(&self) -> bool {
        self.0.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Waits for it. `None` if it has panicked.
    pub(super) fn wait(mut self) -> Option<T> {
        self.0.take()?.join().ok()
    }
}

impl<T> Drop for Errand<T> {
    fn drop(&mut self) {
        if let Some(thread) = self.0.take() {
            // What it would have given goes with it.
            drop(thread.join());
        }
    }
}
