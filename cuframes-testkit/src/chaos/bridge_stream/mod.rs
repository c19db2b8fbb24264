//! The bridge: both sides of a stream, each among peers and an owner that do anything.

mod frames;
mod heard;
mod peer;
mod receiver;
mod receiver_seeds;
mod receiver_words;
mod said;
mod sender;
mod sender_model;
mod sender_seeds;

pub use receiver::bridge_receiver;
pub use sender::bridge_sender;

pub(super) use receiver_seeds::bridge_receiver as receiver_seeds;
pub(super) use sender_seeds::bridge_sender as sender_seeds;
