//! The messages of the socket (§3): one file per message group.

use crate::number::wire_number;

pub mod control;
pub mod fault;
pub mod framing;
pub mod hello;
pub mod meta;
mod reader;
pub mod subscribe;
pub mod tile;

/// The version of the protocol (§6.1).
pub const PROTO_VERSION: u32 = 1;

wire_number! {
    /// Type of a message (§3.2).
    pub struct MessageType(u32) {
        /// First message from the subscriber (§3.3).
        HELLO_REQ = 0x01, "HELLO_REQ";
        /// The publisher's answer (§3.4).
        HELLO_RESP = 0x02, "HELLO_RESP";
        /// The subscriber asks for a slot (§3.5).
        SUBSCRIBE_REQ = 0x03, "SUBSCRIBE_REQ";
        /// The publisher's answer with the assigned bit (§3.6).
        SUBSCRIBE_RESP = 0x04, "SUBSCRIBE_RESP";
        /// The subscriber holds no lease and won't touch the region again (D-10).
        UNSUBSCRIBE = 0x10, "UNSUBSCRIBE";
        /// Comes with a file descriptor (§3.7).
        EVENT_FD = 0x20, "EVENT_FD";
        /// The publisher is shutting down (§3.8).
        SHUTDOWN = 0x30, "SHUTDOWN";
        /// Liveness check.
        PING = 0xF0, "PING";
        /// Reply to PING.
        PONG = 0xF1, "PONG";
        /// Error notification (§3.9).
        ERROR = 0xFE, "ERROR";
    }

    /// What the descriptor of an EVENT_FD is (§3.7, X-1, X-3, X-4, X-6).
    pub struct FdPurpose(u32) {
        /// eventfd: a new frame was published.
        WAKE_UP = 1, "wake-up";
        /// The shared region.
        REGION = 2, "region";
        /// Host memory with the frames.
        HOST_POOL = 3, "host-pool";
        /// CUDA VMM memory of one slot.
        CUDA_VMM = 4, "cuda-vmm";
        /// eventfd that wakes the publisher.
        PUBLISHER_WAKE_UP = 5, "publisher-wake-up";
        /// The witness: what the publisher says about its slots, sealed.
        WITNESS = 6, "witness";
    }

    /// Why a publisher shuts down (§3.8).
    pub struct ShutdownReason(u32) {
        /// The stream ended.
        NORMAL = 0, "normal";
        /// The publisher failed.
        ERROR = 1, "error";
        /// A publisher with another format or version follows under the same key (D-24).
        UPGRADE = 2, "upgrade";
    }
}
