//! `cuframes subscribe`: measures a stream, checks it, or writes it as a video.

use std::ops::ControlFlow;
use std::path::Path;
use std::time::{Duration, Instant};

use cuframes_core::wire::ShutdownReason;
use cuframes_core::{FrameMeta, Gone};
use cuframes_mio::barrier::Join;
use cuframes_mio::{Error, Frame, Reconnect, StreamEvent, Subscriber, SubscriberBuilder};

use crate::args::{Stream, SubscribeArgs};
use crate::barrier;
use crate::console::Console;
use crate::error::{Failure, failed};
use crate::memory::{Copies, View, over_memory};
use crate::output::{Count, Progress, REFRESH};
use crate::pattern::is_seq;
use crate::signals::Signals;
use crate::sink::Y4mSink;
use crate::snapshot::{Begun, Target};
use crate::stats::{Arrival, End, Received, Stats};

/// Takes frames until the stream ends, enough of them have come or a signal does; then says what came.
pub(crate) fn run(
    args: &SubscribeArgs,
    run_dir: Option<&Path>,
    signals: &Signals,
    console: &Console,
) -> Result<(), Failure> {
    let mut progress = Progress::start(&args.report, console)?;
    // Before anybody waits for us.
    let target = args.y4m.as_ref().map(|stream| Target::find_for_video(stream, args.force)).transpose()?;
    let mut receiver = Receiver::new(args, signals, target);
    signals
        .insist()
        .map_err(|error| failed!("can't handle signals: {error}; raise the limits (ulimit -u)"))?;
    let end = match receiver.receive(run_dir, &mut progress) {
        // Not subscribed yet: there is nothing to report.
        Err(failure) if receiver.stats.frames() == 0 && !receiver.has_attached => return Err(failure),
        end => end,
    };
    let reason = *end.as_ref().unwrap_or(&End::Failure);
    let report = receiver.stats.report(Some(reason));
    let text = progress.finish(&args.key, &report, args.json)?;
    // The video has standard output to itself.
    if args.y4m == Some(Stream::Standard) {
        console.say(&text);
    } else {
        console.print(&text, signals)?;
    }
    end?;
    match report {
        Received { torn: 0, .. } => Ok(()),
        Received { torn, frames, .. } => Err(failed!(
            "{torn} of {} of stream {} with bytes that are not its own; does it have --pattern seq?",
            Count(frames, "frame"),
            args.key
        )),
    }
}

/// Waits for the stream to appear, unless the subscriber does so itself. `None` if a signal came first.
fn connect<B: View>(
    args: &SubscribeArgs,
    run_dir: Option<&Path>,
    backend: B,
    signals: &Signals,
) -> Result<Option<Subscriber<B>>, Failure> {
    let mut builder =
        Subscriber::builder(args.key.clone()).name(args.name.clone()).mode(args.mode).spin(args.spin);
    if let Some(run_dir) = run_dir {
        builder = builder.run_dir(run_dir);
    }
    if args.reconnect {
        let started = builder.reconnect(Reconnect::default()).start_on(backend);
        return started.map(Some).map_err(|error| failed!("{error}"));
    }
    let Some(join) = args.together.builder() else {
        return attach(&builder, &backend, args.timeout, signals);
    };
    let mut join = join.name(args.name.as_str()).start().map_err(|error| failed!("{error}"))?;
    let attached = attach_between(&mut join, args, signals, |join| {
        // Its deadline goes on meanwhile, and the start may be called off.
        let check = || join.check().map_err(|error| failed!("{error}"));
        attach_while(&builder, &backend, args.timeout, signals, check)
    });
    // The others are told, if they are still to hear anything.
    let reason = match &attached {
        Ok(Some(_)) => return attached,
        Ok(None) => barrier::SIGNAL.to_string(),
        Err(failure) => failure.to_string(),
    };
    join.cancel(&reason).map_err(|error| failed!("{error}"))?;
    attached
}

/// Joins the barrier, attaches between INIT and READY, and waits for the others. `None` if a signal came first.
fn attach_between<B: View>(
    join: &mut Join,
    args: &SubscribeArgs,
    signals: &Signals,
    attach: impl FnOnce(&mut Join) -> Result<Option<Subscriber<B>>, Failure>,
) -> Result<Option<Subscriber<B>>, Failure> {
    let mut show = |_, _: &Join| {};
    let Some(init) = barrier::wait_init(join, signals, &mut show)? else { return Ok(None) };
    join.check_stream(&init, args.key.as_str()).map_err(|error| failed!("{error}"))?;
    let Some(subscriber) = attach(join)? else { return Ok(None) };
    join.ready(&init).map_err(|error| failed!("{error}"))?;
    Ok(barrier::wait_start(join, signals, &mut show)?.map(|_| subscriber))
}

