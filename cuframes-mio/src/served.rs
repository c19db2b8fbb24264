//! [`ServedPublisher`]: a publisher whose control plane runs in a thread of its own.

use std::os::fd::{AsFd, OwnedFd};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use std::{fmt, io};

use cuframes_core::gpu::Export;
use cuframes_core::ring::{ClaimAsError, Stalled};
use cuframes_core::roster::Member;
use cuframes_core::wire::ShutdownReason;
use cuframes_core::{FrameMeta, Key, Misuse};

use crate::aside::SetAside;
use crate::claim::Claim;
use crate::clock;
use crate::error::Error;
use crate::host::HostMemory;
use crate::pollable::Pollable;
use crate::producer::{Producer, Waiting, look_again_after};
use crate::report;
use crate::service::Service;
use crate::shared::{MemberEvent, Shared};
use crate::stats::PublisherStats;
use crate::wake::sleep;

/// A publisher whose control plane runs in a thread. Dropping it shuts down as [`shut_down`](Self::shut_down) does, and waits as
/// long; but not in a forked child, which can't use it any more than a [`Publisher`](crate::Publisher).
#[derive(Debug)]
pub struct ServedPublisher<B: Export<Fd = OwnedFd> = HostMemory> {
    producer: Producer<B>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl<B: Export<Fd = OwnedFd>> ServedPublisher<B> {
    /// Starts the thread.
    pub(crate) fn start(service: Service, producer: Producer<B>) -> Result<Self, Error> {
        let failed = |what, error| Error::system(&producer.key, what, error);
        let pollable = Pollable::new(service).map_err(|error| failed("make an event loop", error))?;
        // 15 bytes of a thread's name are kept.
        let key = producer.key.clone();
        let control = move || control(pollable).inspect_err(|error| report::failed(&key, error));
        let thread = thread::Builder::new().name("cuframes-serve".into()).spawn(control);
        let thread = thread.map_err(|error| failed("start the thread that serves subscribers", error))?;
        Ok(Self { producer, thread: Some(thread) })
    }

    /// Takes a slot for the next frame, and waits for one if it must. Whoever is in the way for longer than its deadline is
    /// evicted (D-31), and one claim waits for at most twice the longer of the two deadlines, `consumer_ack` and `lease`,
    /// plus the time that the evictions take. Makes no system call when a slot is free.
    ///
    /// # Errors
    /// Only if the control plane has failed, or in a forked child ([`Error::Forked`]).
    pub fn claim(&mut self) -> Result<Claim<'_, B>, Error> {
        self.claim_timeout(Duration::MAX)
    }

