//! [`Gauge`]: how much of something is done, as a bar.

use std::fmt;
use std::time::Duration;

use indicatif::HumanDuration;

/// How much is done, and how long the rest will take if it goes on like this.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Gauge {
    /// Of 1000.
    done: u16,
    left: Option<Duration>,
}

impl Gauge {
    /// `done` of `total` took so long.
    pub(crate) fn new(done: u128, total: u128, elapsed: Duration) -> Self {
        let done = done.min(total);
        let share = done.saturating_mul(FULL.into()).checked_div(total);
        let left = (total - done).saturating_mul(elapsed.as_nanos()).checked_div(done);
        Self {
            done: share.and_then(|share| u16::try_from(share).ok()).unwrap_or(FULL),
            left: left.map(|ns| Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX))),
        }
    }

    /// The one of two ends that comes first.
    pub(crate) fn nearer(self, other: Self) -> Self {
        if other.done > self.done { other } else { self }
    }
}

impl fmt::Display for Gauge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let filled = usize::from(self.done) * WIDTH / usize::from(FULL);
        write!(f, "[{:-<WIDTH$}] {} %", "#".repeat(filled), self.done / 10)?;
        self.left.map_or(Ok(()), |left| write!(f, ", {} left", HumanDuration(left)))
    }
}

const FULL: u16 = 1000;
const WIDTH: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gauge_shows_what_is_done_and_what_is_left() {
        let gauge = |done, total| Gauge::new(done, total, Duration::from_secs(10)).to_string();
        assert_eq!(gauge(0, 100), "[--------------------] 0 %");
        assert_eq!(gauge(25, 100), "[#####---------------] 25 %, 30 seconds left");
        assert_eq!(gauge(100, 100), "[####################] 100 %, 0 seconds left");
        assert_eq!(gauge(7, 5), gauge(5, 5), "more than was to be done");
        assert_eq!(gauge(0, 0), "[####################] 100 %", "nothing to do");
    }

    #[test]
    fn of_two_ends_the_nearer_one_counts() {
        let [near, far] = [90, 10].map(|done| Gauge::new(done, 100, Duration::from_secs(1)));
        assert_eq!((near.nearer(far), far.nearer(near)), (near, near));
    }
}
