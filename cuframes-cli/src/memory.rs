//! Where frames are: in host memory, or in that of a GPU. What `publish` and `subscribe` do with either.

use std::os::fd::OwnedFd;
use std::time::Duration;

use cuframes_core::error::ErrorCode;
use cuframes_core::gpu::{Device, Export, Import};
use cuframes_core::{Backend, Key};
use cuframes_cuda::{Cuda, Stream};
use cuframes_mio::bridge::Copier;
use cuframes_mio::{Claim, Error, Frame, HostMemory, HostOr};

use crate::args::{BackendArgs, MemoryKind};
use crate::error::{Failure, failed};

/// What a frame says of itself that is not what its publisher would say: its time, and its valid bytes (D-35).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stamp {
    pub(crate) pts_ns: i64,
    pub(crate) written_bytes: u64,
}

/// Memory that `publish` writes frames into.
pub(crate) trait Canvas: Export<Fd = OwnedFd> + Sized {
    /// What is kept from one frame to the next.
    type Kept;

    fn kept(&self) -> Result<Self::Kept, Failure>;

    /// Lets `draw` make the frame, and publishes it: the whole of it and stamped with the current time, if `stamp` doesn't say
    /// otherwise.
    fn publish(
        claim: Claim<'_, Self>,
        kept: &mut Self::Kept,
        stamp: Option<Stamp>,
        draw: impl FnOnce(&mut [u8]),
    ) -> Result<(), Failure>;
}

/// Memory that `subscribe` reads frames from.
pub(crate) trait View: Import<Fd = OwnedFd, Stream: Send> + Clone + 'static {
    /// A stream for copies of frames that can't be read where they are.
    fn copying(&self) -> Result<Self::Stream, Failure>;
}

/// Copies of frames that can't be read where they are.
#[derive(Debug)]
pub(crate) struct Copies<B: View> {
    stream: Option<B::Stream>,
    bytes: Vec<u8>,
}

impl<B: View> Copies<B> {
    pub(crate) const fn new() -> Self {
        Self { stream: None, bytes: Vec::new() }
    }

    /// The frame's bytes. If they are overwritten meanwhile, releasing the frame says so.
    pub(crate) fn look<'a>(&'a mut self, frame: &'a Frame<B>) -> Result<&'a [u8], Failure> {
        if let Some(bytes) = frame.bytes() {
            return Ok(bytes);
        }
        let Self { stream, bytes } = self;
        let stream = match stream {
            Some(stream) => stream,
            None => stream.insert(frame.backend().copying()?),
        };
        bytes.resize(frame.len(), 0);
        match frame.copy_to_host(stream, bytes, PATIENCE) {
            Ok(_) | Err(Error::Lost { .. }) => Ok(bytes),
            Err(error) => Err(failed!("{error}")),
        }
    }
}

/// Copies of frames that can't be read where they are, one for each, for who keeps them.
pub(crate) fn copier<B: View>() -> Copier<B> {
    let mut stream = None;
    Box::new(move |frame: &Frame<B>| {
        let stream = match &mut stream {
            Some(stream) => stream,
            None => stream.insert(frame.backend().copying().map_err(|failure| Error::Device {
                key: frame.key().clone(),
                code: ErrorCode::CUDA,
                error: failure.to_string().into(),
            })?),
        };
        let mut bytes = vec![0; frame.len()];
        frame.copy_to_host(stream, &mut bytes, PATIENCE)?;
        Ok(bytes)
    })
}

/// A stream, and a frame's bytes on their way to the device or from it.
#[derive(Debug)]
pub(crate) struct Transfer {
    stream: Stream,
    bytes: Vec<u8>,
}

impl Canvas for HostMemory {
    type Kept = ();

    fn kept(&self) -> Result<(), Failure> {
        Ok(())
    }

    fn publish(
        mut claim: Claim<'_>,
        (): &mut (),
        stamp: Option<Stamp>,
        draw: impl FnOnce(&mut [u8]),
    ) -> Result<(), Failure> {
        draw(claim.bytes_mut());
        match stamp {
            None => claim.commit(),
            Some(Stamp { pts_ns, written_bytes }) => claim.commit_with(pts_ns, written_bytes),
        };
        Ok(())
    }
}

