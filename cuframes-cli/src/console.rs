//! [`Console`]: all that is said on standard output and standard error, written by a thread for each.
//!
//! A write to a terminal that Ctrl-S has stopped, or to a pipe that nobody reads, may wait for ever. So nobody writes who
//! has something else to do: it is queued, and left out when the queue is full. Only a video (`--y4m`) is written by
//! whoever makes it, because there it is right to wait.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use tracing_subscriber::fmt::MakeWriter;

use crate::error::{Failure, OneLine, failed};
use crate::signals::Signals;

/// Both standard streams. Clones write to the same queues.
#[derive(Clone, Debug)]
pub(crate) struct Console {
    out: Outlet,
    err: Outlet,
}

impl Console {
    pub(crate) fn start() -> io::Result<Self> {
        Ok(Self {
            out: Outlet::start("cuframes-out", io::stdout())?,
            err: Outlet::start("cuframes-err", io::stderr())?,
        })
    }

    /// Shows these rows of text at the bottom of the terminal, in place of those before. Not where standard error is no
    /// terminal.
    pub(crate) fn draw(&self, rows: Vec<String>) {
        // If they can't be shown, the next ones will be.
        let _ = self.err.jobs.try_send(Job::Rows(rows));
    }

    /// Writes a line to standard output that soon will be followed by a better one.
    pub(crate) fn report(&self, line: &str) {
        let _ = self.out.jobs.try_send(Job::Text(with_newline(line)));
    }

    /// Queues a line for standard output that is not to be lost. Gives it back while there is no room.
    pub(crate) fn offer(&self, line: String) -> Result<(), String> {
        match self.out.jobs.try_send(Job::Line(line)) {
            Err(TrySendError::Full(Job::Line(line))) => Err(line),
            _ => Ok(()),
        }
    }

    /// Writes one line to standard error, whatever the text contains.
    pub(crate) fn say(&self, text: &str) {
        self.err.post(with_newline(&OneLine(text).to_string()));
    }

    /// Clears the rows and writes to standard output, once and for all: waits until it is there. A signal limits the
    /// wait.
    ///
    /// If its reader is gone, it wants no more: that is fine.
    pub(crate) fn print(&self, text: &str, signals: &Signals) -> Result<(), Failure> {
        self.try_print(text, signals).map(drop)
    }

    /// As [`print`](Self::print), and says whether it is there: for what goes on after it, or depends on it.
    pub(crate) fn try_print(&self, text: &str, signals: &Signals) -> Result<Printed, Failure> {
        // They may be on the same terminal.
        self.flush();
        match self.out.finish(with_newline(text), || signals.raised()) {
            Some(Ok(())) => Ok(Printed::Written),
            Some(Err(error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(Printed::Closed),
            Some(Err(error)) => Err(failed!("can't write to standard output: {error}; check where it goes")),
            None => Ok(Printed::CutOff),
        }
    }

    /// Clears the rows and waits until everything was written to standard error, but not for ever.
    pub(crate) fn flush(&self) {
        // Nobody can be told that it failed.
        let _ = self.err.finish(Vec::new(), || true);
    }
}

impl<'a> MakeWriter<'a> for Console {
    type Writer = Entry<'a>;

    fn make_writer(&'a self) -> Entry<'a> {
        Entry(&self.err)
    }
}

/// What became of a text for standard output.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Printed {
    /// It is there.
    Written,
    /// Nobody reads it any more.
    Closed,
    /// A signal came while its reader was slow.
    CutOff,
}

/// Takes the lines of a log, whole ones.
pub(crate) struct Entry<'a>(&'a Outlet);

impl Write for Entry<'_> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.post(line.to_vec());
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The way to one stream.
#[derive(Clone, Debug)]
struct Outlet {
    jobs: SyncSender<Job>,
    /// Lines that were left out since it was told how many.
    left_out: Arc<AtomicU64>,
    /// Somebody waited for the end in vain, and nobody shall again.
    is_stuck: Arc<AtomicBool>,
}

enum Job {
    /// In place of the rows before.
    Rows(Vec<String>),
    Text(Vec<u8>),
    /// The same, without its end.
    Line(String),
    /// After which no rows are left. The answer says how it went.
    Last(Vec<u8>, SyncSender<io::Result<()>>),
}

impl Outlet {
    fn start(name: &str, mut stream: impl Write + Send + 'static) -> io::Result<Self> {
        let (jobs, queue) = sync_channel(CAPACITY);
        let left_out = Arc::new(AtomicU64::new(0));
        let outlet = Self { jobs, left_out: Arc::clone(&left_out), is_stuck: Arc::default() };
        thread::Builder::new().name(name.into()).spawn(move || serve(&queue, &mut stream, &left_out))?;
        Ok(outlet)
    }

