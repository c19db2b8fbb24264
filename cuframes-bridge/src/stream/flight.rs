//! [`Flight`]: a frame that a sender has been given, and what it says about it.

use cuframes_core::Instant;

use super::info::FrameInfo;
use super::transfer::Payload;

/// A frame on its way: given, and not answered by DONE.
#[derive(Debug)]
pub(super) struct Flight<F> {
    pub(super) info: FrameInfo,
    pub(super) frame: F,
    /// When it was sent, for the last time.
    pub(super) began: Option<Instant>,
}

/// A frame that was asked for.
#[derive(Debug)]
pub(super) struct Reply<F> {
    pub(super) info: FrameInfo,
    pub(super) request: u64,
    pub(super) frame: F,
}

/// Whether a sender ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    No,
    /// When everything has arrived, or at this time.
    At(Instant),
    Over,
}

/// The words about a frame with these bytes.
pub(super) fn sized<F: Payload>(info: FrameInfo, frame: &F) -> FrameInfo {
    FrameInfo { written_bytes: u64::try_from(frame.bytes().len()).unwrap_or(u64::MAX), ..info }
}

/// Nanoseconds since the time stamp, if it can be of this clock.
pub(super) fn since_stamp(now: Instant, info: &FrameInfo) -> u64 {
    let since = now.as_nanos().saturating_sub(info.pts_ns);
    u64::try_from(since).ok().filter(|since| info.pts_ns > 0 && *since < OTHER_CLOCK_NS).unwrap_or(0)
}

/// A time stamp that is further away is of another clock.
const OTHER_CLOCK_NS: u64 = 3_600_000_000_000;
