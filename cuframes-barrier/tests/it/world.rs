//! [`World`]: a frontend, participants, and peers that are written by hand, joined by pipes of any width, on virtual time.

use std::collections::VecDeque;
use std::mem;
use std::time::Duration;

use cuframes_barrier::message::{Init, Registration};
use cuframes_barrier::{
    Fault, Frontend, FrontendConfig, FrontendEvent, JoinError, Participant, ParticipantConfig,
    ParticipantEvent, Registered, Socket,
};
use cuframes_core::Instant;
use cuframes_core::streams::{Action, ConnId, Machine};

use crate::bytes::{HANDSHAKE, INPUT, OUTPUT};

pub(crate) const TIMEOUT: Duration = Duration::from_secs(30);

/// A peer that is written by hand.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caller(usize);

pub(crate) struct World {
    pub(crate) now: Instant,
    pub(crate) frontend: Frontend,
    pub(crate) events: Vec<FrontendEvent>,
    pub(crate) participants: Vec<Joiner>,
    /// The most bytes that a direction of a connection holds, and that one read takes.
    pub(crate) width: usize,
    /// Whether somebody listens there, by the number of the socket. Attempts wait meanwhile.
    pub(crate) is_listening: [bool; 3],
    wires: Vec<Wire>,
}

pub(crate) struct Joiner {
    pub(crate) machine: Participant,
    pub(crate) events: Vec<ParticipantEvent>,
    /// What it registers with, as soon as it has INIT.
    pub(crate) registration: Option<Registration>,
    attempts: Vec<(Instant, ConnId, Socket)>,
    is_gone: bool,
}

struct Wire {
    /// None: the peer is written by hand.
    joiner: Option<(usize, ConnId)>,
    /// The frontend's end, while it is open.
    frontend: Option<ConnId>,
    /// Whether the peer's end is open.
    is_open: bool,
    up: VecDeque<u8>,
    down: VecDeque<u8>,
    /// What a peer that is written by hand has got.
    got: Vec<u8>,
}

/// The configuration with the addresses of the vectors.
pub(crate) fn config(count: u16) -> FrontendConfig {
    let mut init = Init::default();
    init.addresses.inputs.push(INPUT.into());
    init.addresses.outputs.push(OUTPUT.into());
    FrontendConfig::new(count, TIMEOUT, init)
}

impl World {
    pub(crate) fn new(config: FrontendConfig) -> Self {
        let now = Instant::from_nanos(1_000);
        Self {
            now,
            frontend: Frontend::new(now, config).unwrap(),
            events: Vec::new(),
            participants: Vec::new(),
            width: usize::MAX,
            is_listening: [true; 3],
            wires: Vec::new(),
        }
    }

    /// A participant that registers as this rank as soon as it has INIT; its number.
    pub(crate) fn join(&mut self, index: u16, rank: u16, size: u16) -> usize {
        let participant = self.prepare(index);
        self.participants[participant].registration = Some(Registration::new(rank, size));
        participant
    }

    /// A participant that waits for [`Participant::ready`].
    pub(crate) fn prepare(&mut self, index: u16) -> usize {
        let machine = Participant::new(self.now, ParticipantConfig::new(index, HANDSHAKE, TIMEOUT));
        self.participants.push(Joiner {
            machine,
            events: Vec::new(),
            registration: None,
            attempts: Vec::new(),
            is_gone: false,
        });
        self.participants.len() - 1
    }

    /// Says READY, and registers.
    pub(crate) fn ready(&mut self, participant: usize, rank: u16, size: u16) {
        self.participants[participant].machine.ready(self.now, Registration::new(rank, size));
        self.run();
    }

    /// The process of a participant is killed.
    pub(crate) fn kill(&mut self, participant: usize) {
        self.participants[participant].is_gone = true;
        for wire in &mut self.wires {
            wire.is_open &= wire.joiner.is_none_or(|(who, _)| who != participant);
        }
        self.run();
    }

