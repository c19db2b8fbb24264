//! [`run`]: all cells of a measurement, one after another, round by round, so that whatever else happens on the machine
//! happens to every contender.

use std::env;
use std::fmt;
use std::fs::DirBuilder;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::process::{Child, ExitCode};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use crate::case::{Case, Job};
use crate::contender::{Contender, Part};
use crate::environment::Environment;
use crate::figures::Figure;
use crate::pin;
use crate::report::{Outcome, Report};
use crate::stage::{Brief, Stage, sweep};
use crate::system::Failure;
use crate::troupe::{Call, LEAD, Line, Post, SUPPORT, again, end_with_input};

/// What to measure, and how well.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// How often everything is measured.
    pub rounds: u32,
    /// What is measured.
    pub jobs: Vec<Job>,
    /// Whether it is to be over soon: figures are no good then.
    pub quick: bool,
    /// How long one cell may take: a case, on one contender, in one round.
    pub cell_timeout: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self { rounds: 5, jobs: Job::ALL.into(), quick: false, cell_timeout: Duration::from_secs(120) }
    }
}

/// Watches a measurement, and may end it.
pub trait Watch {
    /// The next cell begins.
    fn next(&mut self, step: &Step<'_>);

    /// Whether the measurement is to end now. It is asked some times a second.
    fn is_over(&mut self) -> bool;
}

/// Where a measurement is.
#[derive(Debug)]
#[non_exhaustive]
pub struct Step<'a> {
    /// Cells before this one.
    pub done: usize,
    /// All cells.
    pub all: usize,
    /// The round, from 1.
    pub round: u32,
    /// The job.
    pub job: Job,
    /// The contender's name.
    pub system: &'a str,
    case: Case,
}

impl fmt::Display for Step<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { done, all, round, job, system, case } = self;
        write!(f, "{done}/{all}  round {round}  {job} {case}  {system}")
    }
}

/// Measures all contenders. A contender that fails does not end it: the report says so.
///
/// # Errors
/// Nothing can be measured here at all.
pub fn run(contenders: &[Contender], options: &Options) -> Result<Report, Failure> {
    run_watched(contenders, options, &mut Unwatched)
}

/// As [`run`], while somebody watches.
///
/// # Errors
/// As [`run`].
pub fn run_watched(
    contenders: &[Contender],
    options: &Options,
    watch: &mut dyn Watch,
) -> Result<Report, Failure> {
    let cpus = pin::allowed()?;
    let environment = Environment::look(&cpus);
    let place = tempfile::Builder::new().prefix(PREFIX).tempdir();
    let place =
        place.map_err(|error| format!("can't make a directory: {error}; set TMPDIR to another one"))?;
    let cases: Vec<Case> =
        Job::ALL.into_iter().filter(|job| options.jobs.contains(job)).flat_map(Job::cases).collect();
    let cells: Vec<_> = (1..=options.rounds)
        .flat_map(|round| cases.iter().map(move |case| (round, *case)))
        .flat_map(|(round, case)| contenders.iter().map(move |contender| (round, case, contender)))
        .filter(|(_, case, contender)| contender.part(case.job()).is_some())
        .collect();
    let mut outcomes = Vec::new();
    let mut is_interrupted = false;
    for (done, (round, case, contender)) in cells.iter().enumerate() {
        let step = Step {
            done,
            all: cells.len(),
            round: *round,
            job: case.job(),
            system: contender.name(),
            case: *case,
        };
        watch.next(&step);
        let brief = Brief {
            contender: contender.name().into(),
            case: *case,
            quick: options.quick,
            dir: place.path().join(name(place.path(), done)),
            cpus: if pin::is_possible(&cpus) && case.job() != Job::Flow { cpus.clone() } else { Vec::new() },
        };
        let result = perform(&brief, options.cell_timeout, watch);
        sweep(&brief.dir);
        match result {
            Some(result) => {
                outcomes.push(Outcome { case: *case, system: contender.name(), round: *round, result });
            }
            None => {
                is_interrupted = true;
                break;
            }
        }
    }
    drop(place);
    Ok(Report::of(environment, options, &outcomes, is_interrupted))
}

