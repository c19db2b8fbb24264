//! What a process or a stream leaves in the system.

use std::fs;
use std::path::Path;

use cuframes_mio::core::Key;

use crate::process::Process;

/// What a process holds of the system.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Holds {
    descriptors: usize,
    /// Of regions and pools.
    maps: usize,
}

impl Holds {
    pub(crate) fn of(process: &Process) -> Self {
        let descriptors = fs::read_dir(process.proc().join("fd")).map_or(0, Iterator::count);
        let maps = fs::read_to_string(process.proc().join("maps")).unwrap_or_default();
        let of_ours = |line: &&str| line.contains("/dev/shm/cuframes-") || line.contains("memfd:cuframes-");
        Self { descriptors, maps: maps.lines().filter(of_ours).count() }
    }
}

/// Which subscribers the region of a stream knows: the bitmap, and every lease, by the offsets of §2.
pub(crate) fn bits(key: &Key) -> Vec<u64> {
    let region = fs::read(Path::new("/dev/shm").join(key.region_file())).unwrap();
    let word = |at: usize| u64::from_le_bytes(region.get(at..at + 8).unwrap().try_into().unwrap());
    [BITMAP].into_iter().chain((0..16).map(|slot| SLOTS + slot * SLOT + LEASE)).map(word).collect()
}

/// What the region of a stream says about each of its subscribers: state, process, last number, and whether it sleeps.
pub(crate) fn seats(key: &Key) -> Vec<[u64; 4]> {
    let region = fs::read(Path::new("/dev/shm").join(key.region_file())).unwrap_or_default();
    let word =
        |at: usize| region.get(at..at + 8).map_or(0, |word| u64::from_le_bytes(word.try_into().unwrap()));
    let seat = |index| SEATS + index * SEAT;
    let seats = (0..32).map(|index| [0, PID, LAST_SEEN, PARKED].map(|at| word(seat(index) + at)));
    seats.filter(|seat| seat[0] != 0).collect()
}

const BITMAP: usize = 0x00C8;
const SLOTS: usize = 0x0100;
const SLOT: usize = 0xC0;
const LEASE: usize = 0x80;
const SEATS: usize = 0x0D00;
const SEAT: usize = 0x80;
const PID: usize = 0x08;
const LAST_SEEN: usize = 0x10;
const PARKED: usize = 0x48;

/// What is left of the streams in the run directory and among the shared memory. Lock files stay for good (D-13).
pub(crate) fn leftovers(dir: &Path, prefix: &str) -> Vec<String> {
    let names = |dir: &Path| -> Vec<String> {
        fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    };
    let sockets = names(dir).into_iter().filter(|name| !name.ends_with(".lock"));
    sockets.chain(names(Path::new("/dev/shm")).into_iter().filter(|name| name.contains(prefix))).collect()
}
