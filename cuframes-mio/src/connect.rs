//! [`SubscriberBuilder`]: the settings of a subscription, and finding the publisher (D-14).

use std::env;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use cuframes_core::session::{SubscriberHello, SubscriberSession};
use cuframes_core::wire::hello::ConsumerName;
use cuframes_core::{Features, Key, SubscriberMode, Timeouts};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

use crate::attach::Arrivals;
use crate::clock;
use crate::conn::Conn;
use crate::error::Error;
use crate::liveness::PeerCred;
use crate::rundir::Places;
use crate::subscriber::Subscriber;

/// Settings of a subscription; [`connect`](Self::connect) or [`start`](Self::start) begins it.
#[derive(Clone, Debug)]
#[must_use]
pub struct SubscriberBuilder {
    key: Key,
    name: ConsumerName,
    mode: SubscriberMode,
    features: Features,
    run_dir: Option<PathBuf>,
    timeout: Duration,
}

impl SubscriberBuilder {
    pub(crate) fn new(key: Key) -> Self {
        Self {
            key,
            name: program_name(),
            mode: SubscriberMode::NEWEST_ONLY,
            features: FEATURES,
            run_dir: None,
            timeout: Timeouts::default().handshake,
        }
    }

    /// The name that the publisher shows; by default that of the program. It need not be unique (D-16).
    pub fn name(mut self, name: ConsumerName) -> Self {
        self.name = name;
        self
    }

    /// Which frames to hand out; NEWEST_ONLY by default.
    pub const fn mode(mut self, mode: SubscriberMode) -> Self {
        self.mode = mode;
        self
    }

    /// The extensions to ask for; by default FD_PASSING, LEASE and WAKE_HINT. Without LEASE frames can only be copied.
    pub const fn features(mut self, features: Features) -> Self {
        self.features = features;
        self
    }

    /// The only directory to look for the socket in; by default `$CUFRAMES_RUN_DIR`, or else `/run/cuframes`,
    /// `$XDG_RUNTIME_DIR/cuframes` and `/tmp/cuframes-<uid>` (D-14).
    pub fn run_dir(mut self, run_dir: impl Into<PathBuf>) -> Self {
        self.run_dir = Some(run_dir.into());
        self
    }

    /// How long each step of the handshake may take; 5 s by default.
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Subscribes, and waits until the stream is mapped.
    ///
    /// # Errors
    /// [`Error::NotFound`] if there is no such stream, [`Error::Refused`] if the publisher says no, [`Error::Gone`] if it
    /// does not answer in time, [`Error::Unusable`] if its frames are in memory that can't be used here.
    pub fn connect(self) -> Result<Subscriber, Error> {
        let deadline = clock::now() + self.timeout;
        let mut subscriber = loop {
            match self.clone().start() {
                // The backlog of the publisher is full: it has much to do, but lives.
                Err(Error::Busy { .. }) if clock::now() < deadline => thread::sleep(BUSY_PAUSE),
                started => break started?,
            }
        };
        subscriber.wait_ready()?;
        Ok(subscriber)
    }

    /// Begins to subscribe, without waiting: drive the result until it is [ready](Subscriber::is_ready).
    ///
    /// # Errors
    /// [`Error::NotFound`] if there is no such stream, [`Error::Busy`] if its publisher has no room for another
    /// connection right now, or what the operating system refuses.
    pub fn start(self) -> Result<Subscriber, Error> {
        let Self { key, name, mode, features, run_dir, timeout } = self;
        let places = Places::from_environment(run_dir.as_deref());
        let socket = find(&places, &key)?;
        let failed = |error| Error::system(&key, error);
        let peer = PeerCred::of(&socket).map_err(failed)?;
        let hello =
            SubscriberHello { name, cuda_device: NO_DEVICE, mode, features, handshake_timeout: timeout };
        let conn = Conn::new(socket, SubscriberSession::new(clock::now(), hello)).map_err(failed)?;
        Ok(Subscriber::new(conn, Arrivals::new(key, mode, places.shm, peer.uid)))
    }
}

/// Connects to the stream's socket, in the first directory where somebody listens on it.
fn find(places: &Places, key: &Key) -> Result<UnixStream, Error> {
    let mut looked_in = Vec::new();
    for dir in places.candidates() {
        looked_in.push(dir.path().to_path_buf());
        if !dir.exists()? {
            continue;
        }
        let path = dir.socket_path(key)?;
        match try_connect(&path) {
            Ok(socket) => return Ok(socket),
            // Refused: the socket of a publisher that died.
            Err(Errno::NOENT | Errno::CONNREFUSED) => {}
            Err(Errno::AGAIN) => return Err(Error::Busy { key: key.clone() }),
            Err(errno) => return Err(Error::io("connect to", &path, errno)),
        }
    }
    Err(Error::NotFound { key: key.clone(), looked_in })
}

fn try_connect(path: &Path) -> Result<UnixStream, Errno> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket.into())
}

/// The program's name, as far as it may be one.
fn program_name() -> ConsumerName {
    let path = env::current_exe().unwrap_or_default();
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let name: String =
        name.chars().filter(|character| !character.is_control()).take(MAX_NAME_CHARS).collect();
    name.parse().unwrap_or_else(|_| ConsumerName::default())
}

/// All that we know how to use.
const FEATURES: Features = Features::FD_PASSING.union(Features::LEASE).union(Features::WAKE_HINT);
/// `cuda_device` of a subscriber without one (D-16).
const NO_DEVICE: i32 = -1;
/// Characters of a program's name that are used: as many bytes as the region can show.
const MAX_NAME_CHARS: usize = 31;
/// Between two attempts to connect to a publisher whose backlog is full.
const BUSY_PAUSE: Duration = Duration::from_millis(10);
