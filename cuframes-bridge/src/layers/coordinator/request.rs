//! [`Request`]: what a coordinator's owner wants, and how it is answered.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use cuframes_core::streams::ConnId;

use crate::layers::{Fault, Path, RouteError};
use crate::wire::{Hello, ResultKind, Route, Telemetry, Width, Work, WorkFlags, WorkResult, extend_hash};

/// Tokens to take through the workers' layers.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Request {
    /// The session.
    pub session: u64,
    /// Hash of the tokens before these, see [`token_hash`](crate::wire::token_hash).
    pub prefix_hash: u64,
    /// How many tokens come before these.
    pub pos0: u32,
    /// The tokens.
    pub tokens: Vec<u32>,
    /// What the local layers made of them; nothing if there are none.
    pub activations: Vec<u8>,
    /// How wide activations are, here and between the workers, and a hidden state that comes back.
    pub width: Width,
    /// Whether the session starts again with these.
    pub reset: bool,
    /// What is to come back.
    pub wants: Reply,
}

/// What is to come back.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Reply {
    /// Nothing but that it is done.
    Ack,
    /// The hidden state behind the last layer.
    Hidden,
    /// Logits, of a worker that has the output head.
    #[default]
    Logits,
}

/// What came back.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Answer {
    /// The number of the request.
    pub request: u64,
    /// Hash of all tokens so far: the prefix of the next request.
    pub result_hash: u64,
    /// What the payload is.
    pub kind: ResultKind,
    /// Bits of one value of the payload.
    pub payload_bits: u32,
    /// The payload; [`Width::decode`] reads it.
    pub payload: Vec<u8>,
    /// Where the time went: one record of each worker, the last one's first.
    pub telemetry: Vec<Telemetry>,
}

/// Why a request failed.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Failure {
    /// A worker says so. Its connection goes on.
    Remote(String),
    /// The way to it failed.
    Transport(Fault),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Remote(text) => write!(f, "a worker failed: {}", text.escape_debug()),
            Self::Transport(fault) => write!(f, "the way to a worker failed: {fault}"),
        }
    }
}

impl core::error::Error for Failure {}

/// What a coordinator tells.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum CoordinatorEvent {
    /// Somebody connected. Say [`Coordinator::set_host`](super::Coordinator::set_host) if the address is known.
    Connected {
        /// The connection.
        conn: ConnId,
    },
    /// It is a worker, and welcome. Which layers are there has changed.
    Joined {
        /// The connection.
        conn: ConnId,
        /// What it said of itself.
        hello: Box<Hello>,
    },
    /// A connection is gone. If it was a worker, which layers are there has changed.
    Left {
        /// The connection.
        conn: ConnId,
        /// Why.
        fault: Fault,
    },
    /// A request is done. Those of one route are so in their order.
    Answer(Box<Answer>),
    /// A snapshot is there.
    Saved {
        /// The number of the request.
        request: u64,
        /// The tokens of the session.
        tokens: Vec<u32>,
        /// What is needed to load it again.
        payload: Vec<u8>,
    },
    /// A snapshot is loaded.
    Loaded {
        /// The number of the request.
        request: u64,
    },
    /// A request, or a snapshot, failed. [`Recovery`](crate::layers::Recovery) knows what to do about a request.
    Failed {
        /// The number of the request.
        request: u64,
        /// Why.
        failure: Failure,
    },
}

/// Why a request is not sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum SubmitError {
    /// There are no workers for all layers (yet).
    Route(RouteError),
    /// As many are under way as may be; when one of them is answered there is room.
    Full,
    /// There is no such worker, or nobody knows its host.
    NoWorker,
    /// It has no tokens, or more than the context has room for.
    Tokens,
    /// Activations without local layers or the other way round, or not whole ones of every token.
    Activations,
    /// Logits, where the workers have no output head.
    NoOutput,
    /// It is larger than a frame may be.
    TooLong,
    /// It is over.
    ShutDown,
}

impl fmt::Display for SubmitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Route(error) => error.fmt(f),
            Self::Full => f.write_str("as many requests are under way as may be"),
            Self::NoWorker => f.write_str("there is no such worker, or its host is not known"),
            Self::Tokens => f.write_str("the tokens do not fit into the context"),
            Self::Activations => f.write_str("the activations do not fit the tokens"),
            Self::NoOutput => f.write_str("the workers have no output head"),
            Self::TooLong => f.write_str("the request is larger than a frame may be"),
            Self::ShutDown => f.write_str("the coordinator has shut down"),
        }
    }
}

impl core::error::Error for SubmitError {}

impl Request {
    /// Tokens of a session that begins, for logits, without activations.
    #[must_use]
    pub const fn new(session: u64, tokens: Vec<u32>) -> Self {
        Self {
            session,
            prefix_hash: crate::wire::EMPTY_HASH,
            pos0: 0,
            tokens,
            activations: Vec::new(),
            width: Width::F32,
            reset: true,
            wants: Reply::Logits,
        }
    }

    /// Hash of all tokens, these included: the prefix of the next request.
    #[must_use]
    pub fn result_hash(&self) -> u64 {
        extend_hash(self.prefix_hash, &self.tokens)
    }

    /// As it is sent to the first worker of a path.
    pub(super) fn into_work(self, model_id: u32, request: u64, path: &Path) -> Work {
        let result_hash = self.result_hash();
        let logits = self.wants == Reply::Logits;
        let hops = path.route(logits);
        let first = hops.first();
        let mut flags = WorkFlags::default();
        for (is_set, flag) in [
            (!self.activations.is_empty(), WorkFlags::INPUT),
            // Of several only the last one returns them, which its hop says.
            (logits && hops.len() == 1, WorkFlags::LOGITS),
            (self.reset, WorkFlags::RESET),
            (self.wants == Reply::Ack, WorkFlags::ACK_ONLY),
        ] {
            if is_set {
                flags = flags.union(flag);
            }
        }
        Work {
            model_id,
            session: self.session,
            request,
            prefix_hash: self.prefix_hash,
            result_hash,
            pos0: self.pos0,
            layer_start: first.map_or(0, |hop| hop.layer_start),
            layer_end: first.map_or(0, |hop| hop.layer_end),
            flags,
            activation_bits: self.width.bits(),
            tokens: self.tokens,
            activations: self.activations,
            route: Route { index: 0, hops },
        }
    }
}

impl Reply {
    pub(super) const fn kind(self) -> ResultKind {
        match self {
            Self::Ack => ResultKind::ACK,
            Self::Hidden => ResultKind::HIDDEN,
            Self::Logits => ResultKind::LOGITS,
        }
    }
}

impl Answer {
    pub(super) fn new(result: WorkResult) -> Box<Self> {
        let WorkResult { request, result_hash, kind, payload_bits, payload, telemetry, .. } = result;
        Box::new(Self { request, result_hash, kind, payload_bits, payload, telemetry })
    }
}
