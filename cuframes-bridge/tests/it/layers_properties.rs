//! Whatever order bytes, polls, and answers of the owners come in: the same is answered; and every request ends once.

use std::collections::BTreeMap;
use std::time::Duration;

use cuframes_bridge::layers::{
    CoordinatorEvent, Failure, Outcome, Reply, Request, Snapshot, Task, TaskId, Worker, WorkerEvent,
};
use cuframes_bridge::wire::{
    Begin, Chunk, EMPTY_HASH, FrameType, Message, SnapshotId, WorkFlags, extend_hash, token_hash,
};
use cuframes_core::Instant;
use cuframes_core::streams::{ConnId, Machine as _};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

use crate::any::cases;
use crate::bytes::whole;
use crate::layers_peers::{all, computed, coordinator_config, encoded, said, worker_config};
use crate::layers_world::{Net, Who};

/// What a peer says to a worker. Sessions are 0 to 2.
#[derive(Clone, Debug)]
enum Say {
    /// Tokens, on top of so many that the session has; whether from the start.
    Work(u64, u32, bool),
    /// The same, for another model.
    Wrong(u64),
    /// A session that has so many tokens.
    Save(u64, u32),
    Load(u64, u32, usize),
    BadLoad(u64),
    Short(usize),
    Unknown(usize),
    Noise(Vec<u8>),
}

fn say() -> impl Strategy<Value = Say> {
    prop_oneof![
        12 => (0..3_u64, 0..3_u32, any::<bool>()).prop_map(|(session, n, reset)| Say::Work(session, n, reset)),
        2 => (0..3_u64).prop_map(Say::Wrong),
        3 => (0..3_u64, 0..4_u32).prop_map(|(session, n)| Say::Save(session, n)),
        3 => (0..3_u64, 0..4_u32, 0..30_usize).prop_map(|(session, n, bytes)| Say::Load(session, n, bytes)),
        1 => (0..3_u64).prop_map(Say::BadLoad),
        1 => (0..80_usize).prop_map(Say::Short),
        1 => (0..30_usize).prop_map(Say::Unknown),
        1 => vec(any::<u8>(), 1..20).prop_map(Say::Noise),
    ]
}

/// As many tokens.
fn tokens(n: u32) -> Vec<u32> {
    (1..=n).collect()
}

fn bytes(request: u64, say: &Say) -> Vec<u8> {
    let id = |session, n| SnapshotId {
        model_id: 1,
        session,
        request,
        token_hash: token_hash(&tokens(n)),
        token_count: n,
        layer_start: 0,
        layer_end: 42,
    };
    match say {
        Say::Work(session, n, reset) => {
            let mut work = all(*session, request, &tokens(*n), &[n + 1]);
            if *reset {
                work = all(*session, request, &[], &[1]);
                work.flags = work.flags.union(WorkFlags::RESET);
            }
            encoded(&said(work))
        }
        Say::Wrong(session) => {
            let mut work = all(*session, request, &[], &[1]);
            work.model_id = 2;
            encoded(&said(work))
        }
        Say::Save(session, n) => encoded(&Message::SaveRequest(id(*session, *n))),
        Say::Load(session, n, len) => {
            let payload_bytes = u64::try_from(*len).unwrap();
            let begin = Begin { id: id(*session, *n), payload_bytes, tokens: tokens(*n), ..Begin::default() };
            let mut bytes = encoded(&Message::LoadBegin(begin));
            for piece in vec![7; *len].chunks(11) {
                let chunk = Chunk { request, bytes: u32::try_from(piece.len()).unwrap() };
                bytes.extend(encoded(&Message::Chunk(chunk)));
                bytes.extend(piece);
            }
            bytes
        }
        Say::BadLoad(session) => {
            let begin =
                Begin { id: id(*session, 1), payload_bytes: 5, tokens: tokens(1), ..Begin::default() };
            let chunk = Message::Chunk(Chunk { request: request + 1, bytes: 0 });
            [encoded(&Message::LoadBegin(begin)), encoded(&chunk)].concat()
        }
        Say::Short(len) => whole(FrameType::WORK, &vec![1; *len]),
        Say::Unknown(len) => whole(FrameType(99), &vec![1; *len]),
        Say::Noise(noise) => noise.clone(),
    }
}

