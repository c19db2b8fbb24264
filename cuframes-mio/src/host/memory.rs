//! [`HostMemory`]: frames in host memory behind the traits of [`cuframes_core::gpu`].

use std::convert::Infallible;
use std::error;
use std::fmt;
use std::os::fd::OwnedFd;
use std::slice;
use std::time::Duration;

use cuframes_core::error::{ErrorCode, Place, Problem};
use cuframes_core::gpu::{Call, Device, EventHandle, Export, GpuError, Import};
use cuframes_core::shm::header::SlotMemory;
use cuframes_core::wire::control::EventFd;
use cuframes_core::wire::{FdPurpose, MessageType};
use cuframes_core::{Backend, Key, Misuse, RingSize, Violation};

use super::copy::copy;
use super::{HostPool, HostView};
use crate::error::Error;

/// Host memory as a backend: one sealed memfd for the frames of a ring.
///
/// [`Publisher`](crate::Publisher) and [`Subscriber`](crate::Subscriber) have this memory built in. This type is for
/// drivers that are generic over the backend, and the example for who writes one.
///
/// There are no streams: everything is done when the call returns. There are no events either: a publisher commits what is
/// complete. Frames of the caller's own can't be registered.
#[derive(Clone, Debug)]
pub struct HostMemory {
    key: Key,
}

impl HostMemory {
    /// The memory of stream `key`, which errors and `/proc` show.
    #[must_use]
    pub const fn new(key: Key) -> Self {
        Self { key }
    }

    /// The error of a caller who gives `call` something that is not allowed.
    pub(super) fn misuse(&self, call: Call, name: &'static str, must: &'static str) -> HostError {
        let misuse = Misuse::Argument { name, must };
        HostError::new(call, Error::Misuse { key: self.key.clone(), misuse })
    }

    fn check_slot(&self, call: Call, pool: &HostPool, slot: usize) -> Result<(), HostError> {
        if slot < pool.slots { Ok(()) } else { Err(self.misuse(call, "slot", "one that the pool has")) }
    }
}

impl Device for HostMemory {
    type Stream = ();
    type Event = ();
    type Fd = OwnedFd;
    type Error = HostError;

    const STREAMS: bool = false;

    fn backend(&self) -> Backend {
        Backend::HOST
    }

    fn open_event(&self, handle: &EventHandle) -> Result<(), HostError> {
        if *handle == EventHandle::NONE {
            return Ok(());
        }
        Err(self.misuse(Call::OpenEvent, "handle", "zero: host memory has no events"))
    }

    fn wait_event(&self, (): &(), (): &()) -> Result<(), HostError> {
        Ok(())
    }

    fn synchronize(&self, (): &(), _timeout: Duration) -> Result<(), HostError> {
        Ok(())
    }

    fn notify(&self, (): &(), call: Box<dyn FnOnce() + Send>) -> Result<(), HostError> {
        call();
        Ok(())
    }
}

impl Export for HostMemory {
    type Pool = HostPool;
    type External = Infallible;

    fn alloc_pool(&self, slots: RingSize, frame_size: u64) -> Result<HostPool, HostError> {
        if frame_size == 0 {
            return Err(self.misuse(Call::AllocPool, "frame_size", "1 or more"));
        }
        HostPool::create(&self.key, frame_size, slots).map_err(|error| HostError::new(Call::AllocPool, error))
    }

    fn register_external(
        &self,
        _frames: Vec<Self::External>,
        _frame_size: u64,
    ) -> Result<HostPool, HostError> {
        Err(HostError { call: Call::RegisterExternal, error: None })
    }

    fn export_mem(&self, pool: &HostPool, slot: usize) -> Result<SlotMemory, HostError> {
        self.check_slot(Call::ExportMem, pool, slot)?;
        Ok(pool.memory(slot))
    }

    fn export_fds(&self, pool: &HostPool) -> Result<Vec<(EventFd, OwnedFd)>, HostError> {
        match pool.fd().try_clone_to_owned() {
            Ok(fd) => Ok(vec![(EventFd::single(FdPurpose::HOST_POOL), fd)]),
            Err(error) => {
                Err(HostError::new(Call::ExportFds, Error::system(&self.key, "copy a descriptor", error)))
            }
        }
    }

