//! The work queue: frames of arbitrary bytes, and a server among workers that do anything.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use cuframes_core::Instant;
use cuframes_core::streams::{Action, ConnId, Machine as _};
use cuframes_dispatch::wire::{Block, BlockId, Decoder, FrameError, MAX_PAYLOAD, Message, Status, Version};
use cuframes_dispatch::{BlockEvent, Counts, Server, ServerEvent, TaskConfig};

use super::Script;

/// A stream is cut into the same messages and meets the same end however it arrives, and what was understood reads the same
/// when it is written again. The first byte says the version, the second how long the pieces are.
pub fn blocks_frame(data: &[u8]) {
    let mut script = Script(data);
    let version = version(script.byte());
    let piece = usize::from(script.byte().max(1));
    let stream = script.0;

    let (mut whole, mut cut) = (Decoder::new(version), Decoder::new(version));
    let (once, error) = receive(&mut whole, stream.chunks(usize::MAX));
    let (pieces, same) = receive(&mut cut, stream.chunks(piece));
    assert_eq!(error, same);
    if error.is_none() {
        assert_eq!((whole.may_end(), whole.buffered()), (cut.may_end(), cut.buffered()));
        assert!(whole.buffered() <= stream.len());
    }
    if let Some(FrameError::Payload(error)) = error {
        assert!(error.offset <= MAX_PAYLOAD);
    }

    // As bytes, because some numbers are not equal to themselves.
    let written = encode(version, &once);
    assert_eq!(written, encode(version, &pieces));
    let (again, error) = receive(&mut Decoder::new(version), written.chunks(piece));
    assert_eq!((encode(version, &again), again.len(), error), (written, once.len(), None));
}

/// A server with any tasks among workers that do anything at any time, while blocks are added and given up. Each block that
/// was added ends once, and is with one worker at most; what is told, what is counted and what workers hear agree; it never
/// asks to be woken in the past.
///
/// The first bytes are the version, and how often and how long each of three tasks is tried; then come steps, whose lower three
/// bits say what is done: connect, say a word, say bytes, hang up, read, wait, change the tasks, shut down.
pub fn blocks_server(data: &[u8]) {
    let mut script = Script(data);
    let version = version(script.byte());
    let mut server = Server::new(version);
    for task in TASKS {
        let options = script.byte();
        let mut config = TaskConfig::new(task);
        config.max_retries = u32::from(options % 4);
        config.timeout = (options & 4 == 0).then(|| Duration::from_millis(1 + u64::from(options >> 3) * 20));
        server.schedule(Instant::ZERO, |scheduler| scheduler.add_task(config)).unwrap();
    }
    let mut scene = Scene {
        version,
        server,
        now: Instant::ZERO,
        peers: BTreeMap::new(),
        added: BTreeMap::new(),
        out: BTreeMap::new(),
        is_over: false,
    };
    while let Some(step) = script.next() {
        scene.step(step, &mut script);
        scene.look();
    }
    for task in TASKS {
        scene.server.schedule(scene.now, |scheduler| scheduler.abandon_task(task)).unwrap();
        scene.look();
    }
    assert!(scene.server.scheduler().is_finished() && scene.out.is_empty());
    assert!(scene.added.values().all(|(adds, ends)| adds == ends), "{:?}", scene.added);
}

struct Scene {
    version: Version,
    server: Server,
    now: Instant,
    peers: BTreeMap<ConnId, Peer>,
    /// How often a block of this name was added, and how often one ended.
    added: BTreeMap<BlockId, (u64, u64)>,
    /// Who has which block.
    out: BTreeMap<BlockId, ConnId>,
    is_over: bool,
}

struct Peer {
    /// Reads what the server says.
    decoder: Decoder,
    /// Blocks that were sent to it, which it has not read.
    sent: VecDeque<BlockId>,
}

impl Scene {
    fn step(&mut self, step: u8, script: &mut Script<'_>) {
        let argument = step >> 3;
        let conn = {
            let at = usize::from(argument) % self.peers.len().max(1);
            // The newest first.
            self.peers.keys().rev().nth(at).copied()
        };
        let server = &mut self.server;
        match (step % 8, conn) {
            (0, _) => {
                let conn = server.handle_accepted(self.now, 0);
                assert_eq!(conn.is_none(), self.is_over);
                let peer = || Peer { decoder: Decoder::new(self.version), sent: VecDeque::new() };
                self.peers.extend(conn.map(|conn| (conn, peer())));
            }
            (1, Some(conn)) => {
                let (kind, number) = (script.byte(), script.byte());
                let mut word = Vec::new();
                message(kind, number).encode(self.version, &mut word);
                // Often enough to be greedy.
                let times = if kind >= 224 { 100 } else { 1 };
                server.handle_bytes(self.now, conn, &word.repeat(times));
            }
            (2, Some(conn)) => {
                let len = script.byte();
                server.handle_bytes(self.now, conn, script.take(len));
            }
            (3, Some(conn)) => {
                server.handle_eof(self.now, conn);
                assert_eq!(server.poll_transmit(conn), None);
            }
            (4, Some(conn)) => {
                let most = usize::from(script.byte());
                if let Some(bytes) = server.poll_transmit(conn) {
                    let bytes: Vec<u8> = bytes.iter().copied().take(most).collect();
                    server.transmitted(conn, bytes.len());
                    self.look();
                    self.hear(conn, &bytes);
                }
            }
            (5, _) => {
                self.now = self.now + Duration::from_millis(u64::from(argument).pow(2));
                server.handle_timeout(self.now);
            }
            (6, _) => self.change(argument, script),
            (7, _) if argument == 31 => {
                server.shut_down(self.now);
                self.is_over = true;
            }
            _ => {}
        }
    }

