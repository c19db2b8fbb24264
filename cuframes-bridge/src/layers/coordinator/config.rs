//! [`CoordinatorConfig`]: what model it has, and how much it bears.

use alloc::string::String;
use core::time::Duration;

use crate::layers::{MAX_FORWARD, Span};
use crate::wire::{Limits, MAX_CHUNK};

/// What model a coordinator has, and how much it bears. What is out of range is taken as the nearest that is in it.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct CoordinatorConfig {
    /// The model.
    pub model_id: u32,
    /// Its name, which a worker's must equal.
    pub model_name: String,
    /// How many layers the model has.
    pub n_layers: u32,
    /// The most tokens of a session, which every worker must have room for; 4096 by default.
    pub ctx_size: u32,
    /// How many layers, from the first one, the coordinator computes itself; 0 by default.
    pub local_layers: u32,
    /// Whether the coordinator has the output head, so that no worker needs it; false by default.
    pub has_output: bool,
    /// Where the workers' data ports are, if [`set_host`](super::Coordinator::set_host) does not say otherwise.
    pub host: Option<String>,
    /// Requests under way on a route: 1 to 64; by default two more than it has workers, and 8 at most.
    pub window: Option<usize>,
    /// Control connections at a time; 64 by default.
    pub max_connections: usize,
    /// Snapshots under way at a time; 4 by default.
    pub max_snapshots: usize,
    /// Bytes of a snapshot that a worker may send; 1 GiB by default.
    pub snapshot_bytes: usize,
    /// Bytes of one chunk: up to 8 MiB, which is the default.
    pub chunk_bytes: usize,
    /// How long a worker may take to say who it is; 5 s by default.
    pub hello_timeout: Duration,
    /// How long to try to connect to a data port; 5 s by default.
    pub connect_timeout: Duration,
    /// How long a worker may take no byte although some wait for it; 60 s by default. Sending has no clock, so it may be up
    /// to twice as long.
    pub send_timeout: Duration,
    /// How long a worker may send no byte although an answer is due; `None`, however long, by default.
    pub receive_timeout: Option<Duration>,
    /// What may be announced.
    pub limits: Limits,
}

impl CoordinatorConfig {
    /// A coordinator for this model, with the defaults.
    #[must_use]
    pub fn new(model_id: u32, model_name: impl Into<String>, n_layers: u32) -> Self {
        Self {
            model_id,
            model_name: model_name.into(),
            n_layers,
            ctx_size: 4096,
            local_layers: 0,
            has_output: false,
            host: None,
            window: None,
            max_connections: 64,
            max_snapshots: 4,
            snapshot_bytes: 1 << 30,
            chunk_bytes: MAX_CHUNK,
            hello_timeout: Duration::from_secs(5),
            connect_timeout: Duration::from_secs(5),
            send_timeout: Duration::from_secs(60),
            receive_timeout: None,
            limits: Limits::default(),
        }
    }

    /// What workers are needed for.
    #[must_use]
    pub const fn span(&self) -> Span {
        Span { first_layer: self.local_layers, n_layers: self.n_layers, needs_output: !self.has_output }
    }

    /// How many requests a route of so many workers may have under way.
    pub(super) fn window(&self, workers: usize) -> usize {
        self.window.map_or_else(|| (workers + 2).min(8), |window| window.clamp(1, MAX_FORWARD))
    }
}
