//! The same flow of frames inside one process: threads, and a lock with which they hand frames over.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, RwLock};
use std::thread;

use serde_json::Value;

use crate::figures::Figure;
use crate::jobs::flow::{Part, Watched, draw, setup, write_all};
use crate::numbers::count;
use crate::stage::Stage;
use crate::system::{Failure, Setup};
use crate::troupe::Post;

pub(crate) fn lead(stage: &Stage) -> Result<Vec<Figure>, Failure> {
    let ring = Ring::new(&setup(&stage.brief)?);
    let written = thread::scope(|scope| {
        let ring = &ring;
        let readers = 0..ring.lock().read.len();
        let readers: Vec<_> = readers.map(|index| scope.spawn(move || ring.read_all(index))).collect();
        let written = write_all(&stage.brief, |tag| ring.write(|frame| draw(frame, tag)));
        if written.is_err() {
            ring.lock().is_over = true;
            ring.published.notify_all();
        }
        for reader in readers {
            reader.join().map_err(|_| "a reader has panicked")??;
        }
        written
    })?;
    // The CPU time of the process is already that of all threads.
    Ok(written.figures())
}

/// There are no other processes.
pub(crate) fn support(_post: &mut Post) -> Result<Value, Failure> {
    Err("the floor of flow has no other processes".into())
}

/// Frames that nobody copies.
#[derive(Debug)]
struct Ring {
    frames: Vec<RwLock<Vec<u8>>>,
    progress: Mutex<Progress>,
    published: Condvar,
    released: Condvar,
}

#[derive(Debug)]
struct Progress {
    written: u64,
    /// By reader.
    read: Vec<u64>,
    is_over: bool,
}

impl Ring {
    fn new(setup: &Setup) -> Self {
        let frame = || RwLock::new(vec![0; setup.frame_bytes]);
        Self {
            frames: (0..setup.ring_size).map(|_| frame()).collect(),
            progress: Mutex::new(Progress { written: 0, read: vec![0; setup.readers], is_over: false }),
            published: Condvar::new(),
            released: Condvar::new(),
        }
    }

    fn write(&self, fill: impl FnOnce(&mut [u8])) -> Result<(), Failure> {
        let slots = count(self.frames.len());
        let mut progress = self.lock();
        let number = progress.written;
        while progress.read.iter().any(|read| number - read >= slots) {
            if progress.is_over {
                return Err("a reader has failed".into());
            }
            progress = self.released.wait(progress).unwrap_or_else(PoisonError::into_inner);
        }
        drop(progress);
        fill(&mut self.frame(number)?.write().unwrap_or_else(PoisonError::into_inner));
        self.lock().written += 1;
        self.published.notify_all();
        Ok(())
    }

    fn read_all(&self, index: usize) -> Result<(), Failure> {
        let mut watched = Watched::default();
        for number in 0.. {
            let mut progress = self.lock();
            while progress.written == number && !progress.is_over {
                progress = self.published.wait(progress).unwrap_or_else(PoisonError::into_inner);
            }
            let is_over = progress.is_over;
            drop(progress);
            // Nobody looks at the CPU time by reader: all are one process.
            let frame = self.frame(number)?.read().unwrap_or_else(PoisonError::into_inner);
            let part = if is_over { Ok(Part::Over) } else { watched.look(&frame, || 0) };
            drop(frame);
            let mut progress = self.lock();
            if let Some(read) = progress.read.get_mut(index) {
                *read += 1;
            }
            progress.is_over |= part.is_err();
            drop(progress);
            self.released.notify_one();
            if part? == Part::Over {
                break;
            }
        }
        Ok(())
    }

    fn frame(&self, number: u64) -> Result<&RwLock<Vec<u8>>, Failure> {
        let slot = usize::try_from(number % count(self.frames.len()))?;
        self.frames.get(slot).ok_or_else(|| "no such frame".into())
    }

    fn lock(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
