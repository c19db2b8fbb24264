//! Test doubles, golden vectors and oracles of cuframes. Not published.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::missing_panics_doc,
    reason = "a test kit stops the test that misuses it"
)]

pub mod chaos;
pub mod conformance;
pub mod fickle;
pub mod heap;
pub mod layout;
#[cfg(loom)]
pub mod loom;
pub mod mock_gpu;
pub mod model;
pub mod oracle;
pub mod pair;
pub mod pipe;
pub mod solo;
pub mod step;
pub mod strategies;
pub mod studio;
pub mod vectors;

/// The examples of the README are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
