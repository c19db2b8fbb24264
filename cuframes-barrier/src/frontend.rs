//! [`Frontend`]: waits until everybody is there.
//!
//! Two stages, one deadline. HELLO is answered with INIT, READY is noted; when everybody is ready, the registrations are
//! looked at, also those that came earlier. Any [`Fault`] ends the start for all: that is how the original decides, and
//! what it does not decide (a connection that breaks off, one that does not speak ZMTP) ends that connection alone.

use alloc::collections::VecDeque;
use alloc::string::ToString as _;
use alloc::vec::Vec;
use core::mem;
use core::time::Duration;

use cuframes_core::Instant;
use cuframes_core::streams::{Action, ConnId, Links, Machine};

use crate::config::{ConfigError, FrontendConfig};
use crate::event::{FrontendEvent, Registered};
use crate::fault::{Fault, Stage};
use crate::held::{Held, index_of};
use crate::message::{MARK, Notice, Registration, Status};
use crate::roll::{Progress, Roll};
use crate::socket::Socket;
use crate::zmtp::{Link, LinkError, MAX_PAYLOAD, Message};

/// The side that waits. See [`Machine`] for how it is driven; its listeners are those of [`Socket`].
///
/// Once it is over, the handshake socket is closed, as soon as those who are to hear how it ended were sent that (they have
/// a second). After a start the other connections stay until the frontend is dropped, and more are let in: the last
/// registration may come before the output connection of who sent it. After a failure all connections end.
#[derive(Debug)]
pub struct Frontend {
    first: u16,
    count: u16,
    timeout: Duration,
    restarts: bool,
    notices: bool,
    init: Vec<u8>,
    deadline: Instant,
    roll: Roll,
    links: Links<Link, Peer>,
    /// Registrations that came before everybody was ready.
    held: VecDeque<Held>,
    /// How many of them are of ids that are not expected.
    held_of_strangers: u8,
    events: VecDeque<FrontendEvent>,
    state: State,
}

/// What a connection is.
#[derive(Debug)]
struct Peer {
    socket: Socket,
    /// Who said something on it that was as it should be.
    index: Option<u16>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Waiting,
    Over { failed: bool },
}

impl Frontend {
    /// A frontend that waits from `now` on.
    ///
    /// # Errors
    /// If nobody is expected, indices are beyond 65535, or INIT is too long or has a mark that is not true.
    pub fn new(now: Instant, config: FrontendConfig) -> Result<Self, ConfigError> {
        let FrontendConfig { first_index: first, count, timeout, mut init, restarts, notices } = config;
        let last = count.checked_sub(1).ok_or(ConfigError::Nobody)?;
        let last = first.checked_add(last).ok_or(ConfigError::Indices { first, count })?;
        match (notices, init.is_marked()) {
            (true, false) => init.parallel_config.push(MARK, 1),
            // Participants would say words that are faults here.
            (false, true) => return Err(ConfigError::Mark),
            _ => {}
        }
        let init = init.encode();
        if init.len() > MAX_PAYLOAD {
            return Err(ConfigError::InitTooLong { len: init.len() });
        }
        Ok(Self {
            first,
            count,
            timeout,
            restarts,
            notices,
            init,
            deadline: now + timeout,
            roll: Roll::new(first..=last),
            links: Links::default(),
            held: VecDeque::new(),
            held_of_strangers: 0,
            events: VecDeque::new(),
            state: State::Waiting,
        })
    }

    /// What is being waited for; nothing once it is over.
    #[must_use]
    pub fn stage(&self) -> Option<Stage> {
        if self.is_over() { None } else { self.roll.stage() }
    }

    /// How far each participant is, in the order of the indices.
    pub fn progress(&self) -> impl Iterator<Item = (u16, Progress)> {
        self.roll.iter().map(|entry| (entry.index, entry.progress()))
    }

