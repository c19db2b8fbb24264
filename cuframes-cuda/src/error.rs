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
        /// The device that was to open memory of another process, and that may be on another one.
        device: Option<Uuid>,
    },
    /// Memory of the device can't be shared, whichever way.
    NoWay {
        /// Why not over file descriptors; `None` if the device says that it can't.
        descriptors: Option<Box<CudaError>>,
        /// Why not over legacy IPC handles.
        handles: Box<CudaError>,
    },
    /// The device belongs to the process that this one was forked from (P-20).
    Forked,
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
        move |failed| match failed.into() {
            Cause::Driver { function, result, .. } => {
                Self::new(call, Cause::Driver { function, result, bytes: Some(bytes), device: None })
            }
            cause => Self::new(call, cause),
        }
    }

    /// The same for opening a legacy handle on the device `ours`.
    pub(crate) fn opening(ours: Uuid) -> impl Fn(Failed) -> Self + Copy {
        move |failed| match failed.into() {
            Cause::Driver { function, result: result @ result::INVALID_VALUE, .. } => {
                Self::new(Call::OpenMem, Cause::Driver { function, result, bytes: None, device: Some(ours) })
            }
            cause => Self::new(Call::OpenMem, cause),
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
        match result {
            ffi::FORKED => Self::Forked,
            _ => Self::Driver { function, result, bytes: None, device: None },
        }
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
            Cause::NoDriver
            | Cause::OldDriver { .. }
            | Cause::Unsupported { .. }
            | Cause::NoWay { .. }
            | Cause::Forked => ErrorCode::UNSUPPORTED,
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
            Cause::Driver { device: Some(ours), .. } => {
                write!(
                    f,
                    ": the memory is gone, or on another device: this is {ours}, compare the publisher's"
                )
            }
            Cause::Driver { function, result, .. } => match remedy(self.call, function, result) {
                Some(remedy) => write!(f, ": {remedy}"),
                None => Ok(()),
            },
            Cause::OtherDevice { .. } => f.write_str(match self.call {
                Call::RegisterExternal => ": open the device that it is on, or allocate it on this one",
                _ => ": open the device with the publisher's UUID",
            }),
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
            Self::Driver { function, result, bytes, .. } => {
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
            Self::OtherDevice { ours, theirs } => {
                write!(f, "the memory is on device {theirs}, this is {ours}")
            }
            Self::NoWay { descriptors, handles } => {
                f.write_str("memory of this device can't be shared, neither over file descriptors (")?;
                match descriptors {
                    Some(error) => write!(f, "{}", error.cause)?,
                    None => f.write_str("the device says that it can't")?,
                }
                write!(f, ") nor over legacy IPC handles ({}): use host memory", handles.cause)
            }
            Self::Forked => f.write_str(
                "the device was opened by the process that this one was forked from, and CUDA works in that one only: fork first, or start a program",
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
        result::INVALID_VALUE if function == "cuMemSetAccess" => Some(NO_DESCRIPTORS),
        result::NOT_SUPPORTED if function.starts_with("cuMem") => Some(NO_DESCRIPTORS),
        result::NOT_SUPPORTED if function == "cuEventCreate" => {
            Some("the device has no events for legacy IPC: publish over cuda-vmm, or use host memory")
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
        result::STUB_LIBRARY => Some(
            "this libcuda.so is a stub for linking: let the loader find the driver's own (LD_LIBRARY_PATH without .../stubs)",
        ),
        result::SYSTEM_NOT_READY => {
            Some("the system is not set up: where GPUs are linked by NVSwitch nvidia-fabricmanager must run")
        }
        result::SYSTEM_DRIVER_MISMATCH => Some(
            "kernel module and libcuda.so are of different versions: reload the module or reboot, in a container use the host's library",
        ),
        result::COMPAT_NOT_SUPPORTED_ON_DEVICE => Some(
            "the device can't be used with a libcuda.so for forward compatibility (cuda-compat): use the driver's own",
        ),
        code if result::STICKY.contains(&code) => {
            Some("work on the device has failed, and every later call fails too: restart the process")
        }
        _ => None,
    }
}

/// What to do where memory behind descriptors does not work.
const NO_DESCRIPTORS: &str = "memory can't be shared over file descriptors here: publish over cuda (legacy IPC handles), or use host memory";

/// The `CUresult`s that mean something here.
pub(crate) mod result {
    pub(crate) const INVALID_VALUE: i32 = 1;
    pub(crate) const OUT_OF_MEMORY: i32 = 2;
    pub(crate) const NOT_INITIALIZED: i32 = 3;
    pub(crate) const DEINITIALIZED: i32 = 4;
    pub(crate) const STUB_LIBRARY: i32 = 34;
    pub(crate) const NO_DEVICE: i32 = 100;
    pub(crate) const INVALID_DEVICE: i32 = 101;
    pub(crate) const INVALID_CONTEXT: i32 = 201;
    pub(crate) const PEER_ACCESS_UNSUPPORTED: i32 = 217;
    pub(crate) const OPERATING_SYSTEM: i32 = 304;
    pub(crate) const NOT_PERMITTED: i32 = 800;
    pub(crate) const NOT_SUPPORTED: i32 = 801;
    pub(crate) const SYSTEM_NOT_READY: i32 = 802;
    pub(crate) const SYSTEM_DRIVER_MISMATCH: i32 = 803;
    pub(crate) const COMPAT_NOT_SUPPORTED_ON_DEVICE: i32 = 804;
    /// Those after which a context is of no use any more: uncorrectable memory and link errors, illegal addresses, a launch that
    /// took too long, a destroyed context, an assertion, and what else kernels die of.
    pub(crate) const STICKY: [i32; 12] = [214, 220, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719];
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_failure_that_is_known_says_what_to_do() {
        let text = |call, function, result| {
            CudaError::new(call, Cause::Driver { function, result, bytes: None, device: None }).to_string()
        };
        for code in result::STICKY {
            assert!(text(Call::CopyOut, "cuEventQuery", code).contains("restart the process"), "{code}");
        }
        for (call, function, code, remedy) in [
            (Call::Open, "cuInit", 34, "stub"),
            (Call::Open, "cuInit", 802, "nvidia-fabricmanager"),
            (Call::Open, "cuInit", 803, "different versions"),
            (Call::Open, "cuInit", 804, "cuda-compat"),
            (Call::AllocPool, "cuMemGetAllocationGranularity", 801, "publish over cuda ("),
            (Call::ExportFds, "cuMemExportToShareableHandle", 801, "publish over cuda ("),
            (Call::AllocPool, "cuMemSetAccess", 1, "publish over cuda ("),
            (Call::CreateEvent, "cuEventCreate", 801, "publish over cuda-vmm"),
        ] {
            let text = text(call, function, code);
            assert!(text.contains(remedy) && !text.contains('\n'), "{text}");
        }
    }
}
