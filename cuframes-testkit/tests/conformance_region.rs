//! The regions of the test kit are regions: in ordinary memory, and of words that a process may die at (§2).

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use cuframes_core::shm::{RegionWords, Word};
use cuframes_testkit::conformance::region::Memory;
use cuframes_testkit::heap::HeapRegion;
use cuframes_testkit::region_conformance;
use cuframes_testkit::step::StepWord;

struct Heap<W>(HeapRegion<W>);

impl<W: Word> Memory for Heap<W> {
    type View = HeapRegion<W>;

    fn new() -> Self {
        Self(Arc::new(RegionWords::zeroed()))
    }

    fn view(&self) -> HeapRegion<W> {
        Arc::clone(&self.0)
    }

    fn bytes(&self) -> Option<Vec<u8>> {
        None
    }
}

type OrdinaryWords = Heap<AtomicU64>;
type WordsToDieAt = Heap<StepWord>;

region_conformance!(ordinary, OrdinaryWords);
region_conformance!(step, WordsToDieAt);
