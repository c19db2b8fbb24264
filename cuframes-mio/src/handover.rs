//! [`HandOver`]: the descriptors that a new subscriber gets (D-26), and the process behind it (D-20).

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use cuframes_core::Features;
use cuframes_core::wire::FdPurpose;
use cuframes_core::wire::control::EventFd;
use rustix::io::Errno;

use crate::liveness::{PidFd, is_gone};
use crate::shared::Shared;
use crate::stale::Claimed;
use crate::wake;

/// What every subscriber of a stream gets a copy of.
#[derive(Debug)]
pub(crate) struct Handouts {
    /// Those that lead to the frames, if there are any.
    pub(crate) frames: Vec<(EventFd, OwnedFd)>,
    /// The witness.
    pub(crate) witness: OwnedFd,
}

/// Everything for one subscriber, made before anything is promised to it.
#[derive(Debug)]
pub(crate) struct HandOver {
    /// Wakes the subscriber.
    pub(crate) bell: wake::EventFd,
    /// With which the subscriber wakes us.
    pub(crate) claim_bell: Option<wake::EventFd>,
    /// `None` where it can't be watched: then the connection alone tells (D-20).
    pub(crate) process: Option<PidFd>,
    /// What to send, in this order.
    pub(crate) fds: Vec<(EventFd, OwnedFd)>,
}

impl Handouts {
    /// Makes what the features in force on `connection` need.
    ///
    /// # Errors
    /// No descriptor is left, or the peer's process [is gone](is_gone).
    pub(crate) fn prepare(
        &self,
        connection: &impl AsFd,
        features: Features,
        files: &Claimed,
        shared: &Shared,
    ) -> io::Result<HandOver> {
        let bell = wake::EventFd::new()?;
        let single = |purpose, fd| (EventFd::single(purpose), fd);
        let mut fds = Vec::new();
        if features.contains(Features::FD_PASSING) {
            fds.push(single(FdPurpose::REGION, files.region_fd().try_clone_to_owned()?));
            for (message, fd) in &self.frames {
                fds.push((*message, fd.try_clone()?));
            }
        }
        if features.contains(Features::FD_PASSING.union(Features::WITNESS)) {
            fds.push(single(FdPurpose::WITNESS, self.witness.try_clone()?));
        }
        let mut claim_bell = None;
        if features.contains(Features::WAKE_HINT) {
            let bell = claim_bell.insert(shared.claim_bells.make()?);
            fds.push(single(FdPurpose::PUBLISHER_WAKE_UP, bell.as_fd().try_clone_to_owned()?));
        }
        fds.push(single(FdPurpose::WAKE_UP, bell.as_fd().try_clone_to_owned()?));
        // Rung once, for frames published since the bit is active.
        bell.ring()?;
        let process = match PidFd::of_peer(connection) {
            Ok(process) => Some(process),
            Err(error) if is_gone(&error) || is_out_of_descriptors(&error) => return Err(error),
            // An older kernel has none for a process outside our pid namespace.
            Err(_) => None,
        };
        Ok(HandOver { bell, claim_bell, process, fds })
    }
}

fn is_out_of_descriptors(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE))
}
