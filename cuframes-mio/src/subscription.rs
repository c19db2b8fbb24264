//! [`Subscription`]: one connection to one publisher, from HELLO to its end.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::{io, mem};

use cuframes_core::error::ErrorCode;
use cuframes_core::gpu::Import;
use cuframes_core::session::{Closed, Session, SubscriberEvent, SubscriberSession};
use cuframes_core::wire::FdPurpose;
use cuframes_core::{Gone, Instant, Key};
use mio::Interest;

use crate::attach::{Arrivals, Attached, Facts};
use crate::clock;
use crate::conn::{self, Conn};
use crate::error::Error;
use crate::pollable::{Registration, Turn};
use crate::pursuit::{CONN, WAKE};
use crate::wake::EventFd;

/// A connection to a publisher, and what it has led to.
///
/// Dropping it says UNSUBSCRIBE, when the last of its frames is released (D-10).
#[derive(Debug)]
pub(crate) struct Subscription<B: Import<Fd = OwnedFd>> {
    conn: Conn<SubscriberSession<OwnedFd>>,
    /// The publisher's process, if we can see it.
    pub(crate) publisher: Option<u32>,
    /// What the handshake has brought so far.
    arrivals: Arrivals<B>,
    pub(crate) facts: Option<Facts>,
    /// When it was complete.
    pub(crate) since: Instant,
    /// The user was told so.
    pub(crate) announced: bool,
    /// If we were attached to the same publisher before: its frames up to this number were handed out then.
    pub(crate) resume_after: u64,
    /// Frames that were taken, and not handed out because the seat did not seem to be ours.
    pub(crate) thrown_away: u64,
    /// Until nothing may be read any more.
    pub(crate) attached: Option<Attached<B>>,
    /// The publisher said SHUTDOWN; what is published is still handed out (D-30).
    shutdown: Option<Gone>,
    /// The connection has ended.
    closed: Option<Closed>,
    /// Why we ended it.
    failure: Option<Error>,
}

impl<B: Import<Fd = OwnedFd>> Subscription<B> {
    /// Says HELLO on a new connection.
    pub(crate) fn new(
        now: Instant,
        conn: Conn<SubscriberSession<OwnedFd>>,
        publisher: Option<u32>,
        arrivals: Arrivals<B>,
    ) -> Self {
        let mut subscription = Self {
            conn,
            publisher,
            arrivals,
            facts: None,
            since: now,
            announced: false,
            resume_after: 0,
            thrown_away: 0,
            attached: None,
            shutdown: None,
            closed: None,
            failure: None,
        };
        subscription.settle(now, None);
        subscription
    }

    pub(crate) fn register(&self, registration: &Registration) -> io::Result<()> {
        registration.add(&self.conn, CONN, conn::INTEREST)?;
        match &self.attached {
            Some(attached) => register_wake(attached, registration),
            None => Ok(()),
        }
    }

    /// Frames and the publisher have copies of the descriptors, so closing ours would not end their registration.
    pub(crate) fn deregister(&self, registration: &Registration) {
        registration.remove(&self.conn);
        if let Some(attached) = &self.attached {
            deregister_wake(attached, registration);
        }
    }

    /// Receives, sends, and does what the events ask for.
    pub(crate) fn drive(&mut self, now: Instant, registration: Option<&Registration>) -> Turn {
        let turn = self.conn.drive(now);
        self.settle(now, registration);
        turn
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant, registration: Option<&Registration>) {
        self.conn.session.handle_timeout(now);
        self.settle(now, registration);
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.conn.session.poll_timeout()
    }

    /// Whether nothing more will be published for us. What was published before SHUTDOWN may still be there (D-30).
    pub(crate) const fn has_ended(&self) -> bool {
        self.shutdown.is_some() || self.closed.is_some() || self.failure.is_some()
    }

    /// Why it has ended: in short, and with all that is known.
    pub(crate) fn end(&mut self, key: &Key) -> (Closed, Error) {
        let closed = match (self.shutdown, &self.closed) {
            (Some(gone), _) => Closed::Gone(gone),
            (None, Some(closed)) => closed.clone(),
            (None, None) => Closed::Gone(Gone::Disconnected),
        };
        let error = self.failure.take().unwrap_or_else(|| Error::closed(key, closed.clone()));
        (closed, error)
    }

    fn settle(&mut self, now: Instant, registration: Option<&Registration>) {
        loop {
            if mem::take(&mut self.conn.has_lost_descriptors) {
                self.give_up(now, Error::descriptors_lost(self.arrivals.key()));
            }
            // Before the events: sending may fail, and that is one more event.
            self.conn.flush(now);
            let Some(event) = self.conn.session.poll_event() else { break };
            match event {
                SubscriberEvent::Stream(stream) => self.arrivals.stream = Some(stream),
                SubscriberEvent::Subscribed(subscribed) => self.arrivals.subscribed = Some(subscribed),
                SubscriberEvent::Fd { purpose: FdPurpose::WAKE_UP, fd, .. } if self.attached.is_some() => {
                    self.wake_up_came_late(now, fd, registration);
                }
                SubscriberEvent::Fd { purpose, index, fd, .. } => self.arrivals.fd(purpose, index, fd),
                SubscriberEvent::Shutdown(reason) => self.shutdown = Some(Gone::Shutdown(reason)),
                SubscriberEvent::Closed(closed) => self.close(closed, registration),
                _ => {}
            }
            if self.facts.is_none() && self.closed.is_none() && self.failure.is_none() {
                self.attach(now, registration);
            }
        }
        self.conn.hang_up_if_closed();
    }

