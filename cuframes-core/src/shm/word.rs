//! [`Word`]: what the protocol needs of a 64-bit atomic, so that the shipped ring also runs on a model checker's words.

use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering, compiler_fence, fence};

/// A 64-bit word that several processes may read and write at once.
///
/// Implemented for [`AtomicU64`]; the testkit implements it for words that a model checker or a crash injector watches.
/// Orderings mean what they mean for `AtomicU64`. No code of ours uses `SeqCst` loads or stores (a model checker may
/// treat them as weaker); where a store must be visible before a later load there is a [`Word::full_fence`].
pub trait Word: fmt::Debug + Send + Sync {
    /// A word with this value.
    fn new(value: u64) -> Self;
    /// Reads the word.
    fn load(&self, order: Ordering) -> u64;
    /// Writes the word.
    fn store(&self, value: u64, order: Ordering);
    /// Sets bits, returns the value before.
    fn fetch_or(&self, bits: u64, order: Ordering) -> u64;
    /// Keeps only these bits, returns the value before.
    fn fetch_and(&self, bits: u64, order: Ordering) -> u64;
    /// Writes `new` if the word is `current`.
    ///
    /// # Errors
    /// The value found, if it was not `current`.
    fn compare_exchange(
        &self,
        current: u64,
        new: u64,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u64, u64>;
    /// A fence between this thread's accesses to words of this type.
    fn fence(order: Ordering);
    /// A `SeqCst` fence. It may write 0 to the word, which is one that is there only for this: some processors do that in
    /// much less time than they take for a fence.
    #[inline]
    fn full_fence(&self) {
        Self::fence(Ordering::SeqCst);
    }
    /// A pause in a loop that waits for another thread to write.
    fn pause();
    /// How often a loop that waits for a moment looks again before it gives up.
    const LOOKS: u32;
}

impl Word for AtomicU64 {
    #[inline]
    fn new(value: u64) -> Self {
        Self::new(value)
    }

    #[inline]
    fn load(&self, order: Ordering) -> u64 {
        self.load(order)
    }

    #[inline]
    fn store(&self, value: u64, order: Ordering) {
        self.store(value, order);
    }

    #[inline]
    fn fetch_or(&self, bits: u64, order: Ordering) -> u64 {
        self.fetch_or(bits, order)
    }

    #[inline]
    fn fetch_and(&self, bits: u64, order: Ordering) -> u64 {
        self.fetch_and(bits, order)
    }

    #[inline]
    fn compare_exchange(
        &self,
        current: u64,
        new: u64,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u64, u64> {
        self.compare_exchange(current, new, success, failure)
    }

    #[inline]
    fn fence(order: Ordering) {
        fence(order);
    }

    /// Every locked instruction is a full barrier there, and takes an eighth of the time of `mfence`, which is what a fence
    /// becomes. No compiler moves another access across this one: it is `SeqCst`, and so is what follows.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    #[inline]
    fn full_fence(&self) {
        self.swap(0, Ordering::SeqCst);
        compiler_fence(Ordering::SeqCst);
    }

    #[inline]
    fn pause() {
        core::hint::spin_loop();
    }

    /// A few microseconds: longer than a writer that is not preempted needs to put a number back.
    const LOOKS: u32 = 128;
}