/// Whether an error means that the publisher ended the stream because there is no more of it.
pub(crate) fn is_end(error: &Error) -> bool {
    matches!(error, Error::Gone { gone: Gone::Shutdown(reason), .. } if *reason != ShutdownReason::ERROR)
}

/// Subscribes, once the stream is there. `None` if a signal came first.
pub(crate) fn attach<B: View>(
    builder: &SubscriberBuilder,
    backend: &B,
    timeout: Option<Duration>,
    signals: &Signals,
) -> Result<Option<Subscriber<B>>, Failure> {
    attach_while(builder, backend, timeout, signals, || Ok(()))
}

/// As [`attach`], as long as `check` finds nothing wrong.
fn attach_while<B: View>(
    builder: &SubscriberBuilder,
    backend: &B,
    timeout: Option<Duration>,
    signals: &Signals,
    mut check: impl FnMut() -> Result<(), Failure>,
) -> Result<Option<Subscriber<B>>, Failure> {
    let (start, timeout) = (Instant::now(), timeout.unwrap_or(DEFAULT_TIMEOUT));
    loop {
        check()?;
        let left = timeout.saturating_sub(start.elapsed()).max(RETRY);
        match builder.clone().timeout(left).start_on(backend.clone()) {
            // A publisher that is stopped does not answer, and a signal is not to wait for it.
            Ok(mut subscriber) => loop {
                if subscriber.wait_until_ready(REFRESH).map_err(|error| failed!("{error}"))? {
                    return Ok(Some(subscriber));
                }
                check()?;
                if signals.raised() {
                    return Ok(None);
                }
            },
            Err(Error::NotFound { .. } | Error::Busy { .. }) if start.elapsed() < timeout => {
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
    /// Where a video goes, if one is written.
    target: Option<Target>,
    /// It is open, and has no header yet.
    begun: Option<Begun>,
    /// From the first publisher on.
    sink: Option<Y4mSink>,
    /// A publisher has taken us.
    has_attached: bool,
}

impl<'a> Receiver<'a> {
    fn new(args: &'a SubscribeArgs, signals: &'a Signals, target: Option<Target>) -> Self {
        let stats = Stats::new(args.check_seq);
        Self { args, signals, stats, target, begun: None, sink: None, has_attached: false }
    }

    /// Subscribes to frames in the memory that the arguments name.
    fn receive(&mut self, run_dir: Option<&Path>, progress: &mut Progress<'_>) -> Result<End, Failure> {
        let SubscribeArgs { key, memory, .. } = self.args;
        // What is no file is open before we subscribe: nobody waits for us while we wait for the reader of a named pipe.
        if let Some(target @ (Target::Standard | Target::Special(_))) = &self.target {
            self.begun = target.begin(self.signals)?;
            if self.begun.is_none() {
                return Ok(End::Signal);
            }
        }
        over_memory!(key, memory, |backend| self.receive_from(backend, run_dir, progress))
    }

    fn receive_from<B: View>(
        &mut self,
        backend: B,
        run_dir: Option<&Path>,
        progress: &mut Progress<'_>,
    ) -> Result<End, Failure> {
        match connect(self.args, run_dir, backend, self.signals)? {
            Some(mut subscriber) => self.run(&mut subscriber, progress),
            None => Ok(End::Signal),
        }
    }

    fn run<B: View>(
        &mut self,
        subscriber: &mut Subscriber<B>,
        progress: &mut Progress<'_>,
    ) -> Result<End, Failure> {
        let mut copies = Copies::new();
        while Some(self.stats.frames()) != self.args.frames {
            let frame = match self.next(subscriber, progress)? {
                ControlFlow::Continue(frame) => frame,
                ControlFlow::Break(end) => return Ok(end),
            };
            if self.take(frame, &mut copies)?.is_break() {
                return Ok(End::ClosedPipe);
            }
        }
        Ok(End::Frames)
    }

    /// Waits for the next frame, or for the end.
    fn next<B: View>(
        &mut self,
        subscriber: &mut Subscriber<B>,
        progress: &mut Progress<'_>,
    ) -> Result<ControlFlow<End, Frame<B>>, Failure> {
        let start = Instant::now();
        loop {
            if self.signals.raised() {
                return Ok(ControlFlow::Break(End::Signal));
            }
            progress.show(Instant::now(), self.stats.frames(), |fps| Received {
                fps,
                ..self.stats.report(None)
            })?;
            // In slices: a signal does not end the wait inside, and progress goes on.
            let next = subscriber.next(REFRESH);
            // Before the frame: it may be the first one of another publisher.
            while let Some(event) = subscriber.poll_event() {
                if self.handle(event, subscriber, progress)?.is_break() {
                    return Ok(ControlFlow::Break(End::ClosedPipe));
                }
            }
            match next {
                Ok(Some(frame)) => return Ok(ControlFlow::Continue(frame)),
                Ok(None) => match self.args.timeout {
                    Some(timeout) if start.elapsed() >= timeout => {
                        return Err(self.stalled(subscriber, timeout));
                    }
                    _ => {}
                },
                Err(error) if is_end(&error) => {
                    return Ok(ControlFlow::Break(End::Stream));
                }
                Err(error) => return Err(failed!("{error}")),
            }
        }
    }

    /// A publisher came or went. Answers `Break` if nobody reads the video.
    fn handle<B: View>(
        &mut self,
        event: StreamEvent,
        subscriber: &Subscriber<B>,
        progress: &Progress<'_>,
    ) -> Result<ControlFlow<()>, Failure> {
        let key = &self.args.key;
        match event {
            StreamEvent::Lost(error) => {
                progress.say(&format!("cuframes: {error}; waiting for the next publisher"));
            }
            StreamEvent::Attached { publisher, meta, format_changed, .. } => {
                let reconnects = subscriber.stats().reconnects;
                self.stats.joined(subscriber.bit(), reconnects);
                self.has_attached = true;
                let FrameMeta { format, width, height, .. } = meta;
                if reconnects > 0 {
                    let pid = publisher.map_or(String::new(), |pid| format!(" (pid {pid})"));
                    let change = if format_changed { ", which is another format than before" } else { "" };
                    progress.say(&format!(
                        "cuframes: stream {key}: attached to a publisher again{pid}: {format} {width}x{height}{change}"
                    ));
                }
                match (&self.sink, &self.args.y4m) {
                    (None, Some(stream)) => return self.begin(stream, &meta),
                    (Some(sink), Some(stream)) if !sink.fits(&meta) => {
                        return Err(failed!(
                            "stream {key}: it goes on as {format} {width}x{height}, which does not fit into {stream}; \
                             what came before is in there, write the rest to another file"
                        ));
                    }
                    _ => {}
                }
            }
            _ => {}
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Begins the video. Answers `Break` if nobody reads it.
    fn begin(&mut self, stream: &Stream, meta: &FrameMeta) -> Result<ControlFlow<()>, Failure> {
        let begun = match (self.begun.take(), &self.target) {
            (None, Some(target)) => target.begin(self.signals)?,
            (begun, _) => begun,
        };
        let Some(begun) = begun else { return Ok(ControlFlow::Break(())) };
        let file = begun.file().map_err(|error| failed!("can't write {stream}: {error}; raise ulimit -n"))?;
        match Y4mSink::create(file, stream, meta, self.args.rate)? {
            ControlFlow::Continue(sink) => {
                begun.keep(self.args.force)?;
                self.sink = Some(sink);
                Ok(ControlFlow::Continue(()))
            }
            ControlFlow::Break(()) => Ok(ControlFlow::Break(())),
        }
    }

    fn stalled<B: View>(&self, subscriber: &Subscriber<B>, timeout: Duration) -> Failure {
        match subscriber.trouble() {
            Some(trouble) => failed!("{trouble} (waited for {timeout:?}, --timeout allows more)"),
            None => failed!(
                "stream {}: no frame for {timeout:?}; is its source stalled? --timeout allows more",
                self.args.key
            ),
        }
    }

    /// Checks, writes and counts one frame. Answers `Break` if nobody reads the video any more.
    fn take<B: View>(&mut self, frame: Frame<B>, copies: &mut Copies<B>) -> Result<ControlFlow<()>, Failure> {
        // The publisher stamps frames with the same clock.
        let latency_ns = cuframes_mio::now().as_nanos().saturating_sub(frame.pts_ns());
        let arrival = Arrival {
            at: Instant::now(),
            seq: frame.seq(),
            lost: frame.lost(),
            latency_ns: u64::try_from(latency_ns).unwrap_or(0),
        };
        if !self.args.delay.is_zero() {
            self.signals.wait(self.args.delay);
        }
        let bytes = copies.look(&frame)?;
        let is_torn = self.args.check_seq && !is_seq(bytes, arrival.seq);
        if let Some(sink) = &mut self.sink {
            sink.load(frame.meta(), bytes);
        }
        // Before it is written: a reader of the video that is slow must not keep the slot from the publisher.
        if frame.release().is_err() {
            self.stats.lost(arrival.lost + 1);
            return Ok(ControlFlow::Continue(()));
        }
        self.stats.frame(arrival, is_torn);
        self.sink.as_mut().map_or(Ok(ControlFlow::Continue(())), Y4mSink::write)
    }
}

/// How long to wait for a stream to appear, and how often to look, without `--reconnect`.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(5);
const RETRY: Duration = Duration::from_millis(50);
