//! What a machine can do, where its attributes are wrong too.

use std::env;
use std::process::{Command, Stdio};

use cuframes_core::Backend;
use cuframes_core::gpu::GpuError as _;
use cuframes_cuda::Cuda;
use cuframes_cuda::probe::{self, Support, ipc, probe};

use crate::double::{alone, alone_with, finish, this_test};

/// This program in the role of a probe's child.
fn child() -> Command {
    this_test("probes::the_child_of_a_probe_answers_and_ends")
}

#[test]
fn the_child_of_a_probe_answers_and_ends() {
    probe::run_child_if_asked();
    let mut asked = child();
    asked.env(probe::CHILD, "GPU-that-is-nowhere").stdout(Stdio::piped());
    let output = finish(asked.spawn().unwrap());
    // It ended in the middle of this test, having been given no handles.
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && !text.contains("passed"), "{text}");
    assert!(
        text.lines().any(|line| line.starts_with("cuframes-cuda probe: ") && !line.ends_with(": ok")),
        "{text}"
    );
}

#[test]
fn a_machine_that_can_do_everything_is_described() {
    alone(|| {
        let found = probe(0);
        assert_eq!((found.driver.unwrap().to_string().as_str(), found.devices), ("12.4", 1));
        assert_eq!(found.fault, None);
        let device = found.device.unwrap();
        let cuda = Cuda::open(0).unwrap();
        assert_eq!((device.name.as_str(), device.uuid), (cuda.name(), cuda.uuid()));
        assert!(!device.is_mig && !device.is_integrated && device.says_ipc);
        assert_eq!(device.vmm, Support::Works);
        assert_eq!(ipc(&cuda, child()), Support::Works);
    });
}

#[test]
fn what_the_device_denies_is_not_tried() {
    // Attribute 18: integrated; 102: virtual memory management.
    let attributes = "18=1,102=0";
    let variables = [("FAKE_CUDA_ATTRIBUTES", attributes), ("FAKE_CUDA_NAME", "NVIDIA A100 MIG 1g.5gb")];
    alone_with(&variables, || {
        let device = probe(0).device.unwrap();
        assert!(device.is_mig && device.is_integrated);
        assert_eq!(device.vmm, Support::Unsupported);
    });
}

#[test]
fn handles_that_the_attributes_promise_and_the_driver_refuses_do_not_work() {
    alone_with(&[("FAKE_CUDA_IPC", "refused")], || {
        assert!(probe(0).device.unwrap().says_ipc);
        let Support::Fails(error) = ipc(&Cuda::open(0).unwrap(), child()) else { panic!("it works") };
        assert_eq!(error.native(), Some(801));
        let text = error.to_string();
        assert!(
            text.contains("cuIpcGetMemHandle") && text.contains("there is no legacy")
                || text.contains("has no legacy"),
            "{text}"
        );
    });
}

#[test]
fn handles_that_only_the_other_process_can_not_open_do_not_work() {
    alone(|| {
        let cuda = Cuda::open_as(0, Backend::CUDA_VMM).unwrap();
        for call in ["cuIpcOpenMemHandle", "cuIpcOpenEventHandle"] {
            let mut child = child();
            let symbol = if call == "cuIpcOpenMemHandle" { "cuIpcOpenMemHandle_v2" } else { call };
            child.env("FAKE_CUDA_FAIL", format!("{symbol}@1=201"));
            let Support::FailsThere { what } = ipc(&cuda, child) else { panic!("{call}") };
            assert!(what.contains(call) && what.contains("(201)") && what.contains("pid and ipc"), "{what}");
        }
    });
}

#[test]
fn a_probe_whose_child_is_no_child_finds_nothing_out() {
    alone(|| {
        let cuda = Cuda::open_as(0, Backend::CUDA_IPC).unwrap();
        let unknown = ipc(&cuda, Command::new("/bin/true"));
        assert!(matches!(unknown, Support::Unknown { .. }), "{unknown}");
        let unknown = ipc(&cuda, Command::new("/no such program"));
        assert!(matches!(unknown, Support::Unknown { .. }), "{unknown}");
    });
}

#[test]
fn a_child_that_finds_no_such_device_says_so() {
    alone_with(&[("FAKE_CUDA_DEVICES", "2")], || {
        let cuda = Cuda::open_as(0, Backend::CUDA_IPC).unwrap();
        let mut child = child();
        child.env("FAKE_CUDA_VISIBLE", "1");
        let Support::FailsThere { what } = ipc(&cuda, child) else { panic!("it works") };
        assert!(what.contains(&cuda.uuid().to_string()), "{what}");
        assert!(env::var_os(probe::CHILD).is_none());
    });
}
