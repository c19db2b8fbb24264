//! [`Service`]: the publisher's control plane. It accepts connections, answers handshakes, hands out descriptors, notices
//! who is gone, evicts whom the writer accuses, and winds everything down (§4.2, D-12, D-15, D-19, D-20, D-29, D-31).
//!
//! It runs in the caller's event loop or in a thread of its own; the hot path shares only [`Shared`] with it.

use std::array;
use std::fmt::Display;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::{io, mem};

use cuframes_core::error::ErrorCode;
use cuframes_core::ring::Accusation;
use cuframes_core::roster::{Departure, Roster};
use cuframes_core::session::{
    Closed, PublisherEvent, PublisherOffer, PublisherSession, Session, SubscribeRequest,
};
use cuframes_core::shm::layout::SUBSCRIBERS;
use cuframes_core::wire::ShutdownReason;
use cuframes_core::{Gone, Instant, SubscriberBit, Timeouts};
use mio::{Interest, Registry, Token};
use rustix::io::Errno;

use crate::clock;
use crate::conn::{self, Conn};
use crate::entrance::{Caller, Entrance};
use crate::handover::{HandOver, Handouts};
use crate::liveness::{PeerCred, PidFd, is_gone};
use crate::penalties::{Culprit, Penalties};
use crate::pollable::{EventSource, Registration, Turn};
use crate::processes::Processes;
use crate::report::Report;
use crate::shared::{Leave, MemberEvent, Shared};
use crate::shm::MappedRegion;
use crate::stale::Claimed;
use crate::upkeep::Upkeep;

/// The control plane of one publisher.
#[derive(Debug)]
pub(crate) struct Service {
    entrance: Entrance,
    roster: Roster<Arc<MappedRegion>>,
    offer: Arc<PublisherOffer>,
    timeouts: Timeouts,
    allowed_uids: Vec<u32>,
    shared: Arc<Shared>,
    handouts: Handouts,
    report: Report,
    peers: [Option<Peer>; MAX_PEERS],
    processes: Processes,
    penalties: Penalties,
    registration: Option<Registration>,
    upkeep: Upkeep,
    /// While shutting down: when to stop waiting for the subscribers.
    grace: Option<Instant>,
    // Dropped last: the names of the files go when nobody needs them any more.
    pub(crate) files: Claimed,
}

/// What a service begins with.
#[derive(Debug)]
pub(crate) struct Setup {
    pub(crate) files: Claimed,
    pub(crate) listener: UnixListener,
    pub(crate) roster: Roster<Arc<MappedRegion>>,
    pub(crate) offer: PublisherOffer,
    pub(crate) timeouts: Timeouts,
    /// Users whose processes may connect (D-15).
    pub(crate) allowed_uids: Vec<u32>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) handouts: Handouts,
    pub(crate) upkeep: Upkeep,
    pub(crate) report: Report,
}

/// One connection.
#[derive(Debug)]
struct Peer {
    conn: Conn<PublisherSession<OwnedFd>>,
    cred: PeerCred,
    bit: Option<SubscriberBit>,
}

impl Service {
    pub(crate) fn new(setup: Setup) -> Self {
        let Setup { files, listener, roster, offer, timeouts, allowed_uids, shared, .. } = setup;
        Self {
            entrance: Entrance::new(listener),
            roster,
            offer: Arc::new(offer),
            timeouts,
            allowed_uids,
            shared,
            handouts: setup.handouts,
            report: setup.report,
            peers: array::from_fn(|_| None),
            processes: Processes::new(),
            penalties: Penalties::default(),
            registration: None,
            upkeep: setup.upkeep,
            grace: None,
            files,
        }
    }

    /// Evicts whom the writer has accused (D-31).
    pub(crate) fn evict_accused(&mut self, now: Instant) {
        let accused: Vec<_> = self.roster.take_accused().collect();
        for (bit, of) in accused {
            let Timeouts { lease, consumer_ack, .. } = self.timeouts;
            let (message, cost) = match of {
                Accusation::Lease => ("the publisher waited too long for a lease to be released", lease),
                _ => ("the publisher waited too long for an acknowledgement", consumer_ack),
            };
            if let Some(peer) = self.holder(bit) {
                peer.conn.session.expel(now, ErrorCode::EVICTED, message);
                let cred = peer.cred;
                let who = Culprit::new(cred, self.processes.of(bit).as_ref());
                self.penalties.evicted(now, who, cost);
            }
            self.release(now, bit, Leave::Evicted(of), None);
        }
        self.settle_all(now);
    }

