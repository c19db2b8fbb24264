//! Frames, and what is said about them, written down once more from what `docs/span.md` says.

use std::iter;

use cuframes_bridge::stream::FrameInfo;
use cuframes_bridge::wire::{Begin, Limits, Message, SnapshotId, token_hash};
use cuframes_core::{Format, FrameMeta, Policy};

/// What both sides understand.
pub(super) fn limits() -> Limits {
    let mut limits = Limits::default();
    (limits.work_bytes, limits.tokens, limits.text) = (80, 64, u32::try_from(MAX_TEXT).unwrap());
    limits
}

pub(super) fn meta() -> FrameMeta {
    FrameMeta::new(Format::GRAY8, 256, 3).unwrap()
}

/// What is known of frame `seq`; of three publishers.
pub(super) fn info(seq: u64, written_bytes: u64, pts_ns: i64) -> FrameInfo {
    let policy = if seq.is_multiple_of(2) { Policy::DROP_OLDEST } else { Policy::STRICT_WAIT };
    FrameInfo { epoch: seq % 3, seq, meta: meta(), pts_ns, written_bytes, policy, before_ns: 0 }
}

/// Bytes of a frame; each says where it is.
pub(super) fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let first = seed.wrapping_mul(31);
    iter::successors(Some(first), |last| Some(last.wrapping_add(1)))
        .map(|n| n.to_le_bytes()[0])
        .take(len)
        .collect()
}

/// What a frame begins with, as the answer to a `request`.
pub(super) fn begin(info: &FrameInfo, request: u64) -> Begin {
    let mut tokens = vec![1];
    let meta = info.meta.to_bytes();
    tokens.extend(meta.chunks(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())));
    let policy = u32::try_from(info.policy.0).unwrap();
    let long = |number: u64| [high(number), low(number)];
    tokens.extend(long(info.seq));
    tokens.extend(long(info.pts_ns.cast_unsigned()));
    tokens.extend(long(info.written_bytes));
    tokens.push(policy);
    tokens.extend(long(info.before_ns));
    let id = SnapshotId {
        model_id: info.meta.format.0,
        session: info.epoch,
        request,
        token_hash: token_hash(&tokens),
        token_count: u32::try_from(tokens.len()).unwrap(),
        layer_start: 0,
        layer_end: info.meta.height.saturating_sub(1),
    };
    Begin { id, payload_bytes: info.written_bytes.wrapping_add(1), tokens, ..Begin::default() }
}

/// The same words, with others in place of some; the hash is right.
pub(super) fn other_words(begin: Begin, change: impl FnOnce(&mut Vec<u32>)) -> Begin {
    let Begin { id, mut tokens, .. } = begin;
    change(&mut tokens);
    let id = SnapshotId {
        token_hash: token_hash(&tokens),
        token_count: u32::try_from(tokens.len()).unwrap(),
        ..id
    };
    Begin { id, tokens, ..begin }
}

pub(super) fn encoded(message: &Message) -> Vec<u8> {
    let mut bytes = Vec::new();
    message.encode(&mut bytes);
    bytes
}

/// What a peer said, as it may be shown.
pub(super) fn shown(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// A reason, now and then one that is too long to be sent as it is.
pub(super) fn reason(number: u8) -> String {
    if number >= 250 { "x".repeat(5000) } else { format!("why {number}\u{7}") }
}

/// As much of a text as is said.
pub(super) fn cut(text: &str, max: usize) -> String {
    let end = (0..=max.min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap();
    text.get(..end).unwrap().into()
}

fn high(number: u64) -> u32 {
    u32::try_from(number >> 32).unwrap()
}

fn low(number: u64) -> u32 {
    u32::try_from(number & u64::from(u32::MAX)).unwrap()
}

/// Added to the number of a frame that is asked for.
pub(super) const FETCH: u64 = 1 << 63;
/// Bytes of a reason.
pub(super) const MAX_TEXT: usize = 4096;
