//! A process of the test, and what can be done to it.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use cuframes_mio::core::Key;
use rustix::process::{Pid, Signal, kill_process};

/// Longer than anything takes, unless something hangs.
const LONG: Duration = Duration::from_secs(60);

/// What a process is told by the test.
#[derive(Clone)]
pub(crate) struct Told {
    pub(crate) key: Key,
    pub(crate) dir: PathBuf,
    pub(crate) seed: u64,
    /// A publisher's policy.
    pub(crate) strict_wait: bool,
    /// Whether a subscriber finds the next publisher by itself.
    pub(crate) reconnect: bool,
}

impl Told {
    /// In the process.
    pub(crate) fn here() -> Self {
        let told = |name| std::env::var(name).unwrap();
        Self {
            key: told("CHAOS_KEY").parse().unwrap(),
            dir: told("CHAOS_DIR").into(),
            seed: told("CHAOS_SEED").parse().unwrap(),
            strict_wait: told("CHAOS_STRICT_WAIT").parse().unwrap(),
            reconnect: told("CHAOS_RECONNECT").parse().unwrap(),
        }
    }
}

/// The numbers that a process has said last.
pub(crate) type Numbers = BTreeMap<String, u64>;

/// A process that runs one of the tests in `actors.rs`. Killed when dropped.
pub(crate) struct Process {
    child: Child,
    numbers: Arc<Mutex<Numbers>>,
    listener: Option<JoinHandle<()>>,
    stopped: bool,
}

impl Process {
    pub(crate) fn start(test: &str, told: &Told) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", &format!("actors::{test}"), "--ignored", "--nocapture"]);
        command.env("CHAOS_KEY", told.key.as_str()).env("CHAOS_DIR", &told.dir);
        command
            .env("CHAOS_SEED", told.seed.to_string())
            .env("CHAOS_STRICT_WAIT", told.strict_wait.to_string());
        command.env("CHAOS_RECONNECT", told.reconnect.to_string());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let numbers = Arc::<Mutex<Numbers>>::default();
        let heard = Arc::clone(&numbers);
        let listener = thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                if let Some(words) = line.strip_prefix("says ") {
                    *heard.lock().unwrap() = words.split(' ').filter_map(number).collect();
                }
            }
        });
        Self { child, numbers, listener: Some(listener), stopped: false }
    }

    /// What it said last.
    pub(crate) fn number(&self, name: &str) -> u64 {
        self.numbers.lock().unwrap().get(name).copied().unwrap_or(0)
    }

    /// Whether it has said anything.
    pub(crate) fn has_spoken(&self) -> bool {
        !self.numbers.lock().unwrap().is_empty()
    }

    pub(crate) fn stop(&mut self) {
        self.signal(Signal::STOP);
        self.stopped = true;
    }

    pub(crate) fn go_on(&mut self) {
        if self.stopped {
            self.signal(Signal::CONT);
            self.stopped = false;
        }
    }

    /// SIGKILL, and waits until it is gone. Returns what it said last.
    pub(crate) fn kill(mut self) -> Numbers {
        assert_eq!(self.child.try_wait().unwrap(), None, "it ended by itself");
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.last_words()
    }

    /// Asks it to end, and waits until it has.
    pub(crate) fn end(mut self) -> Numbers {
        self.go_on();
        assert_eq!(self.child.try_wait().unwrap(), None, "it ended by itself");
        drop(self.child.stdin.take());
        let mut status: Option<ExitStatus> = None;
        becomes(|| {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        assert!(status.is_some_and(|status| status.success()), "asked to end: {status:?}");
        self.last_words()
    }

    /// The directory of `/proc` about it.
    pub(crate) fn proc(&self) -> PathBuf {
        Path::new("/proc").join(self.child.id().to_string())
    }

    pub(crate) fn is_alive(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    fn last_words(&mut self) -> Numbers {
        self.listener.take().unwrap().join().unwrap();
        std::mem::take(&mut self.numbers.lock().unwrap())
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }
}

/// What it is and does, for a test that fails.
impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let read = |name| fs::read_to_string(self.proc().join(name)).unwrap_or_default();
        let status = read("status");
        let state = status.lines().find(|line| line.starts_with("State")).unwrap_or_default();
        let numbers = self.numbers.lock().unwrap();
        write!(f, "{} {state}, waits in {:?}, says {numbers:?}", self.proc().display(), read("wchan"))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn number(word: &str) -> Option<(String, u64)> {
    let (name, number) = word.split_once('=')?;
    Some((name.to_owned(), number.parse().ok()?))
}

/// Waits until something is so, or has not become so for longer than anything takes.
pub(crate) fn becomes(mut is_so: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    while !is_so() {
        if start.elapsed() > LONG {
            return false;
        }
        thread::sleep(Duration::from_millis(1));
    }
    true
}
