//! `cuframes gc`: removes what publishers that died have left, and bridges.

use std::path::{Path, PathBuf};
use std::{fs, io};

use cuframes_core::Key;
use cuframes_mio::{Error, Holder, Liveness, Observer, Sighting, remove_leftovers};
use serde::Serialize;

use crate::args::GcArgs;
use crate::console::Console;
use crate::error::{Failure, failed};
use crate::hops;
use crate::output::{self, Count};
use crate::signals::Signals;

/// What there was to do.
#[derive(Serialize)]
struct Report {
    is_dry_run: bool,
    streams: Vec<Left>,
}

/// What a publisher has left, or a bridge.
#[derive(Serialize)]
struct Left {
    #[serde(serialize_with = "crate::survey::text")]
    key: Key,
    /// Removed, or to be removed.
    files: Vec<PathBuf>,
    /// Whether there is nothing that only the locks can tell; they are not asked in a dry run.
    is_certain: bool,
    /// Why they were not.
    error: Option<String>,
}

pub(crate) fn run(
    args: &GcArgs,
    run_dir: Option<&Path>,
    signals: &Signals,
    console: &Console,
) -> Result<(), Failure> {
    let observer = Observer::new(run_dir);
    let (sightings, troubles) = observer.streams();
    let mut left: Vec<_> = sightings.iter().filter_map(Left::of).collect();
    for (key, files) in observer.unfinished() {
        // It may have a socket, too.
        if let Some(known) = left.iter_mut().find(|left| left.key == key) {
            known.files.extend(files);
            known.files.dedup();
        } else {
            left.push(Left { key, files, is_certain: false, error: None });
        }
    }
    let is_wanted = |key: &Key| args.keys.is_empty() || args.keys.contains(key);
    left.retain(|left| is_wanted(&left.key));
    left.sort_by(|one, other| one.key.cmp(&other.key));
    let mut streams: Vec<_> =
        if args.dry_run { left } else { left.into_iter().filter_map(|left| left.removed(run_dir)).collect() };
    // What a bridge has told is of no use when that is gone, whether its stream lives or not.
    for (key, file) in hops::leftovers(observer.run_dirs()).into_iter().filter(|(key, _)| is_wanted(key)) {
        streams.push(Left::hop(key, file, args.dry_run));
    }
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
        n => {
            let why = if args.json { "error in the report says why" } else { "the lines above say why" };
            Err(failed!("what {} left could not be removed; {why}", Count(n, "stream")))
        }
    }
}

impl Left {
    /// What there is to remove of a stream, if its publisher is dead, or may be.
    fn of(sighting: &Sighting) -> Option<Self> {
        // One without an epoch takes no lock (D-13), so that nothing would tell whether it lives.
        let takes_locks = || {
            let snapshot = sighting.snapshot.as_ref().ok();
            snapshot.and_then(|snapshot| snapshot.header().ok()).is_some_and(|header| header.epoch != 0)
        };
        let is_certain = match sighting.publisher {
            Liveness::Dead if sighting.foreign().is_none() => true,
            Liveness::Unknown if takes_locks() => false,
            _ => return None,
        };
        let Sighting { key, socket, region, .. } = sighting;
        let in_shm = [region.clone(), region.with_file_name(key.region_lock_file())];
        let in_shm = in_shm.into_iter().filter(|path| path.symlink_metadata().is_ok());
        let files = socket.clone().into_iter().chain(in_shm).collect();
        Some(Self { key: key.clone(), files, is_certain, error: None })
    }

    /// Removes it, if the locks show that its publisher is dead, whatever was seen. `None` if they do not, or if somebody
    /// else was faster.
    fn removed(self, run_dir: Option<&Path>) -> Option<Self> {
        let (files, error) = match remove_leftovers(&self.key, run_dir) {
            Ok(files) if files.is_empty() => return None,
            Ok(files) => (files, None),
            Err(Error::AlreadyExists { holder, .. }) if !matches!(holder, Holder::Foreign(_)) => return None,
            Err(error) => (Vec::new(), Some(error.to_string())),
        };
        Some(Self { files, is_certain: true, error, ..self })
    }

    /// The file of a bridge that is gone; removed, but for a dry run.
    fn hop(key: Key, file: PathBuf, is_dry_run: bool) -> Self {
        let removed = if is_dry_run { Ok(()) } else { fs::remove_file(&file) };
        let (files, error) = match removed {
            Ok(()) => (vec![file], None),
            // Somebody else was faster.
            Err(error) if error.kind() == io::ErrorKind::NotFound => (Vec::new(), None),
            Err(error) => (Vec::new(), Some(format!("can't remove {}: {error}", file.display()))),
        };
        Self { key, files, is_certain: true, error }
    }

    fn lines(&self, is_dry_run: bool) -> Vec<String> {
        let Self { key, files, is_certain, error } = self;
        let what = if is_dry_run { "would remove" } else { "removed" };
        let but = if *is_certain { "" } else { ", if its locks show that its publisher is dead" };
        let removed = files.iter().map(|file| format!("{key}: {what} {}{but}", file.display()));
        removed.chain(error.iter().map(|error| format!("{key}: {error}"))).collect()
    }
}
