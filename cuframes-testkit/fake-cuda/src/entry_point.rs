//! The one table of what the library exports: [`EntryPoint`]. Faults, counts, names and the prologue of every call come
//! from it, and `abi.rs` does not compile if it lacks one of them.

use std::fmt;

/// What must be so before a call does anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Needs {
    /// May be called at any time, from a host function too.
    Nothing,
    /// May be called before `cuInit`, but not from a host function.
    Driver,
    /// `cuInit`.
    Init,
    /// `cuInit` and a current context.
    Context,
}

macro_rules! entry_points {
    ($($name:ident: $needs:ident,)*) => {
        /// A function that the library exports, by its exported name.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[expect(non_camel_case_types, missing_docs, reason = "these are CUDA's names, documented by CUDA")]
        #[non_exhaustive]
        pub enum EntryPoint { $($name,)* }

        impl EntryPoint {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// Its exported name.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => stringify!($name),)* }
            }

            pub(crate) const fn needs(self) -> Needs {
                match self { $(Self::$name => Needs::$needs,)* }
            }
        }
    };
}

entry_points! {
    cuInit: Driver,
    cuDriverGetVersion: Driver,
    cuGetErrorName: Nothing,
    cuGetErrorString: Nothing,
    cuGetProcAddress_v2: Driver,

    cuDeviceGetCount: Init,
    cuDeviceGet: Init,
    cuDeviceGetName: Init,
    cuDeviceGetUuid: Init,
    cuDeviceGetUuid_v2: Init,
    cuDeviceGetAttribute: Init,
    cuDeviceTotalMem_v2: Init,
    cuDeviceGetPCIBusId: Init,

    cuDevicePrimaryCtxRetain: Init,
    cuDevicePrimaryCtxRelease_v2: Init,
    cuDevicePrimaryCtxGetState: Init,
    cuCtxPushCurrent_v2: Init,
    cuCtxPopCurrent_v2: Init,
    cuCtxSetCurrent: Init,
    cuCtxGetCurrent: Init,
    cuCtxGetDevice: Context,
    cuCtxSynchronize: Context,
    cuCtxGetStreamPriorityRange: Context,

    cuMemAlloc_v2: Context,
    cuMemFree_v2: Context,
    cuMemGetInfo_v2: Context,
    cuMemGetAddressRange_v2: Context,
    cuMemAllocHost_v2: Context,
    cuMemHostAlloc: Context,
    cuMemFreeHost: Context,
    cuMemAllocManaged: Context,
    cuMemAllocAsync: Context,
    cuMemFreeAsync: Context,
    cuPointerGetAttribute: Context,
    cuPointerGetAttributes: Context,

    cuMemcpyHtoD_v2: Context,
    cuMemcpyHtoDAsync_v2: Context,
    cuMemcpyDtoH_v2: Context,
    cuMemcpyDtoHAsync_v2: Context,
    cuMemcpyDtoD_v2: Context,
    cuMemcpyDtoDAsync_v2: Context,
    cuMemcpyAsync: Context,
    cuMemsetD8_v2: Context,
    cuMemsetD8Async: Context,

    cuIpcGetMemHandle: Context,
    cuIpcOpenMemHandle_v2: Context,
    cuIpcCloseMemHandle: Context,
    cuIpcGetEventHandle: Context,
    cuIpcOpenEventHandle: Context,

    cuEventCreate: Context,
    cuEventDestroy_v2: Context,
    cuEventRecord: Context,
    cuEventQuery: Context,
    cuEventSynchronize: Context,

    cuStreamCreate: Context,
    cuStreamCreateWithPriority: Context,
    cuStreamDestroy_v2: Context,
    cuStreamSynchronize: Context,
    cuStreamQuery: Context,
    cuStreamWaitEvent: Context,
    cuLaunchHostFunc: Context,

    cuMemGetAllocationGranularity: Init,
    cuMemCreate: Init,
    cuMemRelease: Init,
    cuMemAddressReserve: Init,
    cuMemAddressFree: Init,
    cuMemMap: Init,
    cuMemUnmap: Init,
    cuMemSetAccess: Init,
    cuMemGetAccess: Init,
    cuMemExportToShareableHandle: Init,
    cuMemImportFromShareableHandle: Init,
    cuMemGetAllocationPropertiesFromHandle: Init,
}

impl EntryPoint {
    /// The one that is exported under this name.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|entry_point| entry_point.name() == name)
    }

    /// The one that `cuGetProcAddress` finds: callers leave the version in the name out, and get the newest.
    pub(crate) fn of_symbol(symbol: &str) -> Option<Self> {
        Self::of_name(&format!("{symbol}_v2")).or_else(|| Self::of_name(symbol))
    }
}

impl fmt::Display for EntryPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
