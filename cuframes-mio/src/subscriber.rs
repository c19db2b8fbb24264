//! [`Subscriber`]: receives the frames of a stream.

use std::hint;
use std::io;
use std::mem;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use cuframes_core::gpu::Import;
use cuframes_core::ring::Seq;
use cuframes_core::shm::StreamHeader;
use cuframes_core::{Features, FrameMeta, Instant, Key, SubscriberBit, ring};
use mio::{Registry, Token};

use crate::clock;
use crate::connect::{Finder, SubscriberBuilder};
use crate::error::Error;
use crate::frame::{Attachment, Frame};
use crate::host::HostMemory;
use crate::pollable::{EventSource, Turn};
use crate::pursuit::{CONN, PLACES, Pursuit, WATCH};
use crate::reconnect::{Reconnect, StreamEvent};
use crate::shm::MappedRegion;
use crate::tally::{Common, SubscriberStats};
use crate::wake::sleep;

/// Receives the frames of one stream.
///
/// Blocking: [`connect`](SubscriberBuilder::connect), then [`next`](Self::next). In an event loop:
/// [`start`](SubscriberBuilder::start), then register it ([`EventSource`], or as a [`Pollable`](crate::Pollable)) and
/// call [`poll_next`](Self::poll_next) after each event until it returns `None`.
///
/// Dropping it says UNSUBSCRIBE, when the last of its frames is released (D-10).
///
/// # When the publisher is gone
///
/// It says SHUTDOWN, or its connection ends. Then the subscriber returns [`Error::Gone`]; after SHUTDOWN the frames that
/// are left come first (D-30). Everything is unmapped at once but what frames that are held need.
///
/// With [`reconnect`](SubscriberBuilder::reconnect) it looks for the next publisher instead, as [`Reconnect`] says, and
/// [`next`](Self::next) just has no frame meanwhile. So it does when it was evicted, or when a publisher has no room.
/// [`poll_event`](Self::poll_event) tells what happened, and [`trouble`](Self::trouble) why nobody is there. Nothing of the
/// old stream is used again: [`Frame::epoch`], [`Frame::meta`] and [`Frame::seq`] are those of the frame's own publisher.
/// From the publisher that it had before, if that evicted it, it takes no frame twice.
///
/// It still ends where waiting does not help: the publisher breaks the protocol, does not let us in, or has its frames where
/// we can't use them.
///
/// ```
/// use std::thread;
/// use std::time::Duration;
///
/// use cuframes_mio::core::wire::ShutdownReason;
/// use cuframes_mio::core::{Format, FrameMeta, Key};
/// use cuframes_mio::{Publisher, Reconnect, StreamEvent, Subscriber};
///
/// # let dir = tempfile::tempdir()?;
/// # let key: Key = format!("doc-reconnect-{}", std::process::id()).parse()?;
/// let builder = Subscriber::builder(key.clone()).reconnect(Reconnect::default());
/// # let builder = builder.run_dir(dir.path());
/// let mut subscriber = builder.start()?; // there is no publisher yet
///
/// for (format, width) in [(Format::GRAY8, 640), (Format::RGB24, 320)] {
///     // Usually another process, and then its successor.
///     let builder = Publisher::builder(key.clone(), FrameMeta::new(format, width, 200)?);
/// #   let builder = builder.run_dir(dir.path());
///     let mut publisher = builder.create()?.serve()?;
///     publisher.claim()?.commit();
///
///     let frame = subscriber.next(Duration::from_secs(5))?.ok_or("no frame in time")?;
///     assert_eq!((frame.seq(), frame.meta().format, frame.meta().width), (1, format, width));
///     while let Some(event) = subscriber.poll_event() {
///         match event {
///             StreamEvent::Attached { meta, format_changed, .. } => {
///                 assert_eq!((meta, format_changed), (*frame.meta(), width == 320));
///             }
///             StreamEvent::Lost(error) => println!("{error}"),
///             _ => {}
///         }
///     }
///     drop(frame);
///     let stopping = thread::spawn(move || publisher.shut_down(ShutdownReason::UPGRADE));
///     while subscriber.is_attached() {
///         subscriber.next(Duration::from_millis(10))?;
///     }
///     stopping.join().map_err(|_| "the publisher panicked")??;
/// }
/// assert_eq!(subscriber.stats().reconnects, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # After a fork
///
/// A child that was forked, and did not start another program, must not use its parent's subscriber: every call returns
/// [`Error::Forked`], releasing a frame has no effect on the stream, and dropping either says nothing to the publisher.
#[derive(Debug)]
pub struct Subscriber<B: Import<Fd = OwnedFd> = HostMemory> {
    pursuit: Pursuit<B>,
    /// The publisher was told that we sleep.
    parked: bool,
    /// When to look again although nobody rang (X-3).
    look_again: Option<Instant>,
    /// How many looks in a row have found nothing, without a system call.
    idle_looks: u32,
    /// How long to look before sleeping.
    spin: Duration,
}

