//! [`HostBuffer`]: page-locked host memory for copies that go on when the call has returned.

use std::mem;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use super::unfinished::Remains;
use super::{Context, Event, Failed, Place, Stream, Watch};

/// Page-locked host memory, and the event that says when the device is done with it. A copy from or to memory of the
/// caller's might still be going on when a timeout is over; this stays until the device is done.
#[derive(Debug)]
pub(crate) struct HostBuffer {
    context: Arc<Context>,
    ptr: NonNull<u8>,
    len: usize,
    /// Recorded after each copy.
    done: Arc<Event>,
    /// Whether a copy could not be watched: the memory is never freed then, and never used again.
    is_lost: bool,
    is_freed: bool,
}

// SAFETY: the memory is this value's alone but for the device, which `done` watches.
unsafe impl Send for HostBuffer {}

impl HostBuffer {
    pub(crate) fn new(context: &Arc<Context>, len: usize) -> Result<Self, Failed> {
        let done = Arc::new(Event::create(context)?);
        let _bound = context.bind()?;
        let entry = &context.table.cuMemAllocHost_v2;
        let mut raw = ptr::null_mut();
        // SAFETY: a context is current, and the driver writes a pointer where there is room for one.
        entry.check(unsafe { (entry.call)(&raw mut raw, len) })?;
        let no_memory = Failed { function: entry.name, result: OUT_OF_MEMORY };
        let ptr = NonNull::new(raw.cast()).ok_or(no_memory)?;
        // SAFETY: all of it is ours, and `len` bytes long. From here on it is initialized.
        unsafe { ptr.write_bytes(0, len) };
        Ok(Self { context: Arc::clone(context), ptr, len, done, is_lost: false, is_freed: false })
    }

    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// Whether the device is done with it.
    pub(crate) fn is_done(&self) -> Result<bool, Failed> {
        if self.is_lost { Ok(false) } else { self.done.is_done() }
    }

    /// Lets `done` stand for the copy that was enqueued just now.
    fn watch(&mut self, stream: &Stream) -> Result<(), Failed> {
        let recorded = self.done.record(stream);
        if recorded.is_err() {
            // The caller is told, but the copy goes on, and so must be watched.
            self.is_lost = self.done.record(stream).is_err();
            self.give_up();
        }
        recorded
    }

    /// Nobody waits any more for what the device does with it: memory that it uses is not closed before.
    pub(crate) fn give_up(&self) {
        let lost = self.is_lost.then_some(Watch::Lost);
        self.context.watch(lost.unwrap_or_else(|| Watch::Event(Arc::clone(&self.done), None)));
    }

    fn end(&mut self) -> Result<(), Failed> {
        if mem::replace(&mut self.is_freed, true) || !self.context.is_here() {
            return Ok(());
        }
        // It asks twice: what fails once is no reason to keep it.
        if self.is_done().or_else(|_| self.is_done()) != Ok(true) {
            // The device may write it at any time: nobody else must get the memory.
            self.give_up();
        }
        if !self.context.is_settled() {
            let Self { context, ptr, len, done, is_lost, .. } = &*self;
            let (context, done) = (Arc::clone(context), Arc::clone(done));
            let kept = Self { context, ptr: *ptr, len: *len, done, is_lost: *is_lost, is_freed: false };
            self.context.keep(Remains::Buffer(kept));
            return Ok(());
        }
        let _bound = self.context.bind_to_close()?;
        let entry = &self.context.table.cuMemFreeHost;
        // SAFETY: it was allocated for `self`, is freed once, and the device is done with it.
        entry.check(unsafe { (entry.call)(self.ptr.as_ptr().cast()) })
    }

    /// Enqueues a copy of `bytes`, which are not needed any more afterwards, to `place`. The buffer must be
    /// [done](Self::is_done), and both must be long enough.
    pub(crate) fn send(&mut self, bytes: &[u8], place: Place<'_>, stream: &Stream) -> Result<(), Failed> {
        let context = stream.context();
        let entry = &context.table.cuMemcpyHtoDAsync_v2;
        let len = bytes.len();
        if len > self.len || len > place.len() {
            return Err(Failed { function: entry.name, result: INVALID_VALUE });
        }
        // SAFETY: the buffer is ours and long enough, and the caller's memory is another.
        unsafe { self.ptr.as_ptr().copy_from_nonoverlapping(bytes.as_ptr(), len) };
        let _bound = context.bind()?;
        // SAFETY: the buffer stays until `done` says that the copy is, and `place` has as many bytes.
        entry.check(unsafe { (entry.call)(place.address(), self.ptr.as_ptr().cast(), len, stream.raw()) })?;
        self.watch(stream)
    }

    /// Enqueues a copy of all of `place`, which must not be longer than the buffer, to its start. The buffer must be
    /// [done](Self::is_done).
    pub(crate) fn fetch(&mut self, place: Place<'_>, stream: &Stream) -> Result<(), Failed> {
        let context = stream.context();
        let entry = &context.table.cuMemcpyDtoHAsync_v2;
        if place.len() > self.len {
            return Err(Failed { function: entry.name, result: INVALID_VALUE });
        }
        let _bound = context.bind()?;
        let to = self.ptr.as_ptr().cast();
        // SAFETY: the buffer stays until `done` says that the copy is, and has as many bytes as `place`.
        entry.check(unsafe { (entry.call)(to, place.address(), place.len(), stream.raw()) })?;
        self.watch(stream)
    }

    /// Copies its start into `out`. It must be [done](Self::is_done).
    pub(crate) fn read(&self, out: &mut [u8]) {
        let len = out.len().min(self.len);
        // SAFETY: the buffer is ours, initialized and long enough, the device is done with it, and the caller's memory is
        // another.
        unsafe { out.as_mut_ptr().copy_from_nonoverlapping(self.ptr.as_ptr(), len) };
    }
}

impl Drop for HostBuffer {
    fn drop(&mut self) {
        // There is nobody to tell.
        self.end().unwrap_or_default();
    }
}

/// `CUDA_ERROR_INVALID_VALUE`
const INVALID_VALUE: i32 = 1;
/// `CUDA_ERROR_OUT_OF_MEMORY`
const OUT_OF_MEMORY: i32 = 2;
