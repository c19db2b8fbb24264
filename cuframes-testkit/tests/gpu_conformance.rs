//! The mock GPU does what every backend must do, over IPC handles and over VMM descriptors.

#![expect(clippy::unwrap_used, reason = "a failure ends the test")]

use std::cell::RefCell;

use cuframes_testkit::conformance::gpu::Lab;
use cuframes_testkit::gpu_conformance;
use cuframes_testkit::mock_gpu::{Finding, MockDevice, MockGpu, MockPointer, MockStream};

/// Each side is a process of its own; `VMM` is the kind of handles.
struct MockLab<const VMM: bool> {
    gpu: MockGpu,
    /// Memory that was made for external frames.
    lent: RefCell<Vec<(MockDevice, MockPointer)>>,
}

impl<const VMM: bool> Lab for MockLab<VMM> {
    type Exporter = MockDevice;
    type Importer = MockDevice;
    type Fd = u32;

    const HAS_STREAMS: bool = true;
    const HAS_EXTERNAL: bool = !VMM;

    fn new() -> Self {
        let gpu = if VMM { MockGpu::vmm(1) } else { MockGpu::new(1) };
        Self { gpu, lent: RefCell::default() }
    }

    fn exporter(&self) -> MockDevice {
        self.gpu.process(0)
    }

    fn importer(&self) -> MockDevice {
        self.gpu.process(0)
    }

    fn export_stream(&self, exporter: &MockDevice) -> MockStream {
        exporter.stream()
    }

    fn import_stream(&self, importer: &MockDevice) -> MockStream {
        importer.stream()
    }

    fn hold(&self, stream: &MockStream) {
        stream.hold();
    }

    fn resume(&self, stream: &MockStream) {
        stream.resume();
    }

    fn externals(&self, exporter: &MockDevice, slots: usize, frame_size: u64) -> Vec<MockPointer> {
        let slots = u64::try_from(slots).unwrap();
        let memory = exporter.malloc(1000 + slots * frame_size);
        self.lent.borrow_mut().push((exporter.clone(), memory));
        (0..slots).map(|slot| memory.plus(1000 + slot * frame_size)).collect()
    }

    fn check_nothing_is_left(&self) {
        let lent = self.lent.take();
        let allocated = |finding: &Finding| matches!(finding, Finding::Allocated { .. });
        let left = self.gpu.findings().into_iter().filter(allocated).count();
        assert_eq!(left, lent.len(), "a pool frees its own memory, and only that");
        for (process, memory) in lent {
            process.free(memory);
        }
        assert_eq!(self.gpu.findings(), []);
    }
}

type Ipc = MockLab<false>;
type Vmm = MockLab<true>;

gpu_conformance!(over_ipc_handles, Ipc);
gpu_conformance!(over_vmm_descriptors, Vmm);
