//! [`MockDevice`]: a process with a context on one device; [`MockEvent`].

use std::time::Duration;

use cuframes_core::Backend;
use cuframes_core::gpu::{Call, Device, EventHandle, MemHandle};

use super::Shared;
use super::finding::{MockError, result};
use super::stream::{MockStream, Work, drain};
use super::world::add;

/// A process with a context on one device. Its clones are the same process.
#[derive(Clone, Debug)]
pub struct MockDevice {
    pub(super) shared: Shared,
    pub(super) process: usize,
}

/// An event that a process created or opened.
#[derive(Debug)]
pub struct MockEvent {
    shared: Shared,
    pub(super) id: usize,
}

impl MockDevice {
    pub(super) const fn new(shared: Shared, process: usize) -> Self {
        Self { shared, process }
    }

    /// A new stream.
    #[must_use]
    pub fn stream(&self) -> MockStream {
        let id = self.shared.with(|world| world.add_stream(self.process));
        MockStream { shared: self.shared.clone(), id }
    }

    /// The number of the process.
    #[must_use]
    pub const fn process(&self) -> usize {
        self.process
    }

    /// Ends the process without a word. What it had open is closed by the driver, what its streams had to do is not done,
    /// and what it still does afterwards, in destructors for one, changes nothing.
    pub fn kill(&self) {
        self.shared.with(|world| world.kill(self.process));
    }

    pub(super) fn event(&self, id: usize) -> MockEvent {
        MockEvent { shared: self.shared.clone(), id }
    }
}

impl MockEvent {
    /// Whether the latest record is done, or there is none.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.shared.with(|world| {
            let latest = world.event_source(self.id).1.latest;
            latest.is_none_or(|record| *world.records.get(record).unwrap())
        })
    }
}

impl Drop for MockEvent {
    fn drop(&mut self) {
        self.shared.with(|world| world.close_event(self.id));
    }
}

impl Device for MockDevice {
    type Stream = MockStream;
    type Event = MockEvent;
    type Fd = u32;
    type Error = MockError;

    fn backend(&self) -> Backend {
        self.shared.with(|world| world.backend)
    }

    fn open_event(&self, handle: &EventHandle) -> Result<MockEvent, MockError> {
        let call = Call::OpenEvent;
        let error = |result, why| Err(MockError { call, result, why });
        let id = self.shared.with(|world| {
            world.enter(self.process, call)?;
            if *handle == EventHandle::NONE {
                let source = world.add_source(self.process);
                return Ok(world.add_event(self.process, source));
            }
            let (tag, source, nonce) = MemHandle(handle.0).parts();
            let source = usize::try_from(source).unwrap();
            let Some(of) = world.sources.get(source).filter(|_| (tag, nonce) == (EVENT_TAG, world.nonce))
            else {
                return error(result::INVALID_HANDLE, "the handle means no event");
            };
            if of.process == self.process {
                return error(result::INVALID_CONTEXT, "this process exported it");
            }
            if of.dropped {
                return error(result::INVALID_HANDLE, "its event was dropped");
            }
            if world.device_of(of.process) != world.device_of(self.process) {
                return error(result::PEER_ACCESS_UNSUPPORTED, "it is on another device");
            }
            Ok(world.add_event(self.process, source))
        })?;
        Ok(self.event(id))
    }

    fn wait_event(&self, stream: &MockStream, event: &MockEvent) -> Result<(), MockError> {
        let call = Call::WaitEvent;
        self.shared.with(|world| {
            world.enter(self.process, call)?;
            let owner = world.events.get(event.id).unwrap().process;
            world.check_owner(call, self.process, owner)?;
            let (source, of) = world.event_source(event.id);
            let latest = of.latest;
            if of.dropped {
                let finding = super::Finding::EventDroppedUnderWait { process: self.process };
                world.find(finding);
                return Err(MockError { call, result: result::INVALID_HANDLE, why: "its event was dropped" });
            }
            let unfinished = latest.filter(|record| !world.records.get(*record).unwrap());
            let wait = unfinished.map(|record| Work::Wait { source, record });
            world.enqueue(call, self.process, stream.id, wait)
        })
    }

    fn synchronize(&self, stream: &MockStream, _timeout: Duration) -> Result<(), MockError> {
        self.shared.with(|world| {
            world.enter(self.process, Call::Synchronize)?;
            world.enqueue(Call::Synchronize, self.process, stream.id, None)
        })?;
        drain(&self.shared, stream.id, Call::Synchronize)
    }

    fn notify(&self, stream: &MockStream, call: Box<dyn FnOnce() + Send>) -> Result<(), MockError> {
        // Dropped outside, where it may do what it likes.
        let mut call = Some(call);
        self.shared.with(|world| {
            world.enter(self.process, Call::Notify)?;
            world.enqueue(Call::Notify, self.process, stream.id, None)?;
            let work = call.take().map(Work::Call);
            world.enqueue(Call::Notify, self.process, stream.id, work)
        })
    }
}

/// Makes a record, to be done when the stream comes to it.
pub(super) fn record(shared: &Shared, process: usize, stream: usize, event: usize) -> Result<(), MockError> {
    let call = Call::RecordEvent;
    shared.with(|world| {
        world.enter(process, call)?;
        let owner = world.event_source(event).1.process;
        world.check_owner(call, process, owner)?;
        world.enqueue(call, process, stream, None)?;
        let record = add(&mut world.records, false);
        world.event_source(event).1.latest = Some(record);
        world.enqueue(call, process, stream, [Work::Record { record }])
    })
}

/// First bytes of an event handle.
pub(super) const EVENT_TAG: [u8; 8] = *b"MOCK-EVT";
