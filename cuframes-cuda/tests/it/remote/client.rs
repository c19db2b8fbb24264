//! [`Importer`]: `Import` in another process.

use std::error::Error;
use std::fmt;
use std::net::Shutdown;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::Child;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use cuframes_core::Backend;
use cuframes_core::error::ErrorCode;
use cuframes_core::gpu::{Call, Device, EventHandle, GpuError, Import};
use cuframes_core::shm::header::SlotMemory;

use super::server::{BACKEND, ORDINAL};
use super::wire::{Reply, Request, Slot, receive, send};
use crate::roles::{Role, start};

/// An importer in a process of its own, which ends with the last of what it opened.
#[derive(Clone, Debug)]
pub(crate) struct Importer {
    link: Arc<Link>,
    backend: Backend,
}

#[derive(Debug)]
struct Link {
    socket: UnixStream,
    /// One question at a time.
    turn: Mutex<()>,
    child: Mutex<Child>,
}

impl Importer {
    /// One on this device.
    pub(crate) fn new(ordinal: i32, backend: Backend) -> Self {
        Self::with(ordinal, backend, &[])
    }

    /// The same with variables in its environment.
    pub(crate) fn with(ordinal: i32, backend: Backend, variables: &[(&str, &str)]) -> Self {
        let (ordinal, number) = (ordinal.to_string(), backend.0.to_string());
        let mut all = vec![(ORDINAL, ordinal.as_str()), (BACKEND, number.as_str())];
        all.extend(variables);
        let (socket, child) = start(Role::Importer, &all);
        let link = Link { socket, turn: Mutex::default(), child: Mutex::new(child) };
        Self { link: Arc::new(link), backend }
    }

    /// A new stream of it.
    pub(crate) fn stream(&self) -> RemoteStream {
        self.link
            .number(&Request::Stream, &[])
            .map(|id| RemoteStream { link: self.link.clone(), id })
            .unwrap()
    }
}

impl Link {
    fn ask(&self, request: &Request, fds: &[OwnedFd]) -> Result<Reply, RemoteError> {
        let fds: Vec<_> = fds.iter().map(OwnedFd::as_fd).collect();
        let turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        send(&self.socket, request, &fds).unwrap();
        let reply = receive(&self.socket).unwrap().expect("the importer ended").0;
        drop(turn);
        match reply {
            Reply::Failed { call, code, native, text } => {
                let call = *Call::ALL.iter().find(|known| known.name() == call).unwrap();
                Err(RemoteError { call, code: ErrorCode(code), native, text })
            }
            reply => Ok(reply),
        }
    }

    fn number(&self, request: &Request, fds: &[OwnedFd]) -> Result<u64, RemoteError> {
        match self.ask(request, fds)? {
            Reply::Number(number) => Ok(number),
            other => panic!("{other:?}"),
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.socket.shutdown(Shutdown::Both).unwrap();
        let status = self.child.lock().unwrap_or_else(PoisonError::into_inner).wait().unwrap();
        assert!(status.success() || thread::panicking(), "the importer: {status}");
    }
}

/// A stream there.
#[derive(Debug)]
pub(crate) struct RemoteStream {
    link: Arc<Link>,
    id: u64,
}

/// An event that was opened there.
#[derive(Debug)]
pub(crate) struct RemoteEvent {
    link: Arc<Link>,
    id: u64,
}

/// Memory that is open there.
#[derive(Debug)]
pub(crate) struct RemoteMapping {
    link: Arc<Link>,
    id: u64,
    is_closed: bool,
}

impl Drop for RemoteStream {
    fn drop(&mut self) {
        self.link.ask(&Request::DropStream(self.id), &[]).unwrap();
    }
}

impl Drop for RemoteEvent {
    fn drop(&mut self) {
        self.link.ask(&Request::DropEvent(self.id), &[]).unwrap();
    }
}

impl Drop for RemoteMapping {
    fn drop(&mut self) {
        if !self.is_closed {
            self.link.ask(&Request::DropMapping(self.id), &[]).unwrap();
        }
    }
}

impl Device for Importer {
    type Stream = RemoteStream;
    type Event = RemoteEvent;
    type Fd = OwnedFd;
    type Error = RemoteError;