    /// Attaches as soon as everything needed has arrived.
    fn attach(&mut self, now: Instant, registration: Option<&Registration>) {
        let attached = self.arrivals.attach().and_then(|attached| {
            if let Some((attached, _)) = &attached {
                self.watch(attached, registration)?;
            }
            Ok(attached)
        });
        match attached {
            Ok(None) => {}
            Ok(Some((attached, facts))) => {
                (self.attached, self.facts, self.since) = (Some(attached), Some(facts), now);
                let _ = self.conn.session.attached(now);
            }
            Err(error) => self.give_up(now, error),
        }
    }

    /// Somebody has rung for a frame; or what the publisher gave us as our eventfd is none.
    pub(crate) fn rung(&mut self, now: Instant, registration: Option<&Registration>) {
        let wake = self.attached.as_ref().and_then(|attached| attached.wake.as_ref());
        if let Some(Err(error)) = wake.map(EventFd::drain) {
            self.give_up(now, Error::system(self.arrivals.key(), "read the publisher's wake-up", error));
            self.settle(now, registration);
        }
    }

    /// The wake-up eventfd came after everything that was needed (D-26).
    fn wake_up_came_late(&mut self, now: Instant, fd: OwnedFd, registration: Option<&Registration>) {
        let Some(mut attached) = self.attached.take() else { return };
        let failed = |error| Error::system(self.arrivals.key(), "use the wake-up eventfd", error);
        let wake = EventFd::from_fd(fd).map_err(failed);
        let watched = wake.and_then(|wake| {
            attached.wake = Some(wake);
            self.watch(&attached, registration)
        });
        self.attached = Some(attached);
        if let Err(error) = watched {
            self.give_up(now, error);
        }
    }

    /// Registers the wake-up eventfd where the connection is registered.
    fn watch(&self, attached: &Attached<B>, registration: Option<&Registration>) -> Result<(), Error> {
        let Some(registration) = registration else { return Ok(()) };
        register_wake(attached, registration)
            .map_err(|error| Error::system(self.arrivals.key(), "watch the wake-up eventfd", error))
    }

    /// Tells the publisher, and later the application, why we can't go on.
    fn give_up(&mut self, now: Instant, error: Error) {
        self.conn.session.reject(now, error.code(), &error.to_string());
        self.failure = Some(error);
    }

    /// The connection has ended. After SHUTDOWN what is published may still be read; otherwise nothing, and everything
    /// is unmapped but what frames hold (D-30).
    fn close(&mut self, closed: Closed, registration: Option<&Registration>) {
        if self.shutdown.is_none()
            && let Some(attached) = self.attached.take()
        {
            attached.reader.seat().detach();
            if let Some(registration) = registration {
                deregister_wake(&attached, registration);
            }
        }
        self.arrivals.close_descriptors();
        self.closed = Some(closed);
    }
}

impl<B: Import<Fd = OwnedFd>> AsFd for Subscription<B> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.conn.as_fd()
    }
}

impl<B: Import<Fd = OwnedFd>> Drop for Subscription<B> {
    fn drop(&mut self) {
        if !self.arrivals.common().home.is_here() {
            // A forked child must not speak for its parent (P-20).
            return;
        }
        let now = clock::now();
        if self.facts.is_none() {
            // Nothing is mapped: the bit, if we have one, may be used again at once.
            self.conn.session.unsubscribe(now);
        }
        self.conn.flush(now);
        // Not into the middle of another message.
        if self.closed.is_none()
            && self.conn.session.poll_transmit().is_none()
            && let Some(attached) = &self.attached
            && let Ok(socket) = self.conn.socket().try_clone()
        {
            attached.reader.seat().outside().say_goodbye_on(socket);
        }
    }
}

/// Whether a publisher has evicted us (D-31).
pub(crate) fn is_eviction(closed: &Closed) -> bool {
    matches!(closed, Closed::Refused(refused) if refused.code == ErrorCode::EVICTED)
}

fn register_wake<B: Import<Fd = OwnedFd>>(
    attached: &Attached<B>,
    registration: &Registration,
) -> io::Result<()> {
    match &attached.wake {
        Some(wake) => registration.add(wake, WAKE, Interest::READABLE),
        None => Ok(()),
    }
}

fn deregister_wake<B: Import<Fd = OwnedFd>>(attached: &Attached<B>, registration: &Registration) {
    if let Some(wake) = &attached.wake {
        registration.remove(wake);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;
    use std::path::PathBuf;
    use std::time::Duration;

    use cuframes_core::session::SubscriberHello;
    use cuframes_core::wire::hello::ConsumerName;
    use cuframes_core::{Features, SubscriberMode};

    use super::*;
    use crate::host::HostMemory;
    use crate::tally::Common;
    use crate::testing::key;

    #[test]
    fn that_nobody_is_there_to_be_sent_to_is_known_at_once() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        drop(theirs);
        let hello = SubscriberHello {
            name: ConsumerName::default(),
            cuda_device: -1,
            mode: SubscriberMode::NEWEST_ONLY,
            features: Features::NONE,
            handshake_timeout: Duration::from_secs(5),
        };
        let now = clock::now();
        let conn = Conn::new(ours, SubscriberSession::new(now, hello)).unwrap();
        let backend = HostMemory::new(key()).into();
        let common = Common::new().unwrap();
        let stream = (key(), SubscriberMode::NEWEST_ONLY);
        let arrivals = Arrivals::new(stream, backend, PathBuf::new(), 0, common);
        let mut subscription = Subscription::new(now, conn, None, arrivals);
        assert!(subscription.has_ended());
        assert_eq!(subscription.end(&key()).0, Closed::Gone(Gone::Disconnected));
    }
}
