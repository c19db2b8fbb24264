//! What people would use instead of cuframes, as [`System`](cuframes_bench::system::System)s, so that the jobs of
//! cuframes-bench measure them beside it. How each is set up, and where that favours somebody, is in the README.

mod iceoryx;
mod ipc;
mod socket;

pub use iceoryx::{Iceoryx2, IceoryxReader, IceoryxWriter};
pub use ipc::{IpcChannel, IpcReader, IpcWriter};
pub use socket::{SocketReader, SocketWriter, UnixSocket};
