//! [`Socket`]: where a frontend listens.

use crate::zmtp::SocketType;

/// The sockets on which a frontend listens; the number of one is that of its listener.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub enum Socket {
    /// ROUTER: HELLO, INIT, READY.
    Handshake,
    /// ROUTER: registrations.
    Input,
    /// PULL: the results of the participants. What comes is not kept.
    Output,
}

impl Socket {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 3] = [Self::Handshake, Self::Input, Self::Output];

    pub(crate) const fn kind(self) -> SocketType {
        match self {
            Self::Handshake | Self::Input => SocketType::Router,
            Self::Output => SocketType::Pull,
        }
    }
}
