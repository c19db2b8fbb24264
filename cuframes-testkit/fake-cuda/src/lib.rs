//! A test double of the CUDA driver, for tests on machines without a GPU: what is built of this is a `libcuda.so.1`.
//!
//! Device memory is files, so it is shared between processes as CUDA shares it. The rules of CUDA that are easy to break
//! are checked, and what a process broke or left open is in its [`Report`]. The README has what a test can set, how it uses
//! this, and what is not like a real driver.
//!
//! [`Driver`] is the driver of one process; every call passes [`Driver::call`] and is then a method of [`Call`]. The
//! functions that C calls are in `abi.rs`, which has all unsafe code and does nothing but convert.
//!
//! # Example
//!
//! A program that loads this in place of the real driver, and finds no memory at its second allocation:
//!
//! ```no_run
//! use std::process::Command;
//!
//! use fake_cuda::Installation;
//!
//! let dir = tempfile::tempdir()?;
//! let fake = Installation::new(dir.path())?;
//! let mut program = Command::new("program");
//! fake.set_up(&mut program).env("FAKE_CUDA_FAIL", "cuMemAlloc_v2@2=2").status()?;
//! for report in fake.reports()? {
//!     assert!(report.is_clean(), "{report:?}");
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod abi;
mod blocks;
mod code;
mod config;
mod context;
mod copy;
mod device;
mod driver;
mod entry_point;
mod event;
mod fault;
mod install;
mod ipc;
mod memory;
mod pinned;
mod pointer;
mod report;
mod session;
mod storage;
mod stream;
mod vmm;

pub use code::{Code, Result};
pub use config::Config;
pub use copy::{HostSource, When};
pub use driver::{Call, Driver};
pub use entry_point::EntryPoint;
pub use fault::{Fault, FaultRule};
pub use install::{Installation, install};
pub use ipc::{EventHandle, MemHandle};
pub use memory::{FREED_MEMORY, GRANULE, NEW_MEMORY};
pub use pinned::PinnedSlice;
pub use pointer::{PointerAttribute, PointerValue};
pub use report::{Report, StillOpen};
pub use session::Identity;
pub use vmm::{AccessDesc, AllocationProp, Location};
