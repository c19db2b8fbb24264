//! [`Barrier`]: the side that waits.

use std::os::fd::OwnedFd;
use std::path;
use std::time::Duration;

use cuframes_barrier::message::Init;
use cuframes_barrier::{Frontend, FrontendConfig, FrontendEvent, Registered, Socket};
use cuframes_core::gpu::Export;
use tracing::{debug, info};

use super::{BarrierError, keys};
use crate::clock;
use crate::net::{Driver, Endpoint, Listeners};
use crate::pollable::Pollable;
use crate::publisher::Publisher;
use crate::served::ServedPublisher;

/// Settings of a barrier; [`listen`](Self::listen) makes it, [`serve`](Self::serve) does everything.
#[derive(Clone, Debug)]
#[must_use]
pub struct BarrierBuilder {
    endpoint: Endpoint,
    config: FrontendConfig,
}

impl BarrierBuilder {
    fn new(endpoint: Endpoint, count: u16) -> Self {
        let mut config = FrontendConfig::new(count, DEFAULT_TIMEOUT, Init::default());
        config.restarts = true;
        config.notices = true;
        Self { endpoint, config }
    }

    /// The index of the first participant; 0 by default.
    pub const fn first_index(mut self, first: u16) -> Self {
        self.config.first_index = first;
        self
    }

    /// How long to wait for all participants together; 30 s by default.
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.config.timeout = timeout;
        self
    }

    /// Whether a participant that starts again begins anew (the default), or fails the start, as in the original; see
    /// [`FrontendConfig::restarts`].
    pub const fn restarts(mut self, restarts: bool) -> Self {
        self.config.restarts = restarts;
        self
    }

    /// Whether participants that understand it are told how it ends (the default); see [`FrontendConfig::notices`].
    pub const fn notices(mut self, notices: bool) -> Self {
        self.config.notices = notices;
        self
    }

    /// Tells the participants about a stream: its key, the format of its frames, and where its socket is.
    pub fn stream<B: Export<Fd = OwnedFd>>(mut self, publisher: &Publisher<B>) -> Self {
        let meta = publisher.meta();
        let Init { addresses, parallel_config: config } = &mut self.config.init;
        config.push(Init::STREAM, publisher.key().as_str());
        config.push("format", meta.format.to_string());
        config.push("width", i64::from(meta.width));
        config.push("height", i64::from(meta.height));
        config.push("frame_size_bytes", i64::try_from(meta.frame_size_bytes).unwrap_or(i64::MAX));
        // The first one is where to register.
        let socket = publisher.socket_path();
        let socket = path::absolute(socket).unwrap_or_else(|_| socket.into());
        addresses.inputs.push(Endpoint::Ipc(socket).to_string());
        self
    }

    /// Listens: on the address itself for the handshake, and beside it for registrations and results.
    ///
    /// # Errors
    /// If there can't be such a barrier, or one of the sockets can't be made.
    pub fn listen(self) -> Result<Barrier, BarrierError> {
        let Self { endpoint, mut config } = self;
        if endpoint.is_unspecified() {
            return Err(BarrierError::Unspecified { endpoint });
        }
        // Participants are told it, and may be in another directory.
        let endpoint = endpoint.absolute().map_err(BarrierError::System)?;
        if config.count > MAX_PARTICIPANTS {
            return Err(BarrierError::TooMany { count: config.count, max: MAX_PARTICIPANTS });
        }
        let (input, output) = (endpoint.beside("input"), endpoint.beside("output"));
        let listeners = Listeners::new([&endpoint, &input, &output])?;
        let endpoints: Vec<_> = listeners.endpoints().cloned().collect();
        let [endpoint, input, output] =
            <[Endpoint; Socket::ALL.len()]>::try_from(endpoints).unwrap_or([endpoint, input, output]);
        config.init.addresses.inputs.insert(0, input.to_string());
        config.init.addresses.outputs.insert(0, output.to_string());
        if config.notices {
            let dict = &mut config.init.parallel_config;
            dict.push(keys::SIZE, i64::from(config.count));
            dict.push(keys::FIRST_INDEX, i64::from(config.first_index));
        }
        let frontend = Frontend::new(clock::now(), config).map_err(BarrierError::Config)?;
        let driver = Pollable::new(Driver::new(frontend, listeners)).map_err(BarrierError::System)?;
        Ok(Barrier { endpoint, driver })
    }

    /// Tells the participants about the stream of `publisher`, serves it, so that they can subscribe, and waits for all of
    /// them. `observe` hears what happens meanwhile. The first frame is the caller's to publish.
    ///
    /// # Errors
    /// As [`listen`](Self::listen), or [`BarrierError::Failed`]: who is missing or what went wrong. Then the stream is over.
    pub fn serve<B: Export<Fd = OwnedFd>>(
        self,
        publisher: Publisher<B>,
        observe: impl FnMut(&FrontendEvent),
    ) -> Result<ServedPublisher<B>, BarrierError> {
        let mut barrier = self.stream(&publisher).listen()?;
        let publisher = publisher.serve()?;
        barrier.wait(observe)?;
        Ok(publisher)
    }
}

