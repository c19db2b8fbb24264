//! [`Cuda`]: a device, and how its memory is shared; what exporter and importer have in common.

use std::fmt;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cudarc::driver::sys::CUdevice_attribute;
use cuframes_core::Backend;
use cuframes_core::error::ErrorCode;
use cuframes_core::gpu::{Call, Device, EventHandle, GpuError as _};

use crate::error::{Cause, CudaError};
use crate::export::PAGE;
use crate::exports::Exported;
use crate::ffi::{self, Access, Allocation, Block, Context, Failed, Mapped, Watch};
use crate::staging::Staging;
use crate::stream::Stream;
use crate::uuid::Uuid;
use crate::wait::Patience;

/// A GPU, whose primary context this process has, and how memory on it is shared.
///
/// Clones are the same device. The context is released when the last clone is dropped, and everything that belongs to it:
/// pools, mappings, events, streams. It need not be current on the calling thread, and what is current there stays (C-10).
///
/// Freeing and closing waits for all streams of the context, as CUDA does. What is freed or closed after a wait was given up (an
/// error or a timeout of [`synchronize`](Device::synchronize), a copy or a new pool) is kept instead, until the device is done
/// with the work that was waited for and something else is closed; with what keeps it alive, and to the end of the process if
/// need be. In a child that was forked every call is an error, and dropping does nothing.
///
/// The [backend](Self::backend) is that of the pools that are made; memory of both backends can be opened.
#[derive(Clone, Debug)]
pub struct Cuda {
    shared: Arc<Shared>,
    backend: Backend,
    choice: Choice,
}

/// What all clones share.
#[derive(Debug)]
struct Shared {
    ordinal: i32,
    name: String,
    context: Arc<Context>,
    staging: Staging,
    /// Events that nobody waits for just now. There are as many as ever were in use at once (C-8).
    spare: Mutex<Vec<Arc<ffi::Event>>>,
    /// Whether it was tried, and memory can be shared over file descriptors.
    vmm_works: AtomicBool,
}

impl Drop for Shared {
    fn drop(&mut self) {
        if self.context.is_here() {
            // Closes what was kept, if it need not be any more; or else it stays, and the context with it.
            let _ = self.context.is_settled();
        }
    }
}

/// Why a [`Cuda`] shares its memory as it does.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Choice {
    /// The caller said so.
    Asked,
    /// File descriptors work on this device, and they need no shared namespaces.
    VmmWorks,
    /// The device says that it can't share memory over file descriptors.
    VmmUnsupported,
    /// The device says that it can, but it failed when it was tried.
    VmmFails(CudaError),
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Asked => f.write_str("asked for"),
            Self::VmmWorks => f.write_str("the device shares memory over file descriptors"),
            Self::VmmUnsupported => f.write_str("the device can't share memory over file descriptors"),
            Self::VmmFails(error) => write!(f, "sharing memory over file descriptors was tried: {error}"),
        }
    }
}

impl Cuda {
    /// Opens the device with this ordinal, counted from 0 as in `CUDA_VISIBLE_DEVICES`. Memory is shared over file descriptors
    /// if that works here, and over legacy IPC handles otherwise; both are tried, as far as that goes in one process.
    /// [`choice`](Self::choice) says why.
    ///
    /// # Errors
    /// [`Cause::NoDriver`] or [`Cause::OldDriver`], [`Cause::NoWay`] if neither works, `OUT_OF_MEMORY` if there is too little to
    /// try, or what the driver reports; all of them with [`Call::Open`].
    pub fn open(ordinal: i32) -> Result<Self, CudaError> {
        let mut cuda = Self::open_as(ordinal, Backend::CUDA_IPC)?;
        cuda.choice = cuda.try_vmm();
        let no_memory = |error: &CudaError| error.code() == ErrorCode::OUT_OF_MEMORY;
        let descriptors = match &cuda.choice {
            Choice::VmmWorks => {
                cuda.backend = Backend::CUDA_VMM;
                return Ok(cuda);
            }
            // That says nothing about what the device can do.
            Choice::VmmFails(error) if no_memory(error) => return Err(error.clone()),
            Choice::VmmFails(error) => Some(Box::new(error.clone())),
            Choice::VmmUnsupported | Choice::Asked => None,
        };
        match cuda.try_legacy() {
            Ok(()) => Ok(cuda),
            Err(error) if no_memory(&error) => Err(error),
            Err(error) => {
                Err(CudaError::new(Call::Open, Cause::NoWay { descriptors, handles: Box::new(error) }))
            }
        }
    }

