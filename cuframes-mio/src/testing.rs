//! What the tests of several modules need.

use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use cuframes_core::Key;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::io::write;

/// The key that tests use.
pub(crate) fn key() -> Key {
    "cam0".parse().unwrap()
}

/// A command that runs the ignored test `name` of this binary alone in a process of its own; there,
/// [`child_argument`] gives `argument`.
pub(crate) fn child(name: &str, argument: &Path) -> Command {
    as_child(Command::new(std::env::current_exe().unwrap()), name, argument)
}

/// As [`child`], in a new pid namespace; `None` if we may not make one.
pub(crate) fn child_in_new_pid_namespace(name: &str, argument: &Path) -> Option<Command> {
    let unshare = |program: &Path| {
        let mut command = Command::new("unshare");
        command.args(["--fork", "--pid", "--"]).arg(program);
        command
    };
    unshare(Path::new("true")).status().ok().filter(ExitStatus::success)?;
    Some(as_child(unshare(&std::env::current_exe().unwrap()), name, argument))
}

/// What [`child`] was given, in the child.
pub(crate) fn child_argument() -> PathBuf {
    std::env::var_os(CHILD_ARGUMENT).unwrap().into()
}

/// Whether the descriptor can be read now.
pub(crate) fn is_readable(fd: &impl AsFd) -> bool {
    poll(&mut [PollFd::new(fd, PollFlags::IN)], Some(&Timespec::default())).unwrap() != 0
}

/// Makes an eventfd blocking and fills its counter, as a peer can: a plain write then waits.
pub(crate) fn stuff(bell: &impl AsFd) {
    fcntl_setfl(bell, OFlags::empty()).unwrap();
    write(bell, &(u64::MAX - 1).to_ne_bytes()).unwrap();
}

/// Waits until something is so.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < Duration::from_secs(60), "waited too long for {what}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Says that a check was skipped, and why.
#[expect(clippy::print_stderr, reason = "a skipped check must be seen")]
pub(crate) fn skipped(check: &str, why: &str) {
    eprintln!("skipped: {check}: {why}");
}

const CHILD_ARGUMENT: &str = "CUFRAMES_TEST_CHILD";

fn as_child(mut command: Command, name: &str, argument: &Path) -> Command {
    command.args(["--exact", name, "--ignored", "--nocapture"]).env(CHILD_ARGUMENT, argument);
    // What it says about its one test would look like a result of ours.
    command.stdout(Stdio::null());
    command
}
