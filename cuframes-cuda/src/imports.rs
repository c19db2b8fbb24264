//! [`Shared`]: allocations of other processes, each opened once in this process, however often it is asked for (C-11).

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use cuframes_core::gpu::Call;

use crate::error::{Cause, CudaError};
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

/// An allocation.
#[derive(Debug)]
enum Entry {
    /// It is open, and so many have it. Nobody, if it could not be closed because the context has unfinished work.
    Open { imported: Arc<Imported>, users: usize },
    /// A thread opens or closes it. The driver is not called under the lock: closing may take any time, and only who wants the
    /// same allocation has to wait for that.
    Changing,
}

type Entries = BTreeMap<Key, Entry>;

impl Shared {
    /// Opens it, or joins who has it open.
    pub(crate) fn open(context: &Arc<Context>, handle: &[u8; 64]) -> Result<Self, CudaError> {
        sweep();
        let key = (context.device(), *handle);
        let deadline = Instant::now() + PATIENCE;
        let mut entries = entries();
        loop {
            match entries.get_mut(&key) {
                Some(Entry::Open { imported, users }) => {
                    *users += 1;
                    return Ok(Self { key, imported: Some(Arc::clone(imported)) });
                }
                Some(Entry::Changing) => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return Err(CudaError::new(Call::OpenMem, Cause::Timeout { after: PATIENCE }));
                    }
                    entries = CHANGED.wait_timeout(entries, left).unwrap_or_else(PoisonError::into_inner).0;
                }
                None => break,
            }
        }
        entries.insert(key, Entry::Changing);
        drop(entries);
        let opened = Imported::open(context, handle).map(Arc::new);
        change(
            key,
            opened.as_ref().ok().map(|imported| Entry::Open { imported: Arc::clone(imported), users: 1 }),
        );
        let imported = opened.map_err(CudaError::opening(context.uuid()))?;
        Ok(Self { key, imported: Some(imported) })
    }

    /// Where the allocation starts.
    pub(crate) fn address(&self) -> u64 {
        self.imported.as_ref().map_or(0, |imported| imported.address())
    }

    /// All of it from there on, which is `size` bytes.
    pub(crate) fn place(&self, size: usize) -> Option<Place<'_>> {
        self.imported.as_ref().map(|imported| imported.place(size))
    }

    /// Closes it, if nobody else has it.
    pub(crate) fn close(mut self) -> Result<(), Failed> {
        self.end()
    }

    fn end(&mut self) -> Result<(), Failed> {
        let Some(imported) = self.imported.take().filter(|imported| imported.context().is_here()) else {
            return Ok(());
        };
        drop(imported);
        if let Some(Entry::Open { users, .. }) = entries().get_mut(&self.key) {
            *users -= 1;
        }
        let closed = close_if_unused(self.key);
        sweep();
        closed
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // There is nobody to tell.
        self.end().unwrap_or_default();
    }
}

/// Closes what nobody has, unless it must stay.
fn close_if_unused(key: Key) -> Result<(), Failed> {
    let context = match entries().get(&key) {
        Some(Entry::Open { imported, users: 0 }) => Arc::clone(imported.context()),
        _ => return Ok(()),
    };
    // It asks the driver, and may close other things.
    if !context.is_settled() {
        return Ok(());
    }
    let mut entries = entries();
    let Some(Entry::Open { users: 0, .. }) = entries.get(&key) else { return Ok(()) };
    let unused = entries.insert(key, Entry::Changing);
    drop(entries);
    let closed = match unused {
        Some(Entry::Open { imported, .. }) => Arc::into_inner(imported).map_or(Ok(()), Imported::close),
        _ => Ok(()),
    };
    change(key, None);
    closed
}

/// Closes what had to stay, and need not any more.
fn sweep() {
    let unused = |(key, entry): (&Key, &Entry)| matches!(entry, Entry::Open { users: 0, .. }).then_some(*key);
    let keys: Vec<Key> = entries().iter().filter_map(unused).collect();
    for key in keys {
        // Whoever closed it has long been told that this is done.
        close_if_unused(key).unwrap_or_default();
    }
}

/// Ends [`Entry::Changing`].
fn change(key: Key, entry: Option<Entry>) {
    let mut entries = entries();
    match entry {
        Some(entry) => entries.insert(key, entry),
        None => entries.remove(&key),
    };
    drop(entries);
    CHANGED.notify_all();
}

fn entries() -> MutexGuard<'static, Entries> {
    static ENTRIES: Mutex<Entries> = Mutex::new(BTreeMap::new());
    ENTRIES.lock().unwrap_or_else(PoisonError::into_inner)
}

static CHANGED: Condvar = Condvar::new();
/// How long to wait for a thread that closes what another one wants to open.
const PATIENCE: Duration = Duration::from_secs(10);
