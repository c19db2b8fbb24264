//! [`Refusal`]: why a request is answered with status 1. The connection goes on.

use core::fmt;

use super::config::WorkerConfig;
use crate::layers::ChunkFault;
use crate::wire::{Begin, Hop, SnapshotId, Width, WireError, Work, WorkFlags, extend_hash, token_hash};

/// Why a worker does not do what it is asked for. Its text is sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Refusal {
    /// The frame can't be read.
    Frame(WireError),
    /// There is no route.
    NoRoute,
    /// The route has fewer hops.
    RouteIndex {
        /// Which one it is for.
        index: u32,
        /// How many there are.
        count: usize,
    },
    /// Another model.
    Model(u32),
    /// Other layers than those of this worker.
    Layers {
        /// The first.
        start: u32,
        /// The last.
        end: u32,
    },
    /// Flags that there are not.
    Flags(u32),
    /// No tokens.
    NoTokens,
    /// More tokens than the context has.
    Context {
        /// How many there would be.
        tokens: u64,
        /// How many there may be.
        ctx_size: u32,
    },
    /// The first layer makes its activations itself, and every other one needs some.
    Activations,
    /// Logits of a worker that has not the output head and the last layer.
    NoOutput,
    /// A token that is not in the vocabulary.
    Token(u32),
    /// The tokens have another hash.
    TokenHash(u64),
    /// No width that there is.
    Width(u32),
    /// Not as many activations as the tokens have.
    ActivationBytes {
        /// How many bytes there are.
        got: usize,
        /// How many there should be.
        expected: u64,
    },
    /// A hop of the route that can't be.
    Hop(usize),
    /// The hop of the route has other layers than the request.
    RouteEntry,
    /// Logits of a hop that is not the last one.
    Logits,
    /// The session stands elsewhere.
    Prefix,
    /// A snapshot that is larger than allowed.
    SnapshotBytes(u64),
    /// A frame came in the middle of a snapshot.
    Snapshot(ChunkFault),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Frame(error) => error.fmt(f),
            Self::NoRoute => f.write_str("the route has no hops"),
            Self::RouteIndex { index, count } => write!(f, "hop {index} of a route of {count}"),
            Self::Model(id) => write!(f, "model {id} is not that of this worker"),
            Self::Layers { start, end } => write!(f, "layers {start}..{end} are not those of this worker"),
            Self::Flags(flags) => write!(f, "invalid flags {flags:#x}"),
            Self::NoTokens => f.write_str("there are no tokens"),
            Self::Context { tokens, ctx_size } => {
                write!(f, "{tokens} tokens do not fit into a context of {ctx_size}")
            }
            Self::Activations => {
                f.write_str("the first layer takes no activations, and every other one does")
            }
            Self::NoOutput => f.write_str("this worker has no logits"),
            Self::Token(token) => write!(f, "token {token} is not in the vocabulary"),
            Self::TokenHash(hash) => write!(f, "the tokens have another hash than {hash:#018x}"),
            Self::Width(bits) => write!(f, "there are no activations of {bits} bits"),
            Self::ActivationBytes { got, expected } => {
                write!(f, "activations of {got} bytes, where {expected} are needed")
            }
            Self::Hop(at) => write!(f, "hop {at} of the route can't be"),
            Self::RouteEntry => f.write_str("the hop of the route has other layers than the request"),
            Self::Logits => f.write_str("logits are wanted before the last hop"),
            Self::Prefix => f.write_str("worker KV prefix hash mismatch"),
            Self::SnapshotBytes(bytes) => write!(f, "a snapshot of {bytes} bytes is too large"),
            Self::Snapshot(fault) => fault.fmt(f),
        }
    }
}

impl core::error::Error for Refusal {}

