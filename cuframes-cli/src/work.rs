//! `cuframes work`: a worker that runs a command for each block.

use std::env;
use std::ffi::OsStr;
use std::net::IpAddr;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

use cuframes_mio::dispatch::{Block, Context, Next, Roi, Stop, Worker, WorkerBuilder, context};
use cuframes_mio::net::Endpoint;
use rustix::process::{Pid, Signal, kill_process_group};
use serde::Serialize;

use crate::args::{WorkArgs, version};
use crate::console::Console;
use crate::error::{Failure, failed};
use crate::output::{self, REFRESH};
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

pub(crate) fn run(args: &WorkArgs, signals: &Signals, console: &Console) -> Result<(), Failure> {
    let (builder, address) = builder(args)?;
    let builder =
        builder.depth(args.depth.get()).version(version(args.w0)).connect_timeout(args.connect_timeout);
    let broken = |error| failed!("the event loop of the worker failed: {error}");
    let mut worker = builder.start().map_err(broken)?;
    loop {
        if signals.raised() {
            return worker.leave().map_err(broken);
        }
        match worker.next(Some(REFRESH)).map_err(broken)? {
            Next::Block(block) => {
                let Some(result) = work(args, &block, signals, console)? else { continue };
                let told = match result {
                    Ok(()) => worker.done(&block.block_id, None),
                    Err(error) => worker.failed(&block.block_id, &error),
                };
                told.map_err(broken)?;
            }
            Next::Stopped(stop) => return stopped(&stop, &address, &worker),
            Next::Nothing => {}
        }
    }
}

/// A worker of the dispatcher that the arguments or the environment name.
fn builder(args: &WorkArgs) -> Result<(WorkerBuilder, String), Failure> {
    if let (Some(endpoint), Some(task)) = (&args.endpoint, &args.task) {
        return Ok((Worker::builder(endpoint, task), endpoint.to_string()));
    }
    let name = context::NAME;
    let text = env::var(name).map_err(|_| {
        Failure::Usage(format!(
            "there is no {name} to say where the dispatcher is: use --connect and --task; see --help"
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
    let builder = Worker::builder(&endpoint, task);
    let builder = match context.worker_id() {
        Ok(id) => builder.worker_id(id),
        Err(_) => builder,
    };
    Ok((builder, endpoint.to_string()))
}

/// Works on one block. The inner error is that of the block; `None` if a signal came first.
fn work(
    args: &WorkArgs,
    block: &Block,
    signals: &Signals,
    console: &Console,
) -> Result<Option<Result<(), String>>, Failure> {
    let Block { read_roi, write_roi, block_id, .. } = block;
    let Some(command) = &args.exec else {
        let line = Line {
            task: &block_id.task_id,
            block: block_id.spatial_id,
            read_offset: &read_roi.offset,
            read_shape: &read_roi.shape,
            write_offset: &write_roi.offset,
            write_shape: &write_roi.shape,
        };
        console.print(&output::json(&line)?, signals)?;
        return Ok(Some(Ok(())));
    };
    let mut process = match start(command, block) {
        Ok(process) => process,
        Err(error) => return Ok(Some(Err(format!("can't run sh: {error}")))),
    };
    loop {
        match process.try_wait() {
            Ok(Some(status)) => return Ok(Some(judge(status))),
            Ok(None) if signals.raised() => {
                // With all that it has started.
                let _ = kill_process_group(Pid::from_child(&process), Signal::KILL);
                let _ = process.wait();
                return Ok(None);
            }
            Ok(None) => thread::sleep(STEP),
            Err(error) => return Ok(Some(Err(format!("can't wait for its command: {error}")))),
        }
    }
}

fn start(command: &OsStr, Block { read_roi, write_roi, block_id, .. }: &Block) -> std::io::Result<Child> {
    let join = |numbers: &[i64], by| numbers.iter().map(i64::to_string).collect::<Vec<_>>().join(by);
    let mut process = Command::new("sh");
    process.arg("-c").arg(command).stdin(Stdio::null()).process_group(0);
    process.env("CUFRAMES_TASK", &block_id.task_id).env("CUFRAMES_BLOCK", block_id.spatial_id.to_string());
    for (name, Roi { offset, shape }) in [("READ", read_roi), ("WRITE", write_roi)] {
        process.env(format!("CUFRAMES_{name}_OFFSET"), join(offset, ","));
        process.env(format!("CUFRAMES_{name}_SHAPE"), join(shape, "x"));
    }
    process.spawn()
}

fn judge(status: ExitStatus) -> Result<(), String> {
    if status.success() { Ok(()) } else { Err(format!("its command ended with {status}")) }
}

fn stopped(stop: &Stop, address: &str, worker: &Worker) -> Result<(), Failure> {
    match stop {
        Stop::Shutdown | Stop::Left | Stop::Closed { lost: 0 } => Ok(()),
        Stop::Closed { lost } => Err(failed!(
            "the dispatcher at {address} closed the connection with {lost} blocks here; is it running?"
        )),
        Stop::Unreachable => {
            let why = worker.trouble().map_or(String::new(), |(_, error)| format!(": {error}"));
            Err(failed!("no dispatcher at {address}{why}; start it, or check the address"))
        }
        Stop::Frame(error) => {
            Err(failed!("what is at {address} is no dispatcher of this version: {error}; try --w0"))
        }
        _ => Err(failed!("what is at {address} does not behave like a dispatcher; check the address")),
    }
}

/// How often a command is looked at.
const STEP: Duration = Duration::from_millis(2);
