//! [`Figure`]: what one measurement came to.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::stats::{Counts, Times};
use crate::system::Failure;

/// One number of a case, and what it is.
#[derive(Serialize, Deserialize, Clone, Debug)]
pub(crate) struct Figure {
    /// Its name among the figures of the case: also in JSON, where it must stay what it is.
    pub(crate) metric: String,
    pub(crate) unit: Unit,
    pub(crate) value: f64,
    /// All times that it is drawn from, where they are drawn.
    pub(crate) counts: Option<Counts>,
}

impl Figure {
    pub(crate) fn nanos(metric: &str, value: f64) -> Self {
        Self { metric: metric.into(), unit: Unit::Nanoseconds, value, counts: None }
    }

    pub(crate) fn rate(metric: &str, value: f64) -> Self {
        Self { metric: metric.into(), unit: Unit::PerSecond, value, counts: None }
    }

    /// Those of a distribution, by the names of [`quantile`].
    ///
    /// # Errors
    /// Nothing was recorded.
    pub(crate) fn of_times(times: &Times, metrics: &[&str]) -> Result<Vec<Self>, Failure> {
        let figure = |metric: &&str| Some(Self::nanos(metric, times.quantile(quantile(metric)?)?));
        let figures: Option<Vec<_>> = metrics.iter().map(figure).collect();
        figures.ok_or_else(|| "nothing was measured".into())
    }
}

/// The share that `p50`, `p99` and the like mean, also as the last word of a longer name.
fn quantile(metric: &str) -> Option<f64> {
    let number: f64 = metric.rsplit(' ').next()?.strip_prefix('p')?.parse().ok()?;
    Some(number / 100.0)
}

/// What figures count.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Unit {
    /// Less is better.
    #[serde(rename = "ns")]
    Nanoseconds,
    /// More is better.
    #[serde(rename = "1/s")]
    PerSecond,
}

impl Unit {
    /// A figure as people read it, at most 9 characters.
    pub(crate) fn show(self, value: f64) -> impl fmt::Display {
        let (value, unit) = match (self, value) {
            (Self::PerSecond, _) => (value, "/s"),
            (_, ..1e3) => (value, " ns"),
            (_, ..1e6) => (value / 1e3, " µs"),
            (_, ..1e9) => (value / 1e6, " ms"),
            _ => (value / 1e9, " s"),
        };
        match value {
            ..9.95 => format!("{value:.2}{unit}"),
            ..99.5 => format!("{value:.1}{unit}"),
            _ => format!("{value:.0}{unit}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_shown_with_three_digits_at_least() {
        let ns = [0.0, 9.94, 87.25, 999.4, 1234.0, 85_000.0, 999_999.0, 12_345_678.0, 3e9, 6e10];
        let shown = ns.map(|ns| Unit::Nanoseconds.show(ns).to_string());
        let expected = [
            "0.00 ns", "9.94 ns", "87.2 ns", "999 ns", "1.23 µs", "85.0 µs", "1000 µs", "12.3 ms", "3.00 s",
            "60.0 s",
        ];
        assert_eq!(shown, expected);
        assert_eq!(Unit::PerSecond.show(1234.5).to_string(), "1234/s");
    }

    #[test]
    fn quantiles_have_the_names_that_people_use() {
        assert_eq!(
            ["p50", "p99.9", "write p99", "frames", "p"].map(quantile),
            [Some(0.5), Some(0.9990000000000001), Some(0.99), None, None]
        );
    }

    #[test]
    fn figures_of_no_times_are_an_error() {
        let mut times = Times::new().unwrap();
        assert!(Figure::of_times(&times, &["p50"]).is_err());
        times.record(5.0);
        let figures = Figure::of_times(&times, &["p50", "p99"]).unwrap();
        assert_eq!(figures.iter().map(|figure| &*figure.metric).collect::<Vec<_>>(), ["p50", "p99"]);
        assert!(figures.iter().all(|figure| (figure.value - 5.0).abs() < 0.01), "{figures:?}");
    }
}
