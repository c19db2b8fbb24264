//! [`EventFd`], the wake-up of a peer that sleeps (§3.7, X-3).
//!
//! A ring is a hint: whoever wakes up drains the descriptor first and looks at the shared words afterwards, so that a
//! ring between the two is never lost (P-16).

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::{Errno, read, retry_on_intr, write};

/// An eventfd that never blocks.
#[derive(Debug)]
pub(crate) struct EventFd(OwnedFd);

impl EventFd {
    /// A new one that has not been rung.
    ///
    /// # Errors
    /// No descriptor is left.
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self(eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?))
    }

    /// One that came from the publisher. A plain v1 publisher may have made it blocking, and then a read would hang.
    ///
    /// # Errors
    /// The descriptor's flags can't be changed.
    pub(crate) fn from_fd(fd: OwnedFd) -> io::Result<Self> {
        let flags = fcntl_getfl(&fd)?;
        if !flags.contains(OFlags::NONBLOCK) {
            fcntl_setfl(&fd, flags | OFlags::NONBLOCK)?;
        }
        Ok(Self(fd))
    }

    /// Wakes whoever sleeps on it.
    ///
    /// # Errors
    /// The descriptor is no eventfd.
    pub(crate) fn ring(&self) -> io::Result<()> {
        match retry_on_intr(|| write(&self.0, &1_u64.to_ne_bytes())) {
            // EAGAIN: the counter is full, so the other side is woken anyway (P-16).
            Ok(_) | Err(Errno::AGAIN) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Forgets all rings so far. One read is enough: it takes the whole counter.
    ///
    /// # Errors
    /// The descriptor can't be read.
    pub(crate) fn drain(&self) -> io::Result<()> {
        match retry_on_intr(|| read(&self.0, &mut [0; size_of::<u64>()])) {
            Ok(_) | Err(Errno::AGAIN) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Sleeps until one of `fds` is readable or at its end, or `limit` has passed; says which are. A signal ends it early.
pub(crate) fn sleep<const N: usize>(fds: [BorrowedFd<'_>; N], limit: Duration) -> io::Result<[bool; N]> {
    // A limit that no timespec can hold is as good as for ever.
    let timeout = Timespec::try_from(limit).ok();
    let mut polled = fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
    match poll(&mut polled, timeout.as_ref()) {
        Ok(_) => Ok(polled.map(|fd| !fd.revents().is_empty())),
        Err(Errno::INTR) => Ok([false; N]),
        Err(errno) => Err(errno.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::is_readable;

    #[test]
    fn a_ring_makes_it_readable_until_it_is_drained() {
        let bell = EventFd::new().unwrap();
        assert!(!is_readable(&bell));
        bell.ring().unwrap();
        bell.ring().unwrap();
        assert!(is_readable(&bell));
        bell.drain().unwrap();
        assert!(!is_readable(&bell));
        bell.drain().unwrap();
    }

    #[test]
    fn ringing_a_saturated_one_succeeds_and_leaves_it_readable() {
        let bell = EventFd::new().unwrap();
        write(&bell, &(u64::MAX - 1).to_ne_bytes()).unwrap();
        bell.ring().unwrap();
        assert!(is_readable(&bell));
    }

    #[test]
    fn a_blocking_one_from_a_peer_does_not_block_us() {
        let bell = EventFd::from_fd(eventfd(0, EventfdFlags::CLOEXEC).unwrap()).unwrap();
        bell.drain().unwrap();
        bell.ring().unwrap();
        assert!(is_readable(&bell));
    }
}
