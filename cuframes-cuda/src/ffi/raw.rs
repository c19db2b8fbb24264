//! What callers bring along: streams and memory that others made.

use std::any::Any;
use std::ffi::c_void;
use std::fmt;
use std::sync::Arc;

use cudarc::driver::{CudaSlice, CudaStream, DevicePtr};
use cuframes_core::gpu::Call;

use super::Stream as Raw;
use super::work::Maker;
use crate::{Cuda, CudaError, Stream};

/// Device memory that somebody owns, for [`External`](crate::External).
///
/// # Safety
/// [`device_ptr`](Self::device_ptr) always gives the same address, and what the driver says about it stays true while the
/// value lives: above all, the allocation that it lies in is not freed.
pub unsafe trait DeviceMemory: Any + fmt::Debug + Send + Sync {
    /// Where it is: a `CUdeviceptr`.
    fn device_ptr(&self) -> u64;
}

// SAFETY: a buffer frees its memory when it is dropped, not before.
unsafe impl DeviceMemory for crate::Buffer {
    fn device_ptr(&self) -> u64 {
        self.address()
    }
}

// SAFETY: a slice frees its memory when it is dropped, not before; it can't be moved elsewhere.
unsafe impl<T: fmt::Debug + Send + Sync + 'static> DeviceMemory for CudaSlice<T> {
    fn device_ptr(&self) -> u64 {
        let (pointer, _guard) = DevicePtr::device_ptr(self, self.stream());
        pointer
    }
}

impl Stream {
    /// A stream that somebody else made: a `CUstream`, or null for the default stream. It is not destroyed when this is
    /// dropped.
    ///
    /// # Safety
    /// It is a stream of the primary context of `cuda`'s device, as those of the CUDA runtime and of cudarc are, and stays one
    /// until the last clone of this is dropped.
    #[must_use]
    pub unsafe fn from_raw(cuda: &Cuda, stream: *mut c_void) -> Self {
        // SAFETY: the caller promises it.
        Self::new(Arc::new(unsafe { Raw::foreign(cuda.context(), stream.cast(), Maker::Caller) }))
    }

    /// A stream of cudarc's, which stays as long as the last clone of this.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if it is not on `cuda`'s device, with [`Call::Open`].
    pub fn from_cudarc(cuda: &Cuda, stream: Arc<CudaStream>) -> Result<Self, CudaError> {
        if !cuda.context().is(stream.context().cu_ctx()) {
            return Err(CudaError::argument(Call::Open, "stream", "of the same device"));
        }
        let raw = stream.cu_stream();
        // SAFETY: it is of the same context, and its owner is kept.
        Ok(Self::new(Arc::new(unsafe { Raw::foreign(cuda.context(), raw, Maker::Cudarc(stream)) })))
    }
}
