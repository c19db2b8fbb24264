//! `scripts/gpu-check.sh`, with programs that only say what it looks for.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output};

use tempfile::TempDir;

const UUID: &str = "GPU-01234567-89ab-cdef-0123-456789abcdef";

/// A machine with programs of its own.
struct Lab {
    dir: TempDir,
}

impl Lab {
    /// `streams` is what the tests of streams say, `memory` what `nvidia-smi` says of the memory in use.
    fn new(streams: &str, memory: &str) -> Self {
        let lab = Self { dir: tempfile::tempdir().unwrap() };
        lab.write("pre/backends", "echo 'test result: ok. 22 passed; 0 failed'");
        lab.write("pre/streams", streams);
        let says =
            format!("[ \"$1\" = publish ] && echo 'in the memory of X ({UUID}), shared so' >&2; echo {{}}");
        lab.write("pre/cuframes", &says);
        // It has no device 0, and counts others than CUDA does.
        let smi = format!(
            "[ $# = 0 ] && exit; case \"$*\" in *memory.used*{UUID}) echo '{memory}';; *{UUID}) echo 'A, name';; *) exit 6;; esac"
        );
        lab.write("bin/nvidia-smi", &smi);
        lab
    }

    fn write(&self, name: &str, script: &str) {
        let path = self.dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// Runs the script, with paths as somebody types them; what it ends with, and its report.
    fn run(&self) -> (Output, serde_json::Value) {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/gpu-check.sh");
        let mut command = Command::new("bash");
        command.arg(script.canonicalize().unwrap()).args(["--prebuilt", "pre", "--report", "report.json"]);
        let path = format!("{}:{}", self.dir.path().join("bin").display(), std::env::var("PATH").unwrap());
        let output = command.current_dir(&self.dir).env("PATH", path).output().unwrap();
        let report = fs::read_to_string(self.dir.path().join("report.json")).unwrap();
        (output, serde_json::from_str(&report).unwrap())
    }
}

#[test]
fn a_check_of_a_gpu_is_reported_with_its_device() {
    let lab = Lab::new("echo 'test result: ok. 1 passed; 0 failed'", "100");
    let (output, report) = lab.run();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(report["failures"], 0);
    assert_eq!((&report["uuid"], &report["gpu"]), (&UUID.into(), &"A, name".into()));
    assert_eq!(report["memory_used_mib"], serde_json::json!({"before": 100, "after": 100}));
    assert!(report["steps"].as_array().unwrap().len() > 12, "{report}");
}

#[test]
fn a_check_of_a_gpu_fails_where_a_test_is_not_there() {
    let lab = Lab::new("echo 'test result: ok. 0 passed; 0 failed'", "100");
    let (output, report) = lab.run();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let steps = report["steps"].as_array().unwrap();
    let failed = steps.iter().filter(|step| step["ok"] == false).count();
    // Every check of streams by its name, no check of backends, and no demo.
    assert_eq!(report["failures"], failed, "{report}");
    let named = steps.iter().filter(|step| step["detail"] != serde_json::Value::Null).count();
    assert_eq!(failed, named - 2, "{report}");
}

#[test]
fn a_check_of_a_gpu_does_without_what_nvidia_smi_does_not_tell() {
    let lab = Lab::new("echo 'test result: ok. 1 passed; 0 failed'", "[N/A]");
    let (output, report) = lab.run();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(report["memory_used_mib"], serde_json::json!({"before": null, "after": null}));
    assert!(String::from_utf8_lossy(&output.stdout).contains("SKIPPED: GPU memory"), "{output:?}");
}

#[test]
fn every_test_that_a_gpu_must_pass_is_one() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/gpu-check.sh");
    let script = fs::read_to_string(script).unwrap();
    let list = script.split_once("for test in ").unwrap().1.split_once("; do").unwrap().0;
    let share = include_str!("share.rs");
    let names: Vec<_> = list.split([' ', '\\', '\n']).filter(|name| !name.is_empty()).collect();
    assert!(names.len() > 7, "{names:?}");
    for name in names {
        assert!(share.contains(&format!("#[test]\nfn {name}() {{")), "{name}");
    }
}
