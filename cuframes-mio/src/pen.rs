//! [`Pen`]: the ring's writer, where those find it who commit a frame; [`Pending`]: a frame that a device is writing.

use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use cuframes_core::Instant;
use cuframes_core::ring::{Committed, RingWriter, Ticket};

use crate::clock;
use crate::lock::lock;
use crate::shared::Shared;
use crate::shm::MappedRegion;

pub(crate) type Writer = RingWriter<Arc<MappedRegion>>;

/// The writer of a stream. Where frames are complete when they are committed it belongs to whoever claims, without a lock.
/// Where a device completes them it is shared with the thread on which the device says so; nobody sleeps with the lock.
#[derive(Debug)]
pub(crate) enum Pen {
    Own(Box<Writer>),
    Shared(Arc<Mutex<Writer>>),
}

impl Pen {
    pub(crate) fn new(writer: Writer, streams: bool) -> Self {
        if streams { Self::Shared(Arc::new(Mutex::new(writer))) } else { Self::Own(Box::new(writer)) }
    }

    /// Does something with the writer.
    #[inline]
    pub(crate) fn with<T>(&mut self, act: impl FnOnce(&mut Writer) -> T) -> T {
        match self {
            Self::Own(writer) => act(writer),
            Self::Shared(writer) => act(&mut lock(writer)),
        }
    }

    /// Announces that the claim that failed will sleep; `false` if it had not done so before, and is to try once more.
    pub(crate) fn park(&mut self) -> bool {
        self.with(|writer| {
            let is_parked = writer.is_parked();
            if !is_parked {
                writer.park();
            }
            is_parked
        })
    }

    /// Publishes a frame, and those that waited for it.
    #[inline]
    pub(crate) fn commit(
        &mut self,
        now: Instant,
        shared: &Shared,
        ticket: Ticket,
        pts_ns: i64,
        written_bytes: u64,
    ) {
        let wake =
            self.with(|writer| count(now, shared, writer.commit(ticket, pts_ns, written_bytes), writer));
        wake_up(shared, wake);
    }

    /// Gives a frame up.
    pub(crate) fn cancel(&mut self, shared: &Shared, ticket: Ticket) {
        let wake = self.with(|writer| count(clock::now(), shared, writer.cancel(ticket), writer));
        wake_up(shared, wake);
    }

    /// Waits until the device has completed every frame, and says whether it has.
    pub(crate) fn wait_for_device(&mut self, timeout: Duration) -> bool {
        let end = clock::now() + timeout;
        while self.with(|writer| writer.has_backlog()) {
            if end <= clock::now() {
                return false;
            }
            thread::sleep(Duration::from_millis(1));
        }
        true
    }
}

/// A frame that is published when the device has come so far; if that never happens it is given up.
#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) writer: Arc<Mutex<Writer>>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) ticket: Option<Ticket>,
    pub(crate) pts_ns: i64,
    pub(crate) written_bytes: u64,
}

impl Pending {
    /// The frame is complete. May run on a thread of the device's driver: makes no call of a backend.
    pub(crate) fn complete(mut self) {
        let (pts_ns, written_bytes) = (self.pts_ns, self.written_bytes);
        self.finish(|writer, ticket| writer.commit(ticket, pts_ns, written_bytes));
    }

    fn finish(&mut self, act: impl FnOnce(&mut Writer, Ticket) -> Committed) {
        let Some(ticket) = self.ticket.take() else { return };
        let mut writer = lock(&self.writer);
        let committed = act(&mut writer, ticket);
        let wake = count(clock::now(), &self.shared, committed, &writer);
        let is_awaited = writer.is_parked();
        drop(writer);
        wake_up(&self.shared, wake);
        if is_awaited {
            // A claim waits for the slot. If it can't be rung, it looks again soon.
            let _ = self.shared.claim_bells.ring();
        }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.finish(RingWriter::cancel);
    }
}

/// Counts what was published, now; under the lock, because one thread counts at a time. Returns whom to wake.
#[inline]
fn count(now: Instant, shared: &Shared, committed: Committed, writer: &Writer) -> u64 {
    let Committed { frames, wake, .. } = committed;
    if frames != 0 {
        shared.counters.published(frames.into(), writer.newest(), now);
    }
    wake
}

#[inline]
fn wake_up(shared: &Shared, wake: u64) {
    if wake != 0 {
        shared.wake(wake);
    }
}
