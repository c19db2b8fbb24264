//! The driving contract: any interleaving of inputs and polls gives the same result.

#![expect(clippy::unwrap_used, reason = "a failure ends the test")]

use cuframes_core::session::{PublisherEvent, Session, SubscriberEvent};
use cuframes_core::wire::control::EventFd;
use cuframes_core::wire::{FdPurpose, ShutdownReason};
use cuframes_testkit::pair::{Pair, hello, offer, subscribed};
use cuframes_testkit::solo::FEATURES;
use proptest::collection::vec;
use proptest::prelude::*;

/// A pair with drivers that take part in the handshake, and what they heard.
struct Story {
    pair: Pair,
    heard: (Vec<PublisherEvent>, Vec<SubscriberEvent<u32>>),
}

impl Story {
    fn new() -> Self {
        Self { pair: Pair::new(offer(FEATURES), hello(FEATURES)), heard: (Vec::new(), Vec::new()) }
    }

    /// One thing that a driver may do at any time; says whether it changed anything.
    fn step(&mut self, choice: u8) -> bool {
        let Pair { now, publisher, subscriber } = &mut self.pair;
        match choice {
            0 => publisher.send(subscriber),
            1 => subscriber.send(publisher),
            2 => publisher.receive(*now),
            3 => subscriber.receive(*now),
            4 => self.publisher_acts(),
            5 => self.subscriber_acts(),
            6 => {
                publisher.session.handle_timeout(*now);
                subscriber.session.handle_timeout(*now);
                false
            }
            _ => {
                let _ = (publisher.session.poll_transmit(), subscriber.session.poll_transmit());
                let _ = (publisher.session.poll_timeout(), subscriber.session.poll_timeout());
                false
            }
        }
    }

    fn publisher_acts(&mut self) -> bool {
        let Pair { now, publisher, .. } = &mut self.pair;
        let Some(event) = publisher.session.poll_event() else { return false };
        if matches!(event, PublisherEvent::Subscribe(_)) {
            publisher.session.admit(*now, Ok(subscribed())).unwrap();
            publisher.session.offer_fd(EventFd::single(FdPurpose::REGION), 10).unwrap();
            publisher.session.offer_fd(EventFd::single(FdPurpose::WAKE_UP), 11).unwrap();
        }
        self.heard.0.push(event);
        true
    }

    fn subscriber_acts(&mut self) -> bool {
        let Pair { now, publisher, subscriber } = &mut self.pair;
        let Some(event) = subscriber.session.poll_event() else { return false };
        match event {
            SubscriberEvent::Fd { purpose: FdPurpose::WAKE_UP, .. } => {
                subscriber.session.attached(*now).unwrap();
                publisher.session.shutdown(*now, ShutdownReason::NORMAL);
            }
            SubscriberEvent::Shutdown(_) => subscriber.session.unsubscribe(*now),
            _ => {}
        }
        self.heard.1.push(event);
        true
    }

    /// Goes on in one order until nothing moves any more.
    fn finish(mut self) -> (Vec<PublisherEvent>, Vec<SubscriberEvent<u32>>) {
        while (0..6).fold(false, |moved, choice| self.step(choice) | moved) {}
        assert!(self.pair.publisher.session.is_closed() && self.pair.subscriber.session.is_closed());
        self.heard
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_interleaving_of_polls_tells_the_same_story(
        choices in vec(0..8_u8, 0..200),
        capacity in 1..100_usize,
        read_size in 1..100_usize,
    ) {
        let mut story = Story::new();
        for inbox in [&mut story.pair.publisher.inbox, &mut story.pair.subscriber.inbox] {
            inbox.capacity = capacity;
            inbox.read_size = read_size;
        }
        for choice in choices {
            story.step(choice);
        }
        let heard = story.finish();
        prop_assert_eq!(&heard, &Story::new().finish());
        prop_assert_eq!((heard.0.len(), heard.1.len()), (2, 6));
    }
}
