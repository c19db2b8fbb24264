//! Legacy IPC: [`MemHandle`] and [`EventHandle`], which are 64 opaque bytes to everybody else.

use std::path::PathBuf;
use std::sync::Arc;

use crate::code::{Code, Result};
use crate::driver::Call;
use crate::event::{Cells, Origin, event_name, waiters_name};
use crate::memory::{GRANULE, Kind, Range, block_name};
use crate::session::Identity;
use crate::storage::Storage;

/// What a `CUipcMemHandle` says: a block of device memory of another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_structs, reason = "tests forge handles")]
pub struct MemHandle {
    /// Whose it is.
    pub owner: Identity,
    /// The number of the block there.
    pub block: u64,
    /// Its device.
    pub uuid: [u8; 16],
}

/// What a `CUipcEventHandle` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "tests forge handles")]
pub struct EventHandle {
    /// Whose it is.
    pub owner: Identity,
    /// The number of the event there.
    pub event: u64,
}

impl MemHandle {
    /// The 64 bytes.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; 64] {
        encode(*MEMORY_MAGIC, &self.owner, self.block, self.uuid)
    }

    /// From the 64 bytes. `None` if they are no handle of memory.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; 64]) -> Option<Self> {
        let (owner, block, uuid) = decode(*MEMORY_MAGIC, bytes)?;
        Some(Self { owner, block, uuid })
    }
}

impl EventHandle {
    /// The 64 bytes.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; 64] {
        encode(*EVENT_MAGIC, &self.owner, self.event, [0; 16])
    }

    /// From the 64 bytes. `None` if they are no handle of an event.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; 64]) -> Option<Self> {
        let (owner, event, _) = decode(*EVENT_MAGIC, bytes)?;
        Some(Self { owner, event })
    }
}

