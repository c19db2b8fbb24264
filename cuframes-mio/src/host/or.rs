//! [`HostOr`]: frames in host memory, or in that of a device if a stream has them there.

use std::error;
use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use cuframes_core::error::ErrorCode;
use cuframes_core::gpu::{Call, Device, EventHandle, GpuError, Import};
use cuframes_core::shm::header::SlotMemory;
use cuframes_core::{Backend, Key};

use super::{HostMemory, HostView};

/// Opens frames in host memory, and in that of a device `B`, which is opened when the first stream needs it: for a
/// subscriber that takes a stream wherever its publisher has it, also when the next publisher has it elsewhere.
///
/// Frames of the host are read where they are ([`Frame::bytes`](crate::Frame::bytes)). For those of the device a stream is
/// needed, made of what [`device`](Self::device) returns then.
pub struct HostOr<B> {
    shared: Arc<Shared<B>>,
}

struct Shared<B> {
    host: HostMemory,
    opens: fn(Backend) -> bool,
    open: Box<dyn Fn() -> Result<B, HostOrError> + Send + Sync>,
    device: OnceLock<B>,
}

/// The frame memory of one slot, of the host or of the device.
#[derive(Debug)]
#[non_exhaustive]
pub enum HostOrMapping<M> {
    /// In host memory.
    Host(HostView),
    /// In the device's.
    Device(M),
}

/// A call that failed, of [`HostMemory`] or of the device.
#[derive(Debug)]
pub struct HostOrError(Box<dyn GpuError>);

impl<B: Import<Fd = OwnedFd>> HostOr<B> {
    /// Host memory of stream `key`, or memory of the kinds for which `opens` is true, for which `open` opens the device. If
    /// that fails it is tried again for the next publisher.
    pub fn new(
        key: Key,
        opens: fn(Backend) -> bool,
        open: impl Fn() -> Result<B, B::Error> + Send + Sync + 'static,
    ) -> Self {
        let open = Box::new(move || open().map_err(HostOrError::new));
        let shared = Shared { host: HostMemory::new(key), opens, open, device: OnceLock::new() };
        Self { shared: Arc::new(shared) }
    }

    /// The device, if a stream has needed it.
    #[must_use]
    pub fn device(&self) -> Option<&B> {
        self.shared.device.get()
    }

    /// The device, opened if it is not yet.
    fn opened(&self) -> Result<&B, HostOrError> {
        let Shared { open, device, .. } = &*self.shared;
        match device.get() {
            Some(device) => Ok(device),
            None => {
                let opened = open()?;
                Ok(device.get_or_init(|| opened))
            }
        }
    }

    /// The device and a stream of it, for a mapping or an event that it has opened.
    fn on<'a>(
        &'a self,
        call: Call,
        stream: &'a Option<B::Stream>,
    ) -> Result<(&'a B, &'a B::Stream), HostOrError> {
        let on = self.device().zip(stream.as_ref());
        on.ok_or_else(|| HostOrError::new(self.shared.host.misuse(call, "stream", "one of the device")))
    }
}

impl<B: Import<Fd = OwnedFd>> Device for HostOr<B> {
    /// Frames of the host need none.
    type Stream = Option<B::Stream>;
    type Event = Option<B::Event>;
    type Fd = OwnedFd;
    type Error = HostOrError;

    fn backend(&self) -> Backend {
        Backend::HOST
    }

    fn open_event(&self, handle: &EventHandle) -> Result<Self::Event, HostOrError> {
        if *handle == EventHandle::NONE {
            return Ok(None);
        }
        self.opened()?.open_event(handle).map(Some).map_err(HostOrError::new)
    }

    fn wait_event(&self, stream: &Self::Stream, event: &Self::Event) -> Result<(), HostOrError> {
        let Some(event) = event else { return Ok(()) };
        let (device, stream) = self.on(Call::WaitEvent, stream)?;
        device.wait_event(stream, event).map_err(HostOrError::new)
    }

    fn synchronize(&self, stream: &Self::Stream, timeout: Duration) -> Result<(), HostOrError> {
        if stream.is_none() {
            return Ok(());
        }
        let (device, stream) = self.on(Call::Synchronize, stream)?;
        device.synchronize(stream, timeout).map_err(HostOrError::new)
    }

