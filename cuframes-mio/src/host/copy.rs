//! Copies into frames: through the processor's cache where a ring fits in there, past it where not.
//!
//! In a larger ring the lines that an ordinary copy writes are those that were thrown out of the cache long ago: each is
//! fetched first and written back later. Stores that go past the cache save both.

use std::fs;

/// How frames of a ring are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Route {
    Cached,
    Streamed,
}

impl Route {
    /// The faster one for a ring of `len` bytes.
    pub(super) fn of_ring(len: usize) -> Self {
        // Source and readers need the cache, too.
        if len > cache_size().unwrap_or(COMMON) / 2 { Self::Streamed } else { Self::Cached }
    }
}

/// Copies `from` to `to`, which is as long.
pub(super) fn copy(route: Route, to: &mut [u8], from: &[u8]) {
    match route {
        Route::Cached => to.copy_from_slice(from),
        Route::Streamed => stream(to, from),
    }
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
fn stream(to: &mut [u8], from: &[u8]) {
    to.copy_from_slice(from);
}

/// With SSE2, which every x86-64 processor has.
#[cfg(all(target_arch = "x86_64", not(miri)))]
fn stream(to: &mut [u8], from: &[u8]) {
    use std::arch::asm;
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_stream_si128};

    let head = to.as_ptr().align_offset(size_of::<__m128i>()).min(to.len());
    let (to_head, to) = to.split_at_mut(head);
    let (from_head, from) = from.split_at(head.min(from.len()));
    to_head.copy_from_slice(from_head);

    let (to, to_tail) = to.as_chunks_mut::<16>();
    let (from, from_tail) = from.as_chunks::<16>();
    for (to, from) in to.iter_mut().zip(from) {
        // SAFETY: the pointer is to 16 bytes that are borrowed; they may lie anywhere.
        let bytes = unsafe { _mm_loadu_si128(from.as_ptr().cast()) };
        // SAFETY: the pointer is to 16 bytes that are borrowed mutably, and a multiple of 16, for what is before the first
        // of these chunks was chosen so. The fence below comes before anybody else accesses them, or this thread any other way.
        unsafe { _mm_stream_si128(to.as_mut_ptr().cast(), bytes) };
    }
    to_tail.copy_from_slice(from_tail);
    // SAFETY: a fence. (The intrinsic is unsafe in some versions of Rust and not in others.)
    unsafe { asm!("sfence", options(nostack, preserves_flags)) };
}

/// Bytes of the largest cache of the first processor, as Linux tells.
fn cache_size() -> Option<usize> {
    let read =
        |index| fs::read_to_string(format!("/sys/devices/system/cpu/cpu0/cache/index{index}/size")).ok();
    (0..).map_while(read).filter_map(|size| kib(&size)).max()
}

/// A size as `32768K`.
fn kib(size: &str) -> Option<usize> {
    size.trim().strip_suffix('K')?.parse::<usize>().ok()?.checked_mul(1024)
}

/// Where Linux doesn't tell.
const COMMON: usize = 32 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_route_copies_every_byte_and_no_other() {
        let from: Vec<u8> = (0..=255).cycle().take(1000).collect();
        for route in [Route::Cached, Route::Streamed] {
            for start in 0..33 {
                for len in (0..70).chain([900]) {
                    let mut to = vec![0xA5; 1000];
                    let bytes = &from[start + 1..][..len];
                    copy(route, &mut to[start..][..len], bytes);
                    assert_eq!(to[start..][..len], *bytes, "{route:?}, {len} bytes at {start}");
                    let others = to[..start].iter().chain(&to[start + len..]);
                    assert!(
                        others.into_iter().all(|byte| *byte == 0xA5),
                        "{route:?}, {len} bytes at {start}"
                    );
                }
            }
        }
    }

    #[test]
    fn only_a_ring_that_is_larger_than_the_cache_is_written_past_it() {
        assert_eq!(Route::of_ring(4096), Route::Cached);
        assert_eq!(Route::of_ring(64 << 30), Route::Streamed);
    }

    #[test]
    fn a_size_is_in_kibibytes() {
        assert_eq!(kib("32768K\n"), Some(32 << 20));
        assert_eq!(["", "K", "12", "-1K", "18446744073709551615K"].map(kib), [None; 5]);
    }
}
