//! [`Exported`]: the legacy handles that this process made, which it can't open itself (C-3).

use std::collections::BTreeMap;
use std::process;
use std::sync::{Mutex, PoisonError};

/// A handle that this process exported, as long as this lives.
#[derive(Debug)]
pub(crate) struct Exported {
    kind: Kind,
    handle: [u8; 64],
    process: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Kind {
    Memory,
    Event,
}

impl Exported {
    pub(crate) fn memory(handle: [u8; 64]) -> Self {
        Self::new(Kind::Memory, handle)
    }

    pub(crate) fn event(handle: [u8; 64]) -> Self {
        Self::new(Kind::Event, handle)
    }

    pub(crate) fn has_memory(handle: &[u8; 64]) -> bool {
        table().contains_key(&(Kind::Memory, *handle))
    }

    pub(crate) fn has_event(handle: &[u8; 64]) -> bool {
        table().contains_key(&(Kind::Event, *handle))
    }

    pub(crate) const fn handle(&self) -> &[u8; 64] {
        &self.handle
    }

    fn new(kind: Kind, handle: [u8; 64]) -> Self {
        *table().entry((kind, handle)).or_default() += 1;
        Self { kind, handle, process: process::id() }
    }
}

impl Drop for Exported {
    fn drop(&mut self) {
        // Another thread may have had the lock when a child was forked, which opens nothing anyway.
        if self.process != process::id() {
            return;
        }
        let mut table = table();
        let key = (self.kind, self.handle);
        if let Some(count) = table.get_mut(&key) {
            *count -= 1;
            if *count == 0 {
                table.remove(&key);
            }
        }
    }
}

type Table = BTreeMap<(Kind, [u8; 64]), usize>;

/// How often each is exported: several frames of the caller's may lie in one allocation.
fn table() -> std::sync::MutexGuard<'static, Table> {
    static TABLE: Mutex<Table> = Mutex::new(BTreeMap::new());
    TABLE.lock().unwrap_or_else(PoisonError::into_inner)
}
