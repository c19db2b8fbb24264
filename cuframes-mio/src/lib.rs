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
//! [`EventSource`] of your own mio `Poll`, or as one file descriptor in a [`Pollable`].
//!
//! # Events
//!
//! What happens is told through [`tracing`], by the thread that serves the stream or calls the subscriber. A `tracing` subscriber
//! that blocks, because nobody reads where it writes, holds that thread up: nobody can join or leave, and no deadline is
//! kept. So it must not: give it a queue that drops what it has no room for, such as `tracing-appender`'s `non_blocking`.

#[cfg(not(target_os = "linux"))]
compile_error!("cuframes is for Linux: it needs memfd seals, pidfd, eventfd and renameat2");

mod attach;
mod builder;
mod claim;
mod claim_bells;
mod clock;
mod conn;
mod connect;
mod entrance;
mod error;
mod fdpass;
mod frame;
mod handover;
mod host;
mod listen;
mod liveness;
mod memfd;
mod name;
mod penalties;
mod pollable;
mod processes;
mod publisher;
mod pursuit;
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

pub use builder::PublisherBuilder;
pub use claim::Claim;
pub use clock::now;
pub use connect::SubscriberBuilder;
pub use cuframes_core as core;
pub use cuframes_core::ring::{Accusation, FrameLost, Stalled};
pub use cuframes_core::roster::Member;
pub use error::{Distrust, Error, Holder};
pub use frame::Frame;
pub use host::{HostError, HostMemory, HostPool, HostView};
pub use pollable::{EventSource, Pollable, Turn};
pub use publisher::Publisher;
pub use reconnect::{Reconnect, StreamEvent};
pub use served::{NotEnough, ServedPublisher};
pub use shared::{Leave, MemberEvent};
pub use stats::{Departures, PublisherStats, Refusals};
pub use subscriber::Subscriber;
pub use tally::SubscriberStats;

/// The examples of the README are tests.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
mod readme {}
