//! `cuframes dispatch`: hands the frames of a stream, or the blocks of a grid, to workers.

mod frames;
mod grid;

use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::path::Path;

use cuframes_core::text::cut;
use cuframes_mio::dispatch::{BlockEvent, Cause, Context, Outcome, PeerFault, Scheduler, ServerEvent};
use cuframes_mio::net::Endpoint;
use serde::Serialize;

use crate::args::DispatchArgs;
use crate::console::Console;
use crate::crew::Crew;
use crate::error::{Failure, failed};
use crate::output;
use crate::signals::Signals;

pub(crate) fn run(
    args: &DispatchArgs,
    run_dir: Option<&Path>,
    signals: &Signals,
    console: &Console,
) -> Result<(), Failure> {
    let names = args.tasks.iter().collect::<BTreeSet<_>>();
    if names.len() < args.tasks.len() {
        return Err(Failure::Usage("two tasks have the same name; see --help".into()));
    }
    match &args.frames.key {
        Some(key) => frames::run(args, key, run_dir, signals, console),
        None => grid::run(args, signals, console),
    }
}

#[expect(clippy::needless_pass_by_value, reason = "for `map_err`")]
fn loop_failed(error: io::Error) -> Failure {
    failed!("the event loop of the dispatcher failed: {error}")
}

/// The task of a grid.
fn one_task(args: &DispatchArgs) -> Result<&str, Failure> {
    match args.tasks.as_slice() {
        [] => Ok(BLOCKS),
        [task] => Ok(task),
        _ => Err(Failure::Usage("a grid has one --task; see --help".into())),
    }
}

/// Says where it listens, as far as somebody has to know that.
fn announce(args: &DispatchArgs, endpoint: &Endpoint, what: &str, console: &Console) {
    if !endpoint.is_local() {
        console.say(&format!(
            "cuframes: dispatching at {endpoint}: there is no authentication; whoever can connect gets blocks"
        ));
    }
    if args.workers.is_none() {
        console
            .say(&format!("waiting for workers; start each with: cuframes work --connect {endpoint} {what}"));
    }
}

/// The workers that are to be started, by task.
struct Crews(Vec<(String, Crew)>);

impl Crews {
    fn start(
        args: &DispatchArgs,
        endpoint: &Endpoint,
        tasks: &[String],
        run_dir: Option<&Path>,
    ) -> Result<Self, Failure> {
        let Some(count) = args.workers else { return Ok(Self(Vec::new())) };
        let (host, port) = match endpoint {
            Endpoint::Tcp(address) => (reachable(address), address.port()),
            other => (other.to_string(), 0),
        };
        let start = |task: &String| {
            // Where to connect, as daisy says it, or as an endpoint of ours.
            let (host, id, task) = (host.clone(), task.clone(), task.clone());
            let context = move |worker| Context::new(&host, port, &task, worker).to_string();
            let crew = Crew::start(&args.command, count.into(), args.restarts, run_dir, Box::new(context));
            crew.map(|crew| (id, crew))
        };
        tasks.iter().map(start).collect::<Result<_, _>>().map(Self)
    }

    /// Starts those again that have ended before their task. Answers whether there is a task that has none left.
    fn look_after(&mut self, scheduler: &Scheduler) -> Result<bool, Failure> {
        let mut is_lost = false;
        for (_, crew) in self.0.iter_mut().filter(|(task, _)| !scheduler.is_task_finished(task)) {
            is_lost |= !crew.look_after()?;
        }
        Ok(is_lost)
    }

    /// Those that end from now on are not started again.
    fn start_no_more(&mut self) {
        self.0.iter_mut().for_each(|(_, crew)| crew.start_no_more());
    }

    /// Waits until all have ended, and answers how often one was started again.
    fn dismiss(&mut self, soon: bool, signals: &Signals) -> usize {
        self.0.iter_mut().for_each(|(_, crew)| crew.dismiss(soon, signals));
        self.0.iter().map(|(_, crew)| crew.restarts).sum()
    }
}

/// The address under which workers of this host can connect.
fn reachable(address: &SocketAddr) -> String {
    match address {
        SocketAddr::V4(address) if address.ip().is_unspecified() => "127.0.0.1".into(),
        SocketAddr::V6(address) if address.ip().is_unspecified() => "::1".into(),
        _ => address.ip().to_string(),
    }
}

