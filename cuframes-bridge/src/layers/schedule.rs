//! [`Schedule`]: when to try to connect again. Pure: it counts, and the caller waits.
//!
//! Up to 200 attempts 25 ms apart for what waiting may cure; then, and after everything else, a pause of 1 s, and all begins
//! again, for ever.

use core::time::Duration;

/// When to try to connect again.
///
/// ```
/// use core::time::Duration;
/// use cuframes_bridge::layers::{Schedule, Trouble};
///
/// let mut schedule = Schedule::default();
/// assert_eq!(schedule.failed(Trouble::Refused), Duration::from_millis(25));
/// assert_eq!(schedule.failed(Trouble::Other), Duration::from_secs(1));
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Schedule {
    /// Attempts of this round that failed.
    tries: u32,
}

/// Why an attempt to connect failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Trouble {
    /// Nobody listens there.
    Refused,
    /// There is no way to the host.
    HostUnreachable,
    /// There is no way to its network.
    NetUnreachable,
    /// It did not answer.
    TimedOut,
    /// An address that this host does not have (yet).
    AddressNotAvailable,
    /// Anything else.
    Other,
}

impl Trouble {
    /// Whether waiting may cure it.
    #[must_use]
    pub const fn may_pass(self) -> bool {
        !matches!(self, Self::Other)
    }
}

impl Schedule {
    /// An attempt failed: how long to wait before the next one.
    pub const fn failed(&mut self, trouble: Trouble) -> Duration {
        self.tries += 1;
        if trouble.may_pass() && self.tries < TRIES { BETWEEN } else { self.pause() }
    }

    /// A connection was there, and is no more: how long to wait before the next attempt.
    pub const fn lost(&mut self) -> Duration {
        self.pause()
    }

    const fn pause(&mut self) -> Duration {
        self.tries = 0;
        PAUSE
    }
}

/// Attempts of one round.
const TRIES: u32 = 200;
/// Between two attempts.
const BETWEEN: Duration = Duration::from_millis(25);
/// Between two rounds.
const PAUSE: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_hundred_attempts_are_25_ms_apart_and_then_comes_a_pause_of_a_second() {
        let mut schedule = Schedule::default();
        for _ in 0..3 {
            for _ in 0..199 {
                assert_eq!(schedule.failed(Trouble::Refused), BETWEEN);
            }
            assert_eq!(schedule.failed(Trouble::Refused), PAUSE);
        }
    }

    #[test]
    fn what_waiting_does_not_cure_ends_the_round_at_once() {
        let mut schedule = Schedule::default();
        for trouble in [
            Trouble::Refused,
            Trouble::HostUnreachable,
            Trouble::NetUnreachable,
            Trouble::TimedOut,
            Trouble::AddressNotAvailable,
        ] {
            assert_eq!(schedule.failed(trouble), BETWEEN, "{trouble:?}");
        }
        assert_eq!(schedule.failed(Trouble::Other), PAUSE);
        for _ in 0..199 {
            assert_eq!(schedule.failed(Trouble::TimedOut), BETWEEN);
        }
    }

    #[test]
    fn after_a_connection_that_was_lost_a_new_round_begins_with_a_pause() {
        let mut schedule = Schedule::default();
        for _ in 0..100 {
            schedule.failed(Trouble::Refused);
        }
        assert_eq!(schedule.lost(), PAUSE);
        for _ in 0..199 {
            assert_eq!(schedule.failed(Trouble::Refused), BETWEEN);
        }
    }
}
