//! [`WorkerConfig`]: what a worker is, and how much it bears.

use alloc::string::String;
use core::time::Duration;

use crate::layers::MAX_FORWARD;
use crate::wire::{Hello, Limits, MAX_CHUNK};

/// What a worker is, and how much it bears. What is out of range is taken as the nearest that is in it.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct WorkerConfig {
    /// Address of the coordinator; only the driver reads it.
    pub address: String,
    /// The model.
    pub model_id: u32,
    /// Its name: 127 bytes are sent.
    pub model_name: String,
    /// Bits of a weight, 2 or 4; 4 by default.
    pub quant_bits: u32,
    /// The first layer that it computes, and the last one.
    pub layers: (u32, u32),
    /// How many layers the model has.
    pub n_layers: u32,
    /// Whether it has the output head; by default if it has the last layer.
    pub has_output: bool,
    /// Whether it can return the hidden state; it is only told to the coordinator. True by default.
    pub has_hidden: bool,
    /// The most tokens of a session; 4096 by default.
    pub ctx_size: u32,
    /// How many tokens there are: each is less; 2^17 by default.
    pub vocabulary: u32,
    /// Activations of one token; 4096 by default.
    pub values: u32,
    /// The port of its listener for data connections.
    pub listen_port: u16,
    /// Requests of a connection that are read while another is computed: 1 to 8; 2 by default.
    pub prefetch: usize,
    /// Requests that a next worker may have: 1 to 64; 4 by default.
    pub max_forward: usize,
    /// Next workers of one connection at a time; 4 by default.
    pub max_next: usize,
    /// Data connections at a time; 64 by default.
    pub max_connections: usize,
    /// Sessions at a time; 64 by default. With one more, the one that was not used for the longest time is freed.
    pub max_sessions: usize,
    /// Tasks that the owner has at a time, also those that nobody waits for any more; 64 by default.
    pub max_tasks: usize,
    /// Bytes of all snapshots together that are being loaded; 1 GiB by default.
    pub snapshot_bytes: usize,
    /// Bytes of one chunk: up to 8 MiB, which is the default.
    pub chunk_bytes: usize,
    /// Bytes that are kept of what a driver reads although [`is_hungry`](cuframes_core::streams::Machine::is_hungry) says no;
    /// with those who heed it, it is one read. 1 MiB by default.
    pub backlog_bytes: usize,
    /// Bytes of all frames together that are not complete; 256 MiB by default.
    pub buffered_bytes: usize,
    /// How long to try to connect to a next worker; 5 s by default.
    pub connect_timeout: Duration,
    /// How long a peer may take no byte although some wait for it; 60 s by default. Sending has no clock, so it may be up to
    /// twice as long.
    pub send_timeout: Duration,
    /// How long a next worker may send no byte although a result is due; `None`, however long, by default.
    pub receive_timeout: Option<Duration>,
    /// What may be announced.
    pub limits: Limits,
}

impl WorkerConfig {
    /// A worker for these layers of a model that has `n_layers`, the first and the last one included, with the defaults.
    #[must_use]
    pub fn new(
        address: impl Into<String>,
        model_id: u32,
        model_name: impl Into<String>,
        layers: (u32, u32),
        n_layers: u32,
    ) -> Self {
        Self {
            address: address.into(),
            model_id,
            model_name: model_name.into(),
            quant_bits: 4,
            layers,
            n_layers,
            has_output: layers.1.checked_add(1) == Some(n_layers),
            has_hidden: true,
            ctx_size: 4096,
            vocabulary: 1 << 17,
            values: 4096,
            listen_port: 0,
            prefetch: 2,
            max_forward: 4,
            max_next: 4,
            max_connections: 64,
            max_sessions: 64,
            max_tasks: 64,
            snapshot_bytes: 1 << 30,
            chunk_bytes: MAX_CHUNK,
            backlog_bytes: 1 << 20,
            buffered_bytes: 256 << 20,
            connect_timeout: Duration::from_secs(5),
            send_timeout: Duration::from_secs(60),
            receive_timeout: None,
            limits: Limits::default(),
        }
    }

    /// What it says of itself.
    #[must_use]
    pub fn hello(&self) -> Hello {
        Hello {
            model_id: self.model_id,
            quant_bits: self.quant_bits,
            layer_start: self.layers.0,
            layer_end: self.layers.1,
            has_output: self.has_output.into(),
            has_hidden: self.has_hidden.into(),
            ctx_size: self.ctx_size,
            n_layers: self.n_layers,
            listen_port: self.listen_port.into(),
            model_name: self.model_name.clone(),
        }
    }

    pub(super) fn into_range(mut self) -> Self {
        self.prefetch = self.prefetch.clamp(1, 8);
        self.max_forward = self.max_forward.clamp(1, MAX_FORWARD);
        self.max_tasks = self.max_tasks.max(1);
        self.max_next = self.max_next.max(1);
        self.chunk_bytes = self.chunk_bytes.clamp(1, MAX_CHUNK);
        self
    }
}
