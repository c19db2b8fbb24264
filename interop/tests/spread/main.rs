//! The work queue against what it was taken from: workers and the server of the package `daisy` in Python.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stderr,
    reason = "a failure ends the test"
)]

mod blocks;
mod bytes;
mod drains;
mod hostile;
mod ours;
mod program;
mod raw;
mod speed;
mod tasks;
mod theirs;
