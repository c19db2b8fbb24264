//! The library as C sees it: Python calls it through ctypes, in processes of their own.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc;

use fake_cuda::{Config, Driver, EntryPoint as E, GRANULE, Installation, Report};
use tempfile::TempDir;

/// A made-up machine on which Python runs.
struct Lab {
    _dir: TempDir,
    installation: Installation,
}

impl Lab {
    /// `None`, which it says, without Python.
    fn new() -> Option<Self> {
        let probe = Command::new("python3").args(["-c", "import ctypes"]).output();
        if !probe.is_ok_and(|output| output.status.success()) {
            println!("SKIPPED: calls from C: there is no python3 with ctypes");
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        let installation = Installation::new(dir.path()).unwrap();
        Some(Self { _dir: dir, installation })
    }

    /// A script that can't be started without the library.
    fn command(&self, arguments: &[&str]) -> Command {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/caller.py");
        let mut command = Command::new("python3");
        self.installation.set_up(command.arg(script).args(arguments));
        command
    }

    /// Runs it to its end.
    fn run(&self, arguments: &[&str], variables: &[(&str, &str)]) -> Report {
        let output = self.command(arguments).envs(variables.iter().copied()).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {text}");
        self.installation.reports().unwrap().pop().unwrap()
    }
}

/// A script that says something and waits.
struct Running {
    child: Child,
    stdin: ChildStdin,
    offer: Vec<String>,
}

impl Running {
    fn start(mut command: Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let offer = line.split_whitespace().map(str::to_owned).collect();
        Self { stdin: child.stdin.take().unwrap(), child, offer }
    }

