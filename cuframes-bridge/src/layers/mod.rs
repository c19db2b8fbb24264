//! The pipeline of layers: a [`Coordinator`] that has requests, and [`Worker`]s that each have some layers of a model (§1.3).
//!
//! A worker connects to the coordinator and says which layers it has (HELLO); silence means that it is welcome. The coordinator
//! looks for workers that together have all layers, and sends each request to the first of them, on a connection to its data
//! port. Each worker computes its layers and forwards the request to the next one; the result comes back the same way, and
//! each adds where its time went. Results come in the order of the requests, of which several may be under way.
//!
//! Both are a [`Machine`](cuframes_core::streams::Machine). They compute nothing themselves: what is to be computed, saved or
//! loaded is an event, and the owner of the driver answers it with a command.
//!
//! # Addresses
//!
//! A worker says its data port, but not its host, and a machine does not see who connects. So the owner of a coordinator says it
//! with [`Coordinator::set_host`] when it hears of a connection, or names one host for all in [`CoordinatorConfig::host`]; a
//! worker whose host is not known gets no work. Hosts of a route are the coordinator's word: a worker connects to
//! `tcp://HOST:PORT` as the route has it.
//!
//! # Bounds
//!
//! A peer that breaks the protocol, does not read, or sends without end costs its own connection. Connections, requests under
//! way, sessions and bytes that are kept have limits, which stand in [`WorkerConfig`] and [`CoordinatorConfig`]; nothing is
//! kept for what is only announced. Snapshots and requests of all connections together have room for what their limits say
//! times the connections, so a host that is short of memory lowers [`Limits`](crate::wire::Limits) or `max_connections`.
//!
//! # Example
//!
//! One worker that has both layers of a model. A real driver has sockets where this has pairs of numbers.
//!
//! ```
//! use cuframes_bridge::layers::{
//!     Coordinator, CoordinatorConfig, CoordinatorEvent, Outcome, Request, Worker, WorkerConfig, WorkerEvent,
//! };
//! use cuframes_core::Instant;
//! use cuframes_core::streams::{Action, ConnId, Machine};
//!
//! fn carry(from: &mut impl Machine, conn: ConnId, to: &mut impl Machine, its: ConnId) {
//!     while let Some(bytes) = from.poll_transmit(conn).map(<[u8]>::to_vec) {
//!         from.transmitted(conn, bytes.len());
//!         to.handle_bytes(Instant::ZERO, its, &bytes);
//!     }
//! }
//!
//! let now = Instant::ZERO;
//! let mut config = CoordinatorConfig::new(1, "model", 2);
//! config.host = Some("127.0.0.1".into());
//! let mut coordinator = Coordinator::new(now, config);
//! let mut config = WorkerConfig::new("tcp://127.0.0.1:7000", 1, "model", (0, 1), 2);
//! config.listen_port = 7001;
//! let mut worker = Worker::new(now, config);
//!
//! // The worker connects, and says who it is.
//! let Some(Action::Connect { conn: control, .. }) = worker.poll_action() else { return Err("it connects".into()) };
//! let peer = coordinator.handle_accepted(now, 0).ok_or("it is let in")?;
//! worker.handle_connected(now, control);
//! carry(&mut worker, control, &mut coordinator, peer);
//!
//! // The coordinator connects to its data port, and sends a request.
//! let request = coordinator.submit(now, Request::new(7, vec![1, 2, 3]))?;
//! let Some(Action::Connect { conn: data, address, .. }) = coordinator.poll_action() else { return Err("so does this".into()) };
//! assert_eq!(address, "tcp://127.0.0.1:7001");
//! let served = worker.handle_accepted(now, 0).ok_or("it is let in")?;
//! coordinator.handle_connected(now, data);
//! carry(&mut coordinator, data, &mut worker, served);
//!
//! // The worker's owner computes it.
//! while let Some(event) = worker.poll_event() {
//!     if let WorkerEvent::Work(task) = event {
//!         worker.finish(now, task.id, Outcome::Logits(vec![0; 4]))?;
//!     }
//! }
//! carry(&mut worker, served, &mut coordinator, data);
//! let answers = core::iter::from_fn(|| coordinator.poll_event()).filter_map(|event| match event {
//!     CoordinatorEvent::Answer(answer) => Some(answer.request),
//!     _ => None,
//! });
//! assert_eq!(answers.collect::<Vec<_>>(), [request]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod coordinator;
mod fault;
mod hello;
mod line;
mod peer;
mod recovery;
mod route;
mod schedule;
mod session;
mod stall;
mod transfer;
mod worker;

pub use coordinator::{
    Answer, Coordinator, CoordinatorConfig, CoordinatorEvent, Failure, Reply, Request, SubmitError,
};
pub use fault::Fault;
pub use hello::HelloError;
pub use recovery::{Recovery, Step};
pub use route::{Member, Path, Registry, RouteError, Span};
pub use schedule::{Schedule, Trouble};
pub use transfer::ChunkFault;
pub use worker::{
    FinishError, Outcome, Refusal, Snapshot, Task, TaskId, Wants, Worker, WorkerConfig, WorkerEvent,
};

/// The most requests that a connection may have under way.
const MAX_FORWARD: usize = 64;
/// How long a connection that ends may take to send its last words.
const LINGER: core::time::Duration = core::time::Duration::from_secs(5);
