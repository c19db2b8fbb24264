//! [`Processes`]: the process behind each bit (D-20).

use cuframes_core::SubscriberBit;
use cuframes_core::shm::layout::SUBSCRIBERS;

use crate::liveness::PidFd;

/// The process behind each bit that is taken or quarantined, where it can be watched.
#[derive(Debug)]
pub(crate) struct Processes([Option<PidFd>; SUBSCRIBERS]);

impl Processes {
    pub(crate) fn new() -> Self {
        Self(std::array::from_fn(|_| None))
    }

    #[expect(clippy::indexing_slicing, reason = "a bit is at most 31, the array has 32 entries")]
    pub(crate) fn of(&mut self, bit: SubscriberBit) -> &mut Option<PidFd> {
        &mut self.0[usize::from(bit.get())]
    }

    /// All of them, with their bits.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, &PidFd)> {
        self.0.iter().enumerate().filter_map(|(bit, process)| Some((bit, process.as_ref()?)))
    }
}
