//! The bytes of the bridge: vectors, rules, hostile streams, any messages in any pieces, and a second encoder.

#![expect(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a failure ends the test")]

mod activations;
mod any;
mod bytes;
mod checks;
mod differential;
mod hostile;
mod layers_hostile;
mod layers_joining;
mod layers_peers;
mod layers_pipeline;
mod layers_properties;
mod layers_requests;
mod layers_sessions;
mod layers_snapshots;
mod layers_snapshots_asked;
mod layers_working;
mod layers_world;
mod pair;
mod properties;
mod rules;
mod streams;
mod vectors;
