//! [`StreamSender`]: sends the frames of a stream to another host.

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use cuframes_bridge::stream::{Announcement, Sender, SenderConfig, SenderStats};
use cuframes_core::gpu::Import;
use cuframes_core::shm::StreamHeader;
use cuframes_core::{Features, Key};

use super::courier::Courier;
use super::event::CourierEvent;
use super::parcel::Copier;
use super::sender_options;
use crate::clock;
use crate::error::Error;
use crate::frame::Frame;
use crate::host::HostMemory;
use crate::net::{Carrier, Driver, Endpoint, Listeners, NetError, Plain};
use crate::pollable::Pollable;
use crate::subscriber::Subscriber;

/// Settings of a sender; [`start`](Self::start) makes it.
#[derive(Clone, Debug)]
#[must_use]
pub struct StreamSenderBuilder {
    to: Endpoint,
    strict: bool,
    on_demand: bool,
    window: Option<usize>,
    stall: Duration,
    patience: Duration,
    frames: u64,
}

impl StreamSenderBuilder {
    /// Keeps each frame until it has arrived, also through a reconnect, and takes no more than [`window`](Self::window) of them:
    /// a STRICT_WAIT publisher waits then, a DROP_OLDEST publisher overwrites. For a subscriber in STRICT_ORDER. By default
    /// frames that the link is too slow for are left out, for a subscriber in NEWEST_ONLY that asked for
    /// [`no_ack`](crate::SubscriberBuilder::no_ack): nobody waits for it.
    pub const fn strict(mut self) -> Self {
        self.strict = true;
        self
    }

    /// Sends frames only when the receiver asks for them. For a subscriber that asked for
    /// [`no_ack`](crate::SubscriberBuilder::no_ack).
    pub const fn on_demand(mut self) -> Self {
        self.on_demand = true;
        self
    }

    /// How many frames may be on their way, each of which keeps a slot of the ring. By default two; for a
    /// [strict](Self::strict) one all but two of the ring's slots, and one at least.
    pub const fn window(mut self, window: usize) -> Self {
        self.window = Some(window);
        self
    }

    /// For how long nothing may go on before the connection is given up and made again; 60 s by default.
    pub const fn stall(mut self, stall: Duration) -> Self {
        self.stall = stall;
        self
    }

    /// How long what is on its way may still take when the stream has ended; 10 s by default.
    pub const fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Takes so many frames, and then finishes; by default it goes on until the stream ends.
    pub const fn frames(mut self, frames: u64) -> Self {
        self.frames = frames;
        self
    }

    /// Connects, and sends frames from now on. The subscriber must be [ready](Subscriber::is_ready).
    ///
    /// # Errors
    /// [`StreamSendError`] says what does not go together.
    pub fn start(self, subscriber: Subscriber) -> Result<StreamSender, StreamSendError> {
        let copier = Box::new(|frame: &Frame| {
            let mut bytes = vec![0; frame.len()];
            frame
                .copy_to(&mut bytes)
                .map(|_| bytes)
                .map_err(|lost| Error::Lost { key: frame.key().clone(), lost })
        });
        self.start_over(subscriber, copier, Plain)
    }

    /// As [`start`](Self::start), for frames in any memory, of which `copier` makes a copy where they can't be read where they
    /// are; and over any [`Carrier`].
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_over<B: Import<Fd = OwnedFd>, C: Carrier>(
        self,
        subscriber: Subscriber<B>,
        copier: Copier<B>,
        carrier: C,
    ) -> Result<StreamSender<B, C>, StreamSendError> {
        let Self { to, strict, on_demand, window, stall, patience, frames } = self;
        let key = subscriber.key().clone();
        let has_leases = subscriber.features().is_some_and(|features| features.contains(Features::LEASE));
        let header = subscriber.header().copied().filter(|_| has_leases);
        let StreamHeader { ring_size, policy, meta, .. } =
            header.ok_or_else(|| StreamSendError::NoLeases { key: key.clone() })?;
        let slots = usize::from(ring_size.get());
        let most = slots.saturating_sub(1);
        let default = if strict { slots.saturating_sub(2).max(1) } else { 2.min(most).max(1) };
        let window = window.unwrap_or(default);
        if window == 0 || window > most {
            return Err(StreamSendError::Window { key, window, slots });
        }
        let mut config = SenderConfig::new(to.to_string());
        (config.window, config.strict, config.stall) = (window, strict, stall);
        let announcement = Announcement { key, meta, policy, ring_size, strict };
        let sender = Sender::new(clock::now(), config, announcement);
        let system = |error| StreamSendError::Net(NetError::system("send to", &to, error));
        let driver = Driver::with_carrier(sender, Listeners::default(), carrier);
        let driver = driver.socket_options(sender_options(&to)).map_err(system)?;
        let courier = Courier::new(driver, subscriber, copier, (strict, on_demand), (frames, patience));
        let courier = Pollable::new(courier).map_err(system)?;
        Ok(StreamSender { window, courier })
    }
}