impl Call<'_> {
    /// `cuIpcGetMemHandle`: of the whole block that this address lies in.
    ///
    /// # Errors
    /// [`Code::INVALID_VALUE`] for other than memory of `cuMemAlloc`, [`Code::NOT_SUPPORTED`] if IPC is refused.
    pub fn ipc_get_mem_handle(&self, address: u64) -> Result<[u8; 64]> {
        self.must_have_ipc()?;
        let uuid = self.device()?.uuid;
        let mut state = self.state();
        let (base, _) = state.memory.find(address).ok_or(Code::INVALID_VALUE)?;
        match state.memory.ranges.get_mut(&base) {
            Some(Range { kind: Kind::Plain { block, exported }, .. }) => {
                *exported = true;
                Ok(MemHandle { owner: self.driver.identity, block: *block, uuid }.to_bytes())
            }
            _ => Err(Code::INVALID_VALUE),
        }
    }

    /// `cuIpcOpenMemHandle`: the address of the block's base. Opened again it is the same, and must be closed as often.
    ///
    /// # Errors
    /// [`Code::INVALID_CONTEXT`] in the process that exported it, and if that can't be seen (pid namespaces) or is dead.
    /// [`Code::INVALID_VALUE`] if the memory is gone, on another device, for flags other than
    /// `CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS` and for what is no handle. [`Code::ALREADY_MAPPED`] if it is open and shall not
    /// be opened twice. [`Code::NOT_SUPPORTED`] if IPC is refused.
    pub fn ipc_open_mem_handle(&self, bytes: &[u8; 64], flags: u32) -> Result<u64> {
        self.must_have_ipc()?;
        let handle =
            MemHandle::from_bytes(bytes).filter(|_| flags == LAZY_PEER_ACCESS).ok_or(Code::INVALID_VALUE)?;
        let path = self.path_of(&handle.owner, &block_name(handle.block))?;
        if handle.uuid != self.device()?.uuid {
            return Err(Code::INVALID_VALUE);
        }
        let mut state = self.state();
        if let Some(base) = state.memory.imports.get(&handle).copied() {
            if self.driver.config.ipc_reopen_fails {
                return Err(Code::ALREADY_MAPPED);
            }
            if let Some(Range { kind: Kind::Import { opens, .. }, .. }) = state.memory.ranges.get_mut(&base) {
                *opens += 1;
            }
            return Ok(base);
        }
        let storage = Storage::of_another(&path).map_err(|_| Code::INVALID_VALUE)?;
        let size = storage.len()?;
        let base = state.memory.take_addresses(size, GRANULE)?;
        let (id, kind) = (state.new_id(), Kind::Import { handle, opens: 1 });
        state.memory.ranges.insert(base, Range::new(id, self.current, kind, Arc::new(storage), 0..size));
        state.memory.imports.insert(handle, base);
        Ok(base)
    }

    /// `cuIpcCloseMemHandle`, which waits for the device. It is a violation to close memory that work on a stream uses.
    ///
    /// # Errors
    /// [`Code::INVALID_VALUE`] for what `cuIpcOpenMemHandle` did not return, [`Code::TIMEOUT`] if a stream does not get on.
    pub fn ipc_close_mem_handle(&self, address: u64) -> Result<()> {
        let state = self.state();
        let device = match state.memory.ranges.get(&address) {
            Some(range @ Range { kind: Kind::Import { opens, .. }, .. }) => {
                if *opens == 1 {
                    self.must_be_idle(address, range);
                }
                range.device
            }
            _ => {
                self.violation(&format!("{address:#x} is not open"));
                return Err(Code::INVALID_VALUE);
            }
        };
        drop(state);
        self.wait_for_device(device)?;
        let mut state = self.state();
        if let Some(Range { kind: Kind::Import { handle, opens }, .. }) =
            state.memory.ranges.get_mut(&address)
        {
            *opens -= 1;
            if *opens == 0 {
                let handle = *handle;
                state.memory.imports.remove(&handle);
                state.memory.ranges.remove(&address);
            }
        }
        Ok(())
    }

    /// `cuIpcGetEventHandle`.
    ///
    /// # Errors
    /// [`Code::INVALID_HANDLE`] for other than an interprocess event of this process, [`Code::NOT_SUPPORTED`] if IPC is
    /// refused.
    pub fn ipc_get_event_handle(&self, event: u64) -> Result<[u8; 64]> {
        self.must_have_ipc()?;
        match self.event_origin(event)? {
            Origin::Exported { id, .. } => {
                Ok(EventHandle { owner: self.driver.identity, event: id }.to_bytes())
            }
            Origin::Private | Origin::Imported { .. } => Err(Code::INVALID_HANDLE),
        }
    }

    /// `cuIpcOpenEventHandle`: an event that `cuEventDestroy` closes.
    ///
    /// # Errors
    /// As [`Call::ipc_open_mem_handle`], but [`Code::INVALID_HANDLE`] if the event is gone.
    pub fn ipc_open_event_handle(&self, bytes: &[u8; 64]) -> Result<u64> {
        self.must_have_ipc()?;
        let handle = EventHandle::from_bytes(bytes).ok_or(Code::INVALID_VALUE)?;
        let path = self.path_of(&handle.owner, &event_name(handle.event))?;
        let waiters = self.path_of(&handle.owner, &waiters_name(handle.event))?;
        let cells = Cells::of_another(&path).map_err(|_| Code::INVALID_HANDLE)?;
        let mut state = self.state();
        let id = state.new_id();
        Ok(self.add_event(&mut state, id, Origin::Imported { waiters }, cells))
    }

    fn must_have_ipc(&self) -> Result<()> {
        if self.driver.config.ipc_refused { Err(Code::NOT_SUPPORTED) } else { Ok(()) }
    }

    /// Where a file of another process is, if that process can be seen.
    fn path_of(&self, owner: &Identity, name: &str) -> Result<PathBuf> {
        if *owner == self.driver.identity || !owner.is_visible() {
            return Err(Code::INVALID_CONTEXT);
        }
        Ok(self.driver.session.path_of(owner, name))
    }
}

fn encode(magic: [u8; 8], owner: &Identity, number: u64, uuid: [u8; 16]) -> [u8; 64] {
    let mut bytes = [0; 64];
    let words = [u64::from(owner.pid), owner.start, owner.nonce, number].map(u64::to_le_bytes);
    let parts = magic.iter().chain(words.as_flattened()).chain(&uuid);
    for (to, from) in bytes.iter_mut().zip(parts) {
        *to = *from;
    }
    bytes
}

fn decode(magic: [u8; 8], bytes: &[u8; 64]) -> Option<(Identity, u64, [u8; 16])> {
    let (found, rest) = bytes.split_first_chunk::<8>()?;
    let (words, rest) = rest.as_chunks::<8>();
    let [pid, start, nonce, number, uuid_1, uuid_2, unused] = words.try_into().ok()?;
    let whole = *found == magic && rest.is_empty() && unused == [0; 8];
    let [start, nonce, number] = [start, nonce, number].map(u64::from_le_bytes);
    let pid = u32::try_from(u64::from_le_bytes(pid)).ok()?;
    let uuid = [uuid_1, uuid_2].as_flattened().try_into().ok()?;
    whole.then_some((Identity { pid, start, nonce }, number, uuid))
}

/// The only flag, which must be given.
const LAZY_PEER_ACCESS: u32 = 1;
const MEMORY_MAGIC: &[u8; 8] = b"FAKEIPCM";
const EVENT_MAGIC: &[u8; 8] = b"FAKEIPCE";
