//! [`Shared`]: what the control plane and the hot path of one publisher have in common.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::{array, io, mem};

use cuframes_core::SubscriberBit;
use cuframes_core::ring::Accusation;
use cuframes_core::roster::Member;
use cuframes_core::shm::layout::SUBSCRIBERS;
use cuframes_core::wire::ShutdownReason;

use crate::claim_bells::ClaimBells;
use crate::lock::lock;
use crate::shm::Home;
use crate::stats::Counters;
use crate::wake::{EventFd, ring_all};

/// Shared by the service and the thread that claims. Nothing here is locked on the hot path unless a subscriber sleeps,
/// which costs a system call anyway.
#[derive(Debug)]
pub(crate) struct Shared {
    /// Wakes the service: somebody is accused, or it is to stop.
    pub(crate) service_bell: EventFd,
    /// Wake a claim that waits.
    pub(crate) claim_bells: ClaimBells,
    /// The reason to stop, plus 1; 0 while there is none.
    stop: AtomicU64,
    /// The eventfd of each subscriber, by bit. No lock is held while one is rung.
    bells: [Mutex<Option<Arc<EventFd>>>; SUBSCRIBERS],
    /// Those that were taken away while somebody was ringing them, who may have to wait (§3.7).
    retired: Mutex<Vec<Arc<EventFd>>>,
    pub(crate) counters: Counters,
    /// The process that publishes: not a child that it has forked (P-20).
    pub(crate) home: Home,
    members: Mutex<Vec<Member>>,
    changed: Condvar,
    /// What happened to subscribers, until the caller asks; the oldest is dropped when there are too many.
    events: Mutex<VecDeque<MemberEvent>>,
}

/// What happened to a subscriber of a publisher (D-31).
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum MemberEvent {
    /// It was taken in.
    Joined(Member),
    /// It is not subscribed any more.
    Left(Member, Leave),
}

/// How a subscriber left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Leave {
    /// It said UNSUBSCRIBE, or ERROR: why it can't go on.
    Unsubscribed,
    /// Its connection or its process ended without a word, or it broke the protocol.
    Vanished,
    /// It kept the publisher waiting for too long, and was evicted.
    Evicted(Accusation),
}

impl Shared {
    pub(crate) fn new() -> io::Result<Arc<Self>> {
        Ok(Arc::new(Self {
            service_bell: EventFd::new()?,
            claim_bells: ClaimBells::new()?,
            counters: Counters::default(),
            home: Home::new()?,
            stop: AtomicU64::new(0),
            bells: array::from_fn(|_| Mutex::new(None)),
            retired: Mutex::new(Vec::new()),
            members: Mutex::new(Vec::new()),
            changed: Condvar::new(),
            events: Mutex::new(VecDeque::new()),
        }))
    }

    /// Sets or takes away the eventfd of `bit`, after the bit became active or stopped being so. A frame that is published between
    /// the two rings nobody; but who joins gets a bell that has been rung already, and looks.
    pub(crate) fn set_bell(&self, bit: SubscriberBit, bell: Option<EventFd>) {
        let bell = bell.map(Arc::new);
        let old = mem::replace(&mut *self.bell(bit), bell);
        // From now on nobody begins to ring it.
        lock(&self.retired).extend(old.filter(is_rung));
    }

    /// Lets whoever still rings a bell that was taken away go on: its subscriber may have filled it before it left.
    pub(crate) fn unblock_retired(&self) {
        let mut retired = lock(&self.retired);
        retired.retain(is_rung);
        for bell in &*retired {
            // It can only fail on a descriptor that is not an eventfd, and these are our own.
            let _ = bell.unblock();
        }
    }

    /// Wakes the subscribers in `bits` (§5 step 5).
    pub(crate) fn wake(&self, bits: u64) {
        let mut rung = 0;
        let mut bells =
            SubscriberBit::in_bitmap(bits).filter_map(|bit| self.bell(bit).clone()).inspect(|_| rung += 1);
        ring_all(&array::from_fn(|_| bells.next()));
        drop(bells);
        self.counters.woken(rung);
    }

