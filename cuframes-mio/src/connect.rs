//! [`SubscriberBuilder`]: the settings of a subscription; [`Finder`]: finding the publisher (D-14).

use std::env;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use cuframes_core::gpu::Import;
use cuframes_core::session::{SubscriberHello, SubscriberSession};
use cuframes_core::wire::hello::ConsumerName;
use cuframes_core::{Backend, Features, Instant, Key, SubscriberMode, Timeouts};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use tracing::debug;

use crate::attach::Arrivals;
use crate::clock;
use crate::conn::Conn;
use crate::error::Error;
use crate::host::HostMemory;
use crate::liveness::PeerCred;
use crate::reconnect::Reconnect;
use crate::rundir::{Places, RunDir};
use crate::subscriber::Subscriber;
use crate::subscription::Subscription;
use crate::tally::Common;

/// Settings of a subscription; [`connect`](Self::connect) or [`start`](Self::start) begins it.
#[derive(Clone, Debug)]
#[must_use]
pub struct SubscriberBuilder {
    key: Key,
    name: ConsumerName,
    mode: SubscriberMode,
    features: Features,
    no_ack: bool,
    run_dir: Option<PathBuf>,
    timeout: Duration,
    spin: Duration,
    reconnect: Option<Reconnect>,
}

impl SubscriberBuilder {
    pub(crate) fn new(key: Key) -> Self {
        Self {
            key,
            name: program_name(),
            mode: SubscriberMode::NEWEST_ONLY,
            features: FEATURES,
            no_ack: false,
            run_dir: None,
            timeout: Timeouts::default().handshake,
            spin: Duration::ZERO,
            reconnect: None,
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

    /// The extensions to ask for; by default FD_PASSING, LEASE, WAKE_HINT and WITNESS. Without LEASE frames can only be copied,
    /// and one is to be held at a time.
    pub const fn features(mut self, features: Features) -> Self {
        self.features = features;
        self
    }

    /// Asks for NO_ACK, besides the other [features](Self::features): no frame is required of this subscriber. A publisher
    /// under STRICT_WAIT does not wait until it has seen each frame, so it may miss some, and is not evicted for that. What it
    /// holds under a lease the publisher waits for as ever. For who takes frames by their number
    /// ([`Subscriber::frame`]), or just looks.
    ///
    /// A publisher that does not know NO_ACK does not grant it: [`Subscriber::features`] says so.
    pub const fn no_ack(mut self) -> Self {
        self.no_ack = true;
        self
    }

    /// The only directory to look for the socket in; by default `$CUFRAMES_RUN_DIR`, or else `/run/cuframes`,
    /// `$XDG_RUNTIME_DIR/cuframes` and `/tmp/cuframes-<uid>` (D-14).
    pub fn run_dir(mut self, run_dir: impl Into<PathBuf>) -> Self {
        self.run_dir = Some(run_dir.into());
        self
    }

    /// How long each step of the handshake may take, and how long [`connect`](Self::connect) waits for a publisher if it
    /// waits for one; 5 s by default.
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// How long [`Subscriber::next`] looks for a frame again and again before it sleeps; not at all by default. It finds one in
    /// less than a microsecond, where waking up takes the kernel tens of them, and keeps a CPU busy for that. Where the process
    /// may use only one CPU it does not spin: the publisher may need it.
    pub const fn spin(mut self, spin: Duration) -> Self {
        self.spin = spin;
        self
    }

    /// Goes on with the next publisher when there is none or no longer one (D-24); by default the subscriber ends with
    /// its publisher. How that goes is described at [`Subscriber`].
    pub const fn reconnect(mut self, reconnect: Reconnect) -> Self {
        self.reconnect = Some(reconnect);
        self
    }

    /// The stream's key.
    #[must_use]
    pub const fn key(&self) -> &Key {
        &self.key
    }

    /// Subscribes to frames in host memory, and waits until the stream is mapped. With [`reconnect`](Self::reconnect) it
    /// waits for a publisher, too.
    ///
    /// # Errors
    /// [`Error::NotFound`] if there is no such stream, [`Error::Refused`] if the publisher says no, [`Error::Gone`] if it
    /// does not answer in time, [`Error::Busy`] if it has had no room for another connection all that time,
    /// [`Error::Violation`] if it breaks the protocol, [`Error::Unusable`] if its frames are in memory that can't be used here,
    /// [`Error::DescriptorsLost`] if this process may have too few descriptors, [`Error::Untrusted`],
    /// [`Error::PermissionDenied`] or [`Error::PathTooLong`] for the run directory or what is in it, [`Error::System`] or [`Error::Io`].
    pub fn connect(self) -> Result<Subscriber, Error> {
        let backend = HostMemory::new(self.key.clone());
        self.connect_on(backend)
    }

    /// As [`connect`](Self::connect), to frames that `backend` can open.
    ///
    /// # Errors
    /// As [`connect`](Self::connect), or [`Error::Device`].
    pub fn connect_on<B: Import<Fd = OwnedFd>>(self, backend: B) -> Result<Subscriber<B>, Error> {
        self.connect_while(backend, || Ok(()))
    }

    /// As [`connect_on`](Self::connect_on), as long as `check`, which is called again and again, finds nothing wrong.
    pub(crate) fn connect_while<B: Import<Fd = OwnedFd>, E: From<Error>>(
        self,
        backend: B,
        mut check: impl FnMut() -> Result<(), E>,
    ) -> Result<Subscriber<B>, E> {
        let backend = Arc::new(backend);
        let deadline = clock::now() + self.timeout;
        let mut subscriber = loop {
            check()?;
            match self.clone().begin(Arc::clone(&backend)) {
                // The backlog of the publisher is full: it has much to do, but lives.
                Err(Error::Busy { .. }) if clock::now() < deadline => thread::sleep(BUSY_PAUSE),
                started => break started?,
            }
        };
        while !subscriber.wait_ready(Some(deadline), clock::now() + CHECK_PAUSE)? {
            check()?;
        }
        Ok(subscriber)
    }

    /// Begins to subscribe to frames in host memory, without waiting: drive the result until it is
    /// [ready](Subscriber::is_ready). With [`reconnect`](Self::reconnect) there need not be a publisher yet.
    ///
    /// # Errors
    /// [`Error::NotFound`] if there is no such stream, [`Error::Busy`] if its publisher has no room for another
    /// connection right now, or what the operating system refuses. With `reconnect` only what no waiting can cure.
    pub fn start(self) -> Result<Subscriber, Error> {
        let backend = HostMemory::new(self.key.clone());
        self.start_on(backend)
    }

    /// As [`start`](Self::start), for frames that `backend` can open.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_on<B: Import<Fd = OwnedFd>>(self, backend: B) -> Result<Subscriber<B>, Error> {
        self.begin(Arc::new(backend))
    }

    fn begin<B: Import<Fd = OwnedFd>>(self, backend: Arc<B>) -> Result<Subscriber<B>, Error> {
        let common = Common::new().map_err(|error| Error::system(&self.key, "map memory", error))?;
        let Self { reconnect, mut spin, .. } = self;
        if !spin.is_zero() && thread::available_parallelism().is_ok_and(|cpus| cpus.get() == 1) {
            spin = Duration::ZERO;
        }
        Subscriber::start(self.finder(backend), common, reconnect, spin)
    }

    pub(crate) fn finder<B: Import<Fd = OwnedFd>>(self, backend: Arc<B>) -> Finder<B> {
        let Self { key, name, mode, mut features, no_ack, run_dir, timeout, spin: _, reconnect: _ } = self;
        if no_ack {
            features = features.union(Features::NO_ACK);
        }
        if backend.opens(Backend::CUDA_VMM) {
            features = features.union(Features::CUDA_VMM);
        }
        if backend.opens(Backend::CUDA_IPC) {
            features = features.union(Features::MEM_OFFSET);
        }
        let places = Places::from_environment(run_dir.as_deref());
        places.warn(&key);
        let hello =
            SubscriberHello { name, cuda_device: NO_DEVICE, mode, features, handshake_timeout: timeout };
        Finder { key, places, hello, backend }
    }
}

/// Finds the publisher of a stream, as often as is needed.
#[derive(Debug)]
pub(crate) struct Finder<B> {
    key: Key,
    backend: Arc<B>,
    places: Places,
    hello: SubscriberHello,
}

impl<B: Import<Fd = OwnedFd>> Finder<B> {
    pub(crate) const fn key(&self) -> &Key {
        &self.key
    }

