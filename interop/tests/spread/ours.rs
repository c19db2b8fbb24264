//! Our server and our worker, each in a thread of its own.

use std::collections::BTreeMap;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use cuframes_dispatch::wire::{Block, Roi, Version};
use cuframes_dispatch::{
    BlockEvent, Counts, Fit, Grid, Outcome, Scheduler, Server, ServerEvent, Stop, TaskConfig, TaskError,
    Worker, WorkerConfig, WorkerEvent,
};
use cuframes_interop::within;
use cuframes_mio::net::{Driver, Endpoint, Listeners};
use cuframes_mio::{Pollable, now};
use tokio::sync::{mpsc, oneshot};

/// Our server, on a free port.
pub(crate) struct Served {
    pub(crate) port: u16,
    /// What it tells, as it happens.
    events: mpsc::UnboundedReceiver<ServerEvent>,
    end: oneshot::Receiver<Server>,
}

/// When it is shut down.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// When all blocks have ended and all workers have left.
    Left,
    /// As soon as all blocks have ended.
    AtOnce,
}

impl Served {
    /// A server with these tasks and blocks.
    pub(crate) fn start(ending: Ending, fill: impl FnOnce(&mut Scheduler) -> Result<(), TaskError>) -> Self {
        let any = Endpoint::Tcp(([127, 0, 0, 1], 0).into());
        let listeners = Listeners::new([&any]).unwrap();
        let Some(Endpoint::Tcp(address)) = listeners.endpoints().next() else { panic!("it listens on TCP") };
        let port = address.port();
        let mut server = Server::new(Version::W2);
        server.schedule(now(), fill).unwrap();
        let (tell, events) = mpsc::unbounded_channel();
        let (ended, end) = oneshot::channel();
        thread::spawn(move || {
            let mut pollable = Pollable::new(Driver::new(server, listeners)).unwrap();
            let is_finished = |driver: &mut Driver<Server>| {
                while let Some(event) = driver.poll_event() {
                    // Not everybody listens.
                    let _ = tell.send(event);
                }
                let server = driver.machine();
                let is_over = server.scheduler().is_finished();
                if is_over && (ending == Ending::AtOnce || server.workers() == 0) {
                    driver.command(now(), |server| server.shut_down(now()));
                }
                driver.machine().is_finished()
            };
            while !pollable.with(is_finished).unwrap() {
                let _ = pollable.wait(None).unwrap();
            }
            pollable.into_inner().command(now(), |server| {
                let done = std::mem::replace(server, Server::new(Version::W2));
                let _ = ended.send(done);
            });
        });
        Self { port, events, end }
    }

    /// What it tells next.
    pub(crate) async fn event(&mut self) -> ServerEvent {
        within("an event of the server", self.events.recv()).await.unwrap()
    }

    /// Waits until it has ended: what it has told since, and the tasks.
    pub(crate) async fn end(mut self) -> (Vec<ServerEvent>, Server) {
        let server = within("the end of the server", self.end).await.unwrap();
        let mut events = Vec::new();
        while let Some(event) = self.events.recv().await {
            events.push(event);
        }
        (events, server)
    }
}

/// A worker of ours.
pub(crate) struct Working {
    end: oneshot::Receiver<Worked>,
    thread: JoinHandle<()>,
}

/// What a worker did.
#[derive(Debug)]
pub(crate) struct Worked {
    pub(crate) blocks: Vec<Block>,
    /// `None`: it fell silent.
    pub(crate) stop: Option<Stop>,
    /// Seconds from the first block on.
    pub(crate) seconds: f64,
}

/// What a worker makes of a block.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Deed {
    Done,
    Failed(&'static str),
    /// It goes without a word.
    Vanish,
}

/// What a worker says of itself.
pub(crate) fn config(port: u16, task_id: &str, worker_id: u64, depth: usize) -> WorkerConfig {
    let mut config = WorkerConfig::new(format!("tcp://127.0.0.1:{port}"), task_id);
    config.worker_id = Some(worker_id);
    config.depth = depth;
    // The server is there, or not any more.
    config.connect_timeout = Duration::from_secs(2);
    config
}

