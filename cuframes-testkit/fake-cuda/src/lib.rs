//! A test double of the CUDA driver, for tests on machines without a GPU: what is built of this is a `libcuda.so.1`.
//!
//! Device memory is files, so it is shared between processes as CUDA shares it. The rules of CUDA that are easy to break
//! are checked, and what a process broke or left open is in its [`Report`]. The README has what a test can set, how it uses
//! this, and what is not like a real driver.
//!
//! [`Driver`] is the driver of one process; every call passes [`Driver::call`] and is then a method of [`Call`]. The
//! functions that C calls are in `abi.rs`, which has all unsafe code and does nothing but convert.

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