/// Tells what went wrong, and of each block how it ended if that is asked for.
struct Teller<'a> {
    console: &'a Console,
    signals: &'a Signals,
    each: bool,
    /// Blocks of a frame, if they are of frames.
    tiles: Option<usize>,
    /// Lines so far.
    said: u32,
}

/// The end of a block.
#[derive(Serialize)]
struct End<'a> {
    task: &'a str,
    block: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    seq: Option<u64>,
    /// Which one of the frame, counted along the rows.
    #[serde(skip_serializing_if = "Option::is_none")]
    tile: Option<u64>,
    outcome: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    cause: Option<String>,
}

impl<'a> Teller<'a> {
    const fn new(console: &'a Console, signals: &'a Signals, each: bool, tiles: Option<usize>) -> Self {
        Self { console, signals, each, tiles, said: 0 }
    }

    fn tell(&mut self, event: &ServerEvent) -> Result<(), Failure> {
        match event {
            ServerEvent::Block(BlockEvent::Ended { block_id, outcome, cause }) => {
                let (task, block) = (&block_id.task_id, block_id.spatial_id);
                if let (Outcome::Failed, Some(cause)) = (outcome, cause) {
                    self.say(&format!("cuframes: block {block} of task {task}: {}", brief(cause)));
                }
                if self.each {
                    let tiles = self.tiles.and_then(|tiles| u64::try_from(tiles).ok());
                    let seq = tiles.and_then(|tiles| block.checked_div(tiles));
                    let tile = tiles.and_then(|tiles| block.checked_rem(tiles));
                    let cause = cause.as_ref().map(brief);
                    let outcome = match outcome {
                        Outcome::Success => "done",
                        Outcome::Failed => "failed",
                        _ => "given-up",
                    };
                    let end = End { task, block, seq, tile, outcome, cause };
                    self.console.print(&output::json(&end)?, self.signals)?;
                }
            }
            ServerEvent::Left { fault: Some(fault), .. } => {
                let advice = match fault {
                    PeerFault::Frame(_) => "; does it speak the same version?",
                    _ => "",
                };
                self.say(&format!("cuframes: a worker was disconnected: {fault}{advice}"));
            }
            _ => {}
        }
        Ok(())
    }

    fn say(&mut self, text: &str) {
        self.said += 1;
        if self.said <= MAX_LINES {
            self.console.say(text);
        } else if self.said == MAX_LINES + 1 {
            self.console.say("cuframes: more like this is not told");
        }
    }
}

/// A worker's reason may be as long as it likes, and is often the trace of a stack, which says most in its last line.
fn brief(cause: &Cause) -> String {
    let Cause::Reported(reason) = cause else { return cause.to_string() };
    let mut lines = reason.lines().map(str::trim).filter(|line| !line.is_empty());
    let first = cut(lines.next().unwrap_or_default(), MAX_REASON).to_string();
    let last = lines.next_back().map(|line| format!(" ... {}", cut(line, MAX_REASON)));
    Cause::Reported(first + last.as_deref().unwrap_or_default()).to_string()
}

/// The name of the task of a grid, where no other is given.
const BLOCKS: &str = "blocks";
const ENDED_TOO_OFTEN: &str =
    "cuframes: the workers ended too often; their command fails, or --restarts is too low";
/// Bytes of a line of a reason that are told.
const MAX_REASON: usize = 300;
/// Lines about what went wrong.
const MAX_LINES: u32 = 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_told_by_its_first_and_last_line() {
        let told = |reason: &str| brief(&Cause::Reported(reason.into()));
        assert_eq!(told("no model"), "it failed: no model");
        assert_eq!(told(""), "it failed");
        assert_eq!(
            told("Traceback:\n  File x\n\nRuntimeError: raised\n"),
            "it failed: Traceback: ... RuntimeError: raised"
        );
        assert_eq!(told(&"x".repeat(1 << 20)).len(), "it failed: ".len() + MAX_REASON);
        assert_eq!(brief(&Cause::Lost), "its worker is gone");
    }
}
