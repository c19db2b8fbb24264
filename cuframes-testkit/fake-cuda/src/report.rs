//! What a process says when it ends: [`Report`], one line of JSON in the file that `FAKE_CUDA_REPORT` names.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::entry_point::EntryPoint;

/// What one process left open, did wrong and called.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[expect(clippy::exhaustive_structs, reason = "tests compare whole reports")]
pub struct Report {
    /// The process, as it sees itself.
    pub pid: u32,
    /// What was still open.
    pub open: StillOpen,
    /// Rules of CUDA that it broke, in words. A call that breaks one fails too, where CUDA says so.
    pub violations: Vec<String>,
    /// How often each entry point was called, if it was, by its exported name. Calls that failed count.
    pub calls: BTreeMap<String, u64>,
}

/// How much is open of each kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[expect(clippy::exhaustive_structs, reason = "tests compare whole reports")]
pub struct StillOpen {
    /// `cuMemAlloc`, `cuMemAllocAsync` and `cuMemAllocManaged`.
    pub allocations: u64,
    /// `cuMemAllocHost` and `cuMemHostAlloc`.
    pub pinned_host_memory: u64,
    /// `cuIpcOpenMemHandle`; one that was opened more than once counts once.
    pub ipc_imports: u64,
    /// Events, those of other processes too.
    pub events: u64,
    /// `cuStreamCreate`.
    pub streams: u64,
    /// Handles of `cuMemCreate` and `cuMemImportFromShareableHandle`.
    pub vmm_handles: u64,
    /// `cuMemAddressReserve`.
    pub reservations: u64,
    /// `cuMemMap`.
    pub mappings: u64,
    /// `cuDevicePrimaryCtxRetain`, of all devices.
    pub primary_retains: u64,
    /// Contexts on the stacks of all threads that there ever were.
    pub context_stack: u64,
}

impl Report {
    /// The reports of all processes that ended, in that order. None if there is no file yet.
    ///
    /// # Errors
    /// The file can't be read, or is not of reports.
    pub fn read_all(path: &Path) -> io::Result<Vec<Self>> {
        let text = match fs::read_to_string(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            text => text?,
        };
        text.lines().map(|line| Ok(serde_json::from_str(line)?)).collect()
    }

    /// Whether nothing is open and no rule was broken.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.open == StillOpen::default() && self.violations.is_empty()
    }

    /// How often this was called.
    #[must_use]
    pub fn count(&self, entry_point: EntryPoint) -> u64 {
        self.calls.get(entry_point.name()).copied().unwrap_or_default()
    }

    pub(crate) fn append_to(&self, path: &Path) -> io::Result<()> {
        let mut line = serde_json::to_vec(self)?;
        line.push(b'\n');
        // In one piece, so that lines of two processes do not mix.
        OpenOptions::new().append(true).create(true).open(path)?.write_all(&line)
    }
}
