//! Tests of the driver through its safe side, each file one topic, and of the library as C sees it. One program, so that
//! they share their helpers.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a failure ends the test, which says what it skips"
)]

mod c_callers;
mod common;
mod configuration;
mod contexts;
mod copies;
mod cudarc_callers;
mod devices;
mod events;
mod faults;
mod ipc;
mod memory;
mod pointers;
mod reports;
mod streams;
mod vmm;
