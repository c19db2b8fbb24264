//! Frames over a link: a [`Sender`] has the frames of a stream, a [`Receiver`] takes those of any number of senders.
//!
//! On the wire it is DS4D with these meanings:
//!
//! - The sender connects and says HELLO: the model name is the key, the model id the format, the layers are the rows. There is
//!   no reply; silence means accepted, ERROR means no, and then the sender does not come back.
//! - A frame is LOAD_BEGIN, CHUNKs and a DONE as the answer. The session is the publisher's epoch, the request the frame's
//!   number, the tokens are [words about the frame](FrameInfo), which the token hash protects. After the frame's bytes comes one
//!   more: 1 says that they are one frame, 0 that it was overwritten while it was sent. So nobody ever publishes a torn frame.
//! - Until its DONE is there the sender keeps a frame, and sends it again after a reconnect if it is [strict](SenderConfig::strict).
//! - SAVE_REQ asks for one frame on demand: the request is 2^63 plus its number, or plus 0 for the newest. BEGIN, CHUNKs and
//!   DONE are the answer, with the same words.

mod config;
mod event;
mod fault;
mod flight;
mod info;
mod peer;
mod receiver;
mod sender;
mod transfer;
mod words;

use crate::wire::Limits;

pub use config::{ReceiverConfig, SenderConfig};
pub use event::{Answer, Received, ReceiverEvent, SenderEvent, SenderStats};
pub use fault::LinkFault;
pub use info::{Announcement, FrameInfo, Greeting, InfoError};
pub use receiver::Receiver;
pub use sender::Sender;
pub use transfer::Payload;
pub use words::{FarTimes, Fate, TORN};

/// What is said on a link is short, but for the frames.
const LIMITS: Limits = Limits { work_bytes: 80, tokens: 64, text: 4096 };
