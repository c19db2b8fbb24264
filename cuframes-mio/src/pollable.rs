//! Embedding in an event loop: [`EventSource`] with the caller's own mio `Poll`, [`Pollable`] as one file descriptor.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

use cuframes_core::Instant;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Registry, Token};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

use crate::clock::{self, NANOS_PER_SEC};

/// Whether an event was dealt with completely.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "`Again` means that no further event will come for what is left"]
#[non_exhaustive]
pub enum Turn {
    /// Everything was read: sleep until the next event.
    Idle,
    /// The budget ran out: call again with the same token, after others had their turn and before sleeping.
    Again,
}

/// Something that lives in an event loop.
///
/// Any order of calls is correct. After each of `handle_event`, `handle_timeout` and the type's own commands read
/// `poll_timeout` again; forgetting it costs latency, never correctness.
pub trait EventSource {
    /// How many tokens it uses, from `first_token` on.
    const TOKENS: usize;

    /// Registers every descriptor, now and later, edge-triggered, with tokens from `first_token` on. An earlier
    /// registration ends; so does this one when the source is dropped.
    ///
    /// # Errors
    /// What the registration reports.
    fn register(&mut self, registry: &Registry, first_token: Token) -> io::Result<()>;

    /// Handles the event of one token.
    ///
    /// # Errors
    /// Only what makes going on impossible; trouble with one peer is not an error.
    fn handle_event(&mut self, token: Token, now: Instant) -> io::Result<Turn>;

    /// Does what is due at `now`.
    fn handle_timeout(&mut self, now: Instant);

    /// When `handle_timeout` is due next.
    fn poll_timeout(&self) -> Option<Instant>;
}

/// Where the descriptors of a source are registered, and from which token on.
#[derive(Debug)]
pub(crate) struct Registration {
    registry: Registry,
    first: usize,
}

impl Registration {
    pub(crate) fn new(registry: &Registry, first_token: Token) -> io::Result<Self> {
        Ok(Self { registry: registry.try_clone()?, first: first_token.0 })
    }

    /// The token's place, counted from the first.
    pub(crate) const fn number(&self, token: Token) -> Option<usize> {
        token.0.checked_sub(self.first)
    }

    pub(crate) fn add(&self, fd: impl AsFd, number: usize, interest: Interest) -> io::Result<()> {
        self.registry.register(&mut SourceFd(&fd.as_fd().as_raw_fd()), Token(self.first + number), interest)
    }

    /// Ends the registration of one descriptor. Closing it would not, while somebody else has a copy.
    pub(crate) fn remove(&self, fd: impl AsFd) {
        // One that is not registered needs nothing.
        let _ = self.registry.deregister(&mut SourceFd(&fd.as_fd().as_raw_fd()));
    }
}

/// An [`EventSource`] as one descriptor for epoll, tokio's `AsyncFd`, glib and the like: a nested epoll with a timer.
///
/// When the descriptor is readable call [`turn`](Self::turn) until it returns [`Turn::Idle`].
#[derive(Debug)]
pub struct Pollable<T> {
    inner: T,
    poll: Poll,
    events: Events,
    /// Whose budget ran out.
    again: Vec<Token>,
    timer: OwnedFd,
    /// What the timer is set to.
    armed: Option<Instant>,
}

impl<T: EventSource> Pollable<T> {
    /// Wraps `inner`.
    ///
    /// # Errors
    /// If the nested epoll or the timer can't be made: usually the limit of open files.
    pub fn new(mut inner: T) -> io::Result<Self> {
        let poll = Poll::new()?;
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        poll.registry().register(&mut SourceFd(&timer.as_raw_fd()), Token(T::TOKENS), Interest::READABLE)?;
        inner.register(poll.registry(), Token(0))?;
        let mut pollable = Self {
            inner,
            poll,
            events: Events::with_capacity(T::TOKENS + 1),
            again: Vec::new(),
            timer,
            armed: None,
        };
        pollable.arm()?;
        Ok(pollable)
    }

