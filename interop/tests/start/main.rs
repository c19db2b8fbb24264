//! The start-up handshake against what it was taken from: the frontend of `tokenspeed-client`, the messages of
//! `tokenspeed-wire`, and participants over zeromq-rs, and over libzmq and msgspec in Python.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stderr,
    reason = "a failure ends the test"
)]

mod bytes;
mod cases;
mod faults;
mod frontends;
mod harmless;
mod joins;
mod python;
mod story;
