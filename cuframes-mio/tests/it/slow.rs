//! [`Slow`]: host memory behind streams that do their work when the test lets them, on threads of their own, as a device does.

use std::cell::Cell;
use std::collections::VecDeque;
use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use cuframes_mio::core::error::ErrorCode;
use cuframes_mio::core::gpu::{Call, Device, EventHandle, Export, GpuError, Import};
use cuframes_mio::core::shm::header::SlotMemory;
use cuframes_mio::core::wire::control::EventFd;
use cuframes_mio::core::{Backend, Key, RingSize};
use cuframes_mio::{HostMemory, HostPool, HostView};

thread_local! {
    static ON_THE_DEVICE: Cell<bool> = const { Cell::new(false) };
}

type Work = Box<dyn FnOnce() + Send>;

/// The device, in every process.
#[derive(Clone, Debug)]
pub(crate) struct Slow {
    memory: HostMemory,
    world: Arc<World>,
}

#[derive(Debug, Default)]
struct World {
    failing: Mutex<Option<Call>>,
    /// Calls that were made where none may be.
    forbidden: Mutex<Vec<Call>>,
    open: Mutex<usize>,
}

/// A queue of work, done in order as far as the test lets it.
#[derive(Clone, Debug)]
pub(crate) struct SlowStream(Arc<(Mutex<Queue>, Condvar)>);

#[derive(Default)]
struct Queue {
    work: VecDeque<Work>,
    is_held: bool,
    is_over: bool,
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} pieces of work", self.work.len())
    }
}

impl Slow {
    pub(crate) fn new(key: &Key) -> Self {
        Self { memory: HostMemory::new(key.clone()), world: Arc::default() }
    }

    pub(crate) fn stream(&self) -> SlowStream {
        let stream = SlowStream(Arc::default());
        let queue = stream.clone();
        thread::spawn(move || {
            ON_THE_DEVICE.set(true);
            while let Some(work) = queue.next() {
                work();
            }
        });
        stream
    }

    /// Lets the next such call fail.
    pub(crate) fn fail(&self, call: Call) {
        *self.world.failing.lock().unwrap() = Some(call);
    }

    /// How many mappings and pools are open.
    pub(crate) fn open(&self) -> usize {
        *self.world.open.lock().unwrap()
    }

    pub(crate) fn check_threads(&self) {
        assert_eq!(*self.world.forbidden.lock().unwrap(), [], "calls on a thread of the device");
    }

    fn enter(&self, call: Call) -> Result<(), SlowError> {
        self.world.check_thread(call);
        match self.world.failing.lock().unwrap().take_if(|failing| *failing == call) {
            Some(call) => Err(SlowError(call, "it was told to".into())),
            None => Ok(()),
        }
    }

    fn did<T>(&self, call: Call, done: Result<T, impl fmt::Display>) -> Result<T, SlowError> {
        done.map_err(|error| SlowError(call, error.to_string()))
    }
}

impl World {
    fn check_thread(&self, call: Call) {
        if ON_THE_DEVICE.get() {
            self.forbidden.lock().unwrap().push(call);
        }
    }
}

impl SlowStream {
    /// Stands still until [`resume`](Self::resume).
    pub(crate) fn hold(&self) {
        self.0.0.lock().unwrap().is_held = true;
    }

    pub(crate) fn resume(&self) {
        self.0.0.lock().unwrap().is_held = false;
        self.0.1.notify_all();
    }

    /// Goes on when whoever calls this is waiting for it.
    pub(crate) fn resume_soon(&self) -> JoinHandle<()> {
        let stream = self.clone();
        thread::spawn(move || {
            thread::sleep(Duration::from_millis(20));
            stream.resume();
        })
    }

    /// The thread ends when everything before is done.
    pub(crate) fn end(&self) {
        self.0.0.lock().unwrap().is_over = true;
        self.resume();
    }

    pub(crate) fn enqueue(&self, work: impl FnOnce() + Send + 'static) {
        self.0.0.lock().unwrap().work.push_back(Box::new(work));
        self.0.1.notify_all();
    }

    fn next(&self) -> Option<Work> {
        let queue = self.0.0.lock().unwrap();
        let waits = |queue: &mut Queue| queue.is_held || queue.work.is_empty() && !queue.is_over;
        self.0.1.wait_while(queue, waits).unwrap().work.pop_front()
    }
}

/// Frames that work on a stream writes.
#[derive(Debug)]
pub(crate) struct SlowPool {
    pool: Arc<Mutex<HostPool>>,
    world: Arc<World>,
}

#[derive(Debug)]
pub(crate) struct SlowMapping {
    pub(crate) view: HostView,
    world: Arc<World>,
}

impl Drop for SlowPool {
    fn drop(&mut self) {
        self.world.check_thread(Call::FreePool);
        *self.world.open.lock().unwrap() -= 1;
    }
}

impl Drop for SlowMapping {
    fn drop(&mut self) {
        self.world.check_thread(Call::CloseMem);
        *self.world.open.lock().unwrap() -= 1;
    }
}

impl Device for Slow {
    type Stream = SlowStream;
    type Event = ();
    type Fd = OwnedFd;
    type Error = SlowError;

    fn backend(&self) -> Backend {
        Backend::HOST
    }

    fn open_event(&self, handle: &EventHandle) -> Result<(), SlowError> {
        self.enter(Call::OpenEvent)?;
        self.did(Call::OpenEvent, self.memory.open_event(handle))
    }

