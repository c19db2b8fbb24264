//! [`Crew`]: worker processes that are started, and started again when they end too early.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use cuframes_mio::dispatch::context;
use rustix::process::{Pid, Signal, kill_process};

use crate::error::{Failure, failed};
use crate::signals::Signals;

/// Worker processes. They are killed when this is dropped.
pub(crate) struct Crew {
    command: Vec<OsString>,
    /// Where the streams are, if that was said.
    run_dir: Option<PathBuf>,
    /// What a worker of this number is told.
    context: Box<dyn Fn(u64) -> String>,
    /// One for each worker; none where it is not started again.
    processes: Vec<Option<Child>>,
    restarts_left: usize,
    pub(crate) restarts: usize,
    /// The number of the next one.
    next_id: u64,
}

impl Crew {
    /// Starts `count` workers with this command; `context` has what a worker of this number is told.
    pub(crate) fn start(
        command: &[OsString],
        count: usize,
        restarts: usize,
        run_dir: Option<&Path>,
        context: Box<dyn Fn(u64) -> String>,
    ) -> Result<Self, Failure> {
        let mut crew = Self {
            command: command.to_vec(),
            run_dir: run_dir.map(Path::to_path_buf),
            context,
            processes: Vec::new(),
            restarts_left: restarts,
            restarts: 0,
            next_id: 0,
        };
        for _ in 0..count {
            let process = crew.spawn().map_err(|error| crew.failed(&error))?;
            crew.processes.push(Some(process));
        }
        Ok(crew)
    }

    /// Starts those again that have ended, as often as that may be. Answers whether any are left.
    pub(crate) fn look_after(&mut self) -> Result<bool, Failure> {
        for n in 0..self.processes.len() {
            let Some(Some(process)) = self.processes.get_mut(n) else { continue };
            if let Ok(None) = process.try_wait() {
                continue;
            }
            let again = if self.restarts_left > 0 {
                self.restarts_left -= 1;
                self.restarts += 1;
                Some(self.spawn().map_err(|error| self.failed(&error))?)
            } else {
                None
            };
            if let Some(place) = self.processes.get_mut(n) {
                *place = again;
            }
        }
        Ok(self.processes.iter().any(Option::is_some))
    }

    /// Those that end from now on are not started again.
    pub(crate) const fn start_no_more(&mut self) {
        self.restarts_left = 0;
    }

    /// Asks all to end.
    fn terminate(&self) {
        for process in self.processes.iter().flatten() {
            // One that is gone already needs no signal.
            let _ = kill_process(Pid::from_child(process), Signal::TERM);
        }
    }

    fn is_running(&mut self) -> bool {
        for place in &mut self.processes {
            if place.as_mut().is_some_and(|process| !matches!(process.try_wait(), Ok(None))) {
                *place = None;
            }
        }
        self.processes.iter().any(Option::is_some)
    }

    fn kill(&mut self) {
        for process in self.processes.iter_mut().flatten() {
            let _ = process.kill();
            let _ = process.wait();
        }
        self.processes.clear();
    }

    fn spawn(&mut self) -> io::Result<Child> {
        let (program, args) = self.command.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let mut command = Command::new(program);
        command.args(args).env(context::NAME, (self.context)(self.next_id)).stdin(Stdio::null());
        if let Some(run_dir) = &self.run_dir {
            command.env("CUFRAMES_RUN_DIR", run_dir);
        }
        let child = command.spawn()?;
        self.next_id += 1;
        Ok(child)
    }

    fn failed(&self, error: &io::Error) -> Failure {
        let program = self.command.first().map(|program| program.display().to_string()).unwrap_or_default();
        let advice = match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied => "check the command after --",
            _ => "use fewer --workers, or raise the limits (ulimit -u, ulimit -n)",
        };
        failed!("can't start the worker {program}: {error}; {advice}")
    }
}

/// Waits until all of all crews have ended by themselves, unless that is to be `soon`, and makes those end that do not. A
/// second signal ends them at once.
pub(crate) fn dismiss(crews: &mut [&mut Crew], soon: bool, signals: &Signals) {
    if !soon {
        wait(crews, signals);
    }
    // All of them, before any is waited for.
    crews.iter().for_each(|crew| crew.terminate());
    wait(crews, signals);
    crews.iter_mut().for_each(|crew| crew.kill());
}

/// Waits until all have ended, but not for ever.
fn wait(crews: &mut [&mut Crew], signals: &Signals) {
    let start = Instant::now();
    while start.elapsed() < PATIENCE && !signals.raised_again() {
        if !crews.iter_mut().any(|crew| crew.is_running()) {
            return;
        }
        thread::sleep(STEP);
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        self.kill();
    }
}

/// How long workers have to end by themselves, and after SIGTERM.
const PATIENCE: Duration = Duration::from_secs(5);
const STEP: Duration = Duration::from_millis(10);
