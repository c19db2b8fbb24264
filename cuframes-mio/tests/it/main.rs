//! Tests of the public API, each file one side of it. One program, so that they share their helpers.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a failure ends the test, which says what it skips"
)]

mod access;
mod aside;
mod barrier;
mod bridge;
mod bridge_again;
mod bridge_ends;
mod bridge_fetch;
mod bridge_hosts;
mod bridge_limits;
mod bridge_newest;
mod bridge_peers;
mod bridge_raw;
mod bridge_roads;
mod bridge_strict;
mod bulk;
mod by_number;
mod claims;
mod common;
mod conformance_publisher;
mod conformance_subscriber;
mod descriptors;
mod embed;
mod events;
mod evictions;
mod fork;
mod frozen;
mod given;
mod gone;
mod handshakes;
mod host_memory;
mod hostile;
mod hot_path;
mod limits;
mod loops;
mod lost;
mod namespaces;
mod net;
mod net_bulk;
mod net_carriers;
mod observe;
mod other;
mod processes;
mod raw;
mod raw_socket;
mod reconnect;
mod reconnect_loops;
mod reconnect_system;
mod relay;
mod scribble;
mod share;
mod slow;
mod spread;
mod strays;
mod streams;
mod traces;
