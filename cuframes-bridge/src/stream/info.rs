//! [`FrameInfo`] and [`Announcement`]: what is said about a frame, and about its stream.

use alloc::string::ToString;
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

use cuframes_core::key::InvalidKey;
use cuframes_core::wire::meta::MetaError;
use cuframes_core::{FrameMeta, Key, Policy, RingSize};

use crate::wire::{Begin, Hello, SnapshotId, token_hash};

/// What a receiver learns about a frame before its bytes come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FrameInfo {
    /// The random number of the publisher that it is from.
    pub epoch: u64,
    /// Its number there.
    pub seq: u64,
    /// Geometry.
    pub meta: FrameMeta,
    /// The time stamp, as the publisher gave it: of a clock of the sender's host.
    pub pts_ns: i64,
    /// Valid bytes, `meta.frame_size_bytes` at most.
    pub written_bytes: u64,
    /// What the publisher does about slow subscribers.
    pub policy: Policy,
    /// From the time stamp to the beginning of the sending, in nanoseconds, both on the sender's host; 0 if the time stamp is
    /// of another clock.
    pub before_ns: u64,
}

impl FrameInfo {
    /// The frame that begins here.
    ///
    /// # Errors
    /// [`InfoError`] says what does not hold together.
    pub fn read(begin: &Begin) -> Result<Self, InfoError> {
        let words: &[u32; WORDS] = begin.tokens.as_slice().try_into().map_err(|_| InfoError::Words)?;
        let [version, rest @ ..] = words;
        if *version != VERSION {
            return Err(InfoError::Version(*version));
        }
        if token_hash(&begin.tokens) != begin.id.token_hash {
            return Err(InfoError::Hash);
        }
        let (meta, rest) = rest.split_first_chunk::<META_WORDS>().ok_or(InfoError::Words)?;
        let [seq_hi, seq_lo, pts_hi, pts_lo, written_hi, written_lo, policy, before_hi, before_lo] = *rest
        else {
            return Err(InfoError::Words);
        };
        let mut bytes = [0; 4 * META_WORDS];
        for (to, word) in bytes.as_chunks_mut().0.iter_mut().zip(meta) {
            *to = word.to_le_bytes();
        }
        let meta = FrameMeta::from_bytes(&bytes);
        meta.validate().map_err(InfoError::Meta)?;
        let info = Self {
            epoch: begin.id.session,
            seq: join(seq_hi, seq_lo),
            meta,
            pts_ns: join(pts_hi, pts_lo).cast_signed(),
            written_bytes: join(written_hi, written_lo),
            policy: Policy(policy.into()),
            before_ns: join(before_hi, before_lo),
        };
        if info.written_bytes > meta.frame_size_bytes
            || begin.payload_bytes.checked_sub(VERDICT_BYTES) != Some(info.written_bytes)
        {
            return Err(InfoError::Size { payload: begin.payload_bytes, frame: meta.frame_size_bytes });
        }
        // Who asks for the newest frame learns its number only here.
        let expected = begin.id.request & !FETCH;
        if info.seq == 0 || expected != info.seq && begin.id.request != FETCH {
            return Err(InfoError::Number { found: info.seq, expected });
        }
        Ok(info)
    }

    /// What a frame begins with, as the answer to a `request`.
    pub(super) fn begin(&self, request: u64) -> Begin {
        let mut tokens = Vec::with_capacity(WORDS);
        tokens.push(VERSION);
        tokens.extend(self.meta.to_bytes().as_chunks().0.iter().map(|word| u32::from_le_bytes(*word)));
        tokens.extend(split(self.seq));
        tokens.extend(split(self.pts_ns.cast_unsigned()));
        tokens.extend(split(self.written_bytes));
        tokens.push(u32::try_from(self.policy.0).unwrap_or(u32::MAX));
        tokens.extend(split(self.before_ns));
        let id = SnapshotId {
            model_id: self.meta.format.0,
            session: self.epoch,
            request,
            token_hash: token_hash(&tokens),
            token_count: u32::try_from(tokens.len()).unwrap_or(0),
            layer_start: 0,
            layer_end: last_row(&self.meta),
        };
        let payload_bytes = self.written_bytes + VERDICT_BYTES;
        Begin { id, payload_bytes, status: 0, tokens, message: Default::default() }
    }
}

