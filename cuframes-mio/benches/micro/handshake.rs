//! The two sessions (§4), which shake hands in memory: every byte is handed over as soon as it is there.

use std::collections::VecDeque;
use std::hint::black_box;
use std::sync::Arc;

use cuframes_mio::core::session::{
    PublisherEvent, PublisherOffer, PublisherSession, Session, SubscriberEvent, SubscriberSession,
};
use cuframes_mio::core::wire::FdPurpose;
use cuframes_mio::core::wire::control::EventFd;
use cuframes_mio::core::{Features, Instant};
use cuframes_testkit::pair::{hello, offer, subscribed};

use crate::operation::Operation;

pub(crate) fn operations() -> Vec<Operation> {
    let work = |features| {
        move || {
            let offer = Arc::new(offer(features));
            move || {
                black_box(shake_hands(&offer, features));
            }
        }
    };
    vec![
        Operation::single("handshake: both ends, no extension", work(Features::NONE)),
        Operation::single("handshake: both ends, all extensions and five descriptors", work(ALL)),
    ]
}

/// From HELLO to a subscriber that is attached, on both sides.
fn shake_hands(
    offer: &Arc<PublisherOffer>,
    features: Features,
) -> (PublisherSession<u32>, SubscriberSession<u32>) {
    let now = Instant::ZERO;
    let mut publisher = PublisherSession::new(now, Arc::clone(offer));
    let mut subscriber = SubscriberSession::new(now, hello(features));
    let mut fds = VecDeque::new();
    let (mut is_subscribed, mut missing) = (false, PURPOSES.len());
    if features == Features::NONE {
        missing = 0;
    }
    while !is_subscribed || missing != 0 {
        hand_over(&mut subscriber, &mut publisher, &mut fds);
        while let Some(event) = publisher.poll_event() {
            if let PublisherEvent::Subscribe(_) = event {
                publisher.admit(now, Ok(subscribed())).unwrap();
                for (fd, purpose) in (0..).zip(PURPOSES).take(missing) {
                    publisher.offer_fd(EventFd::single(purpose), fd).unwrap();
                }
            }
        }
        hand_over(&mut publisher, &mut subscriber, &mut fds);
        while let Some(event) = subscriber.poll_event() {
            match event {
                SubscriberEvent::Subscribed(_) => is_subscribed = true,
                SubscriberEvent::Fd { .. } => missing -= 1,
                _ => {}
            }
        }
    }
    subscriber.attached(now).unwrap();
    (publisher, subscriber)
}

/// Everything that `from` has to say.
fn hand_over(from: &mut impl Session<Fd = u32>, to: &mut impl Session<Fd = u32>, fds: &mut VecDeque<u32>) {
    while let Some(transmit) = from.poll_transmit() {
        let n = transmit.bytes.len();
        fds.extend(transmit.fd);
        to.handle_bytes(Instant::ZERO, transmit.bytes, fds);
        from.transmitted(n);
    }
}

/// What a host-memory publisher offers.
const ALL: Features =
    Features::FD_PASSING.union(Features::LEASE).union(Features::WAKE_HINT).union(Features::WITNESS);
/// The descriptors that go with it.
const PURPOSES: [FdPurpose; 5] = [
    FdPurpose::REGION,
    FdPurpose::HOST_POOL,
    FdPurpose::WITNESS,
    FdPurpose::PUBLISHER_WAKE_UP,
    FdPurpose::WAKE_UP,
];
