//! `cuframes dispatch`: hands the blocks of a grid to workers.

use std::fmt;
use std::net::SocketAddr;
use std::time::Instant;

use cuframes_mio::dispatch::{
    BlockEvent, BlockId, Context, Counts, Dispatcher, Grid, Outcome, PeerFault, Roi, ServerEvent, TaskConfig,
};
use cuframes_mio::net::Endpoint;
use serde::Serialize;

use crate::args::{DispatchArgs, version};
use crate::console::Console;
use crate::crew::Crew;
use crate::error::{Failure, failed};
use crate::output::{self, REFRESH};
use crate::signals::Signals;

/// How it went.
#[derive(Serialize)]
struct Report<'a> {
    task: &'a str,
    total: u64,
    succeeded: u64,
    failed: u64,
    orphaned: u64,
    retried: u64,
    restarts: usize,
    seconds: f64,
}

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { task, total, succeeded, failed, orphaned, retried, restarts, seconds } = self;
        write!(
            f,
            "{task}: {succeeded} of {total} blocks done, {failed} failed, {orphaned} given up, {retried} retried, "
        )?;
        write!(f, "{restarts} workers restarted, {seconds:.1} s")
    }
}

pub(crate) fn run(args: &DispatchArgs, signals: &Signals, console: &Console) -> Result<(), Failure> {
    let grid = grid(args)?;
    let mut dispatcher = listen(args, console)?;
    let loop_failed = |error| failed!("the event loop of the dispatcher failed: {error}");
    let added = dispatcher.schedule(|scheduler| {
        let mut task = TaskConfig::new(&args.task);
        task.max_retries = args.retries;
        task.timeout = Some(args.timeout).filter(|timeout| !timeout.is_zero());
        scheduler.add_task(task)?;
        grid.blocks(&args.task).try_for_each(|block| scheduler.add_block(block, &[]))?;
        scheduler.close_task(&args.task)
    });
    added.map_err(loop_failed)?.map_err(|error| failed!("can't dispatch this grid: {error}"))?;
    let start = Instant::now();
    let mut crew = crew(args, dispatcher.endpoint())?;
    let result = serve(args, &mut dispatcher, crew.as_mut(), signals, console);
    dispatcher.shut_down().map_err(loop_failed)?;
    if let Some(crew) = &mut crew {
        crew.dismiss(signals.raised());
    }
    result?;
    let Counts { total, succeeded, failed, orphaned, retried, .. } = counts(args, &dispatcher);
    let restarts = crew.map_or(0, |crew| crew.restarts);
    let seconds = start.elapsed().as_secs_f64();
    let report = Report { task: &args.task, total, succeeded, failed, orphaned, retried, restarts, seconds };
    let text = if args.json { output::json(&report)? } else { report.to_string() };
    console.print(&text, signals)?;
    match total - succeeded {
        0 => Ok(()),
        n => Err(failed!("{n} of {total} blocks of task {} were not done; see the lines above", args.task)),
    }
}

fn grid(args: &DispatchArgs) -> Result<Grid, Failure> {
    let (total, write) = (args.grid.0.clone(), args.block.0.clone());
    let read = match &args.margin {
        None => write.clone(),
        Some(margin) => {
            let margins = margin.0.shape.iter();
            if margins.len() != write.shape.len() {
                return Err(Failure::Usage("--margin needs as many numbers as --block; see --help".into()));
            }
            let offset: Vec<_> = margins.clone().map(|margin| -margin).collect();
            let shape = write
                .shape
                .iter()
                .zip(margins)
                .map(|(len, margin)| len.saturating_add(margin.saturating_mul(2)));
            Roi::new(&offset, &shape.collect::<Vec<_>>())
        }
    };
    let grid = Grid::new(total, read, write, args.fit.into());
    let grid = grid.map_err(|error| Failure::Usage(format!("there is no such grid: {error}; see --help")))?;
    match grid.len() {
        0 => {
            Err(Failure::Usage("no block fits into the grid: use a smaller --block, or another --fit".into()))
        }
        1..=MAX_BLOCKS => Ok(grid),
        n => Err(Failure::Usage(format!(
            "the grid has {n} blocks, at most {MAX_BLOCKS} can be kept; use larger ones"
        ))),
    }
}

