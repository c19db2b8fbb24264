//! `cuframes dispatch`: hands the frames of a stream, or the blocks of a grid, to workers.

mod frames;
mod grid;

use std::borrow::Cow;
use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

use cuframes_core::text::cut;
use cuframes_mio::dispatch::{BlockEvent, Cause, Context, Outcome, PeerFault, Scheduler, ServerEvent};
use cuframes_mio::net::Endpoint;
use serde::Serialize;

use crate::args::DispatchArgs;
use crate::console::Console;
use crate::crew::{self, Crew};
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

/// Says where it listens, as far as somebody has to know that: `what` each worker is for is one or more options of its own.
fn announce(
    args: &DispatchArgs,
    endpoint: &Endpoint,
    run_dir: Option<&Path>,
    what: &[String],
    console: &Console,
) {
    if !endpoint.is_local() {
        console.say(&format!(
            "cuframes: dispatching at {endpoint}: there is no authentication; whoever can connect gets blocks"
        ));
    }
    if args.workers.is_some() {
        return;
    }
    let address = match endpoint {
        Endpoint::Tcp(address) => Endpoint::Tcp((reachable(address.ip()), address.port()).into()).to_string(),
        other => other.to_string(),
    };
    let mut command = format!("cuframes work --connect {}", quoted(&address));
    if let Some(run_dir) = run_dir {
        command += &format!(" --run-dir {}", quoted(&run_dir.to_string_lossy()));
    }
    if args.w0 {
        command += " --w0";
    }
    match what {
        [what] => console.say(&format!("waiting for workers; start each with: {command} {what}")),
        all => {
            console.say("waiting for workers of each task; start each with:");
            all.iter().for_each(|what| console.say(&format!("{command} {what}")));
        }
    }
}

/// A word as a shell reads it.
fn quoted(word: &str) -> Cow<'_, str> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-./:@%+=,".contains(c);
    // An empty one is no word, and brackets are a pattern only where files have such names.
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.into();
    }
    format!("'{}'", word.replace('\'', "'\\''")).into()
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
            Endpoint::Tcp(address) => (reachable(address.ip()).to_string(), address.port()),
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
        let mut crews: Vec<_> = self.0.iter_mut().map(|(_, crew)| crew).collect();
        crew::dismiss(&mut crews, soon, signals);
        self.0.iter().map(|(_, crew)| crew.restarts).sum()
    }
}

/// The address under which workers of this host can connect.
const fn reachable(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(address) if address.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(address) if address.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        address => address,
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
    /// Lines for standard output, whose reader is slow.
    unread: VecDeque<String>,
    /// How many were too many.
    left_out: u64,
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
        Self { console, signals, each, tiles, said: 0, unread: VecDeque::new(), left_out: 0 }
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
                    self.post(output::json(&end)?);
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

    /// Nobody is waited for: that would stop the work, and a publisher may wait for us.
    fn post(&mut self, line: String) {
        if self.unread.len() < MAX_UNREAD {
            self.unread.push_back(line);
        } else {
            self.left_out += 1;
        }
        self.pass_on();
    }

    /// Passes on what somebody reads meanwhile.
    fn pass_on(&mut self) {
        while let Some(line) = self.unread.pop_front() {
            if let Err(line) = self.console.offer(line) {
                self.unread.push_front(line);
                return;
            }
        }
    }

    /// Waits until all lines are written, and answers how many are left out.
    fn finish(&mut self) -> Result<u64, Failure> {
        if !self.unread.is_empty() {
            let lines: Vec<_> = self.unread.drain(..).collect();
            self.console.print(&lines.join("\n"), self.signals)?;
        }
        if self.left_out > 0 {
            let n = self.left_out;
            self.console
                .say(&format!("cuframes: {n} lines of --each are left out: nobody read them in time"));
        }
        Ok(self.left_out)
    }

    /// Where it was said why blocks were not done.
    fn where_it_says_why(&self) -> &'static str {
        if self.said > MAX_LINES { "the lines above say why of the first" } else { "see the lines above" }
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
/// Lines for standard output that are kept while nobody reads it: some 15 MB.
const MAX_UNREAD: usize = 100_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_that_a_shell_would_take_apart_is_quoted() {
        for word in ["tcp://127.0.0.1:5600", "cam0", "/tmp/run-dir_1"] {
            assert_eq!(quoted(word), word);
        }
        assert_eq!(quoted("two words"), "'two words'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
        assert_eq!(quoted("tcp://[::1]:5600"), "'tcp://[::1]:5600'");
        assert_eq!(quoted(""), "''");
    }

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
