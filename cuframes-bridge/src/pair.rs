//! The hello of DS4T, the pair protocol of DS4, and what two hosts agree on with it: RDMA or TCP.
//!
//! Both sides write 88 bytes, without a frame around them and little-endian, and then read those of the other side.
//! [`PairHello::check`] says whether they fit, [`choose`] what carries the data. That choice is made once, here; when RDMA
//! fails later, that is an error, and nobody falls back in silence.

use alloc::borrow::ToOwned as _;
use alloc::string::String;
use core::fmt;
use core::str::FromStr;

/// What one side says about itself.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct PairHello {
    /// Version of the protocol; this is about [`PairHello::VERSION`].
    pub version: u32,
    /// [`PairHello::LEADER`] or [`PairHello::WORKER`].
    pub role: u32,
    /// 1 if it can do RDMA.
    pub rdma_ok: u32,
    /// Bytes of the model's file.
    pub gguf_bytes: u64,
    /// The model.
    pub model_id: u32,
    /// Layers.
    pub n_layer: u32,
    /// Values of an embedding.
    pub n_embd: u32,
    /// Tokens of the vocabulary.
    pub n_vocab: u32,
    /// Bits per weight.
    pub quant_bits: u32,
    /// Tokens of its context; the only thing about a model in which the two may differ.
    pub ctx_size: u32,
    /// The first slot of the gates.
    pub gate_slot_start: u32,
    /// From one slot to the next.
    pub gate_slot_step: u32,
    /// Gates of each token: as many as `mask` has bits.
    pub gates_per_token: u32,
    /// Nothing in version 10. It survives, and is not compared.
    pub pad: u32,
    /// Which layers have a gate, the first ones in the lowest bits of the first word.
    pub mask: [u64; 3],
}

impl PairHello {
    /// The first word: "DS4T".
    pub const MAGIC: u32 = 0x4453_3454;
    /// Bytes of a hello.
    pub const BYTES: usize = 88;
    /// The version described here.
    pub const VERSION: u32 = 10;
    /// The role of the side that leads.
    pub const LEADER: u32 = 1;
    /// The role of the other side.
    pub const WORKER: u32 = 2;

    /// The hello as it is on the wire.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut out = [0; Self::BYTES];
        let mut rest = &mut out[..];
        for word in [Self::MAGIC, self.version, self.role, self.rdma_ok] {
            put(&mut rest, word.to_le_bytes());
        }
        put(&mut rest, self.gguf_bytes.to_le_bytes());
        for word in [
            self.model_id,
            self.n_layer,
            self.n_embd,
            self.n_vocab,
            self.quant_bits,
            self.ctx_size,
            self.gate_slot_start,
            self.gate_slot_step,
            self.gates_per_token,
            self.pad,
        ] {
            put(&mut rest, word.to_le_bytes());
        }
        for word in self.mask {
            put(&mut rest, word.to_le_bytes());
        }
        out
    }

    /// Reads a hello.
    ///
    /// # Errors
    /// [`PairError::Magic`] if it is none: of something else, or of a host with the other byte order.
    pub fn decode(bytes: &[u8; Self::BYTES]) -> Result<Self, PairError> {
        let mut rest = &bytes[..];
        let u32 = |rest: &mut _| u32::from_le_bytes(get(rest));
        let u64 = |rest: &mut _| u64::from_le_bytes(get(rest));
        let magic = u32(&mut rest);
        if magic != Self::MAGIC {
            return Err(PairError::Magic(magic));
        }
        Ok(Self {
            version: u32(&mut rest),
            role: u32(&mut rest),
            rdma_ok: u32(&mut rest),
            gguf_bytes: u64(&mut rest),
            model_id: u32(&mut rest),
            n_layer: u32(&mut rest),
            n_embd: u32(&mut rest),
            n_vocab: u32(&mut rest),
            quant_bits: u32(&mut rest),
            ctx_size: u32(&mut rest),
            gate_slot_start: u32(&mut rest),
            gate_slot_step: u32(&mut rest),
            gates_per_token: u32(&mut rest),
            pad: u32(&mut rest),
            mask: [u64(&mut rest), u64(&mut rest), u64(&mut rest)],
        })
    }

    /// Whether this side and that of `peer` fit.
    ///
    /// # Errors
    /// The first thing in which they don't.
    pub fn check(&self, peer: &Self) -> Result<(), PairError> {
        if peer.version != self.version {
            return Err(PairError::Version(peer.version));
        }
        let other_role = if self.role == Self::LEADER { Self::WORKER } else { Self::LEADER };
        if peer.role != other_role {
            return Err(PairError::Role(peer.role));
        }
        for (field, own, peer) in [
            ("gguf_bytes", self.gguf_bytes, peer.gguf_bytes),
            ("model_id", self.model_id.into(), peer.model_id.into()),
            ("n_layer", self.n_layer.into(), peer.n_layer.into()),
            ("n_embd", self.n_embd.into(), peer.n_embd.into()),
            ("n_vocab", self.n_vocab.into(), peer.n_vocab.into()),
            ("quant_bits", self.quant_bits.into(), peer.quant_bits.into()),
            ("gate_slot_start", self.gate_slot_start.into(), peer.gate_slot_start.into()),
            ("gate_slot_step", self.gate_slot_step.into(), peer.gate_slot_step.into()),
            ("gates_per_token", self.gates_per_token.into(), peer.gates_per_token.into()),
        ] {
            if own != peer {
                return Err(PairError::Field { field, own, peer });
            }
        }
        for (own, peer) in self.mask.into_iter().zip(peer.mask) {
            if own != peer {
                return Err(PairError::Field { field: "mask", own, peer });
            }
        }
        let bits = peer.mask.iter().map(|word| word.count_ones()).sum();
        if bits != peer.gates_per_token {
            return Err(PairError::Gates { bits, gates: peer.gates_per_token });
        }
        Ok(())
    }
}

