//! [`Stream`]: a queue of work of a device.

use std::fmt;
use std::sync::Arc;

use crate::ffi;

/// A CUDA stream, from [`Cuda::stream`](crate::Cuda::stream), [`from_cudarc`](Self::from_cudarc) or
/// [`from_raw`](Self::from_raw). Clones are the same stream; one
/// that we made is destroyed with the last of them, and what is enqueued then is still done.
#[derive(Clone)]
pub struct Stream(Arc<ffi::Stream>);

impl Stream {
    pub(crate) const fn new(raw: Arc<ffi::Stream>) -> Self {
        Self(raw)
    }

    pub(crate) fn raw(&self) -> &ffi::Stream {
        &self.0
    }

    /// The `CUstream`, for work of the caller's own: kernels, codecs, other libraries.
    #[must_use]
    pub fn address(&self) -> usize {
        self.0.address()
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stream({:#x})", self.address())
    }
}
