//! Streams and what they do: [`Streams`], [`Stream`], [`Work`].
//!
//! Each stream is a thread with a queue. The default stream is one too, and it and the others wait for each other as CUDA's
//! legacy default stream does: work on it begins when what was put into the others before is done, and they go on when
//! it is done. Streams that are not blocking (`CU_STREAM_NON_BLOCKING`) take no part in that.

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use crate::code::{Code, Result};
use crate::copy::{Copy, Fill};
use crate::driver::{Call, State, Violations};
use crate::event::{Cells, Waiting};

/// The streams of a process.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    by_handle: BTreeMap<u64, Stream>,
    /// The default stream of each device that used it, and that of each thread (`CU_STREAM_PER_THREAD`).
    defaults: HashMap<(usize, Option<ThreadId>), Stream>,
    /// Destroyed, but with work to do.
    ending: Vec<Stream>,
}

impl Streams {
    pub(crate) fn count(&self) -> u64 {
        self.by_handle.values().map(|_| 1).sum()
    }

    pub(crate) fn are_on(&self, device: usize) -> bool {
        self.by_handle.values().any(|stream| stream.device == device)
    }

    /// Nobody waits for them any more.
    pub(crate) fn abandon(&self) {
        for stream in self.all() {
            stream.line.lock().abandoned = true;
            stream.line.changed.notify_all();
        }
    }

    fn all(&self) -> impl Iterator<Item = &Stream> {
        self.by_handle.values().chain(self.defaults.values()).chain(&self.ending)
    }

    /// What must be done before new work on this stream may begin.
    fn before(&self, stream: &Stream) -> Vec<Ticket> {
        let others = |other: &&Stream| {
            other.device == stream.device && other.blocking && !Arc::ptr_eq(&other.line, &stream.line)
        };
        match (stream.blocking, stream.is_default) {
            (false, _) => Vec::new(),
            (true, false) => {
                self.defaults.get(&(stream.device, None)).map(Stream::last_ticket).into_iter().collect()
            }
            (true, true) => self.all().filter(others).map(Stream::last_ticket).collect(),
        }
    }
}

/// One stream.
#[derive(Clone, Debug)]
pub(crate) struct Stream {
    /// Ordinal of its device.
    pub(crate) device: usize,
    blocking: bool,
    is_default: bool,
    line: Arc<Line>,
}

impl Stream {
    fn start(call: &Call<'_>, blocking: bool, is_default: bool) -> Result<Self> {
        let line = Arc::new(Line { queue: Mutex::default(), changed: Condvar::new() });
        let config = &call.driver.config;
        let runner = Runner {
            line: Arc::clone(&line),
            violations: call.driver.violations.clone(),
            delay: if is_default { Duration::ZERO } else { config.stream_delay },
            hangs: config.streams_hang && !is_default,
            turn: config.serial_host_functions.then(|| Arc::clone(&call.driver.host_functions)),
        };
        thread::Builder::new().name("fake-cuda stream".to_owned()).spawn(move || runner.run())?;
        Ok(Self { device: call.current, blocking, is_default, line })
    }

    /// What is done when all that is in the stream now is done.
    fn last_ticket(&self) -> Ticket {
        Ticket { line: Arc::clone(&self.line), number: self.line.lock().submitted }
    }
}

/// Work that is in a stream.
#[derive(Debug)]
pub(crate) struct Ticket {
    line: Arc<Line>,
    number: u64,
}

impl Ticket {
    /// Waits until it is done.
    ///
    /// # Errors
    /// [`Code::LAUNCH_FAILED`] if it never will be, because the driver is gone.
    pub(crate) fn wait(&self) -> Result<()> {
        let mut queue = self.line.lock();
        while queue.done < self.number {
            if queue.abandoned {
                return Err(Code::LAUNCH_FAILED);
            }
            queue = self.line.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
        Ok(())
    }

    /// The same, but not for ever: `false` if it is not done by then.
    fn wait_until(&self, deadline: Instant) -> bool {
        let mut queue = self.line.lock();
        while queue.done < self.number && !queue.abandoned {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            queue = self.line.changed.wait_timeout(queue, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    fn is_done(&self) -> bool {
        self.line.lock().done >= self.number
    }
}

/// What a stream can be asked to do.
pub(crate) enum Work {
    Copy(Copy),
    Fill(Fill),
    /// This record of the event is complete.
    Record(Arc<Cells>, u64),
    /// Wait for a record of an event.
    Wait(Waiting),
    /// A host function.
    Host(Box<dyn FnOnce() + Send>),
    /// Nothing: it is waited for.
    Mark,
}

impl fmt::Debug for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Copy(_) => "Copy",
            Self::Fill(_) => "Fill",
            Self::Record(..) => "Record",
            Self::Wait(_) => "Wait",
            Self::Host(_) => "Host",
            Self::Mark => "Mark",
        })
    }
}

