//! [`Studio`]: a publisher of frames in mock GPU memory with its subscribers, on virtual time.
//!
//! It does what a driver does (§4, D-10, D-12, D-30): handshakes over pipes that cut every message into pieces, memory
//! opened and closed, commits and releases in stream order. A frame is filled with the low byte of its number, so that a
//! torn one shows.

mod camera;
mod guest;

use std::sync::Arc;
use std::time::Duration;

use cuframes_core::gpu::{Device, EventHandle, Export, GpuError};
use cuframes_core::roster::Departure;
use cuframes_core::session::{
    Closed, PublisherEvent, PublisherOffer, Session, SubscribeRequest, SubscriberHello,
};
use cuframes_core::shm::StreamHeader;
use cuframes_core::wire::ShutdownReason;
use cuframes_core::{
    Backend, Features, Format, FrameMeta, Gone, Instant, Ownership, Policy, RingSize, SubscriberMode,
    Timeouts,
};

pub use camera::Camera;
pub use guest::Guest;

use crate::heap::{HeapRing, PID};
use crate::mock_gpu::{MockDevice, MockError, MockGpu, MockPointer};
use crate::pair::{HANDSHAKE_TIMEOUT, Pair, hello, offer};

/// A publisher and its subscribers.
#[derive(Debug)]
pub struct Studio {
    /// Their machine.
    pub gpu: MockGpu,
    /// The time.
    pub now: Instant,
    /// Region, roster and writer.
    pub ring: HeapRing,
    /// The publisher's frame memory.
    pub camera: Camera,
    /// Everybody who ever connected.
    pub guests: Vec<Guest>,
    /// Calls of the publisher that failed after it was made.
    pub errors: Vec<MockError>,
    offer: PublisherOffer,
    /// While shutting down: when to stop waiting (D-12).
    grace: Option<Instant>,
}

impl Studio {
    /// A publisher with `slots` frames of its own.
    ///
    /// # Errors
    /// A call of the GPU that failed; nothing is open then.
    ///
    /// # Panics
    /// If `slots` is not 1..=16.
    pub fn new(gpu: &MockGpu, slots: u64, policy: Policy) -> Result<Self, MockError> {
        let camera = Camera::new(gpu.process(0), |device| {
            device.alloc_pool(RingSize::new(slots).unwrap(), frame_size())
        })?;
        Self::with(gpu, slots, policy, Ownership::LIBRARY, camera)
    }

    /// A publisher of frames in its caller's own memory, at the pointers that `memory` gives.
    ///
    /// # Errors
    /// A call of the GPU that failed; nothing is open then.
    pub fn external(
        gpu: &MockGpu,
        memory: impl FnOnce(&MockDevice) -> Vec<MockPointer>,
    ) -> Result<Self, MockError> {
        let mut slots = 0;
        let camera = Camera::new(gpu.process(0), |device| {
            let frames = memory(device);
            slots = frames.len();
            device.register_external(frames, frame_size())
        })?;
        let slots = u64::try_from(slots).unwrap();
        Self::with(gpu, slots, Policy::DROP_OLDEST, Ownership::EXTERNAL, camera)
    }

    fn with(
        gpu: &MockGpu,
        slots: u64,
        policy: Policy,
        ownership: Ownership,
        camera: (Camera, EventHandle),
    ) -> Result<Self, MockError> {
        let (camera, ipc_event_handle) = camera;
        let backend = camera.device.backend();
        let ring = HeapRing::new(slots, policy);
        let mut needed = Features::NONE;
        if backend == Backend::CUDA_VMM {
            needed = needed.union(Features::FD_PASSING).union(Features::CUDA_VMM);
        }
        for slot in 0..usize::try_from(slots).unwrap() {
            let memory = camera.export(slot)?;
            if memory.offset != 0 {
                needed = needed.union(Features::MEM_OFFSET);
            }
            memory.write(&ring.region, slot);
        }
        let features = needed.union(Features::LEASE).union(Features::WAKE_HINT);
        let header = StreamHeader {
            lib_version: [0, 1, 0],
            producer_pid: PID,
            ring_size: RingSize::new(slots).unwrap(),
            ownership,
            policy,
            meta: meta(),
            ipc_event_handle,
            features,
            backend,
            epoch: 1,
        };
        header.write(&ring.region);
        let ring_size = header.ring_size;
        let offer =
            PublisherOffer { ring_size, ownership, meta: meta(), required: needed, ..offer(features) };
        let (guests, errors) = (Vec::new(), Vec::new());
        Ok(Self { gpu: gpu.clone(), now: Instant::ZERO, ring, camera, guests, errors, offer, grace: None })
    }

    /// Somebody with a process on `device` who knows `features` connects, and goes as far as it gets. Returns its number.
    pub fn join(&mut self, device: usize, mode: SubscriberMode, features: Features) -> usize {
        let mut connection = Pair::new(
            self.offer.clone(),
            SubscriberHello { cuda_device: i32::try_from(device).unwrap(), mode, ..hello(features) },
        );
        // A message arrives in pieces, and descriptors with whatever byte they came with.
        for (inbox, read_size, capacity) in
            [(&mut connection.publisher.inbox, 3, 7), (&mut connection.subscriber.inbox, 5, 11)]
        {
            inbox.read_size = read_size;
            inbox.capacity = capacity;
        }
        let region = Arc::clone(&self.ring.region);
        self.guests.push(Guest::new(self.gpu.process(device), mode, connection, region));
        self.settle();
        self.guests.len() - 1
    }

