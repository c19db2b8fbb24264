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

use super::{Crews, ENDED_TOO_OFTEN, Teller, announce, loop_failed, quoted};
use crate::args::{DispatchArgs, WhenFullArg, version};
use crate::console::Console;
use crate::error::{Failure, failed};
use crate::memory::{View, over_memory};
use crate::output::{self, Count, REFRESH};
use crate::signals::Signals;
use crate::stats::End;
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
    /// Lines of `--each` that are left out.
    unread: u64,
    seconds: f64,
    end: End,
}

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            stream,
            frames,
            done,
            failed,
            dropped,
            given_up,
            lost,
            retried,
            restarts,
            seconds,
            end,
            ..
        } = self;
        let workers = Count(*restarts, "worker");
        write!(
            f,
            "{stream}: {done} of {} done, {failed} failed, {dropped} dropped, {given_up} given up, ",
            Count(*frames, "frame")
        )?;
        write!(
            f,
            "{lost} not received; {} retried, {workers} restarted, {seconds:.1} s ({end})",
            Count(*retried, "block")
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
    let Some(subscriber) = attach(&builder, backend, args.frames.wait, signals)? else {
        return print(args, &Report::before_the_stream(key), signals, console);
    };
    let dispatcher = settings(args).start(subscriber);
    let mut dispatcher = dispatcher.map_err(|error| failed!("{error}"))?;
    let (endpoint, tasks) = (dispatcher.endpoint().clone(), dispatcher.tasks().to_vec());
    if let Some((height, width)) = args.frames.tile {
        let (rows, columns) = (Count(height, "row"), Count(width, "column"));
        let tiles = Count(dispatcher.tiles(), "tile");
        console.say(&format!("stream {key}: tiles of {rows} and {columns}, {tiles} to a frame"));
    }
    announce(args, &endpoint, run_dir, &what(args, key), console);
    warn_of_idle_workers(args, key, &dispatcher, console);
    let start = Instant::now();
    let mut crews = Crews::start(args, &endpoint, &tasks, run_dir)?;
    let mut teller = Teller::new(console, signals, args.each, Some(dispatcher.tiles()));
    let mut lost = None;
    let served = serve(key, &mut dispatcher, &mut crews, &mut teller, &mut lost);
    let shut_down = dispatcher.shut_down();
    let FrameCounts { taken, done, failed, dropped, given_up, .. } = dispatcher.counts();
    // They may be working on what was given up, which nobody waits for.
    let restarts = crews.dismiss(signals.raised() || given_up > 0, signals);
    let unread = teller.finish()?;
    let served = served.and_then(|()| shut_down.map_err(loop_failed));
    let end = match &lost {
        _ if served.is_err() => End::Failure,
        Some(error) if !is_end(error) => End::Failure,
        _ if signals.raised() => End::Signal,
        Some(_) => End::Stream,
        None if Some(taken) == args.frames.frames => End::Frames,
        // Its workers are gone.
        None => End::Failure,
    };
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
        unread,
        seconds: start.elapsed().as_secs_f64(),
        end,
    };
    // Whatever went wrong: what came before that is told.
    print(args, &report, signals, console)?;
    served?;
    let why = teller.where_it_says_why();
    match lost {
        Some(error) if !is_end(&error) => Err(failed!("{error}")),
        _ if failed > 0 => {
            Err(failed!("{failed} of {} of stream {key} not done; {why}", Count(taken, "frame")))
        }
        _ if given_up > 0 && !signals.raised() => {
            Err(failed!("{given_up} of {} of stream {key} given up; {why}", Count(taken, "frame")))
        }
        _ => Ok(()),
    }
}

fn print(
    args: &DispatchArgs,
    report: &Report<'_>,
    signals: &Signals,
    console: &Console,
) -> Result<(), Failure> {
    let text = if args.json { output::json(report)? } else { report.to_string() };
    console.print(&text, signals)
}

impl<'a> Report<'a> {
    /// Of one that a signal ended before there was a stream.
    fn before_the_stream(key: &'a Key) -> Self {
        Self {
            stream: key.as_str(),
            tasks: &[],
            frames: 0,
            done: 0,
            failed: 0,
            dropped: 0,
            given_up: 0,
            lost: 0,
            blocks: 0,
            retried: 0,
            restarts: 0,
            unread: 0,
            seconds: 0.0,
            end: End::Signal,
        }
    }
}

/// What a worker has to be told of its task.
fn what(args: &DispatchArgs, key: &Key) -> Vec<String> {
    if args.tasks.is_empty() {
        return vec![format!("--stream {key}")];
    }
    args.tasks.iter().map(|task| format!("--stream {key} --task {}", quoted(task))).collect()
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
            "cuframes: stream {key}: there are {workers} workers for {} at a time: some have nothing to do; \
             publish it with a larger --ring, or use --queue or --tile",
            Count(blocks, "block")
        ));
    }
}

/// Hands out frames until it is over. `end` is how the stream ended, if it has.
fn serve<B: View>(
    key: &Key,
    dispatcher: &mut StreamDispatcher<B>,
    crews: &mut Crews,
    teller: &mut Teller<'_>,
    end: &mut Option<Error>,
) -> Result<(), Failure> {
    let Teller { console, signals, .. } = *teller;
    let mut line = output::Line::new(console);
    loop {
        teller.pass_on();
        let is_finished = dispatcher.is_finished();
        line.show(Instant::now(), &progress(key, dispatcher));
        let wait = if is_finished { Duration::ZERO } else { REFRESH };
        match dispatcher.next_event(Some(wait)).map_err(loop_failed)? {
            Some(FeedEvent::Server(event)) => teller.tell(&event)?,
            Some(FeedEvent::Ended(error)) => {
                // Who starts now can't attach to it any more.
                crews.start_no_more();
                *end = Some(error);
            }
            None if is_finished => return Ok(()),
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
        "{key}: {}, {done} of {} done, {failed} failed, {dropped} dropped, {processing} in flight, {retried} retried",
        Count(dispatcher.workers(), "worker"),
        Count(taken, "frame")
    )
}

/// Of one stream (§2.4).
const MAX_SUBSCRIBERS: usize = 31;
