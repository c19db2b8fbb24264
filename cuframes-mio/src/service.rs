//! [`Service`]: the publisher's control plane. It accepts connections, answers handshakes, hands out descriptors, notices
//! who is gone, evicts whom the writer accuses, and winds everything down (§4.2, D-12, D-15, D-19, D-20, D-29, D-31).
//!
//! It runs in the caller's event loop or in a thread of its own; the hot path shares only [`Shared`] with it.

use std::array;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::time::Duration;

use cuframes_core::error::ErrorCode;
use cuframes_core::ring::Accusation;
use cuframes_core::roster::{Departure, Roster};
use cuframes_core::session::{
    Closed, PublisherEvent, PublisherOffer, PublisherSession, Session, SubscribeRequest,
};
use cuframes_core::shm::layout::SUBSCRIBERS;
use cuframes_core::wire::control::EventFd as Announcement;
use cuframes_core::wire::{FdPurpose, ShutdownReason};
use cuframes_core::{Features, Gone, Instant, SubscriberBit, Timeouts};
use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use rustix::io::Errno;

use crate::clock;
use crate::conn::{self, Conn};
use crate::liveness::{PeerCred, PidFd};
use crate::pollable::{EventSource, Turn};
use crate::shared::{Leave, MemberEvent, Shared};
use crate::shm::MappedRegion;
use crate::stale::Claimed;
use crate::wake::EventFd;

/// The control plane of one publisher.
#[derive(Debug)]
pub(crate) struct Service {
    listener: UnixListener,
    roster: Roster<Arc<MappedRegion>>,
    offer: Arc<PublisherOffer>,
    timeouts: Timeouts,
    /// Users whose processes may connect (D-15).
    allowed_uids: Vec<u32>,
    shared: Arc<Shared>,
    /// A copy of the pool's descriptor, for subscribers.
    pool: OwnedFd,
    peers: [Option<Peer>; MAX_PEERS],
    /// The process behind each bit that is taken or quarantined.
    processes: [Option<PidFd>; SUBSCRIBERS],
    registration: Option<(Registry, usize)>,
    /// When to accept again, after the descriptors ran out.
    accept_again: Option<Instant>,
    /// While shutting down: when to stop waiting for the subscribers.
    grace: Option<Instant>,
    // Dropped last: the names of the files go when nobody needs them any more.
    files: Claimed,
}

/// One connection.
#[derive(Debug)]
struct Peer {
    conn: Conn<PublisherSession<OwnedFd>>,
    pid: u64,
    bit: Option<SubscriberBit>,
}

impl Service {
    pub(crate) fn new(
        (files, listener): (Claimed, UnixListener),
        roster: Roster<Arc<MappedRegion>>,
        offer: PublisherOffer,
        timeouts: Timeouts,
        allowed_uids: Vec<u32>,
        shared: Arc<Shared>,
        pool: OwnedFd,
    ) -> Self {
        Self {
            listener,
            roster,
            offer: Arc::new(offer),
            timeouts,
            allowed_uids,
            shared,
            pool,
            peers: array::from_fn(|_| None),
            processes: array::from_fn(|_| None),
            registration: None,
            accept_again: None,
            grace: None,
            files,
        }
    }

    /// Evicts whom the writer has accused (D-31).
    pub(crate) fn evict_accused(&mut self, now: Instant) {
        let accused: Vec<_> = self.roster.take_accused().collect();
        for (bit, of) in accused {
            let message = match of {
                Accusation::Lease => "the publisher waited too long for a lease to be released",
                _ => "the publisher waited too long for an acknowledgement",
            };
            if let Some(peer) = self.peers.iter_mut().flatten().find(|peer| peer.bit == Some(bit)) {
                peer.conn.session.expel(now, ErrorCode::EVICTED, message);
            }
            self.release(now, bit, Leave::Evicted(of));
        }
        self.settle_all(now);
    }

    /// Says SHUTDOWN to everybody and accepts nobody any more; then it goes on until [`is_finished`](Self::is_finished).
    pub(crate) fn shut_down(&mut self, now: Instant, reason: ShutdownReason) {
        if self.grace.is_some() {
            return;
        }
        self.grace = Some(now + self.timeouts.shutdown_grace);
        self.roster.shut_down();
        for peer in self.peers.iter_mut().flatten() {
            peer.conn.session.shutdown(now, reason);
        }
        self.settle_all(now);
    }

