//! [`Join`]: one of those who are waited for.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use cuframes_barrier::message::{Init, Registration};
use cuframes_barrier::msgpack::Value;
use cuframes_barrier::{JoinError, Participant, ParticipantConfig, ParticipantEvent};
use cuframes_core::gpu::Import;

use super::{BarrierError, keys};
use crate::clock;
use crate::connect::SubscriberBuilder;
use crate::host::HostMemory;
use crate::net::{Driver, Endpoint, Listeners};
use crate::pollable::Pollable;
use crate::subscriber::Subscriber;

/// Settings of a participant; [`start`](Self::start) makes it, [`subscribe`](Self::subscribe) does everything.
#[derive(Clone, Debug)]
#[must_use]
pub struct JoinBuilder {
    endpoint: Endpoint,
    index: u16,
    timeout: Duration,
    place: Option<(u16, u16)>,
    name: String,
    frames: u16,
}

impl JoinBuilder {
    /// How long everything together may take; 30 s by default.
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// How many participants there are, and the index of the first: needed only for a frontend that does not say it.
    pub const fn of(mut self, count: u16, first_index: u16) -> Self {
        self.place = Some((count, first_index));
        self
    }

    /// A name to register with.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// How many frames it may hold at a time.
    pub const fn frames(mut self, frames: u16) -> Self {
        self.frames = frames;
        self
    }

    /// Begins to join, without waiting.
    ///
    /// # Errors
    /// If the event loop can't be made.
    pub fn start(self) -> Result<Join, BarrierError> {
        let config = ParticipantConfig::new(self.index, self.endpoint.to_string(), self.timeout);
        let participant = Participant::new(clock::now(), config);
        let driver =
            Pollable::new(Driver::new(participant, Listeners::default())).map_err(BarrierError::System)?;
        Ok(Join { settings: self, driver })
    }

    /// Joins, subscribes between INIT and READY, and waits until everybody is there; a frontend of the original does not say
    /// so, and this returns when it has registered.
    ///
    /// # Errors
    /// Why it did not get in, or could not subscribe: then a frontend that understands it is told so, and fails its start.
    pub fn subscribe(self, subscriber: SubscriberBuilder) -> Result<Subscriber, BarrierError> {
        let backend = HostMemory::new(subscriber.key().clone());
        self.subscribe_on(subscriber, backend)
    }

    /// As [`subscribe`](Self::subscribe), to frames that `backend` can open.
    ///
    /// # Errors
    /// As [`subscribe`](Self::subscribe).
    pub fn subscribe_on<B: Import<Fd = OwnedFd>>(
        self,
        subscriber: SubscriberBuilder,
        backend: B,
    ) -> Result<Subscriber<B>, BarrierError> {
        let mut join = self.start()?;
        let init = join.wait_init()?;
        let subscribe = |join: &mut Join| {
            join.check_stream(&init, subscriber.key().as_str())?;
            subscriber.connect_while(backend, || join.check())
        };
        match subscribe(&mut join) {
            Ok(subscriber) => {
                join.ready(&init)?;
                join.wait()?;
                Ok(subscriber)
            }
            Err(error @ BarrierError::Stream(_)) => {
                join.cancel(&error.to_string())?;
                Err(error)
            }
            Err(error) => Err(error),
        }
    }
}

/// A participant on its way in. Dropping it closes every connection.
#[derive(Debug)]
pub struct Join {
    settings: JoinBuilder,
    driver: Pollable<Driver<Participant>>,
}

impl Join {
    /// Settings of the participant of this index, at the frontend of `endpoint`.
    pub const fn builder(endpoint: Endpoint, index: u16) -> JoinBuilder {
        JoinBuilder { endpoint, index, timeout: DEFAULT_TIMEOUT, place: None, name: String::new(), frames: 1 }
    }

    /// Waits for INIT.
    ///
    /// # Errors
    /// [`BarrierError::NotJoined`], or [`BarrierError::System`] if the event loop fails.
    pub fn wait_init(&mut self) -> Result<Init, BarrierError> {
        loop {
            match self.next_event(None)? {
                Some(ParticipantEvent::Init(init)) => return Ok(init),
                Some(ParticipantEvent::Failed(error)) => return Err(self.not_joined(error)),
                _ => {}
            }
        }
    }

    /// Checks that the barrier, if it says of which stream it is, is that of `key`. If it is not, the start goes on without us.
    ///
    /// # Errors
    /// [`BarrierError::OtherStream`].
    pub fn check_stream(&self, init: &Init, key: &str) -> Result<(), BarrierError> {
        match init.stream() {
            Some(theirs) if theirs != key => Err(BarrierError::OtherStream {
                endpoint: self.settings.endpoint.clone(),
                theirs: theirs.into(),
                ours: key.into(),
            }),
            _ => Ok(()),
        }
    }

