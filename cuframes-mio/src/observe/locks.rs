//! [`Locks`]: what is locked with `flock`, as the kernel tells.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{major, minor};

/// The locks of `/proc/locks` at one moment.
#[derive(Debug)]
pub(super) struct Locks {
    /// Device (major, minor) and inode of each file.
    held: BTreeSet<(u32, u32, u64)>,
    /// Whether locks of all processes are told, not only those of our pid namespace.
    are_all: bool,
}

impl Locks {
    /// Those that are held now; none where the kernel doesn't tell.
    pub(super) fn read() -> Self {
        let told = fs::read_to_string("/proc/locks");
        let namespace = fs::read_link("/proc/self/ns/pid");
        let is_first = namespace.is_ok_and(|name| name.as_os_str() == FIRST_PID_NAMESPACE);
        Self {
            are_all: told.is_ok() && is_first,
            held: told.unwrap_or_default().lines().filter_map(flock).collect(),
        }
    }

    /// Whether somebody holds the lock of a file.
    pub(super) fn is_held(&self, path: &Path) -> bool {
        fs::symlink_metadata(path).is_ok_and(|metadata| {
            let device = metadata.dev();
            self.held.contains(&(major(device), minor(device), metadata.ino()))
        })
    }

    /// Whether a lock that is not among them is held by nobody.
    pub(super) const fn are_all(&self) -> bool {
        self.are_all
    }
}

/// The file of a line such as `1: FLOCK  ADVISORY  WRITE 4711 00:1b:42 0 EOF`; of those that wait there is ` -> `.
fn flock(line: &str) -> Option<(u32, u32, u64)> {
    let mut fields = line.split_whitespace().skip(1);
    let (kind, file) = (fields.next()?, fields.nth(3)?);
    let mut parts = file.split(':');
    let mut device = || u32::from_str_radix(parts.next()?, 16).ok();
    let (major, minor) = (device()?, device()?);
    (kind == "FLOCK").then_some((major, minor, parts.next()?.parse().ok()?))
}

/// The one in which every process is seen: its number is fixed in Linux (`PROC_PID_INIT_INO`).
const FIRST_PID_NAMESPACE: &str = "pid:[4026531836]";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_locks_that_are_held_with_flock_count() {
        assert_eq!(flock("1: FLOCK  ADVISORY  WRITE 4711 00:1b:42 0 EOF"), Some((0, 0x1b, 42)));
        assert_eq!(flock("2: POSIX  ADVISORY  WRITE 4711 00:1b:42 0 EOF"), None);
        assert_eq!(flock("1: -> FLOCK  ADVISORY  WRITE 4712 00:1b:42 0 EOF"), None);
        for garbage in ["", "1:", "1: FLOCK", "1: FLOCK ADVISORY WRITE 1 00:1b", "1: FLOCK a b c d e f"] {
            assert_eq!(flock(garbage), None, "{garbage}");
        }
    }
}
