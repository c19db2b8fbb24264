//! What a driver does for the two sessions, without a socket.

use std::error::Error;

use cuframes_core::Instant;
use cuframes_core::ring;
use cuframes_core::roster::Roster;
use cuframes_core::session::{PublisherEvent, PublisherSession, Session, SubscriberEvent, SubscriberSession};
use cuframes_core::shm::Region;
use cuframes_core::wire::subscribe::Subscribed;

/// Drives both sessions until the subscriber has its bit. File descriptors are numbers here, and none is sent.
pub(crate) fn handshake(
    now: Instant,
    roster: &mut Roster<impl Region>,
    publisher: &mut PublisherSession<u32>,
    subscriber: &mut SubscriberSession<u32>,
) -> Result<Subscribed, Box<dyn Error>> {
    loop {
        carry(now, subscriber, publisher);
        while let Some(event) = publisher.poll_event() {
            match event {
                // The pid would be that of the socket's peer.
                PublisherEvent::Subscribe(request) => publisher.admit(now, roster.admit(2, request))?,
                PublisherEvent::Closed(closed) => return Err(closed.into()),
                _ => {}
            }
        }
        carry(now, publisher, subscriber);
        while let Some(event) = subscriber.poll_event() {
            match event {
                SubscriberEvent::Subscribed(subscribed) => return Ok(subscribed),
                SubscriberEvent::Closed(closed) => return Err(closed.into()),
                // `Stream`: what is offered, and the features in force. `Fd`: what leads to region and frames.
                _ => {}
            }
        }
    }
}

/// A socket that takes everything at once, and loses nothing.
pub(crate) fn carry(now: Instant, from: &mut impl Session<Fd = u32>, to: &mut impl Session<Fd = u32>) {
    while let Some(transmit) = from.poll_transmit() {
        let sent = transmit.bytes.len();
        to.handle_bytes(now, transmit.bytes, &mut transmit.fd.copied().into_iter().collect());
        from.transmitted(sent);
    }
}

/// What a reader and its frames need of the driver.
#[derive(Debug)]
pub(crate) struct Outside;

impl ring::Outside for Outside {
    fn now(&self) -> Instant {
        Instant::ZERO
    }

    fn wake_publisher(&self) {}
}
