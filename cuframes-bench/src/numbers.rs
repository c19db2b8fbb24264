//! Clocks, and the conversions that figures need.

use std::time::Duration;

use rustix::time::{ClockId, Timespec, clock_gettime};

/// Nanoseconds of `CLOCK_MONOTONIC`, which every process of the host sees alike.
#[inline]
pub(crate) fn now() -> u64 {
    nanos(clock_gettime(ClockId::Monotonic))
}

/// Nanoseconds that the threads of this process have spent on CPUs.
pub(crate) fn cpu_time() -> u64 {
    nanos(clock_gettime(ClockId::ProcessCPUTime))
}

/// Waits without giving the CPU away.
pub(crate) fn spin_for(duration: Duration) {
    let end = now().saturating_add(saturating_nanos(duration));
    while now() < end {
        std::hint::spin_loop();
    }
}

pub(crate) fn saturating_nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// A count or a time as a figure.
#[expect(clippy::as_conversions, reason = "figures are for people: the 53 bits of an f64 are plenty")]
pub(crate) const fn figure(n: u64) -> f64 {
    n as f64
}

/// A figure as a whole number; 0 where it is negative or none.
#[expect(clippy::as_conversions, reason = "a cast of a float to an integer saturates")]
pub(crate) fn whole(figure: f64) -> u64 {
    figure.round() as u64
}

pub(crate) fn count(n: usize) -> u64 {
    u64::try_from(n).unwrap_or(u64::MAX)
}

#[inline]
fn nanos(time: Timespec) -> u64 {
    // Neither clock is ever negative.
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(u64::try_from(time.tv_nsec).unwrap_or(0))
}
