//! The CUDA driver behind safe functions: all unsafe code of this crate.
//!
//! What the driver gives out lives in types of this module that nobody else can make, copy or forge: each keeps the
//! context alive that it belongs to, is closed once, when it is dropped at the latest, and makes that context current for
//! every call, whatever thread calls (C-10). So no handle is ever used after its end. In a child that was forked they do
//! nothing: the driver is not entered there.
//!
//! cudarc finds the library, and has the types and the signatures. The calls do not go through it, for two reasons: it
//! panics where the driver is too old to have a function, and its result is a Rust enum, which a code that a newer driver
//! invented must not be put into. [`Table`] has each function with the same arguments, which the compiler compares, and a
//! plain number as result.

mod context;
mod device;
mod memory;
mod raw;
mod staging;
mod unfinished;
mod vmm;
mod work;

use std::ffi::{CStr, c_char, c_int, c_uint, c_ulonglong, c_void};
use std::ptr;
use std::sync::OnceLock;

use cudarc::driver::sys;
use cudarc::driver::sys::{
    CUcontext, CUdevice, CUdevice_attribute, CUdeviceptr, CUevent, CUhostFn, CUipcEventHandle,
    CUipcMemHandle, CUmemAccessDesc, CUmemAllocationGranularity_flags, CUmemAllocationHandleType,
    CUmemAllocationProp, CUmemGenericAllocationHandle, CUpointer_attribute, CUstream, CUuuid,
};

pub(crate) use context::Context;
pub(crate) use device::PointerAttribute;
pub(crate) use memory::{Allocation, Imported, Place, Range};
pub use raw::DeviceMemory;
pub(crate) use raw::Lent;
pub(crate) use staging::HostBuffer;
pub(crate) use unfinished::Watch;
pub(crate) use vmm::{Access, Block, Mapped, granularity};
pub(crate) use work::{Event, Stream};

/// A driver call that did not succeed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Failed {
    /// The function, as the CUDA documentation calls it.
    pub(crate) function: &'static str,
    /// The `CUresult`, or [`FORKED`].
    pub(crate) result: i32,
}

/// Why there is no driver to call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Missing {
    /// There is no libcuda.
    Library,
    /// It has no such function.
    Function(&'static str),
}

/// A function of the driver.
#[derive(Debug)]
struct Entry<F> {
    name: &'static str,
    call: F,
}

impl<F> Entry<F> {
    /// What the driver's answer means.
    const fn check(&self, result: c_int) -> Result<(), Failed> {
        match result {
            0 => Ok(()),
            _ => Err(Failed { function: self.name, result }),
        }
    }

    /// The same, where "not yet" is an answer.
    fn is_done(&self, result: c_int) -> Result<bool, Failed> {
        match result {
            NOT_READY => Ok(false),
            _ => self.check(result).map(|()| true),
        }
    }
}

/// Declares [`Table`], and lets the compiler compare each function's arguments with cudarc's.
macro_rules! table {
    ($($symbol:ident($($argument:ty),*);)*) => {
        /// The functions of the driver that we use.
        #[derive(Debug)]
        #[expect(non_snake_case, reason = "these are the driver's names")]
        pub(crate) struct Table {
            $( $symbol: Entry<unsafe extern "C" fn($($argument),*) -> c_int>, )*
            cuGetErrorName: Entry<unsafe extern "C" fn(c_int, *mut *const c_char) -> c_int>,
        }

        impl Table {
            fn find() -> Result<Self, Missing> {
                Ok(Self {
                    $( $symbol: entry(stringify!($symbol))?, )*
                    cuGetErrorName: entry("cuGetErrorName")?,
                })
            }
        }

        $( const _: unsafe fn($($argument),*) -> sys::CUresult = sys::$symbol; )*
    };
}

// The last one, which takes what the others return, is checked by hand.
const _: unsafe fn(sys::CUresult, *mut *const c_char) -> sys::CUresult = sys::cuGetErrorName;

