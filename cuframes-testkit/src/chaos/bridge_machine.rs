//! The bridge: a worker of the pipeline of layers, among peers and an owner that do anything.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use cuframes_bridge::layers::{Outcome, Snapshot, Task, TaskId, Wants, Worker, WorkerConfig, WorkerEvent};
use cuframes_bridge::wire::{
    Begin, Chunk, Decoded, Decoder, FrameType, Header, Hop, Limits, Message, ResultKind, Route, SnapshotId,
    Work, WorkFlags, WorkResult, extend_hash, token_hash,
};
use cuframes_core::Instant;
use cuframes_core::streams::{Action, ConnId, Machine as _};

use super::Script;

/// A worker with a coordinator, requesters and next workers that do anything at any time, and an owner that answers when and
/// how it likes. It never has two tasks of one session, nor more than it bears; what it says can be understood and is for it to
/// say; a right answer is taken and a wrong one is not; it never asks to be woken in the past; and when it is shut down, it ends.
///
/// The first byte says how many requests are read ahead; then come steps, whose lower three bits say what is done: somebody
/// connects, says a word, says bytes, hangs up, reads, time passes, the owner answers, an attempt to connect ends.
pub fn bridge_machine(data: &[u8]) {
    let mut script = Script(data);
    let mut config = WorkerConfig::new("here", 1, "m", (0, 20), 43);
    config.prefetch = usize::from(script.byte() % 4);
    (config.ctx_size, config.vocabulary, config.values) = (50, 100, 1);
    (config.max_connections, config.max_sessions, config.max_tasks, config.max_next) =
        (4, MAX_SESSIONS, MAX_TASKS, 2);
    (config.snapshot_bytes, config.chunk_bytes, config.backlog_bytes) = (64, 8, 4096);
    config.receive_timeout = Some(Duration::from_millis(500));
    let mut scene = Scene {
        worker: Worker::new(Instant::ZERO, config),
        now: Instant::ZERO,
        attempts: Vec::new(),
        peers: BTreeMap::new(),
        tasks: Vec::new(),
        given: BTreeSet::new(),
        is_over: false,
    };
    scene.look();
    while let Some(step) = script.next() {
        scene.step(step, &mut script);
        scene.look();
    }
    scene.end();
}

struct Scene {
    worker: Worker,
    now: Instant,
    /// Connections that it wants, and whether they are to the coordinator.
    attempts: Vec<(ConnId, bool)>,
    peers: BTreeMap<ConnId, Peer>,
    /// What the owner has.
    tasks: Vec<Has>,
    /// All that it ever had.
    given: BTreeSet<TaskId>,
    is_over: bool,
}

struct Peer {
    role: Role,
    /// Reads what the worker says.
    decoder: Decoder,
    /// What a next worker was asked for: numbers and hashes.
    asked: VecDeque<(u64, u64)>,
}

#[derive(Clone, Copy, PartialEq)]
enum Role {
    Coordinator { is_known: bool },
    Requester,
    Next,
}

/// A task.
enum Has {
    Work(Box<Task>),
    Save(TaskId, SnapshotId),
    Load(TaskId, SnapshotId),
}

impl Has {
    fn id(&self) -> TaskId {
        match self {
            Self::Work(task) => task.id,
            Self::Save(id, _) | Self::Load(id, _) => *id,
        }
    }

    fn session(&self) -> u64 {
        match self {
            Self::Work(task) => task.session,
            Self::Save(_, id) | Self::Load(_, id) => id.session,
        }
    }
}

