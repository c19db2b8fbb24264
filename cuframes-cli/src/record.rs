//! `cuframes record`: writes a stream into a file.

use std::fmt;
use std::ops::ControlFlow;
use std::path::Path;
use std::time::{Duration, Instant};

use cuframes_core::shm::StreamHeader;
use cuframes_mio::{Frame, Subscriber};
use indicatif::HumanBytes;
use serde::Serialize;

use crate::args::{self, RecordArgs};
use crate::console::Console;
use crate::error::{Failure, failed};
use crate::gauge::Gauge;
use crate::memory::{Copies, View, over_memory};
use crate::output::{Count, Progress, REFRESH};
use crate::recording::{Facts, Queue, Stream, Writer, Written};
use crate::signals::Signals;
use crate::snapshot::Target;
use crate::stats::{End, fps};
use crate::subscribe::{attach, is_end};

/// Records until the stream ends, enough of it is in the file or a signal comes; then completes the file.
pub(crate) fn run(
    args: &RecordArgs,
    run_dir: Option<&Path>,
    signals: &Signals,
    console: &Console,
) -> Result<(), Failure> {
    if args.file.as_os_str() == "-" {
        let why = "a recording goes into a file, not to standard output: its head is written last";
        return Err(Failure::Usage(format!("{why}; a file of that name is ./-; see --help")));
    }
    let mut progress = Progress::start(&args.report, console)?;
    // Before we wait for anybody.
    let target = Target::find_for_video(&args::Stream::File(args.file.clone()), args.force)?;
    if !matches!(target, Target::File { .. }) {
        return Err(failed!(
            "can't record into {}: it is not a regular file; use another name",
            args.file.display()
        ));
    }
    let mut recorder = Recorder {
        args,
        target,
        signals,
        taken: 0,
        dropped: 0,
        times: None,
        queue: None,
        written: Written::default(),
    };
    let end = recorder.record(run_dir, &mut progress);
    let completed = recorder.complete();
    if end.is_err() && recorder.written.file_bytes == 0 {
        // There is no file: nobody publishes, or it can't be made.
        return end.map(drop);
    }
    let end = end.and_then(|end| completed.map(|()| end));
    let report = recorder.report(recorder.average(), Some(*end.as_ref().unwrap_or(&End::Failure)));
    console.print(&progress.finish(&args.key, &report, args.json)?, signals)?;
    end.map(drop)
}

/// Takes frames from a subscriber and has them written.
struct Recorder<'a> {
    args: &'a RecordArgs,
    target: Target,
    signals: &'a Signals,
    /// Frames that are written, or on their way.
    taken: u64,
    dropped: u64,
    /// When the first and the last frame arrived.
    times: Option<(Instant, Instant)>,
    /// From the subscription until the file is complete.
    queue: Option<Queue>,
    /// What is in the file, once that is complete.
    written: Written,
}

