//! The functions that C calls. This is the only file with unsafe code, and it does nothing but convert.
//!
//! Arguments have types that only a C caller can make: [`Out`], [`In`] and the others wrap a pointer that came from C, their
//! fields are private to this file, and nothing here makes one of a number. What CUDA's documentation demands of such a
//! pointer is what the `SAFETY` comments call the contract: it is null, or points to as much memory of its type as the call
//! says, which nobody else uses during the call.

use std::ffi::{CStr, c_char, c_void};
use std::os::fd::{BorrowedFd, IntoRawFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::OnceLock;

use crate::code::{Code, Result};
use crate::copy::{HostSource, When};
use crate::driver::{Call, Driver, complain};
use crate::entry_point::EntryPoint;
use crate::pinned::PinnedSlice;
use crate::pointer::{PointerAttribute, PointerValue};
use crate::storage::{u64_of, usize_of};
use crate::vmm::{AccessDesc, AllocationProp, Location};

/// Defines the exported functions, and finds them by their entry points: one that the table has and this has not, or the
/// other way round, does not compile.
macro_rules! entry_points {
    ($(fn $name:ident($($argument:ident: $type:ty),*) |$call:pat_param| $body:expr;)*) => {
        $(
            // SAFETY: the name is CUDA's, and this library stands for the one that has it.
            #[unsafe(no_mangle)]
            extern "C" fn $name($($argument: $type),*) -> Code {
                enter(EntryPoint::$name, |$call| $body)
            }
        )*

        fn function_of(entry_point: EntryPoint) -> *mut c_void {
            match entry_point { $(EntryPoint::$name => $name as *mut c_void,)* }
        }
    };
}

entry_points! {
    fn cuInit(flags: u32) |call| call.init(flags);
    fn cuDriverGetVersion(version: Out<i32>) |call| version.set(|| Ok(call.driver_version()));
    fn cuGetErrorName(code: Code, text: Out<*const c_char>) |_| describe(text, code.describe().map(|(name, _)| name));
    fn cuGetErrorString(code: Code, text: Out<*const c_char>) |_| describe(text, code.describe().map(|(_, text)| text));
    fn cuGetProcAddress_v2(symbol: Text, function: Out<*mut c_void>, version: i32, _flags: u64, status: Out<u32>)
        |call| symbol.with(|symbol| {
            let found = EntryPoint::of_symbol(symbol).filter(|_| version <= call.driver_version());
            status.set_if_wanted(u32::from(found.is_none()));
            function.set(|| Ok(found.map_or(ptr::null_mut(), function_of)))?;
            if found.is_some() { Ok(()) } else { Err(Code::NOT_FOUND) }
        });

    fn cuDeviceGetCount(count: Out<i32>) |call| count.set(|| Ok(call.device_count()));
    fn cuDeviceGet(device: Out<i32>, ordinal: i32) |call| device.set(|| call.device_get(ordinal));
    fn cuDeviceGetName(name: TextOut, len: i32, device: i32) |call| name.set(len, call.device_name(device)?);
    fn cuDeviceGetUuid(uuid: Out<[u8; 16]>, device: i32) |call| uuid.set(|| call.device_uuid(device));
    fn cuDeviceGetUuid_v2(uuid: Out<[u8; 16]>, device: i32) |call| uuid.set(|| call.device_uuid(device));
    fn cuDeviceGetAttribute(value: Out<i32>, attribute: i32, device: i32)
        |call| value.set(|| call.device_attribute(attribute, device));
    fn cuDeviceTotalMem_v2(bytes: Out<u64>, device: i32) |call| bytes.set(|| call.device_total_mem(device));
    fn cuDeviceGetPCIBusId(id: TextOut, len: i32, device: i32) |call| id.set(len, call.device_pci_bus_id(device)?);

    fn cuDevicePrimaryCtxRetain(context: Out<u64>, device: i32) |call| context.set(|| call.primary_ctx_retain(device));
    fn cuDevicePrimaryCtxRelease_v2(device: i32) |call| call.primary_ctx_release(device);
    fn cuDevicePrimaryCtxGetState(device: i32, flags: Out<u32>, active: Out<i32>) |call| {
        flags.set(|| Ok(0))?;
        active.set(|| call.primary_ctx_is_active(device).map(i32::from))
    };
    fn cuCtxPushCurrent_v2(context: u64) |call| call.ctx_push(context);
    fn cuCtxPopCurrent_v2(context: Out<u64>) |call| {
        context.set_if_wanted(call.ctx_pop()?);
        Ok(())
    };
    fn cuCtxSetCurrent(context: u64) |call| call.ctx_set(context);
    fn cuCtxGetCurrent(context: Out<u64>) |call| context.set(|| Ok(call.ctx_get()));
    fn cuCtxGetDevice(device: Out<i32>) |call| device.set(|| call.ctx_device());
    fn cuCtxSynchronize() |call| call.ctx_synchronize();
    fn cuCtxGetStreamPriorityRange(least: Out<i32>, greatest: Out<i32>) |_| {
        least.set_if_wanted(0);
        greatest.set_if_wanted(-5);
        Ok(())
    };

    fn cuMemAlloc_v2(address: Out<u64>, size: usize) |call| address.set(|| call.mem_alloc(u64_of(size)));
    fn cuMemFree_v2(address: u64) |call| call.mem_free(address);
    fn cuMemGetInfo_v2(free: Out<u64>, total: Out<u64>) |call| {
        let (bytes_free, bytes) = call.mem_get_info()?;
        free.set(|| Ok(bytes_free))?;
        total.set(|| Ok(bytes))
    };
    fn cuMemGetAddressRange_v2(base: Out<u64>, size: Out<u64>, address: u64) |call| {
        let (start, bytes) = call.mem_address_range(address)?;
        base.set_if_wanted(start);
        size.set_if_wanted(bytes);
        Ok(())
    };
    fn cuMemAllocHost_v2(pointer: Out<*mut c_void>, size: usize) |call| pointer.set(|| alloc_host(call, size));
    fn cuMemHostAlloc(pointer: Out<*mut c_void>, size: usize, _flags: u32)
        |call| pointer.set(|| alloc_host(call, size));
    fn cuMemFreeHost(pointer: *mut c_void) |call| call.mem_free_host(u64_of(pointer.addr()));
    fn cuMemAllocManaged(address: Out<u64>, size: usize, flags: u32)
        |call| address.set(|| call.mem_alloc_managed(u64_of(size), flags));
    fn cuMemAllocAsync(address: Out<u64>, size: usize, stream: u64)
        |call| address.set(|| call.mem_alloc_async(u64_of(size), stream));
    fn cuMemFreeAsync(address: u64, stream: u64) |call| call.mem_free_async(address, stream);
    fn cuPointerGetAttribute(value: AnyOut, attribute: u32, address: u64) |call| {
        value.set(call.pointer_attribute(PointerAttribute(attribute), address)?)
    };
    fn cuPointerGetAttributes(count: u32, attributes: In<u32>, values: In<AnyOut>, address: u64) |call| {
        let attributes = attributes.all(usize_of(count.into()))?;
        for (attribute, value) in attributes.iter().copied().map(PointerAttribute).zip(values.all(attributes.len())?) {
            let found = call.pointer_attribute(attribute, address);
            value.set(found.unwrap_or_else(|_| attribute.nothing()))?;
        }
        Ok(())
    };

    fn cuMemcpyHtoD_v2(to: u64, from: HostIn, len: usize) |call| call.copy_in(to, from.source(call, len)?, When::Now);
    fn cuMemcpyHtoDAsync_v2(to: u64, from: HostIn, len: usize, stream: u64)
        |call| call.copy_in(to, from.source(call, len)?, When::InStream(stream));
    fn cuMemcpyDtoH_v2(to: HostOut, from: u64, len: usize) |call| to.copy(call, from, len, When::Now);
    fn cuMemcpyDtoHAsync_v2(to: HostOut, from: u64, len: usize, stream: u64)
        |call| to.copy(call, from, len, When::InStream(stream));
    fn cuMemcpyDtoD_v2(to: u64, from: u64, len: usize) |call| call.copy_within(to, from, u64_of(len), When::Now);
    fn cuMemcpyDtoDAsync_v2(to: u64, from: u64, len: usize, stream: u64)
        |call| call.copy_within(to, from, u64_of(len), When::InStream(stream));
    fn cuMemcpyAsync(to: HostOut, from: HostIn, len: usize, stream: u64) |call| {
        match (to.on_device(), from.on_device()) {
            (Some(to), Some(from)) => call.copy_within(to, from, u64_of(len), When::InStream(stream)),
            (Some(to), None) => call.copy_in(to, from.source(call, len)?, When::InStream(stream)),
            (None, Some(from)) => to.copy(call, from, len, When::InStream(stream)),
            (None, None) => Err(Code::NOT_SUPPORTED),
        }
    };
    fn cuMemsetD8_v2(to: u64, byte: u8, len: usize) |call| call.set_bytes(to, byte, u64_of(len), When::Now);
    fn cuMemsetD8Async(to: u64, byte: u8, len: usize, stream: u64)
        |call| call.set_bytes(to, byte, u64_of(len), When::InStream(stream));

    fn cuIpcGetMemHandle(handle: Out<IpcHandle>, address: u64)
        |call| handle.set(|| call.ipc_get_mem_handle(address).map(IpcHandle));
    fn cuIpcOpenMemHandle_v2(address: Out<u64>, handle: IpcHandle, flags: u32)
        |call| address.set(|| call.ipc_open_mem_handle(&handle.0, flags));
    fn cuIpcCloseMemHandle(address: u64) |call| call.ipc_close_mem_handle(address);
    fn cuIpcGetEventHandle(handle: Out<IpcHandle>, event: u64)
        |call| handle.set(|| call.ipc_get_event_handle(event).map(IpcHandle));
    fn cuIpcOpenEventHandle(event: Out<u64>, handle: IpcHandle)
        |call| event.set(|| call.ipc_open_event_handle(&handle.0));

    fn cuEventCreate(event: Out<u64>, flags: u32) |call| event.set(|| call.event_create(flags));
    fn cuEventDestroy_v2(event: u64) |call| call.event_destroy(event);
    fn cuEventRecord(event: u64, stream: u64) |call| call.event_record(event, stream);
    fn cuEventQuery(event: u64) |call| call.event_query(event);
    fn cuEventSynchronize(event: u64) |call| call.event_synchronize(event);

    fn cuStreamCreate(stream: Out<u64>, flags: u32) |call| stream.set(|| call.stream_create(flags));
    fn cuStreamCreateWithPriority(stream: Out<u64>, flags: u32, _priority: i32)
        |call| stream.set(|| call.stream_create(flags));
    fn cuStreamDestroy_v2(stream: u64) |call| call.stream_destroy(stream);
    fn cuStreamSynchronize(stream: u64) |call| call.stream_synchronize(stream);
    fn cuStreamQuery(stream: u64) |call| call.stream_query(stream);
    fn cuStreamWaitEvent(stream: u64, event: u64, flags: u32) |call| call.stream_wait_event(stream, event, flags);
    fn cuLaunchHostFunc(stream: u64, function: Option<HostFunction>, data: usize) |call| {
        let function = function.ok_or(Code::INVALID_VALUE)?;
        // SAFETY: the contract of `cuLaunchHostFunc`: this may be called with that data once, on any thread.
        call.launch_host_function(stream, Box::new(move || unsafe { function(data) }))
    };

    fn cuMemGetAllocationGranularity(bytes: Out<u64>, prop: In<AllocationProp>, option: u32) |call| {
        if option > 1 {
            return Err(Code::INVALID_VALUE);
        }
        bytes.set(|| call.mem_granularity(&prop.get()?))
    };
    fn cuMemCreate(handle: Out<u64>, size: usize, prop: In<AllocationProp>, flags: u64)
        |call| handle.set(|| call.mem_create(u64_of(size), &prop.get()?, flags));
    fn cuMemRelease(handle: u64) |call| call.mem_release(handle);
    fn cuMemAddressReserve(address: Out<u64>, size: usize, alignment: usize, _wish: u64, flags: u64)
        |call| address.set(|| call.mem_address_reserve(u64_of(size), u64_of(alignment), flags));
    fn cuMemAddressFree(address: u64, size: usize) |call| call.mem_address_free(address, u64_of(size));
    fn cuMemMap(address: u64, size: usize, offset: usize, handle: u64, flags: u64)
        |call| call.mem_map(address, u64_of(size), u64_of(offset), handle, flags);
    fn cuMemUnmap(address: u64, size: usize) |call| call.mem_unmap(address, u64_of(size));
    fn cuMemSetAccess(address: u64, size: usize, descs: In<AccessDesc>, count: usize)
        |call| call.mem_set_access(address, u64_of(size), &descs.all(count)?);
    fn cuMemGetAccess(flags: Out<u64>, location: In<Location>, address: u64)
        |call| flags.set(|| call.mem_get_access(&location.get()?, address));
    fn cuMemExportToShareableHandle(fd: Out<RawFd>, handle: u64, handle_type: u32, flags: u64)
        |call| fd.set(|| call.mem_export(handle, handle_type, flags).map(IntoRawFd::into_raw_fd));
    fn cuMemImportFromShareableHandle(handle: Out<u64>, fd: usize, handle_type: u32)
        |call| handle.set(|| call.mem_import(duplicate(fd)?, handle_type));
    fn cuMemGetAllocationPropertiesFromHandle(prop: Out<AllocationProp>, handle: u64)
        |call| prop.set(|| call.mem_properties(handle));
}

/// Every call comes through here.
fn enter(entry_point: EntryPoint, body: impl FnOnce(&Call<'_>) -> Result<()>) -> Code {
    let Some(driver) = driver() else { return Code::SYSTEM_NOT_READY };
    match driver.call(entry_point).and_then(|call| body(&call)) {
        Ok(()) => Code::SUCCESS,
        Err(code) => code,
    }
}

/// The driver of this process, from its first call on.
fn driver() -> Option<&'static Driver> {
    DRIVER
        .get_or_init(|| {
            let driver =
                Driver::from_env().map_err(|error| complain(&format!("can't start: {error}"))).ok()?;
            // SAFETY: `finish` needs nothing but the driver, which is never dropped.
            let registered = unsafe { libc::atexit(finish) };
            if registered != 0 {
                complain("there will be no report");
            }
            Some(driver)
        })
        .as_ref()
}

extern "C" fn finish() {
    if let Some(Some(driver)) = DRIVER.get() {
        driver.finish();
    }
}

static DRIVER: OnceLock<Option<Driver>> = OnceLock::new();

type HostFunction = unsafe extern "C" fn(usize);

/// A `CUipcMemHandle` or `CUipcEventHandle`.
#[repr(C)]
struct IpcHandle([u8; 64]);

/// Where a result goes.
#[repr(transparent)]
struct Out<T>(*mut T);

impl<T> Out<T> {
    /// Makes the result and puts it there. Nothing is made if there is no place for it.
    fn set(self, make: impl FnOnce() -> Result<T>) -> Result<()> {
        if self.0.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        let value = make()?;
        // SAFETY: not null, hence by the contract valid for a write of a `T`.
        unsafe { self.0.write_unaligned(value) };
        Ok(())
    }

    fn set_if_wanted(self, value: T) {
        // Null means that the caller does not want it.
        let _ = self.set(|| Ok(value));
    }
}

/// Arguments that the caller has: one, or an array.
#[repr(transparent)]
struct In<T>(*const T);

impl<T> In<T> {
    fn get(self) -> Result<T> {
        if self.0.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: not null, hence by the contract valid for a read of a `T`, which is plain data.
        Ok(unsafe { self.0.read_unaligned() })
    }

    fn all(self, count: usize) -> Result<Vec<T>> {
        if self.0.is_null() && count > 0 {
            return Err(Code::INVALID_VALUE);
        }
        (0..count).map(|index| Self(self.0.wrapping_add(index)).get()).collect()
    }
}

/// Where a result goes whose type depends on what was asked for.
#[repr(transparent)]
struct AnyOut(*mut c_void);

impl AnyOut {
    fn set(self, value: PointerValue) -> Result<()> {
        match value {
            PointerValue::Word(word) => Out(self.0.cast()).set(|| Ok(word)),
            PointerValue::Long(long) => Out(self.0.cast()).set(|| Ok(long)),
        }
    }
}

/// Host memory that is read. If it can be both, an address may be the device's as well.
#[repr(transparent)]
struct HostIn(*const u8);

impl HostIn {
    fn on_device(&self) -> Option<u64> {
        on_device(self.0.addr())
    }

    fn source(self, call: &Call<'_>, len: usize) -> Result<HostSource> {
        if let Some(slice) = call.pinned(u64_of(self.0.addr()), u64_of(len))? {
            return Ok(HostSource::Pinned(slice));
        }
        let mut bytes = vec![0; len];
        if len > 0 && self.0.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: by the contract `len` bytes are there to be read; the other `len` are new.
        unsafe { ptr::copy_nonoverlapping(self.0, bytes.as_mut_ptr(), len) };
        Ok(HostSource::Bytes(bytes))
    }
}

/// Host memory that is written.
#[repr(transparent)]
struct HostOut(*mut u8);

impl HostOut {
    fn on_device(&self) -> Option<u64> {
        on_device(self.0.addr())
    }

    fn copy(self, call: &Call<'_>, from: u64, len: usize, when: When) -> Result<()> {
        if let Some(slice) = call.pinned(u64_of(self.0.addr()), u64_of(len))? {
            return call.copy_out_pinned(slice, from, when);
        }
        if len > 0 && self.0.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        let bytes = call.copy_out(from, u64_of(len), when)?;
        // SAFETY: by the contract there is room for `len` bytes, of which there are no more; they are new, so nobody's.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), self.0, bytes.len().min(len)) };
        Ok(())
    }
}

/// Text that the caller has.
#[repr(transparent)]
struct Text(*const c_char);

impl Text {
    fn with(self, body: impl FnOnce(&str) -> Result<()>) -> Result<()> {
        if self.0.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: not null, hence by the contract text that ends in a zero and stays as it is during the call.
        let text = unsafe { CStr::from_ptr(self.0) };
        body(text.to_str().map_err(|_| Code::INVALID_VALUE)?)
    }
}

/// Where text goes.
#[repr(transparent)]
struct TextOut(*mut u8);

impl TextOut {
    /// What does not fit is cut off; there is always a zero at the end.
    fn set(self, len: i32, text: &str) -> Result<()> {
        let room = usize::try_from(len)
            .ok()
            .filter(|room| *room > 0 && !self.0.is_null())
            .ok_or(Code::INVALID_VALUE)?;
        let bytes: Vec<u8> = text.bytes().take(room - 1).chain([0]).collect();
        // SAFETY: not null, hence by the contract room for `len` bytes, and these are no more; they are new, so nobody's.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), self.0, bytes.len()) };
        Ok(())
    }
}

fn describe(text: Out<*const c_char>, found: Option<&'static CStr>) -> Result<()> {
    text.set(|| Ok(found.map_or(ptr::null(), CStr::as_ptr)))?;
    found.map(drop).ok_or(Code::INVALID_VALUE)
}

fn alloc_host(call: &Call<'_>, size: usize) -> Result<*mut c_void> {
    call.mem_alloc_host(u64_of(size)).map(|slice: PinnedSlice| slice.as_ptr())
}

/// An address of device memory: above all of the host's.
fn on_device(address: usize) -> Option<u64> {
    Some(u64_of(address)).filter(|address| address >> 48 != 0)
}

/// A copy of the caller's descriptor.
fn duplicate(fd: usize) -> Result<OwnedFd> {
    let fd = RawFd::try_from(fd).map_err(|_| Code::INVALID_VALUE)?;
    // SAFETY: at least 0. By the contract it is open, and stays so during the call.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    fd.try_clone_to_owned().map_err(|_| Code::INVALID_VALUE)
}