/// A worker, and one peer whose bytes come in pieces.
struct One {
    worker: Worker,
    conn: ConnId,
    /// Tasks that are not answered.
    has: Vec<WorkerEvent>,
    heard: Vec<u8>,
    /// What the owner was given, by session, and when it ended.
    given: BTreeMap<u64, Vec<String>>,
    end: Option<String>,
}

const NOW: Instant = Instant::from_nanos(5_000);

impl One {
    fn new(prefetch: usize) -> Self {
        let mut config = worker_config((0, 42), 1);
        (config.prefetch, config.chunk_bytes, config.backlog_bytes) = (prefetch, 9, 1 << 30);
        let mut worker = Worker::new(NOW, config);
        let conn = worker.handle_accepted(NOW, 0).unwrap();
        let has = Vec::new();
        Self { worker, conn, has, heard: Vec::new(), given: BTreeMap::new(), end: None }
    }

    fn poll(&mut self, width: usize) {
        while self.worker.poll_action().is_some() {}
        while let Some(bytes) = self.worker.poll_transmit(self.conn) {
            let n = bytes.len().min(width);
            self.heard.extend(&bytes[..n]);
            self.worker.transmitted(self.conn, n);
        }
        while let Some(event) = self.worker.poll_event() {
            let session = match &event {
                WorkerEvent::Work(task) => task.session,
                WorkerEvent::Save { id, .. } | WorkerEvent::Load { id, .. } => id.session,
                WorkerEvent::Closed { fault, .. } => {
                    self.end = Some(format!("{fault:?}"));
                    continue;
                }
                _ => continue,
            };
            self.given.entry(session).or_default().push(format!("{event:?}"));
            self.has.push(event);
        }
    }

    /// Answers one of the tasks, the way it is always answered.
    fn answer(&mut self, at: usize) {
        match self.has.remove(at) {
            WorkerEvent::Work(task) => {
                let fails = (task.request % 7 == 3).then(|| Outcome::Failed("it failed".into()));
                let outcome = fails.unwrap_or_else(|| computed(&task));
                self.worker.finish(NOW, task.id, outcome).unwrap();
            }
            WorkerEvent::Save { task, id } => {
                let snapshot = Snapshot { tokens: tokens(id.token_count), payload: vec![3; 20] };
                let saved = if id.request % 5 == 4 { Err("it failed".into()) } else { Ok(snapshot) };
                self.worker.saved(NOW, task, saved).unwrap();
            }
            WorkerEvent::Load { task, id, .. } => {
                let loaded = if id.request % 5 == 4 { Err("it failed".into()) } else { Ok(()) };
                self.worker.loaded(NOW, task, loaded).unwrap();
            }
            other => panic!("{other:?}"),
        }
    }

    /// Until nothing is left.
    fn finish(&mut self) {
        loop {
            self.poll(usize::MAX);
            if self.worker.poll_timeout().is_some_and(|at| at <= NOW) {
                self.worker.handle_timeout(NOW);
            } else if self.has.is_empty() {
                return;
            } else {
                self.answer(0);
            }
        }
    }
}

proptest! {
    #![proptest_config(cases(512))]

    #[test]
    fn a_worker_answers_the_same_however_it_is_read_polled_and_answered(
        said in vec(say(), 1..20),
        pieces in vec(1..200_usize, 1..20),
        steps in vec((0..4_u8, any::<Index>()), 0..200),
        prefetch in 1..4_usize,
        width in 1..50_usize,
    ) {
        let script: Vec<u8> = (1..).zip(&said).flat_map(|(request, say)| bytes(request, say)).collect();
        // All at once, and each task is done at once.
        let mut whole = One::new(prefetch);
        whole.worker.handle_bytes(NOW, whole.conn, &script);
        whole.finish();

        let mut cut = One::new(prefetch);
        let mut left = &script[..];
        let mut pieces = pieces.iter().cycle();
        let mut steps = steps.iter().cycle();
        let mut idle = 0;
        while !left.is_empty() {
            let step = steps.next();
            idle += 1;
            match step.map_or(0, |(step, _)| *step) {
                // A driver that heeds what the machine wants; now and then one that does not.
                0 if cut.worker.is_hungry(cut.conn) || idle > 20 => {
                    let (piece, rest) = left.split_at((*pieces.next().unwrap()).min(left.len()));
                    left = rest;
                    cut.worker.handle_bytes(NOW, cut.conn, piece);
                    idle = 0;
                }
                2 => cut.worker.handle_timeout(NOW),
                3 if !cut.has.is_empty() => cut.answer(step.unwrap().1.index(cut.has.len())),
                _ => cut.poll(width),
            }
            if idle > 100 {
                break;
            }
        }
        cut.worker.handle_bytes(NOW, cut.conn, left);
        cut.finish();
        // Where it ends for what it said, less may have been answered before.
        if whole.end.is_none() {
            prop_assert_eq!(&whole.heard, &cut.heard);
            prop_assert_eq!(&whole.given, &cut.given);
        }
        prop_assert_eq!(whole.end, cut.end);
    }
}

