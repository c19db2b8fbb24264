//! The harness's arithmetic: distributions of times, and medians over rounds.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::numbers::{figure, whole};
use crate::system::Failure;

/// Times, counted in buckets that are a thousandth apart. They are counted in picoseconds, because a mean over a batch is
/// finer than the clock.
#[derive(Clone, Debug)]
pub(crate) struct Times(Histogram<u64>);

impl Times {
    /// # Errors
    /// Only for bounds that make no sense.
    pub(crate) fn new() -> Result<Self, Failure> {
        let histogram = Histogram::new_with_bounds(1, MAX_PS, 3);
        histogram.map(Self).map_err(|error| format!("can't make a histogram: {error:?}").into())
    }

    pub(crate) fn record(&mut self, nanos: f64) {
        self.0.saturating_record(whole(nanos * PS_PER_NS).max(1));
    }

    /// Nanoseconds that this share of all times does not exceed; `None` where nothing was recorded.
    pub(crate) fn quantile(&self, share: f64) -> Option<f64> {
        (!self.0.is_empty()).then(|| figure(self.0.value_at_quantile(share)) / PS_PER_NS)
    }

    /// The mean, in nanoseconds, of all but the slowest tenth; `None` where nothing was recorded. Where a clock ticks every
    /// ten nanoseconds a median is a multiple of that, and this is not; what an interrupt took is left out all the same.
    pub(crate) fn trimmed_mean(&self) -> Option<f64> {
        let kept = self.0.len() - self.0.len() / 10;
        let (mut sum, mut left) = (0.0, kept);
        for value in self.0.iter_recorded() {
            let count = value.count_at_value().min(left);
            sum += figure(value.value_iterated_to()) * figure(count);
            left -= count;
        }
        (kept > 0).then(|| sum / figure(kept) / PS_PER_NS)
    }

    pub(crate) fn counts(&self) -> Counts {
        self.0.iter_recorded().map(|value| (value.value_iterated_to(), value.count_at_value())).collect()
    }

    pub(crate) fn merge(&mut self, counts: &Counts) {
        for &(value, count) in counts {
            self.0.saturating_record_n(value, count);
        }
    }
}

/// What [`Times`] are made of: picoseconds, and how often.
pub(crate) type Counts = Vec<(u64, u64)>;

/// What came out in several rounds.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Debug)]
#[non_exhaustive]
pub struct Spread {
    /// The one in the middle; the mean of the two if there is none.
    pub median: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
}

impl Spread {
    /// `None` for no values.
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let (first, last) = (*values.first()?, *values.last()?);
        let middle = |index: usize| values.get(index).copied();
        let median = f64::midpoint(middle((values.len() - 1) / 2)?, middle(values.len() / 2)?);
        Some(Self { median, min: first, max: last })
    }
}

/// The ratios of two figures of each round, for those rounds that have both. Within a round the machine was the same to
/// both, so the median of these says more than the ratio of the medians.
pub(crate) fn ratios(figures: &[Option<f64>], bases: &[Option<f64>]) -> Option<Spread> {
    let both = figures.iter().zip(bases).filter_map(|(figure, base)| Some(((*figure)?, (*base)?)));
    Spread::of(both.filter(|(_, base)| *base > 0.0).map(|(figure, base)| figure / base))
}

const PS_PER_NS: f64 = 1000.0;

/// An hour: what takes longer counts as this.
const MAX_PS: u64 = 3_600_000_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_value_in_the_middle_or_the_mean_of_the_two() {
        let spread = |values: &[f64]| Spread::of(values.iter().copied()).map(|s| (s.median, s.min, s.max));
        assert_eq!(spread(&[]), None);
        assert_eq!(spread(&[7.0]), Some((7.0, 7.0, 7.0)));
        assert_eq!(spread(&[9.0, 1.0, 2.0]), Some((2.0, 1.0, 9.0)));
        assert_eq!(spread(&[4.0, 100.0, 1.0, 2.0]), Some((3.0, 1.0, 100.0)));
    }

    #[test]
    fn ratios_are_taken_within_a_round_and_skip_rounds_that_failed() {
        // The machine was slow in the second round. The ratio of the medians would be 2.
        let floor = [Some(10.0), Some(100.0), Some(20.0), None, Some(1.0)];
        let ours = [Some(30.0), Some(300.0), Some(40.0), Some(1.0), None];
        let ratio = ratios(&ours, &floor).unwrap();
        assert_eq!((ratio.median, ratio.min, ratio.max), (3.0, 2.0, 3.0));
        assert_eq!(ratios(&[None], &[Some(1.0)]), None);
        assert_eq!(ratios(&[Some(1.0)], &[Some(0.0)]), None);
    }

    #[test]
    fn merged_times_are_the_times_of_both() {
        let mut all = Times::new().unwrap();
        assert_eq!(all.quantile(0.5), None);
        for times in [&[100.0, 300.0][..], &[200.0, 400.0, 0.25]] {
            let mut part = Times::new().unwrap();
            times.iter().for_each(|time| part.record(*time));
            // As they come from another process.
            let counts = serde_json::from_str(&serde_json::to_string(&part.counts()).unwrap()).unwrap();
            all.merge(&counts);
        }
        for (share, expected) in [(0.2, 0.25), (0.4, 100.0), (0.6, 200.0), (0.8, 300.0), (1.0, 400.0)] {
            let found = all.quantile(share).unwrap();
            assert!((found - expected).abs() <= expected / 500.0, "{share}: {found}");
        }
        assert_eq!(all.counts().iter().map(|(_, count)| count).sum::<u64>(), 5);
    }

    #[test]
    fn the_trimmed_mean_leaves_the_slowest_tenth_out() {
        let mut times = Times::new().unwrap();
        assert_eq!(times.trimmed_mean(), None);
        for time in [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 1000.0] {
            times.record(time);
        }
        let mean = times.trimmed_mean().unwrap();
        assert!((mean - 5.0).abs() < 0.01, "{mean}");
    }

    #[test]
    fn a_time_beyond_all_bounds_is_the_longest_one() {
        let mut times = Times::new().unwrap();
        times.record(f64::MAX);
        times.record(-1.0);
        assert!(times.quantile(1.0).unwrap() >= 3.59e12);
        assert!(times.quantile(0.5).unwrap() <= 0.001);
    }
}
