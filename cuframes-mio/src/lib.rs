//! Shares video frames between processes on one Linux host, without copying them.
//!
//! The protocol itself is `cuframes-core`, which makes no system call. This crate moves its bytes, file descriptors and
//! time: sockets, descriptor passing, shared memory, frames in host memory, recovery after a crash, wake-ups. `§`
//! numbers refer to the protocol document, `D-n` and `X-n` to our decisions and extensions; all are in
//! `docs/protocol.md`.

#[cfg(not(target_os = "linux"))]
compile_error!("cuframes is for Linux: it needs memfd seals, pidfd, eventfd and renameat2");

mod attach;
mod builder;
mod claim;
mod clock;
mod conn;
mod connect;
mod error;
mod fdpass;
mod frame;
mod host;
mod listen;
mod liveness;
mod name;
mod pollable;
mod publisher;
mod rundir;
mod service;
mod shared;
mod shm;
mod stale;
mod subscriber;
#[cfg(test)]
mod testing;
mod wake;

pub use builder::PublisherBuilder;
pub use claim::Claim;
pub use clock::now;
pub use connect::SubscriberBuilder;
pub use cuframes_core as core;
pub use cuframes_core::ring::{FrameLost, Stalled};
pub use cuframes_core::roster::Member;
pub use error::{Distrust, Error, Holder};
pub use frame::Frame;
pub use pollable::{EventSource, Pollable, Turn};
pub use publisher::{NotEnough, Publisher, ServedPublisher};
pub use subscriber::Subscriber;
