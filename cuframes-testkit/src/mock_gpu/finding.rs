//! What goes wrong: [`MockError`] is what a call says, [`Finding`] what a test should know.

use std::error::Error;
use std::fmt;

use cuframes_core::error::ErrorCode;
use cuframes_core::gpu::{Call, GpuError};

/// A call that failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MockError {
    pub(super) call: Call,
    pub(super) result: i32,
    pub(super) why: &'static str,
}

impl GpuError for MockError {
    fn call(&self) -> Call {
        self.call
    }

    fn code(&self) -> ErrorCode {
        match self.result {
            result::INVALID_VALUE => ErrorCode::INVALID_ARGUMENT,
            result::OUT_OF_MEMORY => ErrorCode::OUT_OF_MEMORY,
            result::NOT_READY => ErrorCode::TIMEOUT,
            result::NOT_SUPPORTED => ErrorCode::UNSUPPORTED,
            _ => ErrorCode::CUDA,
        }
    }

    fn native(&self) -> Option<i32> {
        Some(self.result)
    }
}

impl fmt::Display for MockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: CUDA error {}: {}", self.call, self.result, self.why)
    }
}

impl Error for MockError {}

/// The `CUresult` numbers that the mock uses.
pub mod result {
    /// `CUDA_ERROR_INVALID_VALUE`
    pub const INVALID_VALUE: i32 = 1;
    /// `CUDA_ERROR_OUT_OF_MEMORY`
    pub const OUT_OF_MEMORY: i32 = 2;
    /// `CUDA_ERROR_INVALID_CONTEXT`
    pub const INVALID_CONTEXT: i32 = 201;
    /// `CUDA_ERROR_PEER_ACCESS_UNSUPPORTED`
    pub const PEER_ACCESS_UNSUPPORTED: i32 = 217;
    /// `CUDA_ERROR_INVALID_HANDLE`
    pub const INVALID_HANDLE: i32 = 400;
    /// `CUDA_ERROR_NOT_READY`
    pub const NOT_READY: i32 = 600;
    /// `CUDA_ERROR_CONTEXT_IS_DESTROYED`
    pub const CONTEXT_IS_DESTROYED: i32 = 709;
    /// `CUDA_ERROR_NOT_PERMITTED`
    pub const NOT_PERMITTED: i32 = 800;
    /// `CUDA_ERROR_NOT_SUPPORTED`
    pub const NOT_SUPPORTED: i32 = 801;
    /// `CUDA_ERROR_UNKNOWN`
    pub const UNKNOWN: i32 = 999;
}

/// What a test should know. Processes and allocations are numbered from 0 in the order in which they came to be.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub enum Finding {
    /// An allocation that is not freed.
    Allocated {
        /// Whose it is.
        process: usize,
        /// Which.
        allocation: usize,
    },
    /// A mapping that is not closed.
    Mapped {
        /// Who opened it.
        process: usize,
        /// Of which allocation.
        allocation: usize,
    },
    /// An event, created or opened, that is not dropped.
    Event {
        /// Who has it.
        process: usize,
    },
    /// Memory was freed that this process still had open (D-12).
    FreedWhileMapped {
        /// Who had it open.
        process: usize,
        /// Which allocation.
        allocation: usize,
    },
    /// A stream or a copy used memory that was freed or closed.
    UseAfterFree {
        /// Whose stream it was.
        process: usize,
        /// Which allocation.
        allocation: usize,
    },
    /// A wait for an event that its exporter has dropped (C-7).
    EventDroppedUnderWait {
        /// Who waits.
        process: usize,
    },
    /// Something was used or closed by another process, or in another context, than the one that has it.
    OtherContext {
        /// Who used it.
        process: usize,
        /// In which call.
        call: Call,
    },
    /// A host function called the driver.
    CalledFromHostFunction {
        /// Whose it was.
        process: usize,
        /// What it called.
        call: Call,
    },
}
