//! Frames over a link: a sender and a receiver on virtual time.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::as_conversions,
    reason = "this is a test program"
)]

mod answering;
mod ending;
mod fetching;
mod hostile;
mod properties;
mod rings;
mod stories;
mod world;
