//! Shares video frames between processes on one Linux host, without copying them.
//!
//! The protocol itself is `cuframes-core`, which makes no system call. This crate moves its bytes, file descriptors and
//! time: sockets, descriptor passing, shared memory, frames in host memory, recovery after a crash, wake-ups. `§`
//! numbers refer to the protocol document, `D-n` and `X-n` to our decisions and extensions; all are in
//! `docs/protocol.md`.
//!
//! # Example
//!
//! ```
//! use std::time::Duration;
//!
//! use cuframes_mio::core::{Format, FrameMeta, Key};
//! use cuframes_mio::{Publisher, Subscriber};
//!
//! # let dir = tempfile::tempdir()?;
//! # let key: Key = format!("doc-{}", std::process::id()).parse()?;
//! let meta = FrameMeta::new(Format::GRAY8, 640, 480)?;
//! let publisher = Publisher::builder(key.clone(), meta).run_dir(dir.path()).create()?;
//! let mut publisher = publisher.serve()?; // its control plane runs in a thread
//!
//! // Usually in another process.
//! let mut subscriber = Subscriber::builder(key).run_dir(dir.path()).connect()?;
//!
//! let mut claim = publisher.claim()?;
//! claim.bytes_mut().fill(7);
//! claim.commit();
//!
//! let frame = subscriber.next(Duration::from_secs(5))?.ok_or("no frame in time")?;
//! assert_eq!(frame.seq(), 1);
//! assert!(frame.bytes().is_some_and(|bytes| bytes.iter().all(|byte| *byte == 7)));
//! # drop((frame, subscriber));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`ServedPublisher`] and [`Subscriber::next`] block. In an event loop use [`Publisher`] and [`Subscriber`] as an
//! [`EventSource`] of your own mio `Poll`, or as one file descriptor in a [`Pollable`]. `docs/embedding.md` compares them, and
//! `examples/` has a program for each.
//!
//! # Events
//!
//! What happens is told through [`tracing`], by the thread that serves the stream or calls the subscriber. A `tracing` subscriber
//! that blocks, because nobody reads where it writes, holds that thread up: nobody can join or leave, and no deadline is
//! kept. So it must not: give it a queue that drops what it has no room for, such as `tracing-appender`'s `non_blocking`.
//!
//! # Memory of a device
//!
//! [`Publisher`], [`Subscriber`], [`Claim`] and [`Frame`] have the backend of the frames as a parameter: any that implements
//! the traits of [`core::gpu`], and [`HostMemory`] if none is given. A device works on streams, so its frames are
//! [committed on](Claim::commit_on) one and [released after](Frame::release_after) one, and neither waits for it:
//!
//! ```
//! use std::os::fd::OwnedFd;
//! use std::time::Duration;
//!
//! use cuframes_mio::core::gpu::{Export, Import};
//! use cuframes_mio::{Error, ServedPublisher, Subscriber};
//!
//! fn publish<B: Export<Fd = OwnedFd>>(
//!     publisher: &mut ServedPublisher<B>,
//!     stream: &B::Stream,
//!     decode: impl FnOnce(u64, &B::Stream), // writes a frame at this device address
//! ) -> Result<u64, Error> {
//!     let claim = publisher.claim()?;
//!     decode(claim.device_ptr(), stream);
//!     claim.commit_on(stream)
//! }
//!
//! fn analyse<B: Import<Fd = OwnedFd>>(
//!     subscriber: &mut Subscriber<B>,
//!     stream: &B::Stream,
//!     detect: impl FnOnce(u64, &B::Stream), // reads the frame at this device address
//! ) -> Result<(), Error> {
//!     if let Some(frame) = subscriber.next(Duration::from_secs(1))? {
//!         frame.wait_on(stream)?;
//!         detect(frame.device_ptr(), stream);
//!         frame.release_after(stream)?;
//!     }
//!     Ok(())
//! }
//! ```

#[cfg(not(target_os = "linux"))]
compile_error!("cuframes is for Linux: it needs memfd seals, pidfd, eventfd and renameat2");

mod aside;
mod attach;
pub mod barrier;
pub mod bridge;
mod builder;
mod claim;
mod claim_bells;
mod clock;
mod conn;
mod connect;
pub mod dispatch;
mod entrance;
mod error;
mod fdpass;
mod frame;
mod handover;
mod held;
mod host;
mod listen;
mod liveness;
mod lock;
mod memfd;
mod name;
pub mod net;
mod observe;
mod pen;
mod penalties;
mod pollable;
mod prefetch;
mod processes;
mod producer;
mod publisher;
mod pursuit;
mod reaper;
mod reconnect;
mod report;
mod rundir;
mod search;
mod served;
mod service;
mod shared;
mod shm;
mod stale;
mod stats;
mod subscriber;
mod subscription;
mod tally;
#[cfg(test)]
mod testing;
mod upkeep;
mod wake;
mod watch;

pub use aside::SetAside;
pub use builder::PublisherBuilder;
pub use claim::Claim;
pub use clock::now;
pub use connect::SubscriberBuilder;
pub use cuframes_core as core;
pub use cuframes_core::ring::{Accusation, ClaimAsError, FrameLost, Stalled};
pub use cuframes_core::roster::Member;
pub use error::{Distrust, Error, Holder};
pub use frame::Frame;
pub use host::{HostError, HostMemory, HostOr, HostOrError, HostOrMapping, HostPool, HostView};
pub use observe::{Liveness, Observer, Sighting};
pub use pollable::{EventSource, Pollable, Turn};
pub use publisher::Publisher;
pub use reconnect::{Reconnect, StreamEvent};
pub use served::{NotEnough, ServedPublisher};
pub use shared::{Leave, MemberEvent};
pub use stale::remove_leftovers;
pub use stats::{Departures, PublisherStats, Refusals};
pub use subscriber::Subscriber;
pub use tally::SubscriberStats;

/// The examples of the READMEs and of the guide to embedding are tests.
#[cfg(doctest)]
mod documents {
    #[doc = include_str!("../../README.md")]
    mod project {}
    #[doc = include_str!("../README.md")]
    mod readme {}
    #[doc = include_str!("../../docs/embedding.md")]
    mod embedding {}
    #[doc = include_str!("../../docs/span.md")]
    mod span {}
}
