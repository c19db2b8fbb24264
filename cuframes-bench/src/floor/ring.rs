//! A ring of frames in shared memory, with an eventfd for each reader or without. Nothing keeps a frame from being
//! overwritten while it is read, nobody notices that others are gone, and who wakes up at all is woken for every frame.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{read, retry_on_intr, write};

use super::socket;
use crate::shared::SharedWords;
use crate::system::{Failure, Setup, System, Wait};

/// With `RINGS` the writer writes every reader's eventfd, and a reader sleeps in read(2) on its own; without, readers spin.
#[derive(Debug)]
pub(super) struct Floor<const RINGS: bool>;

pub(super) type Bells = Floor<true>;
pub(super) type Silent = Floor<false>;

#[derive(Debug)]
pub(super) struct Writer {
    ring: Ring,
    /// The frame before it is stored.
    frame: Vec<u8>,
    arrivals: Receiver<OwnedFd>,
    bells: Vec<OwnedFd>,
}

#[derive(Debug)]
pub(super) struct Reader {
    ring: Ring,
    frame: Vec<u8>,
    seen: u64,
    bell: OwnedFd,
}

impl<const RINGS: bool> System for Floor<RINGS> {
    const NAME: &'static str = super::NAME;

    type Writer = Writer;
    type Reader = Reader;

    fn writer(setup: &Setup) -> Result<Writer, Failure> {
        Writer::open(setup)
    }

    fn wait_for_readers(writer: &mut Writer, setup: &Setup, timeout: Duration) -> Result<(), Failure> {
        writer.wait(setup.readers, timeout)
    }

    #[inline]
    fn write(writer: &mut Writer, fill: impl FnOnce(&mut [u8])) -> Result<(), Failure> {
        writer.write(fill);
        if RINGS {
            for bell in &writer.bells {
                retry_on_intr(|| write(bell, &1_u64.to_ne_bytes()))?;
            }
        }
        Ok(())
    }

    fn reader(setup: &Setup, _index: usize) -> Result<Reader, Failure> {
        Reader::open(setup)
    }

    /// Does not end with the timeout: read(2) has none.
    #[inline]
    fn read<T>(reader: &mut Reader, wait: Wait, look: impl FnOnce(&[u8]) -> T) -> Result<Option<T>, Failure> {
        while !reader.take() {
            if !RINGS || wait == Wait::Spin {
                return Ok(None);
            }
            retry_on_intr(|| read(&reader.bell, &mut [0; 8]))?;
        }
        Ok(Some(look(&reader.frame)))
    }
}

impl Writer {
    fn open(setup: &Setup) -> Result<Self, Failure> {
        let (ring, memory) = Ring::create(setup.frame_bytes, setup.ring_size)?;
        let listener = UnixListener::bind(socket_path(setup))?;
        let (readers, (sender, arrivals)) = (setup.readers, channel());
        let serve = move || -> io::Result<()> {
            for _ in 0..readers {
                let (stream, _) = listener.accept()?;
                let bell = eventfd(0, EventfdFlags::CLOEXEC)?;
                socket::send(&stream, &[memory.as_fd(), bell.as_fd()])?;
                if sender.send(bell).is_err() {
                    break;
                }
            }
            Ok(())
        };
        // Whoever waits for the readers notices if it fails.
        thread::Builder::new().name("floor-serve".into()).spawn(serve)?;
        Ok(Self { ring, frame: vec![0; setup.frame_bytes], arrivals, bells: Vec::new() })
    }

    fn wait(&mut self, readers: usize, timeout: Duration) -> Result<(), Failure> {
        while self.bells.len() < readers {
            self.bells.push(self.arrivals.recv_timeout(timeout)?);
        }
        Ok(())
    }

    #[inline]
    fn write(&mut self, fill: impl FnOnce(&mut [u8])) {
        fill(&mut self.frame);
        let number = self.ring.head().load(Ordering::Relaxed) + 1;
        for (word, bytes) in self.ring.slot(number).iter().zip(self.frame.as_chunks().0) {
            word.store(u64::from_ne_bytes(*bytes), Ordering::Relaxed);
        }
        self.ring.head().store(number, Ordering::Release);
    }
}

