//! [`System`]: a way to hand frames from one process to others, as every job drives it.

use std::error::Error;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// What went wrong, in words.
pub type Failure = Box<dyn Error + Send + Sync>;

/// A stream to be measured. Writer and readers, each in a process of its own, get the same.
#[derive(Serialize, Deserialize, Debug, Clone)]
pub struct Setup {
    /// An empty directory of this measurement's own, for sockets, descriptors' names and whatever else they meet by. A name
    /// made of its last component is unique on the machine.
    pub dir: PathBuf,
    /// Tells streams of one measurement apart.
    pub stream: String,
    /// Bytes of each frame.
    pub frame_bytes: usize,
    /// Frames that are kept.
    pub ring_size: u8,
    /// How many readers will come.
    pub readers: usize,
    /// Whether the writer waits until every reader has read a frame before it is overwritten (or is lost to it).
    pub strict: bool,
    /// Whether readers keep a frame from being overwritten while they look at it, where the system lets them choose.
    pub leases: bool,
}

/// How a reader waits for the next frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a system must know both")]
pub enum Wait {
    /// Not at all: says at once whether there is one. Readers that spin call it again and again.
    Spin,
    /// The thread sleeps until there is one, at most this long.
    Block(Duration),
}

/// A way to hand frames to other processes.
pub trait System {
    /// Its name in tables and in options: one word.
    const NAME: &'static str;

    /// The writer's end.
    type Writer;
    /// A reader's end.
    type Reader;

    /// Opens the writer's end. Readers come afterwards.
    ///
    /// # Errors
    /// Whatever the system fails with.
    fn writer(setup: &Setup) -> Result<Self::Writer, Failure>;

    /// Returns when `setup.readers` readers are there, or fails after `timeout`.
    ///
    /// # Errors
    /// They did not come.
    fn wait_for_readers(writer: &mut Self::Writer, setup: &Setup, timeout: Duration) -> Result<(), Failure>;

    /// Publishes one frame, which `fill` writes in the place from where readers will read it, or where there is no such
    /// place in a buffer that is sent. It is `setup.frame_bytes` long.
    ///
    /// # Errors
    /// Whatever the system fails with.
    fn write(writer: &mut Self::Writer, fill: impl FnOnce(&mut [u8])) -> Result<(), Failure>;

    /// Opens the end of reader `index`; the writer is there already.
    ///
    /// # Errors
    /// Whatever the system fails with.
    fn reader(setup: &Setup, index: usize) -> Result<Self::Reader, Failure>;

    /// Takes the oldest frame that this reader has not had yet and shows it to `look`, then lets go of it. `None`: there was
    /// none, or none in time.
    ///
    /// # Errors
    /// The stream has ended, or whatever else the system fails with.
    fn read<T>(
        reader: &mut Self::Reader,
        wait: Wait,
        look: impl FnOnce(&[u8]) -> T,
    ) -> Result<Option<T>, Failure>;
}
