//! A work queue between processes: [`Dispatcher`] hands out blocks, [`Worker`] takes them; [`StreamDispatcher`] and
//! [`StreamWorker`] do so with the frames of a stream. Each block goes to exactly one
//! worker, and to another one if that one dies, fails or is late.
//!
//! Workers need not be ours: the wire is that of `cuframes-dispatch`, which is daisy's.
//!
//! ```
//! use std::time::Duration;
//!
//! use cuframes_mio::dispatch::{Dispatcher, Fit, Grid, Next, Roi, TaskConfig, Worker};
//! use cuframes_mio::net::Endpoint;
//!
//! let mut dispatcher = Dispatcher::builder("tcp://127.0.0.1:0".parse()?).listen()?;
//! let total = Roi::new(&[0, 0], &[1080, 1920]);
//! let tile = Roi::new(&[0, 0], &[540, 960]);
//! let grid = Grid::new(total, tile.clone(), tile, Fit::Valid)?;
//! dispatcher.schedule(|scheduler| {
//!     scheduler.add_task(TaskConfig::new("detect"))?;
//!     grid.blocks("detect").try_for_each(|block| scheduler.add_block(block, &[]))?;
//!     scheduler.close_task("detect")
//! })??;
//!
//! // Usually in other processes.
//! let endpoint: Endpoint = dispatcher.endpoint().clone();
//! let worker = std::thread::spawn(move || {
//!     let mut worker = Worker::builder(&endpoint, "detect").depth(2).start()?;
//!     let mut done = 0;
//!     loop {
//!         match worker.next(None)? {
//!             Next::Block(block) => {
//!                 done += 1; // the work on block.write_roi
//!                 worker.done(&block.block_id, None)?;
//!             }
//!             Next::Stopped(_) => return Ok::<_, std::io::Error>(done),
//!             Next::Nothing => {}
//!         }
//!     }
//! });
//!
//! while !dispatcher.scheduler().is_finished() {
//!     let _event = dispatcher.next_event(None)?;
//! }
//! assert_eq!(dispatcher.scheduler().counts("detect")?.succeeded, 4);
//! dispatcher.shut_down()?;
//! assert!(matches!(worker.join(), Ok(Ok(4))));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Frames of a stream
//!
//! [`StreamDispatcher`] hands out the frames of a stream, whole or in tiles. It subscribes, and holds each frame until its blocks
//! have ended; no byte of it goes over the wire. [`StreamWorker`] maps a frame out of the ring by its number, and gives a view
//! of the tile. It takes as long as it takes: the publisher does not wait for it, and what it has is not overwritten.
//!
//! ```
//! use std::time::Duration;
//!
//! use cuframes_mio::core::{Format, FrameMeta, SubscriberMode};
//! use cuframes_mio::dispatch::{FRAMES, NextWork, StreamDispatcher, StreamWorker};
//! use cuframes_mio::{Publisher, Subscriber};
//!
//! # let dir = tempfile::tempdir()?;
//! # let key: cuframes_mio::core::Key = format!("doc-spread-{}", std::process::id()).parse()?;
//! let publisher = Publisher::builder(key.clone(), FrameMeta::new(Format::GRAY8, 64, 32)?);
//! # let publisher = publisher.run_dir(dir.path());
//! let mut publisher = publisher.create()?.serve()?;
//! let subscribe = || Subscriber::builder(key.clone());
//! # let subscribe = || subscribe().run_dir(dir.path());
//!
//! // Each of these is a process of its own, usually.
//! let subscriber = subscribe().mode(SubscriberMode::STRICT_ORDER).connect()?;
//! let builder = StreamDispatcher::builder("tcp://127.0.0.1:0".parse()?);
//! let mut dispatcher = builder.tile(16, 64).frames(1).start(subscriber)?;
//!
//! let (endpoint, subscriber) = (dispatcher.endpoint().clone(), subscribe().no_ack().connect()?);
//! let worker = std::thread::spawn(move || {
//!     let mut worker = StreamWorker::start(&endpoint, FRAMES, subscriber, |settings| settings.depth(2))?;
//!     let mut sum = 0;
//!     loop {
//!         match worker.next(None)? {
//!             NextWork::Work(work) => {
//!                 let rows = work.rows(0).into_iter().flatten();
//!                 let of_tile: u64 = rows.flatten().map(|pixel| u64::from(*pixel)).sum();
//!                 // Whether it was this frame all the time: only then is the sum worth something.
//!                 if worker.done(work)?.is_ok() {
//!                     sum += of_tile;
//!                 }
//!             }
//!             NextWork::Stopped(_) => return Ok::<_, cuframes_mio::dispatch::StreamWorkError>(sum),
//!             NextWork::Nothing => {}
//!         }
//!     }
//! });
//!
//! let mut claim = publisher.claim()?;
//! claim.bytes_mut().fill(2);
//! claim.commit();
//! while !dispatcher.is_finished() {
//!     let _event = dispatcher.next_event(Some(Duration::from_secs(5)))?;
//! }
//! assert_eq!(dispatcher.counts().done, 1);
//! dispatcher.shut_down()?;
//! assert!(matches!(worker.join(), Ok(Ok(sum)) if sum == 64 * 32 * 2));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod feed;
mod parts;
mod server;
mod stream;
mod worker;

pub use cuframes_dispatch::wire::{Block, BlockId, Roi, Stats, Status, Version};
pub use cuframes_dispatch::{
    Acquired, BlockEvent, Cause, Context, Counts, Fit, FrameCounts, Grid, GridError, NoPart, Outcome, Part,
    PeerFault, Scheduler, Server, ServerEvent, Stop, StreamTask, TaskConfig, TaskError, context, spatial_id,
};
pub use feed::{Feed, FeedEvent, WhenFull};
pub use parts::{NextWork, StreamWorkError, StreamWorker, Work};
pub use server::{Dispatcher, DispatcherBuilder};
pub use stream::{FRAMES, StreamDispatchError, StreamDispatcher, StreamDispatcherBuilder};
pub use worker::{Next, Worker, WorkerBuilder};
