//! [`Publisher`]: shares frames under a key.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use cuframes_core::ring::{RingWriter, StallClock, Stalled};
use cuframes_core::roster::Member;
use cuframes_core::wire::ShutdownReason;
use cuframes_core::{FrameMeta, Instant, Key, Timeouts};
use mio::{Interest, Registry, Token};

use crate::builder::PublisherBuilder;
use crate::claim::Claim;
use crate::clock;
use crate::error::Error;
use crate::host::HostPool;
use crate::pollable::{EventSource, Registration, Turn};
use crate::served::ServedPublisher;
use crate::service::Service;
use crate::shared::{MemberEvent, Shared};
use crate::shm::{MappedRegion, REGION_BYTES, to_u64};
use crate::stats::PublisherStats;

/// Shares frames under a key, driven by the caller: register it with a mio `Poll` ([`EventSource`]), wrap it in a
/// [`Pollable`](crate::Pollable), or hand its control plane to a thread with [`serve`](Self::serve).
///
/// Dropping it says SHUTDOWN without waiting for anybody; [`shut_down`](Self::shut_down) and turning until
/// [`is_finished`](Self::is_finished) waits for the subscribers first (D-12).
///
/// A subscriber shares the eventfd that wakes it with us. If it makes that one blocking and fills it in the moment between our
/// look for room and our write, then the write waits (§3.7). The thread of [`serve`](Self::serve) undoes that within about a
/// second; a publisher that is driven by the caller is itself the thread that waits, and nobody undoes it. So serve whom you
/// do not trust.
///
/// A child that was forked, and did not start another program, must not use its parent's publisher: it can't claim, every
/// call that may fail does so, and dropping it says nothing to anybody.
#[derive(Debug)]
pub struct Publisher {
    // Dropped first, while the pool is still mapped.
    service: Service,
    producer: Producer,
    /// When to look again whether a claim is possible, although nobody rang.
    look_again: Option<Instant>,
}

impl Publisher {
    /// Settings of a new stream of frames with geometry `meta`.
    pub fn builder(key: Key, meta: FrameMeta) -> PublisherBuilder {
        PublisherBuilder::new(key, meta)
    }

    pub(crate) const fn new(service: Service, producer: Producer) -> Self {
        Self { service, producer, look_again: None }
    }

    /// Takes a slot for the next frame.
    ///
    /// # Errors
    /// [`Stalled`] names who must acknowledge or release first; whoever was over its deadline has been evicted, and after
    /// twice the longer of the two deadlines, `consumer_ack` and `lease`, whoever is in the way (D-31). The event loop
    /// wakes up when it is worth trying again. In a forked child it is [`Stalled::FORKED`].
    pub fn try_claim(&mut self, now: Instant) -> Result<Claim<'_>, Stalled> {
        if !self.producer.shared.home.is_here() {
            return Err(Stalled::FORKED);
        }
        let Self { service, producer, look_again, .. } = self;
        *look_again = None;
        producer.claim_or(|Waiting { writer, stall, .. }, stalled| {
            if !writer.is_parked() {
                writer.park();
                return Ok(());
            }
            if stall.stalled(now, &stalled, writer.members()) {
                service.evict_accused(now);
                return Ok(());
            }
            *look_again = Some(now + look_again_after(writer, &stalled));
            Err(stalled)
        })
    }

    /// Who is subscribed.
    pub fn members(&self) -> impl Iterator<Item = &Member> {
        self.service.roster().members()
    }

    /// What happened to subscribers since the last call, oldest first; the last 256 are kept.
    pub fn poll_event(&mut self) -> Option<MemberEvent> {
        self.producer.shared.poll_event()
    }

    /// What has happened to the stream so far. Makes no system call but for reading the clock.
    #[must_use]
    pub fn stats(&self) -> PublisherStats {
        self.producer.stats()
    }

    /// The stream's key.
    #[must_use]
    pub const fn key(&self) -> &Key {
        &self.producer.key
    }

    /// Geometry of every frame.
    #[must_use]
    pub const fn meta(&self) -> &FrameMeta {
        &self.producer.meta
    }

    /// Says SHUTDOWN to everybody and accepts nobody any more. Go on handling events until
    /// [`is_finished`](Self::is_finished), then drop it.
    pub fn shut_down(&mut self, now: Instant, reason: ShutdownReason) {
        if self.producer.shared.home.is_here() {
            self.service.shut_down(now, reason);
        }
    }

    /// Whether it was shut down, and every subscriber is gone or had its grace period (D-12).
    #[must_use]
    pub fn is_finished(&self, now: Instant) -> bool {
        self.service.is_finished(now)
    }

    /// Runs the control plane in a thread, so that the caller only claims and commits.
    ///
    /// # Errors
    /// If the thread or its event loop can't be made, or in a forked child ([`Error::Forked`]).
    pub fn serve(self) -> Result<ServedPublisher, Error> {
        self.producer.here()?;
        let Self { service, mut producer, .. } = self;
        producer.deregister();
        ServedPublisher::start(service, producer)
    }
}

impl EventSource for Publisher {
    const TOKENS: usize = Service::TOKENS + Producer::TOKENS;

