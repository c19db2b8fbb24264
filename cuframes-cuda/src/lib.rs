//! Frames in GPU memory: a backend of `cuframes` over CUDA.
//!
//! [`Cuda`] is a device. It implements the traits of [`cuframes_core::gpu`], for a publisher and for a subscriber, with memory
//! that is shared in one of two ways ([`Backend`](cuframes_core::Backend)):
//!
//! | backend | memory | needs |
//! |---|---|---|
//! | [`CUDA_VMM`](cuframes_core::Backend::CUDA_VMM) | `cuMemCreate`, over file descriptors on the stream's socket (X-4); read-only for subscribers | a device and driver that can |
//! | [`CUDA_IPC`](cuframes_core::Backend::CUDA_IPC) | `cuMemAlloc`, over legacy IPC handles (§2.2); what plain v1 consumers know | the same pid and ipc namespaces |
//!
//! [`Cuda::open`] takes the first that works on the device, which it tries, and [`Cuda::choice`] says why. A subscriber opens
//! both. Frames of the caller's own ([`External`]) can be shared over legacy handles.
//!
//! The driver is looked for when it is first needed: this builds, and runs, on machines that have none, and says so in an
//! error ([`Cause::NoDriver`]). All unsafe code is in `ffi`.
//!
//! # Example
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use cuframes_core::gpu::{Device as _, Export as _};
//! use cuframes_core::{Format, FrameMeta, RingSize};
//! use cuframes_cuda::{Cuda, CudaError, planes};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let cuda = Cuda::open(0)?;
//! println!("{} {}: memory over {}, because {}", cuda.name(), cuda.uuid(), cuda.backend(), cuda.choice());
//!
//! let meta = FrameMeta::new(Format::NV12, 1920, 1080)?;
//! let pool = cuda.alloc_pool(RingSize::new(4).ok_or("a ring has 1 to 16 slots")?, meta.frame_size_bytes)?;
//! let stream = cuda.stream()?;
//! let base = cuda.pool_ptr(&pool, 0).ok_or("no slot 0")?;
//! for plane in planes(base, &meta) {
//!     // Let a kernel write `plane.rows` rows, `plane.pitch` bytes apart, from `plane.ptr`, on `stream.address()`.
//!     println!("{plane:?}");
//! }
//! // And let it be known when that is done, without a thread that waits.
//! cuda.notify(&stream, Box::new(|| println!("slot 0 is complete")))?;
//! cuda.synchronize(&stream, Duration::from_secs(1))?;
//! cuda.free_pool(pool)?;
//! # Ok(())
//! # }
//! ```

#![deny(unsafe_code)]

mod device;
mod error;
mod export;
mod exports;
mod external;
#[expect(unsafe_code, reason = "the driver is a C library")]
mod ffi;
mod import;
mod imports;
mod planes;
mod platform;
pub mod probe;
mod staging;
mod stream;
mod uuid;
mod wait;

pub use device::{Choice, Cuda, Event};
pub use error::{Cause, CudaError};
pub use export::Pool;
pub use external::{Buffer, External};
pub use ffi::DeviceMemory;
pub use import::Mapping;
pub use planes::{DevicePlane, planes};
pub use platform::Platform;
pub use stream::Stream;
pub use uuid::Uuid;

/// The examples of the README are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
