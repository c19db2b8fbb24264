//! [`Pursuit`]: being attached to a publisher, and after it to the next one (D-24).

use std::collections::VecDeque;
use std::io;
use std::mem;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use cuframes_core::gpu::Import;
use cuframes_core::session::Closed;
use cuframes_core::shm::StreamHeader;
use cuframes_core::wire::ShutdownReason;
use cuframes_core::{Gone, Instant, Key};
use mio::{Interest, Registry, Token};
use tracing::{debug, error, info, warn};

use crate::attach::{Attached, Facts};
use crate::connect::Finder;
use crate::error::Error;
use crate::pollable::{Registration, Turn};
use crate::reconnect::{Reconnect, StreamEvent, may_pass};
use crate::search::Search;
use crate::subscription::{Subscription, is_eviction};
use crate::tally::{Common, Tally};

/// What a subscriber is attached to now, and how it comes to the next publisher. It ends with the first one if it was not
/// told to go on.
#[derive(Debug)]
pub(crate) struct Pursuit<B: Import<Fd = OwnedFd>> {
    finder: Finder<B>,
    pub(crate) common: Arc<Common>,
    /// The connection to a publisher.
    pub(crate) subscription: Option<Subscription<B>>,
    /// When to look for the next publisher, if we are to.
    search: Option<Search>,
    /// About the stream that we are attached to, or were last.
    pub(crate) facts: Option<Facts>,
    /// Why it has ended for good; first told with all that is known.
    over: Option<Closed>,
    failure: Option<Error>,
    /// Why there was no publisher at the last attempt.
    pub(crate) trouble: Option<Error>,
    events: VecDeque<StreamEvent>,
    pub(crate) tally: Tally,
    registration: Option<Registration>,
}

impl<B: Import<Fd = OwnedFd>> Pursuit<B> {
    /// Connects, or begins to look for somebody to connect to.
    ///
    /// # Errors
    /// Nobody is there and we are not to wait; or something that no waiting can cure.
    pub(crate) fn begin(
        now: Instant,
        finder: Finder<B>,
        common: Arc<Common>,
        reconnect: Option<Reconnect>,
    ) -> Result<Self, Error> {
        let subscription = if reconnect.is_none() { Some(finder.find(now, &common)?) } else { None };
        let mut pursuit = Self {
            finder,
            common,
            subscription,
            search: reconnect.map(|reconnect| Search::new(now, reconnect)),
            facts: None,
            over: None,
            failure: None,
            trouble: None,
            events: VecDeque::new(),
            tally: Tally::default(),
            registration: None,
        };
        pursuit.handle_timeout(now);
        pursuit.failure.take().map_or(Ok(pursuit), Err)
    }

    pub(crate) const fn key(&self) -> &Key {
        self.finder.key()
    }

    pub(crate) fn attached(&self) -> Option<&Attached<B>> {
        self.subscription.as_ref()?.attached.as_ref()
    }

    /// Whether frames come or may come from where we are connected, and so there is nothing to decide.
    pub(crate) fn is_under_way(&self) -> bool {
        self.subscription.as_ref().is_some_and(|subscription| !subscription.has_ended())
    }

    /// Whether no frames will come any more, from this publisher or from the next one. Some may be left to take.
    pub(crate) fn is_ending(&self) -> bool {
        self.search.is_none() && !self.is_under_way()
    }

    /// Whether the publisher is gone, and may have left frames to take, which come before those of the next one (D-30).
    pub(crate) fn has_leftovers(&self) -> bool {
        self.attached().is_some() && !self.is_under_way()
    }

    /// The ring has no more frames now: if it never will, looks for the next publisher, or says why it is over.
    ///
    /// # Errors
    /// It is over.
    #[cold]
    pub(crate) fn go_on_or_end(&mut self, now: Instant) -> Result<(), Error> {
        if self.subscription.as_ref().is_some_and(Subscription::has_ended) {
            self.leave(now);
            self.take_stock(now);
        }
        match (self.failure.take(), &self.over) {
            (Some(failure), _) => Err(failure),
            (None, Some(closed)) => Err(Error::closed(self.key(), closed.clone())),
            (None, None) => Ok(()),
        }
    }

