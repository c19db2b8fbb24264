//! [`Platform`]: machines on which CUDA says that it can share memory, and can't (C-12).

use std::fs;
use std::path::Path;

/// What kind of machine this is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Platform {
    /// Linux on its own hardware, or in an ordinary virtual machine.
    Linux,
    /// The Windows Subsystem for Linux: no legacy IPC.
    Wsl2,
    /// An NVIDIA Tegra or Jetson, whose GPU has no memory of its own: no legacy IPC.
    Tegra,
}

impl Platform {
    /// What this machine is.
    #[must_use]
    pub fn detect() -> Self {
        let version = fs::read_to_string("/proc/version").unwrap_or_default();
        Self::from_signs(
            Path::new("/dev/dxg").exists() || version.to_ascii_lowercase().contains("microsoft"),
            Path::new("/etc/nv_tegra_release").exists() || version.contains("tegra"),
        )
    }

    const fn from_signs(wsl: bool, tegra: bool) -> Self {
        match (wsl, tegra) {
            (true, _) => Self::Wsl2,
            (_, true) => Self::Tegra,
            _ => Self::Linux,
        }
    }

    /// What to say where legacy IPC is refused.
    pub(crate) const fn legacy_ipc_remedy(self) -> &'static str {
        match self {
            Self::Wsl2 => "there is no legacy CUDA IPC on WSL2: publish over cuda-vmm, or use host memory",
            Self::Tegra => "there is no legacy CUDA IPC on Tegra: use host memory",
            Self::Linux => {
                "this device has no legacy CUDA IPC, as MIG instances and vGPUs may not: publish over cuda-vmm, or use host memory"
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_platform_without_legacy_handles_is_named_in_its_remedy() {
        for (wsl, tegra, name) in [(true, false, "WSL2"), (false, true, "Tegra"), (false, false, "MIG")] {
            assert!(Platform::from_signs(wsl, tegra).legacy_ipc_remedy().contains(name));
        }
    }
}
