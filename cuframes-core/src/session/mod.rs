//! The two session state machines (§4).

use crate::config::{Features, SubscriberMode};
use crate::wire::hello::ConsumerName;

/// What a subscriber asked for (§3.3).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SubscribeRequest {
    /// Its name.
    pub name: ConsumerName,
    /// Its CUDA device, -1 without one.
    pub cuda_device: i32,
    /// Which frames it wants.
    pub mode: SubscriberMode,
    /// The extensions in force on its connection.
    pub features: Features,
}
