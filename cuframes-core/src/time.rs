//! Time as an argument: [`Instant`] is a count of nanoseconds that the driver reads from `CLOCK_MONOTONIC`.

use core::fmt;
use core::ops::Add;
use core::time::Duration;

/// A point in time, in nanoseconds of the driver's monotonic clock. The core never reads a clock itself.
///
/// The same clock stamps frames (`pts_ns`, D-8), so that a subscriber can compute latencies across processes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Instant(i64);

impl Instant {
    /// The clock's origin.
    pub const ZERO: Self = Self(0);

    /// The instant `nanos` nanoseconds after the clock's origin.
    #[must_use]
    pub const fn from_nanos(nanos: i64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the clock's origin.
    #[must_use]
    pub const fn as_nanos(self) -> i64 {
        self.0
    }

    /// Time since `earlier`, zero if `earlier` is later.
    #[must_use]
    pub fn saturating_since(self, earlier: Self) -> Duration {
        Duration::from_nanos(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

impl Add<Duration> for Instant {
    type Output = Self;

    /// Saturates at the end of time, so that "never" may be written as `Duration::MAX`.
    fn add(self, rhs: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(rhs.as_nanos()).unwrap_or(i64::MAX)))
    }
}

impl fmt::Debug for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}ns", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adding_never_overflows_and_differences_never_go_below_zero() {
        let late = Instant::from_nanos(5) + Duration::MAX;
        assert_eq!(late.as_nanos(), i64::MAX);
        assert_eq!(Instant::from_nanos(3).saturating_since(Instant::from_nanos(5)), Duration::ZERO);
        assert_eq!(Instant::from_nanos(5).saturating_since(Instant::from_nanos(3)), Duration::from_nanos(2));
    }
}