impl Subscriber {
    /// Settings of a new subscription.
    pub fn builder(key: Key) -> SubscriberBuilder {
        SubscriberBuilder::new(key)
    }
}

impl<B: Import<Fd = OwnedFd>> Subscriber<B> {
    pub(crate) fn start(
        finder: Finder<B>,
        common: Arc<Common>,
        reconnect: Option<Reconnect>,
        spin: Duration,
    ) -> Result<Self, Error> {
        let pursuit = Pursuit::begin(clock::now(), finder, common, reconnect)?;
        Ok(Self { pursuit, parked: false, look_again: None, idle_looks: 0, spin })
    }

    /// The next frame; waits for it up to `timeout`. `None`: there was none in time. With no time at all it looks once: at the
    /// ring, and at what has come on the connection or from the run directories.
    ///
    /// # Errors
    /// [`Error::Gone`] when the stream has ended and everything published was handed out, [`Error::Refused`] when the
    /// publisher refused or evicted us, or whatever else ended the subscription. With
    /// [`reconnect`](SubscriberBuilder::reconnect) only what no waiting can cure.
    pub fn next(&mut self, timeout: Duration) -> Result<Option<Frame<B>>, Error> {
        if !self.spin.is_zero()
            && let Some(frame) = self.spin(timeout)?
        {
            return Ok(Some(frame));
        }
        let mut deadline = None;
        loop {
            if let Some(frame) = self.poll_next()? {
                return Ok(Some(frame));
            }
            let now = clock::now();
            // Not before the first sleep, however short: only that handles what has come.
            if deadline.is_some_and(|deadline| deadline <= now) {
                return Ok(None);
            }
            self.sleep(now, *deadline.get_or_insert(now + timeout))?;
        }
    }

    /// Looks for the next frame again and again, while somebody is there who could publish it.
    fn spin(&mut self, timeout: Duration) -> Result<Option<Frame<B>>, Error> {
        let mut end = None;
        loop {
            let frame = self.try_next()?;
            if frame.is_some() || !self.is_attached() {
                return Ok(frame);
            }
            let now = clock::now();
            let end = *end.get_or_insert_with(|| now + self.spin.min(timeout));
            if end <= now {
                return Ok(None);
            }
            hint::spin_loop();
        }
    }