fn listen(args: &DispatchArgs, console: &Console) -> Result<Dispatcher, Failure> {
    let dispatcher = Dispatcher::builder(args.listen.clone()).version(version(args.w0)).listen();
    let dispatcher = dispatcher.map_err(|error| failed!("{error}"))?;
    let endpoint = dispatcher.endpoint();
    if !endpoint.is_local() {
        console.say(&format!(
            "cuframes: dispatching at {endpoint}: there is no authentication; whoever can connect gets blocks"
        ));
    }
    if args.workers.is_none() {
        console.say(&format!(
            "waiting for workers; start each with: cuframes work --connect {endpoint} --task {}",
            args.task
        ));
    }
    Ok(dispatcher)
}

/// The workers that are to be started.
fn crew(args: &DispatchArgs, endpoint: &Endpoint) -> Result<Option<Crew>, Failure> {
    let Some(count) = args.workers else { return Ok(None) };
    let context = context(args, endpoint);
    Crew::start(&args.command, count.get(), args.restarts, context).map(Some)
}

/// What a worker is told: where to connect, as daisy does, or as an endpoint of ours.
fn context(args: &DispatchArgs, endpoint: &Endpoint) -> impl Fn(u64) -> String + use<> {
    let (host, port) = match endpoint {
        Endpoint::Tcp(address) => (reachable(address), address.port()),
        other => (other.to_string(), 0),
    };
    let task = args.task.clone();
    move |worker| Context::new(&host, port, &task, worker).to_string()
}

/// The address under which workers of this host can connect.
fn reachable(address: &SocketAddr) -> String {
    match address {
        SocketAddr::V4(address) if address.ip().is_unspecified() => "127.0.0.1".into(),
        SocketAddr::V6(address) if address.ip().is_unspecified() => "::1".into(),
        _ => address.ip().to_string(),
    }
}

/// Hands out blocks until all have ended.
fn serve(
    args: &DispatchArgs,
    dispatcher: &mut Dispatcher,
    mut crew: Option<&mut Crew>,
    signals: &Signals,
    console: &Console,
) -> Result<(), Failure> {
    let mut line = output::Line::new(console);
    let mut said = 0;
    let mut say = |text: String| {
        said += 1;
        if said <= MAX_LINES {
            console.say(&text);
        } else if said == MAX_LINES + 1 {
            console.say("cuframes: more like this is not told");
        }
    };
    let loop_failed = |error| failed!("the event loop of the dispatcher failed: {error}");
    let context = context(args, &dispatcher.endpoint().clone());
    while !dispatcher.scheduler().is_finished() {
        if signals.raised() {
            let left = counts(args, dispatcher).unfinished();
            return Err(failed!("stopped by a signal; {left} blocks of task {} are not done", args.task));
        }
        line.show(Instant::now(), &progress(args, dispatcher));
        match dispatcher.next_event(Some(REFRESH)).map_err(loop_failed)? {
            Some(ServerEvent::Block(BlockEvent::Ended {
                block_id: BlockId { spatial_id, .. },
                outcome: Outcome::Failed,
                cause: Some(cause),
            })) => say(format!("cuframes: block {spatial_id} of task {}: {cause}", args.task)),
            Some(ServerEvent::Left { fault: Some(fault), .. }) => say(left(&fault)),
            _ => {}
        }
        if let Some(crew) = &mut crew
            && !crew.look_after(&context)?
            && dispatcher.workers() == 0
        {
            console
                .say("cuframes: the workers ended too often; their command fails, or --restarts is too low");
            let task = args.task.clone();
            let abandoned = dispatcher.schedule(|scheduler| scheduler.abandon_task(&task));
            abandoned.map_err(loop_failed)?.map_err(|error| failed!("{error}"))?;
        }
    }
    Ok(())
}

fn left(fault: &PeerFault) -> String {
    format!("cuframes: a worker was disconnected: {fault}; does it speak the same version?")
}

fn counts(args: &DispatchArgs, dispatcher: &Dispatcher) -> Counts {
    dispatcher.scheduler().counts(&args.task).unwrap_or_default()
}

fn progress(args: &DispatchArgs, dispatcher: &Dispatcher) -> String {
    let Counts { total, succeeded, failed, retried, processing, .. } = counts(args, dispatcher);
    format!(
        "{}: {succeeded} of {total} done, {failed} failed, {retried} retried, {processing} in flight, {} workers",
        args.task,
        dispatcher.workers()
    )
}

/// All are kept in memory.
const MAX_BLOCKS: u64 = 10_000_000;
/// Lines about what went wrong.
const MAX_LINES: u32 = 20;
