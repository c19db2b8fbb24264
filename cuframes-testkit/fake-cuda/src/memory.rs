//! Device memory by its address: allocations, what is imported, what is mapped. [`Memory`] knows what lies where.
//!
//! An address is a number above every address that the host may have. Each process has addresses of its own, and none is
//! used twice, so a pointer of another process, or of memory that is gone, is noticed.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range as Span;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::blocks::{Block, Blocks};
use crate::code::{Code, Result};
use crate::device::{MANAGED_MEMORY, MEMORY_POOLS};
use crate::driver::{Call, State};
use crate::ipc::MemHandle;
use crate::session::Identity;
use crate::storage::{Segment, Storage};
use crate::vmm::Physical;

/// What memory holds when it is new: something, but not zeros.
pub const NEW_MEMORY: u8 = 0xA5;
/// What memory holds that was freed while another process had it open.
pub const FREED_MEMORY: u8 = 0xDD;
/// Bytes that memory is made and shared in.
pub const GRANULE: u64 = 2 << 20;

/// What lies where.
#[derive(Debug)]
pub(crate) struct Memory {
    next: u64,
    end: u64,
    pub(crate) ranges: BTreeMap<u64, Range>,
    pub(crate) blocks: Blocks,
    /// Where memory of others is open.
    pub(crate) imports: HashMap<MemHandle, u64>,
}

/// Memory that lies at one address.
#[derive(Debug)]
pub(crate) struct Range {
    /// A number that no other memory of this process ever has.
    pub(crate) id: u64,
    /// Bytes that may be used.
    pub(crate) size: u64,
    /// Ordinal of the device.
    pub(crate) device: usize,
    pub(crate) kind: Kind,
    pub(crate) storage: Arc<Storage>,
    /// Where it begins in the storage.
    pub(crate) offset: u64,
    /// Work on streams that uses it holds a copy.
    in_use: Arc<()>,
}

/// How memory came to its address.
#[derive(Debug)]
pub(crate) enum Kind {
    /// `cuMemAlloc`, and whether somebody asked for a handle of it.
    Plain { block: u64, exported: bool },
    /// `cuMemAllocAsync`
    Pool,
    /// `cuMemAllocManaged`
    Managed,
    /// `cuIpcOpenMemHandle`
    Import { handle: MemHandle, opens: u32 },
    /// `cuMemMap`, and what each device may do (`CUmemAccess_flags`).
    Mapping { physical: Arc<Physical>, access: BTreeMap<usize, u64> },
}

impl Memory {
    pub(crate) fn new(owner: &Identity) -> Self {
        // Drivers of one process have addresses of their own, too.
        let drivers = DRIVERS.fetch_add(1, Ordering::Relaxed);
        let next = FIRST_ADDRESS + (u64::from(owner.pid % 4096) * 16 + drivers % 16) * SPACE;
        Self {
            next,
            end: next + SPACE,
            ranges: BTreeMap::new(),
            blocks: Blocks::default(),
            imports: HashMap::new(),
        }
    }

    /// Addresses for `size` bytes, with a gap behind them.
    pub(crate) fn take_addresses(&mut self, size: u64, alignment: u64) -> Result<u64> {
        let alignment = alignment.max(GRANULE);
        let base = self.next.checked_next_multiple_of(alignment).ok_or(Code::OUT_OF_MEMORY)?;
        let size = size.checked_next_multiple_of(GRANULE).ok_or(Code::OUT_OF_MEMORY)?;
        let end = base.checked_add(size).filter(|end| *end <= self.end).ok_or(Code::OUT_OF_MEMORY)?;
        self.next = end + GRANULE;
        Ok(base)
    }

    /// The memory that this address lies in, and where that begins.
    pub(crate) fn find(&self, address: u64) -> Option<(u64, &Range)> {
        let (base, range) = self.ranges.range(..=address).next_back()?;
        (address - base < range.size).then_some((*base, range))
    }

    /// The parts of memory that `len` bytes from this address on lie in, if a device may use all of them so.
    fn segments(&self, address: u64, len: u64, device: usize, access: Access) -> Option<Vec<Segment>> {
        let mut segments = Vec::new();
        let mut done = 0;
        while done < len {
            let at = address.checked_add(done)?;
            let (base, range) = self.find(at)?;
            if !range.lets(device, access) {
                return None;
            }
            let here = (range.size - (at - base)).min(len - done);
            segments.push(Segment {
                storage: Arc::clone(&range.storage),
                offset: range.offset + (at - base),
                len: here,
                _in_use: Arc::clone(&range.in_use),
            });
            done += here;
        }
        Some(segments)
    }

