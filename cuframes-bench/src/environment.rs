//! [`Environment`]: where figures come from.

use std::fmt;
use std::fs;

use serde::Serialize;

use crate::pin;

/// The machine, and what it had to do besides.
#[derive(Serialize, Clone, Debug)]
#[non_exhaustive]
pub struct Environment {
    /// The CPU's name for itself.
    pub cpu: String,
    /// CPUs that this program may use.
    pub cpus: usize,
    /// Whether it is a virtual machine, whose CPUs may be taken away at any time.
    pub is_virtual: bool,
    /// The version of Linux.
    pub kernel: String,
    /// The version of cuframes.
    pub cuframes: &'static str,
    /// Whether writers and readers are kept on CPUs of their own.
    pub is_pinned: bool,
    /// Processes that wanted to run in the last minute before the measurement, on average.
    pub load: Option<f64>,
}

impl Environment {
    pub(crate) fn look(cpus: &[usize]) -> Self {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        let cpu = read("/proc/cpuinfo");
        let field = |name: &str| {
            let line = cpu.lines().find(|line| line.starts_with(name))?;
            line.split_once(':').map(|(_, value)| value.trim().to_string())
        };
        Self {
            cpu: field("model name").unwrap_or_else(|| "unknown".into()),
            cpus: cpus.len(),
            is_virtual: field("flags").is_some_and(|flags| flags.split(' ').any(|flag| flag == "hypervisor")),
            kernel: read("/proc/sys/kernel/osrelease").trim().into(),
            cuframes: env!("CARGO_PKG_VERSION"),
            is_pinned: pin::is_possible(cpus),
            load: read("/proc/loadavg").split(' ').next().and_then(|load| load.parse().ok()),
        }
    }
}

impl fmt::Display for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cpu, cpus, is_virtual, kernel, cuframes, is_pinned, load } = self;
        let virtually = if *is_virtual { ", a virtual machine" } else { "" };
        writeln!(f, "{cpu}, {cpus} CPUs{virtually}")?;
        write!(f, "Linux {kernel}, cuframes {cuframes}")?;
        if let Some(load) = load {
            write!(f, ", load {load}")?;
        }
        let pinned = match is_pinned {
            true => "writers and readers are on CPUs of their own, but for flow",
            false => "one CPU is not enough to keep writers and readers apart",
        };
        write!(f, "\n{pinned}")
    }
}
