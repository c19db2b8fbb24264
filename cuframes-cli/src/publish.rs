//! `cuframes publish`: a video or a test pattern as a stream.

use std::path::Path;
use std::time::Instant;

use cuframes_core::wire::ShutdownReason;
use cuframes_core::{FrameMeta, Key, Timeouts};
use cuframes_cuda::Cuda;
use cuframes_mio::barrier::Barrier;
use cuframes_mio::{
    Accusation, Claim, Error, HostMemory, Leave, Member, MemberEvent, Publisher, ServedPublisher,
};

use crate::args::{BackendArgs, MemoryKind, PublishArgs, RingArgs, WaitArgs};
use crate::barrier;
use crate::console::Console;
use crate::error::{Failure, failed};
use crate::memory::{self, Canvas, Transfer};
use crate::output::{Progress, REFRESH};
use crate::rate::Pacer;
use crate::signals::Signals;
use crate::source::Source;
use crate::stats::{End, Published, fps};

/// A stream to be published: where its frames will be, and when the first is due.
#[derive(Debug)]
pub(crate) struct Plan<'a> {
    pub(crate) key: &'a Key,
    pub(crate) run_dir: Option<&'a Path>,
    pub(crate) memory: &'a BackendArgs,
    pub(crate) ring: &'a RingArgs,
    pub(crate) wait: &'a WaitArgs,
}

/// What is published.
pub(crate) trait Show {
    /// What is said at the end.
    type Report;

    /// Publishes it, when the subscribers that were waited for are there. Whatever ends that, there is a report.
    fn stream<B: Canvas>(
        &mut self,
        publisher: &mut ServedPublisher<B>,
        kept: &mut B::Kept,
        progress: &mut Progress<'_>,
        signals: &Signals,
    ) -> (Self::Report, Result<(), Failure>);
}

/// Publishes until the source ends, enough frames are out or a signal comes; subscribers are told why.
pub(crate) fn run(
    args: &PublishArgs,
    run_dir: Option<&Path>,
    signals: &Signals,
    console: &Console,
) -> Result<(), Failure> {
    let mut progress = Progress::start(&args.report, console)?;
    let source = match Source::open(&args.source, signals) {
        Err(_) if signals.raised() => {
            if args.json {
                let memory = "none".to_string();
                let end = Some(End::Signal);
                let published = Published { memory, frames: 0, fps: 0.0, subscribers: 0, end };
                console.print(&progress.finish(&args.key, &published, true)?, signals)?;
            }
            return Ok(());
        }
        source => source?,
    };
    let PublishArgs { key, memory, ring, wait, .. } = args;
    let plan = Plan { key, run_dir, memory, ring, wait };
    let meta = *source.meta();
    let (published, outcome) = publish(&plan, meta, &mut Drawn { args, source }, &mut progress, signals)?;
    console.print(&progress.finish(key, &published, args.json)?, signals)?;
    outcome
}

/// Publishes a stream of frames with this geometry. The outer error is one before the first frame.
pub(crate) fn publish<S: Show>(
    plan: &Plan<'_>,
    meta: FrameMeta,
    show: &mut S,
    progress: &mut Progress<'_>,
    signals: &Signals,
) -> Result<(S::Report, Result<(), Failure>), Failure> {
    match on_device(plan, meta, progress)? {
        Some((publisher, kept)) => publish_on(plan, publisher, kept, show, progress, signals),
        None => {
            let publisher = create(plan, HostMemory::new(plan.key.clone()), meta);
            publish_on(plan, publisher.map_err(|error| failed!("{error}"))?, (), show, progress, signals)
        }
    }
}

/// A publisher whose frames are in the memory of a GPU, with what it keeps; `None` if they are to be in host memory. What `auto`
/// picks is said.
fn on_device(
    plan: &Plan<'_>,
    meta: FrameMeta,
    progress: &Progress<'_>,
) -> Result<Option<(Publisher<Cuda>, Transfer)>, Failure> {
    let Plan { key, memory, .. } = plan;
    if memory.backend == MemoryKind::Host {
        return Ok(None);
    }
    let is_auto = memory.backend == MemoryKind::Auto;
    let made = memory::open(key, memory).and_then(|cuda| {
        let kept = cuda.kept()?;
        let where_they_are = memory::describe(&cuda);
        match create(plan, cuda, meta) {
            Ok(publisher) => Ok(Ok((publisher, kept, where_they_are))),
            Err(error @ Error::Device { .. }) => Err(failed!("{error}")),
            // Neither would host memory do.
            Err(error) => Ok(Err(error)),
        }
    });
    match made {
        Ok(Ok((publisher, kept, where_they_are))) => {
            if is_auto {
                progress.say(&format!("cuframes: stream {key}: frames are {where_they_are}"));
            }
            Ok(Some((publisher, kept)))
        }
        Ok(Err(error)) => Err(failed!("{error}")),
        Err(cause) if is_auto => {
            progress.say(&format!("cuframes: {cause}; frames are in host memory"));
            Ok(None)
        }
        Err(failure) => Err(failure),
    }
}

