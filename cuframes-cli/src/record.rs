//! `cuframes record`: writes a stream into a file.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io;
use std::ops::ControlFlow;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use cuframes_core::Gone;
use cuframes_core::shm::StreamHeader;
use cuframes_core::wire::ShutdownReason;
use cuframes_mio::{Error, Frame, HostMemory, Subscriber};
use indicatif::HumanBytes;
use rustix::fs::OFlags;
use serde::Serialize;

use crate::args::MemoryKind;
use crate::args::record::RecordArgs;
use crate::console::Console;
use crate::error::{Failure, failed};
use crate::gauge::Gauge;
use crate::memory::{self, Copies, View};
use crate::output::{Progress, REFRESH};
use crate::recording::{Facts, Stream, Writer};
use crate::signals::Signals;
use crate::stats::{End, fps};
use crate::subscribe::attach;

/// Records until the stream ends, enough of it is in the file or a signal comes; then completes the file.
pub(crate) fn run(
    args: &RecordArgs,
    run_dir: Option<&Path>,
    signals: &Signals,
    console: &Console,
) -> Result<(), Failure> {
    let mut progress = Progress::start(&args.report, console)?;
    // Before we wait for anybody.
    if !args.force && args.file.symlink_metadata().is_ok() {
        return Err(unusable(args, &io::ErrorKind::AlreadyExists.into()));
    }
    let mut recorder = Recorder { args, signals, counts: Recorded::default(), times: None, writer: None };
    let end = recorder.record(run_dir, &mut progress);
    let completed = recorder.complete();
    if end.is_err() && recorder.counts.file_bytes == 0 {
        // There is no file: nobody publishes, or it can't be made.
        return end.map(drop);
    }
    let end = end.and_then(|end| completed.map(|()| end));
    let report = recorder.report(recorder.average(), Some(*end.as_ref().unwrap_or(&End::Failure)));
    console.print(&progress.finish(&args.key, &report, args.json)?, signals)?;
    end.map(drop)
}

/// Takes frames from a subscriber and writes them.
struct Recorder<'a> {
    args: &'a RecordArgs,
    signals: &'a Signals,
    counts: Recorded,
    /// When the first and the last frame arrived.
    times: Option<(Instant, Instant)>,
    /// From the subscription until the file is complete.
    writer: Option<Writer>,
}

