//! `cuframes subscribe`: measures a stream, checks it, or writes it as a video.

use std::ops::ControlFlow;
use std::path::Path;
use std::time::{Duration, Instant};

use cuframes_core::Gone;
use cuframes_core::wire::ShutdownReason;
use cuframes_mio::{Error, Frame, Subscriber};
use rustix::time::{ClockId, clock_gettime};

use crate::args::{Stream, SubscribeArgs};
use crate::error::{Failure, failed};
use crate::output::{Progress, REFRESH, print, print_error};
use crate::pattern::is_seq;
use crate::signals::Signals;
use crate::sink::Y4mSink;
use crate::stats::{Arrival, End, Received, Stats};

/// Takes frames until the stream ends, enough of them have come or a signal does; then says what came.
pub(crate) fn run(args: &SubscribeArgs, run_dir: Option<&Path>, signals: &Signals) -> Result<(), Failure> {
    let mut progress = Progress::start(&args.report)?;
    let subscriber = connect(args, run_dir, signals)?;
    let mut receiver = Receiver::new(args, signals);
    let (bit, end) = match subscriber {
        None => (None, Ok(End::Signal)),
        Some(mut subscriber) => {
            let end = receiver.run(&mut subscriber, &mut progress);
            (Some(subscriber.bit().get()), end)
        }
    };
    let report = receiver.stats.report(bit, Some(*end.as_ref().unwrap_or(&End::Failure)));
    let text = progress.finish(&args.key, &report, args.json)?;
    // The video has standard output to itself.
    if args.y4m == Some(Stream::Standard) {
        print_error(&text);
    } else {
        print(&text)?;
    }
    end?;
    match report {
        Received { torn: 0, .. } => Ok(()),
        Received { torn, frames, .. } => Err(failed!(
            "{torn} of {frames} frames of stream {} hold bytes that are not theirs; does it have --pattern seq?",
            args.key
        )),
    }
}

/// Waits for the stream to appear. `None` if a signal came first.
fn connect(
    args: &SubscribeArgs,
    run_dir: Option<&Path>,
    signals: &Signals,
) -> Result<Option<Subscriber>, Failure> {
    let start = Instant::now();
    loop {
        let mut builder = Subscriber::builder(args.key.clone()).name(args.name.clone()).mode(args.mode);
        if let Some(run_dir) = run_dir {
            builder = builder.run_dir(run_dir);
        }
        match builder.connect() {
            Ok(subscriber) => return Ok(Some(subscriber)),
            Err(Error::NotFound { .. }) if start.elapsed() < args.timeout.unwrap_or(DEFAULT_TIMEOUT) => {
                if signals.wait(RETRY) {
                    return Ok(None);
                }
            }
            Err(error) => return Err(failed!("{error}")),
        }
    }
}

/// Takes frames from a subscriber.
struct Receiver<'a> {
    args: &'a SubscribeArgs,
    signals: &'a Signals,
    stats: Stats,
    /// For frames that can't be looked at where they are.
    copy: Vec<u8>,
}

impl<'a> Receiver<'a> {
    fn new(args: &'a SubscribeArgs, signals: &'a Signals) -> Self {
        Self { args, signals, stats: Stats::new(), copy: Vec::new() }
    }

    fn run(&mut self, subscriber: &mut Subscriber, progress: &mut Progress) -> Result<End, Failure> {
        let mut sink = None;
        if let Some(stream) = &self.args.y4m {
            match Y4mSink::create(stream, subscriber.meta(), self.args.rate)? {
                ControlFlow::Continue(created) => sink = Some(created),
                ControlFlow::Break(()) => return Ok(End::ClosedPipe),
            }
        }
        while Some(self.stats.frames()) != self.args.frames {
            let frame = match self.next(subscriber, progress)? {
                ControlFlow::Continue(frame) => frame,
                ControlFlow::Break(end) => return Ok(end),
            };
            if self.take(frame, sink.as_mut())?.is_break() {
                return Ok(End::ClosedPipe);
            }
        }
        Ok(End::Frames)
    }

    /// Waits for the next frame, or for the end.
    fn next(
        &self,
        subscriber: &mut Subscriber,
        progress: &mut Progress,
    ) -> Result<ControlFlow<End, Frame>, Failure> {
        let start = Instant::now();
        loop {
            if self.signals.raised() {
                return Ok(ControlFlow::Break(End::Signal));
            }
            let bit = Some(subscriber.bit().get());
            progress.show(Instant::now(), self.stats.frames(), |fps| Received {
                fps,
                ..self.stats.report(bit, None)
            })?;
            // In slices: a signal does not end the wait inside, and progress goes on.
            match subscriber.next(REFRESH) {
                Ok(Some(frame)) => return Ok(ControlFlow::Continue(frame)),
                Ok(None) => match self.args.timeout {
                    Some(timeout) if start.elapsed() >= timeout => {
                        return Err(failed!(
                            "stream {}: no frame for {timeout:?}; is its source stalled? --timeout allows more",
                            self.args.key
                        ));
                    }
                    _ => {}
                },
                Err(Error::Gone { gone: Gone::Shutdown(reason), .. }) if reason != ShutdownReason::ERROR => {
                    return Ok(ControlFlow::Break(End::Stream));
                }
                Err(error) => return Err(failed!("{error}")),
            }
        }
    }

    /// Checks, writes and counts one frame. Answers `Break` if nobody reads the video any more.
    fn take(&mut self, frame: Frame, sink: Option<&mut Y4mSink>) -> Result<ControlFlow<()>, Failure> {
        let arrival =
            Arrival { at: Instant::now(), seq: frame.seq(), lost: frame.lost(), latency_ns: age(&frame) };
        if !self.args.delay.is_zero() {
            self.signals.wait(self.args.delay);
        }
        let bytes = match frame.bytes() {
            Some(bytes) => bytes,
            None => {
                self.copy.resize(frame.len(), 0);
                // If it is overwritten meanwhile, releasing it says so.
                let _ = frame.copy_to(&mut self.copy);
                &self.copy
            }
        };
        let is_torn = self.args.check_seq && !is_seq(bytes, arrival.seq);
        let flow = match sink {
            Some(sink) => sink.write(frame.meta(), bytes)?,
            None => ControlFlow::Continue(()),
        };
        match frame.release() {
            Ok(()) => self.stats.frame(arrival, is_torn),
            Err(_) => self.stats.lost(arrival.lost + 1),
        }
        Ok(flow)
    }
}

/// Nanoseconds since the frame was committed.
fn age(frame: &Frame) -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let now = now.tv_sec.saturating_mul(NANOS_PER_SEC).saturating_add(now.tv_nsec);
    u64::try_from(now.saturating_sub(frame.pts_ns())).unwrap_or(0)
}

/// How long to wait for a stream to appear, and how often to look.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(5);
const RETRY: Duration = Duration::from_millis(50);

const NANOS_PER_SEC: i64 = 1_000_000_000;