impl Scene {
    fn step(&mut self, step: u8, script: &mut Script<'_>) {
        let argument = step >> 3;
        let conn = {
            let at = usize::from(argument) % self.peers.len().max(1);
            // The newest first.
            self.peers.keys().rev().nth(at).copied()
        };
        match (step % 8, conn) {
            (0, _) if argument == 31 => self.shut_down(),
            (0, _) => {
                if let Some(conn) = self.worker.handle_accepted(self.now, 0) {
                    assert!(!self.is_over);
                    self.peers.insert(conn, Peer::new(Role::Requester));
                }
            }
            (1, Some(conn)) => {
                let (kind, number) = (script.byte(), script.byte());
                let answer = self.peers.get_mut(&conn).and_then(|peer| peer.asked.pop_front());
                let word = word(kind, number, answer);
                let times = if kind >= 224 { 100 } else { 1 };
                self.worker.handle_bytes(self.now, conn, &word.repeat(times));
            }
            (2, Some(conn)) => {
                let len = script.byte();
                self.worker.handle_bytes(self.now, conn, script.take(len));
            }
            (3, Some(conn)) => {
                self.worker.handle_eof(self.now, conn);
                self.peers.remove(&conn);
                assert_eq!(self.worker.poll_transmit(conn), None);
            }
            (4, Some(conn)) => {
                let most = usize::from(script.byte());
                self.read(conn, most);
            }
            (5, _) => {
                self.now = self.now + Duration::from_millis(u64::from(argument).pow(2));
                self.worker.handle_timeout(self.now);
            }
            (6, _) => {
                let how = script.byte();
                if !self.tasks.is_empty() {
                    self.answer(usize::from(argument) % self.tasks.len(), how);
                }
            }
            (7, _) if !self.attempts.is_empty() => {
                let (conn, is_control) =
                    self.attempts.remove(usize::from(argument / 2) % self.attempts.len());
                if argument.is_multiple_of(2) {
                    let role = if is_control { Role::Coordinator { is_known: false } } else { Role::Next };
                    self.peers.insert(conn, Peer::new(role));
                    self.worker.handle_connected(self.now, conn);
                } else {
                    self.worker.handle_eof(self.now, conn);
                }
            }
            _ => {}
        }
    }

    fn read(&mut self, conn: ConnId, most: usize) {
        if let Some(bytes) = self.worker.poll_transmit(conn) {
            let bytes: Vec<u8> = bytes.iter().copied().take(most).collect();
            self.worker.transmitted(conn, bytes.len());
            self.hear(conn, &bytes);
        }
    }

    /// Checks what the worker says.
    fn hear(&mut self, conn: ConnId, mut bytes: &[u8]) {
        let Some(peer) = self.peers.get_mut(&conn) else { return };
        while !bytes.is_empty() {
            if peer.decoder.data_left() > 0 {
                peer.decoder.take_data(&mut bytes);
                continue;
            }
            let message = match peer.decoder.next(&mut bytes) {
                Ok(Some(Decoded::Message(message))) => message,
                Ok(None) => continue,
                other => panic!("a worker says {other:?}"),
            };
            peer.role = match (peer.role, message) {
                (Role::Coordinator { is_known: false }, Message::Hello(_)) => {
                    Role::Coordinator { is_known: true }
                }
                (Role::Next, Message::Work(work)) => {
                    work.check().unwrap();
                    assert!(work.layer_start == 21 && work.route.index == 1);
                    peer.asked.push_back((work.request, work.result_hash));
                    Role::Next
                }
                (role @ (Role::Coordinator { is_known: true } | Role::Requester), message) => {
                    match message {
                        Message::Result(result) => result.check().unwrap(),
                        Message::Chunk(chunk) => assert!((1..=8).contains(&chunk.bytes)),
                        Message::Begin(_) | Message::Done(_) | Message::Error(_) => {}
                        other => panic!("a worker says {other:?}"),
                    }
                    role
                }
                (_, other) => panic!("a worker says {other:?} to this one"),
            };
        }
    }

