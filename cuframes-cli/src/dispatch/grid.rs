//! `cuframes dispatch --grid`: hands out the blocks of a box.

use std::fmt;
use std::time::{Duration, Instant};

use cuframes_mio::dispatch::{Counts, Dispatcher, Fit, Grid, Roi, TaskConfig};
use serde::Serialize;

use super::{Crews, ENDED_TOO_OFTEN, Teller, announce, loop_failed, one_task, quoted};
use crate::args::{DispatchArgs, FitArg, GridArgs, version};
use crate::console::Console;
use crate::error::{Failure, failed};
use crate::output::{self, Count, REFRESH};
use crate::signals::Signals;
use crate::stats::End;

/// How it went.
#[derive(Serialize)]
struct Report<'a> {
    task: &'a str,
    blocks: u64,
    done: u64,
    failed: u64,
    given_up: u64,
    retried: u64,
    restarts: usize,
    /// Lines of `--each` that are left out.
    unread: u64,
    seconds: f64,
    end: End,
}

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { task, blocks, done, failed, given_up, retried, restarts, seconds, end, .. } = self;
        write!(
            f,
            "{task}: {done} of {} done, {failed} failed, {given_up} given up, {retried} retried, ",
            Count(*blocks, "block")
        )?;
        write!(f, "{} restarted, {seconds:.1} s ({end})", Count(*restarts, "worker"))
    }
}

pub(super) fn run(args: &DispatchArgs, signals: &Signals, console: &Console) -> Result<(), Failure> {
    let GridArgs { grid: Some(total), block: Some(write), margin, fit } = &args.grid else {
        return Err(Failure::Usage("--grid needs --block; see --help".into()));
    };
    let margin = margin.as_ref().map(|margin| &margin.0);
    let grid = grid(total.0.clone(), write.0.clone(), margin, (*fit).into())?;
    let task = one_task(args)?;
    let dispatcher = Dispatcher::builder(args.listen.clone()).version(version(args.w0)).listen();
    let mut dispatcher = dispatcher.map_err(|error| failed!("{error}"))?;
    let endpoint = dispatcher.endpoint().clone();
    if let Some(left_out) = left_out(&total.0, &write.0, margin, *fit) {
        console.say(&format!("cuframes: {left_out}"));
    }
    announce(args, &endpoint, None, &[format!("--task {}", quoted(task))], console);
    let added = dispatcher.schedule(|scheduler| {
        let mut config = TaskConfig::new(task);
        config.max_retries = args.retries;
        config.timeout = Some(args.timeout).filter(|timeout| !timeout.is_zero());
        scheduler.add_task(config)?;
        grid.blocks(task).try_for_each(|block| scheduler.add_block(block, &[]))?;
        scheduler.close_task(task)
    });
    added.map_err(loop_failed)?.map_err(|error| failed!("can't dispatch this grid: {error}"))?;
    let start = Instant::now();
    let mut crews = Crews::start(args, &endpoint, &[task.into()], None)?;
    let mut teller = Teller::new(console, signals, args.each, None);
    let served = serve(task, &mut dispatcher, &mut crews, &mut teller);
    let shut_down = dispatcher.shut_down();
    let restarts = crews.dismiss(signals.raised(), signals);
    let unread = teller.finish()?;
    let served = served.and_then(|()| shut_down.map_err(loop_failed));
    let Counts { total, succeeded, failed, orphaned, retried, .. } = counts(task, &dispatcher);
    let report = Report {
        task,
        blocks: total,
        done: succeeded,
        failed,
        given_up: orphaned,
        retried,
        restarts,
        unread,
        seconds: start.elapsed().as_secs_f64(),
        end: match total - succeeded - failed {
            _ if served.is_err() => End::Failure,
            0 => End::Blocks,
            _ if signals.raised() => End::Signal,
            _ => End::Failure,
        },
    };
    // Whatever went wrong: what came before that is told.
    let text = if args.json { output::json(&report)? } else { report.to_string() };
    console.print(&text, signals)?;
    served?;
    match total - succeeded {
        0 => Ok(()),
        n if signals.raised() => {
            Err(failed!("stopped by a signal; {} of task {task} not done", Count(n, "block")))
        }
        n => Err(failed!(
            "{n} of {} of task {task} not done; {}",
            Count(total, "block"),
            teller.where_it_says_why()
        )),
    }
}

fn grid(total: Roi, write: Roi, margin: Option<&Roi>, fit: Fit) -> Result<Grid, Failure> {
    let read = match margin {
        None => write.clone(),
        Some(margin) => {
            let margins = margin.shape.iter();
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
    let grid = Grid::new(total, read, write, fit);
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

/// Says what no block writes: whoever counts on all of it shall not learn that later.
fn left_out(total: &Roi, write: &Roi, margin: Option<&Roi>, fit: FitArg) -> Option<String> {
    if fit != FitArg::Valid {
        return None;
    }
    let margins = margin.map_or_else(|| vec![0; write.shape.len()], |margin| margin.shape.clone());
    let axes = total.shape.iter().zip(&write.shape).zip(margins);
    let rests: Vec<_> = axes
        .map(|((total, write), margin)| {
            total.saturating_sub(margin.saturating_mul(2)).checked_rem(*write).unwrap_or(0)
        })
        .collect();
    let told = rests.iter().enumerate().filter(|(_, rest)| **rest > 0);
    let told: Vec<_> = told.map(|(axis, rest)| format!("the last {rest} along axis {axis}")).collect();
    (!told.is_empty())
        .then(|| format!("no block writes {}: whole ones do not fit there; see --fit", told.join(", nor ")))
}

/// Hands out blocks until all have ended.
fn serve(
    task: &str,
    dispatcher: &mut Dispatcher,
    crews: &mut Crews,
    teller: &mut Teller<'_>,
) -> Result<(), Failure> {
    let Teller { console, signals, .. } = *teller;
    let mut line = output::Line::new(console);
    while !dispatcher.scheduler().is_finished() {
        teller.pass_on();
        if signals.raised() {
            give_up(task, dispatcher)?;
        }
        line.show(Instant::now(), &progress(task, dispatcher));
        if let Some(event) = dispatcher.next_event(Some(REFRESH)).map_err(loop_failed)? {
            teller.tell(&event)?;
        }
        if crews.look_after(dispatcher.scheduler())? && dispatcher.workers() == 0 {
            console.say(ENDED_TOO_OFTEN);
            give_up(task, dispatcher)?;
        }
    }
    // What happened last.
    while let Some(event) = dispatcher.next_event(Some(Duration::ZERO)).map_err(loop_failed)? {
        teller.tell(&event)?;
    }
    Ok(())
}

fn give_up(task: &str, dispatcher: &mut Dispatcher) -> Result<(), Failure> {
    let abandoned = dispatcher.schedule(|scheduler| scheduler.abandon_task(task));
    abandoned.map_err(loop_failed)?.map_err(|error| failed!("{error}"))
}

fn counts(task: &str, dispatcher: &Dispatcher) -> Counts {
    dispatcher.scheduler().counts(task).unwrap_or_default()
}

fn progress(task: &str, dispatcher: &Dispatcher) -> String {
    let Counts { total, succeeded, failed, retried, processing, .. } = counts(task, dispatcher);
    format!(
        "{task}: {}, {succeeded} of {total} done, {failed} failed, {processing} in flight, {retried} retried",
        Count(dispatcher.workers(), "worker")
    )
}

/// All are kept in memory.
const MAX_BLOCKS: u64 = 10_000_000;
