//! The messages between server and worker: frames of a length and a payload in bincode 2's standard configuration.

mod bincode;
mod block;
mod frame;
mod message;

pub use bincode::{DecodeError, Problem};
pub use block::{Block, BlockId, Roi, Stats, Status};
pub use frame::{Decoder, FrameError, MAX_PAYLOAD};
pub use message::{Message, Version};

pub(crate) use message::timeout;
