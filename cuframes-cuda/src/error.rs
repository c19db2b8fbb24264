//! [`CudaError`]: which call failed, what the driver said, and what to do about it, in one line.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use cuframes_core::error::ErrorCode;
use cuframes_core::gpu::{Call, GpuError};

use crate::ffi::{self, Failed, Missing};
use crate::platform::Platform;
use crate::uuid::Uuid;

/// A call of [`Cuda`](crate::Cuda) that failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CudaError {
    call: Call,
    cause: Cause,
}

/// Why a call failed.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Cause {
    /// There is no libcuda on this machine, or in this container.
    NoDriver,
    /// The driver is too old.
    OldDriver {
        /// A function that it lacks.
        function: &'static str,
    },
    /// A function of the driver failed.
    Driver {
        /// Which.
        function: &'static str,
        /// The `CUresult`.
        result: i32,
        /// How many bytes it was to allocate, if it was.
        bytes: Option<u64>,
    },
    /// The device had not done its work in time.
    Timeout {
        /// How long it had.
        after: Duration,
    },
    /// An argument is not allowed.
    Argument {
        /// Which.
        name: &'static str,
        /// What it must be.
        must: &'static str,
    },
    /// Memory of the caller's can't be exported (C-1).
    External {
        /// Which piece, counted from 0.
        slot: usize,
        /// What it is, and what to do instead.
        why: &'static str,
    },
    /// What came from the publisher means nothing.
    Peer {
        /// What is wrong with it.
        why: &'static str,
    },
    /// A legacy handle was given to the process that made it (C-3).
    OwnHandle,
    /// The memory is on another device (C-13).
    OtherDevice {
        /// Ours.
        ours: Uuid,
        /// The memory's.
        theirs: Uuid,
    },
    /// The backend has no such call.
    Unsupported {
        /// What, and what to do instead.
        why: &'static str,
    },
}

impl CudaError {
    pub(crate) const fn new(call: Call, cause: Cause) -> Self {
        Self { call, cause }
    }

    /// A closure for `map_err` on what the driver says.
    pub(crate) fn during(call: Call) -> impl Fn(Failed) -> Self + Copy {
        move |failed| Self::new(call, failed.into())
    }

    /// The same for calls that allocate.
    pub(crate) fn allocating(call: Call, bytes: u64) -> impl Fn(Failed) -> Self + Copy {
        move |Failed { function, result }| {
            Self::new(call, Cause::Driver { function, result, bytes: Some(bytes) })
        }
    }

    /// The error of a caller who gives something that is not allowed.
    pub(crate) const fn argument(call: Call, name: &'static str, must: &'static str) -> Self {
        Self::new(call, Cause::Argument { name, must })
    }

    /// The error of a publisher that sends what means nothing.
    pub(crate) const fn peer(call: Call, why: &'static str) -> Self {
        Self::new(call, Cause::Peer { why })
    }

    /// Why it failed.
    #[must_use]
    pub const fn cause(&self) -> &Cause {
        &self.cause
    }
}

impl From<Failed> for Cause {
    fn from(Failed { function, result }: Failed) -> Self {
        Self::Driver { function, result, bytes: None }
    }
}

impl From<Missing> for Cause {
    fn from(missing: Missing) -> Self {
        match missing {
            Missing::Library => Self::NoDriver,
            Missing::Function(function) => Self::OldDriver { function },
        }
    }
}

impl GpuError for CudaError {
    fn call(&self) -> Call {
        self.call
    }

    fn code(&self) -> ErrorCode {
        match self.cause {
            Cause::NoDriver | Cause::OldDriver { .. } | Cause::Unsupported { .. } => ErrorCode::UNSUPPORTED,
            Cause::Timeout { .. } => ErrorCode::TIMEOUT,
            Cause::Argument { .. } | Cause::External { .. } => ErrorCode::INVALID_ARGUMENT,
            Cause::Peer { .. } => ErrorCode::PROTOCOL,
            Cause::OwnHandle | Cause::OtherDevice { .. } => ErrorCode::CUDA,
            Cause::Driver { result, .. } => match result {
                result::INVALID_VALUE => ErrorCode::INVALID_ARGUMENT,
                result::OUT_OF_MEMORY => ErrorCode::OUT_OF_MEMORY,
                result::OPERATING_SYSTEM => ErrorCode::IO,
                result::NOT_PERMITTED => ErrorCode::PERMISSION,
                result::NOT_SUPPORTED => ErrorCode::UNSUPPORTED,
                _ => ErrorCode::CUDA,
            },
        }
    }

    fn native(&self) -> Option<i32> {
        match self.cause {
            Cause::Driver { result, .. } => Some(result),
            _ => None,
        }
    }
}

