//! [`Solo`]: one participant whose frontend is written by hand.

use std::collections::BTreeMap;
use std::iter;
use std::time::Duration;

use cuframes_barrier::message::Registration;
use cuframes_barrier::{JoinError, JoinStage, Participant, ParticipantConfig, ParticipantEvent};
use cuframes_core::Instant;
use cuframes_core::streams::{Action, ConnId, Machine};

use crate::bytes::{HANDSHAKE, INPUT, OUTPUT, hello, init, opening, ready};
use crate::world::TIMEOUT;

pub(crate) struct Solo {
    pub(crate) now: Instant,
    pub(crate) machine: Participant,
    pub(crate) events: Vec<ParticipantEvent>,
    /// The connections that it has asked for and not closed: the newest to each address, and the pause before it.
    pub(crate) asked: BTreeMap<String, (ConnId, Duration)>,
    /// Whether what it wants to send is taken.
    pub(crate) is_reading: bool,
    sent: BTreeMap<ConnId, Vec<u8>>,
}

impl Solo {
    /// Participant 5, of one from index 5 on.
    pub(crate) fn new() -> Self {
        let now = Instant::from_nanos(7);
        let mut solo = Self {
            now,
            machine: Participant::new(now, ParticipantConfig::new(5, HANDSHAKE, TIMEOUT)),
            events: Vec::new(),
            asked: BTreeMap::new(),
            is_reading: true,
            sent: BTreeMap::new(),
        };
        solo.drain();
        solo
    }

    /// One that has come to this stage.
    pub(crate) fn at(stage: JoinStage, marked: bool) -> Self {
        let mut solo = Self::new();
        if stage >= JoinStage::Init {
            solo.connect(HANDSHAKE);
            solo.feed(HANDSHAKE, &opening("ROUTER", None));
        }
        if stage >= JoinStage::Prepare {
            solo.feed(HANDSHAKE, &init(marked));
        }
        if stage >= JoinStage::Registration {
            solo.ready();
        }
        if stage >= JoinStage::Go {
            solo.open_input();
            solo.open_output();
        }
        assert_eq!(solo.machine.stage(), Some(stage));
        solo
    }

    pub(crate) fn ready(&mut self) {
        self.machine.ready(self.now, Registration::new(0, 1));
        self.drain();
    }

    pub(crate) fn open_input(&mut self) {
        self.connect(INPUT);
        self.feed(INPUT, &opening("ROUTER", None));
    }

    pub(crate) fn open_output(&mut self) {
        self.connect(OUTPUT);
        self.feed(OUTPUT, &opening("PULL", None));
    }

    pub(crate) fn connect(&mut self, address: &str) {
        self.machine.handle_connected(self.now, self.conn(address));
        self.drain();
    }

    pub(crate) fn feed(&mut self, address: &str, bytes: &[u8]) {
        self.machine.handle_bytes(self.now, self.conn(address), bytes);
        self.drain();
    }

    /// The frontend closes this connection.
    pub(crate) fn close(&mut self, address: &str) {
        let (conn, _) = self.asked.remove(address).unwrap();
        self.machine.handle_eof(self.now, conn);
        self.drain();
    }

    pub(crate) fn pass(&mut self, time: Duration) {
        self.now = self.now + time;
        self.machine.handle_timeout(self.now);
        self.drain();
    }

    pub(crate) fn cancel(&mut self, reason: &str) {
        self.machine.cancel(self.now, reason);
        self.drain();
    }

    /// All that was sent on the connections to this address, from the first on.
    pub(crate) fn sent(&self, address: &str) -> &[u8] {
        let bytes = self.asked.get(address).and_then(|(conn, _)| self.sent.get(conn));
        bytes.map_or(&[], Vec::as_slice)
    }

    /// All that was sent anywhere, also where it is closed by now.
    pub(crate) fn sent_anywhere(&self) -> Vec<&[u8]> {
        self.sent.values().map(Vec::as_slice).collect()
    }

    pub(crate) fn error(&self) -> &JoinError {
        let Some(ParticipantEvent::Failed(error)) = self.events.last() else { panic!("{:?}", self.events) };
        error
    }

    pub(crate) fn drain(&mut self) {
        loop {
            let mut sent = false;
            for conn in self.asked.values().map(|(conn, _)| *conn).collect::<Vec<_>>() {
                while self.is_reading
                    && let Some(bytes) = self.machine.poll_transmit(conn).map(<[u8]>::to_vec)
                {
                    self.machine.transmitted(conn, bytes.len());
                    self.sent.entry(conn).or_default().extend(bytes);
                    sent = true;
                }
            }
            while let Some(action) = self.machine.poll_action() {
                match action {
                    Action::Connect { conn, address, delay } => {
                        self.asked.insert(address, (conn, delay));
                        self.sent.insert(conn, Vec::new());
                    }
                    Action::Close(conn) => self.asked.retain(|_, (open, _)| *open != conn),
                    _ => {}
                }
            }
            if !sent {
                break;
            }
        }
        self.events.extend(iter::from_fn(|| self.machine.poll_event()));
    }

    fn conn(&self, address: &str) -> ConnId {
        self.asked[address].0
    }
}

/// HELLO and READY of participant 5, after its greeting.
pub(crate) fn said() -> Vec<u8> {
    [crate::bytes::dealer(5), hello(), ready()].concat()
}
