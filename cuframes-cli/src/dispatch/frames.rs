//! `cuframes dispatch KEY`: hands out the frames of a stream.

use std::fmt;
use std::path::Path;
use std::time::{Duration, Instant};

use cuframes_core::{Key, SubscriberMode};
use cuframes_mio::dispatch::{
    Counts, FRAMES, FeedEvent, FrameCounts, StreamDispatcher, StreamDispatcherBuilder, TaskConfig,
};
use cuframes_mio::{Error, Subscriber};
use serde::Serialize;

use super::{Crews, ENDED_TOO_OFTEN, Teller, announce, loop_failed};
use crate::args::{DispatchArgs, WhenFullArg, version};
use crate::console::Console;
use crate::error::{Failure, failed};
use crate::memory::{View, over_memory};
use crate::output::{self, REFRESH};
use crate::signals::Signals;
use crate::subscribe::{attach, is_end};

/// How it went.
#[derive(Serialize)]
struct Report<'a> {
    stream: &'a str,
    tasks: &'a [String],
    frames: u64,
    done: u64,
    failed: u64,
    dropped: u64,
    given_up: u64,
    lost: u64,
    blocks: u64,
    retried: u64,
    restarts: usize,
    seconds: f64,
}

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            stream, frames, done, failed, dropped, given_up, lost, retried, restarts, seconds, ..
        } = self;
        write!(
            f,
            "{stream}: {done} of {frames} frames done, {failed} failed, {dropped} dropped, {given_up} given up, "
        )?;
        write!(
            f,
            "{lost} not received; {retried} blocks retried, {restarts} workers restarted, {seconds:.1} s"
        )
    }
}

pub(super) fn run(
    args: &DispatchArgs,
    key: &Key,
    run_dir: Option<&Path>,
    signals: &Signals,
    console: &Console,
) -> Result<(), Failure> {
    let memory = &args.frames.memory;
    over_memory!(key, memory, |backend| run_on(args, key, &backend, run_dir, signals, console))
}

fn run_on<B: View>(
    args: &DispatchArgs,
    key: &Key,
    backend: &B,
    run_dir: Option<&Path>,
    signals: &Signals,
    console: &Console,
) -> Result<(), Failure> {
    let tasks = args.tasks.len().max(1);
    if args.workers.is_some_and(|workers| usize::from(workers) * tasks >= MAX_SUBSCRIBERS) {
        return Err(Failure::Usage(format!(
            "a stream has at most {MAX_SUBSCRIBERS} subscribers, of which this is one: use fewer --workers; see --help"
        )));
    }
    let name = "cuframes-dispatch".parse().map_err(|error| failed!("{error}"))?;
    let mut builder = Subscriber::builder(key.clone()).name(name).mode(SubscriberMode::STRICT_ORDER);
    if let Some(run_dir) = run_dir {
        builder = builder.run_dir(run_dir);
    }
    let Some(subscriber) = attach(&builder, backend, args.frames.wait, signals)? else { return Ok(()) };
    let dispatcher = settings(args).start(subscriber);
    let mut dispatcher = dispatcher.map_err(|error| failed!("{error}"))?;
    let (endpoint, tasks) = (dispatcher.endpoint().clone(), dispatcher.tasks().to_vec());
    announce(args, &endpoint, &format!("--stream {key}"), console);
    warn_of_idle_workers(args, key, &dispatcher, console);
    let start = Instant::now();
    let mut crews = Crews::start(args, &endpoint, &tasks, run_dir)?;
    let served = serve(args, key, &mut dispatcher, &mut crews, signals, console);
    let shut_down = dispatcher.shut_down();
    let FrameCounts { taken, done, failed, dropped, given_up, .. } = dispatcher.counts();
    // They may be working on what was given up, which nobody waits for.
    let restarts = crews.dismiss(signals.raised() || given_up > 0, signals);
    let end = served?;
    shut_down.map_err(loop_failed)?;
    let Counts { total, retried, .. } = counts(&dispatcher);
    let report = Report {
        stream: key.as_str(),
        tasks: &tasks,
        frames: taken,
        done,
        failed,
        dropped,
        given_up,
        lost: dispatcher.lost(),
        blocks: total,
        retried,
        restarts,
        seconds: start.elapsed().as_secs_f64(),
    };
    let text = if args.json { output::json(&report)? } else { report.to_string() };
    console.print(&text, signals)?;
    match end {
        Some(error) if !is_end(&error) => Err(failed!("{error}")),
        _ if failed > 0 => {
            Err(failed!("{failed} of {taken} frames of stream {key} were not done; see the lines above"))
        }
        _ if given_up > 0 && !signals.raised() => {
            Err(failed!("{given_up} of {taken} frames of stream {key} were given up; see the lines above"))
        }
        _ => Ok(()),
    }
}

