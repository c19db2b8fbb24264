//! [`StreamReceiver`]: publishes the frames of other hosts.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use cuframes_bridge::stream::{Receiver, ReceiverConfig};
use cuframes_core::{Key, Policy, RingSize, Timeouts};

use super::event::IntakeEvent;
use super::intake::Intake;
use super::receiver_options;
use super::streams::Terms;
use crate::clock;
use crate::net::{Carrier, Driver, Endpoint, Listeners, NetError, Plain};
use crate::pollable::Pollable;

/// Settings of a receiver; [`listen`](Self::listen) makes it.
#[derive(Clone, Debug)]
#[must_use]
pub struct StreamReceiverBuilder {
    endpoint: Endpoint,
    config: ReceiverConfig,
    terms: Terms,
}

impl StreamReceiverBuilder {
    /// The only stream that is wanted, by its name there; by default all are.
    pub fn key(mut self, key: Key) -> Self {
        self.terms.key = Some(key);
        self
    }

    /// What comes before the name of each stream here; nothing by default.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.terms.prefix = prefix.into();
        self
    }

    /// Publishes nothing: frames are [asked for](StreamReceiver::fetch).
    pub const fn on_demand(mut self) -> Self {
        self.terms.on_demand = true;
        self
    }

    /// Publishes so many frames, of all streams together; without a limit by default. What comes after them waits at its sender,
    /// which keeps it for the next receiver if it is strict.
    pub const fn frames(mut self, frames: u64) -> Self {
        self.terms.frames = frames;
        self
    }

    /// Slots of each ring; by default as many as the stream has there.
    pub const fn ring_size(mut self, ring_size: RingSize) -> Self {
        self.terms.ring_size = Some(ring_size);
        self
    }

    /// What to do about slow subscribers; by default the same as there. Under STRICT_WAIT the sender is held up until they have
    /// seen each frame.
    pub const fn policy(mut self, policy: Policy) -> Self {
        self.terms.policy = Some(policy);
        self
    }

    /// Deadlines of the streams.
    pub const fn timeouts(mut self, timeouts: Timeouts) -> Self {
        self.terms.timeouts = timeouts;
        self
    }

    /// As [`PublisherBuilder::run_dir`](crate::PublisherBuilder::run_dir).
    pub fn run_dir(mut self, run_dir: impl Into<PathBuf>) -> Self {
        self.terms.run_dir = Some(run_dir.into());
        self
    }

    /// Bytes of shared memory for all streams; 2 GiB by default. A stream that needs more is refused.
    pub const fn memory(mut self, bytes: u64) -> Self {
        self.terms.memory = bytes;
        self
    }

    /// How long a stream stays without its sender; 30 s by default. A sender that comes back goes on with it.
    pub const fn linger(mut self, linger: Duration) -> Self {
        self.terms.linger = linger;
        self
    }

    /// How many senders at a time, and how many streams; 64 by default. A stream without a sender makes room for one that has one.
    pub const fn senders(mut self, senders: usize) -> Self {
        self.config.senders = senders;
        self
    }

    /// For how long nothing may come in the middle of a frame; 60 s by default.
    pub const fn stall(mut self, stall: Duration) -> Self {
        self.config.stall = stall;
        self
    }

    /// Listens.
    ///
    /// # Errors
    /// If the socket or the event loop can't be made.
    pub fn listen(self) -> Result<StreamReceiver, NetError> {
        self.listen_over(Plain)
    }

    /// As [`listen`](Self::listen), over any [`Carrier`].
    ///
    /// # Errors
    /// As [`listen`](Self::listen).
    pub fn listen_over<C: Carrier>(self, carrier: C) -> Result<StreamReceiver<C>, NetError> {
        let Self { endpoint, config, mut terms } = self;
        terms.streams = config.senders;
        let listeners = Listeners::new([&endpoint])?;
        let endpoint = listeners.endpoints().next().cloned().unwrap_or(endpoint);
        let system = |error| NetError::system("receive at", &endpoint, error);
        let driver = Driver::with_carrier(Receiver::new(config), listeners, carrier);
        let driver = driver.socket_options(receiver_options(&endpoint)).map_err(system)?;
        let intake = Pollable::new(Intake::new(driver, terms)).map_err(system)?;
        Ok(StreamReceiver { endpoint, intake })
    }
}

/// Publishes the frames of other hosts here, any number of streams. Dropping it closes every connection and ends the streams.
#[derive(Debug)]
pub struct StreamReceiver<C: Carrier = Plain> {
    endpoint: Endpoint,
    intake: Pollable<Intake<C>>,
}

impl StreamReceiver {
    /// Settings of a receiver that listens on `endpoint`. Peers are not authenticated, and nothing is encrypted: whoever can
    /// connect can publish.
    pub fn builder(endpoint: Endpoint) -> StreamReceiverBuilder {
        let terms = Terms {
            key: None,
            prefix: String::new(),
            on_demand: false,
            frames: u64::MAX,
            ring_size: None,
            policy: None,
            timeouts: Timeouts::default(),
            run_dir: None,
            memory: 2 << 30,
            linger: Duration::from_secs(30),
            streams: 0,
        };
        StreamReceiverBuilder { endpoint, config: ReceiverConfig::default(), terms }
    }
}

impl<C: Carrier> StreamReceiver<C> {
    /// Where senders connect, with the port that the system chose.
    #[must_use]
    pub const fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// How many senders are connected.
    #[must_use]
    pub fn senders(&self) -> usize {
        self.intake.get_ref().senders()
    }

    /// The next thing that happens, within `timeout` (`None`: however long it takes; but a signal may end the wait).
    ///
    /// # Errors
    /// If the event loop fails.
    pub fn next_event(&mut self, timeout: Option<Duration>) -> io::Result<Option<IntakeEvent>> {
        self.intake.poll_within(timeout, Intake::poll_event)
    }

    /// See [`Intake::fetch`].
    ///
    /// # Errors
    /// If the event loop fails.
    pub fn fetch(&mut self, key: &Key, seq: Option<u64>) -> io::Result<bool> {
        self.intake.with(|intake| intake.fetch(clock::now(), key, seq))
    }

    /// See [`Intake::shut_down`].
    ///
    /// # Errors
    /// If the event loop fails.
    pub fn shut_down(&mut self) -> io::Result<()> {
        self.intake.with(|intake| intake.shut_down(clock::now()))
    }

    /// For an event loop of your own.
    #[must_use]
    pub fn into_intake(self) -> Intake<C> {
        self.intake.into_inner()
    }
}