    fn backend(&self) -> Backend {
        self.backend
    }

    fn open_event(&self, handle: &EventHandle) -> Result<RemoteEvent, RemoteError> {
        let id = self.link.number(&Request::OpenEvent(handle.0.to_vec()), &[])?;
        Ok(RemoteEvent { link: self.link.clone(), id })
    }

    fn wait_event(&self, stream: &RemoteStream, event: &RemoteEvent) -> Result<(), RemoteError> {
        self.link.ask(&Request::Wait { stream: stream.id, event: event.id }, &[]).map(drop)
    }

    fn synchronize(&self, stream: &RemoteStream, timeout: Duration) -> Result<(), RemoteError> {
        let request = Request::Synchronize { stream: stream.id, millis: millis(timeout) };
        self.link.ask(&request, &[]).map(drop)
    }

    fn notify(&self, stream: &RemoteStream, call: Box<dyn FnOnce() + Send>) -> Result<(), RemoteError> {
        self.link.ask(&Request::Notify { stream: stream.id }, &[])?;
        call();
        Ok(())
    }
}

impl Import for Importer {
    type Mapping = RemoteMapping;

    fn open_mem(&self, memory: &SlotMemory, len: u64, fds: &[OwnedFd]) -> Result<RemoteMapping, RemoteError> {
        let id = self.link.number(&Request::OpenMem { slot: slot(memory), len }, fds)?;
        Ok(self.mapping(id))
    }

    fn open_ring(
        &self,
        backend: Backend,
        slots: &[SlotMemory],
        len: u64,
        fds: &[OwnedFd],
    ) -> Result<Vec<RemoteMapping>, RemoteError> {
        let slots = slots.iter().map(slot).collect();
        match self.link.ask(&Request::OpenRing { backend: backend.0, slots, len }, fds)? {
            Reply::Numbers(ids) => Ok(ids.into_iter().map(|id| self.mapping(id)).collect()),
            other => panic!("{other:?}"),
        }
    }

    fn opens(&self, backend: Backend) -> bool {
        [Backend::CUDA_IPC, Backend::CUDA_VMM].contains(&backend)
    }

    fn mapping_ptr(&self, mapping: &RemoteMapping) -> u64 {
        self.link.number(&Request::Pointer(mapping.id), &[]).unwrap()
    }

    fn copy_out(
        &self,
        stream: &RemoteStream,
        mapping: &RemoteMapping,
        out: &mut [u8],
        timeout: Duration,
    ) -> Result<(), RemoteError> {
        let (len, millis) = (out.len(), millis(timeout));
        match self.link.ask(&Request::Copy { stream: stream.id, mapping: mapping.id, len, millis }, &[])? {
            Reply::Bytes(bytes) => out.copy_from_slice(&bytes),
            other => panic!("{other:?}"),
        }
        Ok(())
    }

    fn close_mem(&self, mut mapping: RemoteMapping) -> Result<(), RemoteError> {
        mapping.is_closed = true;
        self.link.ask(&Request::Close(mapping.id), &[]).map(drop)
    }
}

impl Importer {
    fn mapping(&self, id: u64) -> RemoteMapping {
        RemoteMapping { link: self.link.clone(), id, is_closed: false }
    }
}

fn slot(memory: &SlotMemory) -> Slot {
    Slot { handle: memory.handle.0.to_vec(), offset: memory.offset }
}

fn millis(timeout: Duration) -> u64 {
    u64::try_from(timeout.as_millis()).unwrap()
}

/// A [`CudaError`](cuframes_cuda::CudaError) of the other process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct RemoteError {
    call: Call,
    code: ErrorCode,
    native: Option<i32>,
    text: String,
}

impl GpuError for RemoteError {
    fn call(&self) -> Call {
        self.call
    }

    fn code(&self) -> ErrorCode {
        self.code
    }

    fn native(&self) -> Option<i32> {
        self.native
    }
}

impl fmt::Display for RemoteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Error for RemoteError {}