    /// Whether it was shut down, and everybody is gone or had time enough (D-12).
    pub(crate) fn is_finished(&self, now: Instant) -> bool {
        self.grace.is_some_and(|grace| grace <= now || self.peers.iter().all(Option::is_none))
    }

    pub(crate) const fn roster(&self) -> &Roster<Arc<MappedRegion>> {
        &self.roster
    }

    fn accept(&mut self, now: Instant) -> Turn {
        self.accept_again = None;
        if self.grace.is_some() {
            return Turn::Idle;
        }
        for _ in 0..ACCEPT_BUDGET {
            match self.listener.accept() {
                // One that is gone already needs no place.
                Ok((socket, _)) => {
                    let _ = self.welcome(now, socket);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Turn::Idle,
                Err(error) if Errno::from_io_error(&error) == Some(Errno::CONNABORTED) => {}
                Err(_) => {
                    // Out of descriptors or memory: the queue stays as it is, so trying at once would only spin.
                    self.accept_again = Some(now + ACCEPT_PAUSE);
                    return Turn::Idle;
                }
            }
        }
        Turn::Again
    }

    /// Takes a connection in, or tells it why not and closes it.
    fn welcome(&mut self, now: Instant, socket: UnixStream) -> io::Result<()> {
        let PeerCred { pid, uid, .. } = PeerCred::of(&socket)?;
        let session = PublisherSession::new(now, Arc::clone(&self.offer));
        let mut conn = Conn::new(socket, session)?;
        let unsubscribed = self.peers.iter().flatten().filter(|peer| peer.bit.is_none()).count();
        let place = self.peers.iter_mut().enumerate().find(|(_, peer)| peer.is_none());
        if !self.allowed_uids.contains(&uid) {
            conn.session.expel(now, ErrorCode::PERMISSION, "this user may not subscribe");
        } else if let Some((index, place)) = place.filter(|_| unsubscribed < MAX_UNSUBSCRIBED) {
            if let Some((registry, first)) = &self.registration {
                conn.register(registry, Token(first + PEERS + index))?;
            }
            *place = Some(Peer { conn, pid: pid.unwrap_or(0).into(), bit: None });
            return Ok(());
        } else {
            conn.session.expel(now, ErrorCode::TOO_MANY, "too many connections that do not subscribe");
        }
        conn.flush(now);
        Ok(())
    }

    /// Sends what a session wants sent, does what its events ask for, and drops the connection when it is closed.
    fn settle(&mut self, now: Instant, index: usize) {
        while let Some(peer) = self.peer(index) {
            // Before the events: sending may fail, and that is one more event.
            peer.conn.flush(now);
            match peer.conn.session.poll_event() {
                Some(PublisherEvent::Subscribe(request)) => self.admit(now, index, request),
                Some(PublisherEvent::Closed(closed)) => {
                    if let Some(bit) = peer.bit.take() {
                        let clean = closed == Closed::Gone(Gone::Unsubscribed);
                        self.release(now, bit, if clean { Leave::Unsubscribed } else { Leave::Vanished });
                    }
                }
                Some(_) => {}
                None => break,
            }
        }
        if let Some(place) = self.peers.get_mut(index) {
            place.take_if(|peer| peer.conn.session.is_closed());
        }
    }

    fn settle_all(&mut self, now: Instant) {
        for index in 0..MAX_PEERS {
            self.settle(now, index);
        }
    }

    /// Answers SUBSCRIBE_REQ: a bit, and the descriptors that the features in force need (D-26).
    fn admit(&mut self, now: Instant, index: usize, request: SubscribeRequest) {
        let features = request.features;
        let Some(peer) = self.peers.get_mut(index).and_then(Option::as_mut) else { return };
        if peer.conn.session.is_closed() {
            // It left in the same breath, and needs no bit.
            return;
        }
        let subscribed = match self.roster.admit(peer.pid, request) {
            Ok(subscribed) => subscribed,
            Err(code) => {
                let _ = peer.conn.session.admit(now, Err(code));
                return;
            }
        };
        peer.bit = Some(subscribed.bit);
        // A claim that met it half joined waits for it.
        let _ = self.shared.publisher_bell.ring();
        let _ = peer.conn.session.admit(now, Ok(subscribed));
        if let Err(error) = self.hand_over(index, subscribed.bit, features) {
            let Some(peer) = self.peer(index) else { return };
            // It has its bit already, so the refusal is an ERROR. Out of descriptors, most likely.
            peer.conn.session.expel(
                now,
                ErrorCode::IO,
                &format!("the publisher can't hand out descriptors: {error}"),
            );
        }
        if let Some(member) = self.roster.members().find(|member| member.bit == subscribed.bit) {
            self.shared.push_event(MemberEvent::Joined(member.clone()));
        }
        self.members_changed();
    }

    /// Sends the descriptors, and starts watching the process.
    fn hand_over(&mut self, index: usize, bit: SubscriberBit, features: Features) -> io::Result<()> {
        let bell = EventFd::new()?;
        let mut fds = Vec::new();
        if features.contains(Features::FD_PASSING) {
            fds.push((FdPurpose::REGION, self.files.region_fd().try_clone_to_owned()?));
            fds.push((FdPurpose::HOST_POOL, self.pool.try_clone()?));
        }
        if features.contains(Features::WAKE_HINT) {
            fds.push((
                FdPurpose::PUBLISHER_WAKE_UP,
                self.shared.publisher_bell.as_fd().try_clone_to_owned()?,
            ));
        }
        fds.push((FdPurpose::WAKE_UP, bell.as_fd().try_clone_to_owned()?));
        // Rung once, for frames published since the bit is active.
        bell.ring()?;
        self.shared.set_bell(bit, Some(bell));
        *process_of(&mut self.processes, bit) = None;
        let Some(peer) = self.peers.get_mut(index).and_then(Option::as_mut) else { return Ok(()) };
        // An older kernel has none for a process outside our pid namespace: then its connection alone tells (D-20).
        if let Ok(process) = PidFd::of_peer(&peer.conn) {
            if let Some((registry, first)) = &self.registration {
                let token = Token(first + PROCESSES + usize::from(bit.get()));
                registry.register(&mut SourceFd(&process.as_fd().as_raw_fd()), token, Interest::READABLE)?;
            }
            *process_of(&mut self.processes, bit) = Some(process);
        }
        for (purpose, fd) in fds {
            let _ = peer.conn.session.offer_fd(Announcement::single(purpose), fd);
        }
        Ok(())
    }

    /// Takes `bit` back.
    fn release(&mut self, now: Instant, bit: SubscriberBit, how: Leave) {
        if let Some(member) = self.roster.members().find(|member| member.bit == bit) {
            self.shared.push_event(MemberEvent::Left(member.clone(), how));
        }
        let departure = if how == Leave::Unsubscribed { Departure::Clean } else { Departure::Abrupt };
        self.roster.leave(now, bit, departure);
        self.shared.set_bell(bit, None);
        if departure == Departure::Clean {
            *process_of(&mut self.processes, bit) = None;
        }
        if let Some(peer) = self.peers.iter_mut().flatten().find(|peer| peer.bit == Some(bit)) {
            peer.bit = None;
        }
        self.members_changed();
        // A claim may be waiting for exactly this one.
        let _ = self.shared.publisher_bell.ring();
    }

    /// The process behind `bit` is gone; what it said before counts (D-20).
    fn process_gone(&mut self, now: Instant, bit: SubscriberBit) {
        // The event may be about an earlier holder of the bit, handled after that one had left.
        let process = process_of(&mut self.processes, bit);
        if !process.as_ref().is_some_and(|process| process.is_dead().unwrap_or(false)) {
            return;
        }
        let index =
            self.peers.iter().position(|peer| peer.as_ref().is_some_and(|peer| peer.bit == Some(bit)));
        if let Some((index, peer)) = index.and_then(|index| Some((index, self.peer(index)?))) {
            // A child of it may still hold the socket open.
            peer.conn.receive_last(now);
            self.settle(now, index);
        }
        self.roster.process_gone(bit);
        *process_of(&mut self.processes, bit) = None;
    }

    /// Every descriptor that is watched, and its token, counted from the first.
    fn sources(&self) -> impl Iterator<Item = (usize, RawFd)> {
        let processes = (PROCESSES..).zip(&self.processes);
        let peers = (PEERS..).zip(&self.peers);
        [(LISTENER, self.listener.as_raw_fd()), (BELL, self.shared.service_bell.as_fd().as_raw_fd())]
            .into_iter()
            .chain(
                processes
                    .filter_map(|(number, process)| Some((number, process.as_ref()?.as_fd().as_raw_fd()))),
            )
            .chain(peers.filter_map(|(number, peer)| Some((number, peer.as_ref()?.conn.as_fd().as_raw_fd()))))
    }

    fn members_changed(&self) {
        self.shared.set_members(self.roster.members().cloned().collect());
    }

    fn peer(&mut self, index: usize) -> Option<&mut Peer> {
        self.peers.get_mut(index)?.as_mut()
    }
}

impl Drop for Service {
    /// Says goodbye without waiting for anybody, unless it was shut down before.
    fn drop(&mut self) {
        self.shut_down(clock::now(), ShutdownReason::NORMAL);
    }
}

impl EventSource for Service {
    const TOKENS: usize = PEERS + MAX_PEERS;

