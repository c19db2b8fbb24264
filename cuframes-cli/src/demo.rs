//! `cuframes demo`: one publisher and several subscribers, each in a process of its own, and a table of what they
//! measure.

use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use clap::ValueEnum;
use cuframes_core::{Key, Policy, SubscriberMode};
use serde::Serialize;

use crate::args::{BackendArgs, DemoArgs, Pattern, RingArgs};
use crate::console::Console;
use crate::error::{Failure, failed};
use crate::output::{REFRESH, json};
use crate::place::Place;
use crate::signals::Signals;
use crate::source::pattern_meta;
use crate::stats::{Latency, Published, Received, human};
use crate::worker::{Report, Worker};

/// Runs the demo. Fails if a byte of any frame was wrong or a process did not end well.
pub(crate) fn run(
    args: &DemoArgs,
    run_dir: Option<&Path>,
    signals: &Signals,
    console: &Console,
) -> Result<(), Failure> {
    // The processes would say the same, but as wrong usage of theirs.
    pattern_meta(Pattern::Seq, args.format, args.size)?;
    let place = Place::make(run_dir).map_err(|error| {
        failed!("can't make a directory for the demo: {error}; set TMPDIR to another one")
    })?;
    let (sender, reports) = channel();
    let mut workers = Vec::new();
    for (name, command) in commands(args, place.key()) {
        let worker = Worker::start(workers.len(), name, &command, place.run_dir(), &sender);
        workers.push(worker.map_err(|error| failed!("can't start a process of the demo: {error}"))?);
    }
    watch(&mut workers, &reports, args.patience, signals, console);
    drop(place);
    let outcome = Outcome::of(&workers, signals.raised());
    console.print(&if args.json { json(&outcome)? } else { summary(args, &workers) }, signals)?;
    outcome.verdict(&workers)
}

/// Names and arguments of the processes, the publisher first.
fn commands(args: &DemoArgs, key: &Key) -> Vec<(String, Vec<String>)> {
    let DemoArgs { subscribers, frames, size, format, fps, ring: RingArgs { slots, policy }, memory, .. } =
        args;
    let BackendArgs { backend, device } = memory;
    let backend = backend.to_possible_value().map_or(String::new(), |value| value.get_name().to_string());
    // A publisher that waits for everybody lets everybody take every frame.
    let mode = match *policy {
        Policy::STRICT_WAIT => SubscriberMode::STRICT_ORDER,
        _ => SubscriberMode::NEWEST_ONLY,
    };
    let publisher = format!(
        "publish {key} --pattern seq --size {size} --format {format} --fps {fps} --frames {frames} \
         --ring {slots} --policy {policy} --wait-for {subscribers} --wait-timeout {START_SECS} --backend {backend} --device {device}"
    );
    let subscriber = |n| {
        let name = format!("subscriber-{n}");
        let line = format!(
            "subscribe {key} --name {name} --mode {mode} --check-seq --timeout {START_SECS} --device {device}"
        );
        (name, line)
    };
    [("publisher".to_string(), publisher)]
        .into_iter()
        .chain((1..=*subscribers).map(subscriber))
        .map(|(name, line)| (name, line.split(' ').map(String::from).collect()))
        .collect()
}

/// Draws the table until every process has ended. A signal, or the first process that fails or hangs, ends them all: they
/// are told to end, and killed if they don't.
fn watch(
    workers: &mut [Worker],
    reports: &Receiver<(usize, Option<Report>)>,
    patience: Duration,
    signals: &Signals,
    console: &Console,
) {
    let mut last = Instant::now();
    // For how long they have been told to end.
    let mut ending = None;
    while workers.iter().any(Worker::is_running) && ending < Some(2 * GRACE) {
        let first = reports.recv_timeout(REFRESH).ok();
        for (number, report) in first.into_iter().chain(reports.try_iter()) {
            if let Some(worker) = workers.get_mut(number) {
                worker.hear(report);
            }
        }
        // Time in which we could not listen does not count against them: this process may have been stopped.
        let time = last.elapsed().min(2 * REFRESH);
        last = Instant::now();
        workers.iter_mut().for_each(|worker| worker.pass(time, patience));
        console.draw([HEADER.into()].into_iter().chain(workers.iter().map(row)).collect());
        let is_over = signals.raised() || workers.iter().any(|worker| worker.trouble.is_some());
        match &mut ending {
            None if is_over => {
                workers.iter().for_each(Worker::stop);
                ending = Some(Duration::ZERO);
            }
            None => {}
            Some(for_how_long) => {
                *for_how_long += time;
                if *for_how_long > GRACE || signals.raised_again() {
                    workers.iter_mut().for_each(Worker::kill);
                }
            }
        }
    }
}

