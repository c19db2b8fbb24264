//! Values that several commands take.

use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use cuframes_core::RingSize;

use crate::rate::Rate;

/// Accepts the names of `values`, and lists them in the help and in the error.
pub(super) fn one_of<T>(
    values: &'static [T],
    name: fn(T) -> Option<&'static str>,
) -> impl TypedValueParser<Value = T>
where
    T: Copy + Send + Sync + 'static,
{
    PossibleValuesParser::new(values.iter().copied().filter_map(name)).try_map(move |text| {
        values.iter().copied().find(|value| name(*value) == Some(&text)).ok_or("no such value")
    })
}

pub(super) fn ring_size(text: &str) -> Result<RingSize, String> {
    text.parse()
        .ok()
        .and_then(RingSize::new)
        .ok_or_else(|| format!("a ring has 1 to {} frames", RingSize::MAX))
}

/// A rate for a file: it can't be "as fast as possible".
pub(super) fn real_rate(text: &str) -> Result<Rate, String> {
    text.parse()
        .and_then(|rate: Rate| if rate.is_unlimited() { Err("use a rate above 0".into()) } else { Ok(rate) })
}

pub(super) fn seconds(text: &str) -> Result<Duration, String> {
    text.parse()
        .ok()
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        // No clock reaches further, and nobody sees the difference.
        .map(|time| time.min(CENTURY))
        .ok_or_else(|| "use a number of seconds such as 5 or 0.5".into())
}

pub(super) fn some_seconds(text: &str) -> Result<Duration, String> {
    seconds(text)
        .and_then(|time| if time.is_zero() { Err("use more than 0 seconds".into()) } else { Ok(time) })
}

pub(super) fn milliseconds(text: &str) -> Result<Duration, String> {
    text.parse().map(Duration::from_millis).map_err(|_| "use a whole number of milliseconds".into())
}

const CENTURY: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_and_times_outside_their_range_are_refused() {
        assert_eq!(ring_size("1").map(RingSize::get), Ok(1));
        assert_eq!(ring_size("16").map(RingSize::get), Ok(16));
        assert!(["0", "17", "-1", "many"].iter().all(|text| ring_size(text).is_err()));
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
        assert!(["-1", "nan", "inf", "1e30", "soon"].iter().all(|text| seconds(text).is_err()));
        assert_eq!(seconds("1e19"), Ok(CENTURY));
        assert!(some_seconds("0").is_err());
        assert!(real_rate("0").is_err());
    }
}
