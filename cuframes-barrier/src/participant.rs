//! [`Participant`]: the side that is waited for.

use alloc::collections::VecDeque;
use alloc::string::String;
use core::time::Duration;

use cuframes_core::Instant;
use cuframes_core::streams::{Action, ConnId, Links, Machine};

use crate::fault::{JoinError, JoinStage};
use crate::message::{Init, Notice, Registration, Status};
use crate::zmtp::{Link, Message, SocketType};

/// What a participant needs to know.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ParticipantConfig {
    /// Its index: its routing id on both sockets.
    pub index: u16,
    /// Address of the frontend's handshake socket; only the driver reads it.
    pub address: String,
    /// How long everything may take, from [`Participant::new`] on.
    pub timeout: Duration,
}

impl ParticipantConfig {
    /// The configuration with these values.
    #[must_use]
    pub fn new(index: u16, address: impl Into<String>, timeout: Duration) -> Self {
        Self { index, address: address.into(), timeout }
    }
}

/// What a participant tells.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub enum ParticipantEvent {
    /// The frontend has answered: prepare what is needed, and call [`Participant::ready`].
    Init(Init),
    /// It is in. Nothing comes after it.
    Started {
        /// Whether the frontend said that everybody is there. The original does not: then this one has done its part, and
        /// nothing is known of the others.
        confirmed: bool,
    },
    /// It is not in. Nothing comes after it.
    Failed(JoinError),
}

/// The side that is waited for: HELLO, INIT, READY, registration. See [`Machine`] for how it is driven; it listens nowhere.
///
/// After [`Started`](ParticipantEvent::Started) the connections to the input and the output socket stay until it is dropped.
#[derive(Debug)]
pub struct Participant {
    index: u16,
    address: String,
    timeout: Duration,
    deadline: Instant,
    links: Links<Link, To>,
    state: State,
    /// The pause before the next attempt, should the frontend close a connection on which nothing was said yet.
    pause: Duration,
    init: Init,
    registration: Option<Registration>,
    events: VecDeque<ParticipantEvent>,
}

/// Where a connection leads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum To {
    Handshake,
    Input,
    Output,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// Waiting for this.
    Waiting(JoinStage),
    /// It has started or failed.
    Over,
}

impl Participant {
    /// A participant that begins at `now`.
    #[must_use]
    pub fn new(now: Instant, config: ParticipantConfig) -> Self {
        let ParticipantConfig { index, address, timeout } = config;
        let mut participant = Self {
            index,
            address,
            timeout,
            deadline: now + timeout,
            links: Links::default(),
            state: State::Waiting(JoinStage::Connect),
            pause: FIRST_PAUSE,
            init: Init::default(),
            registration: None,
            events: VecDeque::new(),
        };
        participant.connect(To::Handshake, participant.address.clone(), Duration::ZERO);
        participant
    }

    /// What is being waited for; nothing once it is over.
    #[must_use]
    pub const fn stage(&self) -> Option<JoinStage> {
        match self.state {
            State::Waiting(stage) => Some(stage),
            State::Over => None,
        }
    }

