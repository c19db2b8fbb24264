//! Events: [`Event`]. What one knows is in [`Cells`]: words of the process, or of a file if it is an interprocess event.
//!
//! Each record of an event has a number. A wait is for the record that was the last when the wait was asked for; later
//! records do not delay it.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};

use crate::code::{Code, Result};
use crate::device::IPC_EVENTS;
use crate::driver::{Call, State};
use crate::session::{new_file, open_shared, stays_locked};
use crate::stream::Work;

/// An event that has a handle in this process.
#[derive(Debug)]
pub(crate) struct Event {
    /// Ordinal of the device.
    pub(crate) device: usize,
    pub(crate) origin: Origin,
    cells: Arc<Cells>,
}

/// Where an event is from.
#[derive(Clone, Debug)]
pub(crate) enum Origin {
    /// Of this process, for itself.
    Private,
    /// Of this process, for others: the number in the names of its files.
    Exported { id: u64, waiters: PathBuf },
    /// Of another process.
    Imported { waiters: PathBuf },
}

impl Call<'_> {
    /// `cuEventCreate`.
    ///
    /// # Errors
    /// [`Code::INVALID_VALUE`] for unknown flags, and for `CU_EVENT_INTERPROCESS` without `CU_EVENT_DISABLE_TIMING`.
    pub fn event_create(&self, flags: u32) -> Result<u64> {
        let known = BLOCKING_SYNC | DISABLE_TIMING | INTERPROCESS;
        let timed_for_others = flags & INTERPROCESS != 0 && flags & DISABLE_TIMING == 0;
        if flags & !known != 0 || timed_for_others {
            return Err(Code::INVALID_VALUE);
        }
        let mut state = self.state();
        let id = state.new_id();
        let (origin, cells) = if flags & INTERPROCESS == 0 {
            (Origin::Private, Cells::private())
        } else {
            self.device()?.must(IPC_EVENTS)?;
            let session = &self.driver.session;
            let waiters = session.path(&waiters_name(id));
            new_file(&waiters)?;
            (Origin::Exported { id, waiters }, Cells::in_file(new_file(&session.path(&event_name(id)))?)?)
        };
        Ok(self.add_event(&mut state, id, origin, cells))
    }

    /// `cuEventDestroy`. It is a violation to destroy an event for which another process waits.
    ///
    /// # Errors
    /// [`Code::INVALID_HANDLE`]
    pub fn event_destroy(&self, handle: u64) -> Result<()> {
        let event = self.state().events.remove(&handle).ok_or(Code::INVALID_HANDLE)?;
        if let Origin::Exported { id, waiters } = event.origin {
            if stays_locked(&File::open(&waiters)?)? {
                self.violation("another process waits for this event");
            }
            event.cells.destroy()?;
            for name in [event_name(id), waiters_name(id)] {
                std::fs::remove_file(self.driver.session.path(&name))?;
            }
        }
        Ok(())
    }

    /// `cuEventRecord`.
    ///
    /// # Errors
    /// [`Code::INVALID_HANDLE`], also if event and stream are of two devices.
    pub fn event_record(&self, handle: u64, stream: u64) -> Result<()> {
        let (cells, device) = self.cells(handle)?;
        if self.stream(stream)?.device != device {
            return Err(Code::INVALID_HANDLE);
        }
        let record = cells.record()?;
        self.enqueue(stream, Work::Record(cells, record)).map(drop)
    }

    /// `cuEventQuery`: whether the last record is complete. An event that was never recorded is.
    ///
    /// # Errors
    /// [`Code::NOT_READY`], [`Code::INVALID_HANDLE`].
    pub fn event_query(&self, handle: u64) -> Result<()> {
        let (cells, _) = self.cells(handle)?;
        if cells.is_complete(cells.recorded()?)? { Ok(()) } else { Err(Code::NOT_READY) }
    }

    /// `cuEventSynchronize`: waits until what is now the last record is complete.
    ///
    /// # Errors
    /// [`Code::INVALID_HANDLE`]
    pub fn event_synchronize(&self, handle: u64) -> Result<()> {
        Ok(self.waiting(handle)?.wait(|| false)?)
    }

    /// `cuStreamWaitEvent`: what comes later in the stream waits for what is now the last record.
    ///
    /// # Errors
    /// [`Code::INVALID_HANDLE`], [`Code::INVALID_VALUE`] for flags.
    pub fn stream_wait_event(&self, stream: u64, handle: u64, flags: u32) -> Result<()> {
        if flags > 1 {
            return Err(Code::INVALID_VALUE);
        }
        let waiting = self.waiting(handle)?;
        self.enqueue(stream, Work::Wait(waiting)).map(drop)
    }

    pub(crate) fn event_origin(&self, handle: u64) -> Result<Origin> {
        let state = self.state();
        state.events.get(&handle).map(|event| event.origin.clone()).ok_or(Code::INVALID_HANDLE)
    }

    pub(crate) fn add_event(&self, state: &mut State, id: u64, origin: Origin, cells: Cells) -> u64 {
        let handle = EVENTS + id;
        state.events.insert(handle, Event { device: self.current, origin, cells: Arc::new(cells) });
        handle
    }

    fn waiting(&self, handle: u64) -> Result<Waiting> {
        let (cells, _) = self.cells(handle)?;
        let record = cells.recorded()?;
        let present = match self.event_origin(handle)? {
            // Its exporter may have destroyed it, which was noted.
            Origin::Imported { waiters } => open_shared(&waiters).ok(),
            Origin::Private | Origin::Exported { .. } => None,
        };
        Ok(Waiting { cells, record, _present: present })
    }

    /// The words of an event, and its device. It is a violation to use an event that its exporter destroyed.
    fn cells(&self, handle: u64) -> Result<(Arc<Cells>, usize)> {
        let state = self.state();
        let event = state.events.get(&handle).ok_or(Code::INVALID_HANDLE)?;
        let (cells, device) = (Arc::clone(&event.cells), event.device);
        drop(state);
        if cells.is_destroyed()? {
            self.violation("the exporter destroyed this event");
        }
        Ok((cells, device))
    }
}

