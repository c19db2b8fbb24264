//! `cuframes doctor`: whether streams can work on this machine, and what to do where they can't.

use std::fmt;
use std::path::Path;

use serde::Serialize;

use crate::args::DoctorArgs;
use crate::console::Console;
use crate::error::{Failure, failed};
use crate::output;
use crate::signals::Signals;

mod files;
mod gpu;
mod kernel;
mod stream;
mod surroundings;

/// What was looked at, and what came out.
#[derive(Serialize, Debug)]
struct Check {
    /// What was looked at.
    what: String,
    verdict: Verdict,
    /// What was found.
    found: String,
    /// What to do; only if it is not ok.
    remedy: Option<String>,
}

#[derive(Serialize, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    Ok,
    Warning,
    Problem,
}

impl Check {
    fn ok(what: impl Into<String>, found: impl Into<String>) -> Self {
        Self { what: what.into(), verdict: Verdict::Ok, found: found.into(), remedy: None }
    }

    fn warning(what: impl Into<String>, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        let remedy = Some(remedy.into());
        Self { what: what.into(), verdict: Verdict::Warning, found: found.into(), remedy }
    }

    fn problem(what: impl Into<String>, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        let remedy = Some(remedy.into());
        Self { what: what.into(), verdict: Verdict::Problem, found: found.into(), remedy }
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, verdict, found, remedy } = self;
        let verdict = match verdict {
            Verdict::Ok => "ok",
            Verdict::Warning => "warning",
            Verdict::Problem => "PROBLEM",
        };
        write!(f, "{verdict:<8} {what:<18} {found}")?;
        if let Some(remedy) = remedy {
            write!(f, "\n{:<8} {:<18} -> {remedy}", "", "")?;
        }
        Ok(())
    }
}

#[derive(Serialize)]
struct Report {
    checks: Vec<Check>,
    problems: usize,
    warnings: usize,
    /// A signal came before everything was looked at.
    is_interrupted: bool,
}

pub(crate) fn run(
    args: &DoctorArgs,
    run_dir: Option<&Path>,
    signals: &Signals,
    console: &Console,
) -> Result<(), Failure> {
    let groups: [&dyn Fn() -> Vec<Check>; 5] =
        [&|| files::checks(run_dir), &kernel::checks, &surroundings::checks, &stream::checks, &gpu::checks];
    let mut checks = Vec::new();
    for group in groups {
        if signals.raised() {
            break;
        }
        checks.extend(group());
    }
    let is_interrupted = signals.raised();
    let count = |verdict| checks.iter().filter(|check| check.verdict == verdict).count();
    let (problems, warnings) = (count(Verdict::Problem), count(Verdict::Warning));
    let report = Report { checks, problems, warnings, is_interrupted };
    if args.json {
        console.print(&output::json(&report)?, signals)?;
    } else {
        let lines: Vec<_> = report.checks.iter().map(ToString::to_string).collect();
        console.print(&lines.join("\n"), signals)?;
    }
    match problems {
        _ if is_interrupted => Err(failed!("interrupted; not everything was looked at")),
        0 => Ok(()),
        1 => Err(failed!("1 problem; what to do is below it")),
        n => Err(failed!("{n} problems; what to do is below each of them")),
    }
}
