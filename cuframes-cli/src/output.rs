//! What a command says while it runs and at its end.

use std::fmt::{self, Display};
use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use cuframes_core::Key;
use rustix::process::{Signal, getppid, set_parent_process_death_signal};
use serde::Serialize;
use tracing_subscriber::filter::LevelFilter;

use crate::args::ReportArgs;
use crate::console::Console;
use crate::error::{Failure, failed};
use crate::stats::fps;

/// Shows progress a few times a second: as a line on the terminal, or as JSON lines to the parent process.
pub(crate) struct Progress<'a> {
    console: &'a Console,
    shown: Shown,
    /// When it was shown last, and how many frames there were.
    last: (Instant, u64),
}

enum Shown {
    Line,
    Json,
    Nothing,
}

impl<'a> Progress<'a> {
    /// Ends this process when its parent does, if there is one to report to.
    pub(crate) fn start(args: &ReportArgs, console: &'a Console) -> Result<Self, Failure> {
        trace(args.verbose, console);
        let shown = match args.parent {
            Some(parent) => {
                follow(parent)?;
                Shown::Json
            }
            // Both would write on the same terminal.
            None if args.verbose > 0 => Shown::Nothing,
            // Who reads our output from a pipe, ffplay for one, may draw on the same terminal.
            None if io::stdout().is_terminal() => Shown::Line,
            None => Shown::Nothing,
        };
        Ok(Self { console, shown, last: (Instant::now(), 0) })
    }

    /// Shows a report if it is time for one. `report` gets the rate since the last one.
    pub(crate) fn show<R>(
        &mut self,
        now: Instant,
        frames: u64,
        report: impl FnOnce(f64) -> R,
    ) -> Result<(), Failure>
    where
        R: Serialize + Display,
    {
        let (since, earlier) = self.last;
        let elapsed = now.saturating_duration_since(since);
        if elapsed < REFRESH {
            return Ok(());
        }
        self.last = (now, frames);
        let report = report(fps(frames.saturating_sub(earlier), elapsed));
        match self.shown {
            Shown::Line => self.console.draw(vec![report.to_string()]),
            Shown::Json => self.console.report(&json(&report)?),
            Shown::Nothing => {}
        }
        Ok(())
    }

    /// Says something on standard error that is worth a line of its own.
    pub(crate) fn say(&self, text: &str) {
        match self.shown {
            Shown::Line | Shown::Nothing => self.console.say(text),
            // It would look like a failure to the parent.
            Shown::Json => {}
        }
    }

    /// Puts the final report into words, or into JSON if that is wanted.
    pub(crate) fn finish<R>(self, key: &Key, report: &R, as_json: bool) -> Result<String, Failure>
    where
        R: Serialize + Display,
    {
        match self.shown {
            Shown::Line | Shown::Nothing if !as_json => Ok(format!("{key}: {report}")),
            _ => json(report),
        }
    }
}

/// A line on the terminal that says how far a command without frames is.
pub(crate) struct Line<'a> {
    console: Option<&'a Console>,
    /// When it was shown last.
    last: Option<Instant>,
}

impl<'a> Line<'a> {
    pub(crate) fn new(console: &'a Console) -> Self {
        Self { console: Some(console).filter(|_| io::stdout().is_terminal()), last: None }
    }

    /// Shows it, if it is time for that.
    pub(crate) fn show(&mut self, now: Instant, text: &impl Display) {
        self.show_with(now, || vec![text.to_string()]);
    }

    /// Shows rows, if it is time for that.
    pub(crate) fn show_with(&mut self, now: Instant, rows: impl FnOnce() -> Vec<String>) {
        if let Some(console) = self.console
            && self.last.is_none_or(|last| now.saturating_duration_since(last) >= REFRESH)
        {
            self.last = Some(now);
            console.draw(rows());
        }
    }
}

/// Says what happens on standard error, one line each, as far as it is asked for.
fn trace(verbose: u8, console: &Console) {
    let level = match verbose {
        0 => return,
        1 => LevelFilter::INFO,
        2 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    };
    let lines = tracing_subscriber::fmt().with_max_level(level).with_writer(console.clone());
    // It fails if somebody traces already.
    let _ = lines.with_ansi(false).with_target(false).log_internal_errors(false).try_init();
}

/// Asks for SIGTERM when the parent process ends.
fn follow(parent: i32) -> Result<(), Failure> {
    set_parent_process_death_signal(Some(Signal::TERM))
        .map_err(|error| failed!("can't follow process {parent}: {error}"))?;
    // It may have ended before we asked.
    if getppid().is_some_and(|pid| pid.as_raw_nonzero().get() == parent) {
        Ok(())
    } else {
        Err(failed!("can't report to process {parent}: it is not the parent process"))
    }
}

/// How many of something there are: `1 frame`, `2 frames`.
pub(crate) struct Count<N>(pub(crate) N, pub(crate) &'static str);

impl<N: Display + PartialEq + From<u8>> Display for Count<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(n, name) = self;
        write!(f, "{n} {name}{}", if *n == N::from(1) { "" } else { "s" })
    }
}

/// A report as one line of JSON.
pub(crate) fn json(report: &impl Serialize) -> Result<String, Failure> {
    serde_json::to_string(report).map_err(|error| failed!("can't write a report: {error}"))
}

/// Writes a line to standard error at once: for a program that does nothing else yet.
pub(crate) fn print_error(line: &str) {
    let _ = writeln!(io::stderr().lock(), "{line}");
}

/// Five times a second: often enough to look alive, seldom enough to cost nothing.
pub(crate) const REFRESH: Duration = Duration::from_millis(200);
