//! The start-up barrier of cuframes: nobody misses the first frame.
//!
//! A [`Frontend`] (the publisher) waits until N participants (its consumers) have said HELLO, got INIT, said READY and
//! registered; then the first frame goes out. There is one deadline, and when it passes the [`Fault`] says who is missing
//! and how far they came. Everything here is pure: no system call, no clock, no thread, no `unsafe`; both sides are a
//! [`Machine`](cuframes_core::streams::Machine), driven by `cuframes-mio` or by your own loop.
//!
//! On the wire it is the start-up handshake of TokenSpeed (and, but for field names, of vLLM) between a frontend and its
//! engines: msgpack maps over the subset of ZMTP 3 that ZeroMQ sockets without security use. `docs/start.md` has the bytes.
//!
//! | there | here |
//! |---|---|
//! | engine, engine index | participant, [`index`](ParticipantConfig::index) |
//! | [`inputs`](message::Addresses::inputs) | where participants register; after the first, where the stream's socket is |
//! | [`outputs`](message::Addresses::outputs) | where results or wake-ups go |
//! | [`parallel_config`](message::Init::parallel_config) | the key of the stream and the format of its frames |
//! | [`max_num_seqs`](message::Registration::max_num_seqs) | frames that the participant may hold |
//! | `data_parallel_rank`, `data_parallel_size` | its place among the N |
//!
//! # Example
//!
//! A frontend and one participant; a real driver has a socket where this has a pair of numbers.
//!
//! ```
//! use std::time::Duration;
//!
//! use cuframes_barrier::message::{Init, Registration};
//! use cuframes_barrier::{Frontend, FrontendConfig, FrontendEvent, Participant, ParticipantConfig, ParticipantEvent};
//! use cuframes_core::Instant;
//! use cuframes_core::streams::{Action, Machine};
//!
//! let now = Instant::ZERO;
//! let mut init = Init::default();
//! init.addresses.inputs.push("input".into());
//! init.addresses.outputs.push("output".into());
//! let mut frontend = Frontend::new(now, FrontendConfig::new(1, Duration::from_secs(30), init))?;
//! let config = ParticipantConfig::new(0, "handshake", Duration::from_secs(30));
//! let mut participant = Participant::new(now, config);
//!
//! let mut sockets = Vec::new();
//! let started = loop {
//!     while let Some(action) = participant.poll_action() {
//!         if let Action::Connect { conn, address, .. } = action {
//!             let listener = ["handshake", "input", "output"].iter().position(|at| *at == address);
//!             let peer = frontend.handle_accepted(now, listener.ok_or("unknown address")?);
//!             sockets.push((conn, peer.ok_or("not wanted")?));
//!             participant.handle_connected(now, conn);
//!         }
//!     }
//!     for (ours, theirs) in &sockets {
//!         while let Some(bytes) = participant.poll_transmit(*ours).map(<[u8]>::to_vec) {
//!             participant.transmitted(*ours, bytes.len());
//!             frontend.handle_bytes(now, *theirs, &bytes);
//!         }
//!         while let Some(bytes) = frontend.poll_transmit(*theirs).map(<[u8]>::to_vec) {
//!             frontend.transmitted(*theirs, bytes.len());
//!             participant.handle_bytes(now, *ours, &bytes);
//!         }
//!     }
//!     if let Some(ParticipantEvent::Init(_)) = participant.poll_event() {
//!         // Here a consumer opens its stream.
//!         participant.ready(now, Registration::new(0, 1));
//!     }
//!     if let Some(FrontendEvent::Started(participants)) = frontend.poll_event() {
//!         break participants;
//!     }
//! };
//! assert_eq!(started[0].index, 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod config;
mod event;
mod fault;
mod frontend;
mod held;
pub mod message;
pub mod msgpack;
mod participant;
mod roll;
mod socket;
pub mod zmtp;

pub use config::{ConfigError, FrontendConfig};
pub use event::{FrontendEvent, Registered};
pub use fault::{Fault, JoinError, JoinStage, Stage};
pub use frontend::Frontend;
pub use participant::{Participant, ParticipantConfig, ParticipantEvent};
pub use roll::Progress;
pub use socket::Socket;

/// The examples of the README are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
