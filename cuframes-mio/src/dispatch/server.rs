//! [`Dispatcher`]: a server that listens.

use std::io;
use std::time::Duration;

use cuframes_dispatch::wire::Version;
use cuframes_dispatch::{Scheduler, Server, ServerEvent};

use crate::net::{Driver, Endpoint, Listeners, NetError};
use crate::pollable::Pollable;

/// Settings of a dispatcher; [`listen`](Self::listen) makes it.
#[derive(Clone, Debug)]
#[must_use]
pub struct DispatcherBuilder {
    endpoint: Endpoint,
    version: Version,
}

impl DispatcherBuilder {
    /// What its workers speak; [`Version::W2`] by default.
    pub const fn version(mut self, version: Version) -> Self {
        self.version = version;
        self
    }

    /// Listens.
    ///
    /// # Errors
    /// If the socket or the event loop can't be made.
    pub fn listen(self) -> Result<Dispatcher, NetError> {
        let listeners = Listeners::new([&self.endpoint])?;
        let endpoint = listeners.endpoints().next().cloned().unwrap_or(self.endpoint);
        let driver = Pollable::new(Driver::new(Server::new(self.version), listeners));
        let driver = driver.map_err(|error| NetError::system("serve workers at", &endpoint, error))?;
        Ok(Dispatcher { endpoint, driver })
    }
}

/// Hands blocks to workers that connect. Dropping it closes every connection.
#[derive(Debug)]
pub struct Dispatcher {
    endpoint: Endpoint,
    driver: Pollable<Driver<Server>>,
}

impl Dispatcher {
    /// Settings of a dispatcher that listens on `endpoint`. Peers are not authenticated: whoever can connect gets blocks.
    pub const fn builder(endpoint: Endpoint) -> DispatcherBuilder {
        DispatcherBuilder { endpoint, version: Version::W2 }
    }

    /// Where workers connect, with the port that the system chose.
    #[must_use]
    pub const fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// The tasks and their blocks.
    #[must_use]
    pub const fn scheduler(&self) -> &Scheduler {
        self.driver.get_ref().machine().scheduler()
    }

    /// How many workers are connected.
    #[must_use]
    pub fn workers(&self) -> usize {
        self.driver.get_ref().machine().workers()
    }

    /// Changes tasks and blocks: adds some, gives some up. Workers that wait get what is ready now.
    ///
    /// # Errors
    /// If the event loop fails.
    pub fn schedule<R>(&mut self, change: impl FnOnce(&mut Scheduler) -> R) -> io::Result<R> {
        self.driver.command(|server, now| server.schedule(now, change))
    }

    /// The next thing that happens, within `timeout` (`None`: however long it takes; but a signal may end the wait).
    ///
    /// # Errors
    /// If the event loop fails.
    pub fn next_event(&mut self, timeout: Option<Duration>) -> io::Result<Option<ServerEvent>> {
        self.driver.next_event(timeout)
    }

    /// Tells the workers that there is nothing more to do, and closes their connections; takes a second at most.
    ///
    /// # Errors
    /// If the event loop fails.
    pub fn shut_down(&mut self) -> io::Result<()> {
        self.driver.command(Server::shut_down)?;
        while !self.driver.get_ref().machine().is_finished() {
            let _ = self.driver.wait(None)?;
        }
        Ok(())
    }

    /// For an event loop of your own: the server as an [`EventSource`](crate::EventSource).
    #[must_use]
    pub fn into_driver(self) -> Driver<Server> {
        self.driver.into_inner()
    }
}
