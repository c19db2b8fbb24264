//! [`StreamDispatcher`]: hands out the frames of a stream.

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use cuframes_core::gpu::Import;
use cuframes_core::shm::StreamHeader;
use cuframes_core::{Features, Key, Policy, TileError};
use cuframes_dispatch::wire::Version;
use cuframes_dispatch::{FrameCounts, Frames, Scheduler, Server, StreamTask, TaskConfig, TaskError};

use super::feed::{Feed, FeedEvent, WhenFull};
use crate::clock;
use crate::host::HostMemory;
use crate::net::{Driver, Endpoint, Listeners, NetError};
use crate::pollable::Pollable;
use crate::subscriber::Subscriber;

/// Settings of a dispatcher of frames; [`start`](Self::start) makes it.
#[derive(Clone, Debug)]
#[must_use]
pub struct StreamDispatcherBuilder {
    endpoint: Endpoint,
    version: Version,
    tasks: Vec<TaskConfig>,
    /// Rows and columns.
    tile: Option<(u32, u32)>,
    queue: Option<usize>,
    when_full: Option<WhenFull>,
    has_workers: bool,
    frames: u64,
}

impl StreamDispatcherBuilder {
    /// What its workers speak; [`Version::W2`] by default.
    pub const fn version(mut self, version: Version) -> Self {
        self.version = version;
        self
    }

    /// One more task, by its name: its work on a tile waits for that of the task before. By default there is one, called
    /// [`FRAMES`].
    pub fn task(mut self, task: TaskConfig) -> Self {
        self.tasks.push(task);
        self
    }

    /// The size of a block in rows and columns of pixels, smaller at the far edges; by default a block is a whole frame.
    pub const fn tile(mut self, height: u32, width: u32) -> Self {
        self.tile = Some((height, width));
        self
    }

    /// How many frames may be on their way, each of which keeps a slot of the ring. By default all but two of its slots,
    /// and one at least.
    pub const fn queue(mut self, queue: usize) -> Self {
        self.queue = Some(queue);
        self
    }

    /// What to do about a frame when that many are; by default as the publisher does: drop with DROP_OLDEST, wait with
    /// STRICT_WAIT. Until a worker has come frames are dropped all the same, unless some are [expected](Self::expect_workers).
    pub const fn when_full(mut self, when_full: WhenFull) -> Self {
        self.when_full = Some(when_full);
        self
    }

    /// Workers are on their way: frames wait for them from the beginning.
    pub const fn expect_workers(mut self) -> Self {
        self.has_workers = true;
        self
    }

    /// Hands out so many frames, those that are dropped not counted, and then [closes](StreamDispatcher::close); by default it
    /// goes on until the stream ends.
    pub const fn frames(mut self, frames: u64) -> Self {
        self.frames = frames;
        self
    }

    /// Listens, and takes frames from now on. The subscriber must be [ready](Subscriber::is_ready), have asked for
    /// STRICT_ORDER, and not go on with another publisher: a worker maps the frames of this one.
    ///
    /// # Errors
    /// [`StreamDispatchError`] says what does not go together.
    pub fn start<B: Import<Fd = OwnedFd>>(
        self,
        subscriber: Subscriber<B>,
    ) -> Result<StreamDispatcher<B>, StreamDispatchError> {
        let Self { endpoint, version, mut tasks, tile, queue, when_full, has_workers, frames: limit } = self;
        let key = subscriber.key().clone();
        let has_leases = subscriber.features().is_some_and(|features| features.contains(Features::LEASE));
        let header = subscriber.header().copied().filter(|_| has_leases);
        let StreamHeader { epoch, ring_size, policy, meta, .. } =
            header.ok_or_else(|| StreamDispatchError::NoLeases { key: key.clone() })?;
        let slots = usize::from(ring_size.get());
        let queue = queue.unwrap_or_else(|| slots.saturating_sub(2).max(1));
        if queue == 0 || queue >= slots {
            return Err(StreamDispatchError::Queue { key, queue, slots });
        }
        let (height, width) = tile.unwrap_or((meta.height, meta.width));
        let tiles = meta.tiles(height, width);
        let tiles = tiles.map_err(|error| StreamDispatchError::Tile { key: key.clone(), error })?;
        if tasks.is_empty() {
            tasks.push(TaskConfig::new(FRAMES));
        }
        let mut server = Server::new(version);
        let now = clock::now();
        let mut ids = Vec::new();
        for mut task in tasks {
            task.id = StreamTask { name: task.id, key: key.clone(), epoch }.to_string();
            ids.push(task.id.clone());
            let added = server.schedule(now, |scheduler| scheduler.add_task(task));
            added.map_err(|error| StreamDispatchError::Task { key: key.clone(), error })?;
        }
        let when_full = when_full.unwrap_or(match policy {
            Policy::STRICT_WAIT => WhenFull::Wait,
            _ => WhenFull::Drop,
        });
        let listeners = Listeners::new([&endpoint]).map_err(StreamDispatchError::Net)?;
        let endpoint = listeners.endpoints().next().cloned().unwrap_or(endpoint);
        let tile_count = usize::try_from(tiles.len()).unwrap_or(usize::MAX);
        let frames = Frames::new(ids.clone(), tiles, queue);
        let driver = Driver::new(server, listeners);
        let feed = Feed::new(driver, subscriber, (frames, ids.clone()), (when_full, has_workers), limit);
        let feed =
            Pollable::new(feed).map_err(|error| NetError::system("serve workers at", &endpoint, error));
        let feed = feed.map_err(StreamDispatchError::Net)?;
        Ok(StreamDispatcher { endpoint, tasks: ids, tiles: tile_count, queue, feed })
    }
}

