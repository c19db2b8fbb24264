//! A thread that drops what a device driver's own thread must not: closing memory there is a call of the driver, which CUDA
//! does not allow in a host function.

use std::io;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::mpsc::{SendError, Sender, channel};
use std::thread;

use crate::lock::lock;

type Load = Box<dyn Send>;

/// Where to send what is to be dropped, once the thread runs.
static REAPER: Mutex<Option<Sender<Load>>> = Mutex::new(None);

/// Starts the thread, if it does not run.
///
/// # Errors
/// The system has no thread left.
pub(crate) fn start() -> io::Result<()> {
    let mut reaper = lock(&REAPER);
    if reaper.is_none() {
        let (sender, receiver) = channel::<Load>();
        let name = "cuframes-reaper".into();
        thread::Builder::new().name(name).spawn(move || {
            for load in receiver {
                // A backend that panics must not keep the next load on a thread where it can't be dropped.
                let _ = catch_unwind(AssertUnwindSafe(|| drop(load)));
            }
        })?;
        *reaper = Some(sender);
    }
    Ok(())
}

/// Lets the thread drop `load`. It has been started.
pub(crate) fn hand_over(load: Load) {
    if let Some(reaper) = &*lock(&REAPER) {
        // It runs as long as the process; without it nothing may be dropped here.
        if let Err(SendError(load)) = reaper.send(load) {
            mem::forget(load);
        }
    }
}
