//! Frame memory as a driver sees it: [`Device`] on both sides, [`Export`] for a publisher, [`Import`] for a subscriber.
//!
//! A backend is one place where frames can live ([`Backend`], region header 0x00E0): CUDA memory over IPC handles, host
//! memory, CUDA memory over VMM descriptors. Drivers and tests call these traits. Sessions and ring never do; what they
//! carry from one side to the other means nothing to them.
//!
//! # Contract
//!
//! - **What crosses.** Between processes go a [`SlotMemory`] for each slot and one [`EventHandle`], both in the region
//!   (§2), and descriptors over the socket. Pools, mappings, events and streams stay in the process and on the
//!   device that made them; given to another one they are refused.
//! - **Who closes.** Whoever opened, once, on the device that opened: [`Export::free_pool`] and [`Import::close_mem`] take
//!   the value, which is gone whatever they return. A pool, mapping or event that is dropped instead is closed then, and
//!   an error of that is lost. Both work on every thread, whatever context is current there (C-10).
//! - **In which order.** Every mapping of a pool is closed, and every event opened from a handle dropped, before the pool
//!   is freed and the event it came from dropped (D-12, C-7). The driver sees to it; a backend can't know who has what open.
//! - **Streams.** Work on one stream is done in the order in which it was enqueued. Streams know nothing of each other,
//!   except through events. A backend without streams has done everything when the call returns.
//! - **Waiting.** [`Device::synchronize`] and [`Import::copy_out`] wait for a stream, and both have a timeout: an exporter
//!   that died may leave an event that never comes. Closing and freeing want work that is done.
//! - **Threads.** Every call may be made on every thread, but none in a [`Device::notify`] call: a CUDA host function may
//!   not call the driver.
//!
//! Sizes and lengths are in bytes.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

use crate::config::{Backend, RingSize};
use crate::error::ErrorCode;
use crate::shm::header::SlotMemory;
use crate::wire::control::EventFd;

/// What both sides need: events and streams.
///
/// Events have CUDA's meaning. Recording one again replaces the record; a wait is for the record that is the latest when
/// the wait is enqueued; a wait for an event that was never recorded is over at once.
pub trait Device: fmt::Debug + Send + Sync + 'static {
    /// A queue of work.
    type Stream: fmt::Debug + Send + Sync;
    /// A point in a stream that another can wait for. One is enough for a ring (C-8).
    type Event: fmt::Debug + Send + Sync;
    /// What a file descriptor is to the driver, as in [`Session`](crate::session::Session).
    type Fd: fmt::Debug;
    /// What its calls fail with.
    type Error: GpuError;

    /// Whether work may still be under way when the call that enqueued it has returned.
    const STREAMS: bool = true;

    /// Where frames of this device live.
    fn backend(&self) -> Backend;

    /// Opens the event that another process created. [`EventHandle::NONE`] opens on every backend, as an event that was
    /// never recorded: such a publisher commits only what is complete.
    ///
    /// # Errors
    /// A handle that means no event, or that this process itself exported.
    fn open_event(&self, handle: &EventHandle) -> Result<Self::Event, Self::Error>;

    /// Lets the work enqueued on `stream` after this wait for what `event` stands for now.
    ///
    /// # Errors
    /// What the driver reports.
    fn wait_event(&self, stream: &Self::Stream, event: &Self::Event) -> Result<(), Self::Error>;

    /// Blocks until everything enqueued on `stream` is done.
    ///
    /// # Errors
    /// `TIMEOUT` if it is not within `timeout`, or what the driver reports.
    fn synchronize(&self, stream: &Self::Stream, timeout: Duration) -> Result<(), Self::Error>;

    /// Calls `call` when everything enqueued on `stream` until now is done, on any thread; returns at once.
    ///
    /// This is how a frame is committed, and a lease released, in stream order without a thread that waits (C-15). `call`
    /// makes no call of a backend, and drops nothing that would. If the device fails first it may never be called.
    ///
    /// # Errors
    /// What the driver reports; `call` is dropped then, without having been called.
    fn notify(&self, stream: &Self::Stream, call: Box<dyn FnOnce() + Send>) -> Result<(), Self::Error>;
}

/// The publisher's side: memory to write frames into.
pub trait Export: Device {
    /// The memory of all slots of a ring.
    type Pool: fmt::Debug + Send;
    /// Memory that the caller owns. The backend's type says who keeps it alive until the pool is freed.
    type External: fmt::Debug;

    /// Memory for `slots` frames of `frame_size` bytes each, all zero: subscribers must not see what another program left
    /// there. Each slot is an allocation of its own where a handle names an allocation (C-2).
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for frames of no bytes, `OUT_OF_MEMORY`, or what the driver reports.
    fn alloc_pool(&self, slots: RingSize, frame_size: u64) -> Result<Self::Pool, Self::Error>;

