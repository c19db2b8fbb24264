//! The importer's process: does what it is asked for.

use std::collections::BTreeMap;
use std::env;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::mpsc;
use std::time::Duration;

use cuframes_core::Backend;
use cuframes_core::gpu::{Device as _, EventHandle, GpuError as _, Import as _, MemHandle};
use cuframes_core::shm::header::SlotMemory;
use cuframes_cuda::{Cuda, CudaError, Event, Mapping, Stream};

use super::wire::{Reply, Request, Slot, receive, send};

/// Serves requests until the other side closes.
pub(crate) fn serve(socket: &UnixStream) {
    let (ordinal, backend) = settings();
    let mut server = Server {
        cuda: Cuda::open_as(ordinal, backend).unwrap(),
        streams: BTreeMap::new(),
        events: BTreeMap::new(),
        mappings: BTreeMap::new(),
        last: 0,
    };
    while let Some((request, fds)) = receive(socket).unwrap() {
        let reply = server.answer(request, &fds).unwrap_or_else(|error| failed(&error));
        send(socket, &reply, &[]).unwrap();
    }
}

/// Ordinal of the device and number of the backend, for a process in a role.
pub(super) fn settings() -> (i32, Backend) {
    let number = |name| env::var(name).unwrap().parse::<u64>().unwrap();
    (i32::try_from(number(ORDINAL)).unwrap(), Backend(number(BACKEND)))
}

fn failed(error: &CudaError) -> Reply {
    let (call, code) = (error.call().name().to_owned(), error.code().0);
    Reply::Failed { call, code, native: error.native(), text: error.to_string() }
}

struct Server {
    cuda: Cuda,
    streams: BTreeMap<u64, Stream>,
    events: BTreeMap<u64, Event>,
    mappings: BTreeMap<u64, Mapping>,
    last: u64,
}

impl Server {
    fn answer(&mut self, request: Request, fds: &[OwnedFd]) -> Result<Reply, CudaError> {
        match request {
            Request::Stream => {
                let number = self.number();
                self.streams.insert(number, self.cuda.stream()?);
                return Ok(Reply::Number(number));
            }
            Request::DropStream(stream) => drop(self.streams.remove(&stream)),
            Request::OpenEvent(handle) => {
                let number = self.number();
                let handle = EventHandle(handle.try_into().unwrap());
                self.events.insert(number, self.cuda.open_event(&handle)?);
                return Ok(Reply::Number(number));
            }
            Request::DropEvent(event) => drop(self.events.remove(&event)),
            Request::Wait { stream, event } => {
                self.cuda.wait_event(&self.streams[&stream], &self.events[&event])?;
            }
            Request::Synchronize { stream, millis } => {
                self.cuda.synchronize(&self.streams[&stream], Duration::from_millis(millis))?;
            }
            Request::Notify { stream } => {
                let (done, is_done) = mpsc::channel();
                let call = Box::new(move || done.send(()).unwrap());
                self.cuda.notify(&self.streams[&stream], call)?;
                is_done.recv().unwrap();
            }
            Request::OpenMem { slot, len } => {
                let mapping = self.cuda.open_mem(&memory(slot), len, fds)?;
                return Ok(Reply::Number(self.keep(mapping)));
            }
            Request::OpenRing { backend, slots, len } => {
                let slots: Vec<_> = slots.into_iter().map(memory).collect();
                let ring = self.cuda.open_ring(Backend(backend), &slots, len, fds)?;
                return Ok(Reply::Numbers(ring.into_iter().map(|mapping| self.keep(mapping)).collect()));
            }
            Request::Pointer(mapping) => {
                return Ok(Reply::Number(self.cuda.mapping_ptr(&self.mappings[&mapping])));
            }
            Request::Copy { stream, mapping, len, millis } => {
                let mut out = vec![0; len];
                let (stream, mapping) = (&self.streams[&stream], &self.mappings[&mapping]);
                self.cuda.copy_out(stream, mapping, &mut out, Duration::from_millis(millis))?;
                return Ok(Reply::Bytes(out));
            }
            Request::Close(mapping) => self.cuda.close_mem(self.mappings.remove(&mapping).unwrap())?,
            Request::DropMapping(mapping) => drop(self.mappings.remove(&mapping)),
        }
        Ok(Reply::Done)
    }

    fn keep(&mut self, mapping: Mapping) -> u64 {
        let number = self.number();
        self.mappings.insert(number, mapping);
        number
    }

    fn number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }
}

fn memory(slot: Slot) -> SlotMemory {
    let handle = MemHandle(slot.handle.try_into().unwrap());
    SlotMemory { handle, ptr_external: [0; 32], offset: slot.offset }
}

/// Which device a process in a role opens.
pub(super) const ORDINAL: &str = "CUFRAMES_TEST_ORDINAL";
/// Over which backend.
pub(super) const BACKEND: &str = "CUFRAMES_TEST_BACKEND";