/// Publishes on a stream that is there.
fn publish_on<B: Canvas, S: Show>(
    plan: &Plan<'_>,
    publisher: Publisher<B>,
    mut kept: B::Kept,
    show: &mut S,
    progress: &mut Progress<'_>,
    signals: &Signals,
) -> Result<(S::Report, Result<(), Failure>), Failure> {
    let barrier = plan.wait.start.builder().map(|barrier| barrier.stream(&publisher));
    let mut barrier =
        barrier.map(|barrier| barrier::listen(barrier, |text| progress.say(text))).transpose()?;
    let mut publisher = publisher.serve().map_err(|error| failed!("{error}"))?;
    let published = wait_for_participants(plan, barrier.as_mut(), progress, signals)
        .and_then(|()| wait_for_subscribers(plan, &publisher, progress, signals))
        .map(|()| show.stream(&mut publisher, &mut kept, progress, signals));
    let is_good = matches!(&published, Ok((_, Ok(()))));
    let reason = if is_good { ShutdownReason::NORMAL } else { ShutdownReason::ERROR };
    let shut_down = publisher.shut_down(reason).map_err(|error| failed!("{error}"));
    let (report, outcome) = published?;
    Ok((report, outcome.and(shut_down)))
}

fn create<B: Canvas>(plan: &Plan<'_>, backend: B, meta: FrameMeta) -> Result<Publisher<B>, Error> {
    let Plan { key, run_dir, ring, wait, .. } = *plan;
    let mut builder = Publisher::builder(key.clone(), meta).ring_size(ring.slots).policy(ring.policy);
    if let Some(run_dir) = run_dir {
        builder = builder.run_dir(run_dir);
    }
    if let Some(patience) = wait.patience {
        let mut timeouts = Timeouts::default();
        (timeouts.consumer_ack, timeouts.lease) = (patience, patience);
        builder = builder.timeouts(timeouts);
    }
    builder.create_on(backend)
}

/// What a source has, at a rate.
struct Drawn<'a> {
    args: &'a PublishArgs,
    source: Source<'a>,
}

impl Show for Drawn<'_> {
    type Report = Published;

    fn stream<B: Canvas>(
        &mut self,
        publisher: &mut ServedPublisher<B>,
        kept: &mut B::Kept,
        progress: &mut Progress<'_>,
        signals: &Signals,
    ) -> (Published, Result<(), Failure>) {
        let start = Instant::now();
        let mut counted = (0, start);
        let end = self.draw(start, &mut counted, publisher, kept, progress, signals);
        // A signal ends a video as if it had no more frames.
        let end = if end.is_ok() && signals.raised() { Ok(End::Signal) } else { end };
        let (frames, last) = counted;
        let reason = *end.as_ref().unwrap_or(&End::Failure);
        let fps = fps(frames.saturating_sub(1), last - start);
        (report(publisher, frames, fps, Some(reason)), end.map(drop))
    }
}