/// Sends the frames of a stream to another host, over one connection, which it makes again when it is lost. Dropping it ends
/// that connection.
#[derive(Debug)]
pub struct StreamSender<B: Import<Fd = OwnedFd> = HostMemory, C: Carrier = Plain> {
    window: usize,
    courier: Pollable<Courier<B, C>>,
}

impl StreamSender {
    /// Settings of a sender to the receiver at `to`. Peers are not authenticated, and nothing is encrypted.
    pub const fn builder(to: Endpoint) -> StreamSenderBuilder {
        StreamSenderBuilder {
            to,
            strict: false,
            on_demand: false,
            window: None,
            stall: Duration::from_secs(60),
            patience: Duration::from_secs(10),
            frames: u64::MAX,
        }
    }
}

impl<B: Import<Fd = OwnedFd>, C: Carrier> StreamSender<B, C> {
    /// How many frames may be on their way.
    #[must_use]
    pub const fn window(&self) -> usize {
        self.window
    }

    /// What has been sent, what was lost, and whether it is over.
    #[must_use]
    pub const fn courier(&self) -> &Courier<B, C> {
        self.courier.get_ref()
    }

    /// What the link has done so far.
    #[must_use]
    pub const fn stats(&self) -> SenderStats {
        self.courier.get_ref().stats()
    }

    /// The next thing that happens, within `timeout` (`None`: however long it takes; but a signal may end the wait). `None` at once
    /// when it is over and everything was told.
    ///
    /// # Errors
    /// If the event loop fails.
    pub fn next_event(&mut self, timeout: Option<Duration>) -> io::Result<Option<CourierEvent>> {
        let event = self.courier.poll_within(timeout, |courier| match courier.poll_event() {
            // Not every end is an event.
            None => courier.is_finished().then_some(None),
            event => Some(event),
        })?;
        Ok(event.flatten())
    }

    /// Takes no more frames, and waits until those that are on their way have arrived, or for `patience`.
    ///
    /// # Errors
    /// If the event loop fails.
    pub fn finish(&mut self, patience: Duration) -> io::Result<()> {
        self.courier.with(|courier| courier.finish(clock::now(), patience))?;
        while !self.courier.get_ref().is_finished() {
            let _ = self.courier.wait(None)?;
        }
        Ok(())
    }

    /// As [`finish`](Self::finish), without waiting: go on with [`next_event`](Self::next_event) until the
    /// [courier](Self::courier) is finished.
    ///
    /// # Errors
    /// If the event loop fails.
    pub fn close(&mut self, patience: Duration) -> io::Result<()> {
        self.courier.with(|courier| courier.finish(clock::now(), patience))
    }

    /// For an event loop of your own.
    #[must_use]
    pub fn into_courier(self) -> Courier<B, C> {
        self.courier.into_inner()
    }
}

/// Why the frames of a stream can't be sent.
#[derive(Debug)]
#[non_exhaustive]
pub enum StreamSendError {
    /// The stream is not there yet, or not any more, or its publisher grants no leases: frames could be overwritten while
    /// they are sent.
    NoLeases {
        /// The stream.
        key: Key,
    },
    /// As many frames on their way would leave the publisher no slot.
    Window {
        /// The stream.
        key: Key,
        /// How many.
        window: usize,
        /// How many slots it has.
        slots: usize,
    },
    /// The event loop or the sockets can't be made.
    Net(NetError),
}

impl fmt::Display for StreamSendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoLeases { key } => write!(
                f,
                "stream {key}: its publisher grants no leases, without which frames could be overwritten while they are sent; \
                 publish it with cuframes"
            ),
            Self::Window { key, slots: 1, .. } => {
                write!(f, "stream {key}: its ring has one slot, which its publisher needs; give it more")
            }
            Self::Window { key, window, slots } => write!(
                f,
                "stream {key}: of the {slots} slots of its ring {window} can't be on their way; use 1 to {}, or publish it with \
                 more slots",
                slots - 1
            ),
            Self::Net(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for StreamSendError {}
