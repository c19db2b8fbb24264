//! [`SocketOptions`]: what the system is told about the sockets of a driver.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::AddressFamily;
use rustix::net::sockopt::{
    set_socket_keepalive, set_socket_recv_buffer_size, set_socket_send_buffer_size, set_tcp_keepcnt,
    set_tcp_keepidle, set_tcp_keepintvl, set_tcp_nodelay, set_tcp_user_timeout,
};

use super::Endpoint;
use super::listener::new_socket;

/// What the system is told about each socket of a driver: see [`Driver::socket_options`](super::Driver::socket_options).
///
/// ```
/// use std::time::Duration;
///
/// use cuframes_mio::net::{Keepalive, SocketOptions};
///
/// let mut options = SocketOptions::default();
/// options.send_buffer = Some(4 << 20);
/// options.keepalive = Some(Keepalive::new(Duration::from_secs(10), Duration::from_secs(2), 5));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct SocketOptions {
    /// Whether small messages are sent at once, and not kept back to wait for more: by default they are. TCP only.
    pub nodelay: bool,
    /// How the system finds out that a peer is gone to which nothing is sent; by default it does not. TCP only.
    pub keepalive: Option<Keepalive>,
    /// How many bytes of data that was sent, but not yet received, the system keeps for a connection; by default as many as it
    /// thinks fit, and for a TCP connection more when it is fast. It takes no more than `net.core.wmem_max`.
    pub send_buffer: Option<usize>,
    /// The same for data that has arrived, but was not yet read; no more than `net.core.rmem_max`.
    pub receive_buffer: Option<usize>,
    /// How long data that was sent may stay unacknowledged until the connection is given up; by default the system decides,
    /// which takes a quarter of an hour or more. In milliseconds, rounded up. TCP only.
    pub user_timeout: Option<Duration>,
}

/// When the system asks a silent peer whether it is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Keepalive {
    /// After so long a silence; in seconds, rounded up: 1 to 32767.
    pub idle: Duration,
    /// And then so often; in seconds, rounded up: 1 to 32767.
    pub interval: Duration,
    /// After so many questions without an answer it is gone: 1 to 127.
    pub count: u32,
}

impl Keepalive {
    /// Asks after a silence of `idle`, and then every `interval`, `count` times.
    #[must_use]
    pub const fn new(idle: Duration, interval: Duration, count: u32) -> Self {
        Self { idle, interval, count }
    }
}

impl Default for SocketOptions {
    fn default() -> Self {
        Self { nodelay: true, keepalive: None, send_buffer: None, receive_buffer: None, user_timeout: None }
    }
}

impl SocketOptions {
    /// Whether the system accepts them.
    pub(super) fn check(&self) -> io::Result<()> {
        self.set(&new_socket(AddressFamily::INET)?, true)?;
        Ok(())
    }

    /// Sets them for a socket that listens at this endpoint, was accepted there, or is about to connect to it.
    ///
    /// Before it connects or listens is the time for buffers: TCP agrees on how much may be on its way when a connection is
    /// made. Those that are accepted have what their listener has, and get it once more, as they may be older.
    pub(super) fn apply(&self, socket: impl AsFd, endpoint: &Endpoint) {
        // `check` has found that the system accepts them. One that can't be set all the same costs speed, not the connection.
        let _ = self.set(socket, matches!(endpoint, Endpoint::Tcp(_)));
    }

    fn set(&self, socket: impl AsFd, is_tcp: bool) -> Result<(), Errno> {
        let socket = socket.as_fd();
        if let Some(size) = self.send_buffer {
            set_socket_send_buffer_size(socket, size.min(MAX_BUFFER))?;
        }
        if let Some(size) = self.receive_buffer {
            set_socket_recv_buffer_size(socket, size.min(MAX_BUFFER))?;
        }
        if !is_tcp {
            return Ok(());
        }
        set_tcp_nodelay(socket, self.nodelay)?;
        if let Some(Keepalive { idle, interval, count }) = self.keepalive {
            set_tcp_keepidle(socket, idle)?;
            set_tcp_keepintvl(socket, interval)?;
            set_tcp_keepcnt(socket, count)?;
            set_socket_keepalive(socket, true)?;
        }
        if let Some(timeout) = self.user_timeout {
            let millis = timeout.as_nanos().div_ceil(1_000_000);
            set_tcp_user_timeout(socket, u32::try_from(millis).map_err(|_| Errno::INVAL)?)?;
        }
        Ok(())
    }
}

/// The system doubles it, in 32 bits, and takes less in the end.
const MAX_BUFFER: usize = 1 << 30;