    /// Lets everybody do what there is to do now. No time passes.
    pub fn settle(&mut self) {
        loop {
            let mut moved = false;
            for number in 0..self.guests.len() {
                let guest = self.guests.get_mut(number).unwrap();
                guest.connection.now = self.now;
                guest.connection.settle();
                for event in guest.connection.publisher.take_events() {
                    moved = true;
                    self.handle(number, event);
                }
                moved |= self.guests.get_mut(number).unwrap().handle_events();
            }
            if !moved {
                break;
            }
        }
        let closed = |guest: &Guest| guest.connection.publisher.session.is_closed();
        let out_of_time = self.grace.is_some_and(|grace| grace <= self.now);
        if self.grace.is_some() && (out_of_time || self.guests.iter().all(closed)) {
            // Only now: an importer may have it open until it is gone (D-12).
            self.errors.extend(self.camera.close().err());
        }
    }

    /// Time passes, all at once.
    pub fn advance(&mut self, by: Duration) {
        self.now = self.now + by;
        for guest in &mut self.guests {
            guest.connection.publisher.session.handle_timeout(self.now);
            guest.connection.subscriber.session.handle_timeout(self.now);
        }
        self.ring.roster.handle_timeout(self.now);
        self.settle();
        if self.grace.is_some_and(|grace| grace <= self.now) {
            self.hang_up();
        }
    }

    /// Publishes a frame in stream order: it is committed when the publisher's stream has come so far. Returns its number.
    ///
    /// # Errors
    /// A call of the GPU that failed; nothing is published then.
    ///
    /// # Panics
    /// If nothing can be claimed, or the stream does not come so far.
    pub fn publish(&mut self) -> Result<u64, MockError> {
        let claim = self.ring.writer.claim().unwrap();
        let done = self.camera.fill(claim.slot(), claim.seq().get())?;
        self.camera.stream.run();
        assert!(done.is_set(), "the stream does not go on");
        Ok(claim.commit(0, frame_size()).seq.get())
    }

    /// Publishes a frame as plain v1 does: at once, and whoever waits for the event gets it complete. Returns its number.
    ///
    /// # Errors
    /// A call of the GPU that failed; nothing is published then.
    ///
    /// # Panics
    /// If nothing can be claimed.
    pub fn publish_early(&mut self) -> Result<u64, MockError> {
        let claim = self.ring.writer.claim().unwrap();
        self.camera.fill(claim.slot(), claim.seq().get())?;
        Ok(claim.commit(0, frame_size()).seq.get())
    }

    /// Says SHUTDOWN; [`settle`](Self::settle) frees the memory when everybody has left, and
    /// [`advance`](Self::advance) when they had their time.
    pub fn shut_down(&mut self) {
        self.ring.roster.shut_down();
        self.grace = Some(self.now + Timeouts::default().shutdown_grace);
        for guest in &mut self.guests {
            guest.connection.publisher.session.shutdown(self.now, ShutdownReason::NORMAL);
        }
        self.settle();
    }

    /// From now on the publisher says that it honours `feature`, too.
    pub const fn claim_feature(&mut self, feature: Features) {
        self.offer.features = self.offer.features.union(feature);
    }

    /// The publisher's process dies.
    pub fn kill_publisher(&mut self) {
        self.camera.kill();
        self.hang_up();
    }

    /// A subscriber's process dies, with everything it holds.
    ///
    /// # Panics
    /// If there is no such guest.
    pub fn kill(&mut self, guest: usize) {
        let guest = self.guests.get_mut(guest).unwrap();
        let bit = guest.bit;
        guest.kill();
        self.settle();
        bit.into_iter().for_each(|bit| self.ring.roster.process_gone(bit));
    }

    /// The publisher's ends of all connections are closed.
    fn hang_up(&mut self) {
        for guest in &mut self.guests {
            guest.connection.publisher.session.handle_eof(self.now);
        }
        self.settle();
    }

    fn handle(&mut self, number: usize, event: PublisherEvent) {
        let guest = self.guests.get_mut(number).unwrap();
        match event {
            PublisherEvent::Subscribe(request) => self.admit(number, request),
            PublisherEvent::Closed(closed) => {
                if let Some(bit) = guest.bit.take() {
                    let clean = closed == Closed::Gone(Gone::Unsubscribed);
                    let departure = if clean { Departure::Clean } else { Departure::Abrupt };
                    self.ring.roster.leave(self.now, bit, departure);
                }
            }
            other => panic!("{other:?}"),
        }
    }

    fn admit(&mut self, number: usize, request: SubscribeRequest) {
        let guest = self.guests.get_mut(number).unwrap();
        let session = &mut guest.connection.publisher.session;
        let features = request.features;
        let subscribed = self.ring.roster.admit(PID, request);
        guest.bit = subscribed.as_ref().ok().map(|subscribed| subscribed.bit);
        session.admit(self.now, subscribed).unwrap();
        if guest.bit.is_some() && features.contains(Features::CUDA_VMM) {
            match self.camera.export_fds() {
                Ok(fds) => fds.into_iter().for_each(|(message, fd)| session.offer_fd(message, fd).unwrap()),
                Err(error) => {
                    session.expel(self.now, error.code(), &error.to_string());
                    self.errors.push(error);
                }
            }
        }
    }
}

/// Geometry of every frame: small, and not a multiple of 8.
fn meta() -> FrameMeta {
    FrameMeta::with_pitches(Format::GRAY8, 5, 3, 5, 0).unwrap()
}

/// Bytes of a frame.
#[must_use]
pub fn frame_size() -> u64 {
    meta().frame_size_bytes
}

/// Frame `seq` as it must look.
#[must_use]
pub fn picture(seq: u64) -> Vec<u8> {
    vec![seq.to_le_bytes()[0]; usize::try_from(frame_size()).unwrap()]
}

/// How long a guest waits for its stream.
const PATIENCE: Duration = HANDSHAKE_TIMEOUT;