    fn wait_event(&self, _: &SlowStream, (): &()) -> Result<(), SlowError> {
        self.enter(Call::WaitEvent)
    }

    fn synchronize(&self, stream: &SlowStream, timeout: Duration) -> Result<(), SlowError> {
        self.enter(Call::Synchronize)?;
        let done = Arc::new((Mutex::new(false), Condvar::new()));
        let theirs = Arc::clone(&done);
        stream.enqueue(move || {
            *theirs.0.lock().unwrap() = true;
            theirs.1.notify_all();
        });
        let is_done = done.0.lock().unwrap();
        let (is_done, _) = done.1.wait_timeout_while(is_done, timeout, |is_done| !*is_done).unwrap();
        if *is_done { Ok(()) } else { Err(SlowError(Call::Synchronize, "it takes too long".into())) }
    }

    fn notify(&self, stream: &SlowStream, call: Box<dyn FnOnce() + Send>) -> Result<(), SlowError> {
        self.enter(Call::Notify)?;
        stream.enqueue(call);
        Ok(())
    }
}

impl Export for Slow {
    type Pool = SlowPool;
    type External = std::convert::Infallible;

    fn alloc_pool(&self, slots: RingSize, frame_size: u64) -> Result<SlowPool, SlowError> {
        self.enter(Call::AllocPool)?;
        let pool = self.did(Call::AllocPool, self.memory.alloc_pool(slots, frame_size))?;
        *self.world.open.lock().unwrap() += 1;
        Ok(SlowPool { pool: Arc::new(Mutex::new(pool)), world: Arc::clone(&self.world) })
    }

    fn register_external(&self, _: Vec<Self::External>, _: u64) -> Result<SlowPool, SlowError> {
        Err(SlowError(Call::RegisterExternal, "there is no such memory".into()))
    }

    fn export_mem(&self, pool: &SlowPool, slot: usize) -> Result<SlotMemory, SlowError> {
        self.enter(Call::ExportMem)?;
        self.did(Call::ExportMem, self.memory.export_mem(&pool.pool.lock().unwrap(), slot))
    }

    fn export_fds(&self, pool: &SlowPool) -> Result<Vec<(EventFd, OwnedFd)>, SlowError> {
        self.enter(Call::ExportFds)?;
        self.did(Call::ExportFds, self.memory.export_fds(&pool.pool.lock().unwrap()))
    }

    fn create_event(&self) -> Result<((), EventHandle), SlowError> {
        self.enter(Call::CreateEvent)?;
        // So that commits record it.
        Ok(((), EventHandle([7; 64])))
    }

    fn record_event(&self, _: &SlowStream, (): &()) -> Result<(), SlowError> {
        self.enter(Call::RecordEvent)
    }

    fn pool_ptr(&self, pool: &SlowPool, slot: usize) -> Option<u64> {
        self.memory.pool_ptr(&pool.pool.lock().unwrap(), slot)
    }

    fn copy_in(
        &self,
        stream: &SlowStream,
        pool: &mut SlowPool,
        slot: usize,
        bytes: &[u8],
    ) -> Result<(), SlowError> {
        self.enter(Call::CopyIn)?;
        let (memory, pool, bytes) = (self.memory.clone(), Arc::clone(&pool.pool), bytes.to_vec());
        // In two steps, so that a frame that is seen too early is seen torn.
        for half in [bytes.len() / 2, bytes.len()] {
            let (memory, pool, bytes) = (memory.clone(), Arc::clone(&pool), bytes[..half].to_vec());
            stream.enqueue(move || memory.copy_in(&(), &mut pool.lock().unwrap(), slot, &bytes).unwrap());
        }
        Ok(())
    }

    fn free_pool(&self, pool: SlowPool) -> Result<(), SlowError> {
        self.enter(Call::FreePool)?;
        drop(pool);
        Ok(())
    }
}

impl Import for Slow {
    type Mapping = SlowMapping;

    fn open_mem(&self, memory: &SlotMemory, len: u64, fds: &[OwnedFd]) -> Result<SlowMapping, SlowError> {
        self.enter(Call::OpenMem)?;
        let view = self.did(Call::OpenMem, self.memory.open_mem(memory, len, fds))?;
        *self.world.open.lock().unwrap() += 1;
        Ok(SlowMapping { view, world: Arc::clone(&self.world) })
    }

    fn mapping_ptr(&self, mapping: &SlowMapping) -> u64 {
        self.memory.mapping_ptr(&mapping.view)
    }

    fn copy_out(
        &self,
        stream: &SlowStream,
        mapping: &SlowMapping,
        out: &mut [u8],
        timeout: Duration,
    ) -> Result<(), SlowError> {
        self.enter(Call::CopyOut)?;
        self.synchronize(stream, timeout).map_err(|SlowError(_, why)| SlowError(Call::CopyOut, why))?;
        self.did(Call::CopyOut, self.memory.copy_out(&(), &mapping.view, out, timeout))
    }

    fn close_mem(&self, mapping: SlowMapping) -> Result<(), SlowError> {
        self.enter(Call::CloseMem)?;
        drop(mapping);
        Ok(())
    }
}

/// A call that failed, and why.
#[derive(Debug)]
pub(crate) struct SlowError(Call, String);

impl GpuError for SlowError {
    fn call(&self) -> Call {
        self.0
    }

    fn code(&self) -> ErrorCode {
        ErrorCode::CUDA
    }

    fn native(&self) -> Option<i32> {
        None
    }
}

impl fmt::Display for SlowError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.0, self.1)
    }
}

impl std::error::Error for SlowError {}