    /// Says SHUTDOWN to everybody and accepts nobody any more; then it goes on until [`is_finished`](Self::is_finished).
    pub(crate) fn shut_down(&mut self, now: Instant, reason: ShutdownReason) {
        if self.grace.is_some() {
            return;
        }
        self.report.shutting_down(reason, self.roster.members().count());
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
        if self.grace.is_some() {
            return Turn::Idle;
        }
        for _ in 0..ACCEPT_BUDGET {
            match self.entrance.next(now) {
                Caller::Nobody => return Turn::Idle,
                // One that is gone already needs no place.
                Caller::Peer(socket) => {
                    self.report.unblocked();
                    let _ = self.welcome(now, socket);
                }
                Caller::Surplus(socket) => {
                    self.shared.counters.accept_failures.add(1);
                    self.report.blocked(now, &Errno::MFILE.into());
                    let _ = PeerCred::of(&socket)
                        .and_then(|cred| self.turn_away(now, socket, cred, ErrorCode::IO, NO_DESCRIPTORS));
                }
                Caller::Blocked(error) => {
                    self.shared.counters.accept_failures.add(1);
                    self.report.blocked(now, &error);
                    return Turn::Idle;
                }
            }
        }
        Turn::Again
    }

    /// Takes a connection in, or tells it why not and closes it.
    fn welcome(&mut self, now: Instant, socket: OwnedFd) -> io::Result<()> {
        let cred = PeerCred::of(&socket)?;
        let unsubscribed = self.peers.iter().flatten().filter(|peer| peer.bit.is_none()).count();
        let place = self.peers.iter_mut().enumerate().find(|(_, peer)| peer.is_none());
        if !self.allowed_uids.contains(&cred.uid) {
            self.turn_away(now, socket, cred, ErrorCode::PERMISSION, "this user may not subscribe")
        } else if let Some((index, place)) = place.filter(|_| unsubscribed < MAX_UNSUBSCRIBED) {
            let conn = Conn::new(socket.into(), PublisherSession::new(now, Arc::clone(&self.offer)))?;
            if let Some(registration) = &self.registration {
                registration.add(&conn, PEERS + index, conn::INTEREST)?;
            }
            *place = Some(Peer { conn, cred, bit: None });
            Ok(())
        } else {
            let why = "too many connections that do not subscribe";
            self.turn_away(now, socket, cred, ErrorCode::TOO_MANY, why)
        }
    }

    fn turn_away(
        &mut self,
        now: Instant,
        socket: OwnedFd,
        cred: PeerCred,
        code: ErrorCode,
        why: &str,
    ) -> io::Result<()> {
        let mut conn = Conn::new(socket.into(), PublisherSession::new(now, Arc::clone(&self.offer)))?;
        conn.session.expel(now, code, why);
        self.refused(now, cred, code, &why);
        conn.flush(now);
        Ok(())
    }

    /// Counts and reports somebody who did not become a subscriber.
    fn refused(&mut self, now: Instant, cred: PeerCred, code: ErrorCode, why: &dyn Display) {
        self.shared.counters.refused(code);
        self.report.refused(now, cred, why);
    }

