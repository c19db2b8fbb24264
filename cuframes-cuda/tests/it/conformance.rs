//! CUDA does what every backend must do, over legacy handles and over descriptors. Each case runs in a process of its own,
//! where the exporter is; each importer is in another.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use cuframes_core::Backend;
use cuframes_core::gpu::Device as _;
use cuframes_cuda::{Cuda, External, Stream};
use cuframes_testkit::conformance::gpu::Lab;
use cuframes_testkit::gpu_conformance;
use fake_cuda::Report;

use crate::double::REAL_GPU;
use crate::remote::{Importer, RemoteStream};

/// `VMM` is the kind of memory.
struct CudaLab<const VMM: bool> {
    gates: RefCell<BTreeMap<usize, Arc<Gate>>>,
}

/// What a host function waits for.
#[derive(Default)]
struct Gate {
    is_open: Mutex<bool>,
    changed: Condvar,
}

impl Gate {
    fn pass(&self) {
        let is_open = self.is_open.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.changed.wait_while(is_open, |is_open| !*is_open));
    }

    fn open(&self) {
        *self.is_open.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_all();
    }
}

impl<const VMM: bool> CudaLab<VMM> {
    const BACKEND: Backend = if VMM { Backend::CUDA_VMM } else { Backend::CUDA_IPC };
}

impl<const VMM: bool> Lab for CudaLab<VMM> {
    type Exporter = Cuda;
    type Importer = Importer;
    type Fd = OwnedFd;

    const HAS_STREAMS: bool = true;
    const HAS_EXTERNAL: bool = !VMM;

    fn new() -> Self {
        Self { gates: RefCell::default() }
    }

    fn exporter(&self) -> Cuda {
        Cuda::open_as(0, Self::BACKEND).unwrap()
    }

    fn importer(&self) -> Importer {
        Importer::new(0, Self::BACKEND)
    }

    fn export_stream(&self, exporter: &Cuda) -> Stream {
        exporter.stream().unwrap()
    }

    fn import_stream(&self, importer: &Importer) -> RemoteStream {
        importer.stream()
    }

    fn hold(&self, stream: &Stream) {
        let gate = Arc::new(Gate::default());
        assert!(self.gates.borrow_mut().insert(stream.address(), Arc::clone(&gate)).is_none());
        let cuda = self.exporter();
        cuda.notify(stream, Box::new(move || gate.pass())).unwrap();
    }

    fn resume(&self, stream: &Stream) {
        self.gates.borrow_mut().remove(&stream.address()).unwrap().open();
    }

    fn externals(&self, exporter: &Cuda, slots: usize, frame_size: u64) -> Vec<External> {
        let slots = u64::try_from(slots).unwrap();
        let memory = Arc::new(exporter.alloc(1000 + slots * frame_size).unwrap());
        (0..slots).map(|slot| External::new(Arc::clone(&memory), 1000 + slot * frame_size)).collect()
    }

    /// Whose processes have ended has nothing open; [`alone`] looks at the exporter's when that ends.
    fn check_nothing_is_left(&self) {
        assert!(self.gates.borrow().is_empty());
        let Some(path) = std::env::var_os("FAKE_CUDA_REPORT") else {
            assert!(std::env::var_os(REAL_GPU).is_some(), "the double was not there");
            return;
        };
        for report in Report::read_all(path.as_ref()).unwrap() {
            assert!(report.is_clean(), "{report:?}");
        }
    }
}

type Ipc = CudaLab<false>;
type Vmm = CudaLab<true>;

gpu_conformance!(over_ipc_handles, Ipc, crate::double::alone);
gpu_conformance!(over_vmm_descriptors, Vmm, crate::double::alone);
gpu_conformance!(over_ipc_handles_on_slow_streams, Ipc, crate::double::alone_on_slow_streams);
gpu_conformance!(over_ipc_handles_with_one_host_function_at_a_time, Ipc, crate::double::alone_in_turns);
gpu_conformance!(over_vmm_descriptors_with_one_host_function_at_a_time, Vmm, crate::double::alone_in_turns);