    /// Whether it is over, and the frontend was sent what it is to hear.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        let mut inputs = self.links.iter().filter(|(_, to)| **to == To::Input);
        self.state == State::Over
            && self.links.closing() == 0
            && inputs.all(|(conn, _)| self.links.poll_transmit(conn).is_none())
    }

    /// Says READY and registers. Has no effect but after [`ParticipantEvent::Init`], and once.
    pub fn ready(&mut self, now: Instant, registration: Registration) {
        self.handle_timeout(now);
        if self.state != State::Waiting(JoinStage::Prepare) {
            return;
        }
        self.state = State::Waiting(JoinStage::Registration);
        self.say(&Status::new(Status::READY).encode());
        let first =
            |addresses: &[String], field| addresses.first().cloned().ok_or(JoinError::NoAddress { field });
        let addresses = &self.init.addresses;
        let input = first(&addresses.inputs, "inputs");
        let output = first(&addresses.outputs, "outputs");
        match (input, output) {
            (Ok(input), Ok(output)) => {
                self.registration = Some(registration);
                self.connect(To::Input, input, Duration::ZERO);
                self.connect(To::Output, output, Duration::ZERO);
            }
            (Err(error), _) | (_, Err(error)) => self.fail(now, error),
        }
    }

    /// Calls it off. A frontend that understands it fails its start with this reason; another one sees the connection end.
    pub fn cancel(&mut self, now: Instant, reason: &str) {
        if self.init.is_marked() && self.state != State::Over {
            self.say(&Notice::new(Notice::CANCEL, Some(reason)).encode());
        }
        self.fail(now, JoinError::Aborted { reason: reason.into() });
    }

    fn connect(&mut self, to: To, address: String, delay: Duration) {
        let (kind, identity) = match to {
            To::Handshake | To::Input => (SocketType::Dealer, &self.index.to_le_bytes()[..]),
            To::Output => (SocketType::Push, &[][..]),
        };
        self.links.connect(address, delay, Link::new(kind, identity), to);
    }

    /// Sends on the handshake connection.
    fn say(&mut self, payload: &[u8]) {
        if let Some(conn) = self.conn(To::Handshake) {
            self.links.send(conn, payload);
        }
    }

    /// The connection that leads there, if messages can be sent on it.
    fn conn(&self, to: To) -> Option<ConnId> {
        let conn = self.links.iter().find(|(_, what)| **what == to)?.0;
        self.links.get(conn).filter(|(link, _)| link.is_open()).map(|_| conn)
    }

    fn message(&mut self, now: Instant, to: To, message: &Message) {
        match (to, self.state) {
            (To::Handshake, State::Waiting(JoinStage::Init)) => {
                if message.frames != 1 {
                    return self.fail(now, JoinError::Frames { frames: message.frames });
                }
                match Init::decode(&message.payload) {
                    Ok(init) => {
                        self.init = init.clone();
                        if init.is_marked() {
                            self.say(&Notice::new(Notice::KNOWS, None).encode());
                        }
                        self.state = State::Waiting(JoinStage::Prepare);
                        self.events.push_back(ParticipantEvent::Init(init));
                    }
                    Err(error) => self.fail(now, JoinError::Init { error }),
                }
            }
            (To::Handshake, State::Waiting(_)) if self.init.is_marked() => {
                // What it does not know says nothing.
                let Ok(notice) = Notice::decode(&message.payload) else { return };
                match notice.status.as_str() {
                    Notice::CANCEL => {
                        let reason = notice.reason.unwrap_or_default();
                        self.fail(now, JoinError::Cancelled { reason });
                    }
                    // The output socket may not be connected yet; the frontend that says this has the registration.
                    Notice::GO if self.has_registered() => self.start(now, true),
                    _ => {}
                }
            }
            // Work on the input socket is not ours to take.
            _ => {}
        }
    }

    /// A connection can carry messages now, or has carried some.
    fn look(&mut self, now: Instant) {
        if self.state == State::Waiting(JoinStage::Connect) && self.conn(To::Handshake).is_some() {
            self.state = State::Waiting(JoinStage::Init);
            self.say(&Status::new(Status::HELLO).encode());
        }
        if let Some(input) = self.conn(To::Input)
            && let Some(registration) = self.registration.take()
        {
            self.links.send(input, &registration.encode());
        }
        if self.state == State::Waiting(JoinStage::Registration)
            && self.has_registered()
            && self.conn(To::Output).is_some()
        {
            if self.init.is_marked() {
                self.state = State::Waiting(JoinStage::Go);
            } else {
                self.start(now, false);
            }
        }
    }

    /// Whether the registration was sent.
    fn has_registered(&self) -> bool {
        matches!(self.state, State::Waiting(JoinStage::Registration | JoinStage::Go))
            && self.registration.is_none()
    }

    fn start(&mut self, now: Instant, confirmed: bool) {
        self.end(now, |to| to == To::Handshake);
        self.events.push_back(ParticipantEvent::Started { confirmed });
    }

    fn fail(&mut self, now: Instant, error: JoinError) {
        if self.state != State::Over {
            self.end(now, |_| true);
            self.events.push_back(ParticipantEvent::Failed(error));
        }
    }

    fn end(&mut self, now: Instant, closes: impl Fn(To) -> bool) {
        self.state = State::Over;
        let over = self.links.iter().filter(|(_, to)| closes(**to)).map(|(conn, _)| conn);
        for conn in over.collect::<alloc::vec::Vec<_>>() {
            self.links.close_when_sent(conn, now + LINGER);
        }
    }

    /// The peer ended a connection.
    fn lost(&mut self, now: Instant, to: To) {
        let State::Waiting(stage) = self.state else { return };
        if to == To::Handshake && stage == JoinStage::Connect {
            // Nothing was said yet: perhaps there were too many.
            let pause = self.pause;
            self.pause = (pause * 2).min(LAST_PAUSE);
            return self.connect(to, self.address.clone(), pause);
        }
        // One that knows our words says GO and closes everything, and any of it may be the first to end here. The original
        // says nothing and closes this socket when all are in, and the others, too, when the start failed.
        let may_be_over = (to == To::Handshake) != self.init.is_marked();
        if may_be_over && self.has_registered() {
            return;
        }
        self.fail(now, JoinError::Gone { stage });
    }
}

impl Machine for Participant {
    type Event = ParticipantEvent;

    /// It listens nowhere.
    fn handle_accepted(&mut self, _now: Instant, _listener: usize) -> Option<ConnId> {
        None
    }

    fn handle_connected(&mut self, now: Instant, conn: ConnId) {
        self.handle_timeout(now);
        self.links.connected(conn);
    }

    fn handle_bytes(&mut self, now: Instant, conn: ConnId, mut bytes: &[u8]) {
        self.handle_timeout(now);
        while !bytes.is_empty() {
            let Some((_, to)) = self.links.get(conn) else { return };
            let to = *to;
            match self.links.receive(conn, &mut bytes) {
                Ok(Some(message)) => {
                    // READY may have come in the same piece.
                    self.look(now);
                    self.message(now, to, &message);
                }
                Ok(None) => {}
                Err(error) => {
                    self.links.close(conn);
                    if let State::Waiting(stage) = self.state {
                        self.fail(now, JoinError::Link { stage, error });
                    }
                    return;
                }
            }
            self.look(now);
        }
    }

    fn handle_eof(&mut self, now: Instant, conn: ConnId) {
        self.handle_timeout(now);
        if let Some(to) = self.links.remove(conn) {
            self.lost(now, to);
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        match self.state {
            State::Waiting(stage) if now >= self.deadline => {
                self.fail(now, JoinError::Timeout { stage, after: self.timeout });
            }
            State::Waiting(_) => {}
            State::Over => self.links.close_late(now),
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

    fn poll_event(&mut self) -> Option<ParticipantEvent> {
        self.events.pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        match self.state {
            State::Waiting(_) => Some(self.deadline),
            State::Over => self.links.poll_timeout(),
        }
    }
}

/// How long the last words may take.
const LINGER: Duration = Duration::from_secs(1);
/// Pauses between connections that the frontend closes before anything is said.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LAST_PAUSE: Duration = Duration::from_secs(1);
