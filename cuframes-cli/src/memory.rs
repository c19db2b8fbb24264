//! Where frames are: in host memory, or in that of a GPU. What `publish` and `subscribe` do with either.

use std::os::fd::OwnedFd;
use std::time::Duration;

use cuframes_core::error::ErrorCode;
use cuframes_core::gpu::{Device, Export, Import};
use cuframes_core::{Backend, Key};
use cuframes_cuda::{Cuda, Stream};
use cuframes_mio::{Claim, Error, Frame, HostMemory};

use crate::args::{BackendArgs, MemoryKind};
use crate::error::{Failure, failed};

/// Memory that `publish` writes frames into.
pub(crate) trait Canvas: Export<Fd = OwnedFd> + Sized {
    /// What is kept from one frame to the next.
    type Kept;

    fn kept(&self) -> Result<Self::Kept, Failure>;

    /// Lets `draw` make the frame, and publishes it.
    fn publish(
        claim: Claim<'_, Self>,
        kept: &mut Self::Kept,
        draw: impl FnOnce(&mut [u8]),
    ) -> Result<(), Failure>;
}

/// Memory that `subscribe` reads frames from.
pub(crate) trait View: Import<Fd = OwnedFd> + Clone {
    /// What is kept from one frame to the next.
    type Kept;

    fn kept(&self) -> Result<Self::Kept, Failure>;

    /// The frame's bytes. If they are overwritten meanwhile, releasing the frame says so.
    fn look<'a>(frame: &'a Frame<Self>, kept: &'a mut Self::Kept) -> Result<&'a [u8], Failure>;
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

    fn publish(mut claim: Claim<'_>, (): &mut (), draw: impl FnOnce(&mut [u8])) -> Result<(), Failure> {
        draw(claim.bytes_mut());
        claim.commit();
        Ok(())
    }
}

impl View for HostMemory {
    /// For frames that can't be looked at where they are.
    type Kept = Vec<u8>;

    fn kept(&self) -> Result<Vec<u8>, Failure> {
        Ok(Vec::new())
    }

    fn look<'a>(frame: &'a Frame, copy: &'a mut Vec<u8>) -> Result<&'a [u8], Failure> {
        if let Some(bytes) = frame.bytes() {
            return Ok(bytes);
        }
        copy.resize(frame.len(), 0);
        let _ = frame.copy_to(copy);
        Ok(copy)
    }
}

impl Canvas for Cuda {
    type Kept = Transfer;

    fn kept(&self) -> Result<Transfer, Failure> {
        transfer(self)
    }

    fn publish(
        mut claim: Claim<'_, Self>,
        Transfer { stream, bytes }: &mut Transfer,
        draw: impl FnOnce(&mut [u8]),
    ) -> Result<(), Failure> {
        bytes.resize(usize::try_from(claim.meta().frame_size_bytes).unwrap_or(usize::MAX), 0);
        draw(bytes);
        claim.copy_in(stream, bytes).map_err(|error| failed!("{error}"))?;
        claim.commit_on(stream).map_err(|error| failed!("{error}"))?;
        Ok(())
    }
}

impl View for Cuda {
    type Kept = Transfer;

    fn kept(&self) -> Result<Transfer, Failure> {
        transfer(self)
    }

    fn look<'a>(
        frame: &'a Frame<Self>,
        Transfer { stream, bytes }: &'a mut Transfer,
    ) -> Result<&'a [u8], Failure> {
        bytes.resize(frame.len(), 0);
        match frame.copy_to_host(stream, bytes, PATIENCE) {
            Ok(_) | Err(Error::Lost { .. }) => Ok(bytes),
            Err(error) => Err(failed!("{error}")),
        }
    }
}

fn transfer(cuda: &Cuda) -> Result<Transfer, Failure> {
    let stream = cuda.stream().map_err(|error| failed!("can't use the GPU: {error}"))?;
    Ok(Transfer { stream, bytes: Vec::new() })
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

/// The failure of a subscriber: whether other memory could be the cure is told apart.
pub(crate) fn unreadable(error: &Error) -> Failure {
    let is_elsewhere = match error {
        Error::Unusable { .. } => true,
        Error::Refused { refused, .. } => refused.code == ErrorCode::UNSUPPORTED,
        _ => false,
    };
    if is_elsewhere { Failure::Elsewhere(error.to_string()) } else { failed!("{error}") }
}

/// How long a copy from the device may take.
const PATIENCE: Duration = Duration::from_secs(10);