    /// A pool of the caller's own memory, one piece of `frame_size` bytes for each slot (EXTERNAL ownership, X-5).
    /// Freeing the pool leaves the memory alone.
    ///
    /// # Errors
    /// `UNSUPPORTED` from a backend that can't, `INVALID_ARGUMENT` if it is not 1 to 16 pieces, or for memory that can't be
    /// exported (C-1).
    fn register_external(
        &self,
        frames: Vec<Self::External>,
        frame_size: u64,
    ) -> Result<Self::Pool, Self::Error>;

    /// What a subscriber needs to open the memory of `slot`; the same each time.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for a slot that the pool does not have, or what the driver reports.
    fn export_mem(&self, pool: &Self::Pool, slot: usize) -> Result<SlotMemory, Self::Error>;

    /// The descriptors that go to one subscriber with these, in order of their index: one of the whole pool, one of
    /// each slot, or none. Each call gives new ones; who gets them closes them. A driver whose writer has the pool on
    /// another thread calls this once and hands out copies.
    ///
    /// # Errors
    /// What the driver or the operating system reports.
    fn export_fds(&self, pool: &Self::Pool) -> Result<Vec<(EventFd, Self::Fd)>, Self::Error>;

    /// A new event, never recorded, with the handle that opens it in other processes (C-6); [`EventHandle::NONE`] where
    /// the backend has none.
    ///
    /// # Errors
    /// What the driver reports.
    fn create_event(&self) -> Result<(Self::Event, EventHandle), Self::Error>;

    /// Lets `event` stand for everything enqueued on `stream` until now.
    ///
    /// # Errors
    /// What the driver reports.
    fn record_event(&self, stream: &Self::Stream, event: &Self::Event) -> Result<(), Self::Error>;

    /// Where the frame of `slot` is in the device's address space, for work that writes it: a `CUdeviceptr`, or an address in
    /// this process for host memory. It stands until the pool is freed. `None` for a slot that the pool does not have.
    fn pool_ptr(&self, pool: &Self::Pool, slot: usize) -> Option<u64>;

    /// Enqueues a copy of `bytes` to the start of the frame in `slot`, which the ring has given to the writer. `bytes` is
    /// not needed any more when this returns; the frame is there when the stream has come so far.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for a slot that the pool does not have, or for more bytes than a frame has; nothing is written
    /// then. Or what the driver reports.
    fn copy_in(
        &self,
        stream: &Self::Stream,
        pool: &mut Self::Pool,
        slot: usize,
        bytes: &[u8],
    ) -> Result<(), Self::Error>;

    /// Frees the memory. Work that writes it must be done, and no subscriber have it open any more, unless the grace period
    /// is over (D-12). As dropping it, but for errors: a backend has its own where it reports some.
    ///
    /// # Errors
    /// What the driver reports.
    fn free_pool(&self, pool: Self::Pool) -> Result<(), Self::Error> {
        drop(pool);
        Ok(())
    }
}

/// A subscriber's side: the publisher's frames.
pub trait Import: Device {
    /// The frame memory of one slot. It can be read from several threads.
    type Mapping: fmt::Debug + Send + Sync;

    /// Opens a slot's memory, whose frames have `len` bytes. `fds` are the descriptors that came for frames, in order of
    /// their index. They are borrowed: once everything is open they can be closed.
    ///
    /// What comes from a publisher is not believed: the frame must lie inside what the handle opens.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` or `PROTOCOL` if the handle means nothing or less than a frame, or a descriptor is missing or not
    /// what it should be. A legacy CUDA handle can't be opened in the process that exported it (C-3), nor on another device
    /// (C-13). Nothing stays open then.
    fn open_mem(&self, memory: &SlotMemory, len: u64, fds: &[Self::Fd])
    -> Result<Self::Mapping, Self::Error>;

    /// Opens the memory of every slot of a ring, as [`open_mem`](Self::open_mem) does, in order.
    ///
    /// # Errors
    /// As [`open_mem`](Self::open_mem). Nothing stays open then.
    fn open_ring(
        &self,
        backend: Backend,
        slots: &[SlotMemory],
        len: u64,
        fds: &[Self::Fd],
    ) -> Result<Vec<Self::Mapping>, Self::Error> {
        let _ = backend;
        // What was opened before one that fails is closed when it is dropped.
        slots.iter().map(|memory| self.open_mem(memory, len, fds)).collect()
    }

    /// Whether it can open memory of `backend`. One that opens several kinds is told which in
    /// [`open_ring`](Self::open_ring).
    fn opens(&self, backend: Backend) -> bool {
        backend == self.backend()
    }

    /// Where the frame is in the device's address space, for work that reads it: a `CUdeviceptr`, or an address in this
    /// process for host memory. It stands until the mapping is closed.
    fn mapping_ptr(&self, mapping: &Self::Mapping) -> u64;

