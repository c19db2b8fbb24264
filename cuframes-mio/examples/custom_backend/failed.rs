//! [`Failed`], what the backend's calls fail with.

use std::error::Error;
use std::fmt;
use std::io;

use cuframes_mio::core::error::ErrorCode;
use cuframes_mio::core::gpu::{Call, GpuError};

/// A call that failed. It prints as one line that names the call and the cause.
#[derive(Debug)]
pub(crate) struct Failed {
    call: Call,
    error: io::Error,
}

/// For `map_err`.
pub(crate) fn failed<E: Into<io::Error>>(call: Call) -> impl Fn(E) -> Failed {
    move |error| Failed { call, error: error.into() }
}

impl GpuError for Failed {
    fn call(&self) -> Call {
        self.call
    }
    fn code(&self) -> ErrorCode {
        match self.error.kind() {
            io::ErrorKind::InvalidInput => ErrorCode::INVALID_ARGUMENT,
            io::ErrorKind::OutOfMemory => ErrorCode::OUT_OF_MEMORY,
            io::ErrorKind::Unsupported => ErrorCode::UNSUPPORTED,
            _ => ErrorCode::IO,
        }
    }
    fn native(&self) -> Option<i32> {
        self.error.raw_os_error()
    }
}

impl Error for Failed {}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.call, self.error)
    }
}