/// What happens to a coordinator and its workers.
#[derive(Clone, Debug)]
enum Turn {
    Submit(u64, u8),
    Act,
    Connect,
    Carry(Index, bool),
    /// A worker does one of its tasks.
    Compute(Index),
    Fail(Index),
    Kill(Index),
    /// One comes for all layers, the first or the last ones.
    Join(u8),
    Wait(u64),
}

fn turn() -> impl Strategy<Value = Turn> {
    prop_oneof![
        4 => (0..3_u64, any::<u8>()).prop_map(|(session, kind)| Turn::Submit(session, kind)),
        6 => Just(Turn::Act),
        3 => Just(Turn::Connect),
        20 => (any::<Index>(), any::<bool>()).prop_map(|(wire, way)| Turn::Carry(wire, way)),
        8 => any::<Index>().prop_map(Turn::Compute),
        1 => any::<Index>().prop_map(Turn::Fail),
        1 => any::<Index>().prop_map(Turn::Kill),
        1 => any::<u8>().prop_map(Turn::Join),
        1 => (0..3000_u64).prop_map(Turn::Wait),
    ]
}

/// Hash and payload of an answer, or why there is none.
type End = Result<(u64, Vec<u8>), Failure>;

/// A net, and what its owners know.
struct Scene {
    net: Net,
    port: u16,
    /// Tasks that workers have.
    tasks: Vec<(usize, Task)>,
    /// Hash and length of each session, as the coordinator's owner believes.
    sessions: BTreeMap<u64, (u64, u32)>,
    /// What was submitted, and its answers.
    submitted: Vec<u64>,
    answers: Vec<(u64, End)>,
}

impl Scene {
    fn new(width: usize) -> Self {
        let mut net = Net::new();
        net.width = width;
        let mut config = coordinator_config();
        config.window = Some(20);
        net.coordinator(config);
        let mut scene = Self {
            net,
            port: 0,
            tasks: Vec::new(),
            sessions: BTreeMap::new(),
            submitted: Vec::new(),
            answers: Vec::new(),
        };
        scene.join((0, 20));
        scene.join((21, 42));
        scene
    }

    fn join(&mut self, layers: (u32, u32)) {
        self.port += 1;
        self.net.worker(worker_config(layers, self.port));
    }

    fn submit(&mut self, session: u64, kind: u8) {
        let (hash, len) = self.sessions.get(&session).copied().unwrap_or((EMPTY_HASH, 0));
        let reset = kind.is_multiple_of(5) || len > 90;
        let (hash, len) = if reset { (EMPTY_HASH, 0) } else { (hash, len) };
        let mut request = Request::new(session, vec![u32::from(kind), 2]);
        (request.prefix_hash, request.pos0, request.reset) = (hash, len, reset);
        request.wants = [Reply::Ack, Reply::Hidden, Reply::Logits][usize::from(kind % 3)];
        let hash = extend_hash(hash, &request.tokens);
        if let Ok(number) = self.net.coordinators[0].machine.submit(self.net.now, request) {
            self.sessions.insert(session, (hash, len + 2));
            self.submitted.push(number);
        }
    }

    /// Looks what the machines have told.
    fn look(&mut self) {
        for worker in 0..self.net.workers.len() {
            for event in self.net.worker_events(worker) {
                if let WorkerEvent::Work(task) = event {
                    self.tasks.push((worker, *task));
                }
            }
        }
        for event in self.net.events(0) {
            match event {
                CoordinatorEvent::Answer(answer) => {
                    self.answers.push((answer.request, Ok((answer.result_hash, answer.payload))));
                }
                CoordinatorEvent::Failed { request, failure } => self.answers.push((request, Err(failure))),
                _ => {}
            }
        }
    }

