//! [`Stage`]: a stream, and a machine with the double, for processes that play one [role](crate::roles) each.

use std::env;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use cuframes_core::{Backend, Key};
use fake_cuda::{Installation, Report};
use tempfile::TempDir;

/// Set by `scripts/gpu-check.sh`, for tests that a real GPU must pass, too.
const REAL_GPU: &str = "CUFRAMES_REAL_GPU";
/// Longer than anything takes, unless it hangs.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// One stream on one machine.
pub(crate) struct Stage {
    key: Key,
    run_dir: TempDir,
    /// Where the double is; `None` for the machine's own driver.
    machine: Option<(Installation, TempDir)>,
    backend: Backend,
    delay_ms: u32,
    /// Whether the double calls host functions one at a time.
    in_turns: bool,
}

impl Stage {
    pub(crate) fn new(backend: Backend) -> Self {
        let machine = env::var_os(REAL_GPU).is_none().then(|| {
            let dir = tempfile::tempdir().unwrap();
            (Installation::new(dir.path()).unwrap(), dir)
        });
        let run_dir = tempfile::tempdir().unwrap();
        let name = run_dir.path().file_name().unwrap().to_str().unwrap().trim_start_matches('.').to_string();
        let key = format!("gpu-{name}").parse().unwrap();
        Self { key, run_dir, machine, backend, delay_ms: 0, in_turns: false }
    }

    /// Every piece of work of a stream takes so long.
    pub(crate) fn slow(mut self, delay_ms: u32) -> Self {
        self.delay_ms = delay_ms;
        self
    }

    /// Host functions of all streams of a process run one at a time.
    pub(crate) fn in_turns(mut self, in_turns: bool) -> Self {
        self.in_turns = in_turns;
        self
    }

    /// A process that plays a role, which is an ignored test here.
    pub(crate) fn role(&self, name: &str) -> Command {
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["--exact", &format!("roles::{name}"), "--ignored", "--nocapture"]);
        command.env("TEST_KEY", self.key.as_str()).env("TEST_DIR", self.run_dir.path());
        command.env("TEST_BACKEND", self.backend.0.to_string());
        command.env("FAKE_CUDA_STREAM_DELAY_MS", self.delay_ms.to_string());
        if self.in_turns {
            command.env("FAKE_CUDA_HOST_FUNCTIONS", "serial");
        }
        if let Some((machine, _)) = &self.machine {
            machine.set_up(&mut command);
        }
        command
    }

    pub(crate) fn region(&self) -> PathBuf {
        PathBuf::from("/dev/shm").join(self.key.region_file())
    }

    /// Lets a publisher of frames without number end, and one that holds a stream.
    pub(crate) fn stop(&self) {
        self.say("stop");
    }

    /// Tells all processes something.
    pub(crate) fn say(&self, word: &str) {
        std::fs::write(self.run_dir.path().join(word), "").unwrap();
    }

    /// What a process that has ended left open.
    pub(crate) fn report(&self, pid: u32) -> Report {
        self.reports().into_iter().find(|report| report.pid == pid).expect("it has ended")
    }

    fn reports(&self) -> Vec<Report> {
        self.machine.as_ref().map_or(Vec::new(), |(machine, _)| machine.reports().unwrap())
    }

    /// Everybody closed what it opened, and broke no rule of the driver.
    pub(crate) fn check(&self, processes: usize) {
        self.check_reports(processes);
        if let Some((machine, _)) = &self.machine {
            assert!(machine.left_behind().unwrap().is_empty());
        }
        assert!(!self.region().exists(), "the region is left behind");
    }

    /// So many processes have ended by themselves, and each has closed what it opened.
    pub(crate) fn check_reports(&self, processes: usize) {
        let reports = self.reports();
        assert!(self.machine.is_none() || reports.len() == processes, "{reports:?}");
        assert!(reports.iter().all(Report::is_clean), "{reports:?}");
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        // Still there if a process was killed.
        for left in [self.key.region_file(), self.key.region_lock_file()] {
            let _ = std::fs::remove_file(PathBuf::from("/dev/shm").join(left));
        }
    }
}

/// A process that plays a role.
pub(crate) struct Actor {
    process: Child,
    lines: BufReader<ChildStdout>,
}

impl Actor {
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut process = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap());
        Self { process, lines }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// What it tells next, `None` at its end.
    pub(crate) fn hear(&mut self) -> Option<String> {
        loop {
            let mut line = String::new();
            if self.lines.read_line(&mut line).unwrap() == 0 {
                return None;
            }
            if let Some((_, told)) = line.split_once(MARK) {
                return Some(told.trim_end().to_string());
            }
        }
    }

    /// Waits until it tells this.
    pub(crate) fn wait_for(&mut self, told: &str) {
        while let Some(line) = self.hear() {
            if line == told {
                return;
            }
        }
        panic!("it has ended without a word of {told:?}");
    }

    /// Everything that it tells until its end, which must come.
    pub(crate) fn end(mut self) -> (ExitStatus, Vec<String>) {
        let told = std::iter::from_fn(|| self.hear()).collect();
        let start = Instant::now();
        loop {
            if let Some(status) = self.process.try_wait().unwrap() {
                return (status, told);
            }
            assert!(start.elapsed() < LONG, "it does not end: {told:?}");
            thread::sleep(Duration::from_millis(1));
        }
    }

    pub(crate) fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Tells the test something.
pub(crate) fn tell(what: &str) {
    println!("{MARK}{what}");
}

/// Stands before what is told, among what the test harness prints.
const MARK: &str = "told: ";