impl Call<'_> {
    /// `cuStreamCreate` and `cuStreamCreateWithPriority`.
    ///
    /// # Errors
    /// [`Code::INVALID_VALUE`] for flags other than `CU_STREAM_NON_BLOCKING`, [`Code::OPERATING_SYSTEM`] without a thread.
    pub fn stream_create(&self, flags: u32) -> Result<u64> {
        if flags & !NON_BLOCKING != 0 {
            return Err(Code::INVALID_VALUE);
        }
        let stream = Stream::start(self, flags & NON_BLOCKING == 0, false)?;
        let mut state = self.state();
        let handle = STREAMS + state.new_id();
        state.streams.by_handle.insert(handle, stream);
        Ok(handle)
    }

    /// `cuStreamDestroy`: returns at once; what is in the stream is still done.
    ///
    /// # Errors
    /// [`Code::INVALID_HANDLE`], for the default stream too.
    pub fn stream_destroy(&self, handle: u64) -> Result<()> {
        let mut state = self.state();
        let stream = state.streams.by_handle.remove(&handle).ok_or(Code::INVALID_HANDLE)?;
        stream.line.lock().closed = true;
        stream.line.changed.notify_all();
        state.streams.ending.retain(|ending| !ending.last_ticket().is_done());
        state.streams.ending.push(stream);
        Ok(())
    }

    /// `cuStreamSynchronize`: waits until all is done that is in the stream.
    ///
    /// # Errors
    /// [`Code::INVALID_HANDLE`]
    pub fn stream_synchronize(&self, handle: u64) -> Result<()> {
        if handle <= LAST_DEFAULT {
            // It waits for the blocking streams, too.
            return self.enqueue(handle, Work::Mark)?.wait();
        }
        self.stream(handle)?.last_ticket().wait()
    }

    /// `cuStreamQuery`.
    ///
    /// # Errors
    /// [`Code::NOT_READY`] if something is not done, [`Code::INVALID_HANDLE`].
    pub fn stream_query(&self, handle: u64) -> Result<()> {
        if self.stream(handle)?.last_ticket().is_done() { Ok(()) } else { Err(Code::NOT_READY) }
    }

    /// `cuCtxSynchronize`: waits for all streams of the current context.
    ///
    /// # Errors
    /// None that is likely.
    pub fn ctx_synchronize(&self) -> Result<()> {
        self.tickets(self.current).iter().try_for_each(Ticket::wait)
    }

    /// Waits for all streams of a device, as calls that free or close its memory do.
    ///
    /// # Errors
    /// [`Code::TIMEOUT`] after [`Config::close_limit`](crate::Config::close_limit), which is a violation: CUDA would never
    /// return.
    pub(crate) fn wait_for_device(&self, device: usize) -> Result<()> {
        let deadline = Instant::now() + self.driver.config.close_limit;
        if self.tickets(device).iter().all(|ticket| ticket.wait_until(deadline)) {
            return Ok(());
        }
        self.violation("waits for a stream that does not get on, for ever");
        Err(Code::TIMEOUT)
    }

    /// All that is in the streams of a device now.
    fn tickets(&self, device: usize) -> Vec<Ticket> {
        let state = self.state();
        state.streams.all().filter(|stream| stream.device == device).map(Stream::last_ticket).collect()
    }

    /// `cuLaunchHostFunc`: runs on the stream's thread, where no other call is allowed.
    ///
    /// # Errors
    /// [`Code::INVALID_HANDLE`]
    pub fn launch_host_function(&self, stream: u64, function: Box<dyn FnOnce() + Send>) -> Result<()> {
        self.enqueue(stream, Work::Host(function)).map(drop)
    }

    /// The stream of this handle. 0 and `CU_STREAM_LEGACY` are the default stream, `CU_STREAM_PER_THREAD` is the calling
    /// thread's.
    pub(crate) fn stream(&self, handle: u64) -> Result<Stream> {
        self.stream_in(&mut self.state(), handle)
    }

    fn stream_in(&self, state: &mut State, handle: u64) -> Result<Stream> {
        if handle > LAST_DEFAULT {
            return state.streams.by_handle.get(&handle).cloned().ok_or(Code::INVALID_HANDLE);
        }
        let owner = (handle == PER_THREAD).then(|| thread::current().id());
        if let Some(stream) = state.streams.defaults.get(&(self.current, owner)) {
            return Ok(stream.clone());
        }
        let stream = Stream::start(self, true, owner.is_none())?;
        state.streams.defaults.insert((self.current, owner), stream.clone());
        Ok(stream)
    }

    /// Puts work into a stream.
    pub(crate) fn enqueue(&self, handle: u64, work: Work) -> Result<Ticket> {
        let mut state = self.state();
        let stream = self.stream_in(&mut state, handle)?;
        let mut after = state.streams.before(&stream);
        after.retain(|ticket| !ticket.is_done());
        let mut queue = stream.line.lock();
        queue.items.push_back(Item { after, work, hangs: self.hangs });
        queue.submitted += 1;
        let number = queue.submitted;
        drop(queue);
        stream.line.changed.notify_all();
        Ok(Ticket { line: stream.line, number })
    }
}