    /// Opens the device with this ordinal. Memory is shared as `backend` says: [`Backend::CUDA_IPC`] or
    /// [`Backend::CUDA_VMM`].
    ///
    /// # Errors
    /// As [`open`](Self::open), and `INVALID_ARGUMENT` for another backend. Whether the backend works here shows when a
    /// pool is made.
    pub fn open_as(ordinal: i32, backend: Backend) -> Result<Self, CudaError> {
        let call = Call::Open;
        if !is_ours(backend) {
            return Err(CudaError::argument(call, "backend", "cuda or cuda-vmm"));
        }
        let driver = ffi::driver().map_err(|missing| CudaError::new(call, missing.into()))?;
        let failed = CudaError::during(call);
        driver.init().map_err(failed)?;
        let device = driver.device(ordinal).map_err(failed)?;
        let name = driver.device_name(device).map_err(failed)?;
        let uuid = driver.device_uuid(device).map_err(failed)?;
        let context = Arc::new(Context::retain(driver, device, uuid).map_err(failed)?);
        let shared = Shared {
            ordinal,
            name,
            context,
            staging: Staging::default(),
            spare: Mutex::default(),
            vmm_works: AtomicBool::new(false),
        };
        Ok(Self { shared: Arc::new(shared), backend, choice: Choice::Asked })
    }

    /// The same device, for pools of another backend.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for one that is not CUDA's.
    pub fn with_backend(&self, backend: Backend) -> Result<Self, CudaError> {
        if !is_ours(backend) {
            return Err(CudaError::argument(Call::Open, "backend", "cuda or cuda-vmm"));
        }
        Ok(Self { shared: Arc::clone(&self.shared), backend, choice: Choice::Asked })
    }

    /// Why memory is shared over this [`backend`](Device::backend).
    #[must_use]
    pub const fn choice(&self) -> &Choice {
        &self.choice
    }

    /// The number that this process has for the device. It means nothing in other processes: see [`uuid`](Self::uuid).
    #[must_use]
    pub fn ordinal(&self) -> i32 {
        self.shared.ordinal
    }

    /// What the device is called.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// Which device it is (C-13).
    #[must_use]
    pub fn uuid(&self) -> Uuid {
        self.context().uuid()
    }

    /// A new stream. It does not wait for the default stream.
    ///
    /// # Errors
    /// What the driver reports, with [`Call::Open`].
    pub fn stream(&self) -> Result<Stream, CudaError> {
        self.check_process(Call::Open)?;
        let stream = ffi::Stream::create(self.context()).map_err(CudaError::during(Call::Open))?;
        Ok(Stream::new(Arc::new(stream)))
    }

    pub(crate) fn context(&self) -> &Arc<Context> {
        &self.shared.context
    }

    /// How the memory of its pools is shared, and what a handle without more is taken for.
    pub(crate) const fn kind(&self) -> Backend {
        self.backend
    }

    pub(crate) fn is_vmm(&self) -> bool {
        self.backend == Backend::CUDA_VMM
    }

    pub(crate) fn staging(&self) -> &Staging {
        &self.shared.staging
    }

    /// Whether the device says so.
    pub(crate) fn says(&self, attribute: CUdevice_attribute) -> Result<bool, CudaError> {
        let context = self.context();
        let asked = context.table().device_attribute(context.device(), attribute);
        asked.map(|value| value != 0).map_err(CudaError::during(Call::Open))
    }

    /// Whether memory can be given away as a file descriptor: what the device says, and what it does (C-12).
    pub(crate) fn try_vmm(&self) -> Choice {
        let trial = || {
            if !self.says(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_VIRTUAL_ADDRESS_MANAGEMENT_SUPPORTED)?
                || !self.says(
                    CUdevice_attribute::CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
                )?
            {
                return Ok(false);
            }
            let allocating = CudaError::allocating(Call::Open, TRIAL);
            let size = ffi::granularity(self.context()).map_err(allocating)?;
            let block = Block::create(self.context(), size).map_err(allocating)?;
            self.try_descriptor(&block, size).map_err(CudaError::during(Call::Open))?;
            Ok(true)
        };
        match trial() {
            Ok(true) => Choice::VmmWorks,
            Ok(false) => Choice::VmmUnsupported,
            Err(error) => Choice::VmmFails(error),
        }
    }

