//! A made-up machine, and processes on it that are drivers in this one.

use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use fake_cuda::{Call, Code, Config, Driver, EntryPoint, HostSource, Report, Result, When};
use tempfile::TempDir;

/// A machine: a directory that its processes share.
#[derive(Debug)]
pub(crate) struct Machine {
    dir: Arc<TempDir>,
}

impl Machine {
    pub(crate) fn new() -> Self {
        Self { dir: Arc::new(tempfile::tempdir().unwrap()) }
    }

    /// How processes on this machine usually are: small.
    pub(crate) fn config(&self) -> Config {
        Config { dir: Some(self.dir.path().to_owned()), memory: 64 << 20, ..Config::default() }
    }

    /// A process with a context of device 0.
    pub(crate) fn process(&self) -> Process {
        self.process_with(|_| {})
    }

    /// A process with a context of device 0, that is unlike others.
    pub(crate) fn process_with(&self, change: impl FnOnce(&mut Config)) -> Process {
        let process = self.bare_process_with(change);
        process.call(EntryPoint::cuInit).init(0).unwrap();
        process.enter(0);
        process
    }

    /// A process in which nothing waits for long to free or close memory.
    pub(crate) fn impatient_process(&self) -> Process {
        self.process_with(|config| config.close_limit = Duration::from_millis(20))
    }

    /// A process that has not called anything.
    pub(crate) fn bare_process_with(&self, change: impl FnOnce(&mut Config)) -> Process {
        let mut config = self.config();
        change(&mut config);
        Process { driver: Driver::new(config).unwrap(), _dir: Arc::clone(&self.dir) }
    }

    /// Where a file of a process is.
    pub(crate) fn find(&self, name: &str) -> PathBuf {
        let dirs = std::fs::read_dir(self.dir.path()).unwrap().map(|entry| entry.unwrap().path().join(name));
        dirs.into_iter().find(|path| path.exists()).unwrap()
    }

    /// What lies in the shared directory.
    pub(crate) fn files(&self) -> usize {
        std::fs::read_dir(self.dir.path()).unwrap().count()
    }
}

/// A process. Its calls are short for those of the driver, and end the test if the prologue does not let them in.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) driver: Driver,
    /// Stays as long as it.
    _dir: Arc<TempDir>,
}

impl Process {
    pub(crate) fn call(&self, entry_point: EntryPoint) -> Call<'_> {
        self.driver.call(entry_point).unwrap()
    }

    /// Retains a device's context and makes it current.
    pub(crate) fn enter(&self, device: i32) -> u64 {
        let context = self.call(EntryPoint::cuDevicePrimaryCtxRetain).primary_ctx_retain(device).unwrap();
        self.call(EntryPoint::cuCtxSetCurrent).ctx_set(context).unwrap();
        context
    }

    pub(crate) fn alloc(&self, size: u64) -> u64 {
        self.call(EntryPoint::cuMemAlloc_v2).mem_alloc(size).unwrap()
    }

    pub(crate) fn free(&self, address: u64) -> Result<()> {
        self.call(EntryPoint::cuMemFree_v2).mem_free(address)
    }

    pub(crate) fn write(&self, to: u64, bytes: &[u8]) -> Result<()> {
        self.call(EntryPoint::cuMemcpyHtoD_v2).copy_in(to, HostSource::Bytes(bytes.to_vec()), When::Now)
    }

    pub(crate) fn write_in(&self, stream: u64, to: u64, bytes: &[u8]) {
        let from = HostSource::Bytes(bytes.to_vec());
        self.call(EntryPoint::cuMemcpyHtoDAsync_v2).copy_in(to, from, When::InStream(stream)).unwrap();
    }

    pub(crate) fn read(&self, from: u64, len: u64) -> Result<Vec<u8>> {
        self.call(EntryPoint::cuMemcpyDtoH_v2).copy_out(from, len, When::Now)
    }

    pub(crate) fn stream(&self) -> u64 {
        self.call(EntryPoint::cuStreamCreate).stream_create(0).unwrap()
    }

    /// A stream that the default stream does not wait for.
    pub(crate) fn free_stream(&self) -> u64 {
        self.call(EntryPoint::cuStreamCreate).stream_create(1).unwrap()
    }

    pub(crate) fn finish(&self, stream: u64) {
        self.call(EntryPoint::cuStreamSynchronize).stream_synchronize(stream).unwrap();
    }

    /// Lets the stream call a function.
    pub(crate) fn host(&self, stream: u64, function: impl FnOnce() + Send + 'static) {
        self.call(EntryPoint::cuLaunchHostFunc).launch_host_function(stream, Box::new(function)).unwrap();
    }

    pub(crate) fn event(&self, flags: u32) -> u64 {
        self.call(EntryPoint::cuEventCreate).event_create(flags).unwrap()
    }

    pub(crate) fn record(&self, event: u64, stream: u64) {
        self.call(EntryPoint::cuEventRecord).event_record(event, stream).unwrap();
    }

    pub(crate) fn is_complete(&self, event: u64) -> bool {
        match self.call(EntryPoint::cuEventQuery).event_query(event) {
            Ok(()) => true,
            Err(Code::NOT_READY) => false,
            Err(code) => panic!("{code:?}"),
        }
    }

    pub(crate) fn export(&self, address: u64) -> Result<[u8; 64]> {
        self.call(EntryPoint::cuIpcGetMemHandle).ipc_get_mem_handle(address)
    }

    pub(crate) fn open(&self, handle: &[u8; 64]) -> Result<u64> {
        self.call(EntryPoint::cuIpcOpenMemHandle_v2).ipc_open_mem_handle(handle, 1)
    }

    pub(crate) fn close(&self, address: u64) -> Result<()> {
        self.call(EntryPoint::cuIpcCloseMemHandle).ipc_close_mem_handle(address)
    }

    pub(crate) fn report(&self) -> Report {
        self.driver.report()
    }

    /// Asserts that this was a call to free or close what a stream uses, which waits for that.
    pub(crate) fn is_stuck(&self, closed: Result<()>) {
        assert_eq!(closed, Err(Code::TIMEOUT));
        let violations = self.report().violations;
        let [.., in_use, stuck] = &violations[..] else { panic!("{violations:?}") };
        assert!(in_use.contains("while work on a stream uses it"), "{in_use}");
        assert!(stuck.contains("waits for a stream that does not get on"), "{stuck}");
    }

    /// The one rule that was broken.
    pub(crate) fn violation(&self) -> String {
        let mut violations = self.report().violations;
        assert_eq!(violations.len(), 1, "{violations:?}");
        violations.remove(0)
    }
}

/// Holds a stream up until it is dropped.
#[derive(Debug)]
pub(crate) struct Gate {
    _open: mpsc::Sender<()>,
}

impl Gate {
    pub(crate) fn in_stream(process: &Process, stream: u64) -> Self {
        let (open, closed) = mpsc::channel();
        process.host(stream, move || _ = closed.recv());
        Self { _open: open }
    }
}

/// Waits for what must come to pass.
pub(crate) fn until(what: impl Fn() -> bool) {
    let start = Instant::now();
    while !what() {
        assert!(start.elapsed() < Duration::from_secs(60), "it never happened");
        thread::sleep(Duration::from_millis(1));
    }
}
