//! [`Work`]: a request to process tokens.

use alloc::vec::Vec;

use super::activation::Width;
use super::error::WireError;
use super::header::FrameType;
use super::reader::{Reader, Writer, to_u32, to_usize};
use super::route::{Hop, Route};
use super::tokens::extend_hash;

/// A request to process tokens, and its way through the workers.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Work {
    /// The model.
    pub model_id: u32,
    /// The session; it exists from its first request on.
    pub session: u64,
    /// The number of the request; the result has it again.
    pub request: u64,
    /// Hash of the tokens before these, see [`token_hash`](super::token_hash).
    pub prefix_hash: u64,
    /// Hash of all tokens, these included.
    pub result_hash: u64,
    /// How many tokens come before these.
    pub pos0: u32,
    /// The first layer to compute.
    pub layer_start: u32,
    /// The last one.
    pub layer_end: u32,
    /// What is there, and what is wanted.
    pub flags: WorkFlags,
    /// Bits of one activation, see [`Width`].
    pub activation_bits: u32,
    /// The tokens.
    pub tokens: Vec<u32>,
    /// The activations of the layer before, in the width that `activation_bits` says.
    pub activations: Vec<u8>,
    /// The workers it passes.
    pub route: Route,
}

impl Work {
    /// Checks what can be checked without knowing the worker. A layout that can't be read ends a connection; a request that
    /// fails here is answered by a result with status 1, and the connection goes on.
    ///
    /// # Errors
    /// The first field that is not as it must be.
    pub fn check(&self) -> Result<(), WireError> {
        let require = |holds: bool, field, value: u64| {
            if holds { Ok(()) } else { Err(WireError::Field { kind: FrameType::WORK, field, value }) }
        };
        let hops = &self.route.hops;
        require(!hops.is_empty(), "route_count", 0)?;
        let index = self.route.index;
        let hop = hops.get(to_usize(index));
        require(hop.is_some(), "route_index", index.into())?;
        require(self.layer_start <= self.layer_end, "layer_end", self.layer_end.into())?;
        require(self.flags.unknown() == 0, "flags", self.flags.0.into())?;
        require(!self.tokens.is_empty(), "n_tokens", 0)?;

        let has_input = self.flags.contains(WorkFlags::INPUT);
        let bytes = to_u32(self.activations.len());
        // The first layer makes its own.
        require(has_input == (self.layer_start != 0), "flags", self.flags.0.into())?;
        require(has_input == (bytes != 0), "input_hc_bytes", bytes.into())?;
        let width = Width::from_bits(self.activation_bits);
        require(width.is_some(), "input_hc_bits", self.activation_bits.into())?;
        // How many activations a token has depends on the model, but all have the same number.
        let each = self.tokens.len().saturating_mul(width.map_or(1, Width::bytes));
        require(self.activations.len().checked_rem(each) == Some(0), "input_hc_bytes", bytes.into())?;
        let hash = extend_hash(self.prefix_hash, &self.tokens);
        require(self.result_hash == hash, "result_hash", self.result_hash)?;

        let mut next = hops.first().map(|hop| hop.layer_start);
        for (at, hop) in hops.iter().enumerate() {
            require(Some(hop.layer_start) == next, "route layer_start", hop.layer_start.into())?;
            require(hop.layer_start <= hop.layer_end, "route layer_end", hop.layer_end.into())?;
            require((1..=u32::from(u16::MAX)).contains(&hop.port), "route port", hop.port.into())?;
            let allowed = if at + 1 == hops.len() { Hop::LOGITS } else { 0 };
            require(hop.flags & !allowed == 0, "route flags", hop.flags.into())?;
            next = hop.layer_end.checked_add(1);
        }
        let layers = |hop: &Hop| (hop.layer_start, hop.layer_end) == (self.layer_start, self.layer_end);
        require(hop.is_some_and(layers), "route_index", index.into())?;
        let is_last = to_usize(index).saturating_add(1) == hops.len();
        require(is_last || !self.flags.contains(WorkFlags::LOGITS), "flags", self.flags.0.into())
    }

    pub(super) fn write(&self, out: &mut Writer<'_>) {
        let mut route = Vec::new();
        self.route.write(&mut Writer::new(&mut route));
        out.u32(self.model_id);
        for value in [self.session, self.request, self.prefix_hash, self.result_hash] {
            out.u64(value);
        }
        out.u32(self.pos0);
        out.len(self.tokens.len());
        for word in [self.layer_start, self.layer_end, self.flags.0] {
            out.u32(word);
        }
        out.len(self.tokens.len().saturating_mul(4));
        out.len(self.activations.len());
        out.u32(self.activation_bits);
        out.len(self.route.hops.len());
        out.u32(self.route.index);
        out.len(route.len());
        out.words(&self.tokens);
        out.bytes(&self.activations);
        out.bytes(&route);
    }

    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, WireError> {
        let mut work = Self {
            model_id: reader.u32("model_id")?,
            session: reader.u64("session")?,
            request: reader.u64("request")?,
            prefix_hash: reader.u64("prefix_hash")?,
            result_hash: reader.u64("result_hash")?,
            pos0: reader.u32("pos0")?,
            ..Self::default()
        };
        let n_tokens = reader.u32("n_tokens")?;
        work.layer_start = reader.u32("layer_start")?;
        work.layer_end = reader.u32("layer_end")?;
        work.flags = WorkFlags(reader.u32("flags")?);
        let token_bytes = reader.u32("token_bytes")?;
        let input_bytes = reader.u32("input_hc_bytes")?;
        work.activation_bits = reader.u32("input_hc_bits")?;
        let route_count = reader.u32("route_count")?;
        let route_index = reader.u32("route_index")?;
        let route_bytes = reader.u32("route_bytes")?;

        reader.require(n_tokens.checked_mul(4) == Some(token_bytes), "token_bytes", token_bytes)?;
        reader.require(token_bytes <= reader.left(), "token_bytes", token_bytes)?;
        let left = reader.left().saturating_sub(token_bytes);
        reader.require(input_bytes <= left, "input_hc_bytes", input_bytes)?;
        reader.require(route_bytes == left.saturating_sub(input_bytes), "route_bytes", route_bytes)?;
        work.tokens = reader.words("tokens", token_bytes)?;
        work.activations = reader.take("activations", input_bytes)?.to_vec();
        work.route = Route::read(route_index, route_count, reader.rest())?;
        Ok(work)
    }
}

/// What a request has and wants. Unknown flags survive.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct WorkFlags(pub u32);

impl WorkFlags {
    /// Activations are there.
    pub const INPUT: Self = Self(1);
    /// Logits are wanted.
    pub const LOGITS: Self = Self(2);
    /// The session starts again before this.
    pub const RESET: Self = Self(4);
    /// Nothing is wanted but an acknowledgement.
    pub const ACK_ONLY: Self = Self(8);

    /// Whether every flag of `other` is in this set.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// The flags in either set.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The bits that have no meaning.
    #[must_use]
    pub const fn unknown(self) -> u32 {
        self.0 & !(Self::INPUT.0 | Self::LOGITS.0 | Self::RESET.0 | Self::ACK_ONLY.0)
    }
}
