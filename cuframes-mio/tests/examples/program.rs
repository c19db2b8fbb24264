//! Programs that run, and the stream that they share.

use std::env;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::process::Pid;
use tempfile::TempDir;

/// A key and a run directory of one test alone.
pub(crate) struct Stream {
    key: String,
    dir: TempDir,
}

impl Stream {
    pub(crate) fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        Self { key: format!("example-{}-{number}", std::process::id()), dir: tempfile::tempdir().unwrap() }
    }

    /// An example with this stream's key.
    pub(crate) fn example(&self, name: &str) -> Command {
        let mut command = Command::new(path(name));
        command.arg(&self.key).env("CUFRAMES_RUN_DIR", self.dir.path());
        command
    }

    /// Everything is cleared away but the lock file, which stays for good (D-13).
    pub(crate) fn assert_nothing_left(&self) {
        let left = self.shared_files().into_iter().find(|path| path.exists());
        assert_eq!(left, None);
        let left = fs::read_dir(self.dir.path()).unwrap().map(|entry| entry.unwrap().file_name());
        assert_eq!(left.collect::<Vec<_>>(), [format!("{}.lock", self.key).as_str()]);
    }

    fn shared_files(&self) -> [PathBuf; 2] {
        ["", ".lock"].map(|end| Path::new("/dev/shm").join(format!("cuframes-{}{end}", self.key)))
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // Still there if a publisher was killed.
        for path in self.shared_files() {
            let _ = fs::remove_file(path);
        }
    }
}

/// Where cargo has put an example: beside the directory that the tests are in.
pub(crate) fn path(name: &str) -> PathBuf {
    let test = env::current_exe().unwrap();
    let path = test.parent().and_then(Path::parent).unwrap().join("examples").join(name);
    assert!(path.exists(), "{} is missing: build it with `cargo build --examples`", path.display());
    path
}

/// A program that runs. Killed when dropped, so that a test that fails leaves nothing running.
pub(crate) struct Program {
    child: Child,
    stdout: BufReader<ChildStdout>,
    /// What it has printed so far.
    output: String,
}

impl Program {
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        Self { child, stdout, output: String::new() }
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Waits for a line with `text` in it.
    pub(crate) fn wait_for(&mut self, text: &str) {
        loop {
            let start = self.output.len();
            let read = self.stdout.read_line(&mut self.output).unwrap();
            match self.output.get(start..) {
                Some(line) if line.contains(text) => return,
                _ => assert_ne!(read, 0, "it ended without {text:?}: {}", self.output),
            }
        }
    }

    /// Waits until it ends by itself, and well; all that it has printed.
    pub(crate) fn end(mut self) -> String {
        while self.stdout.read_line(&mut self.output).unwrap() > 0 {}
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{status}: {}", self.output);
        std::mem::take(&mut self.output)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