    /// The run directories that it looks in.
    pub(crate) fn dirs(&self) -> impl Iterator<Item = &Path> {
        self.places.candidates().map(RunDir::path)
    }

    /// Connects to the publisher that is there now, and says HELLO.
    pub(crate) fn find(&self, now: Instant, common: &Arc<Common>) -> Result<Subscription<B>, Error> {
        let Self { key, places, hello, backend } = self;
        let socket = self.connect()?;
        let failed = |error| Error::system(key, "use the connection to the publisher", error);
        let PeerCred { pid, uid } = PeerCred::of(&socket).map_err(failed)?;
        debug!(%key, publisher = pid, "connected");
        let conn = Conn::new(socket, SubscriberSession::new(now, hello.clone())).map_err(failed)?;
        let arrivals = Arrivals::new(
            (key.clone(), hello.mode),
            Arc::clone(backend),
            places.shm.clone(),
            uid,
            Arc::clone(common),
        );
        Ok(Subscription::new(now, conn, pid, arrivals))
    }

    /// Connects to the stream's socket, in the first directory where somebody listens on it.
    fn connect(&self) -> Result<UnixStream, Error> {
        let mut trouble = None;
        for dir in self.places.candidates() {
            match self.connect_in(dir) {
                Ok(Some(socket)) => return Ok(socket),
                Ok(None) => {}
                // It is there.
                Err(busy @ Error::Busy { .. }) => return Err(busy),
                // A publisher that can't use this directory has taken another one (§1.1).
                Err(error) => _ = trouble.get_or_insert(error),
            }
        }
        let not_found = || Error::NotFound {
            key: self.key.clone(),
            looked_in: self.dirs().map(Path::to_path_buf).collect(),
        };
        Err(trouble.unwrap_or_else(not_found))
    }

