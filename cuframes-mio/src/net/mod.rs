//! Byte streams over TCP and Unix sockets: [`Endpoint`] names where, [`Driver`] moves bytes, connections and time for any
//! [`Machine`](cuframes_core::streams::Machine). A [`Carrier`] moves the bytes of a connection in another way than over its socket.
//!
//! None of the protocols that are spoken here has authentication or encryption: listen on loopback, or on a network where
//! you trust everybody.

mod backlog;
mod carrier;
mod conn;
mod driver;
mod endpoint;
mod listener;
mod options;
mod startup;

use std::{fmt, io};

pub use carrier::{Carrier, Plain, Side};
pub use driver::Driver;
pub use endpoint::{Endpoint, EndpointError};
pub use listener::Listeners;
pub use options::{Keepalive, SocketOptions};

/// Why an endpoint can't be listened on or connected to.
#[derive(Debug)]
#[non_exhaustive]
pub enum NetError {
    /// Somebody else listens there.
    InUse {
        /// Where.
        endpoint: Endpoint,
    },
    /// Its path is longer than that of a Unix socket can be.
    PathTooLong {
        /// Where.
        endpoint: Endpoint,
    },
    /// There is a file that is no socket.
    NotASocket {
        /// Where.
        endpoint: Endpoint,
    },
    /// The operating system refused.
    System {
        /// What was tried, as a verb.
        what: &'static str,
        /// Where.
        endpoint: Endpoint,
        /// Why.
        error: io::Error,
    },
}

impl NetError {
    pub(crate) fn system(what: &'static str, endpoint: &Endpoint, error: impl Into<io::Error>) -> Self {
        Self::System { what, endpoint: endpoint.clone(), error: error.into() }
    }
}

impl fmt::Display for NetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InUse { endpoint } => {
                write!(
                    f,
                    "can't listen on {endpoint}: somebody else does; end that process or choose another address"
                )
            }
            Self::PathTooLong { endpoint } => {
                write!(
                    f,
                    "can't listen on {endpoint}: its path is longer than 107 bytes; choose a shorter one"
                )
            }
            Self::NotASocket { endpoint } => {
                write!(
                    f,
                    "can't listen on {endpoint}: there is a file that is no socket; choose another path"
                )
            }
            Self::System { what, endpoint, error } => write!(f, "can't {what} {endpoint}: {error}"),
        }
    }
}

impl std::error::Error for NetError {}
