//! Going on with the next publisher (D-24): the settings, [`Reconnect`], and what the user is told, [`StreamEvent`].

use std::time::Duration;

use cuframes_core::FrameMeta;
use cuframes_core::error::ErrorCode;

use crate::error::Error;

/// How a subscriber looks for the next publisher: at once, whenever its socket appears in a run directory (inotify), and
/// again after pauses that grow.
///
/// ```
/// use std::time::Duration;
///
/// let mut reconnect = cuframes_mio::Reconnect::default();
/// reconnect.max_delay = Duration::from_millis(500);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Reconnect {
    /// The first pause between two attempts; each is twice as long as the one before. At least 1 ms, which is the
    /// default: between the moment when a socket appears and the one when somebody listens on it is less.
    pub first_delay: Duration,
    /// The longest pause, by default 2 s: how late a publisher is noticed where inotify can't be had. A subscriber that
    /// was attached for a shorter time counts that as part of the next pause, so that evictions in a row, or a publisher
    /// that fails again and again, do not keep it busy.
    pub max_delay: Duration,
}

impl Default for Reconnect {
    fn default() -> Self {
        Self { first_delay: MIN_DELAY, max_delay: Duration::from_secs(2) }
    }
}

impl Reconnect {
    /// The pause at the beginning.
    pub(crate) fn first(&self) -> Duration {
        self.first_delay.max(MIN_DELAY)
    }

    /// The pause that follows `delay`.
    pub(crate) fn after(&self, delay: Duration) -> Duration {
        delay.saturating_mul(2).min(self.max_delay).max(self.first())
    }
}

/// What happened to the stream of a subscriber.
#[derive(Debug)]
#[non_exhaustive]
pub enum StreamEvent {
    /// The subscriber is attached to a publisher: the first one, or another one, or the same one again. The frames handed
    /// out from here on are its frames.
    #[non_exhaustive]
    Attached {
        /// The random number of the publisher; 0 from a plain v1 publisher.
        epoch: u64,
        /// Its process, if it is one that we can see.
        publisher: Option<u32>,
        /// Geometry of its frames.
        meta: FrameMeta,
        /// Whether that is another geometry than before.
        format_changed: bool,
    },
    /// The publisher is gone or has evicted us, and the subscriber looks for the next one. No further frame of the stream
    /// will be handed out; those that are held stay readable.
    Lost(Error),
}

/// Whether looking again may help: somebody is not there, or has no room, or the system is short of something. Not where
/// the two sides do not fit, or may not speak to each other: that is told, for somebody has to do something about it.
pub(crate) fn may_pass(error: &Error) -> bool {
    match error {
        Error::Gone { .. }
        | Error::NotFound { .. }
        | Error::Busy { .. }
        | Error::NoSpace { .. }
        | Error::System { .. }
        | Error::DescriptorsLost { .. }
        | Error::Io { .. }
        // A socket appears before its group may use it (D-15).
        | Error::PermissionDenied { .. }
        // Whoever puts a directory of this name into /tmp must not be able to end us.
        | Error::Untrusted { .. } => true,
        Error::Refused { refused, .. } => !matches!(
            refused.code,
            ErrorCode::INVALID_ARGUMENT
                | ErrorCode::PROTOCOL
                | ErrorCode::FORMAT
                | ErrorCode::PERMISSION
                | ErrorCode::UNSUPPORTED
        ),
        _ => false,
    }
}

const MIN_DELAY: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use cuframes_core::{Gone, Misuse, Refused};

    use super::*;
    use crate::testing::key;

    #[test]
    fn pauses_double_up_to_the_longest_and_are_never_nothing() {
        let mut reconnect = Reconnect { first_delay: Duration::ZERO, max_delay: Duration::from_millis(5) };
        let pauses = |reconnect: Reconnect| {
            std::iter::successors(Some(reconnect.first()), move |delay| Some(reconnect.after(*delay)))
                .take(5)
                .map(|delay| delay.as_millis())
                .collect::<Vec<_>>()
        };
        assert_eq!(pauses(reconnect), [1, 2, 4, 5, 5]);
        reconnect.max_delay = Duration::ZERO;
        assert_eq!(pauses(reconnect), [1; 5]);
        assert_eq!(pauses(Reconnect { first_delay: Duration::MAX, max_delay: Duration::MAX }).len(), 5);
    }

    #[test]
    fn who_is_gone_or_full_is_looked_for_again_and_who_does_not_fit_is_not() {
        let refused = |code| Error::Refused { key: key(), refused: Refused { code, message: String::new() } };
        for code in [ErrorCode::EVICTED, ErrorCode::TOO_MANY, ErrorCode::IO, ErrorCode(-99)] {
            assert!(may_pass(&refused(code)), "{code}");
        }
        for code in [ErrorCode::PERMISSION, ErrorCode::PROTOCOL, ErrorCode::UNSUPPORTED] {
            assert!(!may_pass(&refused(code)), "{code}");
        }
        assert!(may_pass(&Error::Gone { key: key(), gone: Gone::Disconnected }));
        assert!(may_pass(&Error::NotFound { key: key(), looked_in: Vec::new() }));
        let misuse = Misuse::Argument { name: "a", must: "b" };
        assert!(!may_pass(&Error::Misuse { key: key(), misuse }));
    }
}