    /// Says READY and registers, with what the settings and `init` say.
    ///
    /// # Errors
    /// [`BarrierError::UnknownSize`], [`BarrierError::Address`] if `init` has one that is not in numbers, or
    /// [`BarrierError::System`] if the event loop fails.
    pub fn ready(&mut self, init: &Init) -> Result<(), BarrierError> {
        let number = |key| {
            let value = init.parallel_config.get(key).and_then(Value::as_int);
            value.and_then(|value| u16::try_from(value).ok())
        };
        let said = || Some((number(keys::SIZE)?, number(keys::FIRST_INDEX).unwrap_or(0)));
        let place = self.settings.place.or_else(said);
        let endpoint = || self.settings.endpoint.clone();
        let (count, first) = place.ok_or_else(|| BarrierError::UnknownSize { endpoint: endpoint() })?;
        let named =
            [&init.addresses.inputs, &init.addresses.outputs].into_iter().filter_map(|list| list.first());
        if let Some(error) = named.map(|address| address.parse::<Endpoint>()).find_map(Result::err) {
            let error = BarrierError::Address { endpoint: endpoint(), error };
            self.cancel(&error.to_string())?;
            return Err(error);
        }
        // If it is none of them, the frontend says so.
        let mut registration = Registration::new(self.settings.index.saturating_sub(first), count);
        registration.instance_id.clone_from(&self.settings.name);
        registration.max_num_seqs = self.settings.frames.into();
        let ready = self.driver.command(|participant, now| participant.ready(now, registration));
        ready.map_err(BarrierError::System)
    }

    /// Waits until everybody is there, and says whether the frontend has said so.
    ///
    /// # Errors
    /// [`BarrierError::NotJoined`], or [`BarrierError::System`] if the event loop fails.
    pub fn wait(&mut self) -> Result<bool, BarrierError> {
        loop {
            match self.next_event(None)? {
                Some(ParticipantEvent::Started { confirmed }) => return Ok(confirmed),
                Some(ParticipantEvent::Failed(error)) => return Err(self.not_joined(error)),
                _ => {}
            }
        }
    }

    /// Looks whether the start goes on, without waiting: for one who prepares.
    ///
    /// # Errors
    /// [`BarrierError::NotJoined`], or [`BarrierError::System`] if the event loop fails.
    pub fn check(&mut self) -> Result<(), BarrierError> {
        while let Some(event) = self.next_event(Some(Duration::ZERO))? {
            if let ParticipantEvent::Failed(error) = event {
                return Err(self.not_joined(error));
            }
        }
        Ok(())
    }

    /// The next thing that happens, within `timeout` (`None`: however long it takes; but a signal may end the wait).
    ///
    /// # Errors
    /// If the event loop fails.
    pub fn next_event(
        &mut self,
        timeout: Option<Duration>,
    ) -> Result<Option<ParticipantEvent>, BarrierError> {
        self.driver.next_event(timeout).map_err(BarrierError::System)
    }

    /// Calls it off, and tells a frontend that understands it why.
    ///
    /// # Errors
    /// If the event loop fails.
    pub fn cancel(&mut self, reason: &str) -> Result<(), BarrierError> {
        let cancelled = self.driver.command(|participant, now| participant.cancel(now, reason));
        cancelled.map_err(BarrierError::System)?;
        while !self.driver.get_ref().machine().is_finished() {
            let _ = self.driver.wait(None).map_err(BarrierError::System)?;
        }
        Ok(())
    }

    /// For an event loop of your own: the participant as an [`EventSource`](crate::EventSource).
    #[must_use]
    pub fn into_driver(self) -> Driver<Participant> {
        self.driver.into_inner()
    }

    /// How far it is.
    #[must_use]
    pub const fn participant(&self) -> &Participant {
        self.driver.get_ref().machine()
    }

    /// The error for [`ParticipantEvent::Failed`], with where it could not connect, if that is so.
    #[must_use]
    pub fn not_joined(&self, error: JoinError) -> BarrierError {
        let trouble = self.driver.get_ref().trouble();
        BarrierError::NotJoined {
            endpoint: self.settings.endpoint.clone(),
            index: self.settings.index,
            error,
            trouble: trouble.map(|(at, error)| (at.clone(), copy(error))),
        }
    }
}

/// The same error once more.
fn copy(error: &io::Error) -> io::Error {
    error.raw_os_error().map_or_else(|| error.kind().into(), io::Error::from_raw_os_error)
}

const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);
