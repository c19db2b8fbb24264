//! Virtual memory management: memory that is made, reserved addresses, and what is mapped where. [`Virtual`] knows the first
//! two, [`Memory`](crate::memory::Memory) the last.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use rustix::io::{FdFlags, fcntl_setfd};

use crate::code::{Code, Result};
use crate::device::{POSIX_HANDLES, VIRTUAL_MEMORY};
use crate::driver::Call;
use crate::memory::{GRANULE, Kind, NEW_MEMORY, Range};
use crate::storage::Storage;

/// A `CUmemLocation`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "C has it like this")]
#[repr(C)]
pub struct Location {
    /// 1 is a device.
    pub kind: u32,
    /// Which one.
    pub id: i32,
}

/// A `CUmemAllocationProp`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "C has it like this")]
#[repr(C)]
pub struct AllocationProp {
    /// 1 is pinned, which is all there is.
    pub kind: u32,
    /// Bits of handle types. 1 is a POSIX file descriptor.
    pub handle_types: u32,
    /// Where the memory is to be.
    pub location: Location,
    /// Of no use here.
    pub win32_meta_data: usize,
    /// Compression and the like, of no use here.
    pub flags: [u8; 8],
}

impl AllocationProp {
    /// Memory of a device that can be exported as these types of handle.
    #[must_use]
    pub fn on(device: i32, handle_types: u32) -> Self {
        Self {
            kind: PINNED,
            handle_types,
            location: Location::device(device),
            win32_meta_data: 0,
            flags: [0; 8],
        }
    }
}

impl Location {
    /// On this device.
    #[must_use]
    pub const fn device(id: i32) -> Self {
        Self { kind: DEVICE, id }
    }
}

/// A `CUmemAccessDesc`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "C has it like this")]
#[repr(C)]
pub struct AccessDesc {
    /// Who may.
    pub location: Location,
    /// 0 nothing, 1 read, 3 read and write.
    pub flags: u32,
}

/// Memory that was made, and addresses that are reserved.
#[derive(Debug, Default)]
pub(crate) struct Virtual {
    handles: BTreeMap<u64, Arc<Physical>>,
    /// Base and bytes.
    reservations: BTreeMap<u64, u64>,
}

impl Virtual {
    pub(crate) fn count_handles(&self) -> u64 {
        self.handles.values().map(|_| 1).sum()
    }

    pub(crate) fn count_reservations(&self) -> u64 {
        self.reservations.values().map(|_| 1).sum()
    }
}

/// Memory of `cuMemCreate`. It is there as long as it has a handle anywhere, or is mapped anywhere.
#[derive(Debug)]
pub(crate) struct Physical {
    storage: Arc<Storage>,
    size: u64,
    /// Ordinal of the device.
    device: usize,
    pub(crate) handle_types: u32,
}