impl Recorder<'_> {
    fn record(&mut self, run_dir: Option<&Path>, progress: &mut Progress<'_>) -> Result<End, Failure> {
        let RecordArgs { key, memory, .. } = self.args;
        over_memory!(key, memory, |backend| self.record_from(&backend, run_dir, progress))
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
            let Some(begun) = self.target.begin(self.signals)? else { return Ok(End::Signal) };
            let queue = begun
                .file()
                .and_then(|file| Writer::create(file, &stream))
                .and_then(|writer| Queue::start(writer, meta.frame_size_bytes));
            let queue = queue.map_err(|error| {
                failed!(
                    "can't begin {}: {error}; check the room on its disk, and ulimit -u",
                    self.args.file.display()
                )
            })?;
            begun.keep(self.args.force)?;
            self.queue = Some(queue);
        }
        let mut copies = Copies::new();
        while Some(self.taken) != *frames {
            // Before a frame is taken: while none is free, nobody shall wait for what we hold.
            let Some(buffer) = self.queue.as_mut().and_then(Queue::buffer) else { return Ok(End::Failure) };
            match self.next(&mut subscriber, progress)? {
                ControlFlow::Continue(frame) => self.take(frame, buffer, &mut copies)?,
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
            progress.show(now, self.taken, |fps| self.report(fps, None))?;
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
                Err(error) if is_end(&error) => {
                    return Ok(ControlFlow::Break(End::Stream));
                }
                Err(error) => return Err(failed!("{error}")),
            }
        }
    }

    /// Copies a frame and sends it on its way.
    fn take<B: View>(
        &mut self,
        frame: Frame<B>,
        mut buffer: Vec<u8>,
        copies: &mut Copies<B>,
    ) -> Result<(), Failure> {
        let now = Instant::now();
        let facts = Facts {
            seq: frame.seq(),
            pts_ns: frame.pts_ns(),
            written_bytes: u64::try_from(frame.len()).unwrap_or(u64::MAX),
        };
        self.dropped = self.dropped.saturating_add(frame.lost());
        buffer.clear();
        buffer.extend_from_slice(copies.look(&frame)?);
        let is_intact = frame.release().is_ok();
        let Some(queue) = &mut self.queue else { return Ok(()) };
        if is_intact {
            queue.send(facts, buffer);
            self.taken += 1;
            self.times = Some((self.times.map_or(now, |(first, _)| first), now));
        } else {
            queue.give_up();
            self.dropped += 1;
        }
        Ok(())
    }

    /// Waits until all frames are written, and completes the file.
    fn complete(&mut self) -> Result<(), Failure> {
        let Some(mut queue) = self.queue.take() else { return Ok(()) };
        let (writer, result) = queue.finish();
        self.written = queue.written();
        let (file, frames) = (self.args.file.display(), self.written.frames);
        let completed = writer.map_or(Ok(self.written.file_bytes), Writer::finish);
        self.written.file_bytes = *completed.as_ref().unwrap_or(&self.written.file_bytes);
        result.map_err(|error| {
            failed!(
                "can't write frame {} to {file}: {error}; the {frames} frames before it are in the file and can be \
                 replayed; make room",
                frames + 1
            )
        })?;
        completed.map(drop).map_err(|error| {
            failed!(
                "can't complete {file}: {error}; the {} in it can be replayed; check the disk",
                Count(frames, "frame")
            )
        })
    }

    /// Frames per second from the first to the last.
    fn average(&self) -> f64 {
        self.times.map_or(0.0, |(first, last)| fps(self.taken.saturating_sub(1), last - first))
    }

    fn report(&self, fps: f64, end: Option<End>) -> Recorded {
        let RecordArgs { frames, duration, .. } = self.args;
        let elapsed = self.times.map(|(first, _)| first.elapsed()).filter(|_| end.is_none());
        let gauges = elapsed.map(|elapsed| {
            let frames = frames.map(|all| Gauge::new(self.taken.into(), all.into(), elapsed));
            let duration = duration.map(|all| Gauge::new(elapsed.as_nanos(), all.as_nanos(), elapsed));
            [frames, duration]
        });
        let gauge = gauges.into_iter().flatten().flatten().reduce(Gauge::nearer);
        let Written { frames, file_bytes, first, last } =
            self.queue.as_ref().map_or(self.written, Queue::written);
        Recorded {
            frames,
            dropped: self.dropped,
            file_bytes,
            first_seq: first.map(|facts| facts.seq),
            last_seq: last.map(|facts| facts.seq),
            first_pts_ns: first.map(|facts| facts.pts_ns),
            last_pts_ns: last.map(|facts| facts.pts_ns),
            fps,
            end,
            gauge,
        }
    }
}

/// What `record` has written: the object that `--json` prints.
#[derive(Serialize, Clone, PartialEq, Debug)]
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
        let frames = Count(*frames, "frame");
        write!(f, "{frames}, {fps:.1} fps, {dropped} dropped, {}", HumanBytes(*file_bytes))?;
        gauge.map_or(Ok(()), |gauge| write!(f, " {gauge}"))?;
        end.map_or(Ok(()), |end| write!(f, " ({end})"))
    }
}
