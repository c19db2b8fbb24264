//! What the driver says about itself, devices and pointers.

use std::ffi::{c_char, c_int};

use cudarc::driver::sys::{CUdevice, CUdevice_attribute, CUpointer_attribute, CUuuid};

use super::{Context, Failed, Table, from_c};
use crate::uuid::Uuid;

impl Table {
    /// Lets the driver begin. Once is enough, more does no harm.
    pub(crate) fn init(&self) -> Result<(), Failed> {
        let entry = &self.cuInit;
        // SAFETY: it takes nothing but flags, of which there are none.
        entry.check(unsafe { (entry.call)(0) })
    }

    /// The newest CUDA version that the driver can do: 1000 times the major number plus 10 times the minor number.
    pub(crate) fn version(&self) -> Result<i32, Failed> {
        let entry = &self.cuDriverGetVersion;
        let mut version = 0;
        // SAFETY: the driver writes an integer where there is room for one.
        entry.check(unsafe { (entry.call)(&raw mut version) })?;
        Ok(version)
    }

    /// How many devices this process may use.
    pub(crate) fn device_count(&self) -> Result<i32, Failed> {
        let entry = &self.cuDeviceGetCount;
        let mut count = 0;
        // SAFETY: the driver writes an integer where there is room for one.
        entry.check(unsafe { (entry.call)(&raw mut count) })?;
        Ok(count)
    }

    /// The device with this ordinal.
    pub(crate) fn device(&self, ordinal: i32) -> Result<CUdevice, Failed> {
        let entry = &self.cuDeviceGet;
        let mut device = 0;
        // SAFETY: the driver checks the ordinal, and writes an integer where there is room for one.
        entry.check(unsafe { (entry.call)(&raw mut device, ordinal) })?;
        Ok(device)
    }

    /// What the device is called.
    pub(crate) fn device_name(&self, device: CUdevice) -> Result<String, Failed> {
        let entry = &self.cuDeviceGetName;
        let mut name: [c_char; NAME] = [0; NAME];
        // SAFETY: the driver checks the device, and writes at most as many bytes as it is told that there are.
        entry.check(unsafe { (entry.call)((&raw mut name).cast(), NAME_LEN, device) })?;
        let bytes = name.iter().map(|c| from_c(*c)).take_while(|byte| *byte != 0).collect::<Vec<u8>>();
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// What the device is, whichever ordinal it has (C-13). A part of a GPU has one of its own.
    pub(crate) fn device_uuid(&self, device: CUdevice) -> Result<Uuid, Failed> {
        let name = self.device_name(device)?;
        let entry = &self.cuDeviceGetUuid_v2;
        let mut uuid = CUuuid { bytes: [0; 16] };
        // SAFETY: the driver checks the device, and writes 16 bytes where there is room for them.
        entry.check(unsafe { (entry.call)(&raw mut uuid, device) })?;
        Ok(Uuid::new(uuid.bytes.map(from_c), &name))
    }

    /// A property of the device.
    pub(crate) fn device_attribute(
        &self,
        device: CUdevice,
        attribute: CUdevice_attribute,
    ) -> Result<i32, Failed> {
        let entry = &self.cuDeviceGetAttribute;
        let mut value = 0;
        // SAFETY: the driver checks the device, and writes an integer where there is room for one.
        entry.check(unsafe { (entry.call)(&raw mut value, attribute, device) })?;
        Ok(value)
    }
}

impl Context {
    /// One of the properties of a pointer that are 32 bits long or less; the rest is zero.
    pub(crate) fn pointer_attribute(&self, pointer: u64, attribute: PointerAttribute) -> Result<u32, Failed> {
        let _bound = self.bind()?;
        let entry = &self.table.cuPointerGetAttribute;
        let mut value = 0_u32;
        // SAFETY: any number may be asked about. All that `PointerAttribute` names write four bytes or fewer, and there is
        // room for four.
        entry.check(unsafe { (entry.call)((&raw mut value).cast(), attribute.code(), pointer) })?;
        Ok(value)
    }
}

/// Properties of pointers, of four bytes at most.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PointerAttribute {
    /// A `CUmemorytype`.
    MemoryType,
    /// Whether it is managed memory.
    IsManaged,
    /// The device that has it.
    DeviceOrdinal,
    /// Whether a legacy IPC handle can be made of it.
    IsIpcCapable,
}

impl PointerAttribute {
    const fn code(self) -> CUpointer_attribute {
        match self {
            Self::MemoryType => CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
            Self::IsManaged => CUpointer_attribute::CU_POINTER_ATTRIBUTE_IS_MANAGED,
            Self::DeviceOrdinal => CUpointer_attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
            Self::IsIpcCapable => CUpointer_attribute::CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
        }
    }
}

/// Longest name of a device, with the zero at its end, in bytes.
const NAME: usize = 256;
/// The same, as the driver takes it.
const NAME_LEN: c_int = 256;
