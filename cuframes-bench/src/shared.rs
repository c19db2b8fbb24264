//! [`SharedWords`]: memory of two processes, as words. The floors are built on it.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::slice;
use std::sync::atomic::AtomicU64;

use memmap2::{MmapOptions, MmapRaw};
use rustix::fs::{MemfdFlags, fstat, ftruncate, memfd_create};

use crate::numbers::count;

/// A memfd as atomic words.
#[derive(Debug)]
pub(crate) struct SharedWords {
    map: MmapRaw,
}

impl SharedWords {
    /// A new one of so many words, all zero.
    pub(crate) fn create(words: usize) -> io::Result<(Self, OwnedFd)> {
        let fd = memfd_create("cuframes-bench", MemfdFlags::CLOEXEC)?;
        ftruncate(&fd, count(words * size_of::<AtomicU64>()))?;
        Ok((Self::open(&fd)?, fd))
    }

    /// The memory that another process made.
    pub(crate) fn open(fd: impl AsFd) -> io::Result<Self> {
        let bytes = usize::try_from(fstat(&fd)?.st_size).unwrap_or(0);
        let map = MmapOptions::new().len(bytes).map_raw(&fd.as_fd())?;
        Ok(Self { map })
    }

    #[inline]
    pub(crate) fn words(&self) -> &[AtomicU64] {
        let words = self.map.as_ptr().cast::<AtomicU64>();
        // SAFETY: `map.len()` bytes from this address are mapped, readable and writable, for as long as `self`, which the
        // reference borrows. `mmap` returned the address, so it is not null and a multiple of the page size, hence of 8;
        // a length that is no multiple of 8 is rounded down. Every bit pattern is a valid `AtomicU64`, and other threads
        // and processes that store meanwhile do so through one, too: nobody in this process makes another reference into
        // the map. A process that shortens the file gets us a SIGBUS, which ends the process: not undefined behaviour.
        unsafe { slice::from_raw_parts(words, self.map.len() / size_of::<AtomicU64>()) }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;

    #[test]
    fn two_maps_of_the_same_memory_see_the_same_words() {
        let (ours, fd) = SharedWords::create(9).unwrap();
        let theirs = SharedWords::open(&fd).unwrap();
        assert_eq!((ours.words().len(), theirs.words().len()), (9, 9));
        for (n, word) in (1..).zip(ours.words()) {
            word.store(n, Ordering::Relaxed);
        }
        let seen: Vec<_> = theirs.words().iter().map(|word| word.load(Ordering::Relaxed)).collect();
        assert_eq!(seen, (1..=9).collect::<Vec<u64>>());
    }
}