/// Hands out the frames of a stream, each block of them to one worker, and to another one if that one dies, fails or is
/// late. A frame is leased until its blocks have ended. Dropping it closes every connection.
///
/// The workers map the frames themselves ([`StreamWorker`](super::StreamWorker)): they run on this host.
#[derive(Debug)]
pub struct StreamDispatcher<B: Import<Fd = OwnedFd> = HostMemory> {
    endpoint: Endpoint,
    tasks: Vec<String>,
    tiles: usize,
    queue: usize,
    feed: Pollable<Feed<B>>,
}

impl StreamDispatcher {
    /// Settings of a dispatcher that listens on `endpoint`. Peers are not authenticated: whoever can connect gets blocks.
    pub const fn builder(endpoint: Endpoint) -> StreamDispatcherBuilder {
        StreamDispatcherBuilder {
            endpoint,
            version: Version::W2,
            tasks: Vec::new(),
            tile: None,
            queue: None,
            when_full: None,
            has_workers: false,
            frames: u64::MAX,
        }
    }
}

impl<B: Import<Fd = OwnedFd>> StreamDispatcher<B> {
    /// Where workers connect, with the port that the system chose.
    #[must_use]
    pub const fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// The ids of its tasks, as a [`StreamTask`] reads.
    #[must_use]
    pub fn tasks(&self) -> &[String] {
        &self.tasks
    }

    /// How many blocks of each task a frame is.
    #[must_use]
    pub const fn tiles(&self) -> usize {
        self.tiles
    }

    /// How many frames may be on their way.
    #[must_use]
    pub const fn queue(&self) -> usize {
        self.queue
    }

    /// The tasks and their blocks.
    #[must_use]
    pub const fn scheduler(&self) -> &Scheduler {
        self.feed.get_ref().server().scheduler()
    }

    /// How many workers are connected.
    #[must_use]
    pub fn workers(&self) -> usize {
        self.feed.get_ref().server().workers()
    }

    /// How many frames have come, and what became of them.
    #[must_use]
    pub fn counts(&self) -> FrameCounts {
        self.feed.get_ref().counts()
    }

    /// See [`Feed::lost`].
    #[must_use]
    pub const fn lost(&self) -> u64 {
        self.feed.get_ref().lost()
    }

    /// Whether no more frames are handed out, and all that were have ended.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.feed.get_ref().is_finished()
    }

    /// The next thing that happens, within `timeout` (`None`: however long it takes; but a signal may end the wait).
    ///
    /// # Errors
    /// If the event loop fails.
    pub fn next_event(&mut self, timeout: Option<Duration>) -> io::Result<Option<FeedEvent>> {
        self.feed.poll_within(timeout, Feed::poll_event)
    }

    /// Hands out no more frames. Those that are on their way are still worked on.
    ///
    /// # Errors
    /// If the event loop fails.
    pub fn close(&mut self) -> io::Result<()> {
        self.feed.with(|feed| feed.close(clock::now()))
    }

    /// Hands out no more frames, and gives up all that has not ended.
    ///
    /// # Errors
    /// If the event loop fails.
    pub fn abandon(&mut self) -> io::Result<()> {
        self.feed.with(|feed| feed.abandon(clock::now()))
    }

    /// Tells the workers that there is nothing more to do, and closes their connections; takes a second at most.
    ///
    /// # Errors
    /// If the event loop fails.
    pub fn shut_down(&mut self) -> io::Result<()> {
        self.feed.with(|feed| {
            let now = clock::now();
            feed.abandon(now);
            feed.command(now, |server| server.shut_down(now));
        })?;
        while !self.feed.get_ref().server().is_finished() {
            let _ = self.feed.wait(None)?;
        }
        Ok(())
    }

    /// For an event loop of your own.
    #[must_use]
    pub fn into_feed(self) -> Feed<B> {
        self.feed.into_inner()
    }
}

/// Why the frames of a stream can't be dispatched.
#[derive(Debug)]
#[non_exhaustive]
pub enum StreamDispatchError {
    /// The stream is not there yet, or not any more, or its publisher grants no leases: frames could be overwritten while
    /// they are worked on.
    NoLeases {
        /// The stream.
        key: Key,
    },
    /// As many frames on their way would leave the publisher no slot.
    Queue {
        /// The stream.
        key: Key,
        /// How many.
        queue: usize,
        /// How many slots it has.
        slots: usize,
    },
    /// Its frames can't be cut like this.
    Tile {
        /// The stream.
        key: Key,
        /// Why.
        error: TileError,
    },
    /// Two tasks have the same name.
    Task {
        /// The stream.
        key: Key,
        /// Which.
        error: TaskError,
    },
    /// Workers can't be served.
    Net(NetError),
}

impl fmt::Display for StreamDispatchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoLeases { key } => write!(
                f,
                "stream {key}: its publisher grants no leases, without which frames could be overwritten while they are \
                 worked on; publish it with cuframes"
            ),
            Self::Queue { key, slots: 1, .. } => {
                write!(f, "stream {key}: its ring has one slot, which its publisher needs; give it more")
            }
            Self::Queue { key, queue, slots } => write!(
                f,
                "stream {key}: of the {slots} slots of its ring {queue} can't be on their way; use 1 to {}, or publish \
                 it with more slots",
                slots - 1
            ),
            Self::Tile { key, error } => {
                write!(f, "stream {key}: its frames can't be cut like this: {error}")
            }
            Self::Task { key, error } => write!(f, "stream {key}: {error}; give each task another name"),
            Self::Net(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for StreamDispatchError {}

/// The name of the task on frames, where no other is given.
pub const FRAMES: &str = "frames";
