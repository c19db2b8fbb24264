//! `cuframes gc`: removes what publishers that died have left.

use std::path::{Path, PathBuf};

use cuframes_core::Key;
use cuframes_mio::{Liveness, Observer, Sighting, remove_leftovers};
use serde::Serialize;

use crate::args::GcArgs;
use crate::console::Console;
use crate::error::{Failure, failed};
use crate::output;
use crate::signals::Signals;

/// What there was to do.
#[derive(Serialize)]
struct Report {
    is_dry_run: bool,
    streams: Vec<Left>,
}

/// What a publisher has left.
#[derive(Serialize)]
struct Left {
    #[serde(serialize_with = "crate::survey::text")]
    key: Key,
    /// Removed, or to be removed.
    files: Vec<PathBuf>,
    /// Why they were not.
    error: Option<String>,
}

pub(crate) fn run(
    args: &GcArgs,
    run_dir: Option<&Path>,
    signals: &Signals,
    console: &Console,
) -> Result<(), Failure> {
    let (sightings, troubles) = Observer::new(run_dir).streams();
    let wanted = |sighting: &Sighting| args.keys.is_empty() || args.keys.contains(&sighting.key);
    let is_left = |sighting: &Sighting| sighting.publisher == Liveness::Dead && sighting.foreign().is_none();
    let left = sightings.iter().filter(|sighting| wanted(sighting) && is_left(sighting));
    let streams: Vec<_> = left.map(|sighting| clear(sighting, args.dry_run, run_dir)).collect();
    let failures = streams.iter().filter(|left| left.error.is_some()).count();
    let report = Report { is_dry_run: args.dry_run, streams };
    if args.json {
        console.print(&output::json(&report)?, signals)?;
    } else {
        let lines: Vec<_> = report.streams.iter().flat_map(|left| left.lines(args.dry_run)).collect();
        let nothing = || "nothing is left of streams that ended".to_string();
        console.print(&if lines.is_empty() { nothing() } else { lines.join("\n") }, signals)?;
    }
    if !troubles.is_empty() {
        let troubles: Vec<_> = troubles.iter().map(ToString::to_string).collect();
        return Err(failed!("{}", troubles.join("; ")));
    }
    match failures {
        0 => Ok(()),
        n => Err(failed!("what {n} streams left could not be removed; the lines above say why")),
    }
}

fn clear(sighting: &Sighting, is_dry_run: bool, run_dir: Option<&Path>) -> Left {
    let key = sighting.key.clone();
    if is_dry_run {
        let lock = sighting.region.with_file_name(key.region_lock_file());
        let files = sighting.socket.iter().chain([&sighting.region, &lock]).filter(|file| file.exists());
        return Left { files: files.cloned().collect(), key, error: None };
    }
    // Whether it is dead is decided by the locks, not by what was seen.
    match remove_leftovers(&key, run_dir) {
        Ok(files) => Left { key, files, error: None },
        Err(error) => Left { key, files: Vec::new(), error: Some(error.to_string()) },
    }
}

impl Left {
    fn lines(&self, is_dry_run: bool) -> Vec<String> {
        let Self { key, files, error } = self;
        let what = if is_dry_run { "would remove" } else { "removed" };
        let removed = files.iter().map(|file| format!("{key}: {what} {}", file.display()));
        removed.chain(error.iter().map(|error| format!("{key}: {error}"))).collect()
    }
}
