//! The start-up barrier: ZMTP streams, msgpack messages, and a frontend among peers that do anything.

use std::collections::BTreeMap;
use std::iter;
use std::time::Duration;

use cuframes_barrier::message::{Init, Registration, Status};
use cuframes_barrier::msgpack::{DecodeError, Problem};
use cuframes_barrier::zmtp::{Link, LinkError, MAX_PAYLOAD, Message, SocketType};
use cuframes_barrier::{Frontend, FrontendConfig, FrontendEvent, Socket};
use cuframes_core::Instant;
use cuframes_core::streams::{Action, ConnId, Machine as _};

use super::Script;

/// A ZMTP stream is cut into the same messages and meets the same end however it arrives, and a message comes out as it was
/// sent. The first byte says whose it is, the second how long the pieces are.
pub fn zmtp(data: &[u8]) {
    let mut script = Script(data);
    let ours = match script.byte() % 4 {
        0 => SocketType::Router,
        1 => SocketType::Dealer,
        2 => SocketType::Pull,
        _ => SocketType::Push,
    };
    let piece = usize::from(script.byte().max(1));
    let stream = script.0;

    let (mut whole, mut cut) = (Link::new(ours, b"id"), Link::new(ours, b"id"));
    let once = receive(&mut whole, stream.chunks(usize::MAX));
    let pieces = receive(&mut cut, stream.chunks(piece));
    assert_eq!(once, pieces);
    assert_eq!(whole.poll_transmit(), cut.poll_transmit());
    assert_eq!((whole.peer(), whole.is_open()), (cut.peer(), cut.is_open()));
    assert!(whole.peer().len() <= 255 && once.0.iter().all(|message| message.payload.len() <= MAX_PAYLOAD));

    // What arrived is sent on, and arrives again.
    let mut sender = Link::new(SocketType::Dealer, b"id");
    sender.receive(&mut &opening("ROUTER", None)[..]).unwrap();
    for message in &once.0 {
        sender.send(&message.payload);
    }
    let sent = sender.poll_transmit().unwrap().to_vec();
    let (again, error) = receive(&mut Link::new(SocketType::Router, b""), sent.chunks(piece));
    assert_eq!(error, None);
    assert!(again.iter().map(|message| &message.payload).eq(once.0.iter().map(|message| &message.payload)));
    assert!(again.iter().all(|message| message.frames == 1));
}

/// Messages are read without a panic, and what was understood reads the same when it is written again.
pub fn start_message(data: &[u8]) {
    again(data, Status::decode, Status::encode);
    again(data, Init::decode, Init::encode);
    again(data, Registration::decode, Registration::encode);
}

fn again<T>(data: &[u8], decode: impl Fn(&[u8]) -> Result<T, DecodeError>, encode: impl Fn(&T) -> Vec<u8>) {
    match decode(data) {
        Ok(message) => {
            let bytes = encode(&message);
            match decode(&bytes) {
                // Bytes are compared, because some floats are not equal to themselves.
                Ok(message) => assert_eq!(encode(&message), bytes),
                // The fields that it left out count, too.
                Err(error) => assert_eq!(error.problem, Problem::TooMany),
            }
            for len in 0..bytes.len().min(64) {
                assert!(bytes.get(..len).is_none_or(|cut| decode(cut).is_err()));
            }
        }
        Err(error) => assert!(error.offset <= data.len()),
    }
}