    /// Handles what is ready at one of the descriptors, given by its place among the tokens.
    pub(crate) fn handle(&mut self, place: usize, now: Instant) -> Turn {
        let turn = match place {
            WAKE => {
                if let Some(subscription) = &mut self.subscription {
                    subscription.rung(now, self.registration.as_ref());
                }
                Turn::Idle
            }
            WATCH => {
                let (heard, turn) = self.search.as_mut().map_or((false, Turn::Idle), Search::hear);
                if heard && self.subscription.is_none() {
                    self.attempt(now);
                }
                turn
            }
            _ => match &mut self.subscription {
                Some(subscription) => subscription.drive(now, self.registration.as_ref()),
                None => Turn::Idle,
            },
        };
        self.take_stock(now);
        turn
    }

    /// Lets deadlines pass, and makes an attempt that is due.
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        if let Some(subscription) = &mut self.subscription {
            subscription.handle_timeout(now, self.registration.as_ref());
        } else if self.search.as_ref().is_some_and(|search| search.is_due(now)) {
            self.attempt(now);
        }
        self.take_stock(now);
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let subscription = self.subscription.as_ref().and_then(Subscription::poll_timeout);
        subscription.into_iter().chain(self.search.as_ref().and_then(Search::due)).min()
    }

    /// The next event.
    pub(crate) fn poll_event(&mut self) -> Option<StreamEvent> {
        self.events.pop_front()
    }

    /// What to sleep on: the connection; and, with its place among the tokens, what rings for a frame, or for a
    /// publisher to come.
    pub(crate) fn sleep_on(&self) -> (Option<BorrowedFd<'_>>, Option<(BorrowedFd<'_>, usize)>) {
        let conn = self.subscription.as_ref().map(AsFd::as_fd);
        let wake = self.attached().and_then(|attached| attached.wake.as_ref());
        let watch = self.search.as_ref().and_then(Search::watch);
        (conn, wake.map(|wake| (wake.as_fd(), WAKE)).or_else(|| watch.map(|watch| (watch.as_fd(), WATCH))))
    }

    /// Registers everything that there is now and will be.
    pub(crate) fn register(&mut self, registry: &Registry, first_token: Token) -> io::Result<()> {
        self.deregister();
        let registration = Registration::new(registry, first_token)?;
        if let Some(subscription) = &self.subscription {
            subscription.register(&registration)?;
        }
        if let Some(watch) = self.search.as_ref().and_then(Search::watch) {
            registration.add(watch, WATCH, Interest::READABLE)?;
        }
        self.registration = Some(registration);
        Ok(())
    }

    fn deregister(&mut self) {
        let Some(registration) = self.registration.take() else { return };
        if let Some(subscription) = &self.subscription {
            subscription.deregister(&registration);
        }
        if let Some(watch) = self.search.as_ref().and_then(Search::watch) {
            registration.remove(watch);
        }
    }

    /// The place of a token.
    pub(crate) fn place(&self, token: Token) -> Option<usize> {
        self.registration.as_ref()?.number(token)
    }

    /// Notices that the handshake is complete, or that the connection has ended and left nothing to read.
    fn take_stock(&mut self, now: Instant) {
        // A connection that ends at once is followed by a pause, so this loop ends.
        while let Some(subscription) = &mut self.subscription {
            let publisher = subscription.publisher;
            let is_over = subscription.has_ended() && subscription.attached.is_none();
            if let Some(facts) =
                subscription.facts.filter(|_| !mem::replace(&mut subscription.announced, true))
            {
                self.announce(now, facts, publisher);
            }
            if !is_over {
                return;
            }
            self.leave(now);
        }
    }

    /// We are attached to a publisher.
    fn announce(&mut self, now: Instant, facts: Facts, publisher: Option<u32>) {
        let Facts { header: StreamHeader { epoch, meta, .. }, bit, .. } = facts;
        let before = self.facts.replace(facts).map(|facts| facts.header);
        let format_changed = before.is_some_and(|before| before.meta != meta);
        let is_same = epoch != 0 && before.is_some_and(|before| before.epoch == epoch);
        if !is_same {
            // The number that was handed out last is another publisher's.
            self.tally.last_seq = 0;
        } else if let Some(subscription) = &mut self.subscription {
            subscription.resume_after = self.tally.last_seq;
        }
        info!(
            key = %self.key(), publisher, epoch = %format_args!("{epoch:x}"), %bit,
            format = %meta.format, width = meta.width, height = meta.height, format_changed,
            "attached"
        );
        self.tally.attachments += 1;
        self.tally.last_publish.get_or_insert(now);
        self.trouble = None;
        if let Some(search) = &mut self.search {
            search.rest(self.registration.as_ref());
        }
        self.tell(StreamEvent::Attached { epoch, publisher, meta, format_changed });
    }

    /// Leaves a publisher that is lost, or that was never won, and looks for the next one if that may help.
    fn leave(&mut self, now: Instant) {
        let Some(mut subscription) = self.subscription.take() else { return };
        if let Some(registration) = &self.registration {
            subscription.deregister(registration);
        }
        let (closed, error) = subscription.end(self.finder.key());
        let attached = subscription.facts.map(|_| now.saturating_since(subscription.since));
        let publisher = subscription.publisher;
        drop(subscription);
        // Who is refused for earlier evictions is not evicted once more.
        self.tally.evictions += u64::from(attached.is_some() && is_eviction(&closed));
        let goes_on = self.search.is_some() && may_pass(&error);
        if attached.is_some() || !goes_on {
            self.trace_end(&closed, &error, publisher);
        }
        match (&mut self.search, attached) {
            (Some(search), Some(attached)) if goes_on => {
                search.begin(now, attached);
                search.listen(&self.finder, self.registration.as_ref());
                let is_due = search.is_due(now);
                self.tell(StreamEvent::Lost(error));
                if is_due {
                    self.attempt(now);
                }
            }
            (Some(_), None) if goes_on => self.missed(now, error),
            _ => self.end(closed, error),
        }
    }

    /// Looks for a publisher once.
    fn attempt(&mut self, now: Instant) {
        let Some(search) = &mut self.search else { return };
        let registration = self.registration.as_ref();
        search.attempt();
        search.listen(&self.finder, registration);
        let found = self.finder.find(now, &self.common).and_then(|subscription| {
            let registered = registration.map_or(Ok(()), |registration| subscription.register(registration));
            registered
                .map_err(|error| Error::system(self.finder.key(), "watch the connection", error))
                .map(|()| subscription)
        });
        match found {
            Ok(subscription) => self.subscription = Some(subscription),
            Err(error) if may_pass(&error) => self.missed(now, error),
            Err(error) => {
                let closed = Closed::Rejected(error.code());
                self.trace_end(&closed, &error, None);
                self.end(closed, error);
            }
        }
    }

    /// An attempt came to nothing.
    fn missed(&mut self, now: Instant, error: Error) {
        let Some(search) = &mut self.search else { return };
        let (delay, attempt) = search.failed(now);
        let key = self.finder.key();
        // Once for each cause, not for each attempt.
        if self.trouble.as_ref().is_none_or(|before| before.code() != error.code()) {
            info!(%key, attempt, ?delay, cause = %error, "no publisher, looking again");
        } else {
            debug!(%key, attempt, ?delay, cause = %error, "still no publisher, looking again");
        }
        self.trouble = Some(error);
    }

    /// It is over.
    fn end(&mut self, closed: Closed, error: Error) {
        if let Some(mut search) = self.search.take() {
            search.rest(self.registration.as_ref());
        }
        self.trouble = None;
        (self.over, self.failure) = (Some(closed), Some(error));
    }

    fn tell(&mut self, event: StreamEvent) {
        if self.events.len() == MAX_EVENTS {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }

    fn trace_end(&self, closed: &Closed, cause: &Error, publisher: Option<u32>) {
        let key = self.key();
        match closed {
            Closed::Gone(Gone::Shutdown(ShutdownReason::NORMAL | ShutdownReason::UPGRADE)) => {
                info!(%key, publisher, %cause, "the publisher has ended");
            }
            Closed::Violation(_) | Closed::Rejected(_) => {
                error!(%key, publisher, %cause, "the publisher can't be used");
            }
            _ if is_eviction(closed) => warn!(%key, publisher, %cause, "evicted"),
            Closed::Refused(_) => warn!(%key, publisher, %cause, "refused"),
            _ => warn!(%key, publisher, %cause, "lost the publisher"),
        }
    }
}

impl<B: Import<Fd = OwnedFd>> Drop for Pursuit<B> {
    fn drop(&mut self) {
        // A forked child shares the kernel's side of the event loop with its parent, whose registration must stay (P-20).
        if self.common.home.is_here() {
            self.deregister();
        }
    }
}

// Places among the tokens of a subscriber.
pub(crate) const CONN: usize = 0;
pub(crate) const WAKE: usize = 1;
pub(crate) const WATCH: usize = 2;
pub(crate) const PLACES: usize = 3;

/// Events that are kept for a user who does not ask.
const MAX_EVENTS: usize = 64;
