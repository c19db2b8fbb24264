//! [`Taker`]: a subscriber of the newest frames, wherever they are, for those who look at single ones.

use std::path::Path;
use std::time::Duration;

use cuframes_core::{FrameMeta, Key};
use cuframes_mio::{Frame, Subscriber};

use crate::args::BackendArgs;
use crate::error::{Failure, failed};
use crate::memory::{Copies, View, over_memory};
use crate::signals::Signals;
use crate::subscribe::{attach, is_end};

/// Takes frames, and forgets in what kind of memory they were. The newest one is held until somebody looks at it or a
/// newer one comes, so that nobody has to wait for one who seldom looks.
pub(crate) trait Taker {
    /// Waits for the next frame for at most `timeout`.
    fn take(&mut self, timeout: Duration) -> Result<Taken, Failure>;

    /// Lets `look` look at the frame that is held, and gives it back. Answers `false` if there is none, or if it was
    /// overwritten meanwhile: whatever was seen of it is not to be used.
    fn look(&mut self, look: &mut Look<'_>) -> Result<bool, Failure>;
}

/// Gets the geometry and the bytes of a frame.
pub(crate) type Look<'a> = dyn FnMut(&FrameMeta, &[u8]) -> Result<(), Failure> + 'a;

/// What came of waiting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Taken {
    /// A frame. `lost` did not arrive since the one before.
    Frame { seq: u64, pts_ns: i64, lost: u64 },
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
    // Nobody has to wait until we have seen each frame.
    let mut builder = Subscriber::builder(key.clone()).no_ack();
    if let Some(run_dir) = run_dir {
        builder = builder.run_dir(run_dir);
    }
    Ok(over_memory!(key, memory, |backend| attach(&builder, &backend, Some(timeout), signals)?.map(boxed)))
}

fn boxed<B: View>(subscriber: Subscriber<B>) -> Box<dyn Taker> {
    Box::new(Source { subscriber, copies: Copies::new(), held: None })
}

/// One kind of memory.
struct Source<B: View> {
    subscriber: Subscriber<B>,
    copies: Copies<B>,
    held: Option<Frame<B>>,
}

impl<B: View> Taker for Source<B> {
    fn take(&mut self, timeout: Duration) -> Result<Taken, Failure> {
        match self.subscriber.next(timeout) {
            Ok(Some(frame)) => {
                let taken = Taken::Frame { seq: frame.seq(), pts_ns: frame.pts_ns(), lost: frame.lost() };
                self.held = Some(frame);
                Ok(taken)
            }
            Ok(None) => Ok(Taken::Nothing),
            Err(error) if is_end(&error) => Ok(Taken::Ended),
            Err(error) => Err(failed!("{error}")),
        }
    }

    fn look(&mut self, look: &mut Look<'_>) -> Result<bool, Failure> {
        let Some(frame) = self.held.take() else { return Ok(false) };
        look(frame.meta(), self.copies.look(&frame)?)?;
        Ok(frame.release().is_ok())
    }
}
