//! [`lock`]: a mutex of this crate.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks. Nobody who holds a lock of ours can leave its value half changed, so a panic elsewhere does not matter.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
