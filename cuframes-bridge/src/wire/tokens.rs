//! The hash of a token history: FNV-1a over the tokens' little-endian bytes, from a start value of its own.

/// Hash of no tokens. It is not the start value of the published FNV-1a, so a library gives other hashes.
pub const EMPTY_HASH: u64 = 0x1465_0fb0_739d_0383;

/// Hash of a whole history.
#[must_use]
pub fn token_hash(tokens: &[u32]) -> u64 {
    extend_hash(EMPTY_HASH, tokens)
}

/// Hash of a history with these tokens behind those that have the hash `hash`.
#[must_use]
pub fn extend_hash(hash: u64, tokens: &[u32]) -> u64 {
    let bytes = tokens.iter().flat_map(|token| token.to_le_bytes());
    bytes.fold(hash, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(PRIME))
}

/// That of FNV.
const PRIME: u64 = 1_099_511_628_211;
