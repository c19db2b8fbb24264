//! The processes of a demo: this program again, reporting to the process that started it.

use std::env;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio, id};
use std::sync::mpsc::Sender;
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};

use crate::stats::{Published, Received};

/// A process, what it reported last, and what went wrong with it.
#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) name: String,
    pub(crate) report: Option<Report>,
    pub(crate) trouble: Option<String>,
    process: Child,
    is_running: bool,
    /// It closed its output.
    has_closed: bool,
    /// For how long it has said nothing.
    silence: Duration,
}

/// What a process says about itself.
#[derive(Serialize, Deserialize, Debug)]
#[serde(untagged)]
pub(crate) enum Report {
    // In this order: a report of a subscriber has more fields.
    Received(Received),
    Published(Published),
}

impl Report {
    /// Frames that held another frame's bytes.
    pub(crate) const fn torn(&self) -> u64 {
        match self {
            Self::Received(report) => report.torn,
            Self::Published(_) => 0,
        }
    }
}

impl Worker {
    /// Starts a process with these arguments.
    ///
    /// Its reports go to `reports` together with `number`, and `None` once it closed its output. It ends when the
    /// calling thread does.
    pub(crate) fn start(
        number: usize,
        name: String,
        args: &[String],
        run_dir: &Path,
        reports: &Sender<(usize, Option<Report>)>,
    ) -> io::Result<Self> {
        let process = Command::new(env::current_exe()?)
            .args(args)
            .arg("--run-dir")
            .arg(run_dir)
            .args(["--report-to", &id().to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // Ctrl-C is for us alone: we end the others.
            .process_group(0)
            .spawn()?;
        let mut worker = Self {
            name,
            report: None,
            trouble: None,
            process,
            is_running: true,
            has_closed: false,
            silence: Duration::ZERO,
        };
        if let Some(stdout) = worker.process.stdout.take() {
            let reports = reports.clone();
            thread::Builder::new().spawn(move || {
                for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                    let report = serde_json::from_str(&line).ok();
                    if report.is_some() && reports.send((number, report)).is_err() {
                        return;
                    }
                }
                let _ = reports.send((number, None));
            })?;
        }
        Ok(worker)
    }

    pub(crate) const fn is_running(&self) -> bool {
        self.is_running
    }

    /// It has said something, or will say nothing more.
    pub(crate) fn hear(&mut self, report: Option<Report>) {
        self.has_closed |= report.is_none();
        self.report = report.or_else(|| self.report.take());
        self.silence = Duration::ZERO;
    }

    /// Time goes on: notices whether it has ended, or has said nothing for `patience`.
    pub(crate) fn pass(&mut self, time: Duration, patience: Duration) {
        if !self.is_running {
            return;
        }
        // Not before: what it said last is to be heard.
        if self.has_closed {
            match self.process.try_wait() {
                Ok(None) => {}
                Ok(Some(status)) => return self.end(&status),
                Err(error) => self.blame(format!("can't wait for it: {error}")),
            }
        }
        // Until it says its first word it may wait for the others.
        let patience = if self.report.is_some() { patience } else { patience.max(FIRST_WORD) };
        self.silence += time;
        if self.silence > patience {
            let secs = self.silence.as_secs();
            self.blame(format!("it has said nothing for {secs} s; is it stopped, or the machine too busy?"));
        }
    }

    /// Asks the process to end.
    pub(crate) fn stop(&self) {
        if self.is_running {
            // It fails if the process is gone already.
            let _ = kill_process(Pid::from_child(&self.process), Signal::TERM);
        }
    }

    /// Ends the process, even if it is stopped: it was asked, and did not.
    pub(crate) fn kill(&mut self) {
        if self.is_running {
            self.blame("it did not end when it was told to, and was killed; was it stopped?".into());
            // It fails if the process is gone already.
            let _ = self.process.kill();
        }
    }

    /// It has ended: notes what went wrong with it.
    fn end(&mut self, status: &ExitStatus) {
        self.is_running = false;
        let mut said = String::new();
        if let Some(mut stderr) = self.process.stderr.take() {
            let _ = stderr.read_to_string(&mut said);
        }
        let said = said.trim();
        match said.strip_prefix("cuframes: ").unwrap_or(said) {
            _ if status.success() => {}
            "" => self.blame(format!("ended with {status}")),
            said => self.blame(said.into()),
        }
    }

    /// What came first is the cause of the rest.
    fn blame(&mut self, trouble: String) {
        self.trouble.get_or_insert(trouble);
    }
}

impl Drop for Worker {
    /// Leaves no process behind, whatever the reason.
    fn drop(&mut self) {
        if self.is_running {
            let _ = self.process.kill();
            // Not for ever: the kernel may hold it up.
            for _ in 0..100 {
                match self.process.try_wait() {
                    Ok(None) => thread::sleep(Duration::from_millis(10)),
                    _ => return,
                }
            }
        }
    }
}

/// How long a process may say nothing before its first report: longer than it waits for the others.
const FIRST_WORD: Duration = Duration::from_secs(90);
