//! [`Entrance`]: accepting connections, also when no descriptor is left for them.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use cuframes_core::Instant;
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with};

/// A listening socket, which does not block.
///
/// When this process has no descriptor left, what waits in the queue can't be accepted, and an edge-triggered loop would
/// not hear of it again, or spin. So one descriptor is kept in reserve: it is given up for a moment, and whoever is
/// accepted in its place can be told why it has to go.
#[derive(Debug)]
pub(crate) struct Entrance {
    listener: OwnedFd,
    /// A copy of the listener, only to hold a place.
    reserve: Option<OwnedFd>,
    /// When to try again.
    again: Option<Instant>,
}

/// Who stands at the entrance.
#[derive(Debug)]
pub(crate) enum Caller {
    /// A peer.
    Peer(OwnedFd),
    /// A peer that can't stay, because it took the last descriptor.
    Surplus(OwnedFd),
    /// Nobody can be accepted for this reason; it is time to try again when [`Entrance::poll_timeout`] says.
    Blocked(io::Error),
    /// Nobody, or nobody any more.
    Nobody,
}

impl Entrance {
    pub(crate) fn new(listener: impl Into<OwnedFd>) -> Self {
        let listener = listener.into();
        let reserve = listener.try_clone().ok();
        Self { listener, reserve, again: None }
    }

    /// Takes the next connection out of the queue.
    pub(crate) fn next(&mut self, now: Instant) -> Caller {
        self.again = None;
        if self.reserve.is_none() {
            self.reserve = self.listener.try_clone().ok();
        }
        match self.accept() {
            // With nobody in the queue, too.
            Err(Errno::MFILE | Errno::NFILE) if self.reserve.take().is_some() => match self.accept() {
                Ok(socket) => Caller::Surplus(socket),
                Err(errno) => self.without(errno, now),
            },
            Ok(socket) => Caller::Peer(socket),
            Err(errno) => self.without(errno, now),
        }
    }

    /// When [`next`](Self::next) is due although no event came.
    pub(crate) const fn poll_timeout(&self) -> Option<Instant> {
        self.again
    }

    /// [`next`](Self::next) is due at `now`.
    pub(crate) const fn call_again(&mut self, now: Instant) {
        self.again = Some(now);
    }

    fn without(&mut self, errno: Errno, now: Instant) -> Caller {
        if errno == Errno::WOULDBLOCK {
            return Caller::Nobody;
        }
        self.again = Some(now + PAUSE);
        Caller::Blocked(errno.into())
    }

    fn accept(&self) -> Result<OwnedFd, Errno> {
        loop {
            match accept_with(&self.listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                // It was gone before we looked, or a signal came.
                Err(Errno::CONNABORTED | Errno::INTR) => {}
                result => return result,
            }
        }
    }
}

impl AsFd for Entrance {
    /// The descriptor to watch.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

/// How long to wait after a connection could not be accepted: trying at once would only spin.
const PAUSE: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::iter;
    use std::os::unix::net::{UnixListener, UnixStream};
    use std::path::Path;

    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    use super::*;
    use crate::testing::{child, child_argument};

    #[test]
    fn without_any_descriptor_it_waits_and_with_one_it_says_who_has_to_go() {
        let dir = tempfile::tempdir().unwrap();
        let name = "entrance::tests::child_has_no_descriptor_left";
        assert!(child(name, dir.path()).status().unwrap().success());
    }

    #[test]
    #[ignore = "needs a process of its own, whose limits it changes: see the test above"]
    fn child_has_no_descriptor_left() {
        let path = child_argument().join("sock");
        let listener = UnixListener::bind(&path).unwrap();
        listener.set_nonblocking(true).unwrap();
        let mut entrance = Entrance::new(listener);
        let _peers: Vec<_> = (0..3).map(|_| UnixStream::connect(&path).unwrap()).collect();
        let (limit, now) = (getrlimit(Resource::Nofile), Instant::from_nanos(1));
        setrlimit(Resource::Nofile, Rlimit { current: Some(64), ..limit }).unwrap();
        let mut fillers: Vec<_> = iter::from_fn(|| File::open(Path::new("/dev/null")).ok()).collect();
        assert!(matches!(entrance.next(now), Caller::Surplus(_)));
        // Somebody else was quicker.
        entrance.reserve = None;
        fillers.extend(iter::from_fn(|| File::open(Path::new("/dev/null")).ok()));
        assert!(matches!(entrance.next(now), Caller::Blocked(_)));
        assert_eq!(entrance.poll_timeout(), Some(now + PAUSE));
        fillers.pop();
        assert!(matches!(entrance.next(now), Caller::Surplus(_)));
        assert_eq!(entrance.poll_timeout(), None);
        fillers.clear();
        assert!(matches!(entrance.next(now), Caller::Peer(_)));
        assert!(matches!(entrance.next(now), Caller::Nobody));
    }
}
