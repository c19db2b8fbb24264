//! CUDA: the driver, each device, and both ways to share its memory.

use std::env;
use std::process::Command;

use cuframes_cuda::probe::{self, Found, Support};
use cuframes_cuda::{Cuda, Platform};

use super::Check;

pub(super) fn checks() -> Vec<Check> {
    let first = probe::probe(0);
    let Some(driver) = first.driver else {
        // Nothing is wrong with a machine without a GPU.
        let why = first.fault.map_or_else(|| "no driver".into(), |fault| fault.to_string());
        return vec![Check::ok("CUDA", format!("frames in host memory only: {why}"))];
    };
    let mut checks = vec![Check::ok("CUDA", format!("driver for CUDA {driver}, {} devices", first.devices))];
    if matches!(first.platform, Platform::Wsl2 | Platform::Tegra) {
        checks.push(Check::ok("CUDA platform", format!("{:?}, which has no legacy IPC", first.platform)));
    }
    for ordinal in (0..).take_while(|ordinal| u32::try_from(*ordinal).is_ok_and(|n| n < first.devices)) {
        let probed = if ordinal == 0 { first.clone() } else { probe::probe(ordinal) };
        match (probed.device, probed.fault) {
            (Some(device), _) => checks.extend(device_checks(ordinal, &device)),
            (None, fault) => {
                let found = fault.map_or_else(|| "can't be opened".into(), |fault| fault.to_string());
                checks.push(Check::problem(format!("GPU {ordinal}"), found, "see what nvidia-smi says"));
            }
        }
    }
    checks
}

fn device_checks(ordinal: i32, device: &Found) -> Vec<Check> {
    let Found { name, uuid, is_mig, is_integrated, vmm, .. } = device;
    let kind = match (is_mig, is_integrated) {
        (true, _) => ", a part of a device (MIG)",
        (_, true) => ", integrated",
        _ => "",
    };
    let ipc = Cuda::open(ordinal).map_err(|error| error.to_string()).and_then(|cuda| {
        let program = env::current_exe().map_err(|error| error.to_string())?;
        Ok(probe::ipc(&cuda, Command::new(program)))
    });
    let ipc = ipc.unwrap_or_else(|why| Support::Unknown { why });
    let ways =
        [("over descriptors", vmm, "--backend cuda-vmm"), ("over IPC handles", &ipc, "--backend cuda")];
    let one_works = ways.iter().any(|(_, support, _)| **support == Support::Works);
    let mut checks = vec![Check::ok(format!("GPU {ordinal}"), format!("{name}, {uuid}{kind}"))];
    checks.extend(ways.map(|(way, support, option)| {
        let what = format!("GPU {ordinal} {way}");
        match support {
            Support::Works => Check::ok(what, format!("works: {option}")),
            other if one_works => Check::warning(what, other.to_string(), "use the other way"),
            other => Check::problem(what, other.to_string(), "docs/gpu-backends.md says what each way needs"),
        }
    }));
    checks
}
