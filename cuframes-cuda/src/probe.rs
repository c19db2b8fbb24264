//! What this machine can do: not what its attributes say, but what works when it is tried (C-12).
//!
//! Legacy IPC handles can't be opened in the process that made them (C-3), so trying them takes a second process. The library
//! can't start a program of its own; the caller's program starts itself once more. It calls [`run_child_if_asked`] first thing
//! in `main`, which ends the process there if it is the one that was started for the probe, and gives
//! [`Command`] of itself to [`ipc`]:
//!
//! ```no_run
//! use std::env;
//! use std::process::Command;
//!
//! use cuframes_cuda::{Cuda, probe};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! probe::run_child_if_asked();
//! let found = probe::probe(0);
//! println!("{found:?}");
//! if found.device.is_some() {
//!     println!("legacy IPC {}", probe::ipc(&Cuda::open(0)?, Command::new(env::current_exe()?)));
//! }
//! # Ok(())
//! # }
//! ```
//!
//! The environment variable [`CHILD`] tells the child that it is one, and which device to use; handles and answer go over its
//! standard input and output.

use std::env;
use std::fmt;
use std::io::{self, Read as _, Write as _};
use std::process::{self, Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use cudarc::driver::sys::CUdevice_attribute;
use cuframes_core::gpu::{Call, Device as _, EventHandle, Export as _, Import as _, MemHandle};
use cuframes_core::shm::header::SlotMemory;
use cuframes_core::{Backend, RingSize};

use crate::device::{Choice, Cuda};
use crate::error::CudaError;
use crate::ffi;
use crate::platform::Platform;
use crate::uuid::Uuid;

/// What there is, and what works.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Probe {
    /// What kind of machine it is.
    pub platform: Platform,
    /// The newest CUDA that the driver can do. `None` if there is no driver.
    pub driver: Option<Version>,
    /// How many devices this process may use.
    pub devices: u32,
    /// The device that was asked about. `None` if it can't be opened.
    pub device: Option<Found>,
    /// Why there is no driver or no device.
    pub fault: Option<CudaError>,
}

/// A CUDA version.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[non_exhaustive]
pub struct Version {
    /// The number before the dot.
    pub major: u32,
    /// The number behind it.
    pub minor: u32,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// A device.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Found {
    /// What it is called.
    pub name: String,
    /// Which one it is.
    pub uuid: Uuid,
    /// Whether it is a part of a device (MIG). Those may have no legacy IPC.
    pub is_mig: bool,
    /// Whether it shares its memory with the processor. Those have no legacy IPC.
    pub is_integrated: bool,
    /// Whether the device says that events can be shared over legacy IPC. Whether it works: [`ipc`].
    pub says_ipc: bool,
    /// Whether memory can be shared over file descriptors: made, given away, taken and mapped.
    pub vmm: Support,
}

/// Whether something works.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Support {
    /// It was tried, and does.
    Works,
    /// The device says that it doesn't.
    Unsupported,
    /// It was tried, and failed here.
    Fails(CudaError),
    /// It was tried, and failed in the other process.
    FailsThere {
        /// What that said.
        what: String,
    },
    /// It could not be tried.
    Unknown {
        /// Why not.
        why: String,
    },
}

impl fmt::Display for Support {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Works => f.write_str("works"),
            Self::Unsupported => f.write_str("is not supported by the device"),
            Self::Fails(error) => write!(f, "fails: {error}"),
            Self::FailsThere { what } => write!(f, "fails in the process that opens: {what}"),
            Self::Unknown { why } => write!(f, "could not be tried: {why}"),
        }
    }
}

/// Looks for the driver and the device with this ordinal, and tries what can be tried in one process.
#[must_use]
pub fn probe(ordinal: i32) -> Probe {
    let mut probe =
        Probe { platform: Platform::detect(), driver: None, devices: 0, device: None, fault: None };
    probe.fault = fill(&mut probe, ordinal).err();
    probe
}

fn fill(probe: &mut Probe, ordinal: i32) -> Result<(), CudaError> {
    let driver = ffi::driver().map_err(|missing| CudaError::new(Call::Open, missing.into()))?;
    let failed = CudaError::during(Call::Open);
    let version = u32::try_from(driver.version().map_err(failed)?).unwrap_or_default();
    probe.driver = Some(Version { major: version / 1000, minor: version % 1000 / 10 });
    driver.init().map_err(failed)?;
    probe.devices = u32::try_from(driver.device_count().map_err(failed)?).unwrap_or_default();
    let cuda = Cuda::open_as(ordinal, Backend::CUDA_VMM)?;
    let vmm = match cuda.try_vmm() {
        Choice::VmmWorks | Choice::Asked => Support::Works,
        Choice::VmmUnsupported => Support::Unsupported,
        Choice::VmmFails(error) => Support::Fails(error),
    };
    probe.device = Some(Found {
        name: cuda.name().to_owned(),
        uuid: cuda.uuid(),
        is_mig: cuda.uuid().is_mig(),
        is_integrated: cuda.says(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_INTEGRATED)?,
        says_ipc: cuda.says(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED)?,
        vmm,
    });
    Ok(())
}

