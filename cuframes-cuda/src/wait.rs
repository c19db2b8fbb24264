//! [`Patience`]: waiting for the device without a call that can't be given up.

use std::thread;
use std::time::{Duration, Instant};

use cuframes_core::gpu::Call;

use crate::error::{Cause, CudaError};
use crate::ffi::Failed;

/// How long to wait. An exporter that died may leave an event that never comes, and the driver's own calls that wait have
/// no timeout.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    start: Instant,
    timeout: Duration,
}

impl Patience {
    pub(crate) fn new(timeout: Duration) -> Self {
        Self { start: Instant::now(), timeout }
    }

    /// Asks until `is_done`, in pauses that grow with the wait: most frames are there at once, or after a fraction of a
    /// millisecond.
    pub(crate) fn wait(
        self,
        call: Call,
        mut is_done: impl FnMut() -> Result<bool, Failed>,
    ) -> Result<(), CudaError> {
        loop {
            if is_done().map_err(CudaError::during(call))? {
                return Ok(());
            }
            let waited = self.start.elapsed();
            let left = self.timeout.saturating_sub(waited);
            if left.is_zero() {
                return Err(CudaError::new(call, Cause::Timeout { after: self.timeout }));
            }
            if waited < BUSY {
                thread::yield_now();
            } else {
                thread::sleep((waited / 8).clamp(SHORTEST, LONGEST).min(left));
            }
        }
    }
}

/// How long to ask without a pause.
const BUSY: Duration = Duration::from_micros(50);
/// The first pauses.
const SHORTEST: Duration = Duration::from_micros(20);
/// The last ones.
const LONGEST: Duration = Duration::from_millis(1);
