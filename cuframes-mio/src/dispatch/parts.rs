//! [`StreamWorker`]: takes blocks of frames, and maps them.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};
use std::time::Duration;

use cuframes_core::gpu::Import;
use cuframes_core::ring::FrameLost;
use cuframes_core::wire::meta::Plane;
use cuframes_core::{Features, Key, Tile};
use cuframes_dispatch::wire::Block;
use cuframes_dispatch::{Part, Stop, StreamTask};

use super::worker::{Next, Worker, WorkerBuilder};
use crate::clock;
use crate::error::Error;
use crate::frame::Frame;
use crate::host::HostMemory;
use crate::net::Endpoint;
use crate::subscriber::Subscriber;

/// A part of a frame to work on. Say [`done`](StreamWorker::done) or [`failed`](StreamWorker::failed) about it; just dropping
/// it says nothing, and keeps it from others until the dispatcher's timeout.
#[derive(Debug)]
pub struct Work<B: Import<Fd = OwnedFd> = HostMemory> {
    block: Box<Block>,
    part: Part,
    frame: Arc<Frame<B>>,
    planes: Vec<Plane>,
}

impl<B: Import<Fd = OwnedFd>> Work<B> {
    /// The block, as the dispatcher sent it.
    #[must_use]
    pub fn block(&self) -> &Block {
        &self.block
    }

    /// The frame's number.
    #[must_use]
    pub const fn seq(&self) -> u64 {
        self.part.seq
    }

    /// Which part of the frame, in pixels.
    #[must_use]
    pub const fn tile(&self) -> Tile {
        self.part.tile
    }

    /// The frame. Other works may have it, too.
    #[must_use]
    pub fn frame(&self) -> &Frame<B> {
        &self.frame
    }

    /// The tile's part of each plane: offsets are those in the frame, so that with [`Frame::device_ptr`] they are addresses
    /// on the device.
    #[must_use]
    pub fn planes(&self) -> &[Plane] {
        &self.planes
    }

    /// The tile's rows in plane `index`; `None` in the memory of a device, or past the last plane.
    #[must_use]
    pub fn rows(&self, index: usize) -> Option<impl Iterator<Item = &[u8]>> {
        self.frame.rows(*self.planes.get(index)?)
    }
}

/// What [`StreamWorker::next`] gives.
#[derive(Debug)]
#[expect(clippy::exhaustive_enums, reason = "whoever takes work has to deal with all of it")]
pub enum NextWork<B: Import<Fd = OwnedFd> = HostMemory> {
    /// Something to work on.
    Work(Work<B>),
    /// There is nothing more to do.
    Stopped(Stop),
    /// Nothing came in time.
    Nothing,
}

/// Why a worker can't go on.
#[derive(Debug)]
#[non_exhaustive]
pub enum StreamWorkError {
    /// The stream does not serve those who take frames by their number: it has no LEASE or no NO_ACK.
    ByNumber {
        /// The stream.
        key: Key,
    },
    /// The stream was lost.
    Stream(Error),
    /// The event loop failed.
    Loop(io::Error),
}

impl fmt::Display for StreamWorkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ByNumber { key } => write!(
                f,
                "stream {key}: its publisher does not let frames be taken by their number; publish it with cuframes"
            ),
            Self::Stream(error) => error.fmt(f),
            Self::Loop(error) => write!(f, "the event loop of the worker failed: {error}"),
        }
    }
}

impl std::error::Error for StreamWorkError {}

impl From<io::Error> for StreamWorkError {
    fn from(error: io::Error) -> Self {
        Self::Loop(error)
    }
}

/// Takes blocks from a [`StreamDispatcher`](super::StreamDispatcher), and maps the frames that they are of. Dropping it gives
/// those that it has to others.
#[derive(Debug)]
pub struct StreamWorker<B: Import<Fd = OwnedFd> = HostMemory> {
    worker: Worker,
    subscriber: Subscriber<B>,
    /// That of the publisher whose frames the blocks are of.
    epoch: u64,
    /// Frames that works have: two of one frame share it.
    frames: BTreeMap<u64, Weak<Frame<B>>>,
}

impl<B: Import<Fd = OwnedFd>> StreamWorker<B> {
    /// A worker for the task of this name, of the dispatcher at `endpoint`. The subscriber must be
    /// [ready](Subscriber::is_ready), and have asked for [`no_ack`](crate::SubscriberBuilder::no_ack): a worker takes as long as
    /// it takes, and nobody waits for it. If it [reconnects](crate::SubscriberBuilder::reconnect), the frames of the next publisher
    /// are not those of this dispatcher, and none of them is taken for one.
    ///
    /// `settings` has the last word about how many blocks to have at a time, and so on.
    ///
    /// # Errors
    /// [`StreamWorkError::ByNumber`] if that does not go with this stream, or [`StreamWorkError::Loop`].
    pub fn start(
        endpoint: &Endpoint,
        name: &str,
        subscriber: Subscriber<B>,
        settings: impl FnOnce(WorkerBuilder) -> WorkerBuilder,
    ) -> Result<Self, StreamWorkError> {
        let key = subscriber.key().clone();
        let needed = Features::LEASE.union(Features::NO_ACK);
        let is_served = subscriber.features().is_some_and(|features| features.contains(needed));
        let Some(header) = subscriber.header().filter(|_| is_served) else {
            return Err(StreamWorkError::ByNumber { key });
        };
        let epoch = header.epoch;
        let task = StreamTask { name: name.into(), key, epoch };
        let worker = settings(Worker::builder(endpoint, task.to_string())).start()?;
        Ok(Self { worker, subscriber, epoch, frames: BTreeMap::new() })
    }

