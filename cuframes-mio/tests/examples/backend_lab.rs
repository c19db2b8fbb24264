//! The example's backend does what every backend of frame memory must do: people copy it.

use std::convert::Infallible;
use std::fs;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

use cuframes_testkit::conformance::gpu::Lab;
use cuframes_testkit::gpu_conformance;

use crate::backend::Dsp;

/// One at a time, so that what is left of it can be seen.
struct DspLab(#[expect(dead_code, reason = "held")] MutexGuard<'static, ()>);

impl Lab for DspLab {
    type Exporter = Dsp;
    type Importer = Dsp;
    type Fd = OwnedFd;

    const HAS_STREAMS: bool = false;
    const HAS_EXTERNAL: bool = false;

    fn new() -> Self {
        static ONE: Mutex<()> = Mutex::new(());
        Self(ONE.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn exporter(&self) -> Dsp {
        Dsp
    }

    fn importer(&self) -> Dsp {
        Dsp
    }

    fn export_stream(&self, _exporter: &Dsp) {}

    fn import_stream(&self, _importer: &Dsp) {}

    fn hold(&self, (): &()) {
        unreachable!("there are no streams");
    }

    fn resume(&self, (): &()) {
        unreachable!("there are no streams");
    }

    fn externals(&self, _exporter: &Dsp, _slots: usize, _frame_size: u64) -> Vec<Infallible> {
        unreachable!("there are no external frames");
    }

    fn check_nothing_is_left(&self) {
        // Other tests open and close descriptors meanwhile, but none of these.
        let fds = fs::read_dir("/proc/self/fd").unwrap();
        let open = fds.filter_map(|fd| fs::read_link(fd.ok()?.path()).ok());
        assert_eq!(open.filter(|to| to.starts_with("/memfd:device-memory (deleted)")).count(), 0);
    }
}

gpu_conformance!(in_the_memory_of_the_example, DspLab);
