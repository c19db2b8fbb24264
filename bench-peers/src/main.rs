//! Measures cuframes, the floor, and what people would use instead, with the jobs and the options of `cuframes bench`.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use cuframes_bench::system::Failure;
use cuframes_bench::{Contender, Job, Options, check_plot, run, run_if_asked};
use cuframes_bench_peers::{Iceoryx2, IpcChannel, UnixSocket};

fn main() -> ExitCode {
    if let Some(code) = run_if_asked(&CONTENDERS) {
        return code;
    }
    match measure(&Args::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(failure) => {
            // There is nobody else to tell.
            writeln!(io::stderr(), "error: {failure}").ok();
            ExitCode::FAILURE
        }
    }
}

/// Measures, and prints what came out. Whether all of it could be measured.
fn measure(args: &Args) -> Result<bool, Failure> {
    if let Some(plot) = &args.plot {
        check_plot(plot)?;
        if !args.jobs.is_empty() && !args.jobs.iter().any(|job| [Job::Spin, Job::Wake].contains(job)) {
            return Err("nothing of this is plotted; add the job spin or wake".into());
        }
    }
    let mut options = Options::default();
    options.rounds = args.rounds;
    options.quick = args.quick;
    if !args.jobs.is_empty() {
        options.jobs.clone_from(&args.jobs);
    }
    let contenders: Vec<_> = CONTENDERS.into_iter().filter(|contender| args.measures(contender)).collect();
    let report = run(&contenders, &options)?;
    let text = if args.json { report.to_json()? } else { report.to_string() };
    writeln!(io::stdout(), "{}", text.trim_end())?;
    if let Some(plot) = &args.plot {
        report.plot(plot)?;
    }
    Ok(report.is_complete())
}

/// Measure cuframes beside what people would use instead.
#[derive(Parser, Debug)]
#[command(version)]
struct Args {
    /// How often everything is measured
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// What is measured [default: everything]
    #[arg(long, value_name = "JOB,...", value_delimiter = ',')]
    jobs: Vec<Job>,
    /// Who is measured [default: everybody]
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', value_parser = CONTENDERS.map(|contender| contender.name()))]
    systems: Vec<String>,
    /// Be done in some seconds: to see whether it works; the figures mean nothing
    #[arg(long)]
    quick: bool,
    /// Print one JSON object at the end
    #[arg(long)]
    json: bool,
    /// Draw the latencies of spin and wake into this SVG file
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
}

impl Args {
    fn measures(&self, contender: &Contender) -> bool {
        self.systems.is_empty() || self.systems.iter().any(|name| name == contender.name())
    }
}

/// Whom we measure: every process of a measurement has the same list.
const CONTENDERS: [Contender; 5] = [
    Contender::floor(),
    Contender::cuframes(),
    Contender::of::<Iceoryx2>(),
    Contender::of::<IpcChannel>(),
    Contender::of::<UnixSocket>(),
];
