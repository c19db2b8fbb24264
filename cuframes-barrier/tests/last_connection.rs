//! The frontend closes the handshake socket when it has started, whether or not the participant has connected to the output
//! socket by then.

#![expect(clippy::unwrap_used, reason = "a failure ends the test")]

use std::time::Duration;

use cuframes_barrier::message::{Init, Registration};
use cuframes_barrier::zmtp::{Link, SocketType};
use cuframes_barrier::{
    Frontend, FrontendConfig, FrontendEvent, JoinError, JoinStage, Participant, ParticipantConfig,
    ParticipantEvent, Socket,
};
use cuframes_core::Instant;
use cuframes_core::streams::{Action, ConnId, Machine};

const NOW: Instant = Instant::ZERO;
const LONG: Duration = Duration::from_secs(30);

/// A participant that has registered at a frontend that has started, and is not connected to the output socket.
struct Registered {
    participant: Participant,
    /// Its connections to the handshake, the input and the output socket.
    handshake: ConnId,
    input: ConnId,
    output: ConnId,
}

impl Registered {
    fn new() -> Self {
        let mut init = Init::default();
        init.addresses.inputs.push("input".into());
        init.addresses.outputs.push("output".into());
        let mut frontend = Frontend::new(NOW, FrontendConfig::new(1, LONG, init)).unwrap();
        let mut participant = Participant::new(NOW, ParticipantConfig::new(0, "handshake", LONG));
        let handshake = connect(&mut participant, &mut frontend, Socket::Handshake);
        exchange(&mut participant, &mut frontend, handshake);
        assert!(matches!(participant.poll_event(), Some(ParticipantEvent::Init(_))));
        participant.ready(NOW, Registration::new(0, 1));
        exchange(&mut participant, &mut frontend, handshake);
        let input = connect(&mut participant, &mut frontend, Socket::Input);
        let output = wanted(&mut participant);
        exchange(&mut participant, &mut frontend, input);
        let is_start = |event| matches!(event, FrontendEvent::Started(_));
        assert!(std::iter::from_fn(|| frontend.poll_event()).any(is_start));
        let is_close = |action| action == Action::Close(handshake.1);
        assert!(std::iter::from_fn(|| frontend.poll_action()).any(is_close));
        assert_eq!(participant.poll_event(), None);
        Self { participant, handshake: handshake.0, input: input.0, output }
    }
}

/// The connection that it asks for next.
fn wanted(participant: &mut Participant) -> ConnId {
    loop {
        if let Action::Connect { conn, .. } = participant.poll_action().unwrap() {
            return conn;
        }
    }
}

fn connect(participant: &mut Participant, frontend: &mut Frontend, to: Socket) -> (ConnId, ConnId) {
    let ours = wanted(participant);
    let listener = Socket::ALL.into_iter().position(|socket| socket == to).unwrap();
    let theirs = frontend.handle_accepted(NOW, listener).unwrap();
    participant.handle_connected(NOW, ours);
    (ours, theirs)
}

/// Moves everything that there is to move on one connection.
fn exchange(participant: &mut Participant, frontend: &mut Frontend, (ours, theirs): (ConnId, ConnId)) {
    let mut is_moving = true;
    while is_moving {
        is_moving = false;
        while let Some(bytes) = participant.poll_transmit(ours).map(<[u8]>::to_vec) {
            participant.transmitted(ours, bytes.len());
            frontend.handle_bytes(NOW, theirs, &bytes);
            is_moving = true;
        }
        while let Some(bytes) = frontend.poll_transmit(theirs).map(<[u8]>::to_vec) {
            frontend.transmitted(theirs, bytes.len());
            participant.handle_bytes(NOW, ours, &bytes);
            is_moving = true;
        }
    }
}

#[test]
fn a_frontend_that_has_started_may_close_the_handshake_before_the_output_is_connected() {
    let Registered { mut participant, handshake, output, .. } = Registered::new();
    participant.handle_eof(NOW, handshake);
    assert_eq!(participant.poll_event(), None);
    assert_eq!(participant.stage(), Some(JoinStage::Registration));

    let mut peer = Link::new(SocketType::Pull, &[]);
    participant.handle_connected(NOW, output);
    let mut is_moving = true;
    while is_moving {
        is_moving = false;
        while let Some(bytes) = participant.poll_transmit(output).map(<[u8]>::to_vec) {
            participant.transmitted(output, bytes.len());
            assert_eq!(peer.receive(&mut bytes.as_slice()), Ok(None));
            is_moving = true;
        }
        while let Some(bytes) = peer.poll_transmit().map(<[u8]>::to_vec) {
            peer.transmitted(bytes.len());
            participant.handle_bytes(NOW, output, &bytes);
            is_moving = true;
        }
    }
    assert_eq!(participant.poll_event(), Some(ParticipantEvent::Started { confirmed: false }));
}

#[test]
fn a_frontend_whose_start_has_failed_closes_the_input_too() {
    let Registered { mut participant, handshake, input, .. } = Registered::new();
    participant.handle_eof(NOW, handshake);
    participant.handle_eof(NOW, input);
    let gone = JoinError::Gone { stage: JoinStage::Registration };
    assert_eq!(participant.poll_event(), Some(ParticipantEvent::Failed(gone)));
}