impl Call<'_> {
    /// `cuMemGetAllocationGranularity`, in bytes.
    ///
    /// # Errors
    /// As [`Call::mem_create`].
    pub fn mem_granularity(&self, prop: &AllocationProp) -> Result<u64> {
        self.check(prop).map(|_| GRANULE)
    }

    /// `cuMemCreate`: memory that holds [`NEW_MEMORY`].
    ///
    /// # Errors
    /// [`Code::INVALID_VALUE`] for sizes that are no multiple of [`GRANULE`] and for flags, [`Code::INVALID_DEVICE`],
    /// [`Code::NOT_SUPPORTED`] if the device can't, [`Code::OUT_OF_MEMORY`].
    pub fn mem_create(&self, size: u64, prop: &AllocationProp, flags: u64) -> Result<u64> {
        let device = self.check(prop)?;
        if flags != 0 || !is_granular(size) {
            return Err(Code::INVALID_VALUE);
        }
        let made = self.driver.devices.get(device).ok_or(Code::INVALID_DEVICE)?;
        let claim = self.driver.session.claim(made.physical, size, self.driver.config.memory)?;
        let storage = Storage::nameless(size + LABEL_LEN, claim)?;
        storage.fill(0, size, NEW_MEMORY)?;
        Label { size, uuid: made.uuid, handle_types: prop.handle_types }.write(storage.file(), size)?;
        Ok(self.add_handle(storage, size, device, prop.handle_types))
    }

    /// `cuMemRelease`: the memory stays where it is mapped.
    ///
    /// # Errors
    /// [`Code::INVALID_VALUE`]
    pub fn mem_release(&self, handle: u64) -> Result<()> {
        let released = self.state().virtual_memory.handles.remove(&handle);
        released.map(drop).ok_or(Code::INVALID_VALUE)
    }

    /// `cuMemAddressReserve`. A wish for an address is not granted.
    ///
    /// # Errors
    /// [`Code::INVALID_VALUE`] for sizes that are no multiple of [`GRANULE`], odd alignments and flags.
    pub fn mem_address_reserve(&self, size: u64, alignment: u64, flags: u64) -> Result<u64> {
        if flags != 0 || !is_granular(size) || !(alignment == 0 || alignment.is_power_of_two()) {
            return Err(Code::INVALID_VALUE);
        }
        let mut state = self.state();
        let base = state.memory.take_addresses(size, alignment)?;
        state.virtual_memory.reservations.insert(base, size);
        Ok(base)
    }

    /// `cuMemAddressFree`: of a whole reservation, in which nothing is mapped.
    ///
    /// # Errors
    /// [`Code::INVALID_VALUE`]
    pub fn mem_address_free(&self, base: u64, size: u64) -> Result<()> {
        let mut state = self.state();
        if state.virtual_memory.reservations.get(&base) != Some(&size) {
            return Err(Code::INVALID_VALUE);
        }
        if state.memory.ranges.range(base..base + size).next().is_some() {
            self.violation(&format!("something is mapped at {base:#x}"));
            return Err(Code::INVALID_VALUE);
        }
        state.virtual_memory.reservations.remove(&base);
        Ok(())
    }

    /// `cuMemMap`, which gives nobody access yet.
    ///
    /// # Errors
    /// [`Code::INVALID_VALUE`] for other than free addresses of one reservation, offsets other than 0 (CUDA has none yet),
    /// sizes that are no multiple of [`GRANULE`] or more than there is, and flags.
    pub fn mem_map(&self, address: u64, size: u64, offset: u64, handle: u64, flags: u64) -> Result<()> {
        let mut state = self.state();
        let physical = state.virtual_memory.handles.get(&handle).cloned().ok_or(Code::INVALID_VALUE)?;
        let granular = is_granular(size) && address.is_multiple_of(GRANULE);
        if flags != 0 || offset != 0 || !granular || size > physical.size {
            return Err(Code::INVALID_VALUE);
        }
        let reservation = state.virtual_memory.reservations.range(..=address).next_back();
        let (base, reserved) = reservation.ok_or(Code::INVALID_VALUE)?;
        let end =
            address.checked_add(size).filter(|end| *end <= base + reserved).ok_or(Code::INVALID_VALUE)?;
        let before = state.memory.find(address).is_some();
        if before || state.memory.ranges.range(address..end).next().is_some() {
            return Err(Code::INVALID_VALUE);
        }
        let (id, device, storage) = (state.new_id(), physical.device, Arc::clone(&physical.storage));
        let kind = Kind::Mapping { physical, access: BTreeMap::new() };
        state.memory.ranges.insert(address, Range::new(id, device, kind, storage, 0..size));
        Ok(())
    }

    /// `cuMemUnmap`: of whole mappings. It waits for their device, and it is a violation to unmap what work on a stream uses.
    ///
    /// # Errors
    /// [`Code::INVALID_VALUE`], [`Code::TIMEOUT`] if a stream does not get on.
    pub fn mem_unmap(&self, address: u64, size: u64) -> Result<()> {
        let state = self.state();
        let bases = state.memory.mappings(address, size).ok_or(Code::INVALID_VALUE)?;
        let mut devices = BTreeSet::new();
        for (base, range) in bases.iter().filter_map(|base| Some((*base, state.memory.ranges.get(base)?))) {
            self.must_be_idle(base, range);
            devices.insert(range.device);
        }
        drop(state);
        devices.into_iter().try_for_each(|device| self.wait_for_device(device))?;
        let mut state = self.state();
        for base in bases {
            state.memory.ranges.remove(&base);
        }
        Ok(())
    }

    /// `cuMemSetAccess`: of whole mappings.
    ///
    /// # Errors
    /// [`Code::INVALID_VALUE`] if not all of it is mapped, and for flags; [`Code::INVALID_DEVICE`];
    /// [`Code::NOT_SUPPORTED`] for reading only, if devices can't.
    pub fn mem_set_access(&self, address: u64, size: u64, descs: &[AccessDesc]) -> Result<()> {
        let mut granted = Vec::new();
        for desc in descs {
            if !matches!(desc.flags, 0 | 1 | 3) {
                return Err(Code::INVALID_VALUE);
            }
            if desc.flags == READ_ONLY && self.driver.config.read_only_refused {
                return Err(Code::NOT_SUPPORTED);
            }
            granted.push((self.ordinal_at(&desc.location)?, u64::from(desc.flags)));
        }
        let mut state = self.state();
        let bases = state.memory.mappings(address, size).ok_or(Code::INVALID_VALUE)?;
        for base in bases {
            if let Some(Range { kind: Kind::Mapping { access, .. }, .. }) = state.memory.ranges.get_mut(&base)
            {
                access.extend(granted.iter().copied());
            }
        }
        Ok(())
    }

    /// `cuMemGetAccess`: what the location may do with mapped memory.
    ///
    /// # Errors
    /// [`Code::INVALID_VALUE`] if nothing is mapped there, [`Code::INVALID_DEVICE`].
    pub fn mem_get_access(&self, location: &Location, address: u64) -> Result<u64> {
        let device = self.ordinal_at(location)?;
        match self.state().memory.find(address) {
            Some((_, Range { kind: Kind::Mapping { access, .. }, .. })) => {
                Ok(access.get(&device).copied().unwrap_or_default())
            }
            _ => Err(Code::INVALID_VALUE),
        }
    }

    /// `cuMemExportToShareableHandle`, as a file descriptor. The caller closes it. Children inherit it: CUDA promises nothing else.
    ///
    /// # Errors
    /// [`Code::INVALID_VALUE`] if the memory was not made for that, and for flags.
    pub fn mem_export(&self, handle: u64, handle_type: u32, flags: u64) -> Result<OwnedFd> {
        let state = self.state();
        let physical = state.virtual_memory.handles.get(&handle).ok_or(Code::INVALID_VALUE)?;
        if flags != 0 || handle_type != POSIX_FD || physical.handle_types & POSIX_FD == 0 {
            return Err(Code::INVALID_VALUE);
        }
        let fd = OwnedFd::from(physical.storage.file().try_clone()?);
        fcntl_setfd(&fd, FdFlags::empty())?;
        Ok(fd)
    }

    /// `cuMemImportFromShareableHandle`. The descriptor is a copy: the caller keeps theirs.
    ///
    /// # Errors
    /// [`Code::INVALID_VALUE`] for what is no such memory, [`Code::INVALID_DEVICE`] if this process does not see its device.
    pub fn mem_import(&self, fd: OwnedFd, handle_type: u32) -> Result<u64> {
        if handle_type != POSIX_FD {
            return Err(Code::INVALID_VALUE);
        }
        let file = File::from(fd);
        let label = Label::read(&file).ok().flatten().ok_or(Code::INVALID_VALUE)?;
        let mut devices = self.driver.devices.iter();
        let device = devices.position(|device| device.uuid == label.uuid).ok_or(Code::INVALID_DEVICE)?;
        Ok(self.add_handle(Storage::from_file(file), label.size, device, label.handle_types))
    }

    /// `cuMemGetAllocationPropertiesFromHandle`.
    ///
    /// # Errors
    /// [`Code::INVALID_VALUE`]
    pub fn mem_properties(&self, handle: u64) -> Result<AllocationProp> {
        let state = self.state();
        let physical = state.virtual_memory.handles.get(&handle).ok_or(Code::INVALID_VALUE)?;
        let device = i32::try_from(physical.device).map_err(|_| Code::UNKNOWN)?;
        Ok(AllocationProp::on(device, physical.handle_types))
    }

    fn add_handle(&self, storage: Storage, size: u64, device: usize, handle_types: u32) -> u64 {
        let mut state = self.state();
        let handle = HANDLES + state.new_id();
        let physical = Physical { storage: Arc::new(storage), size, device, handle_types };
        state.virtual_memory.handles.insert(handle, Arc::new(physical));
        handle
    }

    /// The ordinal of the device that memory shall be on, if that is possible.
    fn check(&self, prop: &AllocationProp) -> Result<usize> {
        if prop.kind != PINNED {
            return Err(Code::INVALID_VALUE);
        }
        let ordinal = self.ordinal_at(&prop.location)?;
        let device = self.driver.devices.get(ordinal).ok_or(Code::INVALID_DEVICE)?;
        device.must(VIRTUAL_MEMORY)?;
        match prop.handle_types {
            0 => Ok(ordinal),
            POSIX_FD => device.must(POSIX_HANDLES).map(|()| ordinal),
            _ => Err(Code::NOT_SUPPORTED),
        }
    }

    fn ordinal_at(&self, location: &Location) -> Result<usize> {
        if location.kind == DEVICE { self.ordinal(location.id) } else { Err(Code::INVALID_VALUE) }
    }
}

