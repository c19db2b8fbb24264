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
//! kept for what is only announced.

mod coordinator;
mod fault;
mod hello;
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
