//! Tests that run in processes of their own, which find the driver double instead of a driver: [`alone`].

use std::any;
use std::env;
use std::io::Read;
use std::process::{Child, Command, Output, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use fake_cuda::{EntryPoint as E, Installation, Report};

/// Calls `body`, which must be a closure of a test, in a process that finds the double; what that, and those that it starts,
/// leave open is a failure.
pub(crate) fn alone(body: impl FnOnce()) {
    alone_with(&[], body);
}

/// The same with variables in the environment: how the double behaves.
pub(crate) fn alone_with(variables: &[(&str, &str)], body: impl FnOnce()) {
    if let Some((installation, _dir)) = run_alone(variables, body) {
        for report in installation.reports().unwrap() {
            check(&report);
        }
        assert_eq!(installation.left_behind().unwrap().len(), 0);
    }
}

/// Asserts that everything is closed, once.
pub(crate) fn check(report: &Report) {
    assert!(report.is_clean(), "{report:?}");
    let pairs = [
        (E::cuMemAlloc_v2, E::cuMemFree_v2),
        (E::cuMemAllocHost_v2, E::cuMemFreeHost),
        (E::cuMemMap, E::cuMemUnmap),
        (E::cuMemAddressReserve, E::cuMemAddressFree),
        (E::cuIpcOpenMemHandle_v2, E::cuIpcCloseMemHandle),
        (E::cuStreamCreate, E::cuStreamDestroy_v2),
    ];
    for (open, close) in pairs {
        assert!(report.count(close) <= report.count(open), "{close:?}: {report:?}");
    }
}

/// The same on streams that take their time for everything.
pub(crate) fn alone_on_slow_streams(body: impl FnOnce()) {
    alone_with(&[("FAKE_CUDA_STREAM_DELAY_MS", "2")], body);
}

/// The same where host functions of all streams run one at a time.
pub(crate) fn alone_in_turns(body: impl FnOnce()) {
    alone_with(&[("FAKE_CUDA_HOST_FUNCTIONS", "serial")], body);
}

/// The same, but looking at what is left is up to the caller, who gets all reports. `None` in the process that calls `body`.
pub(crate) fn reports_of(variables: &[(&str, &str)], body: impl FnOnce()) -> Option<Vec<Report>> {
    let (installation, _dir) = run_alone(variables, body)?;
    Some(installation.reports().unwrap())
}

fn run_alone<F: FnOnce()>(variables: &[(&str, &str)], body: F) -> Option<(Installation, tempfile::TempDir)> {
    if env::var_os(ALONE).is_some() {
        body();
        return None;
    }
    // The path of the test is the path of its closure but for the names of the crate and of the closure.
    let path = any::type_name::<F>().split_once("::").unwrap().1;
    let name = path.split("::{{closure}}").next().unwrap();
    let mut command = this_test(name);
    command.env(ALONE, "1");
    let double = env::var_os(REAL_GPU).is_none().then(|| {
        let dir = tempfile::tempdir().unwrap();
        let installation = Installation::new(dir.path()).unwrap();
        installation.set_up(&mut command).envs(variables.iter().copied());
        (installation, dir)
    });
    let output = finish(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{name}: {}\n{text}\n{errors}",
        output.status
    );
    // The machine's own driver tells nobody what is left open.
    let (installation, dir) = double?;
    assert_ne!(installation.reports().unwrap().len(), 0, "the double was not there");
    Some((installation, dir))
}

/// This program, to run the test of that name and nothing else.
pub(crate) fn this_test(name: &str) -> Command {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args([name, "--exact", "--nocapture"]).stdin(Stdio::null());
    command
}

/// Waits for the end of a process, and kills one that hangs.
pub(crate) fn finish(mut child: Child) -> Output {
    let (stdout, stderr) = (read(child.stdout.take()), read(child.stderr.take()));
    let deadline = Instant::now() + PATIENCE;
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if Instant::now() > deadline {
            child.kill().unwrap();
        }
        thread::sleep(Duration::from_millis(1));
    };
    Output { status, stdout: stdout.join().unwrap(), stderr: stderr.join().unwrap() }
}

/// Reads a pipe to its end, so that nobody waits to write to it.
fn read(pipe: Option<impl Read + Send + 'static>) -> JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        pipe.map_or(Ok(0), |mut pipe| pipe.read_to_end(&mut bytes)).unwrap();
        bytes
    })
}

/// Set by `scripts/gpu-check.sh`, for tests that a real GPU must pass, too.
pub(crate) const REAL_GPU: &str = "CUFRAMES_REAL_GPU";
/// Says that the process is the one that a test runs alone in.
const ALONE: &str = "CUFRAMES_TEST_ALONE";
/// Only a hang takes as long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);
