//! `cuframes bench`: measures cuframes and the floor on this machine.

use cuframes_bench::{Contender, Job, Options, Step, Watch, check_plot, run_watched};

use crate::args::BenchArgs;
use crate::console::Console;
use crate::error::{Failure, failed};
use crate::signals::Signals;

/// Whom we measure: every process of a measurement has the same list.
pub(crate) const CONTENDERS: [Contender; 2] = [Contender::floor(), Contender::cuframes()];

/// Runs the measurement. Fails if a part of it could not be measured; what could is printed all the same.
pub(crate) fn run(args: &BenchArgs, signals: &Signals, console: &Console) -> Result<(), Failure> {
    if let Some(plot) = &args.plot {
        check_plot(plot).map_err(|failure| Failure::Usage(failure.to_string()))?;
        if !args.jobs.is_empty() && !args.jobs.iter().any(|job| [Job::Spin, Job::Wake].contains(job)) {
            return Err(Failure::Usage("nothing of this is plotted; add the job spin or wake".into()));
        }
    }
    let mut options = Options::default();
    options.rounds = args.rounds;
    options.quick = args.quick;
    if !args.jobs.is_empty() {
        options.jobs.clone_from(&args.jobs);
    }
    let report = run_watched(&CONTENDERS, &options, &mut Screen { signals, console });
    let report = report.map_err(|failure| failed!("can't measure: {failure}"))?;
    let text = if args.json {
        report.to_json().map_err(|error| failed!("can't write a report: {error}"))?
    } else {
        report.to_string()
    };
    console.print(&text, signals)?;
    if signals.raised() && !report.interrupted {
        return Err(failed!("interrupted while the report was written; it may be cut"));
    }
    if let Some(plot) = &args.plot {
        report.plot(plot).map_err(|failure| failed!("{failure}"))?;
    }
    match report.failures.len() {
        _ if report.interrupted => Err(failed!("interrupted; not everything was measured")),
        0 => Ok(()),
        n => Err(failed!("{n} measurements failed; the report says which, and why")),
    }
}

/// Shows how far it is.
struct Screen<'a> {
    signals: &'a Signals,
    console: &'a Console,
}

impl Watch for Screen<'_> {
    fn next(&mut self, step: &Step<'_>) {
        self.console.draw(vec![step.to_string()]);
    }

    fn is_over(&mut self) -> bool {
        self.signals.raised()
    }
}
