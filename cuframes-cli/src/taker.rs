//! [`Taker`]: a subscriber of the newest frames, wherever they are, for those who look at single ones.

use std::path::Path;
use std::time::Duration;

use cuframes_core::wire::ShutdownReason;
use cuframes_core::{FrameMeta, Gone, Key};
use cuframes_mio::{Error, HostMemory, Subscriber};

use crate::args::{BackendArgs, MemoryKind};
use crate::error::{Failure, failed};
use crate::memory::{self, Copies, View};
use crate::signals::Signals;
use crate::subscribe::connect_within;

/// Takes frames, and forgets in what kind of memory they were.
pub(crate) trait Taker {
    /// Waits for the next frame for at most `timeout`, and lets `look` look at it while it is held.
    fn take(&mut self, timeout: Duration, look: &mut Look<'_>) -> Result<Taken, Failure>;
}

/// Gets the geometry and the bytes of a frame.
pub(crate) type Look<'a> = dyn FnMut(&FrameMeta, &[u8]) -> Result<(), Failure> + 'a;

/// What came of waiting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Taken {
    /// A frame. `lost` did not arrive since the one before.
    Frame { seq: u64, pts_ns: i64, lost: u64 },
    /// A frame that was overwritten meanwhile: whatever was seen of it is not to be used. It counts as `lost`, too.
    Overwritten { lost: u64 },
    /// No frame yet.
    Nothing,
    /// The publisher ended the stream.
    Ended,
}

/// Waits for the stream to appear. `None` if a signal came first.
pub(crate) fn subscribe(
    key: &Key,
    memory: &BackendArgs,
    run_dir: Option<&Path>,
    timeout: Duration,
    signals: &Signals,
) -> Result<Option<Box<dyn Taker>>, Failure> {
    let mut builder = Subscriber::builder(key.clone());
    if let Some(run_dir) = run_dir {
        builder = builder.run_dir(run_dir);
    }
    Ok(match memory.backend {
        MemoryKind::Auto => {
            let anywhere = memory::anywhere(key, memory.device);
            connect_within(&builder, &anywhere, timeout, signals)?.map(boxed)
        }
        MemoryKind::Host => {
            connect_within(&builder, &HostMemory::new(key.clone()), timeout, signals)?.map(boxed)
        }
        MemoryKind::Cuda | MemoryKind::CudaVmm => {
            connect_within(&builder, &memory::open(key, memory)?, timeout, signals)?.map(boxed)
        }
    })
}

fn boxed<B: View + 'static>(subscriber: Subscriber<B>) -> Box<dyn Taker> {
    Box::new(From { subscriber, copies: Copies::new() })
}

/// From one kind of memory.
struct From<B: View> {
    subscriber: Subscriber<B>,
    copies: Copies<B>,
}

impl<B: View> Taker for From<B> {
    fn take(&mut self, timeout: Duration, look: &mut Look<'_>) -> Result<Taken, Failure> {
        let frame = match self.subscriber.next(timeout) {
            Ok(Some(frame)) => frame,
            Ok(None) => return Ok(Taken::Nothing),
            Err(Error::Gone { gone: Gone::Shutdown(reason), .. }) if reason != ShutdownReason::ERROR => {
                return Ok(Taken::Ended);
            }
            Err(error) => return Err(failed!("{error}")),
        };
        let (seq, pts_ns, lost) = (frame.seq(), frame.pts_ns(), frame.lost());
        look(frame.meta(), self.copies.look(&frame)?)?;
        Ok(match frame.release() {
            Ok(()) => Taken::Frame { seq, pts_ns, lost },
            Err(_) => Taken::Overwritten { lost: lost + 1 },
        })
    }
}
