//! A *cell*: one case of a job on one contender, once, in a process of its own. [`Stage`] is what it has there.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::case::Case;
use crate::pin;
use crate::system::{Failure, Setup, System};
use crate::troupe::{Actor, troupe};

/// What every process of a cell is told.
#[derive(Serialize, Deserialize, Clone, Debug)]
pub(crate) struct Brief {
    pub(crate) contender: String,
    pub(crate) case: Case,
    /// Whether figures need not be any good.
    pub(crate) quick: bool,
    /// The cell's own directory, whose last component is a name that nobody else has.
    pub(crate) dir: PathBuf,
    /// CPUs to be pinned to; empty where nobody is pinned.
    pub(crate) cpus: Vec<usize>,
}

impl Brief {
    /// The stream of a case that has only one. It has eight frames and is neither strict nor without leases.
    pub(crate) fn setup(&self, frame_bytes: usize, readers: usize) -> Setup {
        Setup {
            dir: self.dir.clone(),
            stream: "main".into(),
            frame_bytes,
            ring_size: 8,
            readers,
            strict: false,
            leases: true,
        }
    }

    /// One of two, depending on what is asked for.
    pub(crate) fn choose<T>(&self, full: T, quick: T) -> T {
        if self.quick { quick } else { full }
    }
}

/// Where a cell's main process measures.
#[derive(Debug)]
pub(crate) struct Stage {
    pub(crate) brief: Brief,
}

impl Stage {
    /// Opens the writer's end of a stream. Its threads are not pinned.
    pub(crate) fn open<S: System>(&self, setup: &Setup) -> Result<S::Writer, Failure> {
        // What it makes is known to whoever cleans up, or is not made.
        let _troupe = troupe();
        S::writer(setup)
    }

    /// Starts another process of the cell.
    pub(crate) fn call(&self, role: &str, index: usize) -> Result<Actor, Failure> {
        Actor::enter(&self.brief, role, index)
    }

    /// Starts so many processes, and waits until all are ready.
    pub(crate) fn call_all(&self, role: &str, how_many: usize) -> Result<Vec<Actor>, Failure> {
        let actors: Result<Vec<_>, _> = (0..how_many).map(|index| self.call(role, index)).collect();
        let mut actors = actors?;
        actors.iter_mut().try_for_each(|actor| actor.expect(READY))?;
        Ok(actors)
    }

    /// Keeps the calling thread on the writer's CPU, where that is possible.
    pub(crate) fn pin(&self) -> Result<(), Failure> {
        Ok(pin::pin_writer(&self.brief.cpus)?)
    }
}

/// Deletes what a cell has left: its directory, and shared memory with its name.
pub(crate) fn sweep(dir: &Path) {
    let Some(name) = dir.file_name().and_then(|name| name.to_str()) else { return };
    for entry in fs::read_dir("/dev/shm").into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().contains(name) {
            // It is gone already, or not ours.
            let _ = fs::remove_file(entry.path());
        }
    }
    let _ = fs::remove_dir_all(dir);
}

/// What a process says when the others may begin.
pub(crate) const READY: &str = "ready";
