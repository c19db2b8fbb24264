//! Every call of the driver fails: an error that names it and its code, nothing left open, and everybody else goes on.

use cuframes_core::Backend;
use fake_cuda::{Report, StillOpen};

use crate::stage::{Actor, Stage};

/// `CUDA_ERROR_UNKNOWN`.
const CODE: u32 = 999;

/// Every call that a process made, each as the first, the second and the last of its kind.
fn faults(report: &Report) -> Vec<(String, String)> {
    let times = |count: u64| [1, 2, count].into_iter().filter(move |n| *n <= count);
    let mut faults: Vec<_> = report
        .calls
        .iter()
        .flat_map(|(call, count)| times(*count).map(move |n| (call.clone(), format!("{call}@{n}={CODE}"))))
        .collect();
    faults.dedup();
    faults
}

/// A call that fails may keep open what it was to close, and what that keeps open in turn; no other may.
fn closes(call: &str) -> bool {
    ["Free", "Close", "Destroy", "Unmap", "Release", "Pop"].iter().any(|word| call.contains(word))
}

/// Whatever it told, it is an error that names the call and its code, unless it got along without the call.
fn check_told(call: &str, fault: &str, told: &[String]) -> bool {
    let function = call.trim_end_matches("_v2");
    let errors: Vec<_> = told.iter().filter_map(|line| line.strip_prefix("error: ")).collect();
    for error in &errors {
        assert!(error.contains(function) && error.contains(&CODE.to_string()), "{fault}: {error}");
        assert!(!error.contains('\n'), "{error}");
    }
    !errors.is_empty()
}

fn check_report(call: &str, fault: &str, report: &Report) {
    assert!(closes(call) || report.open == StillOpen::default(), "{fault}: {report:?}");
    assert!(report.violations.is_empty() || closes(call), "{fault}: {report:?}");
}

/// Lets each call of a subscriber fail, while another one sees every frame of the same stream.
fn subscribers_fail(backend: Backend) {
    let stage = Stage::new(backend);
    let mut publisher = stage.role("publishes");
    let mut publisher = Actor::start(publisher.env("TEST_FRAMES", "0").env("TEST_STRICT", "1"));
    publisher.wait_for("ready");
    let mut good = Actor::start(&mut stage.role("subscribes"));
    good.wait_for("attached");
    let take_a_few = || {
        let mut role = stage.role("subscribes");
        role.env("TEST_TAKE", "5");
        role
    };
    let calm = Actor::start(&mut take_a_few());
    let pid = calm.pid();
    assert_eq!(calm.end().1, ["attached", "seen 5", "well"]);
    let faults = faults(&stage.report(pid));
    let mut told_of = 0;
    for (call, fault) in &faults {
        let faulty = Actor::start(take_a_few().env("FAKE_CUDA_FAIL", fault));
        let pid = faulty.pid();
        let (status, told) = faulty.end();
        assert!(status.success(), "{fault}: {told:?}");
        told_of += usize::from(check_told(call, fault, &told));
        check_report(call, fault, &stage.report(pid));
    }
    println!("{backend}: {told_of} of {} faults of a subscriber were told", faults.len());
    assert!(told_of * 2 > faults.len(), "most calls matter");
    stage.stop();
    let (_, told) = publisher.end();
    assert_eq!(told, ["well"], "no publisher has to do with a subscriber's driver");
    let (_, told) = good.end();
    assert!(matches!(&told[..], [seen, well] if seen.starts_with("seen") && well == "well"), "{told:?}");
}

/// Lets each call of a publisher fail. Its subscriber sees what is published, or hears that the stream has ended.
fn publishers_fail(backend: Backend) {
    let play = |fault: &str| {
        let stage = Stage::new(backend);
        let mut publisher = stage.role("publishes");
        let mut publisher = Actor::start(
            publisher.env("TEST_FRAMES", "5").env("TEST_STRICT", "1").env("FAKE_CUDA_FAIL", fault),
        );
        let pid = publisher.pid();
        let mut told = Vec::new();
        while let Some(line) = publisher.hear() {
            if line == "ready" {
                let (status, told) = Actor::start(&mut stage.role("subscribes")).end();
                assert!(status.success() && told.contains(&"well".to_string()), "{fault}: {told:?}");
            } else {
                told.push(line);
            }
        }
        let (status, _) = publisher.end();
        assert!(status.success(), "{fault}: {told:?}");
        assert!(!stage.region().exists(), "{fault}: the region is left behind");
        (told, stage.report(pid))
    };
    let (told, report) = play("");
    assert_eq!(told, ["well"]);
    let faults = faults(&report);
    let mut told_of = 0;
    for (call, fault) in &faults {
        let (told, report) = play(fault);
        told_of += usize::from(check_told(call, fault, &told));
        check_report(call, fault, &report);
    }
    println!("{backend}: {told_of} of {} faults of a publisher were told", faults.len());
    assert!(told_of * 2 > faults.len(), "most calls matter");
}

#[test]
fn any_call_of_a_subscriber_may_fail_where_memory_is_shared_over_handles() {
    subscribers_fail(Backend::CUDA_IPC);
}

#[test]
fn any_call_of_a_subscriber_may_fail_where_memory_is_shared_over_descriptors() {
    subscribers_fail(Backend::CUDA_VMM);
}

#[test]
fn any_call_of_a_publisher_may_fail_where_memory_is_shared_over_handles() {
    publishers_fail(Backend::CUDA_IPC);
}

#[test]
fn any_call_of_a_publisher_may_fail_where_memory_is_shared_over_descriptors() {
    publishers_fail(Backend::CUDA_VMM);
}
