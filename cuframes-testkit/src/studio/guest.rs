//! [`Guest`]: a subscriber, as a driver with a GPU would be one.

use std::collections::BTreeMap;
use std::mem;
use std::sync::{Arc, Mutex, PoisonError};

use cuframes_core::gpu::{Device, GpuError, Import};
use cuframes_core::ring::{RingReader, Seat};
use cuframes_core::session::{Closed, Session, SubscriberEvent};
use cuframes_core::shm::StreamHeader;
use cuframes_core::shm::header::SlotMemory;
use cuframes_core::wire::FdPurpose;
use cuframes_core::wire::hello::Stream;
use cuframes_core::wire::subscribe::Subscribed;
use cuframes_core::{Backend, Features, SubscriberBit, SubscriberMode};

use super::PATIENCE;
use crate::heap::{Bell, HeapFrame, HeapReader, HeapRegion};
use crate::mock_gpu::{MockDevice, MockError, MockEvent, MockMapping, MockStream, Reading};
use crate::pair::Pair;

/// A subscriber.
#[derive(Debug)]
pub struct Guest {
    /// Its process.
    pub device: MockDevice,
    /// The stream that reads frames.
    pub stream: MockStream,
    /// Both ends of its connection.
    pub connection: Pair,
    /// Its bit while the publisher counts on it.
    pub bit: Option<SubscriberBit>,
    /// The frames that it holds, in the order in which it got them.
    pub held: Vec<HeapFrame>,
    /// The call that ended it.
    pub error: Option<MockError>,
    /// How its session ended.
    pub closed: Option<Closed>,
    mode: SubscriberMode,
    region: HeapRegion,
    stream_offer: Option<Stream>,
    subscribed: Option<Subscribed>,
    /// Descriptors of frames, by index.
    fds: BTreeMap<u32, u32>,
    open: Option<Open>,
}

/// What it has open.
#[derive(Debug)]
struct Open {
    reader: HeapReader,
    mappings: Vec<MockMapping>,
    event: MockEvent,
}

impl Guest {
    pub(super) fn new(
        device: MockDevice,
        mode: SubscriberMode,
        connection: Pair,
        region: HeapRegion,
    ) -> Self {
        Self {
            stream: device.stream(),
            device,
            connection,
            bit: None,
            held: Vec::new(),
            error: None,
            closed: None,
            mode,
            region,
            stream_offer: None,
            subscribed: None,
            fds: BTreeMap::new(),
            open: None,
        }
    }

    /// Whether it has the frames open.
    #[must_use]
    pub const fn is_attached(&self) -> bool {
        self.open.is_some()
    }

    /// Takes the next frame and holds it. Returns its number.
    pub fn take(&mut self) -> Option<u64> {
        let frame = self.open.as_mut()?.reader.next()?;
        let seq = frame.seq().get();
        self.held.push(frame);
        Some(seq)
    }

    /// Takes the next frame, copies it to the host, and releases it. Returns its number and its bytes if they are its
    /// own; a call that fails ends the guest.
    pub fn see(&mut self) -> Option<(u64, Vec<u8>)> {
        let seq = self.take()?;
        let frame = self.held.pop()?;
        match self.copy(&frame) {
            Ok(bytes) => frame.release().is_ok().then_some((seq, bytes)),
            Err(error) => {
                self.fail(error);
                None
            }
        }
    }

    /// Enqueues a kernel that reads the newest frame held, behind the publisher's event (C-14).
    ///
    /// # Errors
    /// A call of the GPU that failed.
    ///
    /// # Panics
    /// If no frame is held.
    pub fn start(&self) -> Result<Reading, MockError> {
        let open = self.open.as_ref().unwrap();
        self.device.wait_event(&self.stream, &open.event)?;
        Ok(self.start_without_waiting())
    }

    /// As [`start`](Self::start), without the publisher's event.
    ///
    /// # Panics
    /// If no frame is held.
    #[must_use]
    pub fn start_without_waiting(&self) -> Reading {
        let open = self.open.as_ref().unwrap();
        let mapping = open.mappings.get(self.held.last().unwrap().slot()).unwrap();
        self.device.launch_read(&self.stream, mapping)
    }

    /// Releases the newest frame held when the stream has come so far. If that can't be arranged, it waits for the stream.
    ///
    /// # Errors
    /// The call of the GPU that failed.
    ///
    /// # Panics
    /// If no frame is held.
    pub fn release_after(&mut self) -> Result<(), MockError> {
        // The function and we: whoever comes first takes the frame. If it never comes, we still have it.
        let frame = Arc::new(Mutex::new(self.held.pop()));
        let theirs = Arc::clone(&frame);
        let release = move || drop(theirs.lock().unwrap_or_else(PoisonError::into_inner).take());
        let notified = self.device.notify(&self.stream, Box::new(release));
        if notified.is_err() {
            let synchronized = self.device.synchronize(&self.stream, PATIENCE);
            drop(frame);
            synchronized?;
        }
        notified
    }

