//! `cuframes publish`: a video or a test pattern as a stream.

use std::path::Path;
use std::time::Instant;

use cuframes_core::FrameMeta;
use cuframes_core::wire::ShutdownReason;
use cuframes_cuda::Cuda;
use cuframes_mio::{Accusation, Error, HostMemory, Leave, Member, MemberEvent, Publisher, ServedPublisher};

use crate::args::{MemoryKind, PublishArgs};
use crate::console::Console;
use crate::error::{Failure, failed};
use crate::memory::{self, Canvas, Transfer};
use crate::output::{Progress, REFRESH};
use crate::rate::Pacer;
use crate::signals::Signals;
use crate::source::Source;
use crate::stats::{End, Published, fps};

/// Publishes until the source ends, enough frames are out or a signal comes; subscribers are told why.
pub(crate) fn run(
    args: &PublishArgs,
    run_dir: Option<&Path>,
    signals: &Signals,
    console: &Console,
) -> Result<(), Failure> {
    let mut progress = Progress::start(&args.report, console)?;
    let mut source = match Source::open(&args.source, signals) {
        Err(_) if signals.raised() => return Ok(()),
        source => source?,
    };
    let meta = *source.meta();
    let published = match on_device(args, run_dir, meta, &progress)? {
        Some((publisher, kept)) => publish(args, publisher, kept, &mut source, &mut progress, signals),
        None => {
            let publisher = create(args, run_dir, HostMemory::new(args.key.clone()), meta);
            let publisher = publisher.map_err(|error| failed!("{error}"))?;
            publish(args, publisher, (), &mut source, &mut progress, signals)
        }
    }?;
    console.print(&progress.finish(&args.key, &published, false)?, signals)
}

/// A publisher whose frames are in the memory of a GPU, with what it keeps; `None` if they are to be in host memory. What `auto`
/// picks is said.
fn on_device(
    args: &PublishArgs,
    run_dir: Option<&Path>,
    meta: FrameMeta,
    progress: &Progress<'_>,
) -> Result<Option<(ServedPublisher<Cuda>, Transfer)>, Failure> {
    let PublishArgs { key, memory, .. } = args;
    if memory.backend == MemoryKind::Host {
        return Ok(None);
    }
    let is_auto = memory.backend == MemoryKind::Auto;
    let made = memory::open(key, memory).and_then(|cuda| {
        let kept = cuda.kept()?;
        let where_they_are = memory::describe(&cuda);
        match create(args, run_dir, cuda, meta) {
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

/// Publishes what the source has.
fn publish<B: Canvas>(
    args: &PublishArgs,
    mut publisher: ServedPublisher<B>,
    mut kept: B::Kept,
    source: &mut Source<'_>,
    progress: &mut Progress<'_>,
    signals: &Signals,
) -> Result<Published, Failure> {
    let published = stream(args, source, &mut publisher, &mut kept, progress, signals);
    let reason = if published.is_ok() { ShutdownReason::NORMAL } else { ShutdownReason::ERROR };
    let shut_down = publisher.shut_down(reason).map_err(|error| failed!("{error}"));
    let published = published?;
    shut_down?;
    Ok(published)
}

fn create<B: Canvas>(
    args: &PublishArgs,
    run_dir: Option<&Path>,
    backend: B,
    meta: FrameMeta,
) -> Result<ServedPublisher<B>, Error> {
    let mut builder =
        Publisher::builder(args.key.clone(), meta).ring_size(args.ring.slots).policy(args.ring.policy);
    if let Some(run_dir) = run_dir {
        builder = builder.run_dir(run_dir);
    }
    builder.create_on(backend).and_then(Publisher::serve)
}

fn stream<B: Canvas>(
    args: &PublishArgs,
    source: &mut Source<'_>,
    publisher: &mut ServedPublisher<B>,
    kept: &mut B::Kept,
    progress: &mut Progress<'_>,
    signals: &Signals,
) -> Result<Published, Failure> {
    wait_for_subscribers(args, publisher, progress, signals)?;
    let meta = *source.meta();
    let start = Instant::now();
    let mut pacer = Pacer::new(args.fps.unwrap_or_else(|| source.rate()), start);
    let (mut frames, mut last) = (0, start);
    let end = loop {
        if signals.raised() {
            break End::Signal;
        }
        if Some(frames) == args.frames {
            break End::Frames;
        }
        // Read before a slot is taken: nobody can have a slot while it is being written.
        let Some(picture) = source.next()? else { break End::Stream };
        // In slices: progress goes on.
        let mut now = Instant::now();
        let (since, delay) = (now, pacer.delay(now));
        while let left = delay.saturating_sub(now - since)
            && !left.is_zero()
            && !signals.wait(left.min(REFRESH))
        {
            now = Instant::now();
            progress.show(now, frames, |fps| report(publisher, frames, fps, None))?;
        }
        if signals.raised() {
            break End::Signal;
        }
        let claim = publisher.claim().map_err(|error| failed!("{error}"))?;
        let seq = claim.seq();
        B::publish(claim, kept, |frame| picture.write(&meta, seq, frame))?;
        frames += 1;
        last = Instant::now();
        say_who_was_evicted(publisher, progress);
        progress.show(last, frames, |fps| report(publisher, frames, fps, None))?;
    };
    // A signal ends a video as if it had no more frames.
    let end = if signals.raised() { End::Signal } else { end };
    Ok(report(publisher, frames, fps(frames.saturating_sub(1), last - start), Some(end)))
}

fn say_who_was_evicted<B: Canvas>(publisher: &mut ServedPublisher<B>, progress: &Progress<'_>) {
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

fn report<B: Canvas>(publisher: &ServedPublisher<B>, frames: u64, fps: f64, end: Option<End>) -> Published {
    let memory = publisher.backend().backend().to_string();
    Published { memory, frames, fps, subscribers: publisher.members().len(), end }
}

/// Waits until as many subscribers are there as `--wait-for` says, or for a signal.
fn wait_for_subscribers<B: Canvas>(
    args: &PublishArgs,
    publisher: &ServedPublisher<B>,
    progress: &mut Progress<'_>,
    signals: &Signals,
) -> Result<(), Failure> {
    let wanted = args.wait_for.map_or(0, usize::from);
    let start = Instant::now();
    loop {
        // In slices: a signal does not end the wait inside, and progress goes on.
        let left = args.wait_timeout.saturating_sub(start.elapsed());
        match publisher.wait_for(wanted, left.min(REFRESH)) {
            Err(mut error) if left.is_zero() => {
                error.timeout = args.wait_timeout;
                return Err(failed!(
                    "stream {}: {error}; start the others, or raise --wait-timeout",
                    args.key
                ));
            }
            Err(_) if !signals.raised() => {
                progress.show(Instant::now(), 0, |fps| report(publisher, 0, fps, None))?;
            }
            _ => return Ok(()),
        }
    }
}
