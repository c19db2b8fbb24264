//! [`PublisherStats`]: what a publisher counts, and where ([`Counters`]).

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use cuframes_core::Instant;
use cuframes_core::error::ErrorCode;
use cuframes_core::ring::{Accusation, Stalled};

use crate::shared::Leave;

/// What has happened to a stream since it was created; every number only grows, but for those that say "now".
#[derive(Clone, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub struct PublisherStats {
    /// Frames published.
    pub frames: u64,
    /// Numbers that were left out, because the slot that they belong to was leased, or by who gave the numbers
    /// ([`try_claim_as`](crate::Publisher::try_claim_as)): subscribers see gaps.
    pub skipped: u64,
    /// How long ago the last frame was published; `None` before the first. Up to 10 ms too long if its time stamp was the
    /// caller's ([`commit_with`](crate::Claim::commit_with)), which costs no exact look at the clock.
    pub last_publish_age: Option<Duration>,
    /// Claims that had to wait for an acknowledgement (STRICT_WAIT), or failed for want of one.
    pub ack_stalls: u64,
    /// Claims that had to wait for a lease to be given back, or failed for it.
    pub lease_stalls: u64,
    /// How often a subscriber was woken by a frame. Each costs a system call; who is awake costs none.
    pub wake_ups: u64,
    /// Subscribers now.
    pub subscribers: usize,
    /// Subscribers that were taken in.
    pub joined: u64,
    /// Subscribers that are gone.
    pub left: Departures,
    /// Connections that did not become subscribers.
    pub refused: Refusals,
    /// Connections that could not be accepted at once, for want of descriptors or memory.
    pub accept_failures: u64,
    /// Words of the region that were put right after somebody had written over them (D-23).
    pub restored_words: u64,
    /// The region's name is gone, or means another file (P-21). Who is subscribed goes on, and so does who joins with
    /// FD_PASSING.
    pub region_lost: bool,
    /// The socket's name is gone, or means another file: nobody finds this publisher any more.
    pub socket_lost: bool,
    /// Bytes of shared memory: the frames, the region and its witness.
    pub mapped_bytes: u64,
}

/// Subscribers that are gone, by how they left.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub struct Departures {
    /// They said UNSUBSCRIBE, or ERROR: why they can't go on.
    pub unsubscribed: u64,
    /// Their connection or process ended without a word, or they broke the protocol.
    pub vanished: u64,
    /// They were evicted for a missing acknowledgement (D-31).
    pub evicted_for_ack: u64,
    /// They were evicted for a lease (D-31).
    pub evicted_for_lease: u64,
}

/// Connections that did not become subscribers, by cause.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub struct Refusals {
    /// The peer's user may not subscribe (D-15).
    pub permission: u64,
    /// No bit was left, or there were too many connections that do not subscribe (D-29).
    pub too_many: u64,
    /// The peer lacks an extension that the stream needs.
    pub unsupported: u64,
    /// It broke the protocol, or speaks another version of it.
    pub protocol: u64,
    /// It did not say what it wants in time, or did not read what it was told (D-29).
    pub slow: u64,
    /// This process had no descriptor left for it.
    pub no_descriptors: u64,
    /// Its process was evicted again and again, and came back too early (D-31).
    pub evicted: u64,
}

/// The counters behind [`PublisherStats`]. Each but one is counted by one thread at a time, so that counting costs a load and a
/// store: the first group by whoever has the writer, the others by the control plane.
#[derive(Default, Debug)]
pub(crate) struct Counters {
    frames: Counter,
    newest: Counter,
    published_at: Counter,
    ack_stalls: Counter,
    lease_stalls: Counter,
    /// Where a device completes frames several threads wake subscribers, without the writer's lock.
    wake_ups: AtomicU64,

