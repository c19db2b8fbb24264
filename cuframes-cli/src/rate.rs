//! Frame rates as exact ratios, and the pace that follows from one.

use std::fmt;
use std::str::FromStr;
use std::time::{Duration, Instant};

/// Frames per second as a ratio, so that 30000/1001 stays exact. A numerator of 0 is "as fast as possible".
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Rate {
    pub(crate) num: u32,
    pub(crate) den: u32,
}

impl Rate {
    /// As fast as possible.
    pub(crate) const UNLIMITED: Self = Self { num: 0, den: 1 };

    /// Where nobody says otherwise.
    pub(crate) const DEFAULT: Self = Self { num: 30, den: 1 };

    pub(crate) fn is_unlimited(self) -> bool {
        self.num == 0
    }

    /// When frame `n` is due, counted from frame 0; zero if the rate is unlimited.
    fn due(self, n: u64) -> Duration {
        let nanos = u128::from(n) * u128::from(self.den) * NANOS_PER_SEC;
        let nanos = nanos.checked_div(u128::from(self.num)).unwrap_or(0);
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (num, den) = text.split_once('/').unwrap_or((text, "1"));
        match (num.parse(), den.parse()) {
            (Ok(num), Ok(den)) if den > 0 => Ok(Self { num, den }),
            _ => Err(format!("use a whole number or a ratio such as 30000/1001, at most {}", u32::MAX)),
        }
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.den {
            1 => write!(f, "{}", self.num),
            den => write!(f, "{}/{den}", self.num),
        }
    }
}

/// Says how long to wait before each frame.
///
/// Frames are due at multiples of the period, so that waits which end late don't add up. After a stall of a whole
/// period the schedule starts anew: a source that was held up goes on at its rate and doesn't rush to catch up.
#[derive(Debug)]
pub(crate) struct Pacer {
    rate: Rate,
    start: Instant,
    frames: u64,
}

impl Pacer {
    /// A pacer whose first frame is due at once.
    pub(crate) fn new(rate: Rate, now: Instant) -> Self {
        Self { rate, start: now, frames: 0 }
    }

    /// Time until the next frame is due; the caller waits for it, then publishes.
    pub(crate) fn delay(&mut self, now: Instant) -> Duration {
        let elapsed = now.saturating_duration_since(self.start);
        let due = self.rate.due(self.frames);
        if elapsed > due + self.rate.due(1) {
            (self.start, self.frames) = (now, 1);
            return Duration::ZERO;
        }
        self.frames += 1;
        due.saturating_sub(elapsed)
    }
}

const NANOS_PER_SEC: u128 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_and_ratios_are_rates_and_everything_else_is_refused() {
        assert_eq!("25".parse(), Ok(Rate { num: 25, den: 1 }));
        assert_eq!("30000/1001".parse(), Ok(Rate { num: 30000, den: 1001 }));
        assert_eq!("0".parse(), Ok(Rate::UNLIMITED));
        assert_eq!(Rate { num: 30000, den: 1001 }.to_string(), "30000/1001");
        for text in ["", "-1", "1/0", "29.97", "fast", "1/2/3", "4294967296"] {
            assert!(text.parse::<Rate>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn frames_are_due_at_exact_multiples_of_the_period() {
        let start = Instant::now();
        let mut pacer = Pacer::new(Rate { num: 30000, den: 1001 }, start);
        let delays: Vec<_> = (0..4).map(|_| pacer.delay(start).as_nanos()).collect();
        assert_eq!(delays, [0, 33_366_666, 66_733_333, 100_100_000]);
    }

    #[test]
    fn a_stall_moves_the_schedule_and_a_small_delay_does_not() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut pacer = Pacer::new(Rate { num: 10, den: 1 }, start);
        assert_eq!(pacer.delay(at(0)), Duration::ZERO);
        assert_eq!(pacer.delay(at(150)), Duration::ZERO, "50 ms late");
        assert_eq!(pacer.delay(at(150)), Duration::from_millis(50), "still due at 200 ms");
        assert_eq!(pacer.delay(at(1000)), Duration::ZERO, "700 ms late: a new schedule");
        assert_eq!(pacer.delay(at(1000)), Duration::from_millis(100));
    }

    #[test]
    fn an_unlimited_rate_never_waits() {
        let start = Instant::now();
        let mut pacer = Pacer::new(Rate::UNLIMITED, start);
        assert!((0..1000).all(|_| pacer.delay(start) == Duration::ZERO));
    }
}
