//! CUDA memory against a double of the driver, in several processes.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a failure ends the test"
)]

mod conformance;
mod device;
mod double;
mod events;
mod faults;
mod fork;
mod handles;
mod memory;
mod missing;
mod probes;
mod remote;
mod roles;
mod stuck;
