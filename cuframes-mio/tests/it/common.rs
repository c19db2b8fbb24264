//! What several tests need: a private run directory and key, and frames whose bytes say which frame they are.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use cuframes_mio::core::wire::hello::ConsumerName;
use cuframes_mio::core::{Format, FrameMeta, Key, Policy, RingSize, SubscriberMode};
use cuframes_mio::{
    Claim, Frame, Publisher, PublisherBuilder, Reconnect, ServedPublisher, StreamEvent, Subscriber,
    SubscriberBuilder,
};

pub(crate) const NEWEST: SubscriberMode = SubscriberMode::NEWEST_ONLY;
pub(crate) const STRICT: SubscriberMode = SubscriberMode::STRICT_ORDER;
/// Longer than any test takes, unless something hangs.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// A stream of this test alone.
pub(crate) struct Stream {
    pub(crate) key: Key,
    pub(crate) dir: tempfile::TempDir,
}

impl Stream {
    pub(crate) fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let key = format!("test-{}-{number}", std::process::id()).parse().unwrap();
        Self { key, dir: tempfile::tempdir().unwrap() }
    }

    /// In a [child](Self::child): the stream that the test [told](told) us.
    pub(crate) fn of(key: Key, dir: &Path) -> Self {
        // A directory of its own inside, which goes when the child is done with it.
        Self { key, dir: tempfile::tempdir_in(dir).unwrap() }
    }

    pub(crate) fn publisher(&self, slots: u64, policy: Policy) -> PublisherBuilder {
        let builder = Publisher::builder(self.key.clone(), meta()).run_dir(self.dir.path());
        builder.ring_size(RingSize::new(slots).unwrap()).policy(policy)
    }

    pub(crate) fn subscriber(&self, name: &str, mode: SubscriberMode) -> SubscriberBuilder {
        let name: ConsumerName = name.parse().unwrap();
        Subscriber::builder(self.key.clone()).run_dir(self.dir.path()).name(name).mode(mode)
    }

    /// One that goes on with the next publisher.
    pub(crate) fn reconnecting(&self, mode: SubscriberMode) -> SubscriberBuilder {
        self.subscriber("patient", mode).reconnect(Reconnect::default())
    }

    /// A command that runs the ignored test `name` alone in a process of its own; there, [`told`] gives this stream.
    pub(crate) fn child(&self, name: &str) -> Command {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", name, "--ignored", "--nocapture"]);
        command.env("TEST_KEY", self.key.as_str()).env("TEST_DIR", self.dir.path());
        command
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.dir.path().join(self.key.socket_file())
    }

    pub(crate) fn region(&self) -> PathBuf {
        Path::new("/dev/shm").join(self.key.region_file())
    }

    /// Everything is cleared away but the lock file, which stays for good (D-13).
    pub(crate) fn assert_nothing_left(&self) {
        assert!(!self.region().exists(), "the region is left behind");
        let left: Vec<_> =
            std::fs::read_dir(self.dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, [std::ffi::OsString::from(format!("{}.lock", self.key))]);
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // Still there if a process ended without a word, or if the test failed.
        let _ = std::fs::remove_file(self.region());
        let _ = std::fs::remove_file(Path::new("/dev/shm").join(self.key.region_lock_file()));
    }
}

/// In a [child](Stream::child): the stream that the test told us.
pub(crate) fn told() -> (Key, PathBuf) {
    let told = |name| std::env::var_os(name).unwrap();
    (told("TEST_KEY").to_str().unwrap().parse().unwrap(), told("TEST_DIR").into())
}

pub(crate) fn meta() -> FrameMeta {
    FrameMeta::new(Format::NV12, 320, 240).unwrap()
}

/// Fills every word of a frame with its number.
pub(crate) fn fill(claim: &mut Claim<'_>) {
    let seq = claim.seq();
    for word in claim.bytes_mut().chunks_exact_mut(8) {
        word.copy_from_slice(&seq.to_le_bytes());
    }
}

/// Publishes a [filled](fill) frame.
pub(crate) fn publish(publisher: &mut ServedPublisher) -> u64 {
    let mut claim = publisher.claim().unwrap();
    fill(&mut claim);
    claim.commit()
}

/// The next frame, which must come.
pub(crate) fn next(subscriber: &mut Subscriber) -> Frame {
    subscriber.next(LONG).unwrap().expect("a frame in time")
}

/// All events so far.
pub(crate) fn events(subscriber: &mut Subscriber) -> Vec<StreamEvent> {
    std::iter::from_fn(|| subscriber.poll_event()).collect()
}

/// Checks that every word of a frame is its number.
pub(crate) fn check(frame: &Frame) {
    check_bytes(frame.seq(), frame.bytes().expect("a leased frame"));
}

pub(crate) fn check_bytes(seq: u64, bytes: &[u8]) {
    assert_eq!(u64::try_from(bytes.len()).unwrap(), meta().frame_size_bytes);
    let wrong = bytes.chunks_exact(8).position(|word| word != seq.to_le_bytes());
    assert_eq!(wrong, None, "frame {seq} has other bytes at this word");
}

/// How many maps this process has of the region and the frames of a stream.
pub(crate) fn maps(key: &Key) -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let name = format!("cuframes-{key}");
    maps.lines().filter(|line| line.trim_end_matches(" (deleted)").ends_with(&name)).count()
}

/// Waits until something is so.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = std::time::Instant::now();
    while !is_so() {
        assert!(start.elapsed() < LONG, "waited too long for {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A process that runs. Killed when dropped, so that a test that fails leaves nothing running.
pub(crate) struct Running(pub(crate) Child);

impl Running {
    pub(crate) fn start(command: &mut Command) -> Self {
        Self(command.spawn().unwrap())
    }

    /// Waits until it ends by itself.
    pub(crate) fn end(&mut self) -> ExitStatus {
        let mut status = None;
        until("the end of a process", || {
            status = self.0.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
