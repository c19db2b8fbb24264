//! The program `cuframes`: publish, subscribe and try out shared video streams.
//!
//! Exit codes: 0 all is well, 1 something failed, 2 wrong usage. An error is one line on standard error:
//! `cuframes: <what failed>: <cause>; <what to do>`.

mod args;
mod barrier;
mod bench;
mod bridge;
mod console;
mod convert;
mod crew;
mod demo;
mod dispatch;
mod doctor;
mod error;
mod exporter;
mod gauge;
mod gc;
mod generate;
mod hops;
mod inspect;
mod keys;
mod ls;
mod memory;
mod model;
mod output;
mod pattern;
mod picture;
mod place;
mod publish;
mod rate;
mod record;
mod recording;
mod replay;
mod signals;
mod sink;
mod snapshot;
mod source;
mod stats;
mod subscribe;
mod survey;
mod taker;
mod top;
mod view;
mod work;
mod worker;

use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;

use crate::args::{Cli, Command};
use crate::console::Console;
use crate::error::{Failure, failed};
use crate::signals::{Later, Signals};

fn main() -> ExitCode {
    cuframes_cuda::probe::run_child_if_asked();
    if let Some(code) = cuframes_bench::run_if_asked(&bench::CONTENDERS) {
        return code;
    }
    match parse().and_then(|cli| run(&cli)) {
        Ok(code) => code,
        Err(failure) => {
            output::print_error(&format!("cuframes: {failure}"));
            failure.exit_code()
        }
    }
}

/// Runs a command, and says why it failed if it did.
fn run(cli: &Cli) -> Result<ExitCode, Failure> {
    let console = Console::start()
        .map_err(|error| failed!("can't start a thread: {error}; raise the limits (ulimit -u)"))?;
    let outcome = run_command(cli, &console);
    if let Err(failure) = &outcome {
        console.say(&format!("cuframes: {failure}"));
    }
    console.flush();
    Ok(outcome.map_or_else(|failure| failure.exit_code(), |()| ExitCode::SUCCESS))
}

fn run_command(cli: &Cli, console: &Console) -> Result<(), Failure> {
    let run_dir = cli.run_dir.as_deref();
    match &cli.command {
        Command::Demo(args) => demo::run(args, run_dir, &Signals::install(Later::Hurries)?, console),
        Command::Publish(args) => publish::run(args, run_dir, &Signals::install(Later::Ends)?, console),
        Command::Subscribe(args) => subscribe::run(args, run_dir, &Signals::install(Later::Ends)?, console),
        Command::Ls(args) => ls::run(args, run_dir, &Signals::install(Later::Ends)?, console),
        Command::Inspect(args) => inspect::run(args, run_dir, &Signals::install(Later::Ends)?, console),
        Command::Top(args) => top::run(args, run_dir, &Signals::install(Later::Ends)?, console),
        Command::Exporter(args) => exporter::run(args, run_dir, &Signals::install(Later::Ends)?, console),
        Command::Gc(args) => gc::run(args, run_dir, &Signals::install(Later::Ends)?, console),
        Command::Doctor(args) => doctor::run(args, run_dir, &Signals::install(Later::Ends)?, console),
        Command::Completions(args) => generate::completions(args, &Signals::install(Later::Ends)?, console),
        Command::Man(args) => generate::man(args, &Signals::install(Later::Ends)?, console),
        Command::Record(args) => record::run(args, run_dir, &Signals::install(Later::Ends)?, console),
        Command::Replay(args) => replay::run(args, run_dir, &Signals::install(Later::Ends)?, console),
        Command::Snapshot(args) => snapshot::run(args, run_dir, &Signals::install(Later::Ends)?, console),
        Command::View(args) => view::run(args, run_dir, &Signals::install(Later::Hurries)?, console),
        Command::Barrier(args) => barrier::run(args, &Signals::install(Later::Ends)?, console),
        Command::Dispatch(args) => dispatch::run(args, run_dir, &Signals::install(Later::Hurries)?, console),
        Command::Work(args) => work::run(args, run_dir, &Signals::install(Later::Hurries)?, console),
        Command::Bridge(args) => bridge::run(args, run_dir, &Signals::install(Later::Hurries)?, console),
        Command::Bench(args) => bench::run(args, &Signals::install(Later::Hurries)?, console),
    }
}

/// Prints the help, if asked for, and ends the program.
fn parse() -> Result<Cli, Failure> {
    Cli::try_parse().map_err(|error| match error.kind() {
        ErrorKind::DisplayHelp
        | ErrorKind::DisplayVersion
        | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => error.exit(),
        _ => Failure::Usage(one_line(&error.to_string())),
    })
}

/// Puts the lines of clap's message that say what is wrong into one.
fn one_line(message: &str) -> String {
    let lines = message.lines().map(str::trim).take_while(|line| !is_boilerplate(line));
    let text = lines.filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ");
    let text = text.strip_prefix("error: ").unwrap_or(&text).replace(" tip: ", "; ");
    format!("{text}; see --help")
}

fn is_boilerplate(line: &str) -> bool {
    line.starts_with("Usage:") || line.starts_with("For more information")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage_error(line: &str) -> String {
        one_line(&Cli::try_parse_from(line.split(' ')).unwrap_err().to_string())
    }

    #[test]
    fn a_usage_error_is_one_line_that_says_what_would_be_right() {
        assert_eq!(
            usage_error("cuframes demo --ring 17"),
            "invalid value '17' for '--ring <N>': a ring has 1 to 16 frames; see --help"
        );
        assert_eq!(
            usage_error("cuframes demo --policy strict"),
            "invalid value 'strict' for '--policy <POLICY>' [possible values: drop-oldest, strict-wait]; \
             a similar value exists: 'strict-wait'; see --help"
        );
        assert_eq!(
            usage_error("cuframes publish"),
            "the following required arguments were not provided: <--y4m <FILE>|--pattern <PATTERN>> <KEY>; see --help"
        );
    }
}
