//! Frames in GPU memory, from publisher to subscriber, each in a process of its own, with a driver double.
//!
//! Here because this is the package in which the crates meet: neither `cuframes-mio` nor `cuframes-cuda` knows the other.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a failure ends the test"
)]

mod faults;
mod program;
mod roles;
mod script;
mod share;
mod stage;