    fn change(&mut self, what: u8, script: &mut Script<'_>) {
        let id = block_id(script.byte());
        let others: Vec<BlockId> = (0..what % 4).map(|_| block_id(script.byte())).collect();
        let added = self.server.schedule(self.now, |scheduler| match what / 4 {
            0..6 => {
                let block = Block { block_id: id.clone(), status: Status::Success, ..Block::default() };
                scheduler.add_block(block, &others).is_ok()
            }
            6 => {
                scheduler.abandon_block(&id);
                false
            }
            _ => {
                let end = if others.is_empty() {
                    scheduler.abandon_task(&id.task_id)
                } else {
                    scheduler.close_task(&id.task_id)
                };
                end.unwrap();
                false
            }
        });
        if added {
            self.added.entry(id).or_default().0 += 1;
        }
    }

    /// Checks what a worker is told.
    fn hear(&mut self, conn: ConnId, bytes: &[u8]) {
        let Some(peer) = self.peers.get_mut(&conn) else { return };
        let (told, error) = receive(&mut peer.decoder, bytes.chunks(usize::MAX));
        assert_eq!(error, None, "a worker does not understand the server");
        for message in told {
            match message {
                Message::SendBlock { block, .. } => {
                    assert!(matches!(block.status, Status::Created | Status::Failed));
                    assert_eq!(Some(block.block_id), peer.sent.pop_front());
                }
                Message::RequestShutdown => {}
                other => panic!("a server says {other:?}"),
            }
        }
    }

    /// What holds after every step.
    fn look(&mut self) {
        while let Some(event) = self.server.poll_event() {
            match event {
                ServerEvent::Sent { conn, block_id, .. } => {
                    self.peers.get_mut(&conn).unwrap().sent.push_back(block_id.clone());
                    assert_eq!(self.out.insert(block_id, conn), None, "two have the same block");
                }
                ServerEvent::Block(BlockEvent::Retried { block_id, .. }) => {
                    assert!(self.out.remove(&block_id).is_some());
                }
                ServerEvent::Block(BlockEvent::Ended { block_id, .. }) => {
                    self.out.remove(&block_id);
                    let (adds, ends) = self.added.get_mut(&block_id).unwrap();
                    *ends += 1;
                    assert!(ends <= adds, "{block_id:?} ended twice");
                }
                ServerEvent::Left { fault, .. } => {
                    assert!(fault.is_none_or(|fault| !fault.to_string().is_empty()));
                }
                _ => {}
            }
        }
        while let Some(action) = self.server.poll_action() {
            match action {
                Action::Close(conn) => {
                    assert_eq!(self.server.poll_transmit(conn), None);
                    self.peers.remove(&conn);
                }
                Action::Transmit(_) => {}
                other => panic!("a server wants {other:?}"),
            }
        }
        let mut processing = 0;
        for task in TASKS {
            let counts = self.server.scheduler().counts(task).unwrap();
            let Counts { total, succeeded, failed, orphaned, .. } = counts;
            assert_eq!(total, counts.unfinished() + succeeded + failed + orphaned);
            processing += counts.processing;
        }
        assert_eq!(usize::try_from(processing), Ok(self.out.len()));
        assert!(!self.is_over || self.server.workers() == 0);
        self.server.handle_timeout(self.now);
        assert!(self.server.poll_timeout().is_none_or(|at| at > self.now));
    }
}

const fn version(byte: u8) -> Version {
    if byte & 1 == 0 { Version::W2 } else { Version::W0 }
}

/// One of nine blocks of three tasks.
fn block_id(number: u8) -> BlockId {
    let task = TASKS.get(usize::from(number % 3)).unwrap();
    BlockId::new(*task, u64::from(number / 3 % 3))
}

/// One of the things that workers say, right or wrong.
pub(super) fn message(kind: u8, number: u8) -> Message {
    let block_id = block_id(number);
    let block = |status| Block { block_id: block_id.clone(), status, ..Block::default() };
    match kind % 16 {
        0..6 => Message::AcquireBlock { task_id: block_id.task_id, worker_id: (number >= 128).then_some(7) },
        6..9 => Message::ReleaseBlock { block: block(Status::Success) },
        9 | 10 => Message::BlockFailed { block: block(Status::Failed), error: "why".into() },
        11 => Message::ReleaseBlock { block: block(Status::Failed) },
        12 => Message::ReleaseBlock { block: block(Status::Processing) },
        13 => Message::SendBlock { block: block(Status::Created), timeout_secs: Some(0.5) },
        14 => Message::AcquireBlock { task_id: "x".into(), worker_id: None },
        _ if number & 1 == 0 => Message::Disconnect,
        _ => Message::RequestShutdown,
    }
}

/// Everything that a decoder finds in pieces of a stream, and why it can't go on.
fn receive<'a>(
    decoder: &mut Decoder,
    pieces: impl Iterator<Item = &'a [u8]>,
) -> (Vec<Message>, Option<FrameError>) {
    let mut messages = Vec::new();
    for mut piece in pieces {
        loop {
            match decoder.next(&mut piece) {
                Ok(Some(message)) => messages.push(message),
                Ok(None) => break,
                Err(error) => return (messages, Some(error)),
            }
        }
        assert!(piece.is_empty());
    }
    (messages, None)
}

pub(super) fn encode(version: Version, messages: &[Message]) -> Vec<u8> {
    let mut bytes = Vec::new();
    messages.iter().for_each(|message| message.encode(version, &mut bytes));
    bytes
}

const TASKS: [&str; 3] = ["a", "b", "c"];
