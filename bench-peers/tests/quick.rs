//! The program measures everybody, and leaves nothing behind.

use std::fs;
use std::process::Command;

use tempfile::Builder;

#[test]
fn everybody_does_every_job_that_any_system_can_do_and_leaves_nothing_behind() {
    // A short name: the sockets of iceoryx2 have long ones.
    let place = Builder::new().prefix("q").tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_cuframes-bench-peers"))
        .args(["--quick", "--rounds", "1", "--jobs", "spin,wake,publish,handshake"])
        .env("TMPDIR", place.path())
        .output()
        .unwrap();
    let report = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{report}\n{}", String::from_utf8_lossy(&output.stderr));
    for name in ["floor", "cuframes", "iceoryx2", "ipc-channel", "unix-socket"] {
        let rows = report.lines().filter(|line| line.split_whitespace().any(|word| word == name)).count();
        assert!(rows > 10, "{rows} rows of {name}:\n{report}");
    }
    assert_eq!(fs::read_dir(&place).unwrap().count(), 0);
}

#[test]
fn a_system_that_nobody_knows_is_told_which_there_are() {
    let output = Command::new(env!("CARGO_BIN_EXE_cuframes-bench-peers"))
        .args(["--systems", "iceoryx"])
        .output()
        .unwrap();
    assert!(!output.status.success());
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("unix-socket"), "{said}");
}
