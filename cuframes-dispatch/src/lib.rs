//! A work queue over a stream, or over a grid: each block goes to exactly one of N workers, and to another one if that one
//! dies, fails or is late.
//!
//! A [`Server`] has tasks and their blocks in a [`Scheduler`] and hands them out; a [`Worker`] takes them. Everything here is
//! pure: no system call, no clock, no thread, no `unsafe`; both sides are a [`Machine`](cuframes_core::streams::Machine),
//! driven by `cuframes-mio` or by your own loop.
//!
//! On the wire it is the protocol of daisy 2, in the version of its release or in the one before ([`wire::Version`]), so
//! daisy's workers can work for this server, and this worker for daisy's server.
//!
//! # Example
//!
//! A server and a worker; a real driver has a socket where this has a pair of numbers.
//!
//! ```
//! use cuframes_core::Instant;
//! use cuframes_core::streams::{Action, Machine};
//! use cuframes_dispatch::wire::{Roi, Version};
//! use cuframes_dispatch::{
//!     BlockEvent, Fit, Grid, Outcome, Server, ServerEvent, TaskConfig, Worker, WorkerConfig, WorkerEvent,
//! };
//!
//! let now = Instant::ZERO;
//! let mut server = Server::new(Version::W2);
//! let grid = Grid::new(Roi::new(&[0], &[100]), Roi::new(&[0], &[10]), Roi::new(&[0], &[10]), Fit::Valid)?;
//! server.schedule(now, |scheduler| {
//!     scheduler.add_task(TaskConfig::new("count"))?;
//!     grid.blocks("count").try_for_each(|block| scheduler.add_block(block, &[]))?;
//!     scheduler.close_task("count")
//! })?;
//! let mut worker = Worker::new(now, WorkerConfig::new("anywhere", "count"));
//! let Some(Action::Connect { conn, .. }) = worker.poll_action() else { return Err("it connects".into()) };
//! let peer = server.handle_accepted(now, 0).ok_or("it is let in")?;
//! worker.handle_connected(now, conn);
//!
//! let mut done = 0;
//! while !worker.is_finished() {
//!     while let Some(bytes) = worker.poll_transmit(conn).map(<[u8]>::to_vec) {
//!         worker.transmitted(conn, bytes.len());
//!         server.handle_bytes(now, peer, &bytes);
//!     }
//!     while let Some(bytes) = server.poll_transmit(peer).map(<[u8]>::to_vec) {
//!         server.transmitted(peer, bytes.len());
//!         worker.handle_bytes(now, conn, &bytes);
//!     }
//!     if let Some(WorkerEvent::Block { block, .. }) = worker.poll_event() {
//!         worker.done(now, &block.block_id, None); // the work
//!     }
//!     while let Some(event) = server.poll_event() {
//!         if let ServerEvent::Block(BlockEvent::Ended { outcome: Outcome::Success, .. }) = event {
//!             done += 1;
//!         }
//!     }
//! }
//! assert_eq!(done, 10);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod context;
mod frames;
mod grid;
mod holders;
mod parking;
mod peer;
mod scheduler;
mod server;
mod stream;
mod task;
pub mod wire;
mod worker;

pub use context::Context;
pub use frames::{AddError, FrameCounts, FrameEnd, Frames, NotAdded};
pub use grid::{Fit, Grid, GridError, spatial_id};
pub use scheduler::Scheduler;
pub use server::{PeerFault, Server, ServerEvent};
pub use stream::{NoPart, NoStreamTask, Part, StreamTask};
pub use task::{Acquired, BlockEvent, Cause, Counts, Outcome, Released, TaskConfig, TaskError};
pub use worker::{Stop, Worker, WorkerConfig, WorkerEvent};

/// The examples of the README are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
