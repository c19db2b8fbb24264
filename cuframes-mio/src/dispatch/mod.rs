//! A work queue between processes: [`Dispatcher`] hands out blocks, [`Worker`] takes them. Each block goes to exactly one
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

mod server;
mod worker;

pub use cuframes_dispatch::wire::{Block, BlockId, Roi, Stats, Status, Version};
pub use cuframes_dispatch::{
    Acquired, BlockEvent, Cause, Context, Counts, Fit, Grid, GridError, Outcome, PeerFault, Scheduler,
    Server, ServerEvent, Stop, TaskConfig, TaskError, context, spatial_id,
};
pub use server::{Dispatcher, DispatcherBuilder};
pub use worker::{Next, Worker, WorkerBuilder};
