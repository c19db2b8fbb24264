//! [`MockStream`]: a queue of work, which moves one step at a time.

use std::collections::VecDeque;
use std::fmt;
use std::mem;
use std::sync::{Arc, Mutex, PoisonError};

use cuframes_core::gpu::Call;

use super::Shared;
use super::device::MockEvent;
use super::finding::{Finding, MockError, result};
use super::world::{State, World, add, call_host_function};

/// A stream. Its clones are the same stream.
#[derive(Clone, Debug)]
pub struct MockStream {
    pub(super) shared: Shared,
    pub(super) id: usize,
}

impl MockStream {
    /// Does the next step, also of a stream that is held: half a copy, a record, a wait that is over, a host function.
    /// Says whether there was one.
    pub fn step(&self) -> bool {
        advance(&self.shared, self.id, true)
    }

    /// Steps until nothing is left, or what is next must wait.
    pub fn run(&self) {
        while self.step() {}
    }

    /// Steps until the latest record of `event` is done.
    ///
    /// # Panics
    /// If the stream does not come there.
    pub fn run_until(&self, event: &MockEvent) {
        while !event.is_done() {
            assert!(self.step(), "the stream has no such record, or can't go on");
        }
    }

    /// Steps that are left.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.shared.with(|world| world.queue(self.id).work.len())
    }

    /// Nobody but [`step`](Self::step) moves the stream from now on: waiting for it times out.
    pub fn hold(&self) {
        self.shared.with(|world| world.queue(self.id).held = true);
    }

    /// Ends [`hold`](Self::hold).
    pub fn resume(&self) {
        self.shared.with(|world| world.queue(self.id).held = false);
    }
}

/// What a stream still has to do.
#[derive(Debug)]
pub(super) struct Queue {
    process: usize,
    work: VecDeque<Work>,
    held: bool,
}

/// One step.
pub(super) enum Work {
    /// A part of a copy into an allocation.
    Write {
        allocation: usize,
        at: usize,
        bytes: Vec<u8>,
    },
    /// A part of a read out of a mapping.
    Read {
        mapping: usize,
        at: usize,
        len: usize,
        to: Sink,
    },
    Record {
        record: usize,
    },
    Wait {
        source: usize,
        record: usize,
    },
    Call(Box<dyn FnOnce() + Send>),
}

/// Where a read puts its bytes, and how many it still lacks.
pub(super) type Sink = Arc<Mutex<(Vec<u8>, usize)>>;

impl fmt::Debug for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Write { .. } => "Write",
            Self::Read { .. } => "Read",
            Self::Record { .. } => "Record",
            Self::Wait { .. } => "Wait",
            Self::Call(_) => "Call",
        })
    }
}

impl World {
    pub(super) fn add_stream(&mut self, process: usize) -> usize {
        add(&mut self.queues, Queue { process, work: VecDeque::new(), held: false })
    }

    pub(super) fn stream_ids(&self) -> std::ops::Range<usize> {
        0..self.queues.len()
    }

    fn queue(&mut self, id: usize) -> &mut Queue {
        self.queues.get_mut(id).unwrap()
    }

    /// Enqueues work of `process`, whose stream it must be.
    pub(super) fn enqueue(
        &mut self,
        call: Call,
        process: usize,
        stream: usize,
        work: impl IntoIterator<Item = Work>,
    ) -> Result<(), MockError> {
        let owner = self.queue(stream).process;
        self.check_owner(call, process, owner)?;
        self.queue(stream).work.extend(work);
        Ok(())
    }

    /// A process died: what its streams had to do is not done. Its host functions are not even dropped, since a process
    /// that was killed runs no destructor.
    pub(super) fn forget_work(&mut self, process: usize) {
        for queue in self.queues.iter_mut().filter(|queue| queue.process == process) {
            mem::take(&mut queue.work).into_iter().for_each(mem::forget);
        }
    }

    /// Does the next step of a stream, if it can be done; a host function is returned, to be called outside.
    fn take_step(&mut self, stream: usize, even_held: bool) -> Option<Option<Box<dyn FnOnce() + Send>>> {
        let queue = self.queue(stream);
        let process = queue.process;
        if queue.held && !even_held {
            return None;
        }
        if let &Work::Wait { source, record } = queue.work.front()?
            && !self.is_over(process, source, record)
        {
            return None;
        }
        match self.queue(stream).work.pop_front()? {
            Work::Write { allocation, at, bytes } => self.write(process, allocation, at, &bytes),
            Work::Read { mapping, at, len, to } => {
                let bytes = self.read(process, mapping, at, len).unwrap_or_default();
                let mut sink = to.lock().unwrap_or_else(PoisonError::into_inner);
                sink.0.extend(&bytes);
                sink.1 -= bytes.len();
            }
            Work::Record { record } => *self.records.get_mut(record).unwrap() = true,
            Work::Wait { .. } => {}
            Work::Call(call) => return Some(Some(call)),
        }
        Some(None)
    }

    fn is_over(&mut self, process: usize, source: usize, record: usize) -> bool {
        if *self.records.get(record).unwrap() {
            return true;
        }
        let source = self.sources.get(source).unwrap();
        if source.dropped && source.process != process {
            self.find(Finding::EventDroppedUnderWait { process });
        }
        false
    }

    fn write(&mut self, process: usize, id: usize, at: usize, bytes: &[u8]) {
        let allocation = self.allocation(id);
        if allocation.state != State::Live {
            return self.find(Finding::UseAfterFree { process, allocation: id });
        }
        allocation.bytes.get_mut(at..).unwrap().iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
    }

    /// A part of what a mapping shows.
    pub(super) fn read(&mut self, process: usize, mapping: usize, at: usize, len: usize) -> Option<Vec<u8>> {
        let mapped = self.mappings.get(mapping).unwrap();
        let (id, start, open) = (mapped.allocation, mapped.start + at, mapped.open);
        let allocation = self.allocations.get(id).unwrap();
        if allocation.state == State::Freed || !open {
            self.find(Finding::UseAfterFree { process, allocation: id });
            return None;
        }
        Some(allocation.bytes.iter().skip(start).take(len).copied().collect())
    }
}

/// Does the next step of a stream that is not held; says whether there was one.
pub(super) fn run_one(shared: &Shared, id: usize) -> bool {
    advance(shared, id, false)
}

fn advance(shared: &Shared, id: usize, even_held: bool) -> bool {
    match shared.with(|world| world.take_step(id, even_held)) {
        Some(Some(call)) => call_host_function(call),
        Some(None) => {}
        None => return false,
    }
    true
}

/// Waits for a stream: other streams move only where it waits for them.
pub(super) fn drain(shared: &Shared, id: usize, call: Call) -> Result<(), MockError> {
    let others = || shared.with(|world| world.stream_ids()).filter(|other| *other != id);
    loop {
        let (left, held) = shared.with(|world| (world.queue(id).work.len(), world.queue(id).held));
        if left == 0 {
            return Ok(());
        }
        if !run_one(shared, id) && (held || !others().any(|other| run_one(shared, other))) {
            return Err(MockError { call, result: result::NOT_READY, why: "the stream does not go on" });
        }
    }
}

/// A copy of `len` bytes as two parts: where each starts, and how long it is.
pub(super) fn halves(len: usize) -> [(usize, usize); 2] {
    let first = len / 2;
    [(0, first), (first, len - first)]
}
