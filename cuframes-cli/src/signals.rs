//! SIGINT and SIGTERM: the first one asks the program to end cleanly, the second one ends it at once.

use std::io::{PipeReader, pipe};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::{flag, low_level};

use crate::error::{Failure, failed};

/// Tells whether a signal asked the program to end, and waits for one.
#[derive(Debug)]
pub(crate) struct Signals {
    raised: Arc<AtomicBool>,
    /// Readable from the first signal on: it is never read.
    wake: PipeReader,
}

impl Signals {
    /// Takes over both signals for the rest of the program's life.
    pub(crate) fn install() -> Result<Self, Failure> {
        Self::try_install().map_err(|error| failed!("can't handle signals: {error}"))
    }

    fn try_install() -> std::io::Result<Self> {
        let raised = Arc::new(AtomicBool::new(false));
        let (wake, waker) = pipe()?;
        for signal in [SIGINT, SIGTERM] {
            // In this order: the second signal finds the flag that the first one set.
            flag::register_conditional_default(signal, Arc::clone(&raised))?;
            flag::register(signal, Arc::clone(&raised))?;
            low_level::pipe::register(signal, waker.try_clone()?)?;
        }
        Ok(Self { raised, wake })
    }

    /// Whether a signal came.
    pub(crate) fn raised(&self) -> bool {
        self.raised.load(Ordering::Relaxed)
    }

    /// Waits for `duration`, or until a signal came. Answers whether one did.
    pub(crate) fn wait(&self, duration: Duration) -> bool {
        // A duration that no timespec can hold is as good as for ever.
        let timeout = Timespec::try_from(duration).ok();
        // EINTR is a signal; another error leaves nothing to wait with, and the flag still tells.
        let _ = poll(&mut [PollFd::new(&self.wake, PollFlags::IN)], timeout.as_ref());
        self.raised()
    }

    /// Waits until `fd` is readable or at its end. Answers `false` if a signal came first.
    pub(crate) fn wait_readable(&self, fd: BorrowedFd<'_>) -> std::io::Result<bool> {
        while !self.raised() {
            let mut fds =
                [PollFd::new(&self.wake, PollFlags::IN), PollFd::from_borrowed_fd(fd, PollFlags::IN)];
            match poll(&mut fds, None) {
                Ok(_) if !fds[1].revents().is_empty() => return Ok(true),
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(false)
    }
}
