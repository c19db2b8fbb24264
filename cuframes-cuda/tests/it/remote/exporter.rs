//! [`Exporter`]: a process that has memory to open, and dies when the test wants.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::Child;
use std::sync::mpsc;

use cuframes_core::gpu::{Device as _, EventHandle, Export as _, MemHandle};
use cuframes_core::shm::header::SlotMemory;
use cuframes_core::{Backend, RingSize};
use cuframes_cuda::Cuda;
use serde::{Deserialize, Serialize};

use super::server::{BACKEND, ORDINAL, settings};
use super::wire::{receive, send};
use crate::roles::{Role, start};

/// What a subscriber gets of a publisher.
#[derive(Debug)]
pub(crate) struct Offer {
    pub(crate) slots: Vec<SlotMemory>,
    pub(crate) event: EventHandle,
    pub(crate) fds: Vec<OwnedFd>,
}

/// The same on its way.
#[derive(Serialize, Deserialize)]
pub(crate) struct Handles {
    slots: Vec<Vec<u8>>,
    event: Vec<u8>,
}

/// Sends handles and descriptors.
pub(crate) fn offer(socket: &UnixStream, offer: &Offer) {
    let slots = offer.slots.iter().map(|slot| slot.handle.0.to_vec()).collect();
    let fds: Vec<_> = offer.fds.iter().map(std::os::fd::AsFd::as_fd).collect();
    send(socket, &Handles { slots, event: offer.event.0.to_vec() }, &fds).unwrap();
}

impl Offer {
    /// Receives what [`offer`] sent.
    pub(crate) fn receive(socket: &UnixStream) -> Self {
        let (handles, fds) = receive::<Handles>(socket).unwrap().expect("the exporter ended");
        let memory = |handle: Vec<u8>| {
            let handle = MemHandle(handle.try_into().unwrap());
            SlotMemory { handle, ptr_external: [0; 32], offset: 0 }
        };
        let slots = handles.slots.into_iter().map(memory).collect();
        Self { slots, event: EventHandle(handles.event.try_into().unwrap()), fds }
    }
}

/// A process that has exported a ring of [`SLOTS`](Exporter::SLOTS) frames, each filled with its number, and recorded its
/// event behind work that is never done.
#[derive(Debug)]
pub(crate) struct Exporter {
    _socket: UnixStream,
    child: Child,
}

impl Exporter {
    pub(crate) const SLOTS: u8 = 3;
    pub(crate) const FRAME: usize = 1000;

    pub(crate) fn new(ordinal: i32, backend: Backend) -> (Self, Offer) {
        let (ordinal, number) = (ordinal.to_string(), backend.0.to_string());
        let variables = [(ORDINAL, ordinal.as_str()), (BACKEND, number.as_str())];
        let (socket, child) = start(Role::Exporter, &variables);
        let offer = Offer::receive(&socket);
        (Self { _socket: socket, child }, offer)
    }

    /// `kill -9`.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Lets it free everything and end.
    pub(crate) fn end(self) {
        let Self { _socket: socket, mut child } = self;
        drop(socket);
        assert!(child.wait().unwrap().success());
    }
}

/// The process of an [`Exporter`].
pub(crate) fn play_exporter(socket: &UnixStream) {
    let (ordinal, backend) = settings();
    let cuda = Cuda::open_as(ordinal, backend).unwrap();
    let ring = RingSize::new(Exporter::SLOTS.into()).unwrap();
    let mut pool = cuda.alloc_pool(ring, u64::try_from(Exporter::FRAME).unwrap()).unwrap();
    let stream = cuda.stream().unwrap();
    for (slot, value) in (0..Exporter::SLOTS.into()).zip(1..) {
        cuda.copy_in(&stream, &mut pool, slot, &[value; Exporter::FRAME]).unwrap();
    }
    cuda.synchronize(&stream, crate::double::PATIENCE).unwrap();
    let (event, handle) = cuda.create_event().unwrap();
    let (resume, is_resumed) = mpsc::channel::<()>();
    cuda.notify(&stream, Box::new(move || is_resumed.recv().unwrap_or_default())).unwrap();
    cuda.record_event(&stream, &event).unwrap();
    let slots = (0..Exporter::SLOTS.into()).map(|slot| cuda.export_mem(&pool, slot).unwrap()).collect();
    let fds = cuda.export_fds(&pool).unwrap().into_iter().map(|(_, fd)| fd).collect();
    offer(socket, &Offer { slots, event: handle, fds });
    assert!(receive::<()>(socket).unwrap().is_none());
    drop(resume);
    cuda.synchronize(&stream, crate::double::PATIENCE).unwrap();
    drop(event);
    cuda.free_pool(pool).unwrap();
}