/// A frontend with any options among peers that do anything at any time: it says its last word once, keeps a bounded number of
/// connections, never asks to be woken in the past, and tells peers nothing but what the original and its notices say.
///
/// The first bytes are the options, the number of participants and the first index; then come steps, whose lower three bits
/// say what is done: connect, greet as a participant, say a word of the handshake, say bytes, hang up, read, wait, cancel.
pub fn start_frontend(data: &[u8]) {
    let mut script = Script(data);
    let options = script.byte();
    let count = u16::from(script.byte() % 4);
    let first = if options & 4 == 0 { 0 } else { u16::MAX - u16::from(script.byte() % 4) };
    let mut init = Init::default();
    init.addresses.inputs.push("tcp://127.0.0.1:21000".into());
    init.addresses.outputs.push("tcp://127.0.0.1:21001".into());
    let mut config = FrontendConfig::new(count, Duration::from_secs(5), init);
    (config.first_index, config.restarts, config.notices) = (first, options & 1 != 0, options & 2 != 0);
    let is_possible = count > 0 && first.checked_add(count - 1).is_some();
    let Ok(frontend) = Frontend::new(Instant::ZERO, config.clone()) else { return assert!(!is_possible) };
    assert!(is_possible);

    let mut scene = Scene { frontend, config, now: Instant::ZERO, peers: BTreeMap::new(), is_over: false };
    while let Some(step) = script.next() {
        scene.step(step, &mut script);
        scene.look();
    }
}

struct Scene {
    frontend: Frontend,
    config: FrontendConfig,
    now: Instant,
    peers: BTreeMap<ConnId, Peer>,
    is_over: bool,
}

struct Peer {
    socket: Socket,
    /// Reads what the frontend says.
    link: Link,
}

impl Scene {
    fn step(&mut self, step: u8, script: &mut Script<'_>) {
        let argument = step >> 3;
        let conn = {
            let at = usize::from(argument) % self.peers.len().max(1);
            // The newest first.
            self.peers.keys().rev().nth(at).copied()
        };
        let frontend = &mut self.frontend;
        match (step % 8, conn) {
            (0, _) => {
                let listener = usize::from(argument % 3);
                let socket = *Socket::ALL.get(listener).unwrap();
                for _ in 0..=argument / 3 {
                    if let Some(conn) = frontend.handle_accepted(self.now, listener) {
                        let ours =
                            if socket == Socket::Output { SocketType::Push } else { SocketType::Dealer };
                        self.peers.insert(conn, Peer { socket, link: Link::new(ours, b"") });
                    }
                }
            }
            (1, Some(conn)) => {
                let index = self.config.first_index.wrapping_add(u16::from(script.byte() % 8));
                let kind = match self.peers.get(&conn) {
                    Some(Peer { socket: Socket::Output, .. }) => "PUSH",
                    _ => "DEALER",
                };
                frontend.handle_bytes(self.now, conn, &opening(kind, Some(&index.to_le_bytes())));
            }
            (2, Some(conn)) => {
                let number = script.byte();
                let word = word(number % 8, u16::from(number >> 3), self.config.count);
                frontend.handle_bytes(self.now, conn, &word);
            }
            (3, Some(conn)) => {
                let len = script.byte();
                frontend.handle_bytes(self.now, conn, script.take(len));
            }
            (4, Some(conn)) => {
                frontend.handle_eof(self.now, conn);
                self.peers.remove(&conn);
                assert_eq!(frontend.poll_transmit(conn), None);
            }
            (5, Some(conn)) => {
                let most = usize::from(script.byte());
                if let Some(bytes) = frontend.poll_transmit(conn) {
                    let bytes: Vec<u8> = bytes.iter().copied().take(most).collect();
                    frontend.transmitted(conn, bytes.len());
                    self.hear(conn, &bytes);
                }
            }
            (6, _) => {
                self.now = self.now + Duration::from_millis(u64::from(argument).pow(2));
                frontend.handle_timeout(self.now);
            }
            (7, _) if argument == 31 => frontend.cancel(self.now, "why"),
            _ => {}
        }
    }

    /// Checks what a peer is told.
    fn hear(&mut self, conn: ConnId, bytes: &[u8]) {
        let Some(peer) = self.peers.get_mut(&conn) else { return };
        let (told, error) = receive(&mut peer.link, bytes.chunks(usize::MAX));
        assert_eq!(error, None, "a peer does not understand the frontend");
        for Message { payload, frames } in told {
            assert_eq!((peer.socket, frames), (Socket::Handshake, 1));
            match Init::decode(&payload) {
                Ok(init) => {
                    assert_eq!(init.addresses, self.config.init.addresses);
                    assert_eq!(init.parallel_config.get("cuframes").is_some(), self.config.notices);
                }
                Err(_) => assert!(self.config.notices && self.frontend.is_over()),
            }
        }
    }

