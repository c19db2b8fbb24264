//! [`Numbers`]: which frames of a publisher were published last.

use std::collections::VecDeque;

use cuframes_bridge::stream::Fate;

/// The numbers of the frames that were published last, in order, and up to which one it is known what became of them.
#[derive(Clone, Debug, Default)]
pub(super) struct Numbers {
    published: VecDeque<u64>,
    /// The newest one, published or left out.
    last: u64,
}

impl Numbers {
    /// A frame was published.
    pub(super) fn publish(&mut self, seq: u64) {
        if self.published.len() == MOST {
            self.published.pop_front();
        }
        self.published.push_back(seq);
        self.leave_out(seq);
    }

    /// A frame was left out.
    pub(super) fn leave_out(&mut self, seq: u64) {
        self.last = self.last.max(seq);
    }

    /// The newest frame that was published; 0 if none was.
    pub(super) fn newest(&self) -> u64 {
        self.published.back().copied().unwrap_or(0)
    }

    /// Whether frame `seq` is none that is still to come, once there is another publisher.
    pub(super) const fn is_past(&self, seq: u64) -> bool {
        seq <= self.last
    }

    /// What became of a frame that is not to come any more.
    pub(super) fn fate(&self, seq: u64) -> Fate {
        if self.published.contains(&seq) { Fate::Had } else { Fate::Skipped("it was left out before".into()) }
    }
}

/// What is sent again can't be older: of a ring there are so many slots, each of which one frame on its way keeps.
const MOST: usize = 16;