/// What a sender says about its stream when it connects. A frame says for itself what it is: the publisher may be another one
/// by then.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Announcement {
    /// Its name.
    pub key: Key,
    /// Geometry of its frames.
    pub meta: FrameMeta,
    /// What its publisher does about slow subscribers.
    pub policy: Policy,
    /// Slots of its ring.
    pub ring_size: RingSize,
    /// Whether the sender keeps each frame until it has arrived, instead of leaving out those that the link is too slow for.
    pub strict: bool,
}

impl Announcement {
    /// As DS4D says it. The port is 0: everything goes over this one connection.
    pub(super) fn hello(&self) -> Hello {
        let Self { key, meta, policy, ring_size, strict } = self;
        Hello {
            model_id: meta.format.0,
            quant_bits: meta.bits_per_pixel,
            layer_start: 0,
            layer_end: last_row(meta),
            has_output: (*strict).into(),
            has_hidden: (*policy == Policy::STRICT_WAIT).into(),
            ctx_size: ring_size.get().into(),
            n_layers: meta.height,
            listen_port: 0,
            model_name: key.to_string(),
        }
    }
}

/// What a receiver learns from HELLO: all but the geometry, which comes with each frame.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Greeting {
    /// The stream's name.
    pub key: Key,
    /// Slots of its ring.
    pub ring_size: RingSize,
    /// See [`Announcement::strict`].
    pub strict: bool,
}

impl Greeting {
    pub(super) fn read(hello: &Hello) -> Result<Self, InfoError> {
        let key = Key::from_str(&hello.model_name).map_err(InfoError::Key)?;
        let ring_size = RingSize::new(hello.ctx_size.into()).ok_or(InfoError::Ring(hello.ctx_size))?;
        Ok(Self { key, ring_size, strict: hello.has_output != 0 })
    }
}

/// What is said about a frame or a stream does not hold together.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum InfoError {
    /// Not as many words as there are about a frame.
    Words,
    /// Words of another version.
    Version(u32),
    /// The hash is not that of the words.
    Hash,
    /// The frame's number is 0, or not that of the request.
    Number {
        /// As it says.
        found: u64,
        /// That of the request.
        expected: u64,
    },
    /// The geometry.
    Meta(MetaError),
    /// The bytes that are announced are not those of such a frame.
    Size {
        /// Announced.
        payload: u64,
        /// What a whole frame has.
        frame: u64,
    },
    /// The name.
    Key(InvalidKey),
    /// The slots of the ring.
    Ring(u32),
}

impl fmt::Display for InfoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Words => {
                write!(f, "there are {WORDS} words about a frame, and it sent another number of them")
            }
            Self::Version(version) => {
                write!(f, "it describes frames in version {version}; this program knows version {VERSION}")
            }
            Self::Hash => f.write_str("what it says about a frame was changed on the way"),
            Self::Number { found: 0, .. } => f.write_str("a frame has number 0"),
            Self::Number { found, expected } => {
                write!(f, "it sent frame {found} where frame {expected} belongs")
            }
            Self::Meta(error) => error.fmt(f),
            Self::Size { payload, frame } => {
                write!(f, "it announces {payload} bytes for a frame of {frame} and one more")
            }
            Self::Key(error) => write!(f, "its key can't be one: {error}"),
            Self::Ring(slots) => write!(f, "its ring has {slots} slots; there may be 1 to {}", RingSize::MAX),
        }
    }
}

impl core::error::Error for InfoError {}

fn last_row(meta: &FrameMeta) -> u32 {
    meta.height.saturating_sub(1)
}

fn join(hi: u32, lo: u32) -> u64 {
    u64::from(hi) << 32 | u64::from(lo)
}

#[expect(clippy::as_conversions, reason = "the upper and the lower half")]
const fn split(number: u64) -> [u32; 2] {
    [(number >> 32) as u32, number as u32]
}

/// Of what is said about a frame.
const VERSION: u32 = 1;
/// Words about a frame: version, geometry, number, time stamp, valid bytes, policy, time before sending.
pub(super) const WORDS: usize = 1 + META_WORDS + 9;
const META_WORDS: usize = 16;
/// Bytes after those of the frame.
pub(super) const VERDICT_BYTES: u64 = 1;
/// Added to the number of a frame that is asked for.
pub(super) const FETCH: u64 = 1 << 63;
