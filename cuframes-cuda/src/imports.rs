//! [`Shared`]: allocations of other processes, each opened once in this process, however often it is asked for (C-11).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cuframes_core::gpu::Call;

use crate::error::CudaError;
use crate::ffi::{Context, Failed, Imported, Place};

/// An allocation of another process that is open while this lives.
#[derive(Debug)]
pub(crate) struct Shared {
    key: Key,
    /// `None` once it is closed.
    imported: Option<Arc<Imported>>,
}

/// Device and handle.
type Key = (i32, [u8; 64]);

/// An allocation, and how many have it.
#[derive(Debug)]
struct Entry {
    imported: Arc<Imported>,
    users: usize,
}

impl Shared {
    /// Opens it, or joins who has it open. The driver is called under the lock, so that nobody opens what another thread is
    /// closing.
    pub(crate) fn open(context: &Arc<Context>, handle: &[u8; 64]) -> Result<Self, CudaError> {
        let key = (context.device(), *handle);
        let mut cache = cache();
        let imported = if let Some(entry) = cache.get_mut(&key) {
            entry.users += 1;
            Arc::clone(&entry.imported)
        } else {
            let opened = Imported::open(context, handle);
            let imported = Arc::new(opened.map_err(CudaError::during(Call::OpenMem))?);
            cache.insert(key, Entry { imported: Arc::clone(&imported), users: 1 });
            imported
        };
        Ok(Self { key, imported: Some(imported) })
    }

    /// Where the allocation starts.
    pub(crate) fn address(&self) -> u64 {
        self.imported.as_ref().map_or(0, |imported| imported.address())
    }

    /// All of it, which is `size` bytes.
    pub(crate) fn place(&self, size: usize) -> Option<Place<'_>> {
        self.imported.as_ref().map(|imported| imported.place(size))
    }

    /// Closes it, if nobody else has it.
    pub(crate) fn close(mut self) -> Result<(), Failed> {
        self.end()
    }

    fn end(&mut self) -> Result<(), Failed> {
        if self.imported.take().is_none() {
            return Ok(());
        }
        let mut cache = cache();
        let Some(entry) = cache.get_mut(&self.key) else { return Ok(()) };
        entry.users -= 1;
        if entry.users > 0 {
            return Ok(());
        }
        let last = cache.remove(&self.key).and_then(|entry| Arc::into_inner(entry.imported));
        last.map_or(Ok(()), Imported::close)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // There is nobody to tell.
        self.end().unwrap_or_default();
    }
}

fn cache() -> MutexGuard<'static, BTreeMap<Key, Entry>> {
    static CACHE: Mutex<BTreeMap<Key, Entry>> = Mutex::new(BTreeMap::new());
    CACHE.lock().unwrap_or_else(PoisonError::into_inner)
}