    /// Sends what a session wants sent, does what its events ask for, and drops the connection when it is closed.
    fn settle(&mut self, now: Instant, index: usize) {
        while let Some(peer) = self.peer(index) {
            if mem::take(&mut peer.conn.has_lost_descriptors) {
                peer.conn.session.expel(now, ErrorCode::IO, NO_DESCRIPTORS);
            }
            // Before the events: sending may fail, and that is one more event.
            peer.conn.flush(now);
            match peer.conn.session.poll_event() {
                Some(PublisherEvent::Subscribe(request)) => self.admit(now, index, request),
                Some(PublisherEvent::Closed(closed)) => self.closed(now, index, &closed),
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

    /// The session of a connection has ended.
    fn closed(&mut self, now: Instant, index: usize, closed: &Closed) {
        let Some(Peer { cred, bit, .. }) = self.peer(index) else { return };
        let cred = *cred;
        if let Some(bit) = *bit {
            // Who says that it can't go on has let go, too (D-19).
            let clean = matches!(closed, Closed::Gone(Gone::Unsubscribed) | Closed::Refused(_));
            let how = if clean { Leave::Unsubscribed } else { Leave::Vanished };
            return self.release(now, bit, how, Some(closed));
        }
        match closed {
            Closed::Violation(violation) => self.refused(now, cred, violation.code(), closed),
            // Who is evicted was reported when it was.
            Closed::Rejected(code) if *code != ErrorCode::EVICTED => self.refused(now, cred, *code, closed),
            Closed::Gone(Gone::Timeout { .. } | Gone::NotReading) => {
                self.refused(now, cred, ErrorCode::TIMEOUT, closed);
            }
            // It left by itself.
            _ => {}
        }
    }

    /// Answers SUBSCRIBE_REQ: a bit, and the descriptors that the features in force need (D-26).
    fn admit(&mut self, now: Instant, index: usize, request: SubscribeRequest) {
        // Whoever maps the region now must find it as it should be.
        let Self { upkeep, files, roster, shared, report, .. } = self;
        upkeep.restore(now, files, roster, shared, report);
        let Some(peer) = self.peers.get_mut(index).and_then(Option::as_mut) else { return };
        if peer.conn.session.is_closed() {
            // It left in the same breath, and needs no bit.
            return;
        }
        let cred = peer.cred;
        let who = || Culprit::new(cred, PidFd::of_peer(&peer.conn).ok().as_ref());
        // Not at the entrance: it may have connected before it was evicted.
        if let Some(pause) = self.penalties.pause(now, who) {
            let why = format!("this process was evicted again and again; it may come back in {pause:.1?}");
            peer.conn.session.expel(now, ErrorCode::EVICTED, &why);
            return self.refused(now, cred, ErrorCode::EVICTED, &why);
        }
        let hand_over = self.handouts.prepare(&peer.conn, request.features, files, shared);
        let pid = peer.cred.pid.unwrap_or(0).into();
        let admitted = match hand_over {
            Ok(hand_over) => self.roster.admit(pid, request).map(|subscribed| (hand_over, subscribed)),
            // A child of it may still hold the socket open (D-20).
            Err(error) if is_gone(&error) => return peer.conn.session.handle_eof(now),
            Err(error) => {
                self.report.blocked(now, &error);
                Err(ErrorCode::IO)
            }
        };
        let (HandOver { bell, claim_bell, process, fds }, subscribed) = match admitted {
            Ok(admitted) => admitted,
            Err(code) => {
                let _ = peer.conn.session.admit(now, Err(code));
                return;
            }
        };
        let bit = subscribed.bit;
        peer.bit = Some(bit);
        let _ = peer.conn.session.admit(now, Ok(subscribed));
        for (message, fd) in fds {
            let _ = peer.conn.session.offer_fd(message, fd);
        }
        self.shared.set_bell(bit, Some(bell));
        self.shared.claim_bells.set(bit, claim_bell);
        if let (Some(process), Some(registration)) = (&process, &self.registration) {
            // Without it the connection alone tells (D-20).
            let _ = registration.add(process, PROCESSES + usize::from(bit.get()), Interest::READABLE);
        }
        *self.processes.of(bit) = process;
        // A claim that met it half joined waits for it.
        let _ = self.shared.claim_bells.ring();
        if let Some(member) = self.roster.members().find(|member| member.bit == bit) {
            self.report.joined(now, member);
            self.shared.counters.joined.add(1);
            self.shared.push_event(MemberEvent::Joined(member.clone()));
        }
        self.members_changed();
    }

    /// Takes `bit` back. `closed` is how its connection ended, if that is the reason.
    fn release(&mut self, now: Instant, bit: SubscriberBit, how: Leave, closed: Option<&Closed>) {
        if let Some(member) = self.roster.members().find(|member| member.bit == bit) {
            self.report.left(now, member, how, closed);
            self.shared.counters.left(how);
            self.shared.push_event(MemberEvent::Left(member.clone(), how));
        }
        let departure = if how == Leave::Unsubscribed { Departure::Clean } else { Departure::Abrupt };
        self.roster.leave(now, bit, departure);
        self.shared.set_bell(bit, None);
        self.shared.claim_bells.set(bit, None);
        if departure == Departure::Clean {
            *self.processes.of(bit) = None;
        }
        if let Some(peer) = self.holder(bit) {
            peer.bit = None;
        }
        self.members_changed();
        // A claim may be waiting for exactly this one.
        let _ = self.shared.claim_bells.ring();
    }

    /// The process behind `bit` is gone; what it said before counts (D-20).
    fn process_gone(&mut self, now: Instant, bit: SubscriberBit) {
        // The event may be about an earlier holder of the bit, handled after that one had left.
        let process = self.processes.of(bit);
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
        *self.processes.of(bit) = None;
    }

    /// Finds what no event tells.
    fn look_after(&mut self, now: Instant) {
        let Self { upkeep, files, roster, shared, report, .. } = self;
        for bit in upkeep.look_after(now, files, roster, shared, report) {
            if let Some(peer) = self.holder(bit) {
                peer.conn.session.expel(now, ErrorCode::PROTOCOL, "its wake-up eventfd was filled");
            }
        }
        self.settle_all(now);
    }

    /// Every descriptor that is watched, and its token, counted from the first.
    fn sources(&self) -> impl Iterator<Item = (usize, BorrowedFd<'_>)> {
        let peers = (PEERS..).zip(&self.peers);
        [(LISTENER, self.entrance.as_fd()), (BELL, self.shared.service_bell.as_fd())]
            .into_iter()
            .chain(self.processes.iter().map(|(bit, process)| (PROCESSES + bit, process.as_fd())))
            .chain(peers.filter_map(|(number, peer)| Some((number, peer.as_ref()?.conn.as_fd()))))
    }

    fn members_changed(&self) {
        self.shared.set_members(self.roster.members().cloned().collect());
    }

    /// The connection whose subscriber has `bit`.
    fn holder(&mut self, bit: SubscriberBit) -> Option<&mut Peer> {
        self.peers.iter_mut().flatten().find(|peer| peer.bit == Some(bit))
    }

    fn peer(&mut self, index: usize) -> Option<&mut Peer> {
        self.peers.get_mut(index)?.as_mut()
    }
}

impl Drop for Service {
    /// Says goodbye without waiting for anybody, unless it was shut down before.
    fn drop(&mut self) {
        if !self.shared.home.is_here() {
            // The peers are the parent's (P-20).
            return;
        }
        self.shut_down(clock::now(), ShutdownReason::NORMAL);
    }
}

impl EventSource for Service {
    const TOKENS: usize = PEERS + MAX_PEERS;

    fn register(&mut self, registry: &Registry, first_token: Token) -> io::Result<()> {
        if let Some(old) = self.registration.replace(Registration::new(registry, first_token)?) {
            self.sources().for_each(|(_, fd)| old.remove(fd));
        }
        let Some(registration) = &self.registration else { return Ok(()) };
        self.sources().try_for_each(|(number, fd)| {
            let interest = if number < PEERS { Interest::READABLE } else { conn::INTEREST };
            registration.add(fd, number, interest)
        })
    }

    fn handle_event(&mut self, token: Token, now: Instant) -> io::Result<Turn> {
        let Some(number) = self.registration.as_ref().and_then(|registration| registration.number(token))
        else {
            return Ok(Turn::Idle);
        };
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
        for bit in SubscriberBit::in_bitmap(self.roster.handle_timeout(now)) {
            *self.processes.of(bit) = None;
        }
        for peer in self.peers.iter_mut().flatten() {
            peer.conn.session.handle_timeout(now);
        }
        if self.grace.is_some_and(|grace| grace <= now) {
            // They had their time (D-12).
            self.peers.fill_with(|| None);
        }
        self.settle_all(now);
        if self.entrance.poll_timeout().is_some_and(|due| due <= now) && self.accept(now) == Turn::Again {
            self.entrance.call_again(now);
        }
        if self.upkeep.due() <= now {
            self.look_after(now);
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let sessions = self.peers.iter().flatten().filter_map(|peer| peer.conn.session.poll_timeout());
        let grace = self.grace.filter(|_| self.peers.iter().any(Option::is_some));
        sessions
            .chain(self.roster.poll_timeout())
            .chain(self.entrance.poll_timeout().filter(|_| self.grace.is_none()))
            .chain(grace)
            .chain([self.upkeep.due()])
            .min()
    }
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
const NO_DESCRIPTORS: &str = "the publisher has no file descriptor left";