    /// Does with a block what subscribers will do: takes a descriptor of it, and maps that for reading. Once is enough.
    pub(crate) fn try_descriptor(&self, block: &Block, size: usize) -> Result<(), Failed> {
        if self.shared.vmm_works.load(Ordering::Relaxed) {
            return Ok(());
        }
        let fd = block.export()?;
        let imported = Block::import(self.context(), fd.as_fd())?;
        let mapped = Mapped::new(&imported, size)?;
        mapped.allow(Access::Read)?;
        mapped.unmap()?;
        self.shared.vmm_works.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Tries what a publisher needs for legacy handles. Whether others can open them, only they can tell (C-3).
    fn try_legacy(&self) -> Result<(), CudaError> {
        let failed = CudaError::during(Call::Open);
        let memory =
            Allocation::new(self.context(), PAGE).map_err(CudaError::allocating(Call::Open, TRIAL))?;
        self.context().ipc_handle(memory.address()).map_err(failed)?;
        let event = ffi::Event::create_shared(self.context()).map_err(failed)?;
        event.handle().map_err(failed)?;
        memory.free().map_err(failed)
    }

    /// Refuses every call in a child that was forked, before it takes a lock that another thread may have had (P-20).
    pub(crate) fn check_process(&self, call: Call) -> Result<(), CudaError> {
        if self.context().is_here() { Ok(()) } else { Err(CudaError::new(call, Cause::Forked)) }
    }

    /// Checks that what is given was made on this device.
    pub(crate) fn check_owner(
        &self,
        call: Call,
        context: &Context,
        name: &'static str,
    ) -> Result<(), CudaError> {
        self.check_process(call)?;
        if context.device() == self.context().device() {
            return Ok(());
        }
        Err(CudaError::argument(call, name, "of the same device"))
    }

    pub(crate) fn check_stream(&self, call: Call, stream: &Stream) -> Result<(), CudaError> {
        self.check_owner(call, stream.raw().context(), "stream")
    }

    /// Waits until everything that is enqueued on `stream` now is done.
    pub(crate) fn wait_for(
        &self,
        call: Call,
        stream: &ffi::Stream,
        patience: Patience,
    ) -> Result<(), CudaError> {
        let failed = CudaError::during(call);
        // An event takes a moment, even on a stream that has nothing to do.
        if stream.is_idle().map_err(failed)? {
            self.spare().extend(self.context().take_watch(stream));
            return Ok(());
        }
        // If it still stands for something: the next record replaces that.
        let watching = self.context().take_watch(stream);
        let known = watching.or_else(|| self.spare().pop());
        let event = match known {
            Some(event) => event,
            None => Arc::new(ffi::Event::create(self.context()).map_err(failed)?),
        };
        let recorded = event.record(stream).map_err(failed);
        let waited = recorded.and_then(|()| patience.wait(call, || event.is_done()));
        match &waited {
            Ok(()) => self.spare().push(event),
            // Whoever closes memory now would have to wait, too.
            Err(_) => self.context().watch(Watch::Event(event, Some(stream.address()))),
        }
        waited
    }

    fn spare(&self) -> MutexGuard<'_, Vec<Arc<ffi::Event>>> {
        self.shared.spare.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An event that was created or opened.
#[derive(Debug)]
pub struct Event {
    /// `None`: of a publisher that has none.
    raw: Option<ffi::Event>,
    /// That it can't be opened in this process (C-3).
    _exported: Option<Exported>,
}

impl Event {
    /// A new one, and the handle that opens it.
    pub(crate) fn create(cuda: &Cuda) -> Result<(Self, EventHandle), CudaError> {
        let failed = CudaError::during(Call::CreateEvent);
        cuda.check_process(Call::CreateEvent)?;
        if cuda.backend == Backend::CUDA_VMM {
            let event = ffi::Event::create(cuda.context()).map_err(failed)?;
            return Ok((Self { raw: Some(event), _exported: None }, EventHandle::NONE));
        }
        let event = ffi::Event::create_shared(cuda.context()).map_err(failed)?;
        // At once, while nothing can be in the way (C-6).
        let handle = event.handle().map_err(failed)?;
        let exported = Some(Exported::event(handle));
        Ok((Self { raw: Some(event), _exported: exported }, EventHandle(handle)))
    }

    /// The driver's, if there is one, and if it is `cuda`'s.
    pub(crate) fn on(&self, call: Call, cuda: &Cuda) -> Result<Option<&ffi::Event>, CudaError> {
        if let Some(event) = &self.raw {
            cuda.check_owner(call, event.context(), "event")?;
        }
        Ok(self.raw.as_ref())
    }
}

impl Device for Cuda {
    type Stream = Stream;
    type Event = Event;
    type Fd = OwnedFd;
    type Error = CudaError;

    fn backend(&self) -> Backend {
        self.backend
    }

    fn open_event(&self, handle: &EventHandle) -> Result<Event, CudaError> {
        self.check_process(Call::OpenEvent)?;
        if *handle == EventHandle::NONE {
            return Ok(Event { raw: None, _exported: None });
        }
        if Exported::has_event(&handle.0) {
            return Err(CudaError::new(Call::OpenEvent, Cause::OwnHandle));
        }
        let event =
            ffi::Event::open(self.context(), &handle.0).map_err(CudaError::during(Call::OpenEvent))?;
        Ok(Event { raw: Some(event), _exported: None })
    }

    fn wait_event(&self, stream: &Stream, event: &Event) -> Result<(), CudaError> {
        let call = Call::WaitEvent;
        self.check_stream(call, stream)?;
        match event.on(call, self)? {
            Some(event) => stream.raw().wait(event).map_err(CudaError::during(call)),
            None => Ok(()),
        }
    }

    fn synchronize(&self, stream: &Stream, timeout: Duration) -> Result<(), CudaError> {
        self.check_stream(Call::Synchronize, stream)?;
        self.wait_for(Call::Synchronize, stream.raw(), Patience::new(timeout))
    }

    fn notify(&self, stream: &Stream, call: Box<dyn FnOnce() + Send>) -> Result<(), CudaError> {
        self.check_stream(Call::Notify, stream)?;
        stream.raw().launch(call).map_err(CudaError::during(Call::Notify))
    }
}

/// Whether `backend` is memory of a CUDA device.
pub(crate) fn is_ours(backend: Backend) -> bool {
    matches!(backend, Backend::CUDA_IPC | Backend::CUDA_VMM)
}

/// Bytes that it takes to try a way of sharing memory.
const TRIAL: u64 = 2 << 20;
