//! [`Watch`]: hears of a socket that appears in a run directory, through inotify.
//!
//! What it hears is a hint to look, never an answer: a file system may know nothing of inotify, or tell nothing of what
//! happens on another host. So whoever waits has a timer as well.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::mem::{self, MaybeUninit};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::inotify::{self, CreateFlags, Event, ReadFlags, Reader, WatchFlags};
use rustix::io::Errno;

use crate::pollable::Turn;

/// Watches directories for a name that appears in them.
#[derive(Debug)]
pub(crate) struct Watch {
    inotify: OwnedFd,
    points: Vec<Point>,
}

/// A directory that is watched, and the name in it that matters.
#[derive(Debug)]
struct Point {
    wd: i32,
    name: OsString,
}

impl Watch {
    /// One that watches nothing yet.
    ///
    /// # Errors
    /// No descriptor or inotify instance is left.
    pub(crate) fn new() -> io::Result<Self> {
        let inotify = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        Ok(Self { inotify, points: Vec::new() })
    }

    /// Watches each of `dirs` for `file`, and nothing else any more; in place of a directory that is missing the closest
    /// one above it. To be called before each look at these directories: then what the look misses is heard of.
    ///
    /// # Errors
    /// The last reason why one of them is not watched.
    pub(crate) fn arm<'a>(&mut self, dirs: impl Iterator<Item = &'a Path>, file: &OsStr) -> io::Result<()> {
        let (mut points, mut result) = (Vec::new(), Ok(()));
        for dir in dirs {
            match self.closest(dir, file) {
                Ok(point) => points.extend(point),
                Err(errno) => result = Err(errno.into()),
            }
        }
        for Point { wd, .. } in mem::replace(&mut self.points, points) {
            if self.points.iter().all(|point| point.wd != wd) {
                // It fails if the directory is gone, and its watch with it.
                let _ = inotify::remove_watch(&self.inotify, wd);
            }
        }
        result
    }

    /// Takes what was heard, within a budget: whether it is worth a look.
    pub(crate) fn hear(&self) -> (bool, Turn) {
        let mut buffer = [MaybeUninit::uninit(); 2048];
        let mut reader = Reader::new(&self.inotify, &mut buffer);
        let mut heard = false;
        for _ in 0..BUDGET {
            match reader.next() {
                Ok(event) => heard |= self.matters(&event),
                Err(Errno::INTR) => {}
                // EAGAIN: that was all.
                Err(_) => return (heard, Turn::Idle),
            }
        }
        // What the reader has in its buffer is lost, so it counts.
        (true, Turn::Again)
    }

    /// Starts to watch `dir` for `file`, or the closest directory above it for what is missing there. `None` if that is
    /// one in which everybody may write, such as /tmp: there everybody could keep us awake.
    fn closest(&self, dir: &Path, file: &OsStr) -> Result<Option<Point>, Errno> {
        let mut last = None;
        // From the inside out, and again if a directory has appeared meanwhile.
        for _ in 0..ROUNDS {
            let (mut at, mut name) = (dir, file);
            let wd = loop {
                match inotify::add_watch(&self.inotify, at, INTEREST) {
                    Ok(wd) => break wd,
                    Err(Errno::NOENT | Errno::NOTDIR) => {}
                    Err(errno) => return Err(errno),
                }
                let (Some(above), Some(missing)) = (at.parent(), at.file_name()) else { return Ok(None) };
                at = if above.as_os_str().is_empty() { Path::new(".") } else { above };
                name = missing;
                if fs::metadata(at).is_ok_and(|metadata| metadata.mode() & WRITABLE_BY_ALL != 0) {
                    return Ok(None);
                }
            };
            last = Some(Point { wd, name: name.to_os_string() });
            if at == dir || !at.join(name).is_dir() {
                break;
            }
        }
        Ok(last)
    }

    fn matters(&self, event: &Event<'_>) -> bool {
        // Without a name it is about the directory: gone, moved, or with another mode.
        let is_about = |point: &Point| {
            point.wd == event.wd()
                && event.file_name().is_none_or(|name| name.to_bytes() == point.name.as_bytes())
        };
        event.events().contains(ReadFlags::QUEUE_OVERFLOW) || self.points.iter().any(is_about)
    }
}

impl AsFd for Watch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inotify.as_fd()
    }
}

