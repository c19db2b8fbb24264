//! Tests of the public API, each file one side of it. One program, so that they share their helpers.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a failure ends the test, which says what it skips"
)]

mod common;
mod embed;
mod fork;
mod gone;
mod hostile;
mod hot_path;
mod loops;
mod processes;
mod reconnect;
mod reconnect_loops;
mod reconnect_system;
mod share;
mod traces;
