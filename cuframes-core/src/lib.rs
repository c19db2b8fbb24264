//! Sans-IO core of the cuframes protocol, version 1.
//!
//! Everything here is pure: no system call, no clock, no thread, no `unsafe`. A driver (see `cuframes-mio`) moves
//! bytes, file descriptors and time in, and bytes, file descriptors and events out. `§` numbers refer to the protocol
//! document, `D-n` and `X-n` to our decisions and extensions; all are in `docs/protocol.md`.
//!
//! | module | what it is |
//! |---|---|
//! | [`wire`] | the ten messages of the socket (§3) |
//! | [`session`] | the two state machines that speak them (§4); the driving contract stands at [`session::Session`] |
//! | [`roster`] | who is subscribed: the only thing that the sessions of one publisher share |
//! | [`shm`] | the shared region as atomic words (§2) |
//! | [`ring`] | the writer and the reader of these words (§5) |
//! | [`gpu`] | what a kind of frame memory can do; drivers call it |
//! | [`streams`] | the verbs of the protocols beside this one, which speak on several byte streams at once |
//! | [`text`] | texts that have a longest length |
//!
//! # Example
//!
//! A whole stream in ordinary memory. A driver maps the region instead, and learns from the sessions who joins; the
//! handshake itself is in the example of [`session`].
//!
//! ```
//! use std::sync::Arc;
//! use std::sync::atomic::AtomicU64;
//! use std::time::Duration;
//!
//! use cuframes_core::gpu::EventHandle;
//! use cuframes_core::ring::{Outside, RingReader, RingWriter, Seat};
//! use cuframes_core::roster::Roster;
//! use cuframes_core::session::SubscribeRequest;
//! use cuframes_core::shm::{RegionWords, StreamHeader};
//! use cuframes_core::{
//!     Backend, Features, Format, FrameMeta, Instant, Ownership, Policy, RingSize, SubscriberMode,
//! };
//!
//! /// What the subscriber's driver supplies.
//! #[derive(Debug)]
//! struct Driver;
//!
//! impl Outside for Driver {
//!     fn now(&self) -> Instant {
//!         Instant::ZERO
//!     }
//!     fn wake_publisher(&self) {}
//! }
//!
//! let header = StreamHeader {
//!     lib_version: [0, 1, 0],
//!     producer_pid: 1234,
//!     ring_size: RingSize::new(4).ok_or("1 to 16")?,
//!     ownership: Ownership::LIBRARY,
//!     policy: Policy::DROP_OLDEST,
//!     meta: FrameMeta::new(Format::NV12, 1920, 1080)?,
//!     ipc_event_handle: EventHandle::NONE,
//!     features: Features::LEASE,
//!     backend: Backend::HOST,
//!     epoch: 1,
//! };
//! let region = Arc::new(RegionWords::<AtomicU64>::zeroed());
//! header.write(&region);
//!
//! // The publisher: control plane and hot path.
//! let mut roster = Roster::new(Arc::clone(&region), Duration::from_secs(10));
//! let members = Arc::clone(roster.membership());
//! let mut writer = RingWriter::new(Arc::clone(&region), members, header.ring_size, header.policy);
//!
//! // A subscriber: what it asked for, what it got, and its reader.
//! let request = SubscribeRequest {
//!     name: "detector".parse()?,
//!     cuda_device: -1,
//!     mode: SubscriberMode::NEWEST_ONLY,
//!     features: Features::LEASE,
//! };
//! let subscribed = roster.admit(5678, request).map_err(|code| code.to_string())?;
//! let initial_seq = subscribed.initial_seq.resolve(0);
//! let seat = Seat::new(region, Driver, header.ring_size, subscribed.bit, initial_seq, Features::LEASE, false);
//! let mut reader = RingReader::new(seat, SubscriberMode::NEWEST_ONLY);
//!
//! let claim = writer.claim()?;
//! // Here the frame is written into the memory of slot `claim.slot()`.
//! let committed = claim.commit(40_000_000, header.meta.frame_size_bytes);
//! let frame = reader.next().ok_or("a frame was published")?;
//! assert_eq!((frame.seq(), frame.pts_ns()), (committed.seq, 40_000_000));
//! frame.release()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod config;
pub mod error;
pub mod gpu;
pub mod key;
mod number;
pub mod ring;
pub mod roster;
pub mod session;
pub mod shm;
pub mod streams;
pub mod text;
pub mod time;
pub mod wire;

pub use config::{Backend, Features, Ownership, Policy, RingSize, SubscriberBit, SubscriberMode, Timeouts};
pub use error::{Gone, Misuse, Refused, Violation};
pub use key::Key;
pub use time::Instant;
pub use wire::ShutdownReason;
pub use wire::meta::{Format, FrameMeta};
pub use wire::tile::{Tile, TileError, Tiles};

/// The examples of the README are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
