//! [`EventFd`], the wake-up of a peer that sleeps (§3.7, X-3).
//!
//! A ring is a hint: whoever wakes up drains the descriptor first and looks at the shared words afterwards, so that a
//! ring between the two is never lost (P-16).
//!
//! Both sides share one open file description, and with it the flag `O_NONBLOCK`: a peer can take the flag away and
//! fill the counter, and then a plain write waits for ever (the kernel takes no RWF_NOWAIT for writing an eventfd). So
//! nobody writes before asking whether there is room. Who fills it between the two has to be as quick as that, and is
//! undone by [`EventFd::unblock`], if there is another thread to call it.

use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;
use std::{array, slice};

use cuframes_core::shm::layout::SUBSCRIBERS;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::{Errno, ReadWriteFlags, preadv2, read, retry_on_intr, write};

/// An eventfd that never blocks.
#[derive(Debug)]
pub(crate) struct EventFd(OwnedFd);

impl EventFd {
    /// A new one that has not been rung.
    ///
    /// # Errors
    /// No descriptor is left.
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self(eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?))
    }

    /// One that came from the publisher. A plain v1 publisher may have made it blocking.
    ///
    /// # Errors
    /// The descriptor's flags can't be changed.
    pub(crate) fn from_fd(fd: OwnedFd) -> io::Result<Self> {
        let bell = Self(fd);
        bell.make_non_blocking()?;
        Ok(bell)
    }

    /// Wakes whoever sleeps on it.
    ///
    /// # Errors
    /// The descriptor is no eventfd.
    pub(crate) fn ring(&self) -> io::Result<()> {
        // The counter is full: the other side is woken anyway (P-16).
        if !is_ready(&self.0, PollFlags::OUT)? {
            return Ok(());
        }
        self.add_one()
    }

    fn add_one(&self) -> io::Result<()> {
        match retry_on_intr(|| write(&self.0, &1_u64.to_ne_bytes())) {
            Ok(_) | Err(Errno::AGAIN) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Forgets all rings so far. One read is enough: it takes the whole counter.
    ///
    /// # Errors
    /// The descriptor is no eventfd: it can't be read, or gives something else than a counter.
    pub(crate) fn drain(&self) -> io::Result<()> {
        let mut counter = [0; COUNTER_BYTES];
        let mut buffers = [IoSliceMut::new(&mut counter)];
        // The offset that means none.
        match retry_on_intr(|| preadv2(&self.0, &mut buffers, u64::MAX, ReadWriteFlags::NOWAIT)) {
            // Linux before 5.8, or a filter that does not know this system call; or it is no eventfd.
            Err(errno) if errno != Errno::AGAIN => match readiness(&self.0, PollFlags::IN)? {
                ready if ready.is_empty() => Ok(()),
                // Such as the end of a pipe to write, which is ready for nothing but an error.
                ready if !ready.contains(PollFlags::IN) => Err(errno.into()),
                _ => took(retry_on_intr(|| read(&self.0, &mut counter))),
            },
            result => took(result),
        }
    }

    /// Undoes what a peer did so that a write would wait: sets the flag again, and drains the counter if it is full,
    /// which lets a write that waits go on. Says whether it was full: nobody gets there by ringing.
    ///
    /// # Errors
    /// The descriptor is no eventfd.
    pub(crate) fn unblock(&self) -> io::Result<bool> {
        self.make_non_blocking()?;
        let is_full = !is_ready(&self.0, PollFlags::OUT)?;
        if is_full {
            self.drain()?;
        }
        Ok(is_full)
    }

    fn make_non_blocking(&self) -> io::Result<()> {
        let flags = fcntl_getfl(&self.0)?;
        if !flags.contains(OFlags::NONBLOCK) {
            fcntl_setfl(&self.0, flags | OFlags::NONBLOCK)?;
        }
        Ok(())
    }
}

/// Rings every one of `bells`, which are all at the front; one system call more than there are. Allocates nothing.
pub(crate) fn ring_all(bells: &[Option<Arc<EventFd>>; SUBSCRIBERS]) {
    let Some(Some(first)) = bells.first() else { return };
    let bells = || bells.iter().map_while(Option::as_ref);
    let mut others = bells();
    let mut polled: [_; SUBSCRIBERS] =
        array::from_fn(|_| PollFd::new(others.next().unwrap_or(first), PollFlags::OUT));
    let polled = polled.get_mut(..bells().count()).unwrap_or_default();
    if retry_on_intr(|| poll(polled, Some(&Timespec::default()))).is_err() {
        return;
    }
    for (bell, polled) in bells().zip(polled) {
        // A full one has woken its sleeper already (P-16).
        if polled.revents().contains(PollFlags::OUT) {
            // It can only fail on a descriptor that is not an eventfd, and these are our own.
            let _ = bell.add_one();
        }
    }
}

/// Whether `events` are there now.
fn is_ready(fd: &OwnedFd, events: PollFlags) -> io::Result<bool> {
    Ok(readiness(fd, events)?.contains(events))
}

/// Which of `events` are there now, and what is wrong with the descriptor.
fn readiness(fd: &OwnedFd, events: PollFlags) -> io::Result<PollFlags> {
    let mut polled = PollFd::new(fd, events);
    retry_on_intr(|| poll(slice::from_mut(&mut polled), Some(&Timespec::default())))?;
    Ok(polled.revents())
}

/// What reading the counter has come to.
fn took(result: Result<usize, Errno>) -> io::Result<()> {
    match result {
        Ok(COUNTER_BYTES) | Err(Errno::AGAIN) => Ok(()),
        Ok(_) => Err(io::Error::new(io::ErrorKind::InvalidData, "it is no eventfd")),
        Err(errno) => Err(errno.into()),
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Sleeps until one of `fds` is readable or at its end, or `limit` has passed; says which are. A signal ends it early.
pub(crate) fn sleep<const N: usize>(fds: [BorrowedFd<'_>; N], limit: Duration) -> io::Result<[bool; N]> {
    // A limit that no timespec can hold is as good as for ever.
    let timeout = Timespec::try_from(limit).ok();
    let mut polled = fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
    match poll(&mut polled, timeout.as_ref()) {
        Ok(_) => Ok(polled.map(|fd| !fd.revents().is_empty())),
        Err(Errno::INTR) => Ok([false; N]),
        Err(errno) => Err(errno.into()),
    }
}

const COUNTER_BYTES: usize = size_of::<u64>();

#[cfg(test)]
mod tests {
    use std::fs::File;

    use rustix::event::epoll;

    use super::*;
    use crate::testing::{is_readable, stuff, until};

    #[test]
    fn a_ring_makes_it_readable_until_it_is_drained() {
        let bell = EventFd::new().unwrap();
        assert!(!is_readable(&bell));
        bell.ring().unwrap();
        bell.ring().unwrap();
        assert!(is_readable(&bell));
        bell.drain().unwrap();
        assert!(!is_readable(&bell));
        bell.drain().unwrap();
    }

    #[test]
    fn draining_what_is_no_eventfd_is_an_error_and_does_not_wait() {
        let bell = |fd| EventFd::from_fd(fd).unwrap();
        let (reader, writer) = io::pipe().unwrap();
        let (_other_reader, other_writer) = io::pipe().unwrap();
        let nothing_to_read = [bell(reader.try_clone().unwrap().into()), bell(other_writer.into())];
        assert!(nothing_to_read.iter().all(|bell| bell.drain().is_ok()));
        drop((writer, nothing_to_read));
        let (_, no_reader) = io::pipe().unwrap();
        let ready = EventFd::new().unwrap();
        ready.ring().unwrap();
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        epoll::add(&epoll, &ready, epoll::EventData::new_u64(0), epoll::EventFlags::IN).unwrap();
        let files = [File::open("/dev/null"), File::open("/"), File::options().write(true).open("/dev/null")];
        let files = files.map(|file| file.unwrap().into());
        for fd in [reader.into(), no_reader.into(), epoll].into_iter().chain(files) {
            let bell = bell(fd);
            // A process that another test is starting may have the other end of a pipe open for a moment.
            until("an error", || bell.drain().is_err());
        }
    }

    #[test]
    fn ringing_a_saturated_one_succeeds_and_leaves_it_readable() {
        let bell = EventFd::new().unwrap();
        write(&bell, &(u64::MAX - 1).to_ne_bytes()).unwrap();
        bell.ring().unwrap();
        assert!(is_readable(&bell));
    }

    fn all(bells: &[&Arc<EventFd>]) -> [Option<Arc<EventFd>>; SUBSCRIBERS] {
        array::from_fn(|number| bells.get(number).map(|bell| Arc::clone(bell)))
    }

    #[test]
    fn a_blocking_one_from_a_peer_does_not_block_us() {
        let bell = EventFd::from_fd(eventfd(0, EventfdFlags::CLOEXEC).unwrap()).unwrap();
        bell.drain().unwrap();
        bell.ring().unwrap();
        assert!(is_readable(&bell));
    }

    #[test]
    fn one_that_a_peer_made_blocking_later_does_not_block_us_either() {
        let bell = EventFd::new().unwrap();
        fcntl_setfl(&bell, OFlags::empty()).unwrap();
        bell.drain().unwrap();
        stuff(&bell);
        bell.ring().unwrap();
        bell.drain().unwrap();
        bell.drain().unwrap();
        assert!(!is_readable(&bell));
    }

    #[test]
    fn ringing_all_rings_each_that_has_room() {
        let bells: Vec<_> = (0..3).map(|_| Arc::new(EventFd::new().unwrap())).collect();
        stuff(&bells[1]);
        ring_all(&all(&[]));
        ring_all(&all(&bells.iter().collect::<Vec<_>>()));
        assert!(bells.iter().all(|bell| is_readable(&**bell)));
        let mut counter = [0; 8];
        for (bell, expected) in bells.iter().zip([1, u64::MAX - 1, 1]) {
            read(&**bell, &mut counter).unwrap();
            assert_eq!(u64::from_ne_bytes(counter), expected);
        }
    }

    #[test]
    fn a_write_that_waits_goes_on_once_the_bell_is_unblocked() {
        let bell = Arc::new(EventFd::new().unwrap());
        assert!(!bell.unblock().unwrap());
        stuff(&bell);
        let writing = std::thread::spawn({
            let bell = Arc::clone(&bell);
            move || bell.add_one()
        });
        while !writing.is_finished() {
            bell.unblock().unwrap();
        }
        writing.join().unwrap().unwrap();
        assert!(fcntl_getfl(&*bell).unwrap().contains(OFlags::NONBLOCK));
    }
}
