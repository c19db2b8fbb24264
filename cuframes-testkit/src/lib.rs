//! Test doubles, golden vectors and oracles of cuframes. Not published.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test kit stops the test that misuses it")]

pub mod heap;
pub mod vectors;