    fn compute(&mut self, at: usize, outcome: Option<Outcome>) {
        let (worker, task) = self.tasks.remove(at);
        let outcome = outcome.unwrap_or_else(|| computed(&task));
        finish(&mut self.net, worker, task.id, outcome);
    }

    fn turn(&mut self, turn: &Turn) {
        let busy = self.tasks.len();
        match turn {
            Turn::Submit(session, kind) => self.submit(*session, *kind),
            Turn::Act => _ = self.net.act(),
            Turn::Connect => _ = self.net.connect(),
            Turn::Carry(wire, way) if self.net.wires() > 0 => {
                _ = self.net.carry_one(wire.index(self.net.wires()), usize::from(*way));
            }
            Turn::Compute(at) if busy > 0 => self.compute(at.index(busy), None),
            Turn::Fail(at) if busy > 0 => {
                self.compute(at.index(busy), Some(Outcome::Failed("it failed".into())));
            }
            Turn::Kill(at) => {
                let worker = at.index(self.net.workers.len());
                self.net.kill(Who::Worker(worker));
            }
            Turn::Join(kind) => self.join([(0, 42), (0, 20), (21, 42)][usize::from(kind % 3)]),
            Turn::Wait(millis) => self.net.pass(Duration::from_millis(*millis)),
            _ => {}
        }
        self.look();
    }

    /// Until nothing moves any more.
    fn finish(&mut self) {
        loop {
            self.net.run();
            self.look();
            if self.tasks.is_empty() {
                return;
            }
            self.compute(0, None);
        }
    }
}

fn finish(net: &mut Net, worker: usize, task: TaskId, outcome: Outcome) {
    net.workers[worker].machine.finish(net.now, task, outcome).unwrap();
}

proptest! {
    #![proptest_config(cases(256))]

    #[test]
    fn a_pipeline_answers_the_same_in_any_interleaving(
        requests in vec((0..3_u64, any::<u8>()), 1..15),
        turns in vec(turn(), 0..300),
        width in prop_oneof![1..100_usize, Just(usize::MAX)],
    ) {
        let quiet = |turn: &&Turn| {
            matches!(turn, Turn::Act | Turn::Connect | Turn::Carry(..) | Turn::Compute(_))
        };
        let mut plain = Scene::new(usize::MAX);
        let mut mixed = Scene::new(width);
        plain.finish();
        let mut turns = turns.iter().filter(quiet);
        for (session, kind) in &requests {
            plain.submit(*session, *kind);
            plain.finish();
            while mixed.submitted.len() < plain.submitted.len() {
                mixed.submit(*session, *kind);
                turns.by_ref().take(10).for_each(|turn| mixed.turn(turn));
                if mixed.submitted.len() < plain.submitted.len() {
                    // It has to connect first, or there is no room.
                    mixed.finish();
                }
            }
        }
        turns.for_each(|turn| mixed.turn(turn));
        mixed.finish();
        prop_assert_eq!(plain.answers.len(), requests.len());
        prop_assert!(plain.answers.iter().all(|(_, answer)| answer.is_ok()), "{:?}", plain.answers);
        prop_assert_eq!(plain.answers, mixed.answers);
    }

    #[test]
    fn every_request_ends_once_whatever_happens_to_workers(
        turns in vec(turn(), 0..300),
        width in prop_oneof![1..100_usize, Just(usize::MAX)],
    ) {
        let mut scene = Scene::new(width);
        for turn in &turns {
            scene.turn(turn);
        }
        scene.finish();
        // What can't be reached is given up at last, and nothing is asked for in the past.
        scene.net.pass(Duration::from_secs(5));
        scene.finish();
        let mut ended: Vec<u64> = scene.answers.iter().map(|(request, _)| *request).collect();
        ended.sort_unstable();
        prop_assert_eq!(ended, scene.submitted);
        prop_assert_eq!(scene.net.coordinators[0].machine.pending(), 0);
        let due = scene.net.coordinators[0].machine.poll_timeout();
        prop_assert!(due.is_none_or(|at| at > scene.net.now), "{due:?}");
    }
}
