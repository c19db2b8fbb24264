//! Sans-IO core of the cuframes protocol, version 1.
//!
//! Everything here is pure: no system call, no clock, no thread, no `unsafe`. A driver (see `cuframes-mio`) moves
//! bytes, file descriptors and time in, and bytes, file descriptors and events out. `§` numbers refer to the protocol
//! document, `D-n` and `X-n` to our decisions and extensions; all are in `docs/protocol.md`.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod config;
pub mod error;
pub mod key;
mod number;
pub mod ring;
pub mod roster;
pub mod session;
pub mod shm;
pub mod time;
pub mod wire;

pub use config::{Backend, Features, Ownership, Policy, RingSize, SubscriberBit, SubscriberMode, Timeouts};
pub use error::{Gone, Misuse, Refused, Violation};
pub use key::Key;
pub use time::Instant;
pub use wire::meta::{Format, FrameMeta};
