//! [`Publisher`]: shares frames under a key.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use cuframes_core::gpu::Export;
use cuframes_core::ring::{ClaimAsError, Stalled};
use cuframes_core::roster::Member;
use cuframes_core::wire::ShutdownReason;
use cuframes_core::{FrameMeta, Instant, Key};
use mio::{Registry, Token};

use crate::aside::SetAside;
use crate::builder::PublisherBuilder;
use crate::claim::Claim;
use crate::error::Error;
use crate::host::HostMemory;
use crate::pollable::{EventSource, Turn};
use crate::producer::{Producer, Waiting, look_again_after};
use crate::served::ServedPublisher;
use crate::service::Service;
use crate::shared::MemberEvent;
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
pub struct Publisher<B: Export<Fd = OwnedFd> = HostMemory> {
    // Dropped first, while the pool is still mapped.
    service: Service,
    producer: Producer<B>,
    /// When to look again whether a claim is possible, although nobody rang.
    look_again: Option<Instant>,
    /// Somebody is over its deadline, and is evicted if the caller claims again.
    is_told: bool,
}

impl Publisher {
    /// Settings of a new stream of frames with geometry `meta`.
    pub fn builder(key: Key, meta: FrameMeta) -> PublisherBuilder {
        PublisherBuilder::new(key, meta)
    }
}

impl<B: Export<Fd = OwnedFd>> Publisher<B> {
    pub(crate) const fn new(service: Service, producer: Producer<B>) -> Self {
        Self { service, producer, look_again: None, is_told: false }
    }

    /// Takes a slot for the next frame.
    ///
    /// # Errors
    /// [`Stalled`] names who must acknowledge or release first; whoever was over its deadline has been evicted, and after
    /// twice the longer of the two deadlines, `consumer_ack` and `lease`, whoever is in the way (D-31). The event loop
    /// wakes up when it is worth trying again. In a forked child it is [`Stalled::FORKED`].
    pub fn try_claim(&mut self, now: Instant) -> Result<Claim<'_, B>, Stalled> {
        if !self.producer.shared.home.is_here() {
            return Err(Stalled::FORKED);
        }
        let Self { service, producer, look_again, is_told } = self;
        (*look_again, *is_told) = (None, false);
        producer.claim_or(|waiting, stalled| evict_or_wait(service, look_again, now, waiting, stalled))
    }

    /// As [`try_claim`](Self::try_claim), but takes the slot of number `seq`, for a frame that had its number before it came
    /// here: a frame of another host, or of a file. The numbers that are left out subscribers see as a gap.
    ///
    /// It is this slot or none, whatever the policy: who keeps the newest frame until the next one comes is in the way of a
    /// number that is a multiple of `ring_size` above it. Where frames may be dropped, drop this one, and go on with the next.
    /// Whoever is over its deadline is evicted by the next attempt, and before that only if no other number could be had.
    ///
    /// # Errors
    /// [`ClaimAsError::Passed`] if a number that is no smaller is published or claimed, and [`ClaimAsError::Stalled`] as
    /// [`try_claim`](Self::try_claim); for `u64::MAX`, which is no frame's number, that is [`Stalled::NO_NUMBER`].
    pub fn try_claim_as(&mut self, now: Instant, seq: u64) -> Result<Claim<'_, B>, ClaimAsError> {
        if !self.producer.shared.home.is_here() {
            return Err(Stalled::FORKED.into());
        }
        let Self { service, producer, look_again, is_told } = self;
        (*look_again, *is_told) = (None, false);
        let refuse = |_: &Key, error| error;
        producer.claim_as_or(seq, refuse, |waiting, stalled| {
            evict_or_wait(service, look_again, now, waiting, stalled).map_err(ClaimAsError::from)
        })
    }

    /// Goes on with a claim that was [set aside](Claim::set_aside). `None` if it is another publisher's or was given up, and
    /// in a forked child.
    #[expect(clippy::needless_pass_by_value, reason = "it is good once")]
    pub fn resume_claim(&mut self, aside: SetAside) -> Option<Claim<'_, B>> {
        self.producer.resume(&aside)
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

    /// The backend that the memory of the frames is from.
    #[must_use]
    pub fn backend(&self) -> &B {
        &self.producer.frames.backend
    }

    /// Where its socket is.
    #[must_use]
    pub fn socket_path(&self) -> &Path {
        self.service.files.socket_path()
    }

    /// Geometry of every frame.
    #[must_use]
    pub const fn meta(&self) -> &FrameMeta {
        &self.producer.meta
    }

    /// Says SHUTDOWN to everybody and accepts nobody any more. Frames that a device has still to write are published too late
    /// for those who leave at once: synchronize with the stream first. Go on handling events until
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
    pub fn serve(self) -> Result<ServedPublisher<B>, Error> {
        self.producer.here()?;
        let Self { service, mut producer, .. } = self;
        producer.deregister();
        ServedPublisher::start(service, producer)
    }
}

impl<B: Export<Fd = OwnedFd>> EventSource for Publisher<B> {
    const TOKENS: usize = Service::TOKENS + Producer::<B>::TOKENS;

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
        // Whoever is over its deadline is evicted, whether the caller claims again or not; but not for a number that it can
        // pass by.
        while !self.is_told && self.producer.stall.deadline().is_some_and(|due| due <= now) {
            let stalled = self.producer.stalled();
            self.is_told = stalled.is_some() && self.producer.can_pass_by();
            let Producer { stall, members, .. } = &mut self.producer;
            match stalled {
                None => stall.clear(),
                Some(_) if self.is_told => {}
                Some(stalled) if stall.stalled(now, &stalled, members) => {
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
            .chain(self.producer.stall.deadline().filter(|_| !self.is_told))
            .chain(self.look_again)
            .min()
    }
}

/// What a claim does that found no slot: once more, or not before the event loop says so.
fn evict_or_wait(
    service: &mut Service,
    look_again: &mut Option<Instant>,
    now: Instant,
    Waiting { pen, members, stall, .. }: Waiting<'_>,
    stalled: Stalled,
) -> Result<(), Stalled> {
    if !pen.park() {
        return Ok(());
    }
    if stall.stalled(now, &stalled, members) {
        service.evict_accused(now);
        return Ok(());
    }
    *look_again = Some(now + look_again_after(members, &stalled));
    Err(stalled)
}
