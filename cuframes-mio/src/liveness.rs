//! Who is at the other end of a socket, and whether a process still lives (D-9, D-20).
//!
//! A process is watched through a pidfd. `kill(pid, 0)` would be wrong across pid namespaces, on EPERM, when the pid is
//! used again, and for zombies (P-12).

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::sys::socket::{getsockopt, sockopt};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// The process that connected to a socket, or listened on it, as the kernel saw it at that moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PeerCred {
    /// Its process id in our pid namespace; `None` if it lives in one that we can't see, such as another container.
    pub(crate) pid: Option<u32>,
    /// Its effective user id.
    pub(crate) uid: u32,
}

impl PeerCred {
    /// The peer of a connected socket.
    pub(crate) fn of(socket: &impl AsFd) -> io::Result<Self> {
        // Not rustix's `socket_peercred`: its pid can't be 0, which is what the kernel says for another namespace.
        let peer = getsockopt(socket, sockopt::PeerCredentials)?;
        let pid = u32::try_from(peer.pid()).ok().filter(|&pid| pid != 0);
        Ok(Self { pid, uid: peer.uid() })
    }
}

/// A process. The descriptor is readable once the process is gone; a zombie is gone.
#[derive(Debug)]
pub(crate) struct PidFd(OwnedFd);

impl PidFd {
    /// The peer of a connected socket, whatever its pid namespace.
    ///
    /// # Errors
    /// It [is gone](is_gone), or this kernel can't tell (before Linux 6.5, for a peer whose pid we can't see).
    pub(crate) fn of_peer(socket: &impl AsFd) -> io::Result<Self> {
        Self::told_or_looked_up(getsockopt(socket, sockopt::PeerPidfd), PeerCred::of(socket)?.pid)
    }

    /// What the kernel says, or the process with the peer's number where it does not know the question. Where it knows
    /// that the peer is gone, its number may be that of another process already.
    fn told_or_looked_up(told: nix::Result<OwnedFd>, pid: Option<u32>) -> io::Result<Self> {
        match (told, pid) {
            (Ok(fd), _) => Ok(Self(fd)),
            (Err(nix::Error::ENOPROTOOPT | nix::Error::EOPNOTSUPP), Some(pid)) => Ok(Self::open(pid)?),
            (Err(errno), _) => Err(errno.into()),
        }
    }

    /// The process with this id in our pid namespace.
    fn open(pid: u32) -> Result<Self, Errno> {
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(Errno::SRCH)?;
        pidfd_open(pid, PidfdFlags::empty()).map(Self)
    }

    /// Whether the process is gone.
    pub(crate) fn is_dead(&self) -> io::Result<bool> {
        let mut fds = [PollFd::new(self, PollFlags::IN)];
        Ok(poll(&mut fds, Some(&Timespec::default()))? != 0)
    }
}

impl AsFd for PidFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Whether `pid`, a process of our pid namespace, is certainly gone. In doubt it is not.
pub(crate) fn is_dead(pid: u32) -> bool {
    match PidFd::open(pid) {
        Ok(process) => process.is_dead().unwrap_or(false),
        Err(errno) => is_nobody(errno),
    }
}

/// Whether a process could not be watched because it is gone.
pub(crate) fn is_gone(error: &io::Error) -> bool {
    Errno::from_io_error(error).is_some_and(is_nobody)
}

/// Nobody has the number, or (EINVAL, newer kernels ENOENT) it went to a thread of another process.
fn is_nobody(errno: Errno) -> bool {
    matches!(errno, Errno::SRCH | Errno::INVAL | Errno::NOENT)
}

#[cfg(test)]
mod tests;
