//! The start-up barrier on virtual time: frontends, participants and peers that are written by hand, joined by pipes.

#![expect(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a failure ends the test")]

mod bytes;
mod decoding;
mod faults;
mod hostile;
mod joining;
mod notices;
mod properties;
mod restarts;
mod skipped;
mod solo;
mod starting;
mod vectors;
mod world;