    fn create_event(&self) -> Result<((), EventHandle), HostError> {
        Ok(((), EventHandle::NONE))
    }

    fn record_event(&self, (): &(), (): &()) -> Result<(), HostError> {
        Ok(())
    }

    fn pool_ptr(&self, pool: &HostPool, slot: usize) -> Option<u64> {
        (slot < pool.slots).then(|| pool.address(slot))
    }

    fn copy_in(&self, (): &(), pool: &mut HostPool, slot: usize, bytes: &[u8]) -> Result<(), HostError> {
        self.check_slot(Call::CopyIn, pool, slot)?;
        let route = pool.route;
        match pool.slot_bytes_mut(slot).get_mut(..bytes.len()) {
            Some(frame) => {
                copy(route, frame, bytes);
                Ok(())
            }
            None => Err(self.misuse(Call::CopyIn, "bytes", "at most as long as a frame")),
        }
    }
}

impl Import for HostMemory {
    type Mapping = HostView;

    fn open_mem(&self, memory: &SlotMemory, len: u64, fds: &[OwnedFd]) -> Result<HostView, HostError> {
        let view = self.open_ring(Backend::HOST, slice::from_ref(memory), len, fds)?.pop();
        view.ok_or_else(|| self.misuse(Call::OpenMem, "slots", "one or more"))
    }

    /// They share one map.
    fn open_ring(
        &self,
        _backend: Backend,
        slots: &[SlotMemory],
        len: u64,
        fds: &[OwnedFd],
    ) -> Result<Vec<HostView>, HostError> {
        let violation =
            |violation| Err(HostError::new(Call::OpenMem, Error::violation(&self.key, violation)));
        let pool = match fds {
            [pool] => pool,
            [] => return violation(Violation::new(MessageType::EVENT_FD, "fd", Problem::FdMissing)),
            _ => return violation(Violation::new(MessageType::EVENT_FD, "fd", Problem::FdSurplus)),
        };
        if let Some(memory) = slots.iter().find(|memory| memory.offset != 0) {
            // X-5 is not for host memory: a handle means one frame.
            let problem = Problem::Value { value: memory.offset };
            return violation(Violation { place: Place::Region, field: "mem_offset", problem });
        }
        HostView::open(&self.key, pool, len, slots.iter().map(|memory| memory.handle))
            .map_err(|error| HostError::new(Call::OpenMem, error))
    }

    fn mapping_ptr(&self, mapping: &HostView) -> u64 {
        mapping.address()
    }

    fn bytes<'a>(&self, mapping: &'a HostView, len: u64) -> Option<&'a [u8]> {
        Some(mapping.bytes(len))
    }

    fn copy_out(
        &self,
        (): &(),
        mapping: &HostView,
        out: &mut [u8],
        _timeout: Duration,
    ) -> Result<(), HostError> {
        if out.len() > mapping.frame_size {
            return Err(self.misuse(Call::CopyOut, "out", "at most as long as a frame"));
        }
        mapping.copy_to(out);
        Ok(())
    }
}

/// A call of [`HostMemory`] that failed.
#[derive(Debug)]
pub struct HostError {
    call: Call,
    /// `None`: host memory has no such call.
    error: Option<Error>,
}

impl HostError {
    const fn new(call: Call, error: Error) -> Self {
        Self { call, error: Some(error) }
    }

    /// What happened, without the call.
    pub(crate) fn into_error(self, key: &Key) -> Error {
        let misuse = Misuse::Argument { name: "frames", must: "left to the backend: it is host memory" };
        self.error.unwrap_or_else(|| Error::Misuse { key: key.clone(), misuse })
    }
}

impl GpuError for HostError {
    fn call(&self) -> Call {
        self.call
    }

    fn code(&self) -> ErrorCode {
        self.error.as_ref().map_or(ErrorCode::UNSUPPORTED, Error::code)
    }

    fn native(&self) -> Option<i32> {
        match &self.error {
            Some(Error::Io { source, .. } | Error::System { source, .. }) => source.raw_os_error(),
            _ => None,
        }
    }
}

impl fmt::Display for HostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.error {
            Some(error) => write!(f, "{}: {error}", self.call),
            None => write!(f, "{}: not possible in host memory", self.call),
        }
    }
}

impl error::Error for HostError {}
