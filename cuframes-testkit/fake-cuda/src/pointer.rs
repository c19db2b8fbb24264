//! What a pointer is: `cuPointerGetAttribute`.

use crate::code::{Code, Result};
use crate::context::handle_of;
use crate::driver::Call;
use crate::memory::{Kind, Range};

/// What an attribute of a pointer has, in the size that its caller made room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "C needs all of them")]
pub enum PointerValue {
    /// 32 bits.
    Word(u32),
    /// 64 bits, addresses and handles too.
    Long(u64),
}

/// A `CUpointer_attribute`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "any number may come")]
pub struct PointerAttribute(pub u32);

impl PointerAttribute {
    /// The context that the memory belongs to; 0 for mapped memory.
    pub const CONTEXT: Self = Self(1);
    /// 1 host, 2 device.
    pub const MEMORY_TYPE: Self = Self(2);
    /// The address for the device.
    pub const DEVICE_POINTER: Self = Self(3);
    /// The address for the host.
    pub const HOST_POINTER: Self = Self(4);
    /// Whether copies wait for the host.
    pub const SYNC_MEMOPS: Self = Self(6);
    /// A number of the memory that is never used again.
    pub const BUFFER_ID: Self = Self(7);
    /// Whether it is of `cuMemAllocManaged`.
    pub const IS_MANAGED: Self = Self(8);
    /// The device's ordinal.
    pub const DEVICE_ORDINAL: Self = Self(9);
    /// Whether `cuIpcGetMemHandle` takes it.
    pub const IS_LEGACY_IPC_CAPABLE: Self = Self(10);
    /// Where its memory begins.
    pub const RANGE_START: Self = Self(11);
    /// Bytes of its memory.
    pub const RANGE_SIZE: Self = Self(12);
    /// Whether it is mapped to an address.
    pub const MAPPED: Self = Self(13);
    /// Types of handles as which it can be exported.
    pub const ALLOWED_HANDLE_TYPES: Self = Self(14);
    /// 0 nothing, 1 read, 3 read and write.
    pub const ACCESS_FLAGS: Self = Self(16);
    /// The pool that it is from; 0 if none.
    pub const MEMPOOL_HANDLE: Self = Self(17);

    /// What it is for a pointer to nothing.
    pub(crate) const fn nothing(self) -> PointerValue {
        match self {
            Self::CONTEXT
            | Self::DEVICE_POINTER
            | Self::HOST_POINTER
            | Self::BUFFER_ID
            | Self::RANGE_START
            | Self::RANGE_SIZE
            | Self::ALLOWED_HANDLE_TYPES
            | Self::MEMPOOL_HANDLE => PointerValue::Long(0),
            _ => PointerValue::Word(0),
        }
    }
}

impl Call<'_> {
    /// `cuPointerGetAttribute`.
    ///
    /// # Errors
    /// [`Code::INVALID_VALUE`] for pageable memory and for attributes that it has not.
    pub fn pointer_attribute(&self, attribute: PointerAttribute, address: u64) -> Result<PointerValue> {
        let state = self.state();
        if let Some((base, range)) = state.memory.find(address) {
            return of_device_memory(attribute, address, base, range);
        }
        let (base, pinned) = state.pinned.range(..=address).next_back().ok_or(Code::INVALID_VALUE)?;
        if address - base >= pinned.size() {
            return Err(Code::INVALID_VALUE);
        }
        Ok(match attribute {
            PointerAttribute::CONTEXT => PointerValue::Long(handle_of(pinned.device)),
            PointerAttribute::MEMORY_TYPE | PointerAttribute::MAPPED => PointerValue::Word(1),
            PointerAttribute::DEVICE_POINTER | PointerAttribute::HOST_POINTER => PointerValue::Long(address),
            PointerAttribute::BUFFER_ID => PointerValue::Long(pinned.id),
            PointerAttribute::DEVICE_ORDINAL => ordinal(pinned.device),
            PointerAttribute::RANGE_START => PointerValue::Long(*base),
            PointerAttribute::RANGE_SIZE => PointerValue::Long(pinned.size()),
            PointerAttribute::ACCESS_FLAGS => PointerValue::Word(3),
            other => known(other)?,
        })
    }
}

fn of_device_memory(
    attribute: PointerAttribute,
    address: u64,
    base: u64,
    range: &Range,
) -> Result<PointerValue> {
    let is = |yes: bool| PointerValue::Word(u32::from(yes));
    let context = if matches!(range.kind, Kind::Mapping { .. }) { 0 } else { handle_of(range.device) };
    let (handle_types, access) = match &range.kind {
        Kind::Mapping { physical, access } => {
            (physical.handle_types, access.get(&range.device).copied().unwrap_or_default())
        }
        _ => (0, 3),
    };
    Ok(match attribute {
        PointerAttribute::CONTEXT => PointerValue::Long(context),
        PointerAttribute::MEMORY_TYPE => PointerValue::Word(2),
        PointerAttribute::DEVICE_POINTER => PointerValue::Long(address),
        PointerAttribute::HOST_POINTER => return Err(Code::INVALID_VALUE),
        PointerAttribute::BUFFER_ID => PointerValue::Long(range.id),
        PointerAttribute::IS_MANAGED => is(matches!(range.kind, Kind::Managed)),
        PointerAttribute::DEVICE_ORDINAL => ordinal(range.device),
        PointerAttribute::IS_LEGACY_IPC_CAPABLE => is(matches!(range.kind, Kind::Plain { .. })),
        PointerAttribute::RANGE_START => PointerValue::Long(base),
        PointerAttribute::RANGE_SIZE => PointerValue::Long(range.size),
        PointerAttribute::MAPPED => is(true),
        PointerAttribute::ALLOWED_HANDLE_TYPES => PointerValue::Long(u64::from(handle_types)),
        PointerAttribute::ACCESS_FLAGS => PointerValue::Word(u32::try_from(access).unwrap_or_default()),
        PointerAttribute::MEMPOOL_HANDLE if matches!(range.kind, Kind::Pool) => PointerValue::Long(THE_POOL),
        other => known(other)?,
    })
}

/// 0 for attributes that there are, but that this memory has not.
fn known(attribute: PointerAttribute) -> Result<PointerValue> {
    if (1..=17).contains(&attribute.0) { Ok(attribute.nothing()) } else { Err(Code::INVALID_VALUE) }
}

fn ordinal(device: usize) -> PointerValue {
    PointerValue::Word(u32::try_from(device).unwrap_or(u32::MAX))
}

/// All stream-ordered memory is of one pool.
const THE_POOL: u64 = 0xB0_0100_0000_0001;
