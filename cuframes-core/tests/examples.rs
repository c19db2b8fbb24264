//! The example of the core runs, without anything but itself. Cargo builds it with the tests of the package.

use std::env;
use std::path::Path;
use std::process::Command;

#[test]
fn a_stream_runs_on_the_heap_in_no_time() {
    let test = env::current_exe().unwrap();
    let program = test.parent().and_then(Path::parent).unwrap().join("examples/sans_io");
    assert!(program.exists(), "{} is missing: build it with `cargo build --examples`", program.display());
    let output = Command::new(program).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let output = String::from_utf8(output.stdout).unwrap();
    let frames = (1..=5).map(|seq| format!("frame {seq} of {} ms: intact true\n", 40 * seq));
    let frames: String = frames.collect();
    let end = output.strip_prefix(&frames).unwrap_or_default();
    let silent = "at 5200 ms: Some(Closed(Gone(Timeout { state: \"Hello\" })))\n";
    assert_eq!(end, format!("{silent}Some(Closed(Gone(Unsubscribed)))\n"), "{output}");
}