    /// The next frame if there is one. Makes no system call, but for a look at the connection once in a thousand calls
    /// that find nothing: for a loop that spins.
    ///
    /// # Errors
    /// As [`next`](Self::next).
    #[inline]
    pub fn try_next(&mut self) -> Result<Option<Frame<B>>, Error> {
        if !self.is_here() {
            return Err(self.forked());
        }
        // The connection first, the ring second: what was published before SHUTDOWN is there when SHUTDOWN has been read.
        if self.idle_looks >= LOOKS_BEFORE_SYSTEM_CALL {
            self.look_around();
        }
        if let Some(subscription) = &mut self.pursuit.subscription
            && let Some(attached) = &mut subscription.attached
        {
            if self.parked {
                self.parked = false;
                self.look_again = None;
                attached.reader.unpark();
            }
            // This publisher's frames up to here were handed out before it evicted us.
            let resume_after = subscription.resume_after;
            let frame = loop {
                match attached.reader.next() {
                    Some(frame) if frame.seq().get() <= resume_after => {}
                    frame => break frame,
                }
            };
            match frame {
                Some(frame) if attached.reader.seat().is_held() => {
                    subscription.resume_after = 0;
                    let thrown_away = mem::take(&mut subscription.thrown_away);
                    return Ok(Some(self.hand_out(frame, resume_after, thrown_away)));
                }
                // Evicted: the connection says so. Or somebody has written over our state, which will be put right.
                Some(frame) => {
                    subscription.thrown_away += frame.lost() + 1;
                    self.look_around();
                }
                None if attached.reader.is_shutting_down() => self.idle_looks = LOOKS_BEFORE_SYSTEM_CALL,
                None => {}
            }
        }
        self.idle_looks = self.idle_looks.saturating_add(1);
        if self.pursuit.is_under_way() {
            return Ok(None);
        }
        self.pursuit.go_on_or_end(clock::now()).map(|()| None)
    }

    /// As [`try_next`](Self::try_next); but when it returns `None` the event loop wakes up for the next frame.
    ///
    /// # Errors
    /// As [`next`](Self::next).
    pub fn poll_next(&mut self) -> Result<Option<Frame<B>>, Error> {
        loop {
            if let Some(frame) = self.try_next()? {
                return Ok(Some(frame));
            }
            let Some(attached) = self.pursuit.attached() else { return Ok(None) };
            if attached.reader.park() {
                self.look_again = Some(clock::now() + attached.look_again_after());
                self.parked = true;
                return Ok(None);
            }
        }
    }