    /// The owner answers: first wrong, then somehow.
    fn answer(&mut self, at: usize, how: u8) {
        let (now, worker) = (self.now, &mut self.worker);
        let ok = !how.is_multiple_of(4);
        match self.tasks.remove(at) {
            Has::Work(task) => {
                assert!(worker.loaded(now, task.id, Ok(())).is_err());
                let (right, wrong) = outcomes(&task);
                worker.finish(now, task.id, wrong).unwrap_err();
                let outcome = if ok { right } else { Outcome::Failed("no".into()) };
                worker.finish(now, task.id, outcome).unwrap();
                worker.finish(now, task.id, Outcome::Ack).unwrap_err();
            }
            Has::Save(task, id) => {
                let wrong = Snapshot { tokens: vec![9; 3], payload: Vec::new() };
                worker.saved(now, task, Ok(wrong)).unwrap_err();
                // The tokens that it can have.
                let tokens = (0..=50).map(tokens).find(|tokens| token_hash(tokens) == id.token_hash);
                let snapshot = tokens.filter(|tokens| u32::try_from(tokens.len()) == Ok(id.token_count));
                let saved =
                    snapshot.filter(|_| ok).map(|tokens| Snapshot { tokens, payload: vec![1; how.into()] });
                worker.saved(now, task, saved.ok_or_else(|| "no".into())).unwrap();
            }
            Has::Load(task, _) => {
                worker.loaded(now, task, if ok { Ok(()) } else { Err("no".into()) }).unwrap();
            }
        }
    }

    fn shut_down(&mut self) {
        self.worker.shut_down(self.now);
        self.is_over = true;
    }

    fn take(&mut self, has: Has) {
        assert!(self.given.insert(has.id()), "a task twice");
        assert!(self.tasks.iter().all(|other| other.session() != has.session()), "two tasks of one session");
        self.tasks.push(has);
        assert!(self.tasks.len() <= MAX_TASKS);
    }

    /// What holds after every step.
    fn look(&mut self) {
        self.worker.handle_timeout(self.now);
        assert!(self.worker.poll_timeout().is_none_or(|at| at > self.now));
        while let Some(event) = self.worker.poll_event() {
            match event {
                WorkerEvent::Work(task) => self.take(Has::Work(task)),
                WorkerEvent::Save { task, id } => self.take(Has::Save(task, id)),
                WorkerEvent::Load { task, id, tokens, payload } => {
                    assert_eq!(token_hash(&tokens), id.token_hash);
                    assert!(payload.len() <= 64);
                    self.take(Has::Load(task, id));
                }
                WorkerEvent::Abandoned { task } => {
                    assert!(self.tasks.iter().any(|has| has.id() == task), "nobody has {task:?}");
                }
                WorkerEvent::Closed { fault, .. } | WorkerEvent::Lost { fault } => {
                    assert!(!fault.to_string().is_empty());
                }
                _ => {}
            }
        }
        while let Some(action) = self.worker.poll_action() {
            match action {
                Action::Connect { conn, address, .. } => {
                    assert!(!self.is_over);
                    let is_control = address == "here";
                    assert!(is_control || address.starts_with("tcp://n:"));
                    self.attempts.push((conn, is_control));
                }
                Action::Close(conn) => {
                    assert_eq!(self.worker.poll_transmit(conn), None);
                    self.peers.remove(&conn);
                    self.attempts.retain(|(attempt, _)| *attempt != conn);
                }
                _ => {}
            }
        }
        // Those that are busy can't make room.
        assert!(self.worker.sessions() <= MAX_SESSIONS + MAX_TASKS);
        assert!(self.peers.values().filter(|peer| peer.role == Role::Requester).count() <= 4);
    }

    /// Everything ends.
    fn end(&mut self) {
        while !self.tasks.is_empty() {
            self.answer(0, 0);
            self.look();
        }
        self.shut_down();
        self.look();
        self.now = self.now + Duration::from_secs(5);
        self.worker.handle_timeout(self.now);
        self.look();
        assert!(self.worker.is_finished() && self.peers.is_empty() && self.attempts.is_empty());
        assert!(self.tasks.is_empty() && self.worker.sessions() == 0);
        assert_eq!(self.worker.poll_timeout(), None);
    }
}

impl Peer {
    fn new(role: Role) -> Self {
        Self { role, decoder: Decoder::new(Limits::default()), asked: VecDeque::new() }
    }
}