    /// What holds after every step.
    fn look(&mut self) {
        while let Some(action) = self.frontend.poll_action() {
            match action {
                Action::Close(conn) => {
                    assert_eq!(self.frontend.poll_transmit(conn), None);
                    self.peers.remove(&conn);
                }
                Action::Transmit(_) => {}
                other => panic!("a frontend wants {other:?}"),
            }
        }
        assert!(self.peers.len() <= 3 * (64 + 2 * usize::from(self.config.count)));
        while let Some(event) = self.frontend.poll_event() {
            assert!(!self.is_over, "{event:?} comes after the end");
            match event {
                FrontendEvent::Started(who) => {
                    self.is_over = true;
                    let expected =
                        iter::successors(Some(self.config.first_index), |index| index.checked_add(1));
                    assert!(who.iter().map(|who| who.index).eq(expected.take(self.config.count.into())));
                    for (rank, who) in who.iter().enumerate() {
                        assert_eq!(who.registration.data_parallel_size, i64::from(self.config.count));
                        assert_eq!(usize::try_from(who.registration.data_parallel_rank), Ok(rank));
                    }
                }
                FrontendEvent::Failed(fault) => {
                    self.is_over = true;
                    assert!(!fault.to_string().is_empty());
                }
                _ => {}
            }
        }
        assert_eq!((self.is_over, self.frontend.stage().is_none()), (self.frontend.is_over(), self.is_over));
        self.frontend.handle_timeout(self.now);
        assert!(self.frontend.poll_timeout().is_none_or(|at| at > self.now));
        assert!(self.is_over || self.frontend.poll_timeout().is_some());
    }
}

/// One of the things that participants say, right or wrong.
fn word(number: u8, rank: u16, count: u16) -> Vec<u8> {
    let notice = |word: &str| Status { status: Some(word.into()), ..Status::default() }.encode();
    frame(match number {
        0 => Status::new(Status::HELLO).encode(),
        1 => Status::new(Status::READY).encode(),
        2 => Registration::new(rank, count).encode(),
        3 => notice("KNOWS"),
        4 => notice("CANCEL"),
        5 => Registration::default().encode(),
        6 => vec![0x80],
        _ => return b"\x04\x08\x04PING\x00\x00!".to_vec(),
    })
}

/// Everything that a link finds in pieces of a stream, and why it can't go on.
fn receive<'a>(link: &mut Link, pieces: impl Iterator<Item = &'a [u8]>) -> (Vec<Message>, Option<LinkError>) {
    let mut messages = Vec::new();
    for mut piece in pieces {
        while !piece.is_empty() {
            match link.receive(&mut piece) {
                Ok(message) => messages.extend(message),
                Err(error) => return (messages, Some(error)),
            }
        }
    }
    (messages, None)
}

/// A message of one frame, as it is sent.
pub(super) fn frame(payload: Vec<u8>) -> Vec<u8> {
    let len = u64::try_from(payload.len()).unwrap();
    match u8::try_from(len) {
        Ok(len) => [vec![0, len], payload].concat(),
        Err(_) => [vec![2], len.to_be_bytes().to_vec(), payload].concat(),
    }
}

/// Greeting and READY of a socket.
pub(super) fn opening(kind: &str, identity: Option<&[u8]>) -> Vec<u8> {
    let mut body = b"\x05READY".to_vec();
    let identity = identity.map(|identity| ("Identity", identity));
    for (name, value) in [("Socket-Type", kind.as_bytes())].into_iter().chain(identity) {
        body.push(u8::try_from(name.len()).unwrap());
        body.extend(name.as_bytes());
        body.extend(u32::try_from(value.len()).unwrap().to_be_bytes());
        body.extend(value);
    }
    let greeting = [&[0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0x7f, 3, 1], &b"NULL"[..], &[0; 48]].concat();
    [greeting, vec![4, u8::try_from(body.len()).unwrap()], body].concat()
}