impl Recorder<'_> {
    fn record(&mut self, run_dir: Option<&Path>, progress: &mut Progress<'_>) -> Result<End, Failure> {
        let RecordArgs { key, memory, .. } = self.args;
        match memory.backend {
            MemoryKind::Auto => self.record_from(&memory::anywhere(key, memory.device), run_dir, progress),
            MemoryKind::Host => self.record_from(&HostMemory::new(key.clone()), run_dir, progress),
            MemoryKind::Cuda | MemoryKind::CudaVmm => {
                self.record_from(&memory::open(key, memory)?, run_dir, progress)
            }
        }
    }

    fn record_from<B: View>(
        &mut self,
        backend: &B,
        run_dir: Option<&Path>,
        progress: &mut Progress<'_>,
    ) -> Result<End, Failure> {
        let RecordArgs { key, name, mode, timeout, frames, .. } = self.args;
        let mut builder = Subscriber::builder(key.clone()).name(name.clone()).mode(*mode);
        if let Some(run_dir) = run_dir {
            builder = builder.run_dir(run_dir);
        }
        let Some(mut subscriber) = attach(&builder, backend, *timeout, self.signals)? else {
            return Ok(End::Signal);
        };
        if let Some(StreamHeader { meta, epoch, .. }) = subscriber.header() {
            let stream = Stream { title: key.to_string(), meta: *meta, epoch: *epoch };
            let created = create(self.args).and_then(|file| Writer::create(file, &stream));
            self.writer = Some(created.map_err(|error| unusable(self.args, &error))?);
        }
        let mut copies = Copies::new();
        while Some(self.counts.frames) != *frames {
            match self.next(&mut subscriber, progress)? {
                ControlFlow::Continue(frame) => self.take(frame, &mut copies)?,
                ControlFlow::Break(end) => return Ok(end),
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
        let RecordArgs { key, timeout, duration, .. } = self.args;
        let start = Instant::now();
        loop {
            let now = Instant::now();
            // In slices: a signal does not end the wait inside, and progress goes on.
            let mut slice = REFRESH;
            if let (Some(duration), Some((first, _))) = (duration, self.times) {
                slice = slice.min(duration.saturating_sub(now - first));
            }
            match slice {
                _ if self.signals.raised() => return Ok(ControlFlow::Break(End::Signal)),
                Duration::ZERO => return Ok(ControlFlow::Break(End::Duration)),
                _ => {}
            }
            progress.show(now, self.counts.frames, |fps| self.report(fps, None))?;
            match subscriber.next(slice) {
                Ok(Some(frame)) => return Ok(ControlFlow::Continue(frame)),
                Ok(None) => match timeout {
                    Some(timeout) if start.elapsed() >= *timeout => {
                        return Err(failed!(
                            "stream {key}: no frame for {timeout:?}; is its source stalled? --timeout allows more"
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

    /// Writes a frame and counts it.
    fn take<B: View>(&mut self, frame: Frame<B>, copies: &mut Copies<B>) -> Result<(), Failure> {
        let now = Instant::now();
        let facts = Facts {
            seq: frame.seq(),
            pts_ns: frame.pts_ns(),
            written_bytes: u64::try_from(frame.len()).unwrap_or(u64::MAX),
        };
        self.counts.dropped += frame.lost();
        let Some(writer) = &mut self.writer else { return Ok(()) };
        writer.load(facts, copies.look(&frame)?);
        // Before it is written: a disk that is slow must not keep the slot from the publisher.
        if frame.release().is_err() {
            self.counts.dropped += 1;
            return Ok(());
        }
        writer.write().map_err(|error| {
            failed!(
                "can't write frame {} to {}: {error}; the {} frames before it are in the file and can be replayed; make room",
                writer.frames() + 1,
                self.args.file.display(),
                writer.frames(),
            )
        })?;
        let counts = &mut self.counts;
        (counts.frames, counts.file_bytes) = (writer.frames(), writer.bytes());
        counts.first_seq.get_or_insert(facts.seq);
        counts.first_pts_ns.get_or_insert(facts.pts_ns);
        (counts.last_seq, counts.last_pts_ns) = (Some(facts.seq), Some(facts.pts_ns));
        self.times = Some((self.times.map_or(now, |(first, _)| first), now));
        Ok(())
    }

    /// Completes the file.
    fn complete(&mut self) -> Result<(), Failure> {
        let Some(writer) = self.writer.take() else { return Ok(()) };
        let (file, frames) = (self.args.file.display(), writer.frames());
        self.counts.file_bytes = writer.bytes();
        self.counts.file_bytes = writer.finish().map_err(|error| {
            failed!(
                "can't complete {file}: {error}; the {frames} frames in it can be replayed; check the disk"
            )
        })?;
        Ok(())
    }

    /// Frames per second from the first to the last.
    fn average(&self) -> f64 {
        self.times.map_or(0.0, |(first, last)| fps(self.counts.frames.saturating_sub(1), last - first))
    }

    fn report(&self, fps: f64, end: Option<End>) -> Recorded {
        let RecordArgs { frames, duration, .. } = self.args;
        let elapsed = self.times.map(|(first, _)| first.elapsed()).filter(|_| end.is_none());
        let gauges = elapsed.map(|elapsed| {
            let frames = frames.map(|all| Gauge::new(self.counts.frames.into(), all.into(), elapsed));
            let duration = duration.map(|all| Gauge::new(elapsed.as_nanos(), all.as_nanos(), elapsed));
            [frames, duration]
        });
        let gauge = gauges.into_iter().flatten().flatten().reduce(Gauge::nearer);
        Recorded { fps, end, gauge, ..self.counts.clone() }
    }
}

/// What `record` has written: the object that `--json` prints.
#[derive(Serialize, Clone, PartialEq, Default, Debug)]
struct Recorded {
    frames: u64,
    /// Numbers since the first frame that are not in the file.
    dropped: u64,
    /// Bytes of the file.
    file_bytes: u64,
    /// `None` before the first frame, as are the next three.
    first_seq: Option<u64>,
    last_seq: Option<u64>,
    first_pts_ns: Option<i64>,
    last_pts_ns: Option<i64>,
    fps: f64,
    /// `None` while it goes on.
    end: Option<End>,
    /// How far it is, where that is known.
    #[serde(skip)]
    gauge: Option<Gauge>,
}

impl fmt::Display for Recorded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { frames, dropped, file_bytes, fps, end, gauge, .. } = self;
        write!(f, "{frames} frames, {fps:.1} fps, {dropped} dropped, {}", HumanBytes(*file_bytes))?;
        gauge.map_or(Ok(()), |gauge| write!(f, " {gauge}"))?;
        end.map_or(Ok(()), |end| write!(f, " ({end})"))
    }
}

/// Makes the file, or empties it with `--force`.
fn create(args: &RecordArgs) -> io::Result<File> {
    // Of a named pipe nobody waits for the reader.
    let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or(0);
    let mut options = OpenOptions::new();
    options.write(true).custom_flags(flags);
    let file = if args.force { options.create(true) } else { options.create_new(true) }.open(&args.file)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    file.set_len(0)?;
    Ok(file)
}

fn unusable(args: &RecordArgs, error: &io::Error) -> Failure {
    let file = args.file.display();
    match error.kind() {
        io::ErrorKind::AlreadyExists => {
            failed!("can't create {file}: it exists; use --force or another name")
        }
        _ => failed!("can't create {file}: {error}; check the path, and the room on its disk"),
    }
}