/// Does what the program was started for, if it was by [`run`]: a program that measures calls it first of all, with all its
/// contenders, and ends with its answer if there is one.
#[must_use]
pub fn run_if_asked(contenders: &[Contender]) -> Option<ExitCode> {
    let mut args = env::args_os().skip(1);
    let mode = args.next()?;
    let told = args.next()?;
    let outcome = match mode.to_str()? {
        LEAD => told.to_str().map(|told| lead(contenders, told)),
        SUPPORT => told.to_str().map(|told| support(contenders, told)),
        _ => None,
    }?;
    let line = match outcome {
        Ok(value) => Line::Result(value),
        Err(failure) => Line::Failed(failure.to_string()),
    };
    // If nobody listens any more, nobody needs to know.
    let _ = line.say();
    Some(if matches!(line, Line::Result(_)) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The main process of a cell.
fn lead(contenders: &[Contender], told: &str) -> Result<serde_json::Value, Failure> {
    let brief: Brief = serde_json::from_str(told)?;
    end_with_input(brief.dir.clone())?;
    let part = part(contenders, &brief)?;
    let figures = (part.lead)(&Stage { brief })?;
    Ok(serde_json::to_value(figures)?)
}

/// Another process of a cell.
fn support(contenders: &[Contender], told: &str) -> Result<serde_json::Value, Failure> {
    let call: Call = serde_json::from_str(told)?;
    let part = part(contenders, &call.brief)?;
    (part.support)(&mut Post::take(call)?)
}

fn part(contenders: &[Contender], brief: &Brief) -> Result<Part, Failure> {
    let contender = contenders.iter().find(|contender| contender.name() == brief.contender);
    let part = contender.and_then(|contender| contender.part(brief.case.job()));
    part.ok_or_else(|| format!("{} does not do {}", brief.contender, brief.case.job()).into())
}

/// Runs a cell. `None` if it was cut short because the measurement is over.
fn perform(brief: &Brief, timeout: Duration, watch: &mut dyn Watch) -> Option<Result<Vec<Figure>, String>> {
    let start = || -> Result<Child, Failure> {
        DirBuilder::new().mode(0o700).create(&brief.dir)?;
        Ok(again(LEAD, brief)?.spawn()?)
    };
    let mut child = match start() {
        Ok(child) => child,
        Err(failure) => return Some(Err(failure.to_string())),
    };
    let (sender, answers) = channel();
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let listener = thread::Builder::new().spawn(move || {
        let mut answer = None;
        for line in stdout.into_iter().flat_map(|stdout| BufReader::new(stdout).lines()).map_while(Result::ok)
        {
            answer = serde_json::from_str(&line).ok().or(answer);
        }
        let _ = sender.send(answer);
    });
    let complaints = thread::Builder::new().spawn(move || {
        let mut text = Vec::new();
        let _ = stderr.map(|stderr| stderr.take(MOST_COMPLAINTS).read_to_end(&mut text));
        String::from_utf8_lossy(&text).trim().to_string()
    });
    let deadline = Instant::now() + timeout;
    let answer = loop {
        match answers.recv_timeout(STEP) {
            Ok(answer) => break answer,
            Err(RecvTimeoutError::Disconnected) => break None,
            Err(RecvTimeoutError::Timeout) if watch.is_over() => {
                end(&mut child);
                return None;
            }
            Err(RecvTimeoutError::Timeout) if Instant::now() > deadline => {
                end(&mut child);
                return Some(Err(format!("no result in {timeout:?}")));
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
    };
    let how = end(&mut child);
    drop(listener);
    Some(match answer {
        Some(Line::Result(value)) => serde_json::from_value(value).map_err(|error| error.to_string()),
        Some(Line::Failed(failure)) => Err(failure),
        Some(Line::Word(_)) | None => {
            let said = complaints.ok().and_then(|complaints| complaints.join().ok()).unwrap_or_default();
            Err(match said.as_str() {
                "" => format!("ended without a result: {how}"),
                said => format!("ended without a result: {how}: {said}"),
            })
        }
    })
}

/// Waits until a cell has ended, and says how. One that has not is told to, by the end of its input, and killed if it does not.
fn end(child: &mut Child) -> String {
    drop(child.stdin.take());
    let deadline = Instant::now() + GRACE;
    while Instant::now() < deadline {
        match child.try_wait() {
            Ok(None) => thread::sleep(Duration::from_millis(1)),
            Ok(Some(status)) => return status.to_string(),
            Err(error) => return error.to_string(),
        }
    }
    // With all that it has started.
    let _ = kill_process_group(Pid::from_child(child), Signal::KILL);
    let _ = child.wait();
    "it had to be killed".into()
}

/// A name that nobody else on the machine has, because the directory's is.
fn name(place: &Path, number: usize) -> String {
    let unique = place.file_name().unwrap_or_default().to_string_lossy();
    format!("b{}-{number:05}", unique.trim_start_matches(PREFIX))
}

/// Nobody watches.
#[derive(Debug)]
struct Unwatched;

impl Watch for Unwatched {
    fn next(&mut self, _step: &Step<'_>) {}

    fn is_over(&mut self) -> bool {
        false
    }
}

const PREFIX: &str = "cuframes-bench-";
const STEP: Duration = Duration::from_millis(20);
/// How long it may take to end.
const GRACE: Duration = Duration::from_secs(5);
/// Bytes of what a process says about its end.
const MOST_COMPLAINTS: u64 = 4096;