    /// Connects by hand; `None` if the frontend does not want it.
    pub(crate) fn try_call(&mut self, socket: Socket) -> Option<Caller> {
        let frontend = self.frontend.handle_accepted(self.now, listener(socket))?;
        self.add(frontend, None);
        Some(Caller(self.wires.len() - 1))
    }

    /// Connects by hand, and sends this.
    pub(crate) fn call(&mut self, socket: Socket, bytes: &[u8]) -> Caller {
        let caller = self.try_call(socket).unwrap();
        self.say(caller, bytes);
        caller
    }

    /// Sends bytes by hand.
    pub(crate) fn say(&mut self, caller: Caller, bytes: &[u8]) {
        self.wires[caller.0].up.extend(bytes);
        self.run();
    }

    /// As many connect by hand and send this, a few at once.
    pub(crate) fn flood(&mut self, socket: Socket, bytes: &[u8], times: usize) {
        for n in 0..times {
            let caller = self.try_call(socket).unwrap();
            self.wires[caller.0].up.extend(bytes);
            if n % 25 == 0 {
                self.run();
            }
        }
        self.run();
    }

    /// Ends a connection that was made by hand.
    pub(crate) fn hang_up(&mut self, caller: Caller) {
        self.wires[caller.0].is_open = false;
        self.run();
    }

    /// What it has got.
    pub(crate) fn got(&self, caller: Caller) -> &[u8] {
        &self.wires[caller.0].got
    }

    /// Whether the frontend has closed it.
    pub(crate) fn is_closed(&self, caller: Caller) -> bool {
        self.wires[caller.0].frontend.is_none()
    }

    /// To how many sockets this participant is connected.
    pub(crate) fn connections_of(&self, participant: usize) -> usize {
        let is_its = |wire: &&Wire| wire.joiner.is_some_and(|(who, _)| who == participant);
        self.wires.iter().filter(is_its).filter(|wire| wire.is_open && wire.frontend.is_some()).count()
    }

    /// How many connections the frontend has.
    pub(crate) fn connections(&self) -> usize {
        self.wires.iter().filter(|wire| wire.frontend.is_some()).count()
    }

    /// Time passes.
    pub(crate) fn pass(&mut self, time: Duration) {
        self.now = self.now + time;
        self.frontend.handle_timeout(self.now);
        for joiner in &mut self.participants {
            joiner.machine.handle_timeout(self.now);
        }
        self.run();
    }

    /// Everything goes on until nothing moves any more.
    pub(crate) fn run(&mut self) {
        while self.act() | self.carry() {}
    }

    fn act(&mut self) -> bool {
        let mut moved = false;
        while let Some(action) = self.frontend.poll_action() {
            moved = true;
            if let Action::Close(conn) = action {
                // None if its end was told to the machine meanwhile.
                if let Some(wire) = self.wires.iter_mut().find(|wire| wire.frontend == Some(conn)) {
                    wire.frontend = None;
                }
            }
        }
        self.events.extend(std::iter::from_fn(|| self.frontend.poll_event()));
        for number in 0..self.participants.len() {
            moved |= self.act_for(number);
        }
        moved
    }

    fn act_for(&mut self, number: usize) -> bool {
        let joiner = &mut self.participants[number];
        if joiner.is_gone {
            return false;
        }
        let mut moved = false;
        while let Some(action) = joiner.machine.poll_action() {
            moved = true;
            match action {
                Action::Connect { conn, address, delay } => {
                    let address =
                        [HANDSHAKE, INPUT, OUTPUT].iter().position(|known| *known == address).unwrap();
                    joiner.attempts.push((self.now + delay, conn, Socket::ALL[address]));
                }
                Action::Close(conn) => {
                    joiner.attempts.retain(|(_, attempt, _)| *attempt != conn);
                    let mut wires = self.wires.iter_mut();
                    if let Some(wire) = wires.find(|wire| wire.joiner == Some((number, conn))) {
                        wire.is_open = false;
                    }
                }
                _ => {}
            }
        }
        while let Some(event) = joiner.machine.poll_event() {
            if let ParticipantEvent::Init(_) = event
                && let Some(registration) = joiner.registration.take()
            {
                joiner.machine.ready(self.now, registration);
                moved = true;
            }
            joiner.events.push(event);
        }
        for (at, conn, socket) in mem::take(&mut joiner.attempts) {
            let joiner = &mut self.participants[number];
            if at > self.now || !self.is_listening[listener(socket)] {
                joiner.attempts.push((at, conn, socket));
                continue;
            }
            moved = true;
            joiner.machine.handle_connected(self.now, conn);
            match self.frontend.handle_accepted(self.now, listener(socket)) {
                Some(frontend) => self.add(frontend, Some((number, conn))),
                None => self.participants[number].machine.handle_eof(self.now, conn),
            }
        }
        moved
    }

