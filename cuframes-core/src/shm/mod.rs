//! The shared region as atomic words (§2).
//!
//! Every shared byte is read and written as part of a 64-bit atomic word, never through a slice or a reference to plain
//! memory: the other side may write at any time. [`layout`] places the words, [`word`] is what a word can do, [`region`]
//! hands them out, [`header`] copies the static part out word by word and validates the copy, [`snapshot`] decodes a copy of
//! all of it for programs that only look.

pub mod header;
pub mod layout;
pub mod region;
pub mod snapshot;
pub mod word;

pub use header::{SlotMemory, StreamHeader};
pub use layout::{HeaderWords, RegionWords, SlotWords, SubscriberWords};
pub use region::Region;
pub use snapshot::Snapshot;
pub use word::Word;