    fn notify(&self, stream: &Self::Stream, call: Box<dyn FnOnce() + Send>) -> Result<(), HostOrError> {
        if stream.is_none() {
            call();
            return Ok(());
        }
        let (device, stream) = self.on(Call::Notify, stream)?;
        device.notify(stream, call).map_err(HostOrError::new)
    }
}

impl<B: Import<Fd = OwnedFd>> Import for HostOr<B> {
    type Mapping = HostOrMapping<B::Mapping>;

    fn open_mem(&self, memory: &SlotMemory, len: u64, fds: &[OwnedFd]) -> Result<Self::Mapping, HostOrError> {
        self.shared.host.open_mem(memory, len, fds).map(HostOrMapping::Host).map_err(HostOrError::new)
    }

    fn open_ring(
        &self,
        backend: Backend,
        slots: &[SlotMemory],
        len: u64,
        fds: &[OwnedFd],
    ) -> Result<Vec<Self::Mapping>, HostOrError> {
        if backend == Backend::HOST {
            let opened = self.shared.host.open_ring(backend, slots, len, fds).map_err(HostOrError::new)?;
            return Ok(opened.into_iter().map(HostOrMapping::Host).collect());
        }
        let opened = self.opened()?.open_ring(backend, slots, len, fds).map_err(HostOrError::new)?;
        Ok(opened.into_iter().map(HostOrMapping::Device).collect())
    }

    fn opens(&self, backend: Backend) -> bool {
        backend == Backend::HOST || (self.shared.opens)(backend)
    }

    fn mapping_ptr(&self, mapping: &Self::Mapping) -> u64 {
        match mapping {
            HostOrMapping::Host(view) => self.shared.host.mapping_ptr(view),
            HostOrMapping::Device(mapping) => self.device().map_or(0, |device| device.mapping_ptr(mapping)),
        }
    }

    fn bytes<'a>(&self, mapping: &'a Self::Mapping, len: u64) -> Option<&'a [u8]> {
        match mapping {
            HostOrMapping::Host(view) => self.shared.host.bytes(view, len),
            HostOrMapping::Device(mapping) => self.device()?.bytes(mapping, len),
        }
    }

    fn copy_out(
        &self,
        stream: &Self::Stream,
        mapping: &Self::Mapping,
        out: &mut [u8],
        timeout: Duration,
    ) -> Result<(), HostOrError> {
        match mapping {
            HostOrMapping::Host(view) => {
                self.shared.host.copy_out(&(), view, out, timeout).map_err(HostOrError::new)
            }
            HostOrMapping::Device(mapping) => {
                let (device, stream) = self.on(Call::CopyOut, stream)?;
                device.copy_out(stream, mapping, out, timeout).map_err(HostOrError::new)
            }
        }
    }

    fn close_mem(&self, mapping: Self::Mapping) -> Result<(), HostOrError> {
        match mapping {
            HostOrMapping::Host(view) => self.shared.host.close_mem(view).map_err(HostOrError::new),
            HostOrMapping::Device(mapping) => self.opened()?.close_mem(mapping).map_err(HostOrError::new),
        }
    }
}

impl<B> Clone for HostOr<B> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<B: fmt::Debug> fmt::Debug for HostOr<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shared { host, device, .. } = &*self.shared;
        f.debug_struct("HostOr").field("host", host).field("device", device).finish_non_exhaustive()
    }
}

impl HostOrError {
    fn new(error: impl GpuError) -> Self {
        Self(Box::new(error))
    }

    /// The error of whoever failed, if `error` is one of ours.
    pub(crate) fn peel(error: Box<dyn error::Error + Send + Sync>) -> Box<dyn error::Error + Send + Sync> {
        match error.downcast::<Self>() {
            Ok(error) => error.0,
            Err(error) => error,
        }
    }
}

impl GpuError for HostOrError {
    fn call(&self) -> Call {
        self.0.call()
    }

    fn code(&self) -> ErrorCode {
        self.0.code()
    }

    fn native(&self) -> Option<i32> {
        self.0.native()
    }
}

impl fmt::Display for HostOrError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl error::Error for HostOrError {}
