//! [`Queue`]: frames on their way into a recording, so that a disk that is slow for a moment costs none.

use std::io;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use super::{Facts, Writer};

/// Writes frames in a thread of its own.
#[derive(Debug)]
pub(crate) struct Queue {
    /// Until the end.
    full: Option<SyncSender<(Facts, Vec<u8>)>>,
    empty: Receiver<Vec<u8>>,
    /// Buffers that need not be made yet.
    spare: usize,
    written: Arc<Mutex<Written>>,
    thread: Option<JoinHandle<(Writer, io::Result<()>)>>,
}

/// What is in the file.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Written {
    pub(crate) frames: u64,
    pub(crate) file_bytes: u64,
    pub(crate) first: Option<Facts>,
    pub(crate) last: Option<Facts>,
}

impl Queue {
    /// A queue for frames of this size.
    pub(crate) fn start(writer: Writer, frame_bytes: u64) -> io::Result<Self> {
        let buffers = MAX_BYTES.checked_div(frame_bytes).unwrap_or(MAX_BYTES);
        let buffers = usize::try_from(buffers).unwrap_or(usize::MAX).clamp(MIN_BUFFERS, MAX_BUFFERS);
        let (full, queue) = sync_channel(buffers);
        let (done, empty) = channel();
        let written = Arc::new(Mutex::new(Written { file_bytes: writer.bytes(), ..Written::default() }));
        let shared = Arc::clone(&written);
        let thread = thread::Builder::new()
            .name("cuframes-write".into())
            .spawn(move || serve(writer, &queue, &done, &shared))?;
        Ok(Self { full: Some(full), empty, spare: buffers, written, thread: Some(thread) })
    }

    /// A buffer for the next frame. Waits while all are on their way; `None` if the file can't be written any more.
    pub(crate) fn buffer(&mut self) -> Option<Vec<u8>> {
        if let Ok(buffer) = self.empty.try_recv() {
            return Some(buffer);
        }
        match self.spare.checked_sub(1) {
            Some(spare) => {
                self.spare = spare;
                Some(Vec::new())
            }
            None => self.empty.recv().ok(),
        }
    }

    /// Sends a frame on its way. Should the file not be writable any more, [`finish`](Self::finish) says so.
    pub(crate) fn send(&self, facts: Facts, frame: Vec<u8>) {
        // There are no more buffers than it has room for.
        let _ = self.full.as_ref().map(|full| full.try_send((facts, frame)));
    }

    /// A buffer came to nothing: there may be another one instead.
    pub(crate) const fn give_up(&mut self) {
        self.spare += 1;
    }

    pub(crate) fn written(&self) -> Written {
        *self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until all frames are written, or one can't be: that is the second answer.
    pub(crate) fn finish(&mut self) -> (Option<Writer>, io::Result<()>) {
        self.full = None;
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok((writer, result))) => (Some(writer), result),
            _ => (None, Err(io::Error::other("the thread that writes has failed"))),
        }
    }
}

/// Writes what comes, until one frame can't be written.
fn serve(
    mut writer: Writer,
    queue: &Receiver<(Facts, Vec<u8>)>,
    done: &Sender<Vec<u8>>,
    written: &Mutex<Written>,
) -> (Writer, io::Result<()>) {
    for (facts, frame) in queue {
        writer.load(facts, &frame);
        if let Err(error) = writer.write() {
            return (writer, Err(error));
        }
        {
            let mut written = written.lock().unwrap_or_else(PoisonError::into_inner);
            written.frames = writer.frames();
            written.file_bytes = writer.bytes();
            written.first.get_or_insert(facts);
            written.last = Some(facts);
        }
        // Nobody needs it any more at the end.
        let _ = done.send(frame);
    }
    (writer, Ok(()))
}

/// Memory that frames on their way may take, together.
const MAX_BYTES: u64 = 128 << 20;
/// One is written while the next one comes.
const MIN_BUFFERS: usize = 2;
const MAX_BUFFERS: usize = 256;