    /// Where the mappings begin that make up exactly these addresses.
    pub(crate) fn mappings(&self, address: u64, size: u64) -> Option<Vec<u64>> {
        let end = address.checked_add(size).filter(|end| *end > address)?;
        let mut bases = Vec::new();
        let mut at = address;
        while at < end {
            let range = self.ranges.get(&at).filter(|range| matches!(range.kind, Kind::Mapping { .. }))?;
            bases.push(at);
            at += range.size;
        }
        (at == end).then_some(bases)
    }

    pub(crate) fn count_allocations(&self) -> u64 {
        self.count(|kind| matches!(kind, Kind::Plain { .. } | Kind::Pool | Kind::Managed))
    }

    pub(crate) fn count_imports(&self) -> u64 {
        self.count(|kind| matches!(kind, Kind::Import { .. }))
    }

    pub(crate) fn count_mappings(&self) -> u64 {
        self.count(|kind| matches!(kind, Kind::Mapping { .. }))
    }

    /// Whether there is memory that belongs to a device's context. Mappings do not.
    pub(crate) fn is_on(&self, device: usize) -> bool {
        self.ranges
            .values()
            .any(|range| range.device == device && !matches!(range.kind, Kind::Mapping { .. }))
    }

    fn count(&self, which: impl Fn(&Kind) -> bool) -> u64 {
        self.ranges.values().map(|range| u64::from(which(&range.kind))).sum()
    }
}

impl Range {
    pub(crate) fn new(id: u64, device: usize, kind: Kind, storage: Arc<Storage>, span: Span<u64>) -> Self {
        let size = span.end - span.start;
        Self { id, size, device, kind, storage, offset: span.start, in_use: Arc::new(()) }
    }

    /// Whether work on a stream uses it.
    pub(crate) fn is_in_use(&self) -> bool {
        Arc::strong_count(&self.in_use) > 1
    }

    fn lets(&self, device: usize, access: Access) -> bool {
        match &self.kind {
            Kind::Mapping { access: granted, .. } => {
                let bit = match access {
                    Access::Read => 1,
                    Access::Write => 2,
                };
                granted.get(&device).is_some_and(|granted| granted & bit != 0)
            }
            _ => true,
        }
    }
}

/// What work does to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
}