impl Reader {
    fn open(setup: &Setup) -> Result<Self, Failure> {
        let stream = UnixStream::connect(socket_path(setup))?;
        let mut fds = socket::receive(&stream)?.into_iter();
        let (memory, bell) = fds.next().zip(fds.next()).ok_or("descriptors are missing")?;
        let ring = Ring::open(&memory, setup.frame_bytes, setup.ring_size)?;
        let seen = ring.head().load(Ordering::Acquire);
        Ok(Self { ring, frame: vec![0; setup.frame_bytes], seen, bell })
    }

    /// Copies the next frame out, if there is one.
    #[inline]
    fn take(&mut self) -> bool {
        let head = self.ring.head().load(Ordering::Acquire);
        if head == self.seen {
            return false;
        }
        // What was overwritten meanwhile is left out.
        self.seen = (self.seen + 1).max(head.saturating_sub(self.ring.slots - 1));
        for (bytes, word) in self.frame.as_chunks_mut().0.iter_mut().zip(self.ring.slot(self.seen)) {
            *bytes = word.load(Ordering::Relaxed).to_ne_bytes();
        }
        true
    }
}

/// The number of the last frame in a cache line of its own, and then the frames.
#[derive(Debug)]
struct Ring {
    memory: SharedWords,
    slots: u64,
    slot_words: usize,
}

impl Ring {
    fn create(frame_bytes: usize, slots: u8) -> io::Result<(Self, OwnedFd)> {
        let slot_words = frame_bytes.div_ceil(LINE_BYTES) * LINE;
        let (memory, fd) = SharedWords::create(LINE + usize::from(slots) * slot_words)?;
        Ok((Self { memory, slots: slots.into(), slot_words }, fd))
    }

    fn open(fd: &OwnedFd, frame_bytes: usize, slots: u8) -> io::Result<Self> {
        let slot_words = frame_bytes.div_ceil(LINE_BYTES) * LINE;
        Ok(Self { memory: SharedWords::open(fd)?, slots: slots.into(), slot_words })
    }

    #[inline]
    fn head(&self) -> &AtomicU64 {
        // The memory has a word.
        self.memory.words().first().unwrap_or(&NOTHING)
    }

    #[inline]
    fn slot(&self, number: u64) -> &[AtomicU64] {
        let slot = usize::try_from(number % self.slots).unwrap_or(0);
        let start = LINE + slot * self.slot_words;
        self.memory.words().get(start..start + self.slot_words).unwrap_or_default()
    }
}

fn socket_path(setup: &Setup) -> PathBuf {
    setup.dir.join(&setup.stream)
}

static NOTHING: AtomicU64 = AtomicU64::new(0);

/// Words of a cache line.
const LINE: usize = 8;
const LINE_BYTES: usize = LINE * size_of::<AtomicU64>();

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_gets_every_frame_in_order_and_after_a_lap_the_oldest_that_is_left() {
        let (ring, fd) = Ring::create(64, 4).unwrap();
        let bell = || eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        let (_, arrivals) = channel();
        let mut writer = Writer { ring, frame: vec![0; 64], arrivals, bells: vec![] };
        let ring = Ring::open(&fd, 64, 4).unwrap();
        let mut reader = Reader { ring, frame: vec![0; 64], seen: 0, bell: bell() };
        let mut next = || Silent::read(&mut reader, Wait::Spin, |frame| frame[63]).unwrap();
        assert_eq!(next(), None);
        for n in 1..=3 {
            writer.write(|frame| frame.fill(n));
        }
        assert_eq!([next(), next(), next(), next()], [Some(1), Some(2), Some(3), None]);
        for n in 4..=12 {
            writer.write(|frame| frame.fill(n));
        }
        assert_eq!([next(), next(), next(), next(), next()], [Some(9), Some(10), Some(11), Some(12), None]);
    }
}
