//! What the tests share: limits of time, seeds, and processes that speak the protocols of others.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    clippy::missing_panics_doc,
    reason = "a failure ends the test, which says what it skips"
)]

use std::future::Future;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command as Program, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use std::{env, io};

use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::timeout;

/// Only a hang takes so long.
pub const LIMIT: Duration = Duration::from_secs(60);

/// Waits for something that is bound to happen.
pub async fn within<T>(what: &str, happens: impl Future<Output = T>) -> T {
    timeout(LIMIT, happens).await.unwrap_or_else(|_| panic!("it did not happen: {what}"))
}

/// Chance that can be repeated: with `CUFRAMES_SEED`, or another one each time, which a test that fails has printed.
#[must_use]
pub fn chance() -> fastrand::Rng {
    let seed = env::var("CUFRAMES_SEED").ok().map(|seed| seed.parse().unwrap());
    let clock = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().subsec_nanos().into();
    let seed = seed.unwrap_or_else(clock);
    eprintln!("CUFRAMES_SEED={seed}");
    fastrand::Rng::with_seed(seed)
}

/// A thread of its own for what blocks; its result, or the test fails if that does not come.
pub async fn thread<T: Send + 'static>(what: &str, work: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, result) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || done.send(work()));
    within(what, result).await.unwrap_or_else(|_| panic!("{what}: its thread has panicked"))
}

/// The program: `CUFRAMES`, or built now.
#[must_use]
pub fn cuframes() -> PathBuf {
    if let Some(program) = env::var_os("CUFRAMES") {
        return program.into();
    }
    let mut build = Program::new(env!("CARGO"));
    build.args(["build", "--package=cuframes-cli", "--message-format=json", "--manifest-path"]);
    let built = build.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/../Cargo.toml")).output().unwrap();
    let said = String::from_utf8(built.stdout).unwrap();
    let path = said.split("\"executable\":\"").nth(1).and_then(|rest| rest.split('"').next());
    path.unwrap_or_else(|| panic!("{}", String::from_utf8_lossy(&built.stderr))).into()
}

/// Python with the packages of `python/requirements.txt`, in a directory under `target`. `None` where that can't be had; that
/// is told, past what a test program keeps to itself.
#[must_use]
pub fn python(target: &Path) -> Option<&'static Path> {
    static PYTHON: OnceLock<Option<PathBuf>> = OnceLock::new();
    let make = || {
        let mut make = Program::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("python/make-venv"));
        let made = make.arg(target.join("python")).stdin(Stdio::null()).output();
        let reason = match made {
            Ok(made) if made.status.success() => {
                return Some(String::from_utf8(made.stdout).unwrap().trim_end().into());
            }
            Ok(made) => {
                String::from_utf8_lossy(&made.stderr).lines().last().unwrap_or("no reason given").to_string()
            }
            Err(error) => error.to_string(),
        };
        let mut past_the_test = io::stderr();
        writeln!(past_the_test, "SKIPPED: peers in Python: {reason}").unwrap();
        None
    };
    PYTHON.get_or_init(make).as_deref()
}

/// A process that prints a line for each thing that happens. It is killed when this is dropped.
#[derive(Debug)]
pub struct Process {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Process {
    /// Starts it. Its standard input stays open as long as this is there.
    #[must_use]
    pub fn start(program: &Path, arguments: &[&str]) -> Self {
        Self::start_with(program, arguments, &[])
    }

    /// The same, with these variables in its environment.
    #[must_use]
    pub fn start_with(program: &Path, arguments: &[&str], variables: &[(&str, &str)]) -> Self {
        let mut command = Command::new(program);
        command.envs(variables.iter().copied());
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{program:?}: {error}"));
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    /// The next line, if it begins with this word: what follows it.
    pub async fn says(&mut self, word: &str) -> String {
        let line = within(word, self.lines.next_line()).await.unwrap();
        let line = line.unwrap_or_else(|| panic!("it ended before it said {word}"));
        let rest = line.strip_prefix(word).unwrap_or_else(|| panic!("it said {line:?}, not {word}"));
        rest.trim_start().to_string()
    }

    /// Writes a line to its standard input.
    pub async fn tell(&mut self, line: &str) {
        let input = self.child.stdin.as_mut().unwrap();
        input.write_all(format!("{line}\n").as_bytes()).await.unwrap();
    }

    /// Closes its standard input and waits for its end, which must be a good one. The lines that it said at last.
    pub async fn end(self) -> Vec<String> {
        let (said, is_good) = self.ends().await;
        assert!(is_good, "{said:?}");
        said
    }

    /// Closes its standard input and waits for its end. The lines that it said at last, and whether the end was a good one.
    pub async fn ends(mut self) -> (Vec<String>, bool) {
        drop(self.child.stdin.take());
        let mut said = Vec::new();
        while let Some(line) = within("the last line", self.lines.next_line()).await.unwrap() {
            said.push(line);
        }
        (said, within("the end", self.child.wait()).await.unwrap().success())
    }

    /// Kills it, in the midst of whatever it does.
    pub async fn kill(mut self) {
        within("the death", self.child.kill()).await.unwrap();
    }
}