impl Drawn<'_> {
    /// Publishes one frame after the other, and counts them. `last` is when the last one was.
    fn draw<B: Canvas>(
        &mut self,
        start: Instant,
        (frames, last): &mut (u64, Instant),
        publisher: &mut ServedPublisher<B>,
        kept: &mut B::Kept,
        progress: &mut Progress<'_>,
        signals: &Signals,
    ) -> Result<End, Failure> {
        let Self { args, source } = self;
        let meta = *source.meta();
        let mut pacer = Pacer::new(args.fps.unwrap_or_else(|| source.rate()), start);
        loop {
            if signals.raised() {
                return Ok(End::Signal);
            }
            if Some(*frames) == args.frames {
                return Ok(End::Frames);
            }
            // Read before a slot is taken: nobody can have a slot while it is being written.
            let Some(picture) = source.next()? else { return Ok(End::Stream) };
            // In slices: progress goes on.
            let mut now = Instant::now();
            let (since, delay) = (now, pacer.delay(now));
            while let left = delay.saturating_sub(now - since)
                && !left.is_zero()
                && !signals.wait(left.min(REFRESH))
            {
                now = Instant::now();
                progress.show(now, *frames, |fps| report(publisher, *frames, fps, None))?;
            }
            if signals.raised() {
                return Ok(End::Signal);
            }
            let published = with_slot(publisher, signals, |claim| {
                let seq = claim.seq();
                B::publish(claim, kept, None, |frame| picture.write(&meta, seq, frame))
            });
            if published?.is_none() {
                return Ok(End::Signal);
            }
            *frames += 1;
            *last = Instant::now();
            say_who_was_evicted(publisher, progress);
            progress.show(*last, *frames, |fps| report(publisher, *frames, fps, None))?;
        }
    }
}

/// Takes a slot, and waits for it if it must; `None` if a signal comes first.
pub(crate) fn with_slot<B: Canvas, R>(
    publisher: &mut ServedPublisher<B>,
    signals: &Signals,
    publish: impl FnOnce(Claim<'_, B>) -> Result<R, Failure>,
) -> Result<Option<R>, Failure> {
    let claim = loop {
        match publisher.claim_timeout(REFRESH) {
            Ok(claim) => break claim,
            // Otherwise the device has had its time.
            Err(Error::Stalled { timeout: REFRESH, .. }) if signals.raised() => return Ok(None),
            Err(Error::Stalled { timeout: REFRESH, .. }) => {}
            Err(error) => return Err(failed!("{error}")),
        }
    };
    publish(claim).map(Some)
}

pub(crate) fn say_who_was_evicted<B: Canvas>(publisher: &mut ServedPublisher<B>, progress: &Progress<'_>) {
    while let Some(event) = publisher.poll_event() {
        if let MemberEvent::Left(Member { name, pid, .. }, Leave::Evicted(of)) = event {
            let why = match of {
                Accusation::Lease => "it held a frame for too long",
                _ => "it did not finish a frame in time",
            };
            progress.say(&format!("cuframes: stream {}: evicted {name} (pid {pid}): {why}", publisher.key()));
        }
    }
}

pub(crate) fn report<B: Canvas>(
    publisher: &ServedPublisher<B>,
    frames: u64,
    fps: f64,
    end: Option<End>,
) -> Published {
    let memory = publisher.backend().backend().to_string();
    Published { memory, frames, fps, subscribers: publisher.members().len(), end }
}

/// Waits until everybody has joined the barrier, or for a signal.
fn wait_for_participants(
    plan: &Plan<'_>,
    barrier: Option<&mut Barrier>,
    progress: &mut Progress<'_>,
    signals: &Signals,
) -> Result<(), Failure> {
    let Some(barrier) = barrier else { return Ok(()) };
    let show = |now, waiting| progress.show(now, 0, |_| waiting);
    let started = barrier::wait_for_all(barrier, signals, show);
    started.map(drop).map_err(|failure| failed!("stream {}: {failure}", plan.key))
}

/// Waits until as many subscribers are there as `--wait-for` says, or for a signal.
fn wait_for_subscribers<B: Canvas>(
    plan: &Plan<'_>,
    publisher: &ServedPublisher<B>,
    progress: &mut Progress<'_>,
    signals: &Signals,
) -> Result<(), Failure> {
    let wanted = plan.wait.wait_for.map_or(0, usize::from);
    let start = Instant::now();
    loop {
        // In slices: a signal does not end the wait inside, and progress goes on.
        let left = plan.wait.wait_timeout.saturating_sub(start.elapsed());
        match publisher.wait_for(wanted, left.min(REFRESH)) {
            Err(mut error) if left.is_zero() => {
                error.timeout = plan.wait.wait_timeout;
                return Err(failed!(
                    "stream {}: {error}; start the others, or raise --wait-timeout",
                    plan.key
                ));
            }
            Err(_) if !signals.raised() => {
                progress.show(Instant::now(), 0, |fps| report(publisher, 0, fps, None))?;
            }
            _ => return Ok(()),
        }
    }
}