/// Why two sides can't be a pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum PairError {
    /// It is no hello: this is its first word.
    Magic(u32),
    /// The other side speaks this version.
    Version(u32),
    /// The other side has this role, which is not the one that is left.
    Role(u32),
    /// They are about different models or schedules.
    Field {
        /// In what they differ.
        field: &'static str,
        /// What it is here.
        own: u64,
        /// What it is there.
        peer: u64,
    },
    /// The mask of the schedule does not have as many bits as a token has gates.
    Gates {
        /// Bits of the mask.
        bits: u32,
        /// Gates of each token.
        gates: u32,
    },
}

impl fmt::Display for PairError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Magic(found) => write!(f, "it is no hello: it starts with {found:#010x}"),
            Self::Version(version) => write!(f, "it speaks version {version} of the protocol"),
            Self::Role(role) => write!(f, "it has role {role}, which is not the other one of a pair"),
            Self::Field { field, own, peer } => write!(f, "{field} differs: {own} here, {peer} there"),
            Self::Gates { bits, gates } => write!(f, "the mask has {bits} bits for {gates} gates"),
        }
    }
}

impl core::error::Error for PairError {}

/// What a user wants the data to be carried by.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub enum Transport {
    /// RDMA if both sides have it, TCP otherwise.
    #[default]
    Auto,
    /// TCP.
    Tcp,
    /// RDMA, or nothing.
    Rdma,
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Auto => "auto",
            Self::Tcp => "tcp",
            Self::Rdma => "rdma",
        })
    }
}

impl FromStr for Transport {
    type Err = NoTransport;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "auto" => Ok(Self::Auto),
            "tcp" => Ok(Self::Tcp),
            "rdma" => Ok(Self::Rdma),
            _ => Err(NoTransport(text.to_owned())),
        }
    }
}

/// There is no transport of this name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NoTransport(pub String);

impl fmt::Display for NoTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "there is no transport {:?}; there are auto, tcp and rdma", self.0)
    }
}

impl core::error::Error for NoTransport {}

/// What carries the data.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Bulk {
    /// TCP.
    Tcp,
    /// RDMA.
    Rdma,
}

/// RDMA is wanted, and one side at least does not have it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoRdma {
    /// Whether this side has it.
    pub own: bool,
    /// Whether the other side has it.
    pub peer: bool,
}

impl fmt::Display for NoRdma {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match (self.own, self.peer) {
            (false, false) => "RDMA is wanted, and neither side has it",
            (false, true) => "RDMA is wanted, and this side does not have it",
            (true, _) => "RDMA is wanted, and the other side does not have it",
        })
    }
}

impl core::error::Error for NoRdma {}

/// What carries the data, from what is wanted here and what both sides said in their hello.
///
/// # Errors
/// If RDMA is wanted and a side does not have it. Only [`Transport::Auto`] falls back to TCP, and only here.
pub const fn choose(wanted: Transport, own_rdma: bool, peer_rdma: bool) -> Result<Bulk, NoRdma> {
    match (wanted, own_rdma && peer_rdma) {
        (Transport::Tcp, _) | (Transport::Auto, false) => Ok(Bulk::Tcp),
        (Transport::Auto | Transport::Rdma, true) => Ok(Bulk::Rdma),
        (Transport::Rdma, false) => Err(NoRdma { own: own_rdma, peer: peer_rdma }),
    }
}

/// Writes to the front. A hello has room for all its fields.
fn put<const N: usize>(rest: &mut &mut [u8], bytes: [u8; N]) {
    if let Some((place, behind)) = core::mem::take(rest).split_first_chunk_mut() {
        *place = bytes;
        *rest = behind;
    }
}

/// Takes from the front. A hello has all its fields.
fn get<const N: usize>(rest: &mut &[u8]) -> [u8; N] {
    let (bytes, behind) = rest.split_first_chunk().unwrap_or((&[0; N], &[]));
    *rest = behind;
    *bytes
}