    /// Connects to the stream's socket in one directory, if somebody listens on it.
    fn connect_in(&self, dir: &RunDir) -> Result<Option<UnixStream>, Error> {
        if !dir.exists()? {
            return Ok(None);
        }
        let path = dir.socket_path(&self.key)?;
        match try_connect(&path) {
            Ok(socket) => Ok(Some(socket)),
            // Refused: the socket of a publisher that died.
            Err(Errno::NOENT | Errno::CONNREFUSED) => Ok(None),
            Err(Errno::AGAIN) => Err(Error::Busy { key: self.key.clone() }),
            Err(errno) => Err(Error::io("connect to", &path, errno)),
        }
    }
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
const FEATURES: Features =
    Features::FD_PASSING.union(Features::LEASE).union(Features::WAKE_HINT).union(Features::WITNESS);
/// `cuda_device` of a subscriber without one (D-16).
const NO_DEVICE: i32 = -1;
/// Characters of a program's name that are used: as many bytes as the region can show.
const MAX_NAME_CHARS: usize = 31;
/// Between two attempts to connect to a publisher whose backlog is full.
const BUSY_PAUSE: Duration = Duration::from_millis(10);
/// How long a wait for the publisher may last until it is looked whether it is to go on.
const CHECK_PAUSE: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixListener;

    use rustix::process::geteuid;
    use tempfile::tempdir;

    use super::*;
    use crate::error::Distrust;
    use crate::rundir::Trust;
    use crate::testing::{key, skipped};

    /// Looks in `run/cuframes`, `user/cuframes` and `tmp`, all below `dir`.
    fn finder(dir: &Path) -> Finder<HostMemory> {
        let last = Places::from_environment(Some(&dir.join("tmp"))).candidates().next().unwrap().clone();
        let backend = Arc::new(HostMemory::new(key()));
        let parents = ["run", "user"].map(|parent| (Some(dir.join(parent)), Trust::System));
        Finder { places: Places::new(None, parents, last), ..SubscriberBuilder::new(key()).finder(backend) }
    }

    fn listen_in(dir: &Path) -> UnixListener {
        fs::create_dir_all(dir).unwrap();
        UnixListener::bind(dir.join(key().socket_file())).unwrap()
    }

    #[test]
    fn a_stream_is_found_behind_a_directory_that_can_not_be_used() {
        for last in ["user/cuframes", "tmp"] {
            let dir = tempdir().unwrap();
            let finder = finder(dir.path());
            fs::create_dir(dir.path().join("run")).unwrap();
            fs::write(dir.path().join("run/cuframes"), "no directory").unwrap();
            let error = finder.connect().unwrap_err();
            assert!(matches!(error, Error::Untrusted { problem: Distrust::NotADirectory, .. }), "{error}");
            let _listener = listen_in(&dir.path().join(last));
            finder.connect().unwrap();
        }
    }

    #[test]
    fn a_stream_is_found_behind_a_directory_that_may_not_be_entered() {
        if geteuid().is_root() {
            return skipped("a directory that may not be entered", "root may enter any");
        }
        let dir = tempdir().unwrap();
        let finder = finder(dir.path());
        let closed = dir.path().join("run/cuframes");
        fs::create_dir_all(&closed).unwrap();
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o000)).unwrap();
        let error = finder.connect().unwrap_err();
        assert!(matches!(error, Error::PermissionDenied { .. }), "{error}");
        let _listener = listen_in(&dir.path().join("user/cuframes"));
        finder.connect().unwrap();
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).unwrap();
    }

    #[test]
    fn without_any_trouble_it_says_where_it_looked() {
        let dir = tempdir().unwrap();
        let finder = finder(dir.path());
        drop(listen_in(&dir.path().join("run/cuframes")));
        let Error::NotFound { looked_in, .. } = finder.connect().unwrap_err() else {
            panic!("it is not there")
        };
        assert_eq!(looked_in, ["run/cuframes", "user/cuframes", "tmp"].map(|path| dir.path().join(path)));
    }
}
