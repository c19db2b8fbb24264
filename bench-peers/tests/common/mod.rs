//! What every test needs.

use std::fs;
use std::path::Path;
use std::time::Duration;

use cuframes_bench::system::Setup;
use tempfile::TempDir;

/// A measurement in a directory of its own, with a ring of four frames.
pub(crate) fn setup(readers: usize, frame_bytes: usize, strict: bool) -> (TempDir, Setup) {
    let home = tempfile::Builder::new().prefix("cfpeers").tempdir().unwrap();
    let dir = home.path().to_owned();
    let stream = "frames".to_owned();
    (home, Setup { dir, stream, frame_bytes, ring_size: 4, readers, strict, leases: true })
}

/// Of what lies outside the directory of a measurement, no more is left than the one segment of iceoryx2 that outlives its
/// nodes, whose name tells whose it is.
pub(crate) fn nothing_is_left(home: &TempDir) {
    let name = home.path().file_name().unwrap().to_str().unwrap();
    for left in fs::read_dir("/dev/shm").unwrap() {
        let left = left.unwrap();
        if let Some(rest) = left.file_name().to_str().unwrap().strip_prefix(name) {
            assert!(rest.ends_with(".global_mgmt"), "{left:?} is left");
            fs::remove_file(left.path()).unwrap();
        }
    }
    for meeting in fs::read_dir(home).unwrap() {
        let meeting = meeting.unwrap().path();
        if meeting.extension().is_some_and(|extension| extension == "server") {
            let server = fs::read_to_string(meeting).unwrap();
            assert!(!Path::new(&server).parent().unwrap().exists(), "{server} is left");
        }
    }
}

/// Longer than anything takes.
pub(crate) const LONG: Duration = Duration::from_secs(60);
