//! What callers bring along: streams and memory that others made.

use std::any::Any;
use std::ffi::c_void;
use std::fmt;
use std::mem;
use std::sync::Arc;

use cudarc::driver::{CudaSlice, CudaStream, DevicePtr};
use cuframes_core::gpu::Call;

use super::work::Maker;
use super::{Context, Failed, Place, Stream as Raw};
use crate::{Cuda, CudaError, Stream};

/// Device memory that somebody owns, for [`External`](crate::External).
///
/// # Safety
/// [`device_ptr`](Self::device_ptr) always gives the same address, and what the driver says about it stays true while the
/// value lives: above all, the allocation that it lies in is not freed.
pub unsafe trait DeviceMemory: Any + fmt::Debug + Send + Sync {
    /// Where it is: a `CUdeviceptr`. Asked once, when the memory is registered.
    fn device_ptr(&self) -> u64;

    /// How many bytes of it are the owner's to share, if it knows. An allocation may be longer.
    fn byte_len(&self) -> Option<u64> {
        None
    }
}

/// Memory of the caller's, and its address. Asking for that may take time, and change what is current on the thread: a slice of
/// cudarc's waits for its streams.
pub(crate) struct Lent {
    context: Arc<Context>,
    /// Until this is dropped.
    owner: Option<Arc<dyn DeviceMemory>>,
    ptr: u64,
}

impl Lent {
    /// Asks for the address, and leaves the calling thread's context as it was (C-10).
    pub(crate) fn new(context: &Arc<Context>, owner: Arc<dyn DeviceMemory>) -> Result<Self, Failed> {
        let _bound = context.bind()?;
        let ptr = owner.device_ptr();
        Ok(Self { context: Arc::clone(context), owner: Some(owner), ptr })
    }

    /// Where it starts.
    pub(crate) const fn address(&self) -> u64 {
        self.ptr
    }

    pub(crate) fn byte_len(&self) -> Option<u64> {
        self.owner.as_ref()?.byte_len()
    }

    /// The first `len` bytes of it, which the allocation must have.
    pub(crate) const fn place(&self, len: usize) -> Place<'_> {
        Place::new(self.ptr, len)
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if !self.context.is_here() {
            // Its owner may not know that the driver must not be entered in a forked child.
            mem::forget(self.owner.take());
        }
    }
}

impl fmt::Debug for Lent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x} of {:?}", self.ptr, self.owner)
    }
}

// SAFETY: a buffer frees its memory when it is dropped, not before.
unsafe impl DeviceMemory for crate::Buffer {
    fn device_ptr(&self) -> u64 {
        self.address()
    }

    fn byte_len(&self) -> Option<u64> {
        Some(self.size())
    }
}

// SAFETY: a slice frees its memory when it is dropped, not before; it can't be moved elsewhere.
unsafe impl<T: fmt::Debug + Send + Sync + 'static> DeviceMemory for CudaSlice<T> {
    fn device_ptr(&self) -> u64 {
        let (pointer, _guard) = DevicePtr::device_ptr(self, self.stream());
        pointer
    }

    fn byte_len(&self) -> Option<u64> {
        u64::try_from(self.num_bytes()).ok()
    }
}

impl Stream {
    /// A stream that somebody else made: a `CUstream`, or null for the default stream. It is not destroyed when this is
    /// dropped.
    ///
    /// # Safety
    /// It is a stream of the primary context of `cuda`'s device, as those of the CUDA runtime and of cudarc are, and stays one
    /// until the last clone of this is dropped. Null is the legacy default stream, which other streams wait for, and which waits
    /// for them. It is not `CU_STREAM_PER_THREAD` (0x2, what null means in programs that are built for per-thread default
    /// streams): that is another stream on each thread that uses it, and this is used on several.
    #[must_use]
    pub unsafe fn from_raw(cuda: &Cuda, stream: *mut c_void) -> Self {
        // SAFETY: the caller promises it.
        Self::new(Arc::new(unsafe { Raw::foreign(cuda.context(), stream.cast(), Maker::Caller) }))
    }

    /// A stream of cudarc's, which stays as long as the last clone of this.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if it is not on `cuda`'s device, or the per-thread default stream, which is another on each thread that
    /// uses it; with [`Call::Open`].
    pub fn from_cudarc(cuda: &Cuda, stream: Arc<CudaStream>) -> Result<Self, CudaError> {
        if !cuda.context().is(stream.context().cu_ctx()) {
            return Err(CudaError::argument(Call::Open, "stream", "of the same device"));
        }
        let raw = stream.cu_stream();
        if raw.addr() == PER_THREAD {
            return Err(CudaError::argument(
                Call::Open,
                "stream",
                "another than the per-thread default stream",
            ));
        }
        // SAFETY: it is of the same context, and its owner is kept.
        Ok(Self::new(Arc::new(unsafe { Raw::foreign(cuda.context(), raw, Maker::Cudarc(stream)) })))
    }
}

/// `CU_STREAM_PER_THREAD`
const PER_THREAD: usize = 2;