    /// Undoes what the subscriber with `bit` did so that ringing it would wait, and says whether it had.
    pub(crate) fn unblock(&self, bit: SubscriberBit) -> bool {
        let bell = self.bell(bit).clone();
        bell.is_some_and(|bell| bell.unblock().unwrap_or(false))
    }

    pub(crate) fn set_members(&self, members: Vec<Member>) {
        *lock(&self.members) = members;
        self.changed.notify_all();
    }

    pub(crate) fn push_event(&self, event: MemberEvent) {
        let mut events = lock(&self.events);
        if events.len() == MAX_EVENTS {
            events.pop_front();
        }
        events.push_back(event);
    }

    pub(crate) fn poll_event(&self) -> Option<MemberEvent> {
        lock(&self.events).pop_front()
    }

    /// How many subscribers are active.
    pub(crate) fn member_count(&self) -> usize {
        lock(&self.members).len()
    }

    pub(crate) fn members(&self) -> Vec<Member> {
        lock(&self.members).clone()
    }

    /// Waits until `n` subscribers are active; otherwise returns those that are when the time is over.
    pub(crate) fn wait_for(&self, n: usize, timeout: Duration) -> Result<(), Vec<Member>> {
        let members = lock(&self.members);
        let waited = self.changed.wait_timeout_while(members, timeout, |members| members.len() < n);
        let (members, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if members.len() < n { Err(members.clone()) } else { Ok(()) }
    }

    pub(crate) fn request_stop(&self, reason: ShutdownReason) -> io::Result<()> {
        self.stop.store(u64::from(reason.0) + 1, Ordering::Release);
        self.service_bell.ring()
    }

    pub(crate) fn stop_requested(&self) -> Option<ShutdownReason> {
        let reason = self.stop.load(Ordering::Acquire).checked_sub(1)?;
        u32::try_from(reason).ok().map(ShutdownReason)
    }

    #[expect(clippy::indexing_slicing, reason = "a bit is at most 31, the array has 32 entries")]
    fn bell(&self, bit: SubscriberBit) -> MutexGuard<'_, Option<Arc<EventFd>>> {
        lock(&self.bells[usize::from(bit.get())])
    }
}

/// Whether somebody has a copy of a bell that has no place any more.
fn is_rung(bell: &Arc<EventFd>) -> bool {
    Arc::strong_count(bell) > 1
}

/// Events that are kept for a caller who does not ask.
const MAX_EVENTS: usize = 256;

#[cfg(test)]
mod tests {
    use std::thread;

    use rustix::io::write;

    use super::*;
    use crate::testing::{stuff, until};

    #[test]
    fn who_rings_the_bell_of_a_subscriber_that_fills_it_and_leaves_does_not_wait_for_ever() {
        let shared = Shared::new().unwrap();
        let bit = SubscriberBit::new(1).unwrap();
        shared.set_bell(bit, Some(EventFd::new().unwrap()));
        // There was room in it when the publisher looked.
        let bell = shared.bell(bit).clone().unwrap();
        stuff(&bell);
        let ringing = thread::spawn(move || write(&*bell, &1_u64.to_ne_bytes()));
        shared.set_bell(bit, None);
        until("the publisher to go on", || {
            shared.unblock_retired();
            ringing.is_finished()
        });
        ringing.join().unwrap().unwrap();
        shared.unblock_retired();
        assert!(lock(&shared.retired).is_empty(), "it is closed");
    }

    #[test]
    fn a_bell_that_nobody_rings_is_closed_at_once() {
        let shared = Shared::new().unwrap();
        let bit = SubscriberBit::new(1).unwrap();
        for _ in 0..2 {
            shared.set_bell(bit, Some(EventFd::new().unwrap()));
        }
        shared.set_bell(bit, None);
        assert!(lock(&shared.retired).is_empty());
    }
}