/// A stream's queue, and how far it is.
#[derive(Debug)]
struct Line {
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    items: VecDeque<Item>,
    /// How much was ever put into it, and how much of that is done.
    submitted: u64,
    done: u64,
    /// Nothing more comes.
    closed: bool,
    /// Nobody waits any more.
    abandoned: bool,
}

#[derive(Debug)]
struct Item {
    after: Vec<Ticket>,
    work: Work,
    hangs: bool,
}

impl Line {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next thing to do. `None` at the end.
    fn next(&self) -> Option<Item> {
        let mut queue = self.lock();
        loop {
            if queue.abandoned {
                return None;
            }
            if let Some(item) = queue.items.pop_front() {
                return Some(item);
            }
            if queue.closed {
                return None;
            }
            queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Waits for the end of the driver.
    fn hang(&self) {
        let mut queue = self.lock();
        while !queue.abandoned {
            queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// A stream's thread.
struct Runner {
    line: Arc<Line>,
    violations: Violations,
    delay: Duration,
    hangs: bool,
    /// What a host function holds, where one runs at a time.
    turn: Option<Arc<Mutex<()>>>,
}

impl Runner {
    fn run(self) {
        while let Some(Item { after, work, hangs }) = self.line.next() {
            if hangs || self.hangs {
                return self.line.hang();
            }
            if after.iter().try_for_each(Ticket::wait).is_err() {
                return;
            }
            pause(self.delay);
            // What the work holds is gone before anybody hears that it is done.
            if let Err(error) = self.do_work(work) {
                self.violations.add(format!("work on a stream failed: {error}"));
            }
            self.line.lock().done += 1;
            self.line.changed.notify_all();
        }
    }

    fn do_work(&self, work: Work) -> io::Result<()> {
        match work {
            Work::Copy(copy) => copy.run(pause, self.delay),
            Work::Fill(fill) => fill.run(pause, self.delay),
            Work::Record(cells, record) => cells.complete(record),
            Work::Wait(waiting) => waiting.wait(|| self.line.lock().abandoned),
            Work::Host(function) => {
                let _turn =
                    self.turn.as_ref().map(|turn| turn.lock().unwrap_or_else(PoisonError::into_inner));
                IN_HOST_FUNCTION.set(true);
                function();
                IN_HOST_FUNCTION.set(false);
                Ok(())
            }
            Work::Mark => Ok(()),
        }
    }
}

/// Whether this thread is running a host function, in which no call is allowed.
pub(crate) fn is_in_host_function() -> bool {
    IN_HOST_FUNCTION.get()
}

thread_local! {
    static IN_HOST_FUNCTION: Cell<bool> = const { Cell::new(false) };
}

fn pause(duration: Duration) {
    if !duration.is_zero() {
        thread::sleep(duration);
    }
}

/// Handles up to this are those of default streams.
const LAST_DEFAULT: u64 = PER_THREAD;
/// `CU_STREAM_PER_THREAD`
const PER_THREAD: u64 = 2;
/// The only flag of a stream.
const NON_BLOCKING: u32 = 1;
/// Handles of streams: numbers, never addresses.
const STREAMS: u64 = 0x57_0000_0000_0000;
