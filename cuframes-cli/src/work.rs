//! `cuframes work`: a worker that runs a command for each block.

mod exec;
mod frames;

use std::net::IpAddr;
use std::path::Path;
use std::{env, io};

use cuframes_core::Key;
use cuframes_mio::dispatch::{
    Block, Context, FRAMES, Next, Stop, StreamTask, Worker, WorkerBuilder, context,
};
use cuframes_mio::net::Endpoint;
use serde::Serialize;

use self::exec::Exec;
use crate::args::{WorkArgs, version};
use crate::console::{Console, Printed};
use crate::error::{Failure, failed};
use crate::output::{self, Count, REFRESH};
use crate::signals::Signals;

/// A block, for people and scripts.
#[derive(Serialize)]
struct Line<'a> {
    task: &'a str,
    block: u64,
    read_offset: &'a [i64],
    read_shape: &'a [i64],
    write_offset: &'a [i64],
    write_shape: &'a [i64],
}

/// Where a worker gets its blocks, and which.
#[derive(Debug)]
struct Job {
    endpoint: Endpoint,
    task: Task,
    worker_id: Option<u64>,
}

#[derive(Debug)]
enum Task {
    Blocks(String),
    /// The name of the task, the stream, and its publisher if that is known.
    Frames(String, Key, Option<u64>),
}

impl Job {
    /// What the arguments say, or else the environment.
    fn find(args: &WorkArgs) -> Result<Self, Failure> {
        let Some(endpoint) = &args.endpoint else { return Self::from_environment() };
        let task = match (&args.stream, &args.task) {
            (Some(key), name) => {
                Task::Frames(name.clone().unwrap_or_else(|| FRAMES.into()), key.clone(), None)
            }
            (None, Some(task)) => Task::named(task),
            (None, None) => {
                return Err(Failure::Usage(
                    "--connect needs --stream, or --task for other blocks than frames; see --help".into(),
                ));
            }
        };
        Ok(Self { endpoint: endpoint.clone(), task, worker_id: None })
    }

    fn from_environment() -> Result<Self, Failure> {
        let name = context::NAME;
        let text = env::var(name).map_err(|_| {
            Failure::Usage(format!(
                "there is no {name} to say where the dispatcher is: use --connect and --task or --stream; see --help"
            ))
        })?;
        let context = Context::parse(&text).map_err(|error| failed!("{error}"))?;
        let read = || {
            let (host, port, task) = (context.hostname()?, context.port()?, context.task_id()?);
            Ok::<_, context::ContextError>((host, port, task))
        };
        let (host, port, task) = read().map_err(|error| failed!("{error}; is it from a dispatcher?"))?;
        let address = match host.parse::<IpAddr>() {
            Ok(ip) => Endpoint::from((ip, port)).to_string(),
            Err(_) if host.contains("://") => host.to_string(),
            Err(_) => format!("tcp://{host}:{port}"),
        };
        let endpoint = Endpoint::resolve(&address).map_err(|error| failed!("{name}: {error}"))?;
        Ok(Self { endpoint, task: Task::named(task), worker_id: context.worker_id().ok() })
    }

    /// The settings that do not depend on what the blocks are.
    fn settings(&self, args: &WorkArgs, builder: WorkerBuilder) -> WorkerBuilder {
        let builder =
            builder.depth(args.depth.into()).version(version(args.w0)).connect_timeout(args.connect_timeout);
        match self.worker_id {
            Some(id) => builder.worker_id(id),
            None => builder,
        }
    }
}

impl Task {
    /// A task of this id on the wire.
    fn named(id: &str) -> Self {
        match id.parse() {
            Ok(StreamTask { name, key, epoch }) => Self::Frames(name, key, Some(epoch)),
            Err(_) => Self::Blocks(id.into()),
        }
    }
}

