//! Deadlines: each step of the handshake has one on both sides (D-29), and so has what is said last.

use std::time::Duration;

use cuframes_core::error::ErrorCode;
use cuframes_core::session::{Closed, PublisherEvent, Session, SubscriberEvent};
use cuframes_core::wire::ShutdownReason;
use cuframes_core::wire::fault::ErrorMessage;
use cuframes_core::{Gone, Instant, Refused};
use cuframes_testkit::pair::{HANDSHAKE_TIMEOUT, Pair, hello, offer};
use cuframes_testkit::solo::{
    FEATURES, PUBLISHER_STATES, SUBSCRIBER_STATES, encoded, events, feed, publisher_in, sent, subscriber_in,
};
use cuframes_testkit::vectors::vector;

const DEADLINE: Instant = Instant::from_nanos(5_000_000_000);
const BEFORE: Instant = Instant::from_nanos(4_999_999_999);

fn timed_out(state: &'static str) -> Closed {
    Closed::Gone(Gone::Timeout { state })
}

fn told(state: &str) -> Vec<u8> {
    let message = format!("no answer in state {state}");
    encoded(|out| ErrorMessage { code: ErrorCode::TIMEOUT, message }.encode(out))
}

#[test]
fn a_publisher_waits_five_seconds_for_each_step_of_its_peer() {
    for (state, _) in PUBLISHER_STATES {
        let mut publisher = publisher_in(state);
        publisher.handle_timeout(BEFORE);
        assert_eq!(events(&mut publisher), []);
        publisher.handle_timeout(DEADLINE);
        // The driver may take its time to admit a peer, and a subscriber may stay silent.
        if ["Hello", "Subscribe"].contains(&state) {
            assert_eq!(sent(&mut publisher).0, told(state));
            assert_eq!(events(&mut publisher), [PublisherEvent::Closed(timed_out(state))]);
        } else {
            assert_eq!((events(&mut publisher), publisher.poll_timeout()), (vec![], None), "{state}");
        }
    }
}

#[test]
fn a_subscriber_waits_five_seconds_for_each_step_until_it_is_attached() {
    for (state, _) in SUBSCRIBER_STATES {
        let mut subscriber = subscriber_in(state);
        subscriber.handle_timeout(BEFORE);
        assert_eq!(events(&mut subscriber), []);
        subscriber.handle_timeout(DEADLINE);
        if ["Hello", "Subscribe", "Attaching"].contains(&state) {
            assert_eq!(sent(&mut subscriber).0, told(state));
            assert_eq!(events(&mut subscriber), [SubscriberEvent::Closed(timed_out(state))]);
        } else {
            assert_eq!((events(&mut subscriber), subscriber.poll_timeout()), (vec![], None), "{state}");
        }
    }
}

#[test]
fn each_step_has_its_own_five_seconds() {
    let four = Duration::from_secs(4);
    let mut pair = Pair::new(offer(FEATURES), hello(FEATURES));
    pair.now = pair.now + four;
    pair.settle();
    assert_eq!(pair.next_deadline(), Some(pair.now + HANDSHAKE_TIMEOUT));
    pair.now = pair.now + four;
    pair.admit();
    assert_eq!(pair.next_deadline(), Some(pair.now + HANDSHAKE_TIMEOUT));
    pair.subscriber.session.attached(pair.now).unwrap();
    pair.drive();
    assert_eq!(pair.now, Instant::ZERO + four + four);
}

#[test]
fn a_publisher_that_forgets_to_answer_is_given_up_by_its_subscriber() {
    let mut pair = Pair::new(offer(FEATURES), hello(FEATURES));
    pair.drive();
    assert_eq!(pair.now, DEADLINE);
    assert_eq!(pair.subscriber.take_events().last(), Some(&SubscriberEvent::Closed(timed_out("Subscribe"))));
    let refused = Refused { code: ErrorCode::TIMEOUT, message: "no answer in state Subscribe".into() };
    let told = PublisherEvent::Closed(Closed::Refused(refused));
    assert_eq!(pair.publisher.take_events().last(), Some(&told));
}

#[test]
fn ping_does_not_buy_time() {
    let mut publisher = publisher_in("Hello");
    publisher.handle_bytes(BEFORE, &vector("ping"), &mut [].into());
    assert_eq!(sent(&mut publisher).0, vector("pong"));
    assert_eq!(publisher.poll_timeout(), Some(DEADLINE));
    let mut subscriber = subscriber_in("Hello");
    subscriber.handle_bytes(BEFORE, &vector("ping"), &mut [].into());
    subscriber.ping(BEFORE);
    assert_eq!(subscriber.poll_timeout(), Some(DEADLINE));
}

#[test]
fn a_timeout_that_is_handled_early_or_twice_does_no_harm() {
    let mut publisher = publisher_in("Hello");
    publisher.handle_timeout(Instant::ZERO);
    assert_eq!(publisher.poll_timeout(), Some(DEADLINE));
    publisher.handle_timeout(DEADLINE);
    publisher.handle_timeout(DEADLINE);
    assert_eq!((sent(&mut publisher).0, events(&mut publisher).len()), (told("Hello"), 1));
}

#[test]
fn a_clock_that_runs_backwards_stands_still() {
    let mut publisher = publisher_in("Hello");
    publisher.handle_timeout(BEFORE);
    feed(&mut publisher, &vector("hello_req_nv"), &[]);
    assert_eq!(publisher.poll_timeout(), Some(BEFORE + HANDSHAKE_TIMEOUT));
}

#[test]
fn the_last_words_wait_a_second_for_a_peer_that_does_not_read() {
    let mut pair = Pair::ready(FEATURES);
    pair.subscriber.inbox.capacity = 10;
    pair.subscriber.inbox.read_size = 0;
    pair.publisher.session.expel(pair.now, ErrorCode::EVICTED, "too slow");
    pair.settle();
    assert_eq!(pair.publisher.take_events(), [PublisherEvent::Closed(Closed::Rejected(ErrorCode::EVICTED))]);
    assert!(!pair.publisher.session.is_closed());
    // Nothing that the driver says meanwhile moves the deadline.
    pair.now = pair.now + Duration::from_millis(500);
    pair.publisher.session.expel(pair.now, ErrorCode::EVICTED, "really");
    pair.publisher.session.shutdown(pair.now, ShutdownReason::NORMAL);
    pair.drive();
    assert!(pair.publisher.session.is_closed());
    assert_eq!(pair.now, Instant::ZERO + Duration::from_secs(1));
}