    /// Queues text, or counts that it was left out.
    fn post(&self, text: Vec<u8>) {
        if self.jobs.try_send(Job::Text(text)).is_err() {
            self.left_out.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits until everything is written, with `text` at its end. `None` if that takes longer than [`PATIENCE`] after
    /// there is a hurry.
    fn finish(&self, text: Vec<u8>, is_hurry: impl Fn() -> bool) -> Option<io::Result<()>> {
        let (done, answer) = sync_channel(1);
        let mut job = Some(Job::Last(text, done));
        let mut left = if self.is_stuck.load(Ordering::Relaxed) { Duration::ZERO } else { PATIENCE };
        loop {
            if let Some(unsent) = job.take() {
                match self.jobs.try_send(unsent) {
                    Err(TrySendError::Full(unsent)) => job = Some(unsent),
                    Ok(()) | Err(TrySendError::Disconnected(_)) => {}
                }
            }
            match answer.recv_timeout(STEP.min(left)) {
                Ok(result) => return Some(result),
                Err(RecvTimeoutError::Disconnected) => return None,
                Err(RecvTimeoutError::Timeout) if is_hurry() => left = left.saturating_sub(STEP),
                Err(RecvTimeoutError::Timeout) => left = PATIENCE,
            }
            if left.is_zero() {
                self.is_stuck.store(true, Ordering::Relaxed);
                return None;
            }
        }
    }
}

/// Writes what comes, for the rest of the program's life.
fn serve(queue: &Receiver<Job>, stream: &mut impl Write, left_out: &AtomicU64) {
    let mut rows = None;
    for job in queue {
        let text = match job {
            Job::Rows(texts) => {
                rows.get_or_insert_with(Rows::default).draw(texts);
                continue;
            }
            Job::Last(text, done) => {
                rows = None;
                // Whoever asked may have gone away.
                let _ = done.send(stream.write_all(&text).and_then(|()| stream.flush()));
                continue;
            }
            Job::Text(text) => text,
            Job::Line(line) => with_newline(&line),
        };
        let mut write = || {
            // Nobody can be told that it failed.
            let _ = stream.write_all(&text).and_then(|()| stream.flush());
            let left_out = left_out.swap(0, Ordering::Relaxed);
            if left_out > 0 {
                let _ = writeln!(stream, "cuframes: {left_out} more lines are left out, nobody read them");
            }
        };
        match &rows {
            Some(rows) => rows.table.suspend(write),
            None => write(),
        }
    }
}

/// Rows of text at the bottom of the terminal, cleared on drop.
#[derive(Default)]
struct Rows {
    table: MultiProgress,
    rows: Vec<ProgressBar>,
}

impl Rows {
    fn draw(&mut self, texts: Vec<String>) {
        while self.rows.len() < texts.len() {
            self.rows.push(self.table.add(row()));
        }
        for (row, text) in self.rows.iter().zip(texts) {
            row.set_message(text);
        }
    }
}

impl Drop for Rows {
    fn drop(&mut self) {
        self.rows.iter().for_each(ProgressBar::finish_and_clear);
    }
}

/// A line of text in place of a progress bar.
fn row() -> ProgressBar {
    let row = ProgressBar::no_length();
    // `wide_msg` cuts the text at the width of the terminal: what wrapped would not be cleared.
    if let Ok(style) = ProgressStyle::with_template("{wide_msg}") {
        row.set_style(style);
    }
    row
}

fn with_newline(text: &str) -> Vec<u8> {
    format!("{text}\n").into()
}

/// Texts that wait: more than come while a machine is busy, and not much memory.
const CAPACITY: usize = 1024;
/// How long the end waits for a stream whose reader is slow.
const PATIENCE: Duration = Duration::from_secs(2);
const STEP: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Read, pipe};

    use super::*;

    /// An outlet into a pipe that nobody reads yet, and that is full.
    fn blocked() -> (Outlet, impl Read) {
        let (reader, writer) = pipe().unwrap();
        let outlet = Outlet::start("test", writer).unwrap();
        for _ in 0..3 * CAPACITY {
            outlet.post(vec![b'.'; 4095].into_iter().chain([b'\n']).collect());
        }
        (outlet, reader)
    }

    #[test]
    fn who_says_something_that_nobody_reads_does_not_wait_and_it_is_told_how_much_is_missing() {
        let (outlet, reader) = blocked();
        assert!(outlet.finish(Vec::new(), || true).is_none(), "it can't be written");
        let mut lines = BufReader::new(reader).lines().map(Result::unwrap);
        let told = lines.find(|line| !line.starts_with('.')).unwrap();
        let missing: usize = told.split(' ').nth(1).unwrap().parse().unwrap();
        assert!(told.contains("more lines are left out"), "{told}");
        assert!((1..3 * CAPACITY).contains(&missing), "{told}");
    }

    #[test]
    fn the_end_waits_for_a_reader_that_is_late_unless_there_is_a_hurry() {
        let (outlet, mut reader) = blocked();
        let reading = thread::spawn(move || {
            thread::sleep(2 * PATIENCE);
            let mut text = String::new();
            reader.read_to_string(&mut text).unwrap();
            text
        });
        assert!(outlet.finish(b"the end\n".to_vec(), || false).unwrap().is_ok());
        drop(outlet);
        assert!(reading.join().unwrap().ends_with("\nthe end\n"));
    }

    #[test]
    fn the_end_is_told_of_a_stream_that_can_not_be_written() {
        let (reader, writer) = pipe().unwrap();
        drop(reader);
        let outlet = Outlet::start("test", writer).unwrap();
        let error = outlet.finish(b"x".to_vec(), || true).unwrap().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    }
}