/// What the demo showed: the object that `--json` prints.
#[derive(Serialize)]
struct Outcome<'a> {
    ok: bool,
    /// A signal ended it.
    interrupted: bool,
    torn: u64,
    failed: usize,
    publisher: Option<&'a Report>,
    subscribers: Vec<Named<'a>>,
}

#[derive(Serialize)]
struct Named<'a> {
    name: &'a str,
    #[serde(flatten)]
    report: Option<&'a Report>,
}

impl<'a> Outcome<'a> {
    fn of(workers: &'a [Worker], interrupted: bool) -> Self {
        let torn = workers.iter().filter_map(|worker| worker.report.as_ref()).map(Report::torn).sum();
        let failed = workers.iter().filter(|worker| worker.trouble.is_some()).count();
        let named = |worker: &'a Worker| Named { name: &worker.name, report: worker.report.as_ref() };
        Self {
            ok: torn == 0 && failed == 0,
            interrupted,
            torn,
            failed,
            publisher: workers.first().and_then(|publisher| publisher.report.as_ref()),
            subscribers: workers.iter().skip(1).map(named).collect(),
        }
    }

    /// Names the first process that failed, the publisher before the others: they fail when it does.
    fn verdict(&self, workers: &[Worker]) -> Result<(), Failure> {
        let trouble = workers.iter().find_map(|worker| Some((&worker.name, worker.trouble.as_ref()?)));
        match (trouble, self.failed) {
            (None, _) => Ok(()),
            (Some((name, trouble)), 1) => Err(failed!("{name}: {trouble}")),
            (Some((name, trouble)), n) => Err(failed!("{n} processes failed, first {name}: {trouble}")),
        }
    }
}

/// The table at the end.
fn summary(args: &DemoArgs, workers: &[Worker]) -> String {
    let DemoArgs { size, format, ring: RingArgs { slots, policy }, .. } = args;
    let memory = workers.iter().find_map(|worker| match &worker.report {
        Some(Report::Published(Published { memory, .. })) => Some(format!(", {memory} memory")),
        _ => None,
    });
    let title = format!("{format} {size}, ring {slots}, {policy}{}", memory.unwrap_or_default());
    [title, HEADER.into()].into_iter().chain(workers.iter().map(row)).collect::<Vec<_>>().join("\n")
}

/// One line of the table.
fn row(worker: &Worker) -> String {
    let none = String::new;
    let [frames, fps, p50, p99, dropped, torn] = match &worker.report {
        None => [const { String::new() }; 6],
        Some(Report::Published(Published { frames, fps, .. })) => {
            [frames.to_string(), format!("{fps:.1}"), none(), none(), none(), none()]
        }
        Some(Report::Received(Received { frames, fps, latency_ns, dropped, torn, .. })) => {
            let latency = |pick: fn(&Latency) -> u64| latency_ns.as_ref().map(pick).map_or_else(none, human);
            [
                frames.to_string(),
                format!("{fps:.1}"),
                latency(|latency| latency.p50),
                latency(|latency| latency.p99),
                dropped.to_string(),
                torn.to_string(),
            ]
        }
    };
    format!("{:<14}{frames:>9}{fps:>10}{p50:>10}{p99:>10}{dropped:>10}{torn:>10}", worker.name)
}

/// How long the processes wait for each other: long enough for a machine that is busy.
const START_SECS: u32 = 60;

/// How long they may take to end.
const GRACE: Duration = Duration::from_secs(5);

const HEADER: &str = "process          frames       fps       p50       p99   dropped      torn";
