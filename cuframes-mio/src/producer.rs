//! [`Producer`]: the hot path of a publisher, with the memory behind it.

use std::io;
use std::mem::{self, ManuallyDrop};
use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use cuframes_core::gpu::{EventHandle, Export, GpuError};
use cuframes_core::ring::{self, ClaimAsError, Members, Seq, StallClock, Stalled, Ticket};
use cuframes_core::{FrameMeta, Key, RingSize, Timeouts};
use mio::{Interest, Registry, Token};
use tracing::{error, warn};

use crate::aside::{SetAside, Shelf};
use crate::claim::Claim;
use crate::clock;
use crate::error::Error;
use crate::lock::lock;
use crate::pen::{Pen, Writer};
use crate::pollable::Registration;
use crate::shared::Shared;
use crate::shm::REGION_BYTES;
use crate::stats::PublisherStats;

/// What claims need: the ring's writer, the frames, and how long to wait for whom.
#[derive(Debug)]
pub(crate) struct Producer<B: Export<Fd = OwnedFd>> {
    pub(crate) key: Key,
    pub(crate) meta: FrameMeta,
    pub(crate) pen: Pen,
    pub(crate) members: Arc<Members<AtomicU64>>,
    pub(crate) stall: StallClock,
    pub(crate) frames: Frames<B>,
    pub(crate) shared: Arc<Shared>,
    /// For how long the device may take to complete a frame when the stream has ended (D-12).
    grace: Duration,
    /// A claim has failed, and none has succeeded since.
    stalling: bool,
    /// The number that it was for, if one was given.
    wanted: Option<Seq>,
    /// The claim that was set aside.
    pub(crate) aside: Shelf,
    /// Where the bells are registered.
    pub(crate) registration: Option<Registration>,
}

/// Frame memory that belongs to a publisher.
#[derive(Debug)]
pub(crate) struct Frames<B: Export> {
    pub(crate) backend: Arc<B>,
    /// Until it is freed.
    pub(crate) pool: Option<B::Pool>,
    /// Stands for what a device has done, where other processes can wait for it (§2).
    pub(crate) event: B::Event,
    /// Opens it in other processes.
    pub(crate) handle: EventHandle,
    pub(crate) ring_size: RingSize,
}

/// What a claim that waits has at hand.
pub(crate) struct Waiting<'a> {
    pub(crate) pen: &'a mut Pen,
    pub(crate) members: &'a Members<AtomicU64>,
    pub(crate) stall: &'a mut StallClock,
    pub(crate) shared: &'a Shared,
    pub(crate) key: &'a Key,
}

impl<B: Export<Fd = OwnedFd>> Producer<B> {
    /// How many descriptors it has for the event loop.
    pub(crate) const TOKENS: usize = 1;

    pub(crate) fn new(
        (key, meta): (Key, FrameMeta),
        writer: Writer,
        timeouts: &Timeouts,
        frames: Frames<B>,
        shared: Arc<Shared>,
    ) -> Self {
        let members = Arc::clone(writer.members());
        Self {
            key,
            meta,
            pen: Pen::new(writer, B::STREAMS),
            members,
            stall: StallClock::new(timeouts),
            frames,
            shared,
            grace: timeouts.shutdown_grace,
            stalling: false,
            wanted: None,
            aside: Shelf::default(),
            registration: None,
        }
    }

    /// Fails in a child that was forked from the process that publishes (P-20).
    pub(crate) fn here(&self) -> Result<(), Error> {
        if self.shared.home.is_here() { Ok(()) } else { Err(Error::Forked { key: self.key.clone() }) }
    }

    /// What has happened so far.
    pub(crate) fn stats(&self) -> PublisherStats {
        let Shared { counters, .. } = &*self.shared;
        let mapped = mapped_bytes(&self.meta, self.frames.ring_size);
        counters.read(clock::now(), self.shared.member_count(), mapped)
    }

    /// Registers the bells that end a stall.
    pub(crate) fn register(&mut self, registry: &Registry, first_token: Token) -> io::Result<()> {
        self.deregister();
        let registration = Registration::new(registry, first_token)?;
        registration.add(&self.shared.claim_bells, 0, Interest::READABLE)?;
        self.registration = Some(registration);
        Ok(())
    }

    /// The service goes on in another thread, and has the bells open.
    pub(crate) fn deregister(&mut self) {
        if let Some(registration) = self.registration.take() {
            registration.remove(&self.shared.claim_bells);
        }
    }

    /// Waits until a device has written what was committed, and says whether it has.
    pub(crate) fn wait_for_device(&mut self) -> bool {
        self.pen.wait_for_device(self.grace)
    }

    /// Claims, calling `wait` whenever nothing can be claimed.
    #[inline]
    pub(crate) fn claim_or<E>(
        &mut self,
        wait: impl FnMut(Waiting<'_>, Stalled) -> Result<(), E>,
    ) -> Result<Claim<'_, B>, E> {
        self.claim_by(None, |writer| writer.claim().map(ring::Claim::detach), |_, stalled| Ok(stalled), wait)
    }