    /// Whether it has started or failed.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.state != State::Waiting
    }

    /// Whether it is over and those who are to hear how it ended were sent that.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.is_over() && self.links.closing() == 0
    }

    /// Calls the start off. Participants that understand it are told why.
    pub fn cancel(&mut self, now: Instant, reason: &str) {
        self.fail(now, Fault::Aborted { reason: reason.into() });
    }

    /// A message on the handshake socket.
    fn greet(&mut self, now: Instant, conn: ConnId, message: &Message) -> Result<(), Fault> {
        // Nobody looks at this socket any more, except for who starts over or cancels.
        let is_late = self.roll.stage() == Some(Stage::Registration);
        let index = match self.sender(Stage::Ready, conn, message.frames) {
            Err(_) if is_late => return Ok(()),
            sender => sender?,
        };
        if self.notices
            && let Ok(notice) = Notice::decode(&message.payload)
            && self.noticed(conn, index, notice)?
        {
            return Ok(());
        }
        if is_late && !self.restarts {
            return Ok(());
        }
        let status = Status::decode(&message.payload);
        let status = status.map_err(|error| Fault::Payload { stage: Stage::Ready, index, error });
        let Some(entry) = self.roll.get(index) else { return Ok(()) };
        let progress = match status {
            Ok(Status { status: Some(word), .. }) if word == Status::HELLO => {
                if entry.reached > Progress::Absent {
                    if !self.restarts {
                        return Err(Fault::HelloTwice { index });
                    }
                    self.restart(conn, index);
                }
                if self.links.get(conn).is_some_and(|(link, _)| !link.is_read()) {
                    self.drop_link(conn, Socket::Handshake, LinkError::NotReading);
                    return Ok(());
                }
                self.links.send(conn, &self.init);
                Progress::Greeted
            }
            _ if is_late => return Ok(()),
            Ok(Status { status: Some(word), .. }) if word == Status::READY => match entry.reached {
                Progress::Absent => return Err(Fault::ReadyBeforeHello { index }),
                Progress::Greeted => Progress::Ready,
                _ => return Err(Fault::ReadyTwice { index }),
            },
            Ok(Status { status, .. }) => return Err(Fault::Status { index, status }),
            Err(fault) => return Err(fault),
        };
        self.reach(conn, index, progress);
        self.look_at_held(now)
    }

    /// A word of the extension; whether it was one.
    fn noticed(&mut self, conn: ConnId, index: u16, notice: Notice) -> Result<bool, Fault> {
        // Who has not been sent INIT on this connection can't know that there are such words.
        let Some(entry) = self.roll.get(index).filter(|entry| entry.handshake == Some(conn)) else {
            return Ok(false);
        };
        match notice.status.as_str() {
            Notice::KNOWS => entry.knows = true,
            Notice::CANCEL => {
                return Err(Fault::Cancelled { index, reason: notice.reason.unwrap_or_default() });
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// A message on the input socket.
    fn register(&mut self, now: Instant, conn: ConnId, message: &Message) -> Result<(), Fault> {
        let Some((link, _)) = self.links.get(conn) else { return Ok(()) };
        let identity: Vec<u8> = link.peer().into();
        // It reached us late: the process that said HELLO since then registers on a connection that it makes after that.
        let is_old = |index| self.roll.get(index).is_some_and(|entry| conn < entry.since);
        if index_of(&identity).is_some_and(is_old) {
            self.links.close(conn);
            return Ok(());
        }
        // A second one of an id is a fault already, whatever it says: those after it can't change what comes of it.
        let held = self.held_of(&identity);
        if *held >= 2 {
            return Ok(());
        }
        *held += 1;
        let registration = Registration::decode(&message.payload);
        self.held.push_back(Held { conn, identity, frames: message.frames, registration });
        self.look_at_held(now)
    }

    /// How many registrations of this id are held; ids that are not expected count as one.
    fn held_of(&mut self, identity: &[u8]) -> &mut u8 {
        match index_of(identity).and_then(|index| self.roll.get(index)) {
            Some(entry) => &mut entry.held,
            None => &mut self.held_of_strangers,
        }
    }

    /// Looks at the registrations, once everybody is ready.
    fn look_at_held(&mut self, now: Instant) -> Result<(), Fault> {
        while self.roll.stage() == Some(Stage::Registration)
            && let Some(Held { conn, identity, frames, registration }) = self.held.pop_front()
        {
            let held = self.held_of(&identity);
            *held = held.saturating_sub(1);
            let index = self.check_sender(Stage::Registration, &identity, frames)?;
            let registration =
                registration.map_err(|error| Fault::Payload { stage: Stage::Registration, index, error })?;
            let rank = index - self.first;
            let (said_rank, said_size) = (registration.data_parallel_rank, registration.data_parallel_size);
            if said_rank != i64::from(rank) || said_size != i64::from(self.count) {
                return Err(Fault::Rank {
                    index,
                    rank: said_rank,
                    size: said_size,
                    expected_rank: rank,
                    expected_size: self.count,
                });
            }
            let Some(entry) = self.roll.get(index) else { continue };
            if entry.reached == Progress::Registered && !entry.is_lost {
                return Err(Fault::RegisteredTwice { index });
            }
            entry.registration = Some(registration);
            self.reach(conn, index, Progress::Registered);
        }
        if self.roll.stage().is_none() {
            self.start(now);
        }
        Ok(())
    }

    /// Who sent a message on this connection, if it is somebody who is expected.
    fn sender(&self, stage: Stage, conn: ConnId, frames: usize) -> Result<u16, Fault> {
        let identity = self.links.get(conn).map_or(&[][..], |(link, _)| link.peer());
        self.check_sender(stage, identity, frames)
    }

    fn check_sender(&self, stage: Stage, identity: &[u8], frames: usize) -> Result<u16, Fault> {
        if frames != 1 {
            return Err(Fault::Frames { stage, identity: identity.into(), frames });
        }
        let index = index_of(identity).ok_or_else(|| Fault::Identity { stage, identity: identity.into() })?;
        let is_expected = index.checked_sub(self.first).is_some_and(|rank| rank < self.count);
        if is_expected { Ok(index) } else { Err(Fault::Unexpected { stage, index }) }
    }

    /// Notes that a participant came further, on this connection.
    fn reach(&mut self, conn: ConnId, index: u16, progress: Progress) {
        let Some(entry) = self.roll.get(index) else { return };
        entry.reached = progress;
        entry.is_lost = false;
        let place = if progress == Progress::Registered { &mut entry.input } else { &mut entry.handshake };
        // One on which it said something before is not needed any more.
        if let Some(peer) = place.replace(conn).and_then(|old| self.links.what_mut(old)) {
            peer.index = None;
        }
        if let Some(peer) = self.links.what_mut(conn) {
            peer.index = Some(index);
        }
        self.events.push_back(FrontendEvent::Progress { index, progress });
    }

    /// A participant begins again, on this connection.
    fn restart(&mut self, conn: ConnId, index: u16) {
        let Some(entry) = self.roll.get(index) else { return };
        for old in entry.restart(self.links.next()).into_iter().flatten().filter(|old| *old != conn) {
            self.links.close(old);
        }
        // What it had registered before is not looked at any more.
        let id = index.to_le_bytes();
        let links = &mut self.links;
        self.held.retain(|held| {
            let is_old = held.identity == id;
            if is_old {
                links.close(held.conn);
            }
            !is_old
        });
        self.events.push_back(FrontendEvent::Restarted { index });
    }

    fn start(&mut self, now: Instant) {
        let participants = self.roll.iter_mut().filter_map(|entry| {
            Some(Registered { index: entry.index, registration: entry.registration.take()? })
        });
        let participants = participants.collect();
        self.end(now, &Notice::new(Notice::GO, None), false);
        self.events.push_back(FrontendEvent::Started(participants));
    }

    fn fail(&mut self, now: Instant, fault: Fault) {
        if !self.is_over() {
            self.end(now, &Notice::new(Notice::CANCEL, Some(&fault.to_string())), true);
            self.events.push_back(FrontendEvent::Failed(fault));
        }
    }

    /// Says how it ended to those who understand it, and closes the handshake socket, or all if it failed.
    fn end(&mut self, now: Instant, notice: &Notice, failed: bool) {
        self.state = State::Over { failed };
        self.held.clear();
        let notice = notice.encode();
        for entry in self.roll.iter().filter(|entry| entry.knows) {
            if let Some(conn) = entry.handshake {
                self.links.send(conn, &notice);
            }
        }
        let over = self.links.iter().filter(|(_, peer)| failed || peer.socket == Socket::Handshake);
        for conn in over.map(|(conn, _)| conn).collect::<Vec<_>>() {
            self.links.close_when_sent(conn, now + LINGER);
        }
    }

    /// A connection is gone. With restarts its participant is lost, if it was the one that it needed.
    fn lose(&mut self, conn: ConnId, peer: &Peer) {
        if !self.restarts || self.is_over() {
            return;
        }
        let mut index = peer.index;
        // What was registered on it does not count any more.
        while let Some(at) = self.held.iter().position(|held| held.conn == conn)
            && let Some(Held { identity, .. }) = self.held.remove(at)
        {
            let held = self.held_of(&identity);
            *held = held.saturating_sub(1);
            index = index.or_else(|| index_of(&identity));
        }
        let Some(index) = index else { return };
        let Some(entry) = self.roll.get(index) else { return };
        let needed = match entry.reached {
            Progress::Registered => entry.input,
            // It has said all that it has to say there.
            _ if entry.held > 0 => return,
            _ => entry.handshake,
        };
        if needed.is_some_and(|needed| self.links.get(needed).is_none())
            && !mem::replace(&mut entry.is_lost, true)
        {
            self.events.push_back(FrontendEvent::Progress { index, progress: Progress::Lost });
        }
    }

    fn drop_link(&mut self, conn: ConnId, socket: Socket, error: LinkError) {
        let Some(peer) = self.links.close(conn) else { return };
        // Strangers do not fill the queue, and nothing comes after the end.
        if !self.is_over() && self.events.len() < MAX_EVENTS {
            self.events.push_back(FrontendEvent::Dropped { socket, error });
        }
        self.lose(conn, &peer);
    }

    /// How many connections a socket may have: each participant has one, and may be there twice for a moment; of many only
    /// some at a time, or strangers at one socket would take the places that the process has for another.
    fn max_links(&self) -> usize {
        let count = usize::from(self.count);
        (STRANGERS + 2 * count).min(SHARE.max(STRANGERS / 2 + count))
    }

    /// The oldest connection to this socket on which nobody has said anything. What only connects goes before what speaks
    /// ZMTP, as the output connections of participants do, which never say more; but a few of it have time to do so.
    fn silent(&self, socket: Socket) -> Option<ConnId> {
        let silent = || {
            self.links.iter().filter(move |(conn, peer)| {
                peer.socket == socket
                    && peer.index.is_none()
                    && self.held.iter().all(|held| held.conn != *conn)
            })
        };
        let is_open = |conn| self.links.get(conn).is_some_and(|(link, _)| link.is_open());
        let mut not_open = silent().map(|(conn, _)| conn).filter(|conn| !is_open(*conn));
        let oldest = not_open.next();
        if not_open.count() >= STRANGERS / 2 { oldest } else { silent().map(|(conn, _)| conn).next() }
    }
}

impl Machine for Frontend {
    type Event = FrontendEvent;

    /// When a socket has too many connections, one on which nobody has said anything makes room.
    fn handle_accepted(&mut self, now: Instant, listener: usize) -> Option<ConnId> {
        self.handle_timeout(now);
        let socket = *Socket::ALL.get(listener)?;
        match self.state {
            State::Waiting => {}
            State::Over { failed: false } if socket != Socket::Handshake => {}
            State::Over { .. } => return None,
        }
        if self.links.iter().filter(|(_, peer)| peer.socket == socket).count() >= self.max_links() {
            self.links.close(self.silent(socket)?);
        }
        Some(self.links.accept(Link::new(socket.kind(), &[]), Peer { socket, index: None }))
    }

    /// It connects to nobody.
    fn handle_connected(&mut self, _now: Instant, _conn: ConnId) {}

    fn handle_bytes(&mut self, now: Instant, conn: ConnId, mut bytes: &[u8]) {
        self.handle_timeout(now);
        while !bytes.is_empty() {
            let Some((_, Peer { socket, .. })) = self.links.get(conn) else { return };
            let socket = *socket;
            let message = match self.links.receive(conn, &mut bytes) {
                Ok(Some(message)) => message,
                Ok(None) => return,
                Err(error) => return self.drop_link(conn, socket, error),
            };
            if self.is_over() {
                continue;
            }
            let result = match socket {
                Socket::Handshake => self.greet(now, conn, &message),
                Socket::Input => self.register(now, conn, &message),
                Socket::Output => Ok(()),
            };
            if let Err(fault) = result {
                self.fail(now, fault);
            }
        }
    }

    fn handle_eof(&mut self, now: Instant, conn: ConnId) {
        self.handle_timeout(now);
        if let Some(peer) = self.links.remove(conn) {
            self.lose(conn, &peer);
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        match self.state {
            State::Waiting if now >= self.deadline => {
                // Somebody is missing, or it would not be waiting.
                let stage = self.roll.stage().unwrap_or(Stage::Registration);
                let missing = self.roll.missing(stage);
                self.fail(now, Fault::Timeout { stage, missing, after: self.timeout });
            }
            State::Waiting => {}
            State::Over { .. } => self.links.close_late(now),
        }
    }

    fn poll_action(&mut self) -> Option<Action> {
        self.links.poll_action()
    }

    fn poll_transmit(&self, conn: ConnId) -> Option<&[u8]> {
        self.links.poll_transmit(conn)
    }

    fn transmitted(&mut self, conn: ConnId, n: usize) {
        self.links.transmitted(conn, n);
    }

    fn poll_event(&mut self) -> Option<FrontendEvent> {
        self.events.pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        match self.state {
            State::Waiting => Some(self.deadline),
            State::Over { .. } => self.links.poll_timeout(),
        }
    }
}

/// How long the last words may take.
const LINGER: Duration = Duration::from_secs(1);
/// Connections of nobody knows whom, at each socket.
const STRANGERS: usize = 64;
/// Connections of each socket that leave the three below 1000, which is what fits in a process with the usual limit of
/// 1024 open files.
const SHARE: usize = 333;
/// Events that strangers may cause before one is taken.
const MAX_EVENTS: usize = 64;