impl fmt::Display for CudaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.call, self.cause)?;
        match self.cause {
            Cause::Driver { function, result, .. } => match remedy(self.call, function, result) {
                Some(remedy) => write!(f, ": {remedy}"),
                None => Ok(()),
            },
            _ => Ok(()),
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoDriver => f.write_str(
                "there is no CUDA driver (libcuda.so): install NVIDIA's, in a container start it with --gpus, or use host memory",
            ),
            Self::OldDriver { function } => {
                write!(f, "the CUDA driver is too old: it has no {function}; use one for CUDA 12 or newer")
            }
            Self::Driver { function, result, bytes } => {
                let name = ffi::result_name(*result).unwrap_or("unknown");
                write!(f, "{function} failed: {name} ({result})")?;
                bytes.map_or(Ok(()), |bytes| write!(f, ", {bytes} bytes were needed"))
            }
            Self::Timeout { after } => {
                write!(f, "the device has not done its work within {after:?}")
            }
            Self::Argument { name, must } => write!(f, "{name} must be {must}"),
            Self::External { slot, why } => write!(f, "the memory for slot {slot} {why}"),
            Self::Peer { why } => write!(f, "the publisher's handle {why}"),
            Self::OwnHandle => f.write_str(
                "this process exported it itself, and CUDA opens legacy handles in other processes only; use the pool's own pointer",
            ),
            Self::OtherDevice { ours, theirs } => write!(
                f,
                "the memory is on device {theirs}, this is {ours}: open the device with the publisher's UUID"
            ),
            Self::Unsupported { why } => f.write_str(why),
        }
    }
}

impl Error for CudaError {}

/// What to do about it, in the cases that are known.
fn remedy(call: Call, function: &str, code: i32) -> Option<&'static str> {
    let opens = matches!(call, Call::OpenMem | Call::OpenEvent);
    match code {
        result::INVALID_VALUE if function == "cuIpcGetMemHandle" => {
            Some("only memory from cuMemAlloc has a legacy IPC handle, not that of a pool or a managed one")
        }
        result::INVALID_VALUE if function == "cuMemImportFromShareableHandle" => {
            Some("the descriptor is not memory of a CUDA device")
        }
        result::INVALID_VALUE if function == "cuMemMap" && opens => {
            Some("the memory is smaller than a frame")
        }
        result::INVALID_VALUE if function == "cuIpcOpenMemHandle" => {
            Some("the memory is gone, or on another device: compare the UUIDs")
        }
        result::INVALID_CONTEXT if opens => Some(
            "legacy CUDA IPC needs publisher and subscriber in the same pid and ipc namespaces: share them (container: --pid, --ipc), or publish over cuda-vmm",
        ),
        result::OUT_OF_MEMORY if !opens => {
            Some("use a smaller ring or smaller frames, or free device memory")
        }
        result::NOT_INITIALIZED | result::DEINITIALIZED => {
            Some("CUDA does not work in a child of fork, nor while the process ends")
        }
        result::NO_DEVICE | result::INVALID_DEVICE => {
            Some("the driver shows no such device: see nvidia-smi -L and CUDA_VISIBLE_DEVICES")
        }
        result::OPERATING_SYSTEM if function == "cuIpcOpenEventHandle" => {
            Some("publisher and subscriber need the same /dev/shm (container: --ipc)")
        }
        result::OPERATING_SYSTEM => Some("the limit of open descriptors (ulimit -n) is the usual cause"),
        result::PEER_ACCESS_UNSUPPORTED => {
            Some("the memory is on a device that this one can't reach: open the publisher's")
        }
        result::NOT_SUPPORTED if function.starts_with("cuIpc") => {
            Some(Platform::detect().legacy_ipc_remedy())
        }
        _ => None,
    }
}

/// The `CUresult`s that mean something here.
pub(crate) mod result {
    pub(crate) const INVALID_VALUE: i32 = 1;
    pub(crate) const OUT_OF_MEMORY: i32 = 2;
    pub(crate) const NOT_INITIALIZED: i32 = 3;
    pub(crate) const DEINITIALIZED: i32 = 4;
    pub(crate) const NO_DEVICE: i32 = 100;
    pub(crate) const INVALID_DEVICE: i32 = 101;
    pub(crate) const INVALID_CONTEXT: i32 = 201;
    pub(crate) const PEER_ACCESS_UNSUPPORTED: i32 = 217;
    pub(crate) const OPERATING_SYSTEM: i32 = 304;
    pub(crate) const NOT_PERMITTED: i32 = 800;
    pub(crate) const NOT_SUPPORTED: i32 = 801;
}
