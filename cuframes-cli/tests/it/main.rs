//! Tests of the program from outside. One test program, so that the files share their helpers.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stderr,
    reason = "a failure ends the test, which says what it skips"
)]

mod barrier;
mod bench;
mod blocked;
mod bridge;
mod demo;
mod dispatch;
mod doctor;
mod ends;
mod errors;
mod exporter;
mod fetch;
mod figures;
mod handing;
mod hangs;
mod json;
mod look;
mod players;
mod reconnect;
mod record;
mod reference;
mod snapshot;
mod spread;
mod stage;
mod stills;
mod targets;
mod terminal;
mod top;
mod videos;
mod view;
mod watcher;