    /// Frame `seq`, if it is there: published, and not overwritten yet. After SHUTDOWN, too, as long as we are
    /// [attached](Self::is_attached): this never ends the subscription, even if nothing newer can come. Handles what has come
    /// on the connection, and waits for nothing.
    ///
    /// A publisher does not keep a frame for who will ask for it by its number; but what another subscriber holds under a lease
    /// is there. So one process can hold a frame and let others work on it. Each process gets it once at a time, by this or by
    /// [`next`](Self::next), and shares it among its threads: while it holds it, `None` is all that it gets.
    ///
    /// What [`next`](Self::next) hands out does not depend on it, and releasing it acknowledges nothing: whoever only asks for
    /// frames by their number subscribes with [`no_ack`](SubscriberBuilder::no_ack). Numbers are those of the publisher that is
    /// there now: with [`reconnect`](SubscriberBuilder::reconnect) compare [`Frame::epoch`].
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use cuframes_mio::core::{Format, FrameMeta, Key};
    /// use cuframes_mio::{Publisher, Subscriber};
    ///
    /// # let dir = tempfile::tempdir()?;
    /// # let key: Key = format!("doc-frame-{}", std::process::id()).parse()?;
    /// # let publisher = Publisher::builder(key.clone(), FrameMeta::new(Format::GRAY8, 640, 480)?).run_dir(dir.path());
    /// # let mut publisher = publisher.create()?.serve()?;
    /// # let builder = Subscriber::builder(key.clone()).run_dir(dir.path());
    /// let mut dispatcher = builder.connect()?;
    /// # let builder = Subscriber::builder(key).run_dir(dir.path());
    /// let mut worker = builder.no_ack().connect()?; // in another process
    /// publisher.claim()?.commit();
    ///
    /// let held = dispatcher.next(Duration::from_secs(5))?.ok_or("no frame in time")?;
    /// let frame = worker.frame(held.seq())?.ok_or("it is held, and yet it is gone")?;
    /// // ... work on it ...
    /// frame.check()?; // nobody has taken it away meanwhile
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`next`](Self::next), once we are not attached any more.
    pub fn frame(&mut self, seq: u64) -> Result<Option<Frame<B>>, Error> {
        if !self.is_here() {
            return Err(self.forked());
        }
        let before = (self.is_attached(), self.pursuit.is_under_way());
        self.look_around();
        if (self.is_attached(), self.pursuit.is_under_way()) != before {
            // An event loop does not wake up for what was read here, and has to go on with it.
            self.look_again = Some(clock::now());
        }
        let Some(attached) = self.pursuit.subscription.as_mut().and_then(|there| there.attached.as_mut())
        else {
            return self.pursuit.go_on_or_end(clock::now()).map(|()| None);
        };
        let frame = Seq::new(seq).and_then(|seq| attached.reader.get(seq));
        // Who was evicted has no lease.
        let Some(inner) = frame.filter(|_| attached.reader.seat().is_held()) else { return Ok(None) };
        self.pursuit.tally.frame_by_number();
        Ok(Some(Frame { inner, lost: 0 }))
    }

    /// What happened to the stream since the last call, oldest first; the last 64 are kept.
    pub fn poll_event(&mut self) -> Option<StreamEvent> {
        self.pursuit.poll_event()
    }

    /// Whether a handshake has been completed. From then on the facts about the stream below are there, also when it has
    /// ended; after a reconnect they are those of the new one.
    #[must_use]
    pub const fn is_ready(&self) -> bool {
        self.pursuit.facts.is_some()
    }

    /// Whether a publisher is there now, or was there and has left frames to take.
    #[must_use]
    pub fn is_attached(&self) -> bool {
        self.pursuit.attached().is_some()
    }

    /// Why no publisher is there: what the last attempt to reach one came to, while a subscriber that
    /// [reconnects](SubscriberBuilder::reconnect) looks for one.
    #[must_use]
    pub const fn trouble(&self) -> Option<&Error> {
        self.pursuit.trouble.as_ref()
    }

    /// What it has seen so far, through every reconnect.
    #[must_use]
    pub fn stats(&self) -> SubscriberStats {
        self.pursuit.tally.stats(clock::now(), &self.pursuit.common)
    }

    /// What the stream's region says about it, once [ready](Self::is_ready).
    #[must_use]
    pub fn header(&self) -> Option<&StreamHeader> {
        self.pursuit.facts.as_ref().map(|facts| &facts.header)
    }

    /// Geometry of every frame, once [ready](Self::is_ready).
    #[must_use]
    pub fn meta(&self) -> Option<&FrameMeta> {
        self.header().map(|header| &header.meta)
    }

    /// The assigned bit, once [ready](Self::is_ready).
    #[must_use]
    pub fn bit(&self) -> Option<SubscriberBit> {
        self.pursuit.facts.as_ref().map(|facts| facts.bit)
    }

    /// The extensions in force, once [ready](Self::is_ready).
    #[must_use]
    pub fn features(&self) -> Option<Features> {
        self.pursuit.facts.as_ref().map(|facts| facts.features)
    }

    /// The stream's key.
    #[must_use]
    pub const fn key(&self) -> &Key {
        self.pursuit.key()
    }

    /// Waits until it is [ready](Self::is_ready), for at most `timeout`, and answers whether it is: for one that was
    /// [started](SubscriberBuilder::start) where something else may end the waiting, too. With no time at all it looks once.
    ///
    /// # Errors
    /// As [`SubscriberBuilder::connect`], but for what passes while a publisher is looked for.
    pub fn wait_until_ready(&mut self, timeout: Duration) -> Result<bool, Error> {
        self.wait_ready(None, clock::now() + timeout)
    }

    /// Waits until the first handshake is complete; its own deadlines end it. While there is nobody to shake hands with,
    /// `deadline` does, if there is one. Answers whether it is complete, which it need not be at `pause`.
    pub(crate) fn wait_ready(&mut self, deadline: Option<Instant>, pause: Instant) -> Result<bool, Error> {
        if !self.is_here() {
            return Err(self.forked());
        }
        let mut has_slept = false;
        while !self.is_ready() {
            let now = clock::now();
            self.pursuit.go_on_or_end(now)?;
            let deadline = deadline.filter(|_| self.pursuit.subscription.is_none());
            if let Some(trouble) = self.pursuit.trouble.take_if(|_| deadline.is_some_and(|end| end <= now)) {
                return Err(trouble);
            }
            if pause <= now && mem::replace(&mut has_slept, true) {
                return Ok(false);
            }
            self.sleep(now, deadline.map_or(pause, |deadline| deadline.min(pause)))?;
        }
        Ok(true)
    }

    pub(crate) const fn pursuit(&self) -> &Pursuit<B> {
        &self.pursuit
    }

    #[inline]
    fn hand_out(
        &mut self,
        inner: ring::Frame<Arc<MappedRegion>, Attachment<B>>,
        resume_after: u64,
        thrown_away: u64,
    ) -> Frame<B> {
        let seq = inner.seq().get();
        let lost = if resume_after == 0 { inner.lost() + thrown_away } else { seq - resume_after - 1 };
        self.idle_looks = 0;
        self.pursuit.tally.frame(clock::recent(), seq, lost);
        Frame { inner, lost }
    }

    /// For a loop that spins: does what an event loop would.
    #[cold]
    fn look_around(&mut self) {
        self.idle_looks = 0;
        let now = clock::now();
        for place in [CONN, WATCH] {
            // What is left after the budget is read by the next look.
            let _ = self.pursuit.handle(place, now);
        }
        self.pursuit.handle_timeout(now);
    }

    /// Sleeps until a frame or a message comes, or `deadline`, and handles what came.
    fn sleep(&mut self, now: Instant, deadline: Instant) -> Result<(), Error> {
        let due = self.poll_timeout().map_or(deadline, |due| due.min(deadline));
        let limit = due.saturating_since(now);
        let (conn, other) = self.pursuit.sleep_on();
        let slept = match (conn, other) {
            (Some(conn), Some((other, _))) => sleep([conn, other], limit),
            (Some(conn), None) => sleep([conn], limit).map(|[conn]| [conn, false]),
            (None, Some((other, _))) => sleep([other], limit).map(|[other]| [false, other]),
            (None, None) => sleep([], limit).map(|[]| [false, false]),
        };
        let place = other.map(|(_, place)| place);
        let failed = |error| Error::system(self.pursuit.key(), "wait for a frame", error);
        let [is_conn, is_other] = slept.map_err(failed)?;
        self.pursuit.tally.wake_ups += u64::from(is_conn || is_other || !limit.is_zero());
        let now = clock::now();
        for place in [place.filter(|_| is_other), Some(CONN).filter(|_| is_conn)].into_iter().flatten() {
            // What is left after the budget is seen by the next poll, which is level-triggered.
            let _ = self.pursuit.handle(place, now);
        }
        self.time_out(now);
        Ok(())
    }

    fn time_out(&mut self, now: Instant) {
        // Once: whoever is driven looks again now, or when it wants to.
        self.look_again.take_if(|due| *due <= now);
        self.pursuit.handle_timeout(now);
    }

    #[inline]
    fn is_here(&self) -> bool {
        self.pursuit.common.home.is_here()
    }

    #[cold]
    fn forked(&self) -> Error {
        Error::Forked { key: self.key().clone() }
    }
}

impl<B: Import<Fd = OwnedFd>> EventSource for Subscriber<B> {
    const TOKENS: usize = PLACES;

    fn register(&mut self, registry: &Registry, first_token: Token) -> io::Result<()> {
        if !self.is_here() {
            return Err(io::Error::other(self.forked()));
        }
        self.pursuit.register(registry, first_token)
    }

    fn handle_event(&mut self, token: Token, now: Instant) -> io::Result<Turn> {
        if !self.is_here() {
            return Err(io::Error::other(self.forked()));
        }
        self.pursuit.tally.wake_ups += 1;
        Ok(self.pursuit.place(token).map_or(Turn::Idle, |place| self.pursuit.handle(place, now)))
    }

    fn handle_timeout(&mut self, now: Instant) {
        if self.is_here() {
            self.pursuit.tally.wake_ups += u64::from(self.poll_timeout().is_some_and(|due| due <= now));
            self.time_out(now);
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.pursuit.poll_timeout().into_iter().chain(self.look_again).min()
    }
}

/// How often `try_next` looks at the ring alone before it looks at the connection.
const LOOKS_BEFORE_SYSTEM_CALL: u32 = 1024;
