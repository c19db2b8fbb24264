//! [`Search`]: when to look for the next publisher (D-24).

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use cuframes_core::Instant;
use cuframes_core::gpu::Import;
use mio::Interest;
use tracing::debug;

use crate::connect::Finder;
use crate::pollable::{Registration, Turn};
use crate::pursuit::WATCH;
use crate::reconnect::Reconnect;
use crate::watch::Watch;

/// Looks for a publisher as often as its settings say, and whenever the run directories tell of a socket. While it is
/// attached, a subscriber holds nothing for this.
#[derive(Debug)]
pub(crate) struct Search {
    settings: Reconnect,
    /// What tells of a socket; only while searching.
    watch: Option<Watch>,
    /// The pause after the next attempt.
    delay: Duration,
    /// When the next attempt is due; `None` while one is under way or was successful.
    due: Option<Instant>,
    /// Attempts of this search so far.
    attempts: u64,
    /// A run directory can't be watched.
    is_deaf: bool,
}

impl Search {
    /// One that begins at `now`.
    pub(crate) fn new(now: Instant, settings: Reconnect) -> Self {
        Self { settings, watch: None, delay: settings.first(), due: Some(now), attempts: 0, is_deaf: false }
    }

    /// Searches again, after having been attached for `attached`: at once, unless that was shorter than the pause before
    /// the next attempt.
    pub(crate) fn begin(&mut self, now: Instant, attached: Duration) {
        self.attempts = 0;
        if attached >= self.settings.max_delay {
            self.delay = self.settings.first();
        }
        self.due = Some(now + self.delay.saturating_sub(attached));
        self.delay = self.settings.after(self.delay);
    }

    /// Listens for what happens in the run directories, if that can be had. To be called before each look at them: what
    /// the look misses is heard of.
    pub(crate) fn listen<B: Import<Fd = OwnedFd>>(
        &mut self,
        finder: &Finder<B>,
        registration: Option<&Registration>,
    ) {
        let armed = self.arm(finder, registration);
        if let Err(error) = &armed
            && !self.is_deaf
        {
            debug!(key = %finder.key(), cause = %error, "can't watch a run directory, so it is looked at now and then");
        }
        self.is_deaf = armed.is_err();
    }

    /// An attempt begins.
    pub(crate) const fn attempt(&mut self) {
        self.due = None;
        self.attempts += 1;
    }

    fn arm<B: Import<Fd = OwnedFd>>(
        &mut self,
        finder: &Finder<B>,
        registration: Option<&Registration>,
    ) -> io::Result<()> {
        let watch = match &mut self.watch {
            Some(watch) => watch,
            None => {
                let watch = Watch::new()?;
                if let Some(registration) = registration {
                    registration.add(&watch, WATCH, Interest::READABLE)?;
                }
                self.watch.insert(watch)
            }
        };
        watch.arm(finder.dirs(), finder.key().socket_file().as_ref())
    }

    /// The attempt failed. Says how long the pause is, and how many attempts there were.
    pub(crate) fn failed(&mut self, now: Instant) -> (Duration, u64) {
        let delay = self.delay;
        self.due = Some(now + delay);
        self.delay = self.settings.after(delay);
        (delay, self.attempts)
    }

    /// Nobody is looked for any more, or for now.
    pub(crate) fn rest(&mut self, registration: Option<&Registration>) {
        self.due = None;
        if let (Some(watch), Some(registration)) = (self.watch.take(), registration) {
            registration.remove(&watch);
        }
    }

    /// Takes what the run directories tell. `true`: it is time for an attempt, if none is under way.
    pub(crate) fn hear(&mut self) -> (bool, Turn) {
        let Some(watch) = &self.watch else { return (false, Turn::Idle) };
        let (heard, turn) = watch.hear();
        if heard {
            // Something has changed. And should somebody be there who does not listen yet, it won't be long.
            self.delay = self.settings.first();
        }
        (heard, turn)
    }

    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.due.is_some_and(|due| due <= now)
    }

    pub(crate) const fn due(&self) -> Option<Instant> {
        self.due
    }

    pub(crate) const fn watch(&self) -> Option<&Watch> {
        self.watch.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::testing::key;
    use crate::{HostMemory, Subscriber};

    const MAX: Duration = Duration::from_secs(2);

    #[test]
    fn who_was_attached_for_long_looks_at_once_and_who_was_not_waits_longer_each_time() {
        let mut now = Instant::ZERO;
        let mut search = Search::new(now, Reconnect::default());
        assert!(search.is_due(now));
        // A publisher that takes us and evicts us at once.
        let mut pauses = Vec::new();
        for _ in 0..14 {
            search.begin(now, Duration::ZERO);
            let due = search.due().unwrap();
            pauses.push(due.saturating_since(now).as_millis());
            now = due;
        }
        assert_eq!(pauses[..4], [1, 2, 4, 8]);
        assert_eq!(pauses[11..], [2000; 3]);
        // It is not for longer than the pause would be, counted from the beginning.
        search.begin(now, Duration::from_millis(500));
        assert_eq!(search.due(), Some(now + Duration::from_millis(1500)));
        search.begin(now, MAX);
        assert!(search.is_due(now));
        assert_eq!(search.failed(now).0.as_millis(), 2);
    }

    #[test]
    fn attempts_are_counted_and_their_pauses_grow() {
        let mut search = Search::new(Instant::ZERO, Reconnect::default());
        let failures: Vec<_> = (0..3)
            .map(|_| {
                search.attempt();
                assert_eq!(search.due(), None, "one at a time");
                search.failed(Instant::ZERO)
            })
            .collect();
        assert_eq!(failures, [1, 2, 4].map(Duration::from_millis).into_iter().zip(1..).collect::<Vec<_>>());
    }

    #[test]
    fn it_listens_until_it_rests() {
        let mut search = Search::new(Instant::ZERO, Reconnect::default());
        let finder = Subscriber::builder(key()).run_dir("/nowhere").finder(Arc::new(HostMemory::new(key())));
        search.listen(&finder, None);
        assert!(search.watch().is_some() && search.due().is_some());
        search.rest(None);
        assert!(search.watch().is_none() && search.due().is_none());
    }
}
