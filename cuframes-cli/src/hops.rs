//! [`Hop`]: a stream's way to another host or from it, as the process that moves its frames tells `top`.
//!
//! Once a second each bridge writes a small file into the run directory of its stream, `KEY.bridge-PID-NAMESPACE.json`, for its own
//! user and root, and removes it at the end; the namespace is that of the pid, for containers share directories. A reader never sees half of one: it is written under another name first. Nobody is bound to
//! what is in it, and a process that was killed leaves it behind; so what is too old counts for nothing, or is of a process that is
//! gone, or of a user who has no business there.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, Metadata};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process;
use std::time::{Duration, Instant, SystemTime};

use cuframes_core::Key;
use cuframes_mio::{Observer, Sighting};
use rustix::fs::OFlags;
use rustix::process::geteuid;
use serde::{Deserialize, Serialize};

use crate::error::printable;
use crate::output;
use crate::stats::{fps, human};

/// One way of a stream, and what has gone over it in the last second.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
pub(crate) struct Hop {
    pub(crate) pid: u32,
    /// The namespace that `pid` is of.
    pub(crate) pid_namespace: String,
    pub(crate) direction: Direction,
    /// Where frames go, or where they are waited for.
    pub(crate) peer: String,
    pub(crate) is_connected: bool,
    /// Frames that have arrived, all in all.
    pub(crate) frames: u64,
    pub(crate) fps: f64,
    /// Frames that were left out, all in all.
    pub(crate) dropped: u64,
    /// Means; `None` if no frame has told.
    pub(crate) before_ns: Option<u64>,
    pub(crate) wire_ns: Option<u64>,
    pub(crate) publish_ns: Option<u64>,
}

/// Which end of a bridge it is.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Direction {
    Send,
    Recv,
}

impl Hop {
    /// For a terminal.
    pub(crate) fn line(&self) -> String {
        let Self { direction, peer, is_connected, fps, dropped, before_ns, wire_ns, publish_ns, .. } = self;
        let arrow = match direction {
            Direction::Send => "->",
            Direction::Recv => "<-",
        };
        let peer = printable(peer);
        let rate = if *is_connected { format!("{fps:.1}/s") } else { "not connected".into() };
        let mut line = format!("{arrow} {peer}  {rate}");
        for (name, ns) in [("before", before_ns), ("wire", wire_ns), ("publish", publish_ns)] {
            if let Some(ns) = ns {
                line = format!("{line}  {name} {}", human(*ns));
            }
        }
        format!("{line}  dropped {dropped}")
    }

    /// Whether its process is known to be gone: its pid tells only within its namespace.
    fn is_dead(&self) -> bool {
        pid_namespace() == self.pid_namespace && !Path::new(&format!("/proc/{}", self.pid)).exists()
    }
}

/// Times of frames, as one of them and as the sum of several.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Times {
    /// 0 if it is not known.
    pub(crate) before_ns: u64,
    pub(crate) wire_ns: u64,
    pub(crate) publish_ns: u64,
}

/// Counts what goes over a hop, and once a second tells it.
#[derive(Debug)]
pub(crate) struct Teller {
    direction: Direction,
    peer: String,
    /// Since the last second began: when that was, how many frames there were then, how many have told their time before, and
    /// all times.
    since: Instant,
    earlier: u64,
    known: u64,
    sum: Times,
    frames: u64,
    fps: f64,
    /// Nothing is told until a frame comes.
    is_resting: bool,
    file: Option<HopFile>,
}

impl Teller {
    pub(crate) fn new(direction: Direction, peer: String) -> Self {
        Self {
            direction,
            peer,
            since: Instant::now(),
            earlier: 0,
            known: 0,
            sum: Times::default(),
            frames: 0,
            fps: 0.0,
            is_resting: false,
            file: None,
        }
    }

    /// A frame has arrived.
    pub(crate) fn frame(&mut self, times: Times) {
        self.is_resting = false;
        self.frames += 1;
        self.known += u64::from(times.before_ns != 0);
        self.sum.before_ns = self.sum.before_ns.saturating_add(times.before_ns);
        self.sum.wire_ns = self.sum.wire_ns.saturating_add(times.wire_ns);
        self.sum.publish_ns = self.sum.publish_ns.saturating_add(times.publish_ns);
    }

    /// Frames a second, in the last one.
    pub(crate) const fn fps(&self) -> f64 {
        self.fps
    }

    /// The stream is not there any more: there is nothing to tell until it is again. Somebody else may publish it meanwhile.
    pub(crate) fn rest(&mut self) {
        (self.is_resting, self.file) = (true, None);
    }

