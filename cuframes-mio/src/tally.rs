//! What a subscriber counts: [`SubscriberStats`] for its user, [`Common`] for what its frames count on other threads.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use cuframes_core::Instant;
use cuframes_core::ring::FrameLost;

use crate::shm::Home;

/// What a subscriber has seen since it was made, through every reconnect.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub struct SubscriberStats {
    /// Frames handed out, those [by their number](crate::Subscriber::frame) included.
    pub frames: u64,
    /// Frames of the streams it was attached to that it did not get: the sum of [`Frame::lost`](crate::Frame::lost).
    /// What was published while it was attached to nobody is not known, except to the same publisher.
    pub lost: u64,
    /// Frames that were overwritten while they were in use: only without LEASE.
    pub overwritten: u64,
    /// Frames whose lease ended before they were released: the publisher took it back (D-31), or was gone.
    pub revoked: u64,
    /// How often a publisher evicted us (D-31).
    pub evictions: u64,
    /// How often it attached to a publisher again.
    pub reconnects: u64,
    /// How often it woke up: from a sleep in [`next`](crate::Subscriber::next), for an event, or for a time that had
    /// come.
    pub wake_ups: u64,
    /// Bytes mapped now for the region and the frames, those of earlier publishers included as long as a frame of
    /// theirs is held.
    pub mapped_bytes: u64,
    /// Time since a new frame was last seen, which is when it was handed out; before the first one, since the first
    /// publisher was there. It grows while a publisher is silent, frozen or gone (P-7). It does not come from the
    /// frame's `pts`, which may be of any clock. Up to 10 ms too long: a frame costs no exact look at the clock. One by its
    /// number is not a new one.
    pub last_publish_age: Option<Duration>,
}

/// What only the subscriber itself counts.
#[derive(Default, Debug)]
pub(crate) struct Tally {
    frames: u64,
    lost: u64,
    pub(crate) evictions: u64,
    pub(crate) attachments: u64,
    pub(crate) wake_ups: u64,
    /// The number of the last frame that was handed out in turn, if it was one of the publisher's that we are attached to,
    /// or were last; otherwise 0.
    pub(crate) last_seq: u64,
    /// When that was; before it, when the first publisher was there.
    pub(crate) last_publish: Option<Instant>,
}

impl Tally {
    /// A frame is handed out.
    pub(crate) fn frame(&mut self, now: Instant, seq: u64, lost: u64) {
        self.frames += 1;
        // Another publisher may number its frames as it likes.
        self.lost = self.lost.saturating_add(lost);
        self.last_seq = seq;
        self.last_publish = Some(now);
    }

    /// A frame is handed out by its number. It need not be newer than others, nor are those before it handed out.
    pub(crate) const fn frame_by_number(&mut self) {
        self.frames += 1;
    }

    /// The statistics at `now`.
    pub(crate) fn stats(&self, now: Instant, common: &Common) -> SubscriberStats {
        let [overwritten, revoked, mapped_bytes] =
            [&common.overwritten, &common.revoked, &common.mapped].map(|count| count.load(Ordering::Relaxed));
        SubscriberStats {
            frames: self.frames,
            lost: self.lost,
            overwritten,
            revoked,
            evictions: self.evictions,
            reconnects: self.attachments.saturating_sub(1),
            wake_ups: self.wake_ups,
            mapped_bytes,
            last_publish_age: self.last_publish.map(|last| now.saturating_since(last)),
        }
    }
}

/// What a subscriber shares with all its frames, whichever publisher they are from and whatever thread they are on.
#[derive(Debug)]
pub(crate) struct Common {
    /// The process that subscribed.
    pub(crate) home: Home,
    overwritten: AtomicU64,
    revoked: AtomicU64,
    mapped: AtomicU64,
}

impl Common {
    pub(crate) fn new() -> io::Result<Arc<Self>> {
        let [overwritten, revoked, mapped] = [const { AtomicU64::new(0) }; 3];
        Ok(Arc::new(Self { home: Home::new()?, overwritten, revoked, mapped }))
    }

    pub(crate) fn frame_lost(&self, lost: FrameLost) {
        let count = if lost == FrameLost::Overwritten { &self.overwritten } else { &self.revoked };
        count.fetch_add(1, Ordering::Relaxed);
    }
}

/// Counts bytes as mapped while it lives.
#[derive(Debug)]
pub(crate) struct Mapped {
    pub(crate) common: Arc<Common>,
    bytes: u64,
}

impl Mapped {
    pub(crate) fn new(common: Arc<Common>, bytes: u64) -> Self {
        common.mapped.fetch_add(bytes, Ordering::Relaxed);
        Self { common, bytes }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        self.common.mapped.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}
