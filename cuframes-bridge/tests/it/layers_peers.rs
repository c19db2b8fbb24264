//! What workers compute in tests, and what is said to them.

use cuframes_bridge::layers::{
    CoordinatorConfig, CoordinatorEvent, Fault, Outcome, Request, Task, TaskId, Wants, WorkerConfig,
    WorkerEvent,
};
use cuframes_bridge::wire::{EMPTY_HASH, Hop, Message, Route, Width, Work, WorkFlags, extend_hash};

use crate::bytes::{Item, decode};
use crate::layers_world::{Caller, Net, Who};

/// Activations of one token.
pub(crate) const VALUES: u32 = 2;
/// Layers of the model.
pub(crate) const LAYERS: u32 = 43;

/// What a worker's owner does, and what is said to a worker by hand.
impl Net {
    /// The tasks that a worker was given since the last look; nothing else has happened to it.
    pub(crate) fn tasks(&mut self, worker: usize) -> Vec<Task> {
        let task = |event: WorkerEvent| match event {
            WorkerEvent::Work(task) => *task,
            other => panic!("{other:?}"),
        };
        self.workers[worker].events.drain(..).map(task).collect()
    }

    /// The only one.
    pub(crate) fn task(&mut self, worker: usize) -> Task {
        let mut tasks = self.tasks(worker);
        assert_eq!(tasks.len(), 1, "{tasks:?}");
        tasks.remove(0)
    }

    pub(crate) fn finish(&mut self, worker: usize, task: TaskId, outcome: Outcome) {
        self.workers[worker].machine.finish(self.now, task, outcome).unwrap();
        self.run();
    }

    /// Does what is wanted.
    pub(crate) fn compute(&mut self, worker: usize, task: &Task) {
        self.finish(worker, task.id, computed(task));
    }

    /// What has happened to a worker since the last look.
    pub(crate) fn worker_events(&mut self, worker: usize) -> Vec<WorkerEvent> {
        self.workers[worker].events.drain(..).collect()
    }

    /// What a coordinator has told since the last look.
    pub(crate) fn events(&mut self, coordinator: usize) -> Vec<CoordinatorEvent> {
        self.coordinators[coordinator].events.drain(..).collect()
    }

    /// Why a connection to the first worker's data port ended; `None` if it has not.
    pub(crate) fn closed(&mut self, worker: usize, caller: Caller) -> Option<Fault> {
        let its = self.conn(caller);
        let faults = self.workers[worker].events.iter().filter_map(|event| match event {
            WorkerEvent::Closed { conn, fault } if *conn == its => Some(fault.clone()),
            _ => None,
        });
        let faults: Vec<Fault> = faults.collect();
        assert!(faults.len() <= 1, "it ended twice");
        faults.into_iter().next()
    }

    pub(crate) fn submit(&mut self, request: Request) -> u64 {
        let number = self.coordinators[0].machine.submit(self.now, request).unwrap();
        self.run();
        number
    }
}

/// Hidden states and logits that depend on the tokens and on what came in.
pub(crate) fn computed(task: &Task) -> Outcome {
    let seed = task.tokens.iter().map(|token| u8::try_from(token % 251).unwrap());
    let all: Vec<u8> =
        seed.chain(task.activations.iter().copied()).map(|byte| byte.wrapping_add(1)).collect();
    let fill = |n: usize| all.iter().copied().cycle().take(n).collect::<Vec<u8>>();
    match task.wants {
        Wants::Ack => Outcome::Ack,
        Wants::Logits => Outcome::Logits(fill(8)),
        Wants::Forward { bytes } => Outcome::Hidden(fill(usize::try_from(bytes).unwrap())),
        _ => Outcome::Hidden(fill(task.tokens.len() * 2 * task.width.bytes())),
    }
}

/// What is written by hand: messages without data.
pub(crate) fn messages(bytes: &[u8]) -> Vec<Message> {
    let (items, error) = decode(bytes, &[usize::MAX]);
    assert_eq!(error, None);
    let message = |item| if let Item::Message(message) = item { message } else { panic!("{item:?}") };
    items.into_iter().map(message).collect()
}

pub(crate) fn encoded(message: &Message) -> Vec<u8> {
    let mut bytes = Vec::new();
    message.encode(&mut bytes);
    bytes
}

/// A model of 43 layers; two activations of a token, 100 tokens of a session, 1000 of the vocabulary.
pub(crate) fn worker_config(layers: (u32, u32), port: u16) -> WorkerConfig {
    let mut config = WorkerConfig::new("c", 1, "m", layers, LAYERS);
    config.listen_port = port;
    config.ctx_size = 100;
    config.vocabulary = 1000;
    config.values = VALUES;
    config
}

/// The same, on host `h`.
pub(crate) fn coordinator_config() -> CoordinatorConfig {
    let mut config = CoordinatorConfig::new(1, "m", LAYERS);
    config.ctx_size = 100;
    config.host = Some("h".into());
    config
}

/// A worker for all layers without a coordinator, and a connection to it.
pub(crate) fn alone(change: impl FnOnce(&mut WorkerConfig)) -> (Net, Caller) {
    let mut net = Net::new();
    let mut config = worker_config((0, LAYERS - 1), 1);
    change(&mut config);
    let worker = net.worker(config);
    let caller = net.call(Who::Worker(worker));
    net.workers[worker].events.clear();
    (net, caller)
}

/// A request for these layers, for the logits if they are the last ones, of a session that stands at `prefix`.
pub(crate) fn work(layers: (u32, u32), session: u64, request: u64, prefix: &[u32], tokens: &[u32]) -> Work {
    let prefix_hash = extend_hash(EMPTY_HASH, prefix);
    let is_last = layers.1 == LAYERS - 1;
    let mut flags = if is_last { WorkFlags::LOGITS } else { WorkFlags::default() };
    let mut activations = Vec::new();
    if layers.0 > 0 {
        flags = flags.union(WorkFlags::INPUT);
        activations = vec![7; tokens.len() * 2 * Width::F32.bytes()];
    }
    let hop = Hop {
        host: "h".into(),
        port: 1,
        layer_start: layers.0,
        layer_end: layers.1,
        flags: if is_last { Hop::LOGITS } else { 0 },
    };
    Work {
        model_id: 1,
        session,
        request,
        prefix_hash,
        result_hash: extend_hash(prefix_hash, tokens),
        pos0: u32::try_from(prefix.len()).unwrap(),
        layer_start: layers.0,
        layer_end: layers.1,
        flags,
        activation_bits: 32,
        tokens: tokens.to_vec(),
        activations,
        route: Route { index: 0, hops: vec![hop] },
    }
}

/// The same for a worker that has all layers.
pub(crate) fn all(session: u64, request: u64, prefix: &[u32], tokens: &[u32]) -> Work {
    work((0, LAYERS - 1), session, request, prefix, tokens)
}

pub(crate) fn said(work: Work) -> Message {
    Message::Work(Box::new(work))
}