table! {
    cuInit(c_uint);
    cuDriverGetVersion(*mut c_int);
    cuDeviceGetCount(*mut c_int);
    cuDeviceGet(*mut CUdevice, c_int);
    cuDeviceGetName(*mut c_char, c_int, CUdevice);
    cuDeviceGetUuid_v2(*mut CUuuid, CUdevice);
    cuDeviceGetAttribute(*mut c_int, CUdevice_attribute, CUdevice);
    cuDevicePrimaryCtxRetain(*mut CUcontext, CUdevice);
    cuDevicePrimaryCtxRelease_v2(CUdevice);
    cuCtxPushCurrent_v2(CUcontext);
    cuCtxPopCurrent_v2(*mut CUcontext);
    cuStreamCreate(*mut CUstream, c_uint);
    cuStreamDestroy_v2(CUstream);
    cuStreamQuery(CUstream);
    cuStreamWaitEvent(CUstream, CUevent, c_uint);
    cuLaunchHostFunc(CUstream, CUhostFn, *mut c_void);
    cuEventCreate(*mut CUevent, c_uint);
    cuEventDestroy_v2(CUevent);
    cuEventRecord(CUevent, CUstream);
    cuEventQuery(CUevent);
    cuIpcGetEventHandle(*mut CUipcEventHandle, CUevent);
    cuIpcOpenEventHandle(*mut CUevent, CUipcEventHandle);
    cuMemAlloc_v2(*mut CUdeviceptr, usize);
    cuMemFree_v2(CUdeviceptr);
    cuMemAllocHost_v2(*mut *mut c_void, usize);
    cuMemFreeHost(*mut c_void);
    cuMemGetAddressRange_v2(*mut CUdeviceptr, *mut usize, CUdeviceptr);
    cuPointerGetAttribute(*mut c_void, CUpointer_attribute, CUdeviceptr);
    cuMemcpyHtoDAsync_v2(CUdeviceptr, *const c_void, usize, CUstream);
    cuMemcpyDtoHAsync_v2(*mut c_void, CUdeviceptr, usize, CUstream);
    cuMemsetD8Async(CUdeviceptr, u8, usize, CUstream);
    cuIpcGetMemHandle(*mut CUipcMemHandle, CUdeviceptr);
    cuIpcOpenMemHandle_v2(*mut CUdeviceptr, CUipcMemHandle, c_uint);
    cuIpcCloseMemHandle(CUdeviceptr);
    cuMemGetAllocationGranularity(*mut usize, *const CUmemAllocationProp, CUmemAllocationGranularity_flags);
    cuMemCreate(*mut CUmemGenericAllocationHandle, usize, *const CUmemAllocationProp, c_ulonglong);
    cuMemRelease(CUmemGenericAllocationHandle);
    cuMemExportToShareableHandle(*mut c_void, CUmemGenericAllocationHandle, CUmemAllocationHandleType, c_ulonglong);
    cuMemImportFromShareableHandle(*mut CUmemGenericAllocationHandle, *mut c_void, CUmemAllocationHandleType);
    cuMemAddressReserve(*mut CUdeviceptr, usize, usize, CUdeviceptr, c_ulonglong);
    cuMemAddressFree(CUdeviceptr, usize);
    cuMemMap(CUdeviceptr, usize, usize, CUmemGenericAllocationHandle, c_ulonglong);
    cuMemUnmap(CUdeviceptr, usize);
    cuMemSetAccess(CUdeviceptr, usize, *const CUmemAccessDesc, usize);
}

/// The driver of this process, loaded by the first call.
///
/// # Errors
/// There is none, or it is too old.
pub(crate) fn driver() -> Result<&'static Table, Missing> {
    static DRIVER: OnceLock<Result<Table, Missing>> = OnceLock::new();
    DRIVER.get_or_init(Table::find).as_ref().map_err(|missing| *missing)
}

/// The name of a `CUresult`, if this driver knows it.
pub(crate) fn result_name(result: i32) -> Option<&'static str> {
    let entry = &driver().ok()?.cuGetErrorName;
    let mut name = ptr::null();
    // SAFETY: any number may be asked about, and the pointer is written to where one was made room for.
    entry.check(unsafe { (entry.call)(result, &raw mut name) }).ok()?;
    if name.is_null() {
        return None;
    }
    // SAFETY: it is one of the driver's own zero-terminated texts, which last as long as the library, and that is never
    // unloaded.
    unsafe { CStr::from_ptr(name) }.to_str().ok()
}

/// A function of the library, by its symbol. What follows the name there is its version.
fn entry<F: Copy>(symbol: &'static str) -> Result<Entry<F>, Missing> {
    static IS_THERE: OnceLock<bool> = OnceLock::new();
    // SAFETY: loading libcuda runs its initialization, which is made to be run in any program.
    if !IS_THERE.get_or_init(|| unsafe { sys::is_culib_present() }) {
        return Err(Missing::Library);
    }
    // SAFETY: as before. It does not panic, because it was there.
    let library = unsafe { sys::culib() };
    // SAFETY: it is only called by `Table::find` with the type that the table has for the symbol, and the compiler compared
    // that with the one that cudarc made from CUDA's header. Results are 32 bits in both.
    let found = unsafe { library.get::<F>(symbol.as_bytes()) };
    let name = symbol.strip_suffix("_v2").unwrap_or(symbol);
    found.map(|call| Entry { name, call: *call }).map_err(|_| Missing::Function(name))
}

/// A byte as C has it, with or without a sign.
const fn to_c(byte: u8) -> c_char {
    c_char::from_ne_bytes([byte])
}

/// A byte of C's.
const fn from_c(byte: c_char) -> u8 {
    let [byte] = byte.to_ne_bytes();
    byte
}

/// No `CUresult`, which are not negative: the function was not called, because this process was forked from the one that opened
/// the device.
pub(crate) const FORKED: i32 = -1;
/// `CUDA_ERROR_NOT_READY`
const NOT_READY: c_int = 600;
