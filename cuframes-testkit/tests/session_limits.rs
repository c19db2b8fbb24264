//! PING (D-10), and how much a peer can make a session hold (D-11, D-29).

#![expect(clippy::indexing_slicing, clippy::unwrap_used, reason = "a failure ends the test")]

use cuframes_core::error::ErrorCode;
use cuframes_core::session::{Closed, PublisherEvent, Session, SubscriberEvent};
use cuframes_core::wire::framing::MAX_PAYLOAD;
use cuframes_core::{Gone, Instant};
use cuframes_testkit::pair::Pair;
use cuframes_testkit::solo::{FEATURES, events, feed, publisher_in, sent, subscriber_in};
use cuframes_testkit::vectors::vector;

const LIMIT: usize = 64 * 1024;

fn ping(len: usize) -> Vec<u8> {
    let mut message = vector("ping");
    message[4..].copy_from_slice(&u32::try_from(len).unwrap().to_le_bytes());
    message.extend((0..len).map(|n| u8::try_from(n % 256).unwrap()));
    message
}

#[test]
fn a_subscriber_hears_a_pong_for_each_of_its_pings_and_no_other() {
    let mut pair = Pair::ready(FEATURES);
    pair.subscriber.session.ping(pair.now);
    pair.settle();
    feed(&mut pair.subscriber.session, &vector("pong"), &[]);
    feed(&mut pair.publisher.session, &vector("pong"), &[]);
    pair.settle();
    assert_eq!(pair.subscriber.take_events(), [SubscriberEvent::Pong]);
    assert_eq!(pair.publisher.take_events(), []);
}

#[test]
fn a_flood_of_pings_costs_the_one_who_sends_it_its_connection() {
    let mut publisher = publisher_in("Active");
    let message = ping(64);
    let most = LIMIT / message.len();
    for _ in 0..most {
        feed(&mut publisher, &message, &[]);
    }
    assert_eq!(events(&mut publisher), []);
    feed(&mut publisher, &message, &[]);
    assert_eq!(events(&mut publisher), [PublisherEvent::Closed(Closed::Gone(Gone::NotReading))]);
    assert!(publisher.is_closed(), "who does not read needs no last words");
}

#[test]
fn a_handshake_that_goes_on_while_nothing_is_read_ends_as_well() {
    let mut subscriber = subscriber_in("Hello");
    for _ in 0..(LIMIT - 10) / 8 {
        feed(&mut subscriber, &vector("ping"), &[]);
    }
    assert_eq!(events(&mut subscriber), []);
    feed(&mut subscriber, &vector("hello_resp_features"), &[]);
    assert_eq!(events(&mut subscriber), [SubscriberEvent::Closed(Closed::Gone(Gone::NotReading))]);
    assert_eq!(subscriber.poll_timeout(), None);
}

#[test]
fn a_peer_that_reads_may_ping_for_ever() {
    let mut publisher = publisher_in("Active");
    for _ in 0..10_000 {
        feed(&mut publisher, &ping(64), &[]);
        sent(&mut publisher);
    }
    assert_eq!(events(&mut publisher), []);
}

#[test]
fn a_flood_of_unknown_messages_is_counted_but_not_queued() {
    let flood = [0x77, 0, 0, 0, 0, 0, 0, 0].repeat(1000);
    let mut subscriber = subscriber_in("Ready");
    feed(&mut subscriber, &flood, &[]);
    let told = events(&mut subscriber).len();
    assert!((1..100).contains(&told), "{told} events");
    feed(&mut subscriber, &flood[..8], &[]);
    assert!(matches!(events(&mut subscriber)[..], [SubscriberEvent::Unknown { count: 1001, .. }]));
}

#[test]
fn a_message_that_never_ends_is_buffered_up_to_its_length() {
    let mut publisher = publisher_in("Active");
    let endless = ping(MAX_PAYLOAD);
    for byte in &endless[..endless.len() - 1] {
        feed(&mut publisher, &[*byte], &[]);
    }
    assert_eq!((events(&mut publisher), publisher.is_closed()), (vec![], false));
}

#[test]
fn an_error_of_any_length_fits_into_one_message() {
    let mut publisher = publisher_in("Active");
    publisher.expel(Instant::ZERO, ErrorCode::INTERNAL, &"é".repeat(5000));
    let bytes = sent(&mut publisher).0;
    let mut subscriber = subscriber_in("Ready");
    feed(&mut subscriber, &bytes, &[]);
    let [SubscriberEvent::Closed(Closed::Refused(refused))] = &events(&mut subscriber)[..] else {
        panic!("not understood")
    };
    assert!(refused.message.len() > 3900 && refused.message.chars().all(|c| c == 'é'));
}