    fn register(&mut self, registry: &Registry, first_token: Token) -> io::Result<()> {
        self.producer.here().map_err(io::Error::other)?;
        self.service.register(registry, first_token)?;
        self.producer.register(registry, Token(first_token.0 + Service::TOKENS))
    }

    fn handle_event(&mut self, token: Token, now: Instant) -> io::Result<Turn> {
        self.producer.here().map_err(io::Error::other)?;
        if self.producer.registration.as_ref().is_some_and(|bells| bells.number(token).is_some()) {
            self.producer.shared.claim_bells.drain()?;
            return Ok(Turn::Idle);
        }
        self.service.handle_event(token, now)
    }

    fn handle_timeout(&mut self, now: Instant) {
        if !self.producer.shared.home.is_here() {
            return;
        }
        self.service.handle_timeout(now);
        // Whoever is over its deadline is evicted, whether the caller claims again or not.
        while self.producer.stall.deadline().is_some_and(|due| due <= now) {
            let Producer { writer, stall, .. } = &mut self.producer;
            match writer.stalled() {
                None => stall.clear(),
                Some(stalled) if stall.stalled(now, &stalled, writer.members()) => {
                    self.service.evict_accused(now);
                }
                Some(_) => break,
            }
        }
        // Once: whoever is driven claims again now, or when it wants to.
        self.look_again.take_if(|due| *due <= now);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.service
            .poll_timeout()
            .into_iter()
            .chain(self.producer.stall.deadline())
            .chain(self.look_again)
            .min()
    }
}

/// The hot path: the ring's writer and the memory behind it.
#[derive(Debug)]
pub(crate) struct Producer {
    pub(crate) key: Key,
    pub(crate) meta: FrameMeta,
    writer: RingWriter<Arc<MappedRegion>>,
    stall: StallClock,
    pool: HostPool,
    pub(crate) shared: Arc<Shared>,
    /// A claim has failed, and none has succeeded since.
    stalling: bool,
    /// Where the bells are registered.
    registration: Option<Registration>,
}

impl Producer {
    pub(crate) const fn new(
        key: Key,
        meta: FrameMeta,
        writer: RingWriter<Arc<MappedRegion>>,
        timeouts: &Timeouts,
        pool: HostPool,
        shared: Arc<Shared>,
    ) -> Self {
        let stall = StallClock::new(timeouts);
        Self { key, meta, writer, stall, pool, shared, stalling: false, registration: None }
    }

    /// Fails in a child that was forked from the process that publishes (P-20).
    pub(crate) fn here(&self) -> Result<(), Error> {
        if self.shared.home.is_here() { Ok(()) } else { Err(Error::Forked { key: self.key.clone() }) }
    }

    /// What has happened so far.
    pub(crate) fn stats(&self) -> PublisherStats {
        let Shared { counters, .. } = &*self.shared;
        counters.read(clock::now(), self.shared.member_count(), mapped_bytes(&self.pool))
    }

    /// Registers the bells that end a stall.
    fn register(&mut self, registry: &Registry, first_token: Token) -> io::Result<()> {
        self.deregister();
        let registration = Registration::new(registry, first_token)?;
        registration.add(&self.shared.claim_bells, 0, Interest::READABLE)?;
        self.registration = Some(registration);
        Ok(())
    }

    /// The service goes on in another thread, and has the bells open.
    fn deregister(&mut self) {
        if let Some(registration) = self.registration.take() {
            registration.remove(&self.shared.claim_bells);
        }
    }

    /// How many descriptors it has for the event loop.
    const TOKENS: usize = 1;

    /// Claims, calling `wait` whenever nothing can be claimed.
    #[inline]
    pub(crate) fn claim_or<E>(
        &mut self,
        mut wait: impl FnMut(Waiting<'_>, Stalled) -> Result<(), E>,
    ) -> Result<Claim<'_>, E> {
        let Self { writer, stall, pool, shared, meta, key, stalling, .. } = self;
        let claim = writer.claim_or(|writer, stalled| {
            if !*stalling {
                *stalling = true;
                shared.counters.stalled(&stalled);
            }
            wait(Waiting { writer, stall, shared, key }, stalled)
        })?;
        stall.clear();
        *stalling = false;
        Ok(Claim { claim, pool, shared, meta })
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        // A forked child shares the event loop with its parent.
        if self.shared.home.is_here() {
            self.deregister();
        }
    }
}

/// What a claim that waits has at hand.
pub(crate) struct Waiting<'a> {
    pub(crate) writer: &'a mut RingWriter<Arc<MappedRegion>>,
    pub(crate) stall: &'a mut StallClock,
    pub(crate) shared: &'a Shared,
    pub(crate) key: &'a Key,
}

/// Bytes of shared memory that a publisher with this pool has mapped.
pub(crate) fn mapped_bytes(pool: &HostPool) -> u64 {
    // The region and its witness.
    to_u64(pool.len()) + 2 * REGION_BYTES
}

/// How long a claim that waits may sleep before it looks again although nobody rang.
pub(crate) fn look_again_after(writer: &RingWriter<Arc<MappedRegion>>, stalled: &Stalled) -> Duration {
    // A plain v1 subscriber wakes nobody. The others could be kept from it: anybody can write `publisher_parked`.
    let is_silent = writer.members().any_silent(stalled.bits());
    Duration::from_millis(if is_silent { 1 } else { 100 })
}