/// Checks a request, in the order of §1.3; its layout was checked when it was read. Answers the width of its activations.
pub(super) fn work(config: &WorkerConfig, work: &Work) -> Result<Width, Refusal> {
    let Work { layer_start: start, layer_end: end, flags, .. } = *work;
    let hops = &work.route.hops;
    let index = usize::try_from(work.route.index).unwrap_or(usize::MAX);
    require(!hops.is_empty(), Refusal::NoRoute)?;
    let count = hops.len();
    let hop = hops.get(index).ok_or(Refusal::RouteIndex { index: work.route.index, count })?;
    require(work.model_id == config.model_id, Refusal::Model(work.model_id))?;
    require((start, end) == config.layers, Refusal::Layers { start, end })?;
    require(flags.unknown() == 0, Refusal::Flags(flags.0))?;
    require(!work.tokens.is_empty(), Refusal::NoTokens)?;
    let tokens = u64::try_from(work.tokens.len()).unwrap_or(u64::MAX);
    context(config, tokens.saturating_add(work.pos0.into()))?;
    let has_input = flags.contains(WorkFlags::INPUT);
    let is_right = has_input != work.activations.is_empty() && has_input == (start != 0);
    require(is_right, Refusal::Activations)?;
    let has_logits = config.has_output && end.checked_add(1) == Some(config.n_layers);
    require(has_logits || !flags.contains(WorkFlags::LOGITS), Refusal::NoOutput)?;
    vocabulary(config, &work.tokens)?;
    let hash = extend_hash(work.prefix_hash, &work.tokens);
    require(work.result_hash == hash, Refusal::TokenHash(work.result_hash))?;
    let width = Width::from_bits(work.activation_bits).ok_or(Refusal::Width(work.activation_bits))?;
    let got = work.activations.len();
    let expected = if has_input { activation_bytes(config.values, work.tokens.len(), width) } else { 0 };
    let is_right = u64::try_from(got) == Ok(expected);
    require(is_right, Refusal::ActivationBytes { got, expected })?;
    route(config, hops)?;
    require((hop.layer_start, hop.layer_end) == (start, end), Refusal::RouteEntry)?;
    let is_last = index.checked_add(1) == Some(count);
    require(is_last || !flags.contains(WorkFlags::LOGITS), Refusal::Logits)?;
    Ok(width)
}

/// Checks a request for a snapshot.
pub(super) fn save(config: &WorkerConfig, id: &SnapshotId) -> Result<(), Refusal> {
    let SnapshotId { model_id, layer_start: start, layer_end: end, .. } = *id;
    require(model_id == config.model_id, Refusal::Model(model_id))?;
    require((start, end) == config.layers, Refusal::Layers { start, end })?;
    context(config, id.token_count.into())
}

/// Checks a snapshot that is to be loaded.
pub(super) fn load(config: &WorkerConfig, begin: &Begin) -> Result<(), Refusal> {
    save(config, &begin.id)?;
    vocabulary(config, &begin.tokens)?;
    let hash = begin.id.token_hash;
    require(token_hash(&begin.tokens) == hash, Refusal::TokenHash(hash))?;
    let fits = usize::try_from(begin.payload_bytes).is_ok_and(|bytes| bytes <= config.snapshot_bytes);
    require(fits, Refusal::SnapshotBytes(begin.payload_bytes))
}

/// Bytes of the activations of so many tokens.
pub(super) fn activation_bytes(values: u32, tokens: usize, width: Width) -> u64 {
    let wide = |n: usize| u64::try_from(n).unwrap_or(u64::MAX);
    wide(tokens).saturating_mul(values.into()).saturating_mul(wide(width.bytes()))
}

/// Hops that follow each other; only the last one may return logits, and only of the last layer.
fn route(config: &WorkerConfig, hops: &[Hop]) -> Result<(), Refusal> {
    let mut next = None;
    for (at, hop) in hops.iter().enumerate() {
        let is_last = at + 1 == hops.len() && hop.layer_end.checked_add(1) == Some(config.n_layers);
        let allowed = if is_last { Hop::LOGITS } else { 0 };
        let is_right = next.is_none_or(|next| hop.layer_start == next)
            && hop.layer_start <= hop.layer_end
            && hop.layer_end < config.n_layers
            && hop.flags & !allowed == 0
            && (1..=u32::from(u16::MAX)).contains(&hop.port);
        require(is_right, Refusal::Hop(at))?;
        next = Some(hop.layer_end + 1);
    }
    Ok(())
}

fn vocabulary(config: &WorkerConfig, tokens: &[u32]) -> Result<(), Refusal> {
    tokens
        .iter()
        .find(|token| **token >= config.vocabulary)
        .map_or(Ok(()), |token| Err(Refusal::Token(*token)))
}

fn context(config: &WorkerConfig, tokens: u64) -> Result<(), Refusal> {
    let ctx_size = config.ctx_size;
    require(tokens <= u64::from(ctx_size), Refusal::Context { tokens, ctx_size })
}

const fn require(holds: bool, refusal: Refusal) -> Result<(), Refusal> {
    if holds { Ok(()) } else { Err(refusal) }
}
