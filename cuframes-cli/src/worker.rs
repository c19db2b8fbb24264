//! The processes of a demo: this program again, reporting to the process that started it.

use std::env;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio, id};
use std::sync::mpsc::Sender;
use std::thread;

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
        let mut process = Command::new(env::current_exe()?)
            .args(args)
            .arg("--run-dir")
            .arg(run_dir)
            .args(["--report-to", &id().to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // Ctrl-C is for us alone: a process that got it from the terminal and SIGTERM from us would end at once.
            .process_group(0)
            .spawn()?;
        if let Some(stdout) = process.stdout.take() {
            let reports = reports.clone();
            thread::spawn(move || {
                for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                    let report = serde_json::from_str(&line).ok();
                    if report.is_some() && reports.send((number, report)).is_err() {
                        return;
                    }
                }
                let _ = reports.send((number, None));
            });
        }
        Ok(Self { name, report: None, trouble: None, process, is_running: true })
    }

    /// Asks the process to end.
    pub(crate) fn stop(&self) {
        if self.is_running {
            // It fails if the process is gone already.
            let _ = kill_process(Pid::from_child(&self.process), Signal::TERM);
        }
    }

    /// Waits for a process that closed its output, and notes what went wrong with it.
    pub(crate) fn reap(&mut self) {
        let status = self.process.wait();
        self.is_running = false;
        let said = self.process.stderr.take().and_then(|mut stderr| {
            let mut text = String::new();
            stderr.read_to_string(&mut text).ok().map(|_| text)
        });
        let said = said.unwrap_or_default();
        let said = said.trim();
        self.trouble = match status {
            Ok(status) if status.success() => None,
            Ok(_) if !said.is_empty() => Some(said.strip_prefix("cuframes: ").unwrap_or(said).into()),
            Ok(status) => Some(format!("ended with {status}")),
            Err(error) => Some(format!("can't wait for it: {error}")),
        };
    }
}

impl Drop for Worker {
    /// Leaves no process behind, whatever the reason.
    fn drop(&mut self) {
        if self.is_running {
            self.stop();
            let _ = self.process.wait();
        }
    }
}