    fn register(&mut self, registry: &Registry, first_token: Token) -> io::Result<()> {
        let first = first_token.0;
        if let Some((old, _)) = self.registration.replace((registry.try_clone()?, first)) {
            for (_, fd) in self.sources() {
                // One that is not registered there needs nothing.
                let _ = old.deregister(&mut SourceFd(&fd));
            }
        }
        for (number, fd) in self.sources() {
            let interest = if number < PEERS { Interest::READABLE } else { conn::INTEREST };
            registry.register(&mut SourceFd(&fd), Token(first + number), interest)?;
        }
        Ok(())
    }

    fn handle_event(&mut self, token: Token, now: Instant) -> io::Result<Turn> {
        let first = self.registration.as_ref().map_or(0, |(_, first)| *first);
        let number = token.0.saturating_sub(first);
        Ok(match number {
            LISTENER => self.accept(now),
            BELL => {
                self.shared.service_bell.drain()?;
                if let Some(reason) = self.shared.stop_requested() {
                    self.shut_down(now, reason);
                }
                self.evict_accused(now);
                Turn::Idle
            }
            PROCESSES..PEERS => {
                let bit = u64::try_from(number - PROCESSES).ok().and_then(SubscriberBit::new);
                if let Some(bit) = bit {
                    self.process_gone(now, bit);
                }
                Turn::Idle
            }
            _ => {
                let index = number.saturating_sub(PEERS);
                let turn = self.peer(index).map_or(Turn::Idle, |peer| peer.conn.drive(now));
                self.settle(now, index);
                turn
            }
        })
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.roster.handle_timeout(now);
        for peer in self.peers.iter_mut().flatten() {
            peer.conn.session.handle_timeout(now);
        }
        if self.grace.is_some_and(|grace| grace <= now) {
            // They had their time (D-12).
            self.peers.fill_with(|| None);
        }
        self.settle_all(now);
        if self.accept_again.is_some_and(|due| due <= now) && self.accept(now) == Turn::Again {
            self.accept_again = Some(now);
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let sessions = self.peers.iter().flatten().filter_map(|peer| peer.conn.session.poll_timeout());
        let grace = self.grace.filter(|_| self.peers.iter().any(Option::is_some));
        sessions.chain(self.roster.poll_timeout()).chain(self.accept_again).chain(grace).min()
    }
}

#[expect(clippy::indexing_slicing, reason = "a bit is at most 31, the array has 32 entries")]
fn process_of(processes: &mut [Option<PidFd>; SUBSCRIBERS], bit: SubscriberBit) -> &mut Option<PidFd> {
    &mut processes[usize::from(bit.get())]
}

// Tokens, counted from the first.
const LISTENER: usize = 0;
const BELL: usize = 1;
const PROCESSES: usize = 2;
const PEERS: usize = PROCESSES + SUBSCRIBERS;

/// Connections that may be open without being subscribed (D-29).
const MAX_UNSUBSCRIBED: usize = 128;
/// Those, and every subscriber.
const MAX_PEERS: usize = MAX_UNSUBSCRIBED + SUBSCRIBERS;
/// Connections accepted in one turn.
const ACCEPT_BUDGET: usize = 32;
/// How long to wait when a connection can't be accepted for want of descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