    /// Tells, if it is time for that. `key` is the name of the stream here.
    pub(crate) fn tell(
        &mut self,
        now: Instant,
        key: &Key,
        run_dir: Option<&Path>,
        (is_connected, dropped): (bool, u64),
    ) {
        let elapsed = now.saturating_duration_since(self.since);
        if self.is_resting || elapsed < PERIOD {
            return;
        }
        let new = self.frames - self.earlier;
        self.fps = fps(new, elapsed);
        let Self { direction, frames, fps, sum, known, .. } = *self;
        let hop = Hop {
            pid: process::id(),
            pid_namespace: pid_namespace(),
            direction,
            peer: self.peer.clone(),
            is_connected,
            frames,
            fps,
            dropped,
            before_ns: sum.before_ns.checked_div(known),
            wire_ns: sum.wire_ns.checked_div(new),
            publish_ns: sum.publish_ns.checked_div(new),
        };
        (self.since, self.earlier, self.known, self.sum) = (now, frames, 0, Times::default());
        if self.file.is_none() {
            self.file = HopFile::find(key, run_dir);
        }
        // `top` shows less if it fails, and the next one is tried again.
        let is_written = self.file.as_ref().is_none_or(|file| file.write(&hop).is_ok());
        if !is_written {
            self.file = None;
        }
    }
}

/// The file of a hop, removed on drop.
#[derive(Debug)]
struct HopFile {
    path: PathBuf,
}

impl HopFile {
    /// In the directory in which the stream is; `None` if it is in none.
    fn find(key: &Key, run_dir: Option<&Path>) -> Option<Self> {
        let socket = Observer::new(run_dir).stream(key)?.socket?;
        Some(Self { path: socket.with_file_name(file_name(key, process::id(), &pid_namespace())) })
    }

    fn write(&self, hop: &Hop) -> io::Result<()> {
        let mut part = self.path.clone().into_os_string();
        part.push(PART);
        let part = PathBuf::from(part);
        // Whatever had the name.
        let _ = fs::remove_file(&part);
        let text = output::json(hop).map_err(|failure| io::Error::other(failure.to_string()))?;
        let written = File::options()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&part)
            .and_then(|mut file| file.write_all(text.as_bytes()))
            .and_then(|()| fs::rename(&part, &self.path));
        if written.is_err() {
            let _ = fs::remove_file(&part);
        }
        written
    }
}

impl Drop for HopFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// The hops of these streams.
pub(crate) fn of(sightings: &[Sighting]) -> BTreeMap<Key, Vec<Hop>> {
    let dirs: BTreeSet<&Path> = sightings.iter().filter_map(|seen| seen.socket.as_ref()?.parent()).collect();
    let mut found: BTreeMap<Key, Vec<Hop>> = BTreeMap::new();
    for (key, path) in dirs.into_iter().flat_map(files) {
        let is_there = |seen: &&Sighting| {
            seen.key == key && seen.socket.as_ref().and_then(|socket| socket.parent()) == path.parent()
        };
        let Some(seen) = sightings.iter().find(is_there) else { continue };
        let may_tell = |uid| [0, geteuid().as_raw()].contains(&uid) || seen.owner == Some(uid);
        if let Ok((hop, metadata)) = read(&path)
            && may_tell(metadata.uid())
            && is_fresh(&metadata)
            && !hop.is_dead()
        {
            found.entry(key).or_default().push(hop);
        }
    }
    found
}

/// Files of hops whose processes are gone, by key, in directories that are this user's or root's.
pub(crate) fn leftovers<'a>(dirs: impl Iterator<Item = &'a Path>) -> Vec<(Key, PathBuf)> {
    let is_ours = |dir: &&Path| {
        let metadata = fs::symlink_metadata(dir);
        metadata.is_ok_and(|dir| dir.is_dir() && [0, geteuid().as_raw()].contains(&dir.uid()))
    };
    let is_left = |path: &Path| match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_file() => {
            !is_fresh(&metadata) || read(path).is_ok_and(|(hop, _)| hop.is_dead())
        }
        _ => false,
    };
    dirs.filter(is_ours).flat_map(files).filter(|(_, path)| is_left(path)).collect()
}

/// The namespace is said as `pid:[4026531836]`.
fn file_name(key: &Key, pid: u32, namespace: &str) -> String {
    let namespace: String = namespace.chars().filter(char::is_ascii_digit).collect();
    format!("{key}{MARK}{pid}-{namespace}{END}")
}

/// What has the name of a hop's file, or is on the way to it.
fn files(dir: &Path) -> Vec<(Key, PathBuf)> {
    let key = |path: &Path| {
        let (key, rest) = path.file_name()?.to_str()?.split_once(MARK)?;
        let (pid, namespace) = rest.strip_suffix(PART).unwrap_or(rest).strip_suffix(END)?.split_once('-')?;
        pid.parse::<u32>().ok()?;
        namespace.chars().all(|c| c.is_ascii_digit()).then(|| key.parse().ok())?
    };
    let entries = fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut files: Vec<_> = entries.filter_map(|path| Some((key(&path)?, path))).collect();
    files.sort();
    files
}

fn read(path: &Path) -> io::Result<(Hop, Metadata)> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = File::options().read(true).custom_flags(flags.bits().cast_signed()).open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut text = String::new();
    file.take(MAX_BYTES).read_to_string(&mut text)?;
    let hop = serde_json::from_str(&text)?;
    Ok((hop, metadata))
}

