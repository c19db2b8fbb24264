//! The devices of the made-up machine: [`Device`].

use std::collections::BTreeMap;

use crate::code::{Code, Result};
use crate::config::Config;
use crate::driver::Call;

/// A device that this process sees.
#[derive(Debug)]
pub(crate) struct Device {
    /// Its number in the machine, the same for all processes. Its number here is its place in the list.
    pub(crate) physical: usize,
    pub(crate) uuid: [u8; 16],
    name: String,
    bus_id: String,
    attributes: BTreeMap<i32, i32>,
}

impl Device {
    /// The devices that a process with this configuration sees, in its order.
    pub(crate) fn all(config: &Config) -> Vec<Self> {
        let visible = config.visible.clone().unwrap_or_else(|| (0..config.devices).collect());
        visible.into_iter().map(|physical| Self::new(physical, config)).collect()
    }

    fn new(physical: usize, config: &Config) -> Self {
        let number = u8::try_from(physical).unwrap_or(u8::MAX);
        let bus = number.saturating_add(1);
        let mut attributes: BTreeMap<i32, i32> = USUAL_ATTRIBUTES.into();
        attributes.insert(PCI_BUS_ID, i32::from(bus));
        attributes.extend(&config.attributes);
        Self {
            physical,
            uuid: uuid(config.uuid_seed, number),
            name: match &config.name {
                Some(name) => format!("{name} (fake CUDA device, test double)"),
                None => "fake CUDA device (test double)".to_owned(),
            },
            bus_id: format!("0000:{bus:02X}:00.0"),
            attributes,
        }
    }

    /// What it says about itself. Attributes without a usual value are 0.
    pub(crate) fn attribute(&self, number: i32) -> i32 {
        self.attributes.get(&number).copied().unwrap_or_default()
    }

    /// # Errors
    /// [`Code::NOT_SUPPORTED`] if it says that it can't do this.
    pub(crate) fn must(&self, attribute: i32) -> Result<()> {
        if self.attribute(attribute) == 0 { Err(Code::NOT_SUPPORTED) } else { Ok(()) }
    }
}

impl Call<'_> {
    /// `cuDriverGetVersion`: 1000 × major + 10 × minor.
    #[must_use]
    pub fn driver_version(&self) -> i32 {
        self.driver.config.driver_version
    }

    /// `cuDeviceGetCount`.
    #[must_use]
    pub fn device_count(&self) -> i32 {
        i32::try_from(self.driver.devices.len()).unwrap_or(i32::MAX)
    }

    /// `cuDeviceGet`.
    ///
    /// # Errors
    /// [`Code::INVALID_DEVICE`]
    pub fn device_get(&self, ordinal: i32) -> Result<i32> {
        self.device_of(ordinal).map(|_| ordinal)
    }

    /// `cuDeviceGetName`.
    ///
    /// # Errors
    /// [`Code::INVALID_DEVICE`]
    pub fn device_name(&self, device: i32) -> Result<&str> {
        Ok(&self.device_of(device)?.name)
    }

    /// `cuDeviceGetUuid`.
    ///
    /// # Errors
    /// [`Code::INVALID_DEVICE`]
    pub fn device_uuid(&self, device: i32) -> Result<[u8; 16]> {
        Ok(self.device_of(device)?.uuid)
    }

    /// `cuDeviceGetPCIBusId`, as `domain:bus:device.function`.
    ///
    /// # Errors
    /// [`Code::INVALID_DEVICE`]
    pub fn device_pci_bus_id(&self, device: i32) -> Result<&str> {
        Ok(&self.device_of(device)?.bus_id)
    }

    /// `cuDeviceGetAttribute`.
    ///
    /// # Errors
    /// [`Code::INVALID_DEVICE`], or [`Code::INVALID_VALUE`] for a number that is no attribute.
    pub fn device_attribute(&self, attribute: i32, device: i32) -> Result<i32> {
        let device = self.device_of(device)?;
        if !(1..=LAST_ATTRIBUTE).contains(&attribute) {
            return Err(Code::INVALID_VALUE);
        }
        Ok(device.attribute(attribute))
    }

    /// `cuDeviceTotalMem`, in bytes.
    ///
    /// # Errors
    /// [`Code::INVALID_DEVICE`]
    pub fn device_total_mem(&self, device: i32) -> Result<u64> {
        self.device_of(device)?;
        Ok(self.driver.config.memory)
    }

    /// `cuMemGetInfo`: bytes that are free on the current device, and that it has.
    ///
    /// # Errors
    /// Of the operating system.
    pub fn mem_get_info(&self) -> Result<(u64, u64)> {
        let used = self.driver.session.used(self.device()?.physical)?;
        let total = self.driver.config.memory;
        Ok((total.saturating_sub(used), total))
    }

    /// The ordinal of a `CUdevice`.
    pub(crate) fn ordinal(&self, device: i32) -> Result<usize> {
        let ordinal = usize::try_from(device).map_err(|_| Code::INVALID_DEVICE)?;
        if ordinal < self.driver.devices.len() { Ok(ordinal) } else { Err(Code::INVALID_DEVICE) }
    }

    pub(crate) fn device_of(&self, device: i32) -> Result<&Device> {
        self.driver.devices.get(self.ordinal(device)?).ok_or(Code::INVALID_DEVICE)
    }
}

/// Sixteen bytes that depend on both, with the marks of a random UUID. SplitMix64 spreads them.
fn uuid(seed: u64, number: u8) -> [u8; 16] {
    let mut state = seed.wrapping_mul(0x100).wrapping_add(u64::from(number));
    let mut next = || {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    };
    let mut words = (u128::from(next()) << 64) | u128::from(next());
    words &= !(0xF << 76 | 0x3 << 62);
    words |= 0x4 << 76 | 0x2 << 62;
    words.to_be_bytes()
}

const PCI_BUS_ID: i32 = 33;
/// Whether `cuMemCreate` and the like work.
pub(crate) const VIRTUAL_MEMORY: i32 = 102;
/// Whether their memory can be exported as a file descriptor.
pub(crate) const POSIX_HANDLES: i32 = 103;
/// Whether `cuMemAllocAsync` works.
pub(crate) const MEMORY_POOLS: i32 = 115;
/// Whether `cuMemAllocManaged` works.
pub(crate) const MANAGED_MEMORY: i32 = 83;
/// Whether interprocess events work.
pub(crate) const IPC_EVENTS: i32 = 125;
/// The last one that our `cuda.h` would name.
const LAST_ATTRIBUTE: i32 = 162;

const USUAL_ATTRIBUTES: [(i32, i32); 20] = [
    (1, 1024),       // threads per block
    (10, 32),        // threads per warp
    (13, 1_500_000), // kHz
    (16, 16),        // multiprocessors
    (19, 1),         // can map host memory
    (31, 1),         // concurrent kernels
    (36, 8_000_000), // kHz of memory
    (37, 256),       // bits of the memory bus
    (38, 4 << 20),   // bytes of L2
    (40, 2),         // copy engines
    (41, 1),         // unified addressing
    (75, 8),         // compute capability
    (76, 9),         // and its minor part
    (78, 1),         // stream priorities
    (MANAGED_MEMORY, 1),
    (VIRTUAL_MEMORY, 1),
    (POSIX_HANDLES, 1),
    (MEMORY_POOLS, 1),
    (119, 1), // pools: file descriptors
    (IPC_EVENTS, 1),
];