/// What makes a socket reachable: it is made, or renamed; its mode changes. And what ends a watch.
const INTEREST: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::ATTRIB)
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::MOVE_SELF)
    .union(WatchFlags::ONLYDIR);
/// Events taken in one turn.
const BUDGET: usize = 512;
/// How often to start over because directories appear while we look.
const ROUNDS: usize = 4;
const WRITABLE_BY_ALL: u32 = 0o002;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::until;

    /// A watch for `name` in `dir`, after a look.
    fn watch(dir: &Path) -> Watch {
        let mut watch = Watch::new().unwrap();
        arm(&mut watch, dir);
        watch
    }

    fn arm(watch: &mut Watch, dir: &Path) {
        watch.arm([dir].into_iter(), "name".as_ref()).unwrap();
    }

    #[test]
    fn a_name_that_appears_by_any_way_is_heard_of_and_another_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let watch = watch(dir.path());
        fs::write(dir.path().join("other"), "").unwrap();
        assert_eq!(watch.hear(), (false, Turn::Idle));
        fs::rename(dir.path().join("other"), dir.path().join("name")).unwrap();
        assert_eq!(watch.hear(), (true, Turn::Idle));
        fs::set_permissions(dir.path().join("name"), fs::metadata(dir.path()).unwrap().permissions())
            .unwrap();
        assert_eq!(watch.hear(), (true, Turn::Idle));
        fs::remove_file(dir.path().join("name")).unwrap();
        assert_eq!(watch.hear(), (false, Turn::Idle));
        fs::write(dir.path().join("name"), "").unwrap();
        assert_eq!(watch.hear(), (true, Turn::Idle));
        assert_eq!(watch.hear(), (false, Turn::Idle));
    }

    #[test]
    fn a_directory_that_is_missing_is_heard_of_when_it_is_made_and_when_it_goes() {
        let top = tempfile::tempdir().unwrap();
        let dir = top.path().join("a/b");
        let mut watch = watch(&dir);
        fs::create_dir(top.path().join("other")).unwrap();
        assert!(!watch.hear().0);
        fs::create_dir(top.path().join("a")).unwrap();
        assert!(watch.hear().0);
        arm(&mut watch, &dir);
        fs::create_dir(&dir).unwrap();
        assert!(watch.hear().0);
        arm(&mut watch, &dir);
        assert!(!watch.hear().0, "nothing is watched any more but the directory itself");
        fs::write(dir.join("name"), "").unwrap();
        assert!(watch.hear().0);
        fs::remove_dir_all(&dir).unwrap();
        // The kernel tells when nobody has it open any more; a process that is just being forked by another test may.
        until("the end of the directory", || watch.hear().0);
        arm(&mut watch, &dir);
        fs::create_dir(&dir).unwrap();
        assert!(watch.hear().0);
    }

    #[test]
    fn a_directory_that_somebody_has_open_is_heard_of_when_it_is_closed() {
        let top = tempfile::tempdir().unwrap();
        let dir = top.path().join("a");
        fs::create_dir(&dir).unwrap();
        let watch = watch(&dir);
        let open = fs::File::open(&dir).unwrap();
        fs::remove_dir(&dir).unwrap();
        assert!(!watch.hear().0);
        drop(open);
        until("the end of the directory", || watch.hear().0);
    }

    #[test]
    fn a_directory_in_which_everybody_may_write_is_not_watched_for_one_that_is_missing() {
        let top = tempfile::tempdir().unwrap();
        let all = std::os::unix::fs::PermissionsExt::from_mode(0o1777);
        fs::set_permissions(top.path(), all).unwrap();
        let watch = watch(&top.path().join("dir"));
        fs::create_dir(top.path().join("dir")).unwrap();
        assert!(!watch.hear().0);
        assert!(watch.points.is_empty());
    }

    #[test]
    fn a_flood_of_events_is_taken_in_turns() {
        let dir = tempfile::tempdir().unwrap();
        let watch = watch(dir.path());
        for n in 0..BUDGET + 1 {
            fs::write(dir.path().join(n.to_string()), "").unwrap();
        }
        assert_eq!(watch.hear(), (true, Turn::Again));
        while watch.hear().1 == Turn::Again {}
        assert_eq!(watch.hear(), (false, Turn::Idle));
    }
}
