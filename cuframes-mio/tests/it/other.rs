//! Another process of this test binary, which runs one of the `child_` tests: it is told what to do, and tells.

use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};

use crate::common::{Running, Stream, until};
use rustix::process::{Pid, Signal, kill_process};

/// Another process. Killed when dropped, stopped or not.
pub(crate) struct Other {
    process: Running,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Other {
    /// Runs the test `name`, and waits until it is ready.
    pub(crate) fn start(name: &str, stream: &Stream) -> Self {
        Self::run(&mut stream.child(name))
    }

    /// Runs a command that ends up in such a test, and waits until it is ready.
    pub(crate) fn run(command: &mut Command) -> Self {
        let mut process = Running::start(command.stdin(Stdio::piped()).stdout(Stdio::piped()));
        let input = process.0.stdin.take().unwrap();
        let output = BufReader::new(process.0.stdout.take().unwrap());
        let mut other = Self { process, input, output };
        other.wait_for_line("ready");
        other
    }

    pub(crate) fn say(&mut self, line: &str) {
        writeln!(self.input, "{line}").unwrap();
    }

    /// The next line that it says.
    pub(crate) fn hear(&mut self) -> String {
        let mut line = String::new();
        while line.trim_end().is_empty() {
            line.clear();
            assert!(self.output.read_line(&mut line).unwrap() > 0, "the other process ended");
        }
        line.trim_end().to_owned()
    }

    pub(crate) fn wait_for_line(&mut self, expected: &str) {
        while self.hear() != expected {}
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.0.id()
    }

    /// Freezes it.
    pub(crate) fn stop(&self) {
        self.signal(Signal::STOP);
        until("the process to stand still", || self.state() == "T");
    }

    /// Lets it go on.
    pub(crate) fn go_on(&self) {
        self.signal(Signal::CONT);
    }

    pub(crate) fn kill(self) {
        drop(self.process);
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process.0), signal).unwrap();
    }

    /// Letter of the state that the kernel says.
    fn state(&self) -> String {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid())).unwrap();
        let (_, after_name) = stat.rsplit_once(')').unwrap();
        after_name.split_whitespace().next().unwrap().to_owned()
    }
}

/// In such a process: says a line.
pub(crate) fn tell(line: &str) {
    // The test harness may have begun a line.
    println!("\n{line}");
}

/// In such a process: the next line that it was told; `None` when there are no more.
pub(crate) fn hear() -> Option<String> {
    let mut line = String::new();
    let n = std::io::stdin().read_line(&mut line).unwrap();
    (n > 0).then(|| line.trim_end().to_owned())
}
