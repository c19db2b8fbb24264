//! [`ClaimBells`]: what wakes a claim that waits (§5.7, X-3).

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Mutex;

use cuframes_core::SubscriberBit;
use cuframes_core::shm::layout::SUBSCRIBERS;
use rustix::event::{Timespec, epoll};
use rustix::io::retry_on_intr;

use crate::lock::lock;
use crate::wake::EventFd;

/// One bell for each subscriber with WAKE_HINT, and one for the control plane, behind one descriptor to sleep on or to
/// register.
///
/// No two subscribers share a bell: whoever has a copy can make it blocking and fill it, and whoever rings it then waits
/// (§3.7). Nothing is ever read out of them. They are watched edge-triggered, so a ring counts as new whatever was in the
/// counter before.
#[derive(Debug)]
pub(crate) struct ClaimBells {
    epoll: OwnedFd,
    /// Somebody joined or is gone.
    own: EventFd,
    /// Only the control plane locks it.
    of_subscribers: Mutex<[Option<EventFd>; SUBSCRIBERS]>,
}

impl ClaimBells {
    /// The control plane's alone.
    ///
    /// # Errors
    /// No descriptor is left.
    pub(crate) fn new() -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let bells = Self { own: EventFd::new()?, epoll, of_subscribers: Mutex::default() };
        bells.watch(&bells.own)?;
        Ok(bells)
    }

    /// A new one for a subscriber, watched from now on, while it or a copy of it is open.
    ///
    /// # Errors
    /// No descriptor is left, or no memory.
    pub(crate) fn make(&self) -> io::Result<EventFd> {
        let bell = EventFd::new()?;
        self.watch(&bell)?;
        Ok(bell)
    }

    /// Keeps the bell of the subscriber that has `bit` now, and ends that of the one before.
    pub(crate) fn set(&self, bit: SubscriberBit, bell: Option<EventFd>) {
        let mut bells = lock(&self.of_subscribers);
        let Some(place) = bells.get_mut(usize::from(bit.get())) else { return };
        if let Some(old) = std::mem::replace(place, bell) {
            // The subscriber has a copy, so closing ours would not do. It can only fail if the bell is not watched.
            let _ = epoll::delete(&self.epoll, &old);
        }
    }

    /// Wakes the claim for the control plane.
    ///
    /// # Errors
    /// None that can be expected of an eventfd.
    pub(crate) fn ring(&self) -> io::Result<()> {
        self.own.ring()
    }

    /// Forgets all rings so far.
    ///
    /// # Errors
    /// None that can be expected of an epoll.
    pub(crate) fn drain(&self) -> io::Result<()> {
        // Room for all of them: what is left would keep it readable, but never ring again.
        let mut events = [const { MaybeUninit::uninit() }; SUBSCRIBERS + 1];
        retry_on_intr(|| epoll::wait(&self.epoll, &mut events, Some(&Timespec::default())).map(|_| ()))?;
        Ok(())
    }

    fn watch(&self, bell: &EventFd) -> io::Result<()> {
        // Which one rang does not matter.
        let any = epoll::EventData::new_u64(0);
        Ok(epoll::add(&self.epoll, bell, any, epoll::EventFlags::IN | epoll::EventFlags::ET)?)
    }
}

impl AsFd for ClaimBells {
    /// Readable when one was rung.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::pollable::Registration;
    use crate::testing::{is_readable, stuff};

    #[test]
    fn each_ring_of_anybody_makes_it_readable_until_it_is_drained() {
        let bells = ClaimBells::new().unwrap();
        let of_subscribers: Vec<_> = (1..32).map(|_| bells.make().unwrap()).collect();
        assert!(!is_readable(&bells));
        for _ in 0..3 {
            for bell in &of_subscribers {
                bell.ring().unwrap();
                assert!(is_readable(&bells));
                bells.drain().unwrap();
                assert!(!is_readable(&bells));
            }
        }
        of_subscribers.iter().for_each(|bell| bell.ring().unwrap());
        bells.ring().unwrap();
        bells.drain().unwrap();
        assert!(!is_readable(&bells), "all at once");
        bells.ring().unwrap();
        assert!(is_readable(&bells));
    }

    #[test]
    fn in_an_event_loop_each_ring_after_a_drain_is_an_event() {
        let bells = ClaimBells::new().unwrap();
        let bell = bells.make().unwrap();
        let (mut poll, mut events) = (mio::Poll::new().unwrap(), mio::Events::with_capacity(1));
        let registration = Registration::new(poll.registry(), mio::Token(7)).unwrap();
        registration.add(&bells, 0, mio::Interest::READABLE).unwrap();
        let mut is_event = || {
            poll.poll(&mut events, Some(Duration::ZERO)).unwrap();
            !events.is_empty()
        };
        for _ in 0..3 {
            bell.ring().unwrap();
            assert!(is_event());
            bells.drain().unwrap();
            assert!(!is_event());
        }
    }

    #[test]
    fn who_has_left_can_not_ring_any_more_though_it_keeps_its_copy() {
        let bells = ClaimBells::new().unwrap();
        let (bit, bell) = (SubscriberBit::new(1).unwrap(), bells.make().unwrap());
        let copy = EventFd::from_fd(bell.as_fd().try_clone_to_owned().unwrap()).unwrap();
        bells.set(bit, Some(bell));
        copy.ring().unwrap();
        assert!(is_readable(&bells));
        bells.set(bit, None);
        assert!(!is_readable(&bells), "not even with what it rang before");
        copy.ring().unwrap();
        assert!(!is_readable(&bells));
    }

    #[test]
    fn one_that_its_subscriber_has_filled_keeps_no_other_from_being_heard() {
        let bells = ClaimBells::new().unwrap();
        let (filled, good) = (bells.make().unwrap(), bells.make().unwrap());
        stuff(&filled);
        bells.drain().unwrap();
        good.ring().unwrap();
        assert!(is_readable(&bells));
    }
}
