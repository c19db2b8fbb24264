//! [`Fate`]: what became of a frame at the receiver, as DONE says it.

use alloc::format;
use alloc::string::String;
use core::fmt;

use cuframes_core::text::cut;

use super::LIMITS;
use crate::wire::Done;

/// What became of a frame at the receiver.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Fate {
    /// It was published.
    Published(FarTimes),
    /// It was there already: it had been published before the connection was lost.
    Had,
    /// It was left out, for this reason. The next ones may be published.
    Skipped(String),
    /// It can't be published, for this reason, and the next ones like it neither.
    Refused(String),
}

/// Where the time of a frame went at the receiver, by its clock.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct FarTimes {
    /// From its first byte to its last, in nanoseconds; the time that it waited for a slot is not in it.
    pub wire_ns: u64,
    /// The wait for a slot, and from its last byte until it was published, in nanoseconds.
    pub publish_ns: u64,
}

impl Fate {
    pub(super) fn done(&self, request: u64) -> Done {
        let (status, message) = match self {
            Self::Published(FarTimes { wire_ns, publish_ns }) => {
                (OK, format!("{PUBLISHED} wire_ns={wire_ns} publish_ns={publish_ns}"))
            }
            Self::Had => (OK, HAD.into()),
            Self::Skipped(why) => (SKIPPED, why.clone()),
            Self::Refused(why) => (REFUSED, why.clone()),
        };
        Done { request, status, message: short(&message) }
    }

    /// What a receiver says. One that does not give times has taken none.
    pub(super) fn read(done: Done) -> Self {
        match (done.status, done.message.as_str()) {
            (OK, HAD) => Self::Had,
            (OK, text) => Self::Published(FarTimes::read(text)),
            (SKIPPED, _) => Self::Skipped(printable(done.message)),
            _ => Self::Refused(printable(done.message)),
        }
    }
}

impl FarTimes {
    fn read(text: &str) -> Self {
        let number = |name: &str| {
            let mut words = text.split(' ');
            words.find_map(|word| word.strip_prefix(name)?.strip_prefix('=')?.parse().ok()).unwrap_or(0)
        };
        Self { wire_ns: number("wire_ns"), publish_ns: number("publish_ns") }
    }
}

impl fmt::Display for Fate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Published(_) => f.write_str(PUBLISHED),
            Self::Had => f.write_str(HAD),
            Self::Skipped(why) => write!(f, "left out: {why}"),
            Self::Refused(why) => write!(f, "refused: {why}"),
        }
    }
}

/// As much of a text as the other side takes.
pub(super) fn short(text: &str) -> String {
    cut(text, usize::try_from(LIMITS.text).unwrap_or(usize::MAX)).into()
}

/// What a peer said, as it may be shown: it goes to terminals.
pub(super) fn printable(text: String) -> String {
    if !text.contains(char::is_control) {
        return text;
    }
    text.chars().map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

/// Why a frame is left out that was overwritten while it was sent.
pub const TORN: &str = "it was overwritten while it was sent";
const PUBLISHED: &str = "published";
const HAD: &str = "published before";
const OK: u32 = 0;
const REFUSED: u32 = 1;
const SKIPPED: u32 = 2;
