//! The bytes of the bridge: vectors, rules, hostile streams, any messages in any pieces, and a second encoder.

#![expect(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a failure ends the test")]

mod activations;
mod any;
mod bytes;
mod checks;
mod differential;
mod hostile;
mod pair;
mod properties;
mod rules;
mod streams;
mod vectors;
