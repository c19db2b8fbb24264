//! SIGINT, SIGTERM and SIGHUP: the first one asks the program to end cleanly, a later one is in more of a hurry.
//!
//! Later is [`SETTLE`], because some signals that are meant once come twice: timeout(1) signals a process and then its
//! whole group, and the kernel signals the death of a parent once for each of its threads.

use std::ffi::c_int;
use std::io::{self, PipeReader, pipe};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use std::{fs, process, thread};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::{flag, low_level};

use crate::error::{Failure, failed};

/// Tells whether a signal asked the program to end, and waits for one.
#[derive(Debug)]
pub(crate) struct Signals {
    raised: Arc<AtomicBool>,
    raised_again: Arc<AtomicBool>,
    /// Readable from the first signal on: it is never read.
    wake: PipeReader,
}

impl Signals {
    /// Takes over the signals for the rest of the program's life; but not SIGHUP where it was ignored before, for then
    /// the program is to outlive its terminal.
    pub(crate) fn install(later: Later) -> Result<Self, Failure> {
        Self::try_install(later).map_err(|error| {
            failed!("can't handle signals: {error}; raise the limits (ulimit -n, ulimit -u)")
        })
    }

    fn try_install(later: Later) -> io::Result<Self> {
        let (raised, raised_again) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let is_late = Arc::new(AtomicBool::new(false));
        let (wake, waker) = pipe()?;
        let mut signals = vec![SIGINT, SIGTERM];
        if !is_ignored(SIGHUP) {
            signals.push(SIGHUP);
        }
        for &signal in &signals {
            flag::register_conditional_default(signal, Arc::clone(&is_late))?;
            flag::register(signal, Arc::clone(&raised))?;
            low_level::pipe::register(signal, waker.try_clone()?)?;
        }
        // A write beyond the limit on file sizes is an error like any other.
        flag::register(SIGXFSZ, Arc::default())?;
        let first = wake.try_clone()?;
        let again = Arc::clone(&raised_again);
        thread::Builder::new().name("cuframes-signal".into()).spawn(move || {
            wait_for(&first);
            thread::sleep(SETTLE);
            match later {
                Later::Ends => is_late.store(true, Ordering::Relaxed),
                Later::Hurries => signals.into_iter().for_each(|signal| {
                    // If it fails, the end takes its time.
                    let _ = flag::register(signal, Arc::clone(&again));
                }),
            }
        })?;
        Ok(Self { raised, raised_again, wake })
    }

    /// Ends the program [`PATIENCE`] after the first signal, even if it is blocked in a system call: for a command that
    /// leaves nothing behind when it is cut off.
    pub(crate) fn insist(&self) -> io::Result<()> {
        self.insist_with(|| 0)
    }

    /// As [`insist`](Self::insist), but first does what must not be left out, and learns the exit code from it.
    pub(crate) fn insist_with(&self, last: impl FnOnce() -> i32 + Send + 'static) -> io::Result<()> {
        let wake = self.wake.try_clone()?;
        thread::Builder::new().name("cuframes-insist".into()).spawn(move || {
            wait_for(&wake);
            thread::sleep(PATIENCE);
            process::exit(last());
        })?;
        Ok(())
    }

    /// Whether a signal came.
    pub(crate) fn raised(&self) -> bool {
        self.raised.load(Ordering::Relaxed)
    }

    /// Whether a later one came, with [`Later::Hurries`].
    pub(crate) fn raised_again(&self) -> bool {
        self.raised_again.load(Ordering::Relaxed)
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
    pub(crate) fn wait_readable(&self, fd: BorrowedFd<'_>) -> io::Result<bool> {
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

/// What a signal does that comes after the first.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Later {
    /// Ends the program at once.
    Ends,
    /// Is noted: the program must not end without having cleaned up.
    Hurries,
}

/// Whether this process was started with a signal ignored, as nohup(1) does with SIGHUP.
fn is_ignored(signal: c_int) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .is_some_and(|mask| mask & (1 << (signal - 1)) != 0)
}

fn wait_for(wake: &PipeReader) {
    while poll(&mut [PollFd::new(wake, PollFlags::IN)], None) == Err(Errno::INTR) {}
}

/// How long a command may take to end by itself.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long a second signal counts as the first.
const SETTLE: Duration = Duration::from_millis(500);