/// Tries legacy IPC: exports memory and an event, and has `child` open them, wait for the event and compare the bytes. `child`
/// is a program that calls [`run_child_if_asked`]; its environment and standard streams are set here.
#[must_use]
pub fn ipc(cuda: &Cuda, mut child: Command) -> Support {
    let export = || {
        let cuda = cuda.with_backend(Backend::CUDA_IPC)?;
        let one = RingSize::new(1).ok_or_else(|| CudaError::argument(Call::AllocPool, "slots", "1"))?;
        let mut pool = cuda.alloc_pool(one, FRAME_SIZE)?;
        let memory = cuda.export_mem(&pool, 0)?;
        let (event, handle) = cuda.create_event()?;
        let stream = cuda.stream()?;
        cuda.copy_in(&stream, &mut pool, 0, &FRAME)?;
        cuda.record_event(&stream, &event)?;
        Ok((cuda, pool, event, stream, [memory.handle.0, handle.0]))
    };
    let (cuda, pool, event, stream, handles) = match export() {
        Ok(exported) => exported,
        Err(error) => return Support::Fails(error),
    };
    child
        .env(CHILD, cuda.uuid().to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let answer = child.spawn().and_then(|mut child| {
        let answer = ask(&mut child, &handles);
        // It is gone, or must go: it has our memory open.
        child.kill().unwrap_or_default();
        child.wait()?;
        answer
    });
    drop(event);
    // The child may have ended without having waited.
    let finished = cuda.synchronize(&stream, PATIENCE);
    let freed = cuda.free_pool(pool);
    match (answer, finished.and(freed)) {
        (Err(error), _) => Support::Unknown { why: error.to_string() },
        (Ok(answer), _) if answer.is_empty() => {
            Support::Unknown { why: "the other process ended without an answer".to_owned() }
        }
        (Ok(answer), _) if answer != OK => Support::FailsThere { what: answer },
        (_, Err(error)) => Support::Fails(error),
        (..) => Support::Works,
    }
}

/// Gives the child its handles, and waits for its answer.
fn ask(child: &mut Child, handles: &[[u8; 64]; 2]) -> io::Result<String> {
    let no_pipe = || io::Error::other("no pipe to the other process");
    child.stdin.take().ok_or_else(no_pipe)?.write_all(handles.as_flattened())?;
    let deadline = Instant::now() + PATIENCE;
    while child.try_wait()?.is_none() {
        if Instant::now() > deadline {
            let why = format!("the other process has not answered within {PATIENCE:?}");
            return Err(io::Error::new(io::ErrorKind::TimedOut, why));
        }
        thread::sleep(Duration::from_millis(5));
    }
    let mut answer = String::new();
    // Less than a pipe holds, so that nobody waits for the other.
    child.stdout.take().ok_or_else(no_pipe)?.take(4096).read_to_string(&mut answer)?;
    // The program may have said something before.
    Ok(answer.lines().find_map(|line| line.strip_prefix(MARK)).unwrap_or_default().to_owned())
}

/// Ends the process after its part of the probe if [`ipc`] started it; does nothing otherwise. To be called first thing in
/// `main`.
pub fn run_child_if_asked() {
    let Ok(uuid) = env::var(CHILD) else { return };
    let answer = match try_to_open(&uuid) {
        Ok(()) => OK.to_owned(),
        Err(error) => error.to_string(),
    };
    let written = writeln!(io::stdout(), "\n{MARK}{answer}");
    process::exit(i32::from(written.is_err()));
}

fn try_to_open(uuid: &str) -> Result<(), Box<dyn std::error::Error>> {
    let mut handles = [0; 128];
    io::stdin().lock().read_exact(&mut handles)?;
    let [memory, event] = handles.as_chunks().0 else { return Ok(()) };
    let cuda = open_by_name(uuid)?;
    let memory = SlotMemory { handle: MemHandle(*memory), ptr_external: [0; 32], offset: 0 };
    let mapping = cuda.open_mem(&memory, FRAME_SIZE, &[])?;
    let event = cuda.open_event(&EventHandle(*event))?;
    let stream = cuda.stream()?;
    cuda.wait_event(&stream, &event)?;
    let mut frame = [0; FRAME.len()];
    cuda.copy_out(&stream, &mapping, &mut frame, PATIENCE / 2)?;
    drop(event);
    cuda.close_mem(mapping)?;
    if frame == FRAME { Ok(()) } else { Err("it reads other bytes than were written".into()) }
}

/// Opens the device with this UUID (C-13).
fn open_by_name(uuid: &str) -> Result<Cuda, Box<dyn std::error::Error>> {
    let failed = CudaError::during(Call::Open);
    let driver = ffi::driver().map_err(|missing| CudaError::new(Call::Open, missing.into()))?;
    driver.init().map_err(failed)?;
    for ordinal in 0..driver.device_count().map_err(failed)? {
        let cuda = Cuda::open_as(ordinal, Backend::CUDA_IPC)?;
        if cuda.uuid().to_string() == uuid {
            return Ok(cuda);
        }
    }
    Err(format!("there is no device {uuid} in the other process").into())
}

/// The environment variable by which a child knows that it is one: the UUID of the device.
pub const CHILD: &str = "CUFRAMES_CUDA_PROBE";
/// What the line of the answer begins with.
const MARK: &str = "cuframes-cuda probe: ";
/// What a child answers that could do everything.
const OK: &str = "ok";
/// What it must read.
const FRAME: [u8; 64] = *b"cuframes tries whether another process reads what this one wrote";
/// The same in the types of the traits.
const FRAME_SIZE: u64 = 64;
/// How long the child may take. A driver that has just been loaded may need seconds.
const PATIENCE: Duration = Duration::from_secs(30);
