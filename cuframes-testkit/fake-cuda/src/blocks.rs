//! The blocks that `cuMemAlloc` cuts its memory from: [`Blocks`].
//!
//! Like the driver's, a block has a multiple of 2 MiB, and allocations of less share one. A handle of legacy IPC is of the
//! whole block, whichever part of it somebody asked for.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::memory::GRANULE;
use crate::storage::Storage;

/// All blocks of a process, by their ids.
#[derive(Debug, Default)]
pub(crate) struct Blocks(BTreeMap<u64, Block>);

/// Memory of one device, and a file.
#[derive(Debug)]
pub(crate) struct Block {
    pub(crate) id: u64,
    /// Its address in this process.
    pub(crate) base: u64,
    pub(crate) size: u64,
    /// Ordinal of its device.
    pub(crate) device: usize,
    pub(crate) storage: Arc<Storage>,
    /// What is allocated of it: offset and bytes.
    pub(crate) parts: BTreeMap<u64, u64>,
}

impl Blocks {
    pub(crate) fn get_mut(&mut self, id: u64) -> Option<&mut Block> {
        self.0.get_mut(&id)
    }

    pub(crate) fn add(&mut self, block: Block) {
        self.0.insert(block.id, block);
    }

    /// A block of this device that has room for a small allocation, and where in it.
    pub(crate) fn place(&self, device: usize, size: u64) -> Option<(u64, u64)> {
        let mut shared = self.0.values().filter(|block| block.device == device && block.size == GRANULE);
        shared.find_map(|block| block.gap(size).map(|offset| (block.id, offset)))
    }

    /// Frees a part of a block, and the block with its last part.
    pub(crate) fn free(&mut self, id: u64, offset: u64) {
        let Some(block) = self.0.get_mut(&id) else { return };
        block.parts.remove(&offset);
        if block.parts.is_empty() {
            block.storage.unlink();
            self.0.remove(&id);
        }
    }
}

impl Block {
    /// The first place with room for so many bytes.
    fn gap(&self, size: u64) -> Option<u64> {
        let mut start = 0;
        for (offset, len) in &self.parts {
            if offset.saturating_sub(start) >= size && *offset > start {
                return Some(start);
            }
            start = (offset + len).next_multiple_of(ALIGNMENT);
        }
        (start.checked_add(size)? <= self.size).then_some(start)
    }
}

/// `cuMemAlloc` aligns to this.
const ALIGNMENT: u64 = 512;
