//! The driving contract: any interleaving of inputs and polls gives the same events and the same bytes.

#![expect(clippy::unwrap_used, reason = "a failure ends the test")]

use cuframes_core::error::ErrorCode;
use cuframes_core::session::{PublisherEvent, Session, SubscriberEvent};
use cuframes_core::wire::control::EventFd;
use cuframes_core::wire::{FdPurpose, ShutdownReason};
use cuframes_testkit::pair::{Pair, hello, offer, subscribed};
use cuframes_testkit::solo::FEATURES;
use cuframes_testkit::strategies::config;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

/// How a story ends. In each, whoever ends it has heard everything before, so that time makes no difference.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Plot {
    TooMany,
    ShutDown,
    Expel,
    Unsubscribe,
}

const PLOTS: [Plot; 4] = [Plot::TooMany, Plot::ShutDown, Plot::Expel, Plot::Unsubscribe];

/// What both drivers heard, and what both ends sent.
#[derive(PartialEq, Debug)]
struct Told {
    publisher: (Vec<PublisherEvent>, Vec<u8>),
    subscriber: (Vec<SubscriberEvent<u32>>, Vec<u8>),
}

/// A pair with drivers that take part in the handshake, and what they heard.
struct Story {
    plot: Plot,
    pair: Pair,
    heard: (Vec<PublisherEvent>, Vec<SubscriberEvent<u32>>),
}

impl Story {
    fn new(plot: Plot) -> Self {
        Self { plot, pair: Pair::new(offer(FEATURES), hello(FEATURES)), heard: (Vec::new(), Vec::new()) }
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
        if matches!(event, PublisherEvent::Subscribe(_)) && self.plot == Plot::TooMany {
            publisher.session.admit(*now, Err(ErrorCode::TOO_MANY)).unwrap();
        } else if matches!(event, PublisherEvent::Subscribe(_)) {
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
                match self.plot {
                    Plot::ShutDown => publisher.session.shutdown(*now, ShutdownReason::NORMAL),
                    Plot::Expel => publisher.session.expel(*now, ErrorCode::EVICTED, "too slow"),
                    _ => subscriber.session.unsubscribe(*now),
                }
            }
            SubscriberEvent::Shutdown(_) => subscriber.session.unsubscribe(*now),
            _ => {}
        }
        self.heard.1.push(event);
        true
    }

    /// Goes on in one order until nothing moves any more.
    fn finish(mut self) -> Told {
        while (0..6).fold(false, |moved, choice| self.step(choice) | moved) {}
        let Pair { publisher, subscriber, .. } = self.pair;
        assert!(publisher.session.is_closed() && subscriber.session.is_closed());
        Told { publisher: (self.heard.0, publisher.sent), subscriber: (self.heard.1, subscriber.sent) }
    }
}

#[test]
fn every_plot_is_played_to_its_end() {
    for (plot, events) in PLOTS.into_iter().zip([(2, 2), (2, 6), (2, 5), (2, 5)]) {
        let told = Story::new(plot).finish();
        assert_eq!((told.publisher.0.len(), told.subscriber.0.len()), events, "{plot:?}: {told:?}");
    }
}

proptest! {
    #![proptest_config(config(512))]

    #[test]
    fn any_interleaving_of_polls_tells_the_same_story(
        plot in select(PLOTS.to_vec()),
        choices in vec(0..8_u8, 0..200),
        capacity in 1..100_usize,
        read_size in 1..100_usize,
    ) {
        let mut story = Story::new(plot);
        for inbox in [&mut story.pair.publisher.inbox, &mut story.pair.subscriber.inbox] {
            inbox.capacity = capacity;
            inbox.read_size = read_size;
        }
        for choice in choices {
            story.step(choice);
        }
        prop_assert_eq!(story.finish(), Story::new(plot).finish());
    }
}