    fn end(mut self) {
        self.stdin.write_all(b"end\n").unwrap();
        assert!(self.child.wait().unwrap().success());
    }
}

#[test]
fn every_entry_point_is_a_symbol() {
    let Some(lab) = Lab::new() else { return };
    let names: Vec<_> = E::ALL.iter().map(|entry_point| entry_point.name()).collect();
    lab.run(&[&["symbols"], names.as_slice()].concat(), &[]);
}

#[test]
fn bytes_go_in_and_out_and_null_pointers_are_refused() {
    let Some(lab) = Lab::new() else { return };
    let report = lab.run(&["copies"], &[]);
    assert!(report.is_clean(), "{report:?}");
    assert_eq!(report.count(E::cuMemAlloc_v2), 3, "those that failed count");
}

#[test]
fn streams_events_and_host_functions_work_and_a_host_function_may_call_nothing() {
    let Some(lab) = Lab::new() else { return };
    let report = lab.run(&["streams"], &[]);
    assert_eq!(report.violations, ["cuMemAlloc_v2 was called from a host function"]);
    assert_eq!(report.open, Default::default());
}

#[test]
fn two_processes_share_memory_and_an_event() {
    let Some(lab) = Lab::new() else { return };
    let exporter = Running::start(lab.command(&["export"]));
    let offer: Vec<_> = exporter.offer.iter().map(String::as_str).collect();
    let importer = lab.run(&[&["import"], offer.as_slice()].concat(), &[("FAKE_CUDA_DEVICES", "1")]);
    assert!(importer.is_clean(), "{importer:?}");
    exporter.end();
    assert!(lab.installation.reports().unwrap().iter().all(Report::is_clean));
    assert!(lab.installation.left_behind().unwrap().is_empty());
}

#[test]
fn a_killed_exporter_is_no_process_any_more_and_leaves_its_files() {
    let Some(lab) = Lab::new() else { return };
    let mut exporter = Running::start(lab.command(&["export"]));
    exporter.child.kill().unwrap();
    exporter.child.wait().unwrap();
    lab.run(&["cannot-open", &exporter.offer[0], "201"], &[]);
    assert_eq!(lab.installation.left_behind().unwrap().len(), 1);
    assert_eq!(lab.installation.reports().unwrap().len(), 1);
}

#[test]
fn what_a_killed_importer_had_open_or_waited_for_is_in_use_no_more() {
    let Some(lab) = Lab::new() else { return };
    let [_, (_, dir), _] = lab.installation.variables();
    let exporter = Driver::new(Config { dir: Some(dir.into()), ..Config::default() }).unwrap();
    let call = |entry_point| exporter.call(entry_point).unwrap();
    call(E::cuInit).init(0).unwrap();
    let context = call(E::cuDevicePrimaryCtxRetain).primary_ctx_retain(0).unwrap();
    call(E::cuCtxSetCurrent).ctx_set(context).unwrap();
    let stream = call(E::cuStreamCreate).stream_create(1).unwrap();
    for is_killed in [true, false] {
        let memory = call(E::cuMemAlloc_v2).mem_alloc(GRANULE).unwrap();
        let event = call(E::cuEventCreate).event_create(6).unwrap();
        let (resume, is_resumed) = mpsc::channel::<()>();
        let wait = Box::new(move || is_resumed.recv().unwrap_or_default());
        call(E::cuLaunchHostFunc).launch_host_function(stream, wait).unwrap();
        call(E::cuEventRecord).event_record(event, stream).unwrap();
        let handles = [
            call(E::cuIpcGetMemHandle).ipc_get_mem_handle(memory).unwrap(),
            call(E::cuIpcGetEventHandle).ipc_get_event_handle(event).unwrap(),
        ];
        let [memory_text, event_text] = handles.map(|bytes| bytes.map(|byte| format!("{byte:02x}")).concat());
        let mut importer = Running::start(lab.command(&["hold", &memory_text, &event_text]));
        assert_eq!(importer.offer, ["held"]);
        if is_killed {
            importer.child.kill().unwrap();
            importer.child.wait().unwrap();
        }
        call(E::cuEventDestroy_v2).event_destroy(event).unwrap();
        drop(resume);
        call(E::cuMemFree_v2).mem_free(memory).unwrap();
        if !is_killed {
            importer.child.kill().unwrap();
            importer.child.wait().unwrap();
        }
        assert_eq!(exporter.report().violations.len(), if is_killed { 0 } else { 2 });
    }
}

#[test]
fn a_descriptor_carries_virtual_memory_to_a_child() {
    let Some(lab) = Lab::new() else { return };
    let report = lab.run(&["virtual"], &[]);
    assert!(report.is_clean(), "{report:?}");
    assert_eq!(lab.installation.reports().unwrap().len(), 2);
}

#[test]
fn pointers_say_what_they_are() {
    let Some(lab) = Lab::new() else { return };
    assert!(lab.run(&["pointers"], &[]).is_clean());
}

#[test]
fn a_fault_and_devices_come_from_the_environment() {
    let Some(lab) = Lab::new() else { return };
    let variables =
        [("FAKE_CUDA_FAIL", "cuMemAlloc_v2@2=46"), ("FAKE_CUDA_DEVICES", "3"), ("FAKE_CUDA_VISIBLE", "2,1")];
    let report = lab.run(&["environment"], &variables);
    assert_eq!(report.open.allocations, 1);
}

#[test]
fn a_variable_that_cannot_be_understood_lets_every_call_fail_and_is_reported() {
    let Some(lab) = Lab::new() else { return };
    let report = lab.run(&["misconfigured"], &[("FAKE_CUDA_MEMORY", "lots")]);
    assert!(report.violations[0].starts_with("configuration: FAKE_CUDA_MEMORY"));
}

#[test]
fn the_driver_does_not_come_with_a_forked_child() {
    let Some(lab) = Lab::new() else { return };
    let report = lab.run(&["fork"], &[]);
    assert!(report.violations.is_empty(), "of the parent: {report:?}");
    let reports = lab.installation.reports().unwrap();
    let [of_child, _] = &reports[..] else { panic!("{reports:?}") };
    assert_eq!(of_child.violations, ["cuCtxGetCurrent was called in a child of fork"]);
}
