//! [`remove_leftovers`]: what publishers that died have left, removed without starting another one.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use cuframes_core::Key;

use super::region_lock::RegionLock;
use super::{lock_key, remove_abandoned, remove_stale};
use crate::error::Error;
use crate::listen::probe;
use crate::rundir::Places;
use crate::shm::{Home, region_path};

/// Removes what a publisher of `key` that is dead has left: its socket in whichever run directory it is, its region and the
/// region's lock, and regions that were never completed. Returns what it has removed. The lock of the key stays: it is
/// never removed (D-13).
///
/// `run_dir` is as in [`SubscriberBuilder::run_dir`](crate::SubscriberBuilder::run_dir). The locks of the key are held
/// meanwhile, as by a publisher that starts: one that starts at this moment is told that there is another one.
///
/// # Errors
/// [`Error::AlreadyExists`] if a publisher lives, or may live, or if something else has the name: nothing is removed then.
/// Or an error of the operating system.
pub fn remove_leftovers(key: &Key, run_dir: Option<&Path>) -> Result<Vec<PathBuf>, Error> {
    let places = Places::from_environment(run_dir);
    let home = Home::new().map_err(|error| Error::system(key, "map memory", error))?;
    let mut key_locks = Vec::new();
    let mut sockets = Vec::new();
    for dir in places.candidates().filter(|dir| matches!(dir.exists(), Ok(true))) {
        let socket = dir.socket_path(key)?;
        if fs::symlink_metadata(&socket).is_ok() || fs::symlink_metadata(dir.lock_path(key)).is_ok() {
            key_locks.push(lock_key(&dir.lock_path(key), key, &home)?);
            probe(&socket, key)?;
            sockets.push(socket);
        }
    }
    let region = region_path(&places.shm, key);
    let lock = places.shm.join(key.region_lock_file());
    let was_there = |path: &PathBuf| fs::symlink_metadata(path).is_ok();
    let mut paths: Vec<PathBuf> =
        sockets.iter().cloned().chain([region.clone(), lock]).filter(was_there).collect();
    // Removes the region that its last holder named, and its own file when it is dropped.
    let region_lock = RegionLock::take(&places.shm, key, &home)?;
    remove_stale(&region, key, &home)?;
    paths.extend(remove_abandoned(&places.shm, key, &home));
    for socket in &sockets {
        match fs::remove_file(socket) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(Error::io("remove the stale socket", socket, error));
            }
            _ => {}
        }
    }
    drop(region_lock);
    drop(key_locks);
    Ok(paths)
}