    /// Claims number `seq`, calling `wait` whenever its slot can't be had, and `refuse` if it never can.
    pub(crate) fn claim_as_or<E>(
        &mut self,
        seq: u64,
        refuse: impl Fn(&Key, ClaimAsError) -> E,
        wait: impl FnMut(Waiting<'_>, Stalled) -> Result<(), E>,
    ) -> Result<Claim<'_, B>, E> {
        let number = Seq::new(seq);
        let attempt = |writer: &mut Writer| match number {
            Some(number) => writer.claim_as(number).map(ring::Claim::detach),
            None if seq == 0 => Err(ClaimAsError::Passed { newest: writer.newest_claimed() }),
            None => Err(Stalled::NO_NUMBER.into()),
        };
        let stalled = |key: &Key, error| match error {
            ClaimAsError::Stalled(stalled) => Ok(stalled),
            error => Err(refuse(key, error)),
        };
        self.claim_by(number, attempt, stalled, wait)
    }

    /// Makes `attempt` after attempt. Of an error `stalled` says what there is to wait for.
    #[inline]
    fn claim_by<E, F>(
        &mut self,
        wanted: Option<Seq>,
        attempt: impl Fn(&mut Writer) -> Result<Ticket, F>,
        stalled: impl Fn(&Key, F) -> Result<Stalled, E>,
        mut wait: impl FnMut(Waiting<'_>, Stalled) -> Result<(), E>,
    ) -> Result<Claim<'_, B>, E> {
        self.give_up_aside();
        let ticket = loop {
            let stalled = match self.pen.with(&attempt) {
                Ok(ticket) => break ticket,
                Err(error) => stalled(&self.key, error)?,
            };
            self.wanted = wanted;
            let Self { pen, members, stall, shared, key, stalling, .. } = self;
            if !*stalling {
                *stalling = true;
                shared.counters.stalled(&stalled);
            }
            wait(Waiting { pen, members, stall, shared, key }, stalled)?;
        };
        self.stall.clear();
        self.stalling = false;
        Ok(Claim::new(self, ticket))
    }

    /// Who is in the way of the claim that failed last.
    pub(crate) fn stalled(&mut self) -> Option<Stalled> {
        let wanted = self.wanted;
        self.pen.with(|writer| wanted.map_or_else(|| writer.stalled(), |seq| writer.stalled_as(seq)))
    }

    /// Whether the claim that failed last was for a given number, and the next one could pass it by: then nobody is in the way
    /// of a caller that has dropped its frame.
    pub(crate) fn can_pass_by(&mut self) -> bool {
        self.wanted.is_some() && self.pen.with(|writer| writer.stalled()).is_none()
    }

    /// The claim that was set aside, if this is it and it was not given up.
    pub(crate) fn resume(&mut self, aside: &SetAside) -> Option<Claim<'_, B>> {
        let ticket = self.aside.take(aside).filter(|_| self.shared.home.is_here())?;
        Some(Claim::new(self, ticket))
    }

    /// Gives up the claim that was set aside.
    #[inline]
    pub(crate) fn give_up_aside(&mut self) {
        if let Some(ticket) = self.aside.clear() {
            self.pen.cancel(&self.shared, ticket);
        }
    }
}

impl<B: Export<Fd = OwnedFd>> Drop for Producer<B> {
    fn drop(&mut self) {
        let Some(pool) = self.frames.pool.take() else { return };
        if !self.shared.home.is_here() {
            // A forked child shares the event loop with its parent, and has no device (P-20).
            if B::STREAMS {
                mem::forget(pool);
            }
            return;
        }
        self.give_up_aside();
        self.deregister();
        let (backend, key) = (Arc::clone(&self.frames.backend), self.key.clone());
        let free = move |pool| {
            if let Err(cause) = backend.free_pool(pool) {
                warn!(%key, %cause, call = %cause.call(), "the memory of the frames is not freed");
            }
        };
        match &self.pen {
            Pen::Shared(writer) if lock(writer).has_backlog() => {
                self.free_later(Arc::clone(writer), pool, free);
            }
            _ => free(pool),
        }
    }
}

impl<B: Export<Fd = OwnedFd>> Producer<B> {
    /// The device still writes frames: lets a thread wait for that, however long it takes, and free the memory then.
    fn free_later(
        &self,
        writer: Arc<Mutex<Writer>>,
        pool: B::Pool,
        free: impl FnOnce(B::Pool) + Send + 'static,
    ) {
        // Kept where it is if there is no thread to be had.
        let pool = ManuallyDrop::new(pool);
        let wait = move || {
            while lock(&writer).has_backlog() {
                thread::sleep(LOOK_AGAIN);
            }
            free(ManuallyDrop::into_inner(pool));
        };
        if let Err(cause) = thread::Builder::new().name("cuframes-free".into()).spawn(wait) {
            error!(key = %self.key, %cause, "can't start a thread, so the memory of the frames is not freed");
        }
    }
}

/// How often to look whether a device has completed its last frames.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// Bytes of shared memory that a publisher has: frames, region and witness.
pub(crate) fn mapped_bytes(meta: &FrameMeta, ring_size: RingSize) -> u64 {
    meta.frame_size_bytes.saturating_mul(ring_size.get().into()).saturating_add(2 * REGION_BYTES)
}

/// How long a claim that waits may sleep before it looks again although nobody rang.
pub(crate) fn look_again_after(members: &Members<AtomicU64>, stalled: &Stalled) -> Duration {
    // A plain v1 subscriber wakes nobody. The others could be kept from it: anybody can write `publisher_parked`.
    Duration::from_millis(if members.any_silent(stalled.bits()) { 1 } else { 100 })
}
