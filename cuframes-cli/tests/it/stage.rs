//! A place of its own for every test: a run directory, a key that nobody else has, and the program itself.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// What `/proc/net/unix` says of a socket that listens.
const LISTENING: &str = "00010000";

/// A run directory and a key.
pub(crate) struct Stage {
    dir: TempDir,
    pub(crate) key: String,
}

/// How a program ended, and what it said.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Stage {
    pub(crate) fn new() -> Self {
        let dir = tempfile::Builder::new().prefix("cuframes-test-").tempdir().unwrap();
        let name = dir.path().file_name().unwrap().to_str().unwrap();
        let key = name.trim_start_matches("cuframes-").to_string();
        fs::create_dir(dir.path().join("run")).unwrap();
        Self { key, dir }
    }

    /// A file for the test.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn run_dir(&self) -> PathBuf {
        self.path("run")
    }

    /// `cuframes` with these words, in which `KEY` and `DIR/` mean the key and the place of this test.
    pub(crate) fn cuframes(&self, line: &str) -> Command {
        let dir = format!("{}/", self.dir.path().display());
        let mut command = Command::new(env!("CARGO_BIN_EXE_cuframes"));
        command
            .args(line.split_whitespace().map(|word| word.replace("KEY", &self.key).replace("DIR/", &dir)))
            .env("CUFRAMES_RUN_DIR", self.run_dir())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    pub(crate) fn start(&self, line: &str) -> Process {
        Process::start(&mut self.cuframes(line))
    }

    pub(crate) fn run(&self, line: &str) -> Ended {
        self.start(line).end()
    }

    /// Waits until the publisher listens.
    pub(crate) fn wait_for_socket(&self) {
        let path = self.run_dir().join(format!("{}.sock", self.key));
        // Its file is there a moment before anybody can connect.
        let listens =
            |line: &str| line.ends_with(path.to_str().unwrap()) && line.split(' ').nth(3) == Some(LISTENING);
        wait_until("the socket", || fs::read_to_string("/proc/net/unix").unwrap().lines().any(listens));
    }

    /// What is left of the stream. The lock file stays on purpose: it is never unlinked.
    pub(crate) fn leftovers(&self) -> Vec<PathBuf> {
        let entries =
            |dir: &Path| fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<_>>();
        entries(&self.run_dir())
            .into_iter()
            .filter(|path| path.extension().is_none_or(|extension| extension != "lock"))
            .chain(
                entries(Path::new("/dev/shm"))
                    .into_iter()
                    .filter(|path| path.to_string_lossy().contains(&self.key)),
            )
            .collect()
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        // Only there if a test failed.
        for start in ["", "far-"] {
            for end in ["", ".lock", ".new0"] {
                let _ = fs::remove_file(format!("/dev/shm/cuframes-{start}{}{end}", self.key));
            }
        }
    }
}

/// A program that runs; killed on drop, so that a test that fails leaves nothing running.
pub(crate) struct Process(Option<Child>);

impl Process {
    pub(crate) fn start(command: &mut Command) -> Self {
        Self::try_start(command).unwrap()
    }

    pub(crate) fn try_start(command: &mut Command) -> io::Result<Self> {
        Ok(Self(Some(command.spawn()?)))
    }

    pub(crate) fn id(&self) -> u32 {
        self.0.as_ref().unwrap().id()
    }

    pub(crate) fn child(&mut self) -> &mut Child {
        self.0.as_mut().unwrap()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(self.0.as_ref().unwrap()), signal).unwrap();
    }

    /// Waits until it ends well when it gets a signal; before that it would just be gone.
    pub(crate) fn wait_for_handlers(&self) {
        wait_until("its signal handlers", || {
            let status = fs::read_to_string(format!("/proc/{}/status", self.id())).unwrap();
            let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
            u64::from_str_radix(caught.trim(), 16).unwrap() & (1 << (Signal::XFSZ.as_raw() - 1)) != 0
        });
    }

    /// How many sockets it has open: connections that it has made, or is about to.
    pub(crate) fn sockets(&self) -> usize {
        let links = fs::read_dir(format!("/proc/{}/fd", self.id())).unwrap().flatten();
        let is_socket = |path: &PathBuf| path.to_string_lossy().starts_with("socket:");
        links.filter_map(|link| fs::read_link(link.path()).ok()).filter(is_socket).count()
    }

    /// Waits for the end.
    pub(crate) fn end(mut self) -> Ended {
        let output = self.0.take().unwrap().wait_with_output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Ended { status: output.status, stdout: text(output.stdout), stderr: text(output.stderr) }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Ended {
    pub(crate) fn code(&self) -> Option<i32> {
        self.status.code()
    }

    #[track_caller]
    pub(crate) fn succeeded(self) -> Self {
        assert!(self.status.success(), "{self:?}");
        self
    }

    /// The only JSON object on standard output.
    #[track_caller]
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// Options of a publisher that waits for `subscribers`, and then for every frame to be taken by all of them.
pub(crate) fn strict(subscribers: usize) -> String {
    format!("--policy strict-wait --wait-for {subscribers} --wait-timeout 120")
}

/// Waits for something that is bound to happen; how fast does not matter.
#[track_caller]
pub(crate) fn wait_until(what: &str, mut happened: impl FnMut() -> bool) {
    let start = Instant::now();
    while !happened() {
        assert!(start.elapsed() < Duration::from_secs(120), "{what} did not come");
        sleep(Duration::from_millis(5));
    }
}

/// The children of a process, the oldest first.
pub(crate) fn children(pid: Pid) -> Vec<Pid> {
    let raw = pid.as_raw_nonzero();
    let text = fs::read_to_string(format!("/proc/{raw}/task/{raw}/children")).unwrap_or_default();
    text.split_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)).collect()
}

/// A y4m video with `frames` frames of `bytes` bytes that all differ.
pub(crate) fn video(header: &str, bytes: usize, frames: usize) -> Vec<u8> {
    let mut video = format!("YUV4MPEG2 {header}\n").into_bytes();
    let mut state = 1_u32;
    for _ in 0..frames {
        video.extend(b"FRAME\n");
        video.extend((0..bytes).map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state.to_be_bytes()[0]
        }));
    }
    video
}

/// The frames of a video, without its header.
pub(crate) fn frames(video: &[u8]) -> &[u8] {
    let header = video.iter().position(|byte| *byte == b'\n').expect("a header");
    &video[header + 1..]
}

/// Everything that comes out of a pipe.
pub(crate) fn read_all(mut from: impl Read) -> Vec<u8> {
    let mut bytes = Vec::new();
    from.read_to_end(&mut bytes).unwrap();
    bytes
}