    /// Handles what is ready, without blocking.
    ///
    /// # Errors
    /// Only what makes going on impossible.
    pub fn turn(&mut self) -> io::Result<Turn> {
        self.wait(Some(Duration::ZERO))
    }

    /// Handles what is ready, after waiting for it up to `timeout` (`None`: for ever).
    ///
    /// # Errors
    /// Only what makes going on impossible.
    pub fn wait(&mut self, timeout: Option<Duration>) -> io::Result<Turn> {
        self.wait_once(timeout)?;
        Ok(if self.again.is_empty() { Turn::Idle } else { Turn::Again })
    }

    /// Waits once, handles what is ready, and says whether a signal has ended the wait.
    fn wait_once(&mut self, timeout: Option<Duration>) -> io::Result<bool> {
        let timeout = if self.again.is_empty() { timeout } else { Some(Duration::ZERO) };
        let is_interrupted = match self.poll.poll(&mut self.events, timeout) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => true,
            result => {
                result?;
                false
            }
        };
        if is_interrupted {
            self.events.clear();
        }
        let now = clock::now();
        let mut tokens = std::mem::take(&mut self.again);
        for token in self.events.iter().map(mio::event::Event::token) {
            // The timer's own event needs no handling: setting it again makes it unreadable.
            if token.0 == T::TOKENS {
                self.armed = None;
            } else if !tokens.contains(&token) {
                tokens.push(token);
            }
        }
        for token in tokens {
            if self.inner.handle_event(token, now)? == Turn::Again {
                self.again.push(token);
            }
        }
        if self.inner.poll_timeout().is_some_and(|due| due <= now) {
            self.inner.handle_timeout(now);
        }
        self.arm()?;
        Ok(is_interrupted)
    }

    /// What `poll` has of the inner value, now or within `timeout` (`None`: however long it takes): it [waits](Self::wait) again
    /// as long as what came is nothing for `poll`. `None` if there was nothing in time, or if a signal has ended the wait: so a
    /// program can end for one.
    ///
    /// # Errors
    /// Only what makes going on impossible.
    pub fn poll_within<E>(
        &mut self,
        timeout: Option<Duration>,
        mut poll: impl FnMut(&mut T) -> Option<E>,
    ) -> io::Result<Option<E>> {
        let end = timeout.map(|timeout| clock::now() + timeout);
        let mut left = timeout;
        loop {
            if let Some(event) = self.with(&mut poll)? {
                return Ok(Some(event));
            }
            let is_interrupted = self.wait_once(left)?;
            left = end.map(|end| end.saturating_since(clock::now()));
            if is_interrupted || left == Some(Duration::ZERO) {
                return self.with(poll);
            }
        }
    }

    /// Uses the inner value (claims and commits, takes frames), and sets the timer to what it wants afterwards.
    ///
    /// # Errors
    /// If the timer can't be set.
    pub fn with<R>(&mut self, f: impl FnOnce(&mut T) -> R) -> io::Result<R> {
        let result = f(&mut self.inner);
        self.arm()?;
        Ok(result)
    }

    /// Gives the inner value back; register it again before use.
    #[must_use]
    pub fn into_inner(self) -> T {
        self.inner
    }

    /// The inner value.
    pub const fn get_ref(&self) -> &T {
        &self.inner
    }

    /// Sets the timer if something is due earlier than it is set to; one that fires early does no harm.
    fn arm(&mut self) -> io::Result<()> {
        let Some(due) = self.inner.poll_timeout() else { return Ok(()) };
        if self.armed.is_some_and(|armed| armed <= due) {
            return Ok(());
        }
        // A time of zero would disarm it.
        let nanos = due.as_nanos().max(1);
        let it_value = Timespec { tv_sec: nanos / NANOS_PER_SEC, tv_nsec: nanos % NANOS_PER_SEC };
        let spec = Itimerspec { it_interval: Timespec::default(), it_value };
        timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &spec)?;
        self.armed = Some(due);
        Ok(())
    }
}

impl<T> AsFd for Pollable<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.poll.registry().as_fd()
    }
}

/// What tokio's `AsyncFd` and others ask for.
impl<T> AsRawFd for Pollable<T> {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}
