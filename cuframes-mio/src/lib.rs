//! Shares video frames between processes on one Linux host, without copying them.
//!
//! The protocol itself is `cuframes-core`, which makes no system call. This crate moves its bytes, file descriptors and
//! time: sockets, descriptor passing, shared memory, frames in host memory, recovery after a crash, wake-ups. `§`
//! numbers refer to the protocol document, `D-n` and `X-n` to our decisions and extensions; all are in
//! `docs/protocol.md`.

#[cfg(not(target_os = "linux"))]
compile_error!("cuframes is for Linux: it needs memfd seals, pidfd, eventfd and renameat2");

mod clock;
mod error;
mod fdpass;
mod host;
mod listen;
mod liveness;
mod name;
mod rundir;
mod shm;
mod stale;
#[cfg(test)]
mod testing;
mod wake;

pub use error::{Distrust, Error, Holder};
pub use liveness::PeerCred;
