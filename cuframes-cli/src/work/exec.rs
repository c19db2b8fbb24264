//! [`Exec`]: the command for a block.

use std::ffi::OsStr;
use std::fmt::Display;
use std::io::{ErrorKind, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{ChildStdin, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use cuframes_mio::dispatch::{Block, Roi};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::ioctl_fionbio;
use rustix::process::{Pid, Signal, kill_process_group};

use crate::output::REFRESH;
use crate::signals::Signals;

/// A command that is to run in a shell.
pub(super) struct Exec {
    process: Command,
}

impl Exec {
    /// With what it is told about its block.
    pub(super) fn new(command: &OsStr, Block { read_roi, write_roi, block_id, .. }: &Block) -> Self {
        let join = |numbers: &[i64], by| numbers.iter().map(i64::to_string).collect::<Vec<_>>().join(by);
        let mut process = Command::new("sh");
        process.arg("-c").arg(command).stdin(Stdio::null()).process_group(0);
        process
            .env("CUFRAMES_TASK", &block_id.task_id)
            .env("CUFRAMES_BLOCK", block_id.spatial_id.to_string());
        for (name, Roi { offset, shape }) in [("READ", read_roi), ("WRITE", write_roi)] {
            process.env(format!("CUFRAMES_{name}_OFFSET"), join(offset, ","));
            process.env(format!("CUFRAMES_{name}_SHAPE"), join(shape, "x"));
        }
        Self { process }
    }

    /// Tells it one thing more.
    pub(super) fn tell(&mut self, name: &str, value: &impl Display) {
        self.process.env(format!("CUFRAMES_{name}"), value.to_string());
    }

    /// Runs it, and answers whether it succeeded, or why not; `None` if a signal came first, or it is not wanted any more.
    pub(super) fn run(
        self,
        signals: &Signals,
        is_wanted: &mut dyn FnMut() -> bool,
    ) -> Option<Result<(), String>> {
        run(self.process, None, signals, is_wanted)
    }

    /// As [`run`](Self::run), with this on its standard input. It need not read it.
    pub(super) fn run_with(
        mut self,
        input: &[u8],
        signals: &Signals,
        is_wanted: &mut dyn FnMut() -> bool,
    ) -> Option<Result<(), String>> {
        self.process.stdin(Stdio::piped());
        run(self.process, Some(input), signals, is_wanted)
    }
}

fn run(
    mut process: Command,
    input: Option<&[u8]>,
    signals: &Signals,
    is_wanted: &mut dyn FnMut() -> bool,
) -> Option<Result<(), String>> {
    let mut child = match process.spawn() {
        Ok(child) => child,
        Err(error) => return Some(Err(format!("can't run sh: {error}"))),
    };
    let (mut pipe, mut input) = (child.stdin.take(), input.unwrap_or_default());
    // A command that does not read, or has left others behind that do not, is not waited for.
    if let Some(Err(error)) = pipe.as_ref().map(|pipe| ioctl_fionbio(pipe, true)) {
        let _ = child.kill();
        let _ = child.wait();
        return Some(Err(format!("can't give it its input: {error}")));
    }
    let mut asked = Instant::now();
    loop {
        let is_unwanted = asked.elapsed() >= REFRESH && {
            asked = Instant::now();
            !is_wanted()
        };
        match child.try_wait() {
            Ok(Some(status)) => return Some(judge(status)),
            Ok(None) if is_unwanted || signals.raised() => {
                // With all that it has started.
                let _ = kill_process_group(Pid::from_child(&child), Signal::KILL);
                let _ = child.wait();
                return None;
            }
            Ok(None) => {}
            Err(error) => return Some(Err(format!("can't wait for its command: {error}"))),
        }
        pipe = match pipe {
            Some(pipe) => feed(pipe, &mut input),
            None => {
                thread::sleep(STEP);
                None
            }
        };
    }
}

/// Writes as much as the pipe takes within a while. It is closed when that was all, or nobody reads it.
fn feed(mut pipe: ChildStdin, input: &mut &[u8]) -> Option<ChildStdin> {
    let timeout = Timespec { tv_sec: 0, tv_nsec: STEP.subsec_nanos().into() };
    let _ = poll(&mut [PollFd::new(&pipe, PollFlags::OUT)], Some(&timeout));
    match pipe.write(input) {
        Ok(n) => *input = input.get(n..).unwrap_or_default(),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
        // The rest is of no use to anybody.
        Err(_) => *input = &[],
    }
    (!input.is_empty()).then_some(pipe)
}

fn judge(status: ExitStatus) -> Result<(), String> {
    if status.success() { Ok(()) } else { Err(format!("its command ended with {status}")) }
}

/// How often a command is looked at.
const STEP: Duration = Duration::from_millis(2);
