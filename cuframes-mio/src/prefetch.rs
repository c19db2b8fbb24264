//! Hints for the processor.

#[cfg(all(target_arch = "x86_64", not(miri)))]
use std::arch::asm;
use std::ptr;

use crate::shm::to_u64;

/// What is needed a cache line for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Access {
    /// Others may keep it.
    Read,
    /// Nobody else may have it meanwhile.
    Write,
}

/// Lets the processor fetch the cache line of an address in this process, if it knows how to. Waits for nothing.
#[inline]
pub(crate) fn prefetch(address: u64, access: Access) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    match access {
        // SAFETY: a hint, which changes nothing that a program can tell, whatever is at the address and also if nothing is.
        // It is part of SSE, which every x86-64 processor has.
        Access::Read => unsafe {
            asm!("prefetcht0 [{}]", in(reg) address, options(nostack, preserves_flags, readonly));
        },
        // SAFETY: as above, but that processors which don't know this one do nothing.
        Access::Write => unsafe {
            asm!("prefetchw [{}]", in(reg) address, options(nostack, preserves_flags, readonly));
        },
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = (address, access);
}

/// Where something is.
#[inline]
pub(crate) fn address<T>(what: &T) -> u64 {
    to_u64(ptr::from_ref(what).addr())
}