/// What stands behind the memory in its file, so that whoever gets the descriptor knows what it is.
#[derive(Debug)]
struct Label {
    size: u64,
    uuid: [u8; 16],
    handle_types: u32,
}

impl Label {
    fn write(&self, file: &File, at: u64) -> io::Result<()> {
        let size = self.size.to_le_bytes();
        let handle_types = u64::from(self.handle_types).to_le_bytes();
        let bytes: Vec<u8> = [*MAGIC, size, handle_types].into_iter().flatten().chain(self.uuid).collect();
        file.write_all_at(&bytes, at)
    }

    fn read(file: &File) -> io::Result<Option<Self>> {
        let Some(size) = file.metadata()?.len().checked_sub(LABEL_LEN) else { return Ok(None) };
        let mut words = [[0; 8]; 5];
        file.read_exact_at(words.as_flattened_mut(), size)?;
        let [magic, named, handle_types, uuid_1, uuid_2] = words;
        let uuid = [uuid_1, uuid_2].as_flattened().try_into().ok();
        let handle_types = u32::try_from(u64::from_le_bytes(handle_types)).ok();
        let is_ours = magic == *MAGIC && u64::from_le_bytes(named) == size;
        Ok(uuid.zip(handle_types).filter(|_| is_ours).map(|(uuid, handle_types)| Self {
            size,
            uuid,
            handle_types,
        }))
    }
}

fn is_granular(size: u64) -> bool {
    size > 0 && size.is_multiple_of(GRANULE)
}

const MAGIC: &[u8; 8] = b"FAKEVMM1";
const LABEL_LEN: u64 = 40;
/// `CU_MEM_ACCESS_FLAGS_PROT_READ`
const READ_ONLY: u32 = 1;
const PINNED: u32 = 1;
const DEVICE: u32 = 1;
/// The handle type of a file descriptor.
const POSIX_FD: u32 = 1;
const HANDLES: u64 = 0x3E_0000_0000_0000;
