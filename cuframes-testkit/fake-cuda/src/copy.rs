//! Copies and fills: [`Copy`] and [`Fill`] are work that a stream does.

use std::io;
use std::sync::mpsc;
use std::time::Duration;

use crate::code::{Code, Result};
use crate::driver::Call;
use crate::memory::Access;
use crate::pinned::PinnedSlice;
use crate::storage::{self, Segment, u64_of};
use crate::stream::Work;

/// When a copy is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "there is no third way")]
pub enum When {
    /// Before the call returns, on the default stream.
    Now,
    /// When this stream comes to it.
    InStream(u64),
}

/// Host memory that is copied from.
#[derive(Clone, Debug)]
#[expect(clippy::exhaustive_enums, reason = "there is no third kind")]
pub enum HostSource {
    /// A copy of what was there at the time of the call: pageable memory is staged.
    Bytes(Vec<u8>),
    /// Pinned memory is read when the stream comes to it.
    Pinned(PinnedSlice),
}

impl Call<'_> {
    /// `cuMemcpyHtoD` and `cuMemcpyHtoDAsync`.
    ///
    /// # Errors
    /// [`Code::INVALID_VALUE`] for memory that may not be written, and as [`Call::stream_synchronize`].
    pub fn copy_in(&self, to: u64, from: HostSource, when: When) -> Result<()> {
        let (from, len) = match from {
            HostSource::Bytes(bytes) => {
                let len = u64_of(bytes.len());
                (Source::Bytes(bytes), len)
            }
            HostSource::Pinned(slice) => {
                let len = slice.len();
                (Source::Pinned(slice), len)
            }
        };
        let to = Target::Device(self.segments(to, len, Access::Write)?);
        self.do_work(Work::Copy(Copy { to, from, len }), when, when == When::Now)
    }

    /// `cuMemcpyDtoH` and `cuMemcpyDtoHAsync` to pageable memory, which are done before they return.
    ///
    /// # Errors
    /// [`Code::INVALID_VALUE`] for memory that may not be read, and as [`Call::stream_synchronize`].
    pub fn copy_out(&self, from: u64, len: u64, when: When) -> Result<Vec<u8>> {
        let from = Source::Device(self.segments(from, len, Access::Read)?);
        let (sender, receiver) = mpsc::channel();
        self.do_work(Work::Copy(Copy { to: Target::Reply(Vec::new(), sender), from, len }), when, true)?;
        receiver.recv().map_err(|_| Code::LAUNCH_FAILED)
    }

    /// `cuMemcpyDtoH` and `cuMemcpyDtoHAsync` to pinned memory.
    ///
    /// # Errors
    /// As [`Call::copy_out`].
    pub fn copy_out_pinned(&self, to: PinnedSlice, from: u64, when: When) -> Result<()> {
        let len = to.len();
        let from = Source::Device(self.segments(from, len, Access::Read)?);
        self.do_work(Work::Copy(Copy { to: Target::Pinned(to), from, len }), when, when == When::Now)
    }

    /// `cuMemcpyDtoD` and `cuMemcpyDtoDAsync`. Neither waits for it.
    ///
    /// # Errors
    /// [`Code::INVALID_VALUE`] for memory that may not be used so.
    pub fn copy_within(&self, to: u64, from: u64, len: u64, when: When) -> Result<()> {
        let to = Target::Device(self.segments(to, len, Access::Write)?);
        let from = Source::Device(self.segments(from, len, Access::Read)?);
        self.do_work(Work::Copy(Copy { to, from, len }), when, false)
    }

    /// `cuMemsetD8` and `cuMemsetD8Async`. Neither waits for it.
    ///
    /// # Errors
    /// [`Code::INVALID_VALUE`] for memory that may not be written.
    pub fn set_bytes(&self, to: u64, byte: u8, len: u64, when: When) -> Result<()> {
        let to = self.segments(to, len, Access::Write)?;
        self.do_work(Work::Fill(Fill { to, byte, len }), when, false)
    }

    fn do_work(&self, work: Work, when: When, wait: bool) -> Result<()> {
        let stream = match when {
            When::Now => 0,
            When::InStream(stream) => stream,
        };
        let ticket = self.enqueue(stream, work)?;
        if wait { ticket.wait() } else { Ok(()) }
    }
}

/// A copy, in two halves: whoever looks in between sees a torn frame.
#[derive(Debug)]
pub(crate) struct Copy {
    to: Target,
    from: Source,
    len: u64,
}

#[derive(Debug)]
enum Source {
    Bytes(Vec<u8>),
    Pinned(PinnedSlice),
    Device(Vec<Segment>),
}

#[derive(Debug)]
enum Target {
    Pinned(PinnedSlice),
    Device(Vec<Segment>),
    Reply(Vec<u8>, mpsc::Sender<Vec<u8>>),
}

impl Copy {
    pub(crate) fn run(mut self, pause: impl Fn(Duration), delay: Duration) -> io::Result<()> {
        let half = self.len / 2;
        self.part(0, half)?;
        pause(delay);
        self.part(half, self.len - half)?;
        if let Target::Reply(bytes, sender) = self.to {
            // Nobody listens if whoever called gave up.
            let _ = sender.send(bytes);
        }
        Ok(())
    }

    fn part(&mut self, start: u64, len: u64) -> io::Result<()> {
        let bytes = match &self.from {
            Source::Bytes(bytes) => {
                let (start, end) = (storage::usize_of(start), storage::usize_of(start + len));
                bytes.get(start..end).unwrap_or_default().to_vec()
            }
            Source::Pinned(slice) => slice.read(start, len),
            Source::Device(segments) => storage::read(segments, start, len)?,
        };
        match &mut self.to {
            Target::Pinned(slice) => slice.write(start, &bytes),
            Target::Device(segments) => storage::write(segments, start, &bytes)?,
            Target::Reply(all, _) => all.extend(bytes),
        }
        Ok(())
    }
}

/// Sets bytes, in two halves.
#[derive(Debug)]
pub(crate) struct Fill {
    to: Vec<Segment>,
    byte: u8,
    len: u64,
}

impl Fill {
    pub(crate) fn run(self, pause: impl Fn(Duration), delay: Duration) -> io::Result<()> {
        let half = self.len / 2;
        storage::fill(&self.to, 0, half, self.byte)?;
        pause(delay);
        storage::fill(&self.to, half, self.len - half, self.byte)
    }
}
