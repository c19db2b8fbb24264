//! [`MockGpu`]: a machine with GPUs in ordinary memory, which does what CUDA does and does it when the test says.
//!
//! - Each [`process`](MockGpu::process) has a context on one device. What one process made the others reach through
//!   handles and descriptors only.
//! - A [stream](MockStream) is a queue. It moves when the test runs it, or when somebody waits for it; and then other
//!   streams move only as far as they must. A copy is two steps, so that half a frame can be seen.
//! - [Events](MockEvent) have CUDA's meaning: recording again replaces the record, a wait is for the record that is the
//!   latest when it is enqueued, a wait for an event that was never recorded is over.
//! - What CUDA refuses is refused: a handle opened in the process that exported it, on another device, after the memory
//!   was freed. A handle names a whole allocation. Memory of a pool can't be exported.
//! - What CUDA calls undefined is a [`Finding`], and so is whatever is still open at the end: see
//!   [`findings`](MockGpu::findings).
//! - A [rule](MockGpu::fail) lets the k-th call of a kind fail with a given code.
//!
//! No time passes here: a wait that can't end is a timeout at once.

mod device;
mod export;
mod finding;
mod import;
mod stream;
mod world;

use std::sync::{Arc, Mutex, PoisonError};

use cuframes_core::Backend;
use cuframes_core::gpu::Call;

pub use device::{MockDevice, MockEvent};
pub use export::{MockPointer, MockPool};
pub use finding::{Finding, MockError, result};
pub use import::{MockMapping, Reading};
pub use stream::MockStream;
use world::World;

/// A machine with GPUs.
#[derive(Clone, Debug)]
pub struct MockGpu(Shared);

impl MockGpu {
    /// A machine with so many devices, whose memory is shared over legacy IPC handles.
    #[must_use]
    pub fn new(devices: usize) -> Self {
        Self(Shared::new(World::new(Backend::CUDA_IPC, devices)))
    }

    /// A machine with so many devices, whose memory is shared over VMM descriptors.
    #[must_use]
    pub fn vmm(devices: usize) -> Self {
        Self(Shared::new(World::new(Backend::CUDA_VMM, devices)))
    }

    /// A new process with a context on `device`.
    ///
    /// # Panics
    /// If there is no such device.
    #[must_use]
    pub fn process(&self, device: usize) -> MockDevice {
        let process = self.0.with(|world| world.start_process(device));
        MockDevice::new(self.0.clone(), process)
    }

    /// Lets the `nth` call of this kind from now on fail with this `CUresult` (1 is the next one).
    pub fn fail(&self, call: Call, nth: u64, result: i32) {
        self.0.with(|world| world.fail(call, nth, result));
    }

    /// How often a call of this kind was made.
    #[must_use]
    pub fn calls(&self, call: Call) -> u64 {
        self.0.with(|world| world.calls(call))
    }

    /// Runs all streams until none of them can go on.
    pub fn run_all(&self) {
        while self.0.with(|world| world.stream_ids()).any(|id| stream::run_one(&self.0, id)) {}
    }

    /// What was done that CUDA does not define, and what is still open now.
    #[must_use]
    pub fn findings(&self) -> Vec<Finding> {
        self.0.with(|world| world.findings())
    }
}

/// The world, and who may look at it.
#[derive(Clone, Debug)]
struct Shared(Arc<Mutex<World>>);

impl Shared {
    fn new(world: World) -> Self {
        Self(Arc::new(Mutex::new(world)))
    }

    /// Looks at the world, or changes it. Nothing of a test is called meanwhile.
    fn with<R>(&self, look: impl FnOnce(&mut World) -> R) -> R {
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
