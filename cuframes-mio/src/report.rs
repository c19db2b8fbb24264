//! [`Report`]: what the control plane tells the operator, as `tracing` events.
//!
//! Every event has the stream's key; those about a peer have its process, and its name or user. `info` is for what is
//! meant to happen, `warn` for peers that are sent away, `error` for what the operator has to act on. The hot path says
//! nothing. Whoever listens must not block: these are events of the thread that serves.

use std::fmt::Display;
use std::io;
use std::path::Path;
use std::time::Duration;

use cuframes_core::ring::Accusation;
use cuframes_core::roster::Member;
use cuframes_core::session::Closed;
use cuframes_core::wire::ShutdownReason;
use cuframes_core::{Instant, Key};
use tracing::{error, info, warn};

use crate::liveness::PeerCred;
use crate::shared::Leave;

/// Says what happens to one stream.
#[derive(Debug)]
pub(crate) struct Report {
    key: Key,
    // Anybody may come and go as often as it likes, and must not fill the disk with it, nor hide what is worse.
    joins: Quota,
    departures: Quota,
    faults: Quota,
    evictions: Quota,
    refusals: Quota,
    repairs: Quota,
    blockades: Quota,
    /// Nobody can be accepted.
    blocked: bool,
}

impl Report {
    pub(crate) const fn new(key: Key) -> Self {
        Self {
            key,
            joins: Quota::new(),
            departures: Quota::new(),
            faults: Quota::new(),
            evictions: Quota::new(),
            refusals: Quota::new(),
            repairs: Quota::new(),
            blockades: Quota::new(),
            blocked: false,
        }
    }

    pub(crate) fn published(&self, socket: &Path, region: &Path, mapped_bytes: u64) {
        info!(
            key = %self.key,
            socket = %socket.display(),
            region = %region.display(),
            mapped_bytes,
            "the stream is published"
        );
    }

    pub(crate) fn shutting_down(&self, reason: ShutdownReason, subscribers: usize) {
        info!(key = %self.key, %reason, subscribers, "the stream ends");
    }

    pub(crate) fn joined(&mut self, now: Instant, Member { bit, pid, name, features, .. }: &Member) {
        if let Some(unsaid) = self.joins.take(now) {
            info!(key = %self.key, pid, %name, %bit, %features, unsaid, "a subscriber joined");
        }
    }

    /// `closed` is how its connection ended, if that came first.
    pub(crate) fn left(&mut self, now: Instant, member: &Member, how: Leave, closed: Option<&Closed>) {
        let Self { key, departures, faults, evictions, .. } = self;
        let Member { bit, pid, name, .. } = member;
        let fault = closed.filter(|closed| {
            matches!(closed, Closed::Violation(_) | Closed::Rejected(_) | Closed::Refused(_))
        });
        let quota = match (how, fault) {
            (Leave::Evicted(_), _) => evictions,
            (_, Some(_)) => faults,
            (_, None) => departures,
        };
        let Some(unsaid) = quota.take(now) else { return };
        match (how, fault) {
            (Leave::Evicted(of), _) => {
                let cause = match of {
                    Accusation::Lease => "it held a lease for too long",
                    _ => "it did not acknowledge in time",
                };
                warn!(%key, pid, %name, %bit, cause, unsaid, "a subscriber was evicted");
            }
            // Also of one that said itself why it can't go on.
            (_, Some(cause)) => {
                warn!(%key, pid, %name, %bit, %cause, unsaid, "a subscriber's connection was closed");
            }
            (Leave::Vanished, None) => info!(%key, pid, %name, %bit, unsaid, "a subscriber vanished"),
            (Leave::Unsubscribed, None) => info!(%key, pid, %name, %bit, unsaid, "a subscriber left"),
        }
    }

    /// A connection did not become a subscriber.
    pub(crate) fn refused(&mut self, now: Instant, peer: PeerCred, cause: impl Display) {
        let PeerCred { pid, uid } = peer;
        if let Some(unsaid) = self.refusals.take(now) {
            let pid = pid.unwrap_or(0);
            warn!(key = %self.key, pid, uid, %cause, unsaid, "a connection was refused");
        }
    }

    /// Nobody can be accepted; said once until [`unblocked`](Self::unblocked).
    pub(crate) fn blocked(&mut self, now: Instant, cause: &io::Error) {
        if self.blocked {
            return;
        }
        if let Some(unsaid) = self.blockades.take(now) {
            self.blocked = true;
            error!(
                key = %self.key,
                %cause,
                unsaid,
                "no connection can be accepted; raise the limit on open files (ulimit -n) or close some"
            );
        }
    }

    pub(crate) fn unblocked(&mut self) {
        if self.blocked {
            self.blocked = false;
            info!(key = %self.key, "connections are accepted again");
        }
    }

    pub(crate) fn region_lost(&self, path: &Path) {
        error!(
            key = %self.key,
            path = %path.display(),
            "the region was deleted or replaced (RemoveIPC, a cleaner?); subscribers go on, but restart the publisher \
             if some must find the region by its name"
        );
    }

    pub(crate) fn socket_lost(&self, path: &Path) {
        error!(
            key = %self.key,
            path = %path.display(),
            "the socket was deleted or replaced; subscribers go on, but nobody can join: restart the publisher"
        );
    }

    /// Somebody had written over `words` words that only the publisher may write.
    pub(crate) fn restored(&mut self, now: Instant, words: usize) {
        if let Some(unsaid) = self.repairs.take(now) {
            warn!(
                key = %self.key,
                words,
                unsaid,
                "a subscriber wrote where only the publisher may, which was put right; find out which one it is"
            );
        }
    }
}

/// The control plane of stream `key` has ended: what it did goes undone, and claims fail.
pub(crate) fn failed(key: &Key, cause: &io::Error) {
    error!(%key, %cause, "subscribers are not served any more; restart the publisher");
}

/// How many events of one kind may be said in a while.
#[derive(Debug)]
struct Quota {
    since: Instant,
    said: u32,
    unsaid: u64,
}

impl Quota {
    const fn new() -> Self {
        Self { since: Instant::ZERO, said: 0, unsaid: 0 }
    }

    /// Whether an event may be said, and how many before it were not.
    fn take(&mut self, now: Instant) -> Option<u64> {
        if now.saturating_since(self.since) >= WHILE {
            (self.since, self.said) = (now, 0);
        }
        if self.said == AT_MOST {
            self.unsaid += 1;
            return None;
        }
        self.said += 1;
        Some(std::mem::take(&mut self.unsaid))
    }
}

/// Events of one kind in [`WHILE`].
const AT_MOST: u32 = 20;
const WHILE: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_events_is_cut_and_counted() {
        let mut quota = Quota::new();
        let start = Instant::from_nanos(1_000_000_000_000);
        for _ in 0..AT_MOST {
            assert_eq!(quota.take(start), Some(0));
        }
        for _ in 0..3 {
            assert_eq!(quota.take(start + WHILE / 2), None);
        }
        assert_eq!(quota.take(start + WHILE), Some(3));
        assert_eq!(quota.take(start + WHILE), Some(0));
    }
}