    /// Waits for its stream, releases its frames, closes everything, and says UNSUBSCRIBE (D-10).
    pub fn leave(&mut self) {
        self.close();
        self.connection.subscriber.session.unsubscribe(self.connection.now);
    }

    /// A call failed: tells the publisher, and closes everything.
    pub fn fail(&mut self, error: MockError) {
        self.connection.subscriber.session.reject(self.connection.now, error.code(), &error.to_string());
        self.error.get_or_insert(error);
        self.close();
    }

    /// Its process dies: nothing is released or closed by itself.
    pub(super) fn kill(&mut self) {
        self.device.kill();
        mem::take(&mut self.held).into_iter().for_each(mem::forget);
        drop(self.open.take());
        // Its socket is closed by the kernel.
        self.connection.subscriber.session.handle_eof(self.connection.now);
    }

    /// Does what the session tells; says whether it told anything.
    pub(super) fn handle_events(&mut self) -> bool {
        let events = self.connection.subscriber.take_events();
        let any = !events.is_empty();
        for event in events {
            match event {
                SubscriberEvent::Stream(stream) => self.stream_offer = Some(stream),
                SubscriberEvent::Subscribed(subscribed) => self.subscribed = Some(subscribed),
                SubscriberEvent::Fd { purpose: FdPurpose::CUDA_VMM, index, fd, .. } => {
                    self.fds.insert(index, fd);
                }
                // What is published may still be read; the test says when it leaves (D-30).
                SubscriberEvent::Shutdown(_) => {}
                SubscriberEvent::Closed(closed) => {
                    self.closed = Some(closed);
                    // Device memory is closed at once (D-30).
                    self.close();
                }
                other => panic!("{other:?}"),
            }
        }
        if any && self.open.is_none() && self.closed.is_none() {
            match self.attach() {
                Ok(open) => {
                    self.open = open;
                    if self.open.is_some() {
                        self.connection.subscriber.session.attached(self.connection.now).unwrap();
                    }
                }
                Err(error) => self.fail(error),
            }
        }
        any
    }

    /// Opens everything, if everything is there.
    fn attach(&self) -> Result<Option<Open>, MockError> {
        let (Some(stream), Some(subscribed)) = (&self.stream_offer, self.subscribed) else { return Ok(None) };
        let header = StreamHeader::read(&self.region).unwrap();
        let slots = usize::from(header.ring_size.get());
        if header.backend == Backend::CUDA_VMM && self.fds.len() < slots {
            return Ok(None);
        }
        let fds: Vec<u32> = self.fds.values().copied().collect();
        let mut mappings = Vec::new();
        for slot in 0..slots {
            let mut memory = SlotMemory::read(&self.region, slot);
            if !stream.features.contains(Features::MEM_OFFSET) {
                memory.offset = 0;
            }
            // If this fails, dropping the others closes them.
            mappings.push(self.device.open_mem(&memory, header.meta.frame_size_bytes, &fds)?);
        }
        let event = self.device.open_event(&header.ipc_event_handle)?;
        let (bell, bit, initial) = (Bell::default(), subscribed.bit, subscribed.initial_seq.resolve(0));
        let region = Arc::clone(&self.region);
        let seat = Seat::new(region, bell, header.ring_size, bit, initial, stream.features, false);
        Ok(Some(Open { reader: RingReader::new(seat, self.mode), mappings, event }))
    }

    fn copy(&self, frame: &HeapFrame) -> Result<Vec<u8>, MockError> {
        let Open { mappings, event, .. } = self.open.as_ref().unwrap();
        let mut bytes = vec![0xEE; usize::try_from(frame.written_bytes()).unwrap()];
        self.device.wait_event(&self.stream, event)?;
        let mapping = mappings.get(frame.slot()).unwrap();
        self.device.copy_out(&self.stream, mapping, &mut bytes, PATIENCE)?;
        Ok(bytes)
    }

    /// Closes everything, when the work that uses it is done. What fails on the way does not keep the rest open.
    fn close(&mut self) {
        let Some(Open { reader, mappings, event }) = self.open.take() else { return };
        let mut results = vec![self.device.synchronize(&self.stream, PATIENCE)];
        self.held.clear();
        results.extend(mappings.into_iter().map(|mapping| self.device.close_mem(mapping)));
        drop((reader, event));
        if let Some(error) = results.into_iter().find_map(Result::err) {
            self.error.get_or_insert(error);
        }
    }
}