pub(crate) fn run(
    args: &WorkArgs,
    run_dir: Option<&Path>,
    signals: &Signals,
    console: &Console,
) -> Result<(), Failure> {
    let job = Job::find(args)?;
    match &job.task {
        Task::Blocks(task) if args.check_seq => Err(Failure::Usage(format!(
            "--check-seq looks at the frames of a stream, and {task} is something else; see --help"
        ))),
        Task::Blocks(task) => work(args, &job, task, signals, console),
        Task::Frames(name, key, epoch) => {
            frames::run(args, &job, (name, key, *epoch), run_dir, signals, console)
        }
    }
}

/// Works on blocks that are not of a stream.
fn work(args: &WorkArgs, job: &Job, task: &str, signals: &Signals, console: &Console) -> Result<(), Failure> {
    let mut worker = job.settings(args, Worker::builder(&job.endpoint, task)).start().map_err(broken)?;
    let mut has_worked = false;
    loop {
        if signals.raised() {
            return worker.leave().map_err(broken);
        }
        match worker.next(Some(REFRESH)).map_err(broken)? {
            Next::Block(block) => {
                has_worked = true;
                let mut is_wanted = || worker.is_wanted().unwrap_or(false);
                let result = match &args.exec {
                    Some(command) => Exec::new(command, &block).run(signals, &mut is_wanted),
                    None => match console.try_print(&line(&block)?, signals)? {
                        Printed::Written => Some(Ok(())),
                        unseen => return leave_unseen(unseen, worker.leave()),
                    },
                };
                let Some(result) = result else { continue };
                let told = match result {
                    Ok(()) => worker.done(&block.block_id, None),
                    Err(error) => worker.failed(&block.block_id, &error),
                };
                told.map_err(broken)?;
            }
            Next::Stopped(stop) => {
                // As the original does when all is done, and to who asks for a task that it does not have.
                if !has_worked && matches!(stop, Stop::Closed { .. }) {
                    console.say(&format!("cuframes: {}", closed_early(&job.endpoint, task)));
                }
                return stopped(&stop, &job.endpoint, &worker);
            }
            Next::Nothing => {}
        }
    }
}

fn line(Block { read_roi, write_roi, block_id, .. }: &Block) -> Result<String, Failure> {
    output::json(&Line {
        task: &block_id.task_id,
        block: block_id.spatial_id,
        read_offset: &read_roi.offset,
        read_shape: &read_roi.shape,
        write_offset: &write_roi.offset,
        write_shape: &write_roi.shape,
    })
}

/// A block that nobody saw is not done: it goes to another worker.
fn leave_unseen(printed: Printed, left: io::Result<()>) -> Result<(), Failure> {
    left.map_err(broken)?;
    match printed {
        Printed::Closed => {
            Err(failed!("nobody reads standard output any more; keep its reader running, or use --exec"))
        }
        _ => Ok(()),
    }
}

#[expect(clippy::needless_pass_by_value, reason = "for `map_err`")]
fn broken(error: io::Error) -> Failure {
    failed!("the event loop of the worker failed: {error}")
}

/// It ended before there was a block.
fn closed_early(endpoint: &Endpoint, task: &str) -> String {
    format!(
        "the dispatcher at {endpoint} closed the connection before it gave a block; is {task:?} the --task that it has?"
    )
}

fn stopped(stop: &Stop, endpoint: &Endpoint, worker: &Worker) -> Result<(), Failure> {
    match stop {
        Stop::Shutdown | Stop::Left | Stop::Closed { lost: 0 } => Ok(()),
        Stop::Closed { lost } => Err(failed!(
            "the dispatcher at {endpoint} closed the connection with {} here; is it running?",
            Count(*lost, "block")
        )),
        Stop::Unreachable => {
            let why = worker.trouble().map_or(String::new(), |(_, error)| format!(": {error}"));
            Err(failed!("no dispatcher at {endpoint}{why}; start it, or check the address"))
        }
        Stop::Frame(error) => {
            Err(failed!("what is at {endpoint} is no dispatcher of this version: {error}; try --w0"))
        }
        _ => Err(failed!("what is at {endpoint} does not behave like a dispatcher; check the address")),
    }
}