/// Whether it was written not long ago. One of the future is as wrong as one of the past.
fn is_fresh(metadata: &Metadata) -> bool {
    let Ok(written) = metadata.modified() else { return false };
    let now = SystemTime::now();
    let apart = now.duration_since(written).or_else(|_| written.duration_since(now));
    apart.is_ok_and(|apart| apart < STALE)
}

/// That of this process; empty where /proc does not tell.
fn pid_namespace() -> String {
    fs::read_link("/proc/self/ns/pid").map(|link| link.display().to_string()).unwrap_or_default()
}

const MARK: &str = ".bridge-";
const END: &str = ".json";
/// What a file's name ends in while it is written.
const PART: &str = ".new";
const PERIOD: Duration = Duration::from_secs(1);
/// After how long what a process has told counts for nothing: it may be stopped, or gone.
const STALE: Duration = Duration::from_secs(5);
/// More than any hop has.
const MAX_BYTES: u64 = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    fn hop() -> Hop {
        Hop {
            pid: process::id(),
            pid_namespace: pid_namespace(),
            direction: Direction::Send,
            peer: "tcp://10.0.0.2:7447".into(),
            is_connected: true,
            frames: 180,
            fps: 60.0,
            dropped: 3,
            before_ns: Some(1_200_000),
            wire_ns: Some(4_100_000),
            publish_ns: Some(100_000),
        }
    }

    #[test]
    fn a_hop_is_a_line() {
        assert_eq!(
            hop().line(),
            "-> tcp://10.0.0.2:7447  60.0/s  before 1.2 ms  wire 4.1 ms  publish 100 µs  dropped 3"
        );
        let far = Hop { direction: Direction::Recv, is_connected: false, before_ns: None, ..hop() };
        let far = Hop { wire_ns: None, publish_ns: None, peer: "a\u{1b}[2J\u{202e}".into(), ..far };
        assert_eq!(far.line(), "<- a?[2J?  not connected  dropped 3");
    }

    #[test]
    fn containers_that_share_a_directory_have_files_of_their_own() {
        let cam0: Key = "cam0".parse().unwrap();
        let names =
            ["pid:[4026531836]", "pid:[4026532201]", ""].map(|namespace| file_name(&cam0, 1, namespace));
        assert_eq!(
            names,
            ["cam0.bridge-1-4026531836.json", "cam0.bridge-1-4026532201.json", "cam0.bridge-1-.json"]
        );
        let dir = tempfile::tempdir().unwrap();
        for name in &names {
            fs::write(dir.path().join(name), "").unwrap();
        }
        assert!(files(dir.path()).iter().map(|(key, _)| key).eq([&cam0; 3]));
    }

    #[test]
    fn who_rests_tells_nothing_until_a_frame_comes() {
        let dir = tempfile::tempdir().unwrap();
        let cam0: Key = "cam0".parse().unwrap();
        let mut teller = Teller::new(Direction::Recv, "tcp://127.0.0.1:7447".into());
        let mut now = teller.since;
        let mut told = |teller: &mut Teller| {
            now += PERIOD;
            teller.tell(now, &cam0, Some(dir.path()), (true, 0));
            teller.since == now
        };
        assert!(told(&mut teller));
        teller.rest();
        assert!(!told(&mut teller));
        teller.frame(Times::default());
        assert!(told(&mut teller));
    }

    #[test]
    fn a_file_is_read_while_its_process_lives_and_is_left_over_when_it_does_not() {
        let dir = tempfile::tempdir().unwrap();
        let left = || leftovers([dir.path()].into_iter()).into_iter().map(|(key, _)| key.to_string());
        let cam0 = "cam0".parse().unwrap();
        let file = |pid: u32| HopFile { path: dir.path().join(file_name(&cam0, pid, "pid:[4026531836]")) };
        let own = file(process::id());
        own.write(&hop()).unwrap();
        assert_eq!(read(&own.path).unwrap().0, hop());
        assert_eq!(left().count(), 0);
        // No process has this number.
        let dead = file(u32::MAX);
        dead.write(&Hop { pid: u32::MAX, ..hop() }).unwrap();
        assert_eq!(left().collect::<Vec<_>>(), ["cam0"]);
        // What is malformed is no hop, and is left over when it is old.
        fs::write(dir.path().join("cam1.bridge-7-1.json"), "{}").unwrap();
        fs::write(dir.path().join("cam1.bridge-x-1.json"), "{}").unwrap();
        assert_eq!(left().count(), 1);
        let old = File::options().write(true).open(dir.path().join("cam1.bridge-7-1.json")).unwrap();
        old.set_modified(SystemTime::now() - Duration::from_secs(60)).unwrap();
        assert_eq!(left().collect::<Vec<_>>(), ["cam0", "cam1"]);
        drop((own, dead));
        assert_eq!(left().collect::<Vec<_>>(), ["cam1"]);
    }
}