    pub(crate) joined: Counter,
    unsubscribed: Counter,
    vanished: Counter,
    evicted_for_ack: Counter,
    evicted_for_lease: Counter,
    permission: Counter,
    too_many: Counter,
    unsupported: Counter,
    protocol: Counter,
    slow: Counter,
    no_descriptors: Counter,
    evicted: Counter,
    pub(crate) accept_failures: Counter,
    pub(crate) restored_words: Counter,
    pub(crate) region_lost: Counter,
    pub(crate) socket_lost: Counter,
}

impl Counters {
    /// So many frames were published, the last of them with number `newest`.
    #[inline]
    pub(crate) fn published(&self, frames: u64, newest: u64, now: Instant) {
        self.frames.add(frames);
        self.newest.set(newest);
        self.published_at.set(now.as_nanos().cast_unsigned());
    }

    /// So many subscribers were woken.
    pub(crate) fn woken(&self, subscribers: u64) {
        self.wake_ups.fetch_add(subscribers, Ordering::Relaxed);
    }

    /// A claim found no slot at first.
    pub(crate) fn stalled(&self, stalled: &Stalled) {
        let counter = if stalled.waiting_for_acks != 0 { &self.ack_stalls } else { &self.lease_stalls };
        counter.add(1);
    }

    /// A subscriber is gone.
    pub(crate) fn left(&self, how: Leave) {
        let counter = match how {
            Leave::Unsubscribed => &self.unsubscribed,
            Leave::Vanished => &self.vanished,
            Leave::Evicted(Accusation::Lease) => &self.evicted_for_lease,
            Leave::Evicted(_) => &self.evicted_for_ack,
        };
        counter.add(1);
    }

    /// A connection did not become a subscriber.
    pub(crate) fn refused(&self, code: ErrorCode) {
        let counter = match code {
            ErrorCode::PERMISSION => &self.permission,
            ErrorCode::TOO_MANY => &self.too_many,
            ErrorCode::UNSUPPORTED => &self.unsupported,
            ErrorCode::TIMEOUT => &self.slow,
            ErrorCode::IO => &self.no_descriptors,
            ErrorCode::EVICTED => &self.evicted,
            _ => &self.protocol,
        };
        counter.add(1);
    }

    /// Everything that was counted.
    pub(crate) fn read(&self, now: Instant, subscribers: usize, mapped_bytes: u64) -> PublisherStats {
        let frames = self.frames.get();
        let published_at = Instant::from_nanos(self.published_at.get().cast_signed());
        PublisherStats {
            frames,
            skipped: self.newest.get().saturating_sub(frames),
            last_publish_age: (frames != 0).then(|| now.saturating_since(published_at)),
            ack_stalls: self.ack_stalls.get(),
            lease_stalls: self.lease_stalls.get(),
            wake_ups: self.wake_ups.load(Ordering::Relaxed),
            subscribers,
            joined: self.joined.get(),
            left: Departures {
                unsubscribed: self.unsubscribed.get(),
                vanished: self.vanished.get(),
                evicted_for_ack: self.evicted_for_ack.get(),
                evicted_for_lease: self.evicted_for_lease.get(),
            },
            refused: Refusals {
                permission: self.permission.get(),
                too_many: self.too_many.get(),
                unsupported: self.unsupported.get(),
                protocol: self.protocol.get(),
                slow: self.slow.get(),
                no_descriptors: self.no_descriptors.get(),
                evicted: self.evicted.get(),
            },
            accept_failures: self.accept_failures.get(),
            restored_words: self.restored_words.get(),
            region_lost: self.region_lost.get() != 0,
            socket_lost: self.socket_lost.get() != 0,
            mapped_bytes,
        }
    }
}

/// A number that one thread counts and others look at.
#[derive(Default, Debug)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    #[inline]
    pub(crate) fn add(&self, n: u64) {
        self.set(self.get().wrapping_add(n));
    }

    #[inline]
    pub(crate) fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn who_is_woken_is_counted_by_any_thread() {
        const EACH: u64 = 200_000;
        let counters = Counters::default();
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..EACH).for_each(|_| counters.woken(1)));
            }
        });
        assert_eq!(counters.read(Instant::ZERO, 0, 0).wake_ups, 4 * EACH);
    }
}
