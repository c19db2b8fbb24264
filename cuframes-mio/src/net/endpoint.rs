//! [`Endpoint`]: `tcp://HOST:PORT` or `ipc://PATH`.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::path::{self, Path, PathBuf};
use std::str::FromStr;
use std::{fmt, io};

/// Where to listen or to connect: a TCP address in numbers, or the path of a Unix socket, written as ZeroMQ does.
///
/// ```
/// use cuframes_mio::net::Endpoint;
///
/// let endpoint: Endpoint = "tcp://127.0.0.1:5555".parse()?;
/// assert!(endpoint.is_local());
/// assert!("tcp://localhost:5555".parse::<Endpoint>().is_err()); // a name needs `resolve`
/// assert_eq!(Endpoint::resolve("ipc:///run/start.sock")?.to_string(), "ipc:///run/start.sock");
/// # Ok::<(), cuframes_mio::net::EndpointError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Endpoint {
    /// `tcp://HOST:PORT`.
    Tcp(SocketAddr),
    /// `ipc://PATH`.
    Ipc(PathBuf),
}

/// A text that is no endpoint.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EndpointError {
    text: String,
    problem: &'static str,
}

impl fmt::Display for EndpointError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { text, problem } = self;
        write!(f, "{text:?} is no address: {problem}; write tcp://HOST:PORT or ipc://PATH")
    }
}

impl std::error::Error for EndpointError {}

impl Endpoint {
    /// Reads an endpoint, and asks the system for the address if its host is a name. That may block, so it is for what a
    /// person has written, not for what a peer has sent.
    ///
    /// # Errors
    /// If it is no endpoint, or the name has no address.
    pub fn resolve(text: &str) -> Result<Self, EndpointError> {
        let error = match text.parse() {
            Ok(endpoint) => return Ok(endpoint),
            Err(error) => error,
        };
        let Some(host) = text.strip_prefix(TCP) else { return Err(error) };
        let unknown = |problem| EndpointError { text: text.into(), problem };
        let has_port = host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        if !has_port {
            return Err(unknown("it has no port from 0 to 65535"));
        }
        let unknown = unknown("its host has no address");
        let mut addresses = host.to_socket_addrs().map_err(|_| unknown.clone())?;
        addresses.next().map(Self::Tcp).ok_or(unknown)
    }

    /// Whether only processes of this host can connect to it.
    #[must_use]
    pub fn is_local(&self) -> bool {
        match self {
            Self::Tcp(address) => address.ip().is_loopback(),
            Self::Ipc(_) => true,
        }
    }

    /// Whether it means every interface, which can be listened on, but not told to a peer as an address.
    #[must_use]
    pub fn is_unspecified(&self) -> bool {
        matches!(self, Self::Tcp(address) if address.ip().is_unspecified())
    }

    /// The same one, for a process in another directory, too.
    pub(crate) fn absolute(self) -> io::Result<Self> {
        match self {
            Self::Ipc(path) => path::absolute(path).map(Self::Ipc),
            tcp @ Self::Tcp(_) => Ok(tcp),
        }
    }

    /// Another endpoint beside this one: a free port of the same address, or the path with `.name` after it.
    #[must_use]
    pub fn beside(&self, name: &str) -> Self {
        match self {
            Self::Tcp(address) => Self::Tcp(SocketAddr::new(address.ip(), 0)),
            Self::Ipc(path) => {
                let mut path = path.clone().into_os_string();
                path.push(".");
                path.push(name);
                Self::Ipc(path.into())
            }
        }
    }
}

impl FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Self, EndpointError> {
        let fail = |problem| Err(EndpointError { text: text.into(), problem });
        if let Some(address) = text.strip_prefix(TCP) {
            match address.parse() {
                Ok(address) => Ok(Self::Tcp(address)),
                Err(_) => fail("its host is not written in numbers, or its port is not 0 to 65535"),
            }
        } else if let Some(path) = text.strip_prefix(IPC) {
            // 108 bytes, of which one ends the path.
            if path.is_empty() || path.contains('\0') || path.len() > MAX_PATH {
                fail("its path is empty, has a NUL in it, or is longer than 107 bytes")
            } else {
                Ok(Self::Ipc(path.into()))
            }
        } else {
            fail("it begins with neither tcp:// nor ipc://")
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "{TCP}{address}"),
            Self::Ipc(path) => write!(f, "{IPC}{}", path.display()),
        }
    }
}

impl From<SocketAddr> for Endpoint {
    fn from(address: SocketAddr) -> Self {
        Self::Tcp(address)
    }
}

impl From<(IpAddr, u16)> for Endpoint {
    fn from(address: (IpAddr, u16)) -> Self {
        Self::Tcp(address.into())
    }
}

impl From<&Path> for Endpoint {
    fn from(path: &Path) -> Self {
        Self::Ipc(path.into())
    }
}

const TCP: &str = "tcp://";
const IPC: &str = "ipc://";
const MAX_PATH: usize = 107;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_is_written_the_same_way() {
        for text in ["tcp://127.0.0.1:5555", "tcp://[::1]:0", "ipc:///run/a.sock", "ipc://a"] {
            assert_eq!(text.parse::<Endpoint>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn what_is_no_endpoint_is_refused_with_the_reason() {
        for (text, reason) in [
            ("127.0.0.1:5555", "neither"),
            ("tcp://127.0.0.1", "port"),
            ("tcp://127.0.0.1:70000", "port"),
            ("tcp://host:1", "numbers"),
            ("ipc://", "empty"),
            ("ipc://a\0b", "NUL"),
            (&format!("ipc://{}", "a".repeat(108)), "107"),
        ] {
            let error = text.parse::<Endpoint>().unwrap_err().to_string();
            assert!(error.contains(reason), "{text}: {error}");
        }
        assert!(Endpoint::resolve("tcp://localhost:5555").unwrap().is_local());
        for text in ["tcp://localhost", "tcp://127.0.0.1", "tcp://localhost:70000"] {
            let error = Endpoint::resolve(text).unwrap_err().to_string();
            assert!(error.contains("no port from 0 to 65535"), "{error}");
        }
        assert!(Endpoint::resolve("udp://localhost:5555").is_err());
    }

    #[test]
    fn an_endpoint_beside_another_is_on_the_same_host() {
        let beside = |text: &str| text.parse::<Endpoint>().unwrap().beside("input").to_string();
        assert_eq!(beside("tcp://127.0.0.2:5555"), "tcp://127.0.0.2:0");
        assert_eq!(beside("ipc:///run/a.sock"), "ipc:///run/a.sock.input");
    }
}