    /// As [`claim`](Self::claim), but gives up after `timeout`: for a source that must not wait, and rather drops a frame.
    /// Whoever is in the way is evicted at its deadline all the same, by this claim or by a later one that waits.
    ///
    /// # Errors
    /// [`Error::Stalled`] names who was in the way; nothing has changed then. Otherwise as [`claim`](Self::claim).
    pub fn claim_timeout(&mut self, timeout: Duration) -> Result<Claim<'_, B>, Error> {
        self.claim_within(None, timeout)
    }

    /// As [`claim_timeout`](Self::claim_timeout), but takes the slot of number `seq`, as [`try_claim_as`](Self::try_claim_as).
    ///
    /// # Errors
    /// [`Error::Misuse`] if a number that is no smaller is published or claimed, otherwise as
    /// [`claim_timeout`](Self::claim_timeout).
    pub fn claim_as_timeout(&mut self, seq: u64, timeout: Duration) -> Result<Claim<'_, B>, Error> {
        self.claim_within(Some(seq), timeout)
    }

    fn claim_within(&mut self, number: Option<u64>, timeout: Duration) -> Result<Claim<'_, B>, Error> {
        let Self { producer, thread } = self;
        producer.here()?;
        let is_served = || thread.as_ref().is_some_and(|thread| !thread.is_finished());
        if !is_served() {
            return Err(not_served(&producer.key));
        }
        let mut end = None;
        let wait = |Waiting { pen, members, stall, shared, key }: Waiting<'_>, stalled: Stalled| {
            if !pen.park() {
                return Ok(());
            }
            if !is_served() {
                return Err(not_served(key));
            }
            let now = clock::now();
            let end = *end.get_or_insert(now + timeout);
            let accused = stall.stalled(now, &stalled, members);
            if accused {
                let failed = |error| Error::system(key, "wake the thread that serves subscribers", error);
                shared.service_bell.ring().map_err(failed)?;
            }
            // Nobody can be evicted for what our own device does not complete.
            let is_stuck = stalled.unfinished && stalled.bits() == 0 && stall.waited(now) >= stall.patience();
            if end <= now || is_stuck || stalled == Stalled::NO_NUMBER {
                let timeout = match stalled {
                    // Waiting does not help.
                    Stalled::NO_NUMBER => Duration::ZERO,
                    _ if end <= now => timeout,
                    _ => stall.patience(),
                };
                let mut members = shared.members();
                members.retain(|member| stalled.bits() & member.bit.mask() != 0);
                return Err(Error::Stalled { key: key.clone(), stalled, timeout, members });
            }
            let limit = match stall.deadline() {
                Some(deadline) if !accused => deadline.saturating_since(now),
                _ => EVICTION_PAUSE,
            };
            let limit = limit.min(end.saturating_since(now)).min(look_again_after(members, &stalled));
            wait_for_bell(shared, limit).map_err(|error| Error::system(key, "wait for a slot", error))
        };
        match number {
            None => producer.claim_or(wait),
            Some(seq) => producer.claim_as_or(seq, |key, _| passed(key), wait),
        }
    }

    /// As [`claim`](Self::claim), but does not wait.
    ///
    /// # Errors
    /// [`Stalled`] names who must acknowledge or release first. Whoever stays in the way of the attempts for longer than
    /// its deadline is evicted (D-31). In a forked child it is [`Stalled::FORKED`].
    pub fn try_claim(&mut self) -> Result<Claim<'_, B>, Stalled> {
        if !self.producer.shared.home.is_here() {
            return Err(Stalled::FORKED);
        }
        self.producer.claim_or(accuse)
    }

    /// As [`try_claim`](Self::try_claim), but takes the slot of number `seq`, for a frame that had its number before it came
    /// here: a frame of another host, or of a file. The numbers that are left out subscribers see as a gap.
    ///
    /// It is this slot or none, whatever the policy: who keeps the newest frame until the next one comes is in the way of a
    /// number that is a multiple of `ring_size` above it. Where frames may be dropped, drop this one, and go on with the next.
    ///
    /// # Errors
    /// [`ClaimAsError::Passed`] if a number that is no smaller is published or claimed, and [`ClaimAsError::Stalled`] as
    /// [`try_claim`](Self::try_claim); for `u64::MAX`, which is no frame's number, that is [`Stalled::NO_NUMBER`].
    pub fn try_claim_as(&mut self, seq: u64) -> Result<Claim<'_, B>, ClaimAsError> {
        if !self.producer.shared.home.is_here() {
            return Err(Stalled::FORKED.into());
        }
        let refuse = |_: &Key, error| error;
        self.producer.claim_as_or(seq, refuse, |waiting, stalled| Ok(accuse(waiting, stalled)?))
    }

    /// Goes on with a claim that was [set aside](Claim::set_aside). `None` if it is another publisher's or was given up, and
    /// in a forked child.
    #[expect(clippy::needless_pass_by_value, reason = "it is good once")]
    pub fn resume_claim(&mut self, aside: SetAside) -> Option<Claim<'_, B>> {
        self.producer.resume(&aside)
    }

    /// Waits until `n` subscribers are active.
    ///
    /// # Errors
    /// [`NotEnough`] says how many came in time, and who they are.
    pub fn wait_for(&self, n: usize, timeout: Duration) -> Result<(), NotEnough> {
        let shared = &self.producer.shared;
        shared.wait_for(n, timeout).map_err(|members| NotEnough { wanted: n, timeout, members })
    }

    /// Who is subscribed.
    #[must_use]
    pub fn members(&self) -> Vec<Member> {
        self.producer.shared.members()
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

    /// Geometry of every frame.
    #[must_use]
    pub const fn meta(&self) -> &FrameMeta {
        &self.producer.meta
    }

    /// Ends the stream: what a device has still to write is waited for and published, for as long as the grace period at most; then
    /// SHUTDOWN to everybody, and it waits until they have closed, or for the grace period once more (D-12). What a device completes
    /// only after its time is still published, and seen by whoever has not left. Nothing is left in the file system afterwards.
    ///
    /// # Errors
    /// If the control plane has failed, or in a forked child ([`Error::Forked`]).
    pub fn shut_down(mut self, reason: ShutdownReason) -> Result<(), Error> {
        self.producer.here()?;
        self.stop(reason).map_err(|error| Error::system(&self.producer.key, "end the stream", error))
    }

    fn stop(&mut self, reason: ShutdownReason) -> io::Result<()> {
        let Some(thread) = self.thread.take() else { return Ok(()) };
        if !self.producer.shared.home.is_here() {
            // The thread is the parent's, and so is the stream (P-20).
            return Ok(());
        }
        self.producer.give_up_aside();
        // What a device still writes is published before SHUTDOWN, or not at all.
        self.producer.wait_for_device();
        self.producer.shared.request_stop(reason)?;
        thread
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("the thread that serves subscribers has panicked")))
    }
}