fn settings(args: &DispatchArgs) -> StreamDispatcherBuilder {
    let names = if args.tasks.is_empty() { vec![FRAMES.to_string()] } else { args.tasks.clone() };
    let frames = &args.frames;
    let mut builder = StreamDispatcher::builder(args.listen.clone()).version(version(args.w0));
    for name in names {
        let mut task = TaskConfig::new(name);
        task.max_retries = args.retries;
        task.timeout = Some(args.timeout).filter(|timeout| !timeout.is_zero());
        builder = builder.task(task);
    }
    if let Some((height, width)) = frames.tile {
        builder = builder.tile(height, width);
    }
    if let Some(queue) = frames.queue {
        builder = builder.queue(queue.into());
    }
    if let Some(when_full) = frames.when_full {
        builder = builder.when_full(when_full.into());
    }
    // Who wants every frame gets every one, also those that come before the first worker does.
    if args.workers.is_some() || frames.when_full == Some(WhenFullArg::Wait) {
        builder = builder.expect_workers();
    }
    if let Some(count) = frames.frames {
        builder = builder.frames(count);
    }
    builder
}

/// Says so where there can't be work for all workers at a time.
fn warn_of_idle_workers<B: View>(
    args: &DispatchArgs,
    key: &Key,
    dispatcher: &StreamDispatcher<B>,
    console: &Console,
) {
    let blocks = dispatcher.queue() * dispatcher.tiles();
    if let Some(workers) = args.workers.filter(|workers| usize::from(*workers) > blocks) {
        console.say(&format!(
            "cuframes: stream {key}: there are {workers} workers for {blocks} blocks at a time: some have nothing to do; \
             publish it with a larger --ring, or use --queue or --tile"
        ));
    }
}

/// Hands out frames until it is over. Answers how the stream ended, if that is why.
fn serve<B: View>(
    args: &DispatchArgs,
    key: &Key,
    dispatcher: &mut StreamDispatcher<B>,
    crews: &mut Crews,
    signals: &Signals,
    console: &Console,
) -> Result<Option<Error>, Failure> {
    let mut line = output::Line::new(console);
    let mut teller = Teller::new(console, signals, args.each, Some(dispatcher.tiles()));
    let mut end = None;
    loop {
        let is_finished = dispatcher.is_finished();
        line.show(Instant::now(), &progress(key, dispatcher));
        let wait = if is_finished { Duration::ZERO } else { REFRESH };
        match dispatcher.next_event(Some(wait)).map_err(loop_failed)? {
            Some(FeedEvent::Server(event)) => teller.tell(&event)?,
            Some(FeedEvent::Ended(error)) => {
                // Who starts now can't attach to it any more.
                crews.start_no_more();
                end = Some(error);
            }
            None if is_finished => return Ok(end),
            _ => {}
        }
        if is_finished {
            continue;
        }
        if signals.raised() {
            dispatcher.abandon().map_err(loop_failed)?;
        } else if crews.look_after(dispatcher.scheduler())? && dispatcher.workers() == 0 {
            console.say(match end {
                Some(_) => {
                    "cuframes: the workers are gone, and the stream has ended: what is left is given up"
                }
                None => ENDED_TOO_OFTEN,
            });
            dispatcher.abandon().map_err(loop_failed)?;
        }
    }
}

/// Of all tasks together.
fn counts<B: View>(dispatcher: &StreamDispatcher<B>) -> Counts {
    let mut sum = Counts::default();
    for task in dispatcher.tasks() {
        let counts = dispatcher.scheduler().counts(task).unwrap_or_default();
        sum.total += counts.total;
        sum.processing += counts.processing;
        sum.retried += counts.retried;
    }
    sum
}

fn progress<B: View>(key: &Key, dispatcher: &StreamDispatcher<B>) -> String {
    let FrameCounts { taken, done, failed, dropped, .. } = dispatcher.counts();
    let Counts { processing, retried, .. } = counts(dispatcher);
    format!(
        "{key}: {} workers, {done} of {taken} frames done, {failed} failed, {dropped} dropped, {processing} in flight, \
         {retried} retried",
        dispatcher.workers()
    )
}

/// Of one stream (§2.4).
const MAX_SUBSCRIBERS: usize = 31;
