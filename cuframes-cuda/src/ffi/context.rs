//! [`Context`]: the primary context of a device, retained, and current while somebody calls.

use std::ffi::c_int;
use std::marker::PhantomData;
use std::process;
use std::ptr;
use std::sync::Arc;

use cudarc::driver::sys::{CUcontext, CUdevice};

use super::unfinished::Unfinished;
use super::{FORKED, Failed, Table};
use crate::uuid::Uuid;

/// The primary context of a device, which is shared with everybody in the process. Released when this is dropped.
#[derive(Debug)]
pub(crate) struct Context {
    pub(super) table: &'static Table,
    device: CUdevice,
    uuid: Uuid,
    raw: CUcontext,
    /// The process that retained it. A child that was forked has no driver (P-20).
    process: u32,
    /// Shared with whoever else in the process has retained it.
    pub(super) unfinished: Arc<Unfinished>,
}

// SAFETY: a context may be used by all threads: the driver locks. The pointer is never followed.
unsafe impl Send for Context {}

// SAFETY: as above.
unsafe impl Sync for Context {}

impl Context {
    /// Retains the primary context of `device`, which is this one.
    pub(crate) fn retain(table: &'static Table, device: CUdevice, uuid: Uuid) -> Result<Self, Failed> {
        let entry = &table.cuDevicePrimaryCtxRetain;
        let mut raw = ptr::null_mut();
        // SAFETY: the driver checks the device, and writes a pointer where there is room for one.
        entry.check(unsafe { (entry.call)(&raw mut raw, device) })?;
        let (process, unfinished) = (process::id(), Unfinished::of(device));
        Ok(Self { table, device, uuid, raw, process, unfinished })
    }

    /// The driver.
    pub(crate) const fn table(&self) -> &'static Table {
        self.table
    }

    /// The device it is on, by the number that this process has for it.
    pub(crate) const fn device(&self) -> c_int {
        self.device
    }

    /// Which device it is on.
    pub(crate) const fn uuid(&self) -> Uuid {
        self.uuid
    }

    /// Whether this process is the one that retained it. In a child that was forked the driver is not entered any more, and no
    /// lock is taken that another thread had.
    pub(crate) fn is_here(&self) -> bool {
        process::id() == self.process
    }

    /// Whether this is the same context.
    pub(super) fn is(&self, raw: CUcontext) -> bool {
        self.raw == raw
    }

    /// Makes it current on this thread until the value is dropped; then what was current before is again.
    pub(super) fn bind(&self) -> Result<Bound<'_>, Failed> {
        let entry = &self.table.cuCtxPushCurrent_v2;
        if !self.is_here() {
            return Err(Failed { function: entry.name, result: FORKED });
        }
        // SAFETY: the context is retained as long as `self` lives.
        entry.check(unsafe { (entry.call)(self.raw) })?;
        Ok(Bound { context: self, thread: PhantomData })
    }

    /// The same for who closes something, which stays open otherwise: once more if it fails.
    pub(super) fn bind_to_close(&self) -> Result<Bound<'_>, Failed> {
        self.bind().or_else(|_| self.bind())
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        if !self.is_here() {
            return;
        }
        let entry = &self.table.cuDevicePrimaryCtxRelease_v2;
        // SAFETY: it was retained once for `self`. Whatever belongs to it keeps it alive, so nothing is left that would use it.
        let released = entry.check(unsafe { (entry.call)(self.device) });
        // There is nobody to tell.
        released.unwrap_or_default();
    }
}

/// A context that is current on this thread.
pub(super) struct Bound<'a> {
    context: &'a Context,
    /// It must end on the thread on which it began.
    thread: PhantomData<*const ()>,
}

impl Drop for Bound<'_> {
    fn drop(&mut self) {
        let entry = &self.context.table.cuCtxPopCurrent_v2;
        let mut popped = ptr::null_mut();
        // SAFETY: the context that `bind` made current on this thread is taken off; the driver writes it where there is room.
        let result = entry.check(unsafe { (entry.call)(&raw mut popped) });
        // The call in between did what it did. Telling its caller that it failed would be wrong.
        result.unwrap_or_default();
    }
}
