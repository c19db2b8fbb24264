//! A worker on the frames of a stream.

use std::path::Path;
use std::time::Duration;

use cuframes_core::{Key, Tile};
use cuframes_mio::Subscriber;
use cuframes_mio::dispatch::{NextWork, Stop, StreamWorkError, StreamWorker, Work};
use serde::Serialize;

use super::exec::Exec;
use super::{Job, closed_early, leave_unseen, stopped};
use crate::args::WorkArgs;
use crate::console::{Console, Printed};
use crate::convert;
use crate::error::{Failure, failed};
use crate::memory::{Copies, View, over_memory};
use crate::output::{self, REFRESH};
use crate::pattern::is_seq;
use crate::signals::Signals;
use crate::subscribe::attach;

/// A block of a frame, for people and scripts.
#[derive(Serialize)]
struct Line<'a> {
    task: &'a str,
    block: u64,
    seq: u64,
    pts_ns: i64,
    y: u32,
    x: u32,
    height: u32,
    width: u32,
}

pub(super) fn run(
    args: &WorkArgs,
    job: &Job,
    task: (&str, &Key, Option<u64>),
    run_dir: Option<&Path>,
    signals: &Signals,
    console: &Console,
) -> Result<(), Failure> {
    let (_, key, _) = task;
    let memory = &args.memory;
    over_memory!(key, memory, |backend| run_on(args, job, task, &backend, run_dir, signals, console))
}

fn run_on<B: View>(
    args: &WorkArgs,
    job: &Job,
    (name, key, epoch): (&str, &Key, Option<u64>),
    backend: &B,
    run_dir: Option<&Path>,
    signals: &Signals,
    console: &Console,
) -> Result<(), Failure> {
    let own_name = "cuframes-work".parse().map_err(|error| failed!("{error}"))?;
    let mut builder = Subscriber::builder(key.clone()).name(own_name).no_ack();
    if let Some(run_dir) = run_dir {
        builder = builder.run_dir(run_dir);
    }
    let Some(subscriber) =
        attach(&builder, backend, Some(args.connect_timeout.min(ATTACH_TIMEOUT)), signals)?
    else {
        return Ok(());
    };
    if epoch.is_some_and(|epoch| subscriber.header().is_none_or(|header| header.epoch != epoch)) {
        return Err(failed!("stream {key}: another publisher has it now than the dispatcher had"));
    }
    let started = StreamWorker::start(&job.endpoint, name, subscriber, |builder| job.settings(args, builder));
    let fail = |error: StreamWorkError| failed!("{error}");
    let mut worker = started.map_err(fail)?;
    let mut copies = Copies::new();
    let mut has_worked = false;
    loop {
        if signals.raised() {
            return worker.leave().map_err(super::broken);
        }
        match worker.next(Some(REFRESH)).map_err(fail)? {
            NextWork::Work(work) => {
                has_worked = true;
                let mut is_wanted = || worker.is_wanted().unwrap_or(false);
                let result = look(args, key, &work, &mut copies, signals, &mut is_wanted)?;
                let Some(result) = result else { continue };
                match result {
                    Ok(()) => {
                        // Nothing is said about bytes that were not this frame's.
                        let printed = if args.exec.is_none() && work.frame().check().is_ok() {
                            console.try_print(&line(&work)?, signals)?
                        } else {
                            Printed::Written
                        };
                        if printed != Printed::Written {
                            return leave_unseen(printed, worker.leave());
                        }
                        let _ = worker.done(work).map_err(super::broken)?;
                    }
                    Err(error) => worker.failed(work, &error).map_err(super::broken)?,
                }
            }
            NextWork::Stopped(Stop::Closed { .. }) if !has_worked => {
                return Err(failed!("{}", closed_early(&job.endpoint, name)));
            }
            // One of frames always says when it ends.
            NextWork::Stopped(Stop::Closed { .. }) => {
                return Err(failed!("the dispatcher at {} is gone; start it again", job.endpoint));
            }
            NextWork::Stopped(stop) => return stopped(&stop, &job.endpoint, worker.worker()),
            NextWork::Nothing => {}
        }
    }
}

fn line<B: View>(work: &Work<B>) -> Result<String, Failure> {
    let (block_id, Tile { y, x, height, width }) = (&work.block().block_id, work.tile());
    output::json(&Line {
        task: &block_id.task_id,
        block: block_id.spatial_id,
        seq: work.seq(),
        pts_ns: work.frame().pts_ns(),
        y,
        x,
        height,
        width,
    })
}

/// Works on a part of a frame. The inner error is that of the block; `None` if a signal came first, or the dispatcher went.
fn look<B: View>(
    args: &WorkArgs,
    key: &Key,
    work: &Work<B>,
    copies: &mut Copies<B>,
    signals: &Signals,
    is_wanted: &mut dyn FnMut() -> bool,
) -> Result<Option<Result<(), String>>, Failure> {
    if !args.check_seq && args.exec.is_none() {
        return Ok(Some(Ok(())));
    }
    let frame = work.frame();
    let bytes = copies.look(frame)?;
    if args.check_seq && !is_seq(bytes, work.seq()) {
        return Ok(Some(Err("the frame holds bytes that are not its own; is it --pattern seq?".into())));
    }
    let Some(command) = &args.exec else { return Ok(Some(Ok(()))) };
    let mut exec = Exec::new(command, work.block());
    let Tile { height, width, .. } = work.tile();
    exec.tell("STREAM", key);
    exec.tell("SEQ", &work.seq());
    exec.tell("PTS_NS", &frame.pts_ns());
    exec.tell("FORMAT", &frame.meta().format);
    exec.tell("WIDTH", &width);
    exec.tell("HEIGHT", &height);
    let input: Vec<u8> =
        work.planes().iter().flat_map(|plane| convert::rows(bytes, plane)).flatten().copied().collect();
    Ok(exec.run_with(&input, signals, is_wanted))
}

/// How long to wait for the stream: it is there, or it was.
const ATTACH_TIMEOUT: Duration = Duration::from_secs(5);