impl Working {
    /// A worker; `deed` says what it makes of each block, counted from 0.
    pub(crate) fn start(config: WorkerConfig, deed: impl Fn(usize, &Block) -> Deed + Send + 'static) -> Self {
        let (ended, end) = oneshot::channel();
        let thread = thread::spawn(move || {
            let driver = Driver::new(Worker::new(now(), config), Listeners::default());
            let mut pollable = Pollable::new(driver).unwrap();
            let mut blocks = Vec::new();
            let mut start = None;
            let stop = loop {
                let mut work = |driver: &mut Driver<Worker>| {
                    while let Some(event) = driver.poll_event() {
                        let block = match event {
                            WorkerEvent::Block { block, .. } => block,
                            WorkerEvent::Stopped(stop) => return Some(Some(stop)),
                            other => panic!("it said {other:?}"),
                        };
                        start.get_or_insert_with(Instant::now);
                        let known = driver.command(now(), |worker| match deed(blocks.len(), &block) {
                            Deed::Done => Some(worker.done(now(), &block.block_id, None)),
                            Deed::Failed(why) => Some(worker.failed(now(), &block.block_id, why)),
                            Deed::Vanish => None,
                        });
                        blocks.push(block);
                        match known {
                            Some(known) => assert!(known, "it has this block"),
                            None => return Some(None),
                        }
                    }
                    None
                };
                match pollable.with(&mut work).unwrap() {
                    Some(stop) => break stop,
                    None => _ = pollable.wait(None).unwrap(),
                }
            };
            // What it said at last is on its way.
            while stop.is_some() && !pollable.get_ref().machine().is_finished() {
                let _ = pollable.wait(None).unwrap();
            }
            let seconds = start.map_or(0.0, |start| start.elapsed().as_secs_f64());
            let _ = ended.send(Worked { blocks, stop, seconds });
        });
        Self { end, thread }
    }

    /// Waits until it has stopped.
    pub(crate) async fn end(self) -> Worked {
        match within("the end of a worker of ours", self.end).await {
            Ok(worked) => worked,
            Err(_) => std::panic::resume_unwind(self.thread.join().unwrap_err()),
        }
    }
}

/// A stream of `frames` frames in 25 tiles each, with margins around what is written.
pub(crate) fn tiles(frames: i64) -> Grid {
    let total = Roi::new(&[-7, -3, -3], &[frames, 326, 326]);
    let read = Roi::new(&[0, -3, -3], &[1, 70, 70]);
    Grid::new(total, read, Roi::new(&[0, 0, 0], &[1, 64, 64]), Fit::Valid).unwrap()
}

/// A task with these blocks, which wait for nothing.
pub(crate) fn task(scheduler: &mut Scheduler, task_id: &str, grid: &Grid) -> Result<(), TaskError> {
    scheduler.add_task(TaskConfig::new(task_id))?;
    grid.blocks(task_id).try_for_each(|block| scheduler.add_block(block, &[]))?;
    scheduler.close_task(task_id)
}

/// How each block ended; a block that did so twice is a fault. And how often one was retried.
pub(crate) fn outcomes(events: &[ServerEvent]) -> (BTreeMap<(String, u64), Outcome>, usize) {
    let (mut ended, mut retried) = (BTreeMap::new(), 0);
    for event in events {
        match event {
            ServerEvent::Block(BlockEvent::Ended { block_id, outcome, .. }) => {
                let id = (block_id.task_id.clone(), block_id.spatial_id);
                assert_eq!(ended.insert(id, *outcome), None, "{block_id:?} has ended twice");
            }
            ServerEvent::Block(BlockEvent::Retried { .. }) => retried += 1,
            _ => {}
        }
    }
    (ended, retried)
}

/// The counts of a task that has ended, with its retries.
pub(crate) fn ended(server: &Server, task_id: &str) -> [u64; 4] {
    let Counts { total, succeeded, failed, orphaned, retried, .. } =
        server.scheduler().counts(task_id).unwrap();
    assert_eq!(total, succeeded + failed + orphaned);
    [succeeded, failed, orphaned, retried]
}
