//! [`Message`]: what server and worker say to each other.

use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use super::bincode::{DecodeError, Problem, Reader, Writer};
use super::block::Block;

/// Which version of the protocol.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub enum Version {
    /// That of daisy before its release: without a version byte, worker numbers, timeouts and measurements.
    W0,
    /// That of daisy 2.0.0.
    #[default]
    W2,
}

impl Version {
    /// The byte before the payload.
    pub(super) const fn byte(self) -> Option<u8> {
        match self {
            Self::W0 => None,
            Self::W2 => Some(2),
        }
    }
}

/// One message.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub enum Message {
    /// Worker: "I can take a block of this task."
    AcquireBlock {
        /// The task.
        task_id: String,
        /// The number of the worker; not in [`Version::W0`].
        worker_id: Option<u64>,
    },
    /// Server: "take this one".
    SendBlock {
        /// The block.
        block: Block,
        /// In how many seconds somebody else gets it; not in [`Version::W0`].
        timeout_secs: Option<f64>,
    },
    /// Worker: "this is how it went".
    ReleaseBlock {
        /// The block, with what became of it.
        block: Block,
    },
    /// Worker: "I could not do it".
    BlockFailed {
        /// The block.
        block: Block,
        /// Why.
        error: String,
    },
    /// Server: "there is nothing more to do".
    RequestShutdown,
    /// Worker: "I leave".
    Disconnect,
}

impl Message {
    /// Appends the message as a frame: length, version byte, payload.
    pub fn encode(&self, version: Version, out: &mut Vec<u8>) {
        let mut writer = Writer::default();
        if let Some(byte) = version.byte() {
            writer.u8(byte);
        }
        let is_w2 = version == Version::W2;
        match self {
            Self::AcquireBlock { task_id, worker_id } => {
                writer.u8(0);
                writer.str(task_id);
                if is_w2 {
                    writer.option(*worker_id, Writer::u64);
                }
            }
            Self::SendBlock { block, timeout_secs } => {
                writer.u8(1);
                block.write(&mut writer, version);
                if is_w2 {
                    writer.option(*timeout_secs, Writer::f64);
                }
            }
            Self::ReleaseBlock { block } => {
                writer.u8(2);
                block.write(&mut writer, version);
            }
            Self::BlockFailed { block, error } => {
                writer.u8(3);
                block.write(&mut writer, version);
                writer.str(error);
            }
            Self::RequestShutdown => writer.u8(4),
            Self::Disconnect => writer.u8(5),
        }
        out.extend(u32::try_from(writer.bytes.len()).unwrap_or(u32::MAX).to_be_bytes());
        out.extend(writer.bytes);
    }

    /// Reads a payload, without the version byte. Bytes after the message are not looked at.
    ///
    /// # Errors
    /// Where it is not a message, and why.
    pub fn decode(version: Version, payload: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(payload);
        let is_w2 = version == Version::W2;
        Ok(match reader.variant(6)? {
            0 => Self::AcquireBlock {
                task_id: reader.str()?,
                worker_id: if is_w2 { reader.option(Reader::u64)? } else { None },
            },
            1 => Self::SendBlock {
                block: Block::read(&mut reader, version)?,
                timeout_secs: if is_w2 { reader.option(Reader::f64)? } else { None },
            },
            2 => Self::ReleaseBlock { block: Block::read(&mut reader, version)? },
            3 => Self::BlockFailed { block: Block::read(&mut reader, version)?, error: reader.str()? },
            4 => Self::RequestShutdown,
            _ => Self::Disconnect,
        })
    }
}

/// Seconds as the wire has them: a number that is none, negative or too large is no limit.
pub(crate) fn timeout(seconds: Option<f64>) -> Option<Duration> {
    seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
}

impl DecodeError {
    /// Whether more bytes could make it a message.
    #[must_use]
    pub fn is_truncated(&self) -> bool {
        self.problem == Problem::Truncated
    }
}
