//! Streams and events.

use std::ffi::{c_uint, c_void};
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::Arc;

use cudarc::driver::CudaStream;
use cudarc::driver::sys::{CUevent, CUipcEventHandle, CUstream};

use super::{Context, Failed, from_c, to_c};

/// A stream.
#[derive(Debug)]
pub(crate) struct Stream {
    context: Arc<Context>,
    raw: CUstream,
    maker: Maker,
}

/// Who made a stream, and destroys it.
#[derive(Debug)]
pub(super) enum Maker {
    /// We.
    Us,
    /// The caller, who promised to keep it.
    Caller,
    /// cudarc; it stays as long as this.
    Cudarc(#[expect(dead_code, reason = "kept, not used")] Arc<CudaStream>),
}

// SAFETY: a stream may be used by all threads: the driver locks. The pointer is never followed.
unsafe impl Send for Stream {}

// SAFETY: as above.
unsafe impl Sync for Stream {}

impl Stream {
    /// A new one, which does not wait for the default stream.
    pub(crate) fn create(context: &Arc<Context>) -> Result<Self, Failed> {
        let _bound = context.bind()?;
        let entry = &context.table.cuStreamCreate;
        let mut raw = ptr::null_mut();
        // SAFETY: a context is current, and the driver writes a pointer where there is room for one.
        entry.check(unsafe { (entry.call)(&raw mut raw, NON_BLOCKING) })?;
        Ok(Self { context: Arc::clone(context), raw, maker: Maker::Us })
    }

    /// One that somebody else made.
    ///
    /// # Safety
    /// It is a stream of the primary context of the device, and stays one until this is dropped.
    pub(super) unsafe fn foreign(context: &Arc<Context>, raw: CUstream, maker: Maker) -> Self {
        Self { context: Arc::clone(context), raw, maker }
    }

    pub(crate) const fn context(&self) -> &Arc<Context> {
        &self.context
    }

    pub(super) const fn raw(&self) -> CUstream {
        self.raw
    }

    /// The address that the driver knows it by.
    pub(crate) fn address(&self) -> usize {
        self.raw.addr()
    }

    /// Whether everything that was enqueued is done.
    pub(crate) fn is_idle(&self) -> Result<bool, Failed> {
        let _bound = self.context.bind()?;
        let entry = &self.context.table.cuStreamQuery;
        // SAFETY: the stream lives as long as `self`.
        entry.is_done(unsafe { (entry.call)(self.raw) })
    }

    /// Lets what is enqueued from now on wait for the latest record of `event`.
    pub(crate) fn wait(&self, event: &Event) -> Result<(), Failed> {
        let _bound = self.context.bind()?;
        let entry = &self.context.table.cuStreamWaitEvent;
        // SAFETY: stream and event live as long as their values, and the driver keeps what is enqueued.
        entry.check(unsafe { (entry.call)(self.raw, event.raw, 0) })
    }

    /// Calls `call` when everything that was enqueued is done. It is dropped if it can't be enqueued.
    pub(crate) fn launch(&self, call: Box<dyn FnOnce() + Send>) -> Result<(), Failed> {
        let _bound = self.context.bind()?;
        let entry = &self.context.table.cuLaunchHostFunc;
        let data = Box::into_raw(Box::new(call));
        // SAFETY: `trampoline` takes what `data` points to, and the driver calls it once at most.
        let launched = entry.check(unsafe { (entry.call)(self.raw, Some(trampoline), data.cast()) });
        if launched.is_err() {
            // SAFETY: the driver did not take it, so it is ours again.
            drop(unsafe { Box::from_raw(data) });
        }
        launched
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if !self.context.is_here() {
            // cudarc would enter the driver, too.
            mem::forget(mem::replace(&mut self.maker, Maker::Caller));
            return;
        }
        self.context.forget_address(self.address());
        if !matches!(self.maker, Maker::Us) {
            return;
        }
        let Ok(_bound) = self.context.bind_to_close() else { return };
        let entry = &self.context.table.cuStreamDestroy_v2;
        // SAFETY: it was made for `self`, and this is its end. What is enqueued is still done.
        let destroyed = entry.check(unsafe { (entry.call)(self.raw) });
        // There is nobody to tell.
        destroyed.unwrap_or_default();
    }
}

/// What the driver calls in the order of a stream.
unsafe extern "C" fn trampoline(data: *mut c_void) {
    // SAFETY: `Stream::launch` gave this pointer away, and the driver hands it on once.
    let call = unsafe { Box::from_raw(data.cast::<Box<dyn FnOnce() + Send>>()) };
    // A panic must not reach the driver, and neither must one of its payload's destructor.
    if let Err(panic) = catch_unwind(AssertUnwindSafe(call)) {
        mem::forget(panic);
    }
}

/// An event.
#[derive(Debug)]
pub(crate) struct Event {
    context: Arc<Context>,
    raw: CUevent,
}

// SAFETY: an event may be used by all threads: the driver locks. The pointer is never followed.
unsafe impl Send for Event {}

// SAFETY: as above.
unsafe impl Sync for Event {}

impl Event {
    /// A new one, never recorded, for this process.
    pub(crate) fn create(context: &Arc<Context>) -> Result<Self, Failed> {
        Self::with_flags(context, DISABLE_TIMING)
    }

