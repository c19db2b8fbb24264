//! Golden bytes of the protocol, from `vectors/`: each file holds hexadecimal text, `#` starts a comment line.

use std::sync::LazyLock;

/// The bytes of vector `name`, without its extension.
///
/// # Panics
/// If there is no such vector.
#[must_use]
pub fn vector(name: &str) -> Vec<u8> {
    let Some((_, bytes)) = PARSED.iter().find(|(known, _)| *known == name) else {
        panic!("no vector {name:?}")
    };
    bytes.clone()
}

/// The names of all vectors.
pub fn names() -> impl Iterator<Item = &'static str> {
    VECTORS.iter().map(|(name, _)| *name)
}

/// Parsed once: fuzzers ask for them all the time.
static PARSED: LazyLock<Vec<(&str, Vec<u8>)>> =
    LazyLock::new(|| VECTORS.iter().map(|(name, text)| (*name, parse(text))).collect());

fn parse(text: &str) -> Vec<u8> {
    let digits: String =
        text.lines().filter(|line| !line.starts_with('#')).flat_map(str::split_whitespace).collect();
    let nibbles: Vec<u8> = digits.chars().map(|c| u8::try_from(c.to_digit(16).unwrap()).unwrap()).collect();
    nibbles.chunks_exact(2).map(|pair| pair.iter().fold(0, |byte, nibble| byte << 4 | nibble)).collect()
}

macro_rules! vectors {
    ($($name:literal),* $(,)?) => {
        const VECTORS: &[(&str, &str)] = &[$(($name, include_str!(concat!("../vectors/", $name, ".hex")))),*];
    };
}

vectors!(
    "error_protocol",
    "event_fd_pool",
    "event_fd_wake",
    "hello_req_features",
    "hello_req_nv",
    "hello_req_v2",
    "hello_resp_features",
    "hello_resp_ok",
    "hello_resp_refused",
    "oversize",
    "ping",
    "pong",
    "region_empty",
    "shutdown_normal",
    "subscribe_req",
    "subscribe_resp",
    "subscribe_resp_full",
    "subscribe_resp_u32",
    "unsubscribe",
);