    /// One write and one read on each connection, in both directions.
    fn carry(&mut self) -> bool {
        let Self { now, frontend, participants, wires, width, .. } = self;
        let mut moved = false;
        for wire in wires {
            if let Some(conn) = wire.frontend {
                moved |= fill(frontend, conn, &mut wire.down, *width);
                let read = take(&mut wire.up, *width);
                if !read.is_empty() {
                    moved = true;
                    frontend.handle_bytes(*now, conn, &read);
                } else if !wire.is_open {
                    moved = true;
                    frontend.handle_eof(*now, conn);
                    wire.frontend = None;
                }
            }
            let read = take(&mut wire.down, *width);
            moved |= !read.is_empty();
            match wire.joiner {
                Some((number, conn)) if wire.is_open => {
                    let machine = &mut participants[number].machine;
                    moved |= fill(machine, conn, &mut wire.up, *width);
                    if !read.is_empty() {
                        machine.handle_bytes(*now, conn, &read);
                    } else if wire.frontend.is_none() {
                        moved = true;
                        machine.handle_eof(*now, conn);
                        wire.is_open = false;
                    }
                }
                _ => wire.got.extend(read),
            }
        }
        moved
    }

    fn add(&mut self, frontend: ConnId, joiner: Option<(usize, ConnId)>) {
        self.wires.push(Wire {
            joiner,
            frontend: Some(frontend),
            is_open: true,
            up: VecDeque::new(),
            down: VecDeque::new(),
            got: Vec::new(),
        });
    }

    /// Why the start failed.
    pub(crate) fn fault(&self) -> &Fault {
        let Some(FrontendEvent::Failed(fault)) = self.events.last() else { panic!("{:?}", self.events) };
        fault
    }

    /// Who is there.
    pub(crate) fn started(&self) -> &[Registered] {
        let Some(FrontendEvent::Started(who)) = self.events.last() else { panic!("{:?}", self.events) };
        who
    }

    /// The indices of who is there.
    pub(crate) fn indices(&self) -> Vec<u16> {
        self.started().iter().map(|participant| participant.index).collect()
    }

    /// Whether this participant is in, and was told that all are.
    pub(crate) fn is_in(&self, participant: usize) -> Option<bool> {
        match self.participants[participant].events.last() {
            Some(ParticipantEvent::Started { confirmed }) => Some(*confirmed),
            _ => None,
        }
    }

    /// Why this participant is not in.
    pub(crate) fn join_error(&self, participant: usize) -> &JoinError {
        let events = &self.participants[participant].events;
        let Some(ParticipantEvent::Failed(error)) = events.last() else { panic!("{events:?}") };
        error
    }
}

/// The number of the listener.
pub(crate) fn listener(socket: Socket) -> usize {
    Socket::ALL.iter().position(|known| *known == socket).unwrap()
}

/// Sends as much as fits into the pipe.
fn fill(machine: &mut impl Machine, conn: ConnId, pipe: &mut VecDeque<u8>, width: usize) -> bool {
    let mut moved = false;
    while let Some(bytes) = machine.poll_transmit(conn) {
        let n = bytes.len().min(width.saturating_sub(pipe.len()));
        if n == 0 {
            break;
        }
        pipe.extend(&bytes[..n]);
        machine.transmitted(conn, n);
        moved = true;
    }
    moved
}

fn take(pipe: &mut VecDeque<u8>, width: usize) -> Vec<u8> {
    let n = pipe.len().min(width);
    pipe.drain(..n).collect()
}
