//! [`FrontendEvent`]: what a frontend tells.

use alloc::vec::Vec;

use crate::fault::Fault;
use crate::message::Registration;
use crate::roll::Progress;
use crate::socket::Socket;
use crate::zmtp::LinkError;

/// What a frontend tells.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub enum FrontendEvent {
    /// A participant came further, or was [lost](Progress::Lost).
    Progress {
        /// Which one.
        index: u16,
        /// How far it is now.
        progress: Progress,
    },
    /// A participant said HELLO again and starts over.
    Restarted {
        /// Which one.
        index: u16,
    },
    /// A connection was closed, which ends nothing else.
    Dropped {
        /// Where it had connected.
        socket: Socket,
        /// Why it was closed.
        error: LinkError,
    },
    /// Everybody is there, in the order of the indices. Nothing comes after it.
    Started(Vec<Registered>),
    /// The start failed. Nothing comes after it.
    Failed(Fault),
}

/// A participant that is there.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct Registered {
    /// Its index.
    pub index: u16,
    /// What it registered with.
    pub registration: Registration,
}