/// What is wanted of a task, and what is not.
fn outcomes(task: &Task) -> (Outcome, Outcome) {
    match task.wants {
        Wants::Ack => (Outcome::Ack, Outcome::Hidden(Vec::new())),
        Wants::Forward { bytes } => {
            let len = usize::try_from(bytes).unwrap();
            (Outcome::Hidden(vec![1; len]), Outcome::Hidden(vec![1; len + 1]))
        }
        Wants::Hidden => (Outcome::Hidden(vec![1; 2 * task.width.bytes()]), Outcome::Logits(vec![1; 4])),
        other => panic!("it has no {other:?}"),
    }
}

fn tokens(n: u32) -> Vec<u32> {
    (1..=n).collect()
}

/// One of the things that peers say, right or wrong; `answer` is what a next worker was asked for. Sessions are 0 to 3.
pub(super) fn word(kind: u8, number: u8, answer: Option<(u64, u64)>) -> Vec<u8> {
    let (session, n, request) = (u64::from(number % 4), u32::from(number / 4 % 4), u64::from(number));
    let id = SnapshotId {
        model_id: 1,
        session,
        request,
        token_hash: token_hash(&tokens(n)),
        token_count: n,
        layer_start: 0,
        layer_end: 20,
    };
    let begin = Begin { id, payload_bytes: u64::from(number / 16), tokens: tokens(n), ..Begin::default() };
    let message = match kind % 16 {
        kind @ 0..7 => {
            let mut work = work(session, request, n, number >= 128, kind >= 4);
            match kind {
                2 => work.flags = work.flags.union(WorkFlags::ACK_ONLY),
                3 => work.model_id = u32::from(number),
                6 => work.route.hops.truncate(usize::from(number % 3)),
                _ => {}
            }
            Message::Work(Box::new(work))
        }
        7 => Message::SaveRequest(id),
        8 => Message::LoadBegin(begin),
        9 => {
            let data = vec![7; usize::from(number / 16)];
            let chunk = Chunk { request, bytes: u32::try_from(data.len()).unwrap() };
            let mut bytes = Vec::new();
            Message::Chunk(chunk).encode(&mut bytes);
            return [bytes, data].concat();
        }
        10..13 => {
            let (request, result_hash) = answer.unwrap_or((request, 5));
            let result = match kind % 16 {
                10 => WorkResult { request, result_hash, kind: ResultKind::ACK, ..WorkResult::default() },
                11 => WorkResult::failed(request, "no"),
                _ => WorkResult { request: request + 1, result_hash, ..WorkResult::default() },
            };
            Message::Result(Box::new(result))
        }
        13 => Message::Error("no".into()),
        14 => Message::Begin(begin),
        _ => {
            let header = Header { kind: FrameType(u32::from(number % 16)), bytes: u32::from(number / 16) };
            return [&header.encode()[..], &vec![1; usize::from(number / 16)]].concat();
        }
    };
    let mut bytes = Vec::new();
    message.encode(&mut bytes);
    bytes
}

/// Two tokens on top of `n`, or from the start; and on to the next worker, or not.
fn work(session: u64, request: u64, n: u32, is_reset: bool, is_on: bool) -> Work {
    let prefix_hash = token_hash(&tokens(n));
    let own = vec![n + 1];
    let hop = |host: &str, port, layer_start, layer_end| Hop {
        host: host.into(),
        port,
        layer_start,
        layer_end,
        flags: 0,
    };
    let mut hops = vec![hop("h", 1, 0, 20)];
    if is_on {
        hops.push(hop("n", 1 + u32::from(session == 3), 21, 42));
    }
    Work {
        model_id: 1,
        session,
        request,
        prefix_hash,
        result_hash: extend_hash(prefix_hash, &own),
        pos0: n,
        layer_end: 20,
        flags: if is_reset { WorkFlags::RESET } else { WorkFlags::default() },
        activation_bits: 8,
        tokens: own,
        route: Route { index: 0, hops },
        ..Work::default()
    }
}

const MAX_SESSIONS: usize = 2;
const MAX_TASKS: usize = 3;