/// A barrier at which participants are awaited. Dropping it closes every connection.
#[derive(Debug)]
pub struct Barrier {
    endpoint: Endpoint,
    driver: Pollable<Driver<Frontend>>,
}

impl Barrier {
    /// Settings of a barrier for `count` participants, at most 300. Peers are not authenticated: whoever can connect to `endpoint` can say
    /// that it is a participant, or make the start fail.
    pub fn builder(endpoint: Endpoint, count: u16) -> BarrierBuilder {
        BarrierBuilder::new(endpoint, count)
    }

    /// Where the participants join, with the port that the system chose.
    #[must_use]
    pub const fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// How far each participant is.
    #[must_use]
    pub const fn frontend(&self) -> &Frontend {
        self.driver.get_ref().machine()
    }

    /// Waits until all are there. `observe` hears of everything that happens.
    ///
    /// # Errors
    /// [`BarrierError::Failed`], or [`BarrierError::System`] if the event loop fails.
    pub fn wait(&mut self, mut observe: impl FnMut(&FrontendEvent)) -> Result<Vec<Registered>, BarrierError> {
        loop {
            let Some(event) = self.next_event(None)? else { continue };
            observe(&event);
            let result = match event {
                FrontendEvent::Started(participants) => Ok(participants),
                FrontendEvent::Failed(fault) => {
                    Err(BarrierError::Failed { endpoint: self.endpoint.clone(), fault })
                }
                _ => continue,
            };
            self.finish()?;
            return result;
        }
    }

    /// The next thing that happens, within `timeout` (`None`: however long it takes; but a signal may end the wait).
    ///
    /// # Errors
    /// If the event loop fails.
    pub fn next_event(&mut self, timeout: Option<Duration>) -> Result<Option<FrontendEvent>, BarrierError> {
        let event = self.driver.next_event(timeout).map_err(BarrierError::System)?;
        if let Some(event) = &event {
            trace(event);
        }
        Ok(event)
    }

    /// Calls the start off; participants that understand it are told why. They hear it in [`finish`](Self::finish).
    ///
    /// # Errors
    /// If the event loop fails.
    pub fn cancel(&mut self, reason: &str) -> Result<(), BarrierError> {
        let cancelled = self.driver.command(|frontend, now| frontend.cancel(now, reason));
        cancelled.map_err(BarrierError::System)
    }

    /// Waits until those who are to hear how it ended were sent that; at most a second. No effect before the end.
    ///
    /// # Errors
    /// If the event loop fails.
    pub fn finish(&mut self) -> Result<(), BarrierError> {
        while self.frontend().is_over() && !self.frontend().is_finished() {
            let _ = self.driver.wait(None).map_err(BarrierError::System)?;
        }
        Ok(())
    }

    /// For an event loop of your own: the barrier as an [`EventSource`](crate::EventSource).
    #[must_use]
    pub fn into_driver(self) -> Driver<Frontend> {
        self.driver.into_inner()
    }
}

/// Tells what happens.
fn trace(event: &FrontendEvent) {
    match event {
        FrontendEvent::Progress { index, progress } => info!(index, %progress, "participant"),
        FrontendEvent::Restarted { index } => info!(index, "participant starts over"),
        // Strangers may cause as many as they like.
        FrontendEvent::Dropped { socket, error } => debug!(?socket, %error, "connection dropped"),
        FrontendEvent::Started(participants) => info!(participants = participants.len(), "started"),
        FrontendEvent::Failed(fault) => info!(%fault, "start failed"),
        _ => {}
    }
}

/// Each has three connections, and the driver has a thousand.
const MAX_PARTICIPANTS: u16 = 300;
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);
