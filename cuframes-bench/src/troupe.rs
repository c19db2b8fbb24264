//! The processes of a cell: this program again. They talk in lines of JSON over their standard streams.
//!
//! The main one ends when its standard input does, that is, when whoever started it ends, and cleans up. The others are
//! killed by the kernel when the main one ends.

use std::env;
use std::io::{self, BufRead, BufReader, Lines, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{self, Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{PidfdFlags, Signal, getppid, pidfd_open, set_parent_process_death_signal};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::pin;
use crate::stage::{Brief, sweep};
use crate::system::Failure;

/// What a process says.
#[derive(Serialize, Deserialize, Debug)]
pub(crate) enum Line {
    Word(String),
    Result(Value),
    Failed(String),
}

impl Line {
    /// Says it. That nobody listens any more is an error.
    pub(crate) fn say(&self) -> Result<(), Failure> {
        let mut line = serde_json::to_string(self)?;
        line.push('\n');
        let mut stdout = io::stdout().lock();
        stdout.write_all(line.as_bytes())?;
        Ok(stdout.flush()?)
    }
}

/// What another process is started with.
#[derive(Serialize, Deserialize, Debug)]
pub(crate) struct Call {
    pub(crate) brief: Brief,
    role: String,
    index: usize,
    parent: i32,
}

/// Another process, as its cell's main process sees it. It is killed on drop.
#[derive(Debug)]
pub(crate) struct Actor {
    name: String,
    /// Where it is in the troupe.
    number: usize,
    stdin: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Actor {
    pub(crate) fn enter(brief: &Brief, role: &str, index: usize) -> Result<Self, Failure> {
        let parent = i32::try_from(process::id())?;
        let call = Call { brief: brief.clone(), role: role.into(), index, parent };
        let mut command = again(SUPPORT, &call)?;
        let mut troupe = troupe();
        let mut child = command.spawn().map_err(|error| format!("can't start a process: {error}"))?;
        let streams = child.stdin.take().zip(child.stdout.take());
        let number = troupe.len();
        troupe.push(child);
        let (stdin, stdout) = streams.ok_or("a process without standard streams")?;
        Ok(Self { name: format!("{role} {index}"), number, stdin, lines: BufReader::new(stdout).lines() })
    }

    /// Says something to it.
    pub(crate) fn say(&mut self, word: &str) -> Result<(), Failure> {
        let told = writeln!(self.stdin, "{word}").and_then(|()| self.stdin.flush());
        told.map_err(|error| format!("{}: {error}", self.name).into())
    }

    /// Waits for what it says next.
    ///
    /// # Errors
    /// It failed, or has ended.
    pub(crate) fn hear(&mut self) -> Result<String, Failure> {
        match self.line()? {
            Line::Word(word) => Ok(word),
            Line::Result(_) => Err(format!("{} has ended too early", self.name).into()),
            Line::Failed(why) => Err(format!("{}: {why}", self.name).into()),
        }
    }

    /// Waits until it says this.
    pub(crate) fn expect(&mut self, word: &str) -> Result<(), Failure> {
        let said = self.hear()?;
        if said == word { Ok(()) } else { Err(format!("{} says {said}, not {word}", self.name).into()) }
    }

    /// Waits for what it has to say at its end.
    pub(crate) fn result<T: DeserializeOwned>(mut self) -> Result<T, Failure> {
        match self.line()? {
            Line::Result(value) => Ok(serde_json::from_value(value)?),
            Line::Word(word) => Err(format!("{} says {word}, no result", self.name).into()),
            Line::Failed(why) => Err(format!("{}: {why}", self.name).into()),
        }
    }

    /// Sends it SIGKILL.
    pub(crate) fn kill(&self) -> Result<(), Failure> {
        let mut troupe = troupe();
        let child = troupe.get_mut(self.number).ok_or("no such process")?;
        Ok(child.kill()?)
    }

    fn line(&mut self) -> Result<Line, Failure> {
        match self.lines.next() {
            Some(line) => Ok(serde_json::from_str(&line?)?),
            None => Err(format!("{} has ended without a word", self.name).into()),
        }
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        if let Some(child) = troupe().get_mut(self.number) {
            end(child);
        }
    }
}

/// All processes that this one has started, in a cell. Whoever has it may start more, or make what must be deleted.
pub(crate) fn troupe() -> MutexGuard<'static, Vec<Child>> {
    TROUPE.lock().unwrap_or_else(PoisonError::into_inner)
}

static TROUPE: Mutex<Vec<Child>> = Mutex::new(Vec::new());

/// Ends this process when standard input does, with all that it has started and made.
pub(crate) fn end_with_input(dir: PathBuf) -> Result<(), Failure> {
    let owner = getppid().and_then(|owner| pidfd_open(owner, PidfdFlags::empty()).ok());
    let watch = move || {
        let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
        // Never let go of: nothing is started or made from here on.
        let mut troupe = troupe();
        troupe.iter_mut().for_each(end);
        sweep(&dir);
        // That of all cells: an owner that is gone can't delete it. It closes our input before it is seen to be gone.
        let is_gone = owner.is_some_and(|owner| {
            let mut owner = [PollFd::new(&owner, PollFlags::IN)];
            poll(&mut owner, Some(&LAST_MOMENTS)).is_ok_and(|ended| ended != 0)
        });
        if let Some(parent) = dir.parent().filter(|_| is_gone) {
            let _ = std::fs::remove_dir(parent);
        }
        process::exit(1)
    };
    thread::Builder::new().name("bench-watch".into()).spawn(watch)?;
    Ok(())
}

/// How long the end of a process may take.
const LAST_MOMENTS: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };

fn end(child: &mut Child) {
    // They fail if it has ended, and was waited for.
    let _ = child.kill();
    let _ = child.wait();
}

/// The place of a process that is not its cell's main one.
#[derive(Debug)]
pub(crate) struct Post {
    pub(crate) brief: Brief,
    pub(crate) role: String,
    /// Which of those that have the same role.
    pub(crate) index: usize,
    lines: Lines<io::StdinLock<'static>>,
}

impl Post {
    /// Ties this process to its parent.
    pub(crate) fn take(call: Call) -> Result<Self, Failure> {
        let Call { brief, role, index, parent } = call;
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // It may have ended before we asked.
        if getppid().is_none_or(|pid| pid.as_raw_nonzero().get() != parent) {
            return Err("the process that started this one is gone".into());
        }
        if !brief.cpus.is_empty() {
            // That one may have been pinned already, and what we start now is not to be.
            pin::run_on(&brief.cpus)?;
        }
        Ok(Self { brief, role, index, lines: io::stdin().lines() })
    }

    pub(crate) fn say(&self, word: &str) -> Result<(), Failure> {
        Line::Word(word.into()).say()
    }

    /// Waits for what it is told.
    pub(crate) fn hear(&mut self) -> Result<String, Failure> {
        Ok(self.lines.next().ok_or("nobody has more to say")??)
    }

    /// Keeps the calling thread on a reader's CPU, where that is possible.
    pub(crate) fn pin(&self) -> Result<(), Failure> {
        Ok(pin::pin_reader(&self.brief.cpus, self.index)?)
    }
}

/// This program again, as another process of a measurement, in a process group of its own if it leads a cell: Ctrl-C is for
/// whoever measures, who ends the others.
pub(crate) fn again(mode: &str, told: &impl Serialize) -> Result<Command, Failure> {
    let mut command = Command::new(env::current_exe()?);
    command.arg(mode).arg(serde_json::to_string(told)?).stdin(Stdio::piped()).stdout(Stdio::piped());
    if mode == LEAD {
        command.process_group(0).stderr(Stdio::piped());
    }
    Ok(command)
}

/// First arguments of processes that are started to measure.
pub(crate) const LEAD: &str = "__bench-cell";
pub(crate) const SUPPORT: &str = "__bench-support";