    /// At most `len` bytes of the frame, where they are, if this process can read them like its own memory. For frames under a
    /// lease only: others may change meanwhile.
    fn bytes<'a>(&self, mapping: &'a Self::Mapping, len: u64) -> Option<&'a [u8]> {
        let _ = (mapping, len);
        None
    }

    /// Copies the start of the frame into `out`, after everything enqueued on `stream` before; blocks until it is there.
    /// Whether it was the frame that the caller wanted, the ring says afterwards (D-4).
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if `out` is longer than the frame, `TIMEOUT` if the stream does not come so far within `timeout`,
    /// or what the driver reports. `out` is worth nothing then.
    fn copy_out(
        &self,
        stream: &Self::Stream,
        mapping: &Self::Mapping,
        out: &mut [u8],
        timeout: Duration,
    ) -> Result<(), Self::Error>;

    /// Closes what [`open_mem`](Self::open_mem) opened; work that reads it must be done. As dropping it, but for errors: a
    /// backend has its own where it reports some.
    ///
    /// # Errors
    /// What the driver reports.
    fn close_mem(&self, mapping: Self::Mapping) -> Result<(), Self::Error> {
        drop(mapping);
        Ok(())
    }
}

/// An error of a backend. It prints as one line that names the call and the cause.
pub trait GpuError: core::error::Error + Send + Sync + 'static {
    /// The call that failed.
    fn call(&self) -> Call;

    /// The code of the wire.
    fn code(&self) -> ErrorCode;

    /// The number that the driver or the operating system gave, a `CUresult` or an `errno`; `None` if nobody else had to
    /// be asked.
    fn native(&self) -> Option<i32>;
}

/// Declares [`Call`] with a name for each.
macro_rules! calls {
    ($($variant:ident = $name:literal),* $(,)?) => {
        /// A call of a backend, for errors and for tests that let it fail. `Open` is none of the traits': it is what a backend
        /// does before there is a device, or with a stream.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[non_exhaustive]
        pub enum Call {
            $( #[doc = concat!("`", $name, "`")] $variant, )*
        }

        impl Call {
            /// All of them.
            pub const ALL: &[Self] = &[$( Self::$variant ),*];

            /// The name of the function.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $( Self::$variant => $name, )*
                }
            }
        }
    };
}

calls! {
    Open = "open",
    OpenEvent = "open_event",
    WaitEvent = "wait_event",
    Synchronize = "synchronize",
    Notify = "notify",
    AllocPool = "alloc_pool",
    RegisterExternal = "register_external",
    ExportMem = "export_mem",
    ExportFds = "export_fds",
    CreateEvent = "create_event",
    RecordEvent = "record_event",
    CopyIn = "copy_in",
    FreePool = "free_pool",
    OpenMem = "open_mem",
    CopyOut = "copy_out",
    CloseMem = "close_mem",
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// How a subscriber reaches the memory of one slot: `cuda_mem_handle` (§2.2). What the bytes mean depends on the backend.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct MemHandle(pub [u8; 64]);

impl MemHandle {
    /// A handle of the backends that pass descriptors: a tag, two numbers, and zeros.
    #[must_use]
    pub fn tagged(tag: [u8; 8], first: u64, second: u64) -> Self {
        let mut bytes = [0; 64];
        let parts = [tag, first.to_le_bytes(), second.to_le_bytes()];
        for (to, from) in bytes.iter_mut().zip(parts.as_flattened()) {
            *to = *from;
        }
        Self(bytes)
    }

    /// The tag and the two numbers. What follows them is reserved and ignored (§6.3).
    #[must_use]
    pub fn parts(&self) -> ([u8; 8], u64, u64) {
        match *self.0.as_chunks().0 {
            [tag, first, second, ..] => (tag, u64::from_le_bytes(first), u64::from_le_bytes(second)),
            _ => ([0; 8], 0, 0),
        }
    }
}

impl fmt::Debug for MemHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MemHandle(")?;
        hex(&self.0, f)
    }
}

/// How a subscriber reaches the publisher's event: `ipc_event_handle` (§2).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct EventHandle(pub [u8; 64]);

impl EventHandle {
    /// No event: frames are complete when they are published.
    pub const NONE: Self = Self([0; 64]);
}

impl fmt::Debug for EventHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EventHandle(")?;
        hex(&self.0, f)
    }
}

/// The bytes up to the last one that is not zero, and the bracket.
fn hex(bytes: &[u8; 64], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    bytes.iter().take(end).try_for_each(|byte| write!(f, "{byte:02x}"))?;
    f.write_str(")")
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;

    #[test]
    fn a_tagged_handle_gives_its_parts_back_and_ignores_what_follows() {
        let mut handle = MemHandle::tagged(*b"CUFVMM01", 3, u64::MAX);
        assert_eq!(handle.0[..24], *b"CUFVMM01\x03\0\0\0\0\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff");
        handle.0[63] = 9;
        assert_eq!(handle.parts(), (*b"CUFVMM01", 3, u64::MAX));
    }

    #[test]
    fn handles_print_as_hexadecimal_without_their_trailing_zeros() {
        assert_eq!(format!("{:?}", MemHandle::tagged([0; 8], 0x0102, 0)), "MemHandle(00000000000000000201)");
        assert_eq!(format!("{:?}", EventHandle::NONE), "EventHandle()");
    }
}
