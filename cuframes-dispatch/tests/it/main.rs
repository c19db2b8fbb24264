//! The work queue on virtual time: servers, workers and peers that are written by hand, joined by pipes.

#![expect(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a failure ends the test")]

mod abandoning;
mod bytes;
mod decoding;
mod ending;
mod faults;
mod frames;
mod grid;
mod holding;
mod holding_frames;
mod model;
mod parking;
mod parts;
mod pieces;
mod properties;
mod retries;
mod streams;
mod together;
mod vectors;
mod working;
mod world;