    /// A new one, never recorded, that other processes can open (C-6).
    pub(crate) fn create_shared(context: &Arc<Context>) -> Result<Self, Failed> {
        Self::with_flags(context, DISABLE_TIMING | INTERPROCESS)
    }

    fn with_flags(context: &Arc<Context>, flags: c_uint) -> Result<Self, Failed> {
        let _bound = context.bind()?;
        let entry = &context.table.cuEventCreate;
        let mut raw = ptr::null_mut();
        // SAFETY: a context is current, and the driver writes a pointer where there is room for one.
        entry.check(unsafe { (entry.call)(&raw mut raw, flags) })?;
        Ok(Self { context: Arc::clone(context), raw })
    }

    /// Opens one that another process made.
    pub(crate) fn open(context: &Arc<Context>, handle: &[u8; 64]) -> Result<Self, Failed> {
        let _bound = context.bind()?;
        let entry = &context.table.cuIpcOpenEventHandle;
        let mut raw = ptr::null_mut();
        let handle = CUipcEventHandle { reserved: handle.map(to_c) };
        // SAFETY: any 64 bytes may be tried, and the driver writes a pointer where there is room for one.
        entry.check(unsafe { (entry.call)(&raw mut raw, handle) })?;
        Ok(Self { context: Arc::clone(context), raw })
    }

    /// What opens it in other processes.
    pub(crate) fn handle(&self) -> Result<[u8; 64], Failed> {
        let _bound = self.context.bind()?;
        let entry = &self.context.table.cuIpcGetEventHandle;
        let mut handle = CUipcEventHandle { reserved: [0; 64] };
        // SAFETY: the event lives as long as `self`, and the driver writes 64 bytes where there is room for them.
        entry.check(unsafe { (entry.call)(&raw mut handle, self.raw) })?;
        Ok(handle.reserved.map(from_c))
    }

    pub(crate) const fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// Lets it stand for everything that is enqueued on `stream`.
    pub(crate) fn record(&self, stream: &Stream) -> Result<(), Failed> {
        let _bound = self.context.bind()?;
        let entry = &self.context.table.cuEventRecord;
        // SAFETY: event and stream live as long as their values, and the driver keeps what is enqueued.
        entry.check(unsafe { (entry.call)(self.raw, stream.raw) })
    }

    /// Whether what its latest record stands for is done.
    pub(crate) fn is_done(&self) -> Result<bool, Failed> {
        let _bound = self.context.bind()?;
        let entry = &self.context.table.cuEventQuery;
        // SAFETY: the event lives as long as `self`.
        entry.is_done(unsafe { (entry.call)(self.raw) })
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        let Ok(_bound) = self.context.bind_to_close() else { return };
        let entry = &self.context.table.cuEventDestroy_v2;
        // SAFETY: it was made or opened for `self`, and this is its end. The driver keeps it while something enqueued needs it.
        let destroyed = entry.check(unsafe { (entry.call)(self.raw) });
        // There is nobody to tell.
        destroyed.unwrap_or_default();
    }
}

/// `CU_STREAM_NON_BLOCKING`
const NON_BLOCKING: c_uint = 1;
/// `CU_EVENT_DISABLE_TIMING`
const DISABLE_TIMING: c_uint = 2;
/// `CU_EVENT_INTERPROCESS`
const INTERPROCESS: c_uint = 4;
