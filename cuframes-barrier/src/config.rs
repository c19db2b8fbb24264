//! [`FrontendConfig`]: what a frontend expects and tells.

use core::fmt;
use core::time::Duration;

use crate::message::Init;
use crate::zmtp::MAX_PAYLOAD;

/// What a frontend expects and tells.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct FrontendConfig {
    /// The index of the first participant.
    pub first_index: u16,
    /// How many there are; their indices follow each other.
    pub count: u16,
    /// How long to wait for all of them, from [`Frontend::new`](crate::Frontend::new) on.
    pub timeout: Duration,
    /// What each of them is told. Its addresses are those where the driver listens for [`Socket::Input`](crate::Socket::Input) and
    /// [`Socket::Output`](crate::Socket::Output).
    pub init: Init,
    /// A second HELLO starts that participant over, and one whose connection ends has to come back. Without it (as in the
    /// original, and the default) a second HELLO is [`Fault::HelloTwice`](crate::Fault::HelloTwice), and a connection that ends changes nothing.
    pub restarts: bool,
    /// Tells the participants that understand it when all are there, or why the start failed. INIT then has a mark that
    /// others skip. Without it (the default) what is sent is the original's, byte for byte.
    pub notices: bool,
}

impl FrontendConfig {
    /// As the original: `count` participants from index 0 on.
    #[must_use]
    pub const fn new(count: u16, timeout: Duration, init: Init) -> Self {
        Self { first_index: 0, count, timeout, init, restarts: false, notices: false }
    }
}

/// A configuration that no start can be made with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ConfigError {
    /// Nobody is expected.
    Nobody,
    /// Indices beyond 65535.
    Indices {
        /// The first one.
        first: u16,
        /// How many.
        count: u16,
    },
    /// INIT has the key `cuframes` in its `parallel_config`, but [notices](FrontendConfig::notices) are off.
    Mark,
    /// An INIT of more than 1 MiB.
    InitTooLong {
        /// Its length in bytes.
        len: usize,
    },
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nobody => f.write_str("a start needs one participant at least"),
            Self::Indices { first, count } => {
                write!(f, "{count} participants from index {first} on go beyond index 65535")
            }
            Self::Mark => {
                f.write_str("INIT has the key \"cuframes\", which says that notices are on, but they are off")
            }
            Self::InitTooLong { len } => write!(f, "INIT has {len} bytes, at most {MAX_PAYLOAD} can be sent"),
        }
    }
}

impl core::error::Error for ConfigError {}