impl ServedPublisher {
    /// The memory of a claim that was [set aside](Claim::set_aside), as [`Claim::bytes_mut`] gives it; empty if it was given up,
    /// or is another publisher's.
    #[must_use]
    pub fn aside_bytes_mut(&mut self, aside: &SetAside) -> &mut [u8] {
        let Producer { aside: shelf, frames, .. } = &mut self.producer;
        match (shelf.slot(aside), &mut frames.pool) {
            (Some(slot), Some(pool)) => pool.slot_bytes_mut(slot),
            _ => &mut [],
        }
    }
}

impl<B: Export<Fd = OwnedFd>> Drop for ServedPublisher<B> {
    fn drop(&mut self) {
        // Whoever wants to know calls `shut_down`.
        let _ = self.stop(ShutdownReason::NORMAL);
    }
}

/// Fewer subscribers came than were waited for.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NotEnough {
    /// How many were waited for.
    pub wanted: usize,
    /// For how long.
    pub timeout: Duration,
    /// Those that came.
    pub members: Vec<Member>,
}

impl fmt::Display for NotEnough {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { wanted, timeout, members } = self;
        write!(f, "{} of {wanted} subscribers came within {timeout:?}", members.len())?;
        let mut separator = ": ";
        for Member { name, pid, .. } in members {
            write!(f, "{separator}{name} (pid {pid})")?;
            separator = ", ";
        }
        Ok(())
    }
}

impl std::error::Error for NotEnough {}

/// The control plane's thread.
fn control(mut service: Pollable<Service>) -> io::Result<()> {
    while !service.get_ref().is_finished(clock::now()) {
        // `Again` is remembered by `service` itself.
        let _ = service.wait(None)?;
    }
    Ok(())
}

/// Sleeps until a subscriber or the control plane rings, or `limit` has passed.
fn wait_for_bell(shared: &Shared, limit: Duration) -> io::Result<()> {
    let [is_rung] = sleep([shared.claim_bells.as_fd()], limit)?;
    if is_rung { shared.claim_bells.drain() } else { Ok(()) }
}

/// What a claim does that found no slot and does not wait.
fn accuse(Waiting { members, stall, shared, .. }: Waiting<'_>, stalled: Stalled) -> Result<(), Stalled> {
    if stall.stalled(clock::now(), &stalled, members) {
        // If it can't be rung the control plane is gone, and the next claim says so.
        let _ = shared.service_bell.ring();
    }
    Err(stalled)
}

fn passed(key: &Key) -> Error {
    let misuse = Misuse::Argument { name: "seq", must: "above every number that is published or claimed" };
    Error::Misuse { key: key.clone(), misuse }
}

fn not_served(key: &Key) -> Error {
    let source = io::Error::other("the thread that serves subscribers has ended; start the publisher again");
    Error::system(key, "claim a slot", source)
}

/// How long an eviction may take before it is asked for again.
const EVICTION_PAUSE: Duration = Duration::from_millis(20);
