//! Host memory does what every backend of frame memory must do.

use std::convert::Infallible;
use std::fs;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};

use cuframes_mio::HostMemory;
use cuframes_mio::core::gpu::{Export, Import};
use cuframes_mio::core::{Key, RingSize};
use cuframes_testkit::conformance::gpu::Lab;
use cuframes_testkit::gpu_conformance;

/// Frames of a stream whose name no other test uses, so that what is left of them can be seen.
struct HostLab(Key);

impl HostLab {
    /// Descriptors and maps of frames that are open.
    fn left(&self) -> (usize, usize) {
        let name = format!("memfd:cuframes-{} ", self.0);
        let named = |target: &Path| target.to_string_lossy().contains(&name);
        // Other tests open and close descriptors meanwhile.
        let fds = fs::read_dir("/proc/self/fd").unwrap();
        let open = fds.filter_map(|fd| fs::read_link(fd.ok()?.path()).ok()).filter(|to| named(to));
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        (open.count(), maps.lines().filter(|line| line.contains(&name)).count())
    }
}

impl Lab for HostLab {
    type Exporter = HostMemory;
    type Importer = HostMemory;
    type Fd = OwnedFd;

    const HAS_STREAMS: bool = false;
    const HAS_EXTERNAL: bool = false;

    fn new() -> Self {
        static LABS: AtomicU32 = AtomicU32::new(0);
        let number = LABS.fetch_add(1, Ordering::Relaxed);
        Self(format!("lab-{}-{number}", process::id()).parse().unwrap())
    }

    fn exporter(&self) -> HostMemory {
        HostMemory::new(self.0.clone())
    }

    fn importer(&self) -> HostMemory {
        HostMemory::new(self.0.clone())
    }

    fn export_stream(&self, _exporter: &HostMemory) {}

    fn import_stream(&self, _importer: &HostMemory) {}

    fn hold(&self, (): &()) {
        unreachable!("there are no streams");
    }

    fn resume(&self, (): &()) {
        unreachable!("there are no streams");
    }

    fn externals(&self, _exporter: &HostMemory, _slots: usize, _frame_size: u64) -> Vec<Infallible> {
        unreachable!("there are no external frames");
    }

    fn check_nothing_is_left(&self) {
        assert_eq!(self.left(), (0, 0), "descriptors and maps");
    }
}

#[test]
fn the_lab_sees_what_is_left_open() {
    let lab = HostLab::new();
    let memory = lab.exporter();
    let pool = memory.alloc_pool(RingSize::new(2).unwrap(), 100).unwrap();
    assert_eq!(lab.left(), (1, 1));
    let fds: Vec<_> = memory.export_fds(&pool).unwrap().into_iter().map(|(_, fd)| fd).collect();
    let frame = memory.open_mem(&memory.export_mem(&pool, 1).unwrap(), 100, &fds).unwrap();
    assert_eq!(lab.left(), (2, 2));
    drop((pool, fds));
    assert_eq!(lab.left(), (0, 1));
    drop(frame);
    lab.check_nothing_is_left();
}

gpu_conformance!(in_host_memory, HostLab);
