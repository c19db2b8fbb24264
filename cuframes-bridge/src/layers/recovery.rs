//! [`Recovery`]: what to do when a request has failed. One replay, then the error goes up.

use super::Failure;

/// How often a request was replayed.
///
/// ```
/// use cuframes_bridge::layers::{Failure, Recovery, Step};
///
/// let mut recovery = Recovery::default();
/// let failure = Failure::Remote("worker KV prefix hash mismatch".into());
/// assert_eq!(recovery.failed(&failure), Step::Replay);
/// assert_eq!(recovery.failed(&failure), Step::GiveUp);
/// recovery.worked();
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Recovery {
    replayed: bool,
}

/// What to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Step {
    /// Send the whole history of tokens again, with a reset, on the same route.
    Replay,
    /// The same on a new route: the workers of the old one are forgotten already. If there is none, give up.
    ReplayElsewhere,
    /// Tell whoever wanted it.
    GiveUp,
}

impl Recovery {
    /// A request, or its replay, has failed.
    pub const fn failed(&mut self, failure: &Failure) -> Step {
        if self.replayed {
            return Step::GiveUp;
        }
        self.replayed = true;
        match failure {
            Failure::Remote(_) => Step::Replay,
            Failure::Transport(_) => Step::ReplayElsewhere,
        }
    }

    /// It worked: the next failure is a new one.
    pub const fn worked(&mut self) {
        self.replayed = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layers::Fault;

    #[test]
    fn there_is_one_replay_whatever_failed_first() {
        let (remote, transport) = (Failure::Remote("no".into()), Failure::Transport(Fault::Ended));
        for (first, second, step) in [
            (&remote, &remote, Step::Replay),
            (&remote, &transport, Step::Replay),
            (&transport, &remote, Step::ReplayElsewhere),
            (&transport, &transport, Step::ReplayElsewhere),
        ] {
            let mut recovery = Recovery::default();
            assert_eq!(recovery.failed(first), step);
            assert_eq!(recovery.failed(second), Step::GiveUp);
            assert_eq!(recovery.failed(first), Step::GiveUp);
            recovery.worked();
            assert_eq!(recovery.failed(first), step);
        }
    }
}