/// A wait for one record of an event.
#[derive(Debug)]
pub(crate) struct Waiting {
    cells: Arc<Cells>,
    record: u64,
    /// Tells the exporter that somebody waits.
    _present: Option<File>,
}

impl Waiting {
    /// Looks until the record is complete, or it is to give up.
    pub(crate) fn wait(&self, give_up: impl Fn() -> bool) -> io::Result<()> {
        while !self.cells.is_complete(self.record)? && !give_up() {
            thread::sleep(LOOK_AGAIN);
        }
        Ok(())
    }
}

/// What an event knows.
#[derive(Debug)]
pub(crate) struct Cells {
    words: Mutex<Words>,
}

/// Words of an event: the number of the last record, whether it was destroyed, and for the last records of each number
/// modulo [`REMEMBERED`] that of the highest that is complete.
#[derive(Debug)]
enum Words {
    Here(Vec<u64>),
    File(File),
}

impl Cells {
    fn private() -> Self {
        Self { words: Mutex::new(Words::Here(vec![0; WORDS])) }
    }

    fn in_file(file: File) -> io::Result<Self> {
        file.set_len(8 * u64::try_from(WORDS).unwrap_or_default())?;
        Ok(Self { words: Mutex::new(Words::File(file)) })
    }

    /// The words of an event of another process.
    pub(crate) fn of_another(path: &Path) -> io::Result<Self> {
        let file = File::options().read(true).write(true).open(path)?;
        Ok(Self { words: Mutex::new(Words::File(file)) })
    }

    fn recorded(&self) -> io::Result<u64> {
        self.look(RECORDED)
    }

    /// A new record, which is not complete.
    fn record(&self) -> io::Result<u64> {
        self.change(|words| {
            let record = words.get(RECORDED)? + 1;
            words.set(RECORDED, record)?;
            Ok(record)
        })
    }

    pub(crate) fn complete(&self, record: u64) -> io::Result<()> {
        self.change(|words| {
            let highest = words.get(word_of(record))?;
            words.set(word_of(record), highest.max(record))
        })
    }

    fn is_complete(&self, record: u64) -> io::Result<bool> {
        Ok(record == 0 || self.look(word_of(record))? >= record)
    }

    fn destroy(&self) -> io::Result<()> {
        self.change(|words| words.set(DESTROYED, 1))
    }

    fn is_destroyed(&self) -> io::Result<bool> {
        Ok(self.look(DESTROYED)? != 0)
    }

    /// A word. Takes no lock of another process's: who waits looks all the time, and a process that is stopped while it
    /// looks must not stop the others.
    fn look(&self, index: usize) -> io::Result<u64> {
        let words = self.words.lock().unwrap_or_else(PoisonError::into_inner);
        let mut seen = words.get(index)?;
        loop {
            let again = words.get(index)?;
            if again == seen {
                // Not half of the old and half of the new.
                return Ok(seen);
            }
            seen = again;
        }
    }

    /// Does something while neither another thread nor another process can.
    fn change<T>(&self, change: impl FnOnce(&mut Words) -> io::Result<T>) -> io::Result<T> {
        let mut words = self.words.lock().unwrap_or_else(PoisonError::into_inner);
        if let Words::File(file) = &*words {
            flock(file, FlockOperation::LockExclusive)?;
        }
        let result = change(&mut words);
        if let Words::File(file) = &*words {
            flock(file, FlockOperation::Unlock)?;
        }
        result
    }
}

impl Words {
    fn get(&self, index: usize) -> io::Result<u64> {
        match self {
            Self::Here(words) => Ok(words.get(index).copied().unwrap_or_default()),
            Self::File(file) => {
                let mut word = [0; 8];
                file.read_exact_at(&mut word, byte_of(index))?;
                Ok(u64::from_le_bytes(word))
            }
        }
    }

    fn set(&mut self, index: usize, value: u64) -> io::Result<()> {
        match self {
            Self::Here(words) => {
                if let Some(word) = words.get_mut(index) {
                    *word = value;
                }
                Ok(())
            }
            Self::File(file) => file.write_all_at(&value.to_le_bytes(), byte_of(index)),
        }
    }
}

/// What an interprocess event's words are called.
pub(crate) fn event_name(id: u64) -> String {
    format!("e{id}")
}

/// The file on which who waits for it has a lock.
pub(crate) fn waiters_name(id: u64) -> String {
    format!("e{id}.w")
}

fn word_of(record: u64) -> usize {
    FIRST_COMPLETE + usize::try_from(record % REMEMBERED).unwrap_or_default()
}

fn byte_of(index: usize) -> u64 {
    u64::try_from(index).unwrap_or(u64::MAX).saturating_mul(8)
}

const BLOCKING_SYNC: u32 = 1;
const DISABLE_TIMING: u32 = 2;
const INTERPROCESS: u32 = 4;

const RECORDED: usize = 0;
const DESTROYED: usize = 1;
const FIRST_COMPLETE: usize = 2;
const REMEMBERED: u64 = 254;
const WORDS: usize = 256;

/// Handles of events: numbers, never addresses.
const EVENTS: u64 = 0xE7_0000_0000_0000;
const LOOK_AGAIN: Duration = Duration::from_micros(200);
