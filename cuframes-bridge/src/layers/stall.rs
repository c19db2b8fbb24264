//! [`Stall`]: since when a peer has taken nothing although bytes wait for it.

use core::time::Duration;

use cuframes_core::Instant;

/// Watches one connection. Sending has no clock, so progress is remembered, and the next look gives it the time that it has.
#[derive(Debug, Default)]
pub(crate) struct Stall {
    /// By when something has to be taken.
    until: Option<Instant>,
    progressed: bool,
}

impl Stall {
    /// The peer took something.
    pub(crate) const fn progressed(&mut self) {
        self.progressed = true;
    }

    /// Whether it has taken nothing for so long, `is_waiting` being whether bytes wait for it now.
    pub(crate) fn is_over(&mut self, now: Instant, is_waiting: bool, timeout: Duration) -> bool {
        match self.until {
            _ if !is_waiting => *self = Self::default(),
            Some(until) if until > now => {}
            Some(_) if !self.progressed => return true,
            _ => *self = Self { until: Some(now + timeout), progressed: false },
        }
        false
    }

    /// When to look again.
    pub(crate) const fn until(&self) -> Option<Instant> {
        self.until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(60);

    #[test]
    fn who_takes_nothing_for_so_long_is_over_and_who_takes_a_little_is_not() {
        let at = |seconds| Instant::ZERO + Duration::from_secs(seconds);
        let mut stall = Stall::default();
        assert!(!stall.is_over(at(0), false, TIMEOUT));
        assert_eq!(stall.until(), None);
        assert!(!stall.is_over(at(10), true, TIMEOUT));
        assert_eq!(stall.until(), Some(at(70)));
        stall.progressed();
        assert!(!stall.is_over(at(69), true, TIMEOUT));
        assert!(!stall.is_over(at(70), true, TIMEOUT));
        assert_eq!(stall.until(), Some(at(130)));
        assert!(!stall.is_over(at(129), true, TIMEOUT));
        assert!(stall.is_over(at(130), true, TIMEOUT));
        assert!(!stall.is_over(at(131), false, TIMEOUT));
        assert!(!stall.is_over(at(132), true, TIMEOUT));
        assert_eq!(stall.until(), Some(at(192)));
    }
}
