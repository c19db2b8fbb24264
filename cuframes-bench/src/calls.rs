//! [`Calls`]: times of single calls, which are hardly longer than a look at the clock.

use crate::figures::Figure;
use crate::numbers::{figure, now};
use crate::stats::Times;
use crate::system::Failure;

/// Times single calls.
#[derive(Debug)]
pub(crate) struct Calls {
    times: Times,
    /// Nanoseconds between two looks at the clock with nothing between them: what every call seems to take longer.
    clock: f64,
}

impl Calls {
    pub(crate) fn new() -> Result<Self, Failure> {
        let mut clock = Times::new()?;
        for _ in 0..LOOKS {
            let start = now();
            clock.record(figure(now().saturating_sub(start)));
        }
        Ok(Self { times: Times::new()?, clock: clock.trimmed_mean().unwrap_or(0.0) })
    }

    /// A call took from `start` to `end`.
    #[inline]
    pub(crate) fn record(&mut self, start: u64, end: u64) {
        self.times.record(figure(end.saturating_sub(start)));
    }

    /// What they take: the trimmed mean and p99, under names that begin with `prefix`.
    ///
    /// # Errors
    /// None was recorded.
    pub(crate) fn figures(&self, prefix: &str) -> Result<[Figure; 2], Failure> {
        let Self { times, clock } = self;
        let (mean, p99) = times.trimmed_mean().zip(times.quantile(0.99)).ok_or("no call was measured")?;
        let net = |nanos: f64| (nanos - clock).max(LEAST);
        Ok([
            Figure::nanos(&format!("{prefix}mean"), net(mean)),
            Figure::nanos(&format!("{prefix}p99"), net(p99)),
        ])
    }
}

const LOOKS: u32 = 10_000;

/// What can't be told from nothing counts as this many nanoseconds.
const LEAST: f64 = 1.0;