    /// The next work, within `timeout` (`None`: however long it takes; but a signal may end the wait). Blocks whose frame is
    /// gone fail without being handed out.
    ///
    /// # Errors
    /// [`StreamWorkError`].
    pub fn next(&mut self, timeout: Option<Duration>) -> Result<NextWork<B>, StreamWorkError> {
        let end = timeout.map(|timeout| clock::now() + timeout);
        let mut left = timeout;
        loop {
            let block = match self.worker.next(left)? {
                Next::Block(block) => block,
                Next::Stopped(stop) => return Ok(NextWork::Stopped(stop)),
                Next::Nothing => return Ok(NextWork::Nothing),
            };
            match self.map(&block)? {
                Ok((part, frame, planes)) => return Ok(NextWork::Work(Work { block, part, frame, planes })),
                Err(why) => _ = self.worker.failed(&block.block_id, &why)?,
            }
            left = end.map(|end| end.saturating_since(clock::now()));
            if left == Some(Duration::ZERO) {
                return Ok(NextWork::Nothing);
            }
        }
    }

    /// What a block is of. The inner error is why there is nothing to work on.
    #[expect(clippy::type_complexity, reason = "it is taken apart at once")]
    fn map(
        &mut self,
        block: &Block,
    ) -> Result<Result<(Part, Arc<Frame<B>>, Vec<Plane>), String>, StreamWorkError> {
        let part = match Part::from_block(block) {
            Ok(part) => part,
            Err(error) => return Ok(Err(error.to_string())),
        };
        self.frames.retain(|_, frame| frame.strong_count() > 0);
        let frame = match self.frames.get(&part.seq).and_then(Weak::upgrade) {
            Some(frame) => frame,
            None => match self.subscriber.frame(part.seq).map_err(StreamWorkError::Stream)? {
                // With another publisher the numbers begin again.
                Some(frame) if frame.epoch() == self.epoch => Arc::new(frame),
                _ => return Ok(Err(format!("frame {} is gone", part.seq))),
            },
        };
        self.frames.insert(part.seq, Arc::downgrade(&frame));
        let planes = frame.meta().tile_planes(&part.tile).map(Iterator::collect);
        Ok(planes.map(|planes| (part, frame, planes)).map_err(|error| error.to_string()))
    }

    /// As [`Worker::is_wanted`].
    ///
    /// # Errors
    /// If the event loop fails.
    pub fn is_wanted(&mut self) -> io::Result<bool> {
        self.worker.is_wanted()
    }

    /// The work is done: everything that reads the frame has *finished*, on a device, too. If it was overwritten meanwhile,
    /// because the stream's publisher is gone or took the lease back, it has failed instead.
    ///
    /// # Errors
    /// The outer one is that of the event loop.
    pub fn done(&mut self, work: Work<B>) -> io::Result<Result<(), FrameLost>> {
        let checked = work.frame.check();
        // Given back before the dispatcher does so.
        let block = self.give_back(work);
        match &checked {
            Ok(()) => self.worker.done(&block.block_id, None)?,
            Err(lost) => self.worker.failed(&block.block_id, &lost.to_string())?,
        };
        Ok(checked)
    }

    /// The work could not be done, and why.
    ///
    /// # Errors
    /// If the event loop fails.
    pub fn failed(&mut self, work: Work<B>, why: &str) -> io::Result<()> {
        let block = self.give_back(work);
        self.worker.failed(&block.block_id, why)?;
        Ok(())
    }

    fn give_back(&mut self, Work { block, frame, part, .. }: Work<B>) -> Box<Block> {
        if let Some(frame) = Arc::into_inner(frame) {
            self.frames.remove(&part.seq);
            // What it says was asked before.
            let _ = frame.release();
        }
        block
    }

    /// Takes no more blocks and leaves; those that it has go to others. Takes a second at most.
    ///
    /// # Errors
    /// If the event loop fails.
    pub fn leave(&mut self) -> io::Result<()> {
        self.worker.leave()
    }

    /// The subscription.
    #[must_use]
    pub const fn subscriber(&self) -> &Subscriber<B> {
        &self.subscriber
    }

    /// The connection to the dispatcher.
    #[must_use]
    pub const fn worker(&self) -> &Worker {
        &self.worker
    }
}