impl View for HostMemory {
    fn copying(&self) -> Result<(), Failure> {
        Ok(())
    }
}

impl View for Cuda {
    fn copying(&self) -> Result<Stream, Failure> {
        stream(self)
    }
}

/// Wherever the stream has them.
impl View for HostOr<Cuda> {
    fn copying(&self) -> Result<Option<Stream>, Failure> {
        self.device().map(stream).transpose()
    }
}

impl Canvas for Cuda {
    type Kept = Transfer;

    fn kept(&self) -> Result<Transfer, Failure> {
        Ok(Transfer { stream: stream(self)?, bytes: Vec::new() })
    }

    fn publish(
        mut claim: Claim<'_, Self>,
        Transfer { stream, bytes }: &mut Transfer,
        stamp: Option<Stamp>,
        draw: impl FnOnce(&mut [u8]),
    ) -> Result<(), Failure> {
        bytes.resize(usize::try_from(claim.meta().frame_size_bytes).unwrap_or(usize::MAX), 0);
        draw(bytes);
        claim.copy_in(stream, bytes).map_err(|error| failed!("{error}"))?;
        let committed = match stamp {
            None => claim.commit_on(stream),
            Some(Stamp { pts_ns, written_bytes }) => claim.commit_on_with(stream, pts_ns, written_bytes),
        };
        committed.map(drop).map_err(|error| failed!("{error}"))
    }
}

fn stream(cuda: &Cuda) -> Result<Stream, Failure> {
    cuda.stream().map_err(|error| failed!("can't use GPU {}: {error}", cuda.ordinal()))
}

/// Opens the device that the arguments name.
pub(crate) fn open(key: &Key, BackendArgs { backend, device }: &BackendArgs) -> Result<Cuda, Failure> {
    let opened = match backend {
        MemoryKind::Cuda => Cuda::open_as(*device, Backend::CUDA_IPC),
        MemoryKind::CudaVmm => Cuda::open_as(*device, Backend::CUDA_VMM),
        MemoryKind::Auto | MemoryKind::Host => Cuda::open(*device),
    };
    opened.map_err(|error| failed!("stream {key}: can't use GPU {device}: {error}"))
}

/// In words, where the frames of a device are.
pub(crate) fn describe(cuda: &Cuda) -> String {
    let how = if cuda.backend() == Backend::CUDA_VMM { "over file descriptors" } else { "over IPC handles" };
    format!("in the memory of {} ({}), shared {how}: {}", cuda.name(), cuda.uuid(), cuda.choice())
}

/// Frames of stream `key` wherever they are: a GPU is opened when one is needed.
pub(crate) fn anywhere(key: &Key, device: i32) -> HostOr<Cuda> {
    let is_cuda = |backend| matches!(backend, Backend::CUDA_IPC | Backend::CUDA_VMM);
    HostOr::new(key.clone(), is_cuda, move || Cuda::open_as(device, Backend::CUDA_IPC))
}

/// Does something with the memory that the arguments name, whose type is not the same everywhere: `over_memory!(key, memory,
/// |backend| ...)`.
macro_rules! over_memory {
    ($key:expr, $memory:expr, |$backend:ident| $work:expr) => {
        match $memory.backend {
            $crate::args::MemoryKind::Auto => {
                let $backend = $crate::memory::anywhere($key, $memory.device);
                $work
            }
            $crate::args::MemoryKind::Host => {
                let $backend = cuframes_mio::HostMemory::new($key.clone());
                $work
            }
            $crate::args::MemoryKind::Cuda | $crate::args::MemoryKind::CudaVmm => {
                let $backend = $crate::memory::open($key, $memory)?;
                $work
            }
        }
    };
}
pub(crate) use over_memory;

/// How long a copy from the device may take.
const PATIENCE: Duration = Duration::from_secs(10);