impl Call<'_> {
    /// `cuMemAlloc`: at least `size` bytes, which hold [`NEW_MEMORY`]. Below [`GRANULE`] they share a block with others.
    ///
    /// # Errors
    /// [`Code::INVALID_VALUE`] for 0 bytes, [`Code::OUT_OF_MEMORY`].
    pub fn mem_alloc(&self, size: u64) -> Result<u64> {
        if size == 0 {
            return Err(Code::INVALID_VALUE);
        }
        let mut state = self.state();
        let (id, device) = (state.new_id(), self.current);
        let (block, offset) = match state.memory.blocks.place(device, size) {
            Some(place) => place,
            None => (self.new_block(&mut state, size)?, 0),
        };
        let Some(Block { id: block, base, storage, parts, .. }) = state.memory.blocks.get_mut(block) else {
            return Err(Code::UNKNOWN);
        };
        parts.insert(offset, size);
        let (block, address, storage) = (*block, *base + offset, Arc::clone(storage));
        if let Err(error) = storage.fill(offset, size, NEW_MEMORY) {
            state.memory.blocks.free(block, offset);
            return Err(error.into());
        }
        let kind = Kind::Plain { block, exported: false };
        let range = Range::new(id, device, kind, storage, offset..offset + size);
        state.memory.ranges.insert(address, range);
        Ok(address)
    }

    /// `cuMemAllocAsync`: the memory may be used at once, and by no legacy IPC.
    ///
    /// # Errors
    /// As [`Call::mem_alloc`], and for an unknown stream.
    pub fn mem_alloc_async(&self, size: u64, stream: u64) -> Result<u64> {
        self.device()?.must(MEMORY_POOLS)?;
        self.stream(stream)?;
        self.alloc_nameless(size, Kind::Pool)
    }

    /// `cuMemAllocManaged`. Only copies reach it: the host can't use its address here.
    ///
    /// # Errors
    /// As [`Call::mem_alloc`], and [`Code::INVALID_VALUE`] for flags that are neither 1 nor 2.
    pub fn mem_alloc_managed(&self, size: u64, flags: u32) -> Result<u64> {
        self.device()?.must(MANAGED_MEMORY)?;
        if !matches!(flags, 1 | 2) {
            return Err(Code::INVALID_VALUE);
        }
        self.alloc_nameless(size, Kind::Managed)
    }

    /// `cuMemFree`, which waits for the device. It is a violation to free memory that work on a stream uses, or that another
    /// process has open.
    ///
    /// # Errors
    /// [`Code::INVALID_VALUE`] for what no allocation begins with, [`Code::TIMEOUT`] if a stream does not get on.
    pub fn mem_free(&self, address: u64) -> Result<()> {
        let gone = "where no allocation begins";
        let state = self.state();
        let device = match state.memory.ranges.get(&address) {
            None => Err(gone),
            Some(Range { kind: Kind::Import { .. }, .. }) => Err("of memory of another process"),
            Some(Range { kind: Kind::Mapping { .. }, .. }) => Err("of mapped memory"),
            Some(range) => {
                self.must_be_idle(address, range);
                Ok(range.device)
            }
        };
        drop(state);
        let refuse = |why_not| {
            self.violation(&format!("{address:#x} {why_not}"));
            Code::INVALID_VALUE
        };
        self.wait_for_device(device.map_err(refuse)?)?;
        let mut state = self.state();
        let range = state.memory.ranges.remove(&address).ok_or(gone).map_err(refuse)?;
        let Kind::Plain { block, exported } = range.kind else { return Ok(()) };
        if exported && range.storage.is_used_elsewhere()? {
            self.violation(&format!("{address:#x} while another process has it open"));
            range.storage.fill(range.offset, range.size, FREED_MEMORY)?;
        }
        state.memory.blocks.free(block, range.offset);
        Ok(())
    }

    /// `cuMemFreeAsync`: no later call may use the memory, work that is in a stream already may.
    ///
    /// # Errors
    /// [`Code::INVALID_VALUE`] for other than an allocation, and for an unknown stream.
    pub fn mem_free_async(&self, address: u64, stream: u64) -> Result<()> {
        self.stream(stream)?;
        let mut state = self.state();
        match state.memory.ranges.get(&address) {
            Some(Range { kind: Kind::Pool, .. }) => {
                state.memory.ranges.remove(&address);
                Ok(())
            }
            _ => {
                self.violation(&format!("{address:#x} is not of cuMemAllocAsync"));
                Err(Code::INVALID_VALUE)
            }
        }
    }

    /// `cuMemGetAddressRange`: where the allocation that this address lies in begins, and its bytes. Of memory of another
    /// process that is the whole block.
    ///
    /// # Errors
    /// [`Code::INVALID_VALUE`] if there is no memory there.
    pub fn mem_address_range(&self, address: u64) -> Result<(u64, u64)> {
        let state = self.state();
        let (base, range) = state.memory.find(address).ok_or(Code::INVALID_VALUE)?;
        Ok((base, range.size))
    }

    /// The memory that work on a stream is about to use.
    pub(crate) fn segments(&self, address: u64, len: u64, access: Access) -> Result<Vec<Segment>> {
        let state = self.state();
        state.memory.segments(address, len, self.current, access).ok_or_else(|| {
            let verb = if access == Access::Read { "read" } else { "write" };
            self.violation(&format!("can't {verb} {len} bytes at {address:#x}"));
            Code::INVALID_VALUE
        })
    }

    /// Memory that is about to go must not be in use.
    pub(crate) fn must_be_idle(&self, address: u64, range: &Range) {
        if range.is_in_use() {
            self.violation(&format!("{address:#x} while work on a stream uses it"));
        }
    }

    fn new_block(&self, state: &mut State, size: u64) -> Result<u64> {
        let id = state.new_id();
        let size = size.checked_next_multiple_of(GRANULE).ok_or(Code::OUT_OF_MEMORY)?;
        let session = &self.driver.session;
        let claim = session.claim(self.device()?.physical, size, self.driver.config.memory)?;
        let storage = Storage::named(session.path(&block_name(id)), size, claim)?;
        let base = state.memory.take_addresses(size, GRANULE)?;
        let parts = BTreeMap::new();
        state.memory.blocks.add(Block {
            id,
            base,
            size,
            device: self.current,
            storage: Arc::new(storage),
            parts,
        });
        Ok(id)
    }

    fn alloc_nameless(&self, size: u64, kind: Kind) -> Result<u64> {
        let whole = size.checked_next_multiple_of(GRANULE).filter(|_| size > 0).ok_or(Code::INVALID_VALUE)?;
        let claim = self.driver.session.claim(self.device()?.physical, whole, self.driver.config.memory)?;
        let storage = Storage::nameless(whole, claim)?;
        storage.fill(0, size, NEW_MEMORY)?;
        let mut state = self.state();
        let id = state.new_id();
        let address = state.memory.take_addresses(size, GRANULE)?;
        let range = Range::new(id, self.current, kind, Arc::new(storage), 0..size);
        state.memory.ranges.insert(address, range);
        Ok(address)
    }
}

/// What a block's file is called.
pub(crate) fn block_name(id: u64) -> String {
    format!("m{id}")
}

/// Above every address of user space, with four levels of page tables and with five unless somebody asks for them.
const FIRST_ADDRESS: u64 = 1 << 48;
/// Addresses of a process.
const SPACE: u64 = 1 << 39;

static DRIVERS: AtomicU64 = AtomicU64::new(0);
