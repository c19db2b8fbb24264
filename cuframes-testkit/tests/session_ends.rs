//! How a connection ends: UNSUBSCRIBE (D-10), SHUTDOWN (D-12, D-30), eviction (D-31), and without a word.

use cuframes_core::error::ErrorCode;
use cuframes_core::session::{Closed, PublisherEvent, Session, SubscriberEvent};
use cuframes_core::wire::ShutdownReason;
use cuframes_core::wire::control::{EventFd, Shutdown};
use cuframes_core::wire::fault::ErrorMessage;
use cuframes_core::wire::{FdPurpose, MessageType};
use cuframes_core::{Gone, Instant, Refused};
use cuframes_testkit::pair::{Pair, subscribed};
use cuframes_testkit::solo::{FEATURES, encoded, events, feed, publisher_in, sent, subscriber_in};
use cuframes_testkit::vectors::vector;

const UPGRADE: ShutdownReason = ShutdownReason::UPGRADE;

fn gone(gone: Gone) -> Closed {
    Closed::Gone(gone)
}

#[test]
fn a_subscriber_that_unsubscribes_leaves_both_sides_closed() {
    let mut pair = Pair::ready(FEATURES);
    pair.subscriber.session.unsubscribe(pair.now);
    assert!(!pair.subscriber.session.is_closed(), "UNSUBSCRIBE has to leave first");
    pair.settle();
    assert_eq!(pair.subscriber.take_events(), [SubscriberEvent::Closed(gone(Gone::Unsubscribed))]);
    assert_eq!(pair.publisher.take_events(), [PublisherEvent::Closed(gone(Gone::Unsubscribed))]);
    assert!(pair.publisher.session.is_closed() && pair.subscriber.session.is_closed());
    assert_eq!(pair.next_deadline(), None);
}

#[test]
fn a_reader_may_finish_after_shutdown_and_then_leaves() {
    let mut pair = Pair::ready(FEATURES);
    pair.publisher.session.shutdown(pair.now, UPGRADE);
    pair.drive();
    assert_eq!(pair.subscriber.take_events(), [SubscriberEvent::Shutdown(UPGRADE)]);
    assert_eq!(pair.publisher.take_events(), [], "it waits for the peer, as long as the driver wants");
    assert_eq!((pair.now, pair.next_deadline()), (Instant::ZERO, None));
    pair.subscriber.session.unsubscribe(pair.now);
    pair.settle();
    assert_eq!(pair.publisher.take_events(), [PublisherEvent::Closed(gone(Gone::Unsubscribed))]);
}

#[test]
fn what_is_said_and_sent_after_shutdown_is_without_effect() {
    let mut publisher = publisher_in("Draining");
    publisher.shutdown(Instant::ZERO, UPGRADE);
    publisher.offer_fd(EventFd::single(FdPurpose::WAKE_UP), 7).unwrap();
    assert_eq!(sent(&mut publisher), (vec![], vec![]));
}

#[test]
fn a_subscriber_that_is_admitted_may_still_attach_after_shutdown_and_read_what_is_published() {
    let mut subscriber = subscriber_in("Attaching");
    let mut bytes = vector("event_fd_wake");
    bytes.extend(encoded(|out| Shutdown { reason: UPGRADE }.encode(out)));
    feed(&mut subscriber, &bytes, &[7]);
    assert!(matches!(
        events(&mut subscriber)[..],
        [SubscriberEvent::Fd { fd: 7, .. }, SubscriberEvent::Shutdown(UPGRADE)]
    ));
    assert!(subscriber.poll_timeout().is_some(), "the handshake still has its deadline");
    subscriber.attached(Instant::ZERO).unwrap();
    assert_eq!((subscriber.poll_timeout(), subscriber.is_closed()), (None, false));
    assert!(subscriber.attached(Instant::ZERO).is_err(), "only once");
}

#[test]
fn a_subscriber_that_was_about_to_be_admitted_at_shutdown_is_not() {
    let mut publisher = publisher_in("Admitting");
    publisher.shutdown(Instant::ZERO, ShutdownReason::NORMAL);
    assert_eq!(publisher.admit(Instant::ZERO, Ok(subscribed())), Ok(()));
    assert_eq!(sent(&mut publisher).0, vector("shutdown_normal"));
}

#[test]
fn an_evicted_subscriber_hears_why() {
    let mut pair = Pair::ready(FEATURES);
    pair.publisher.session.expel(pair.now, ErrorCode::EVICTED, "lease held for 2 s");
    pair.settle();
    assert_eq!(pair.publisher.take_events(), [PublisherEvent::Closed(Closed::Rejected(ErrorCode::EVICTED))]);
    let refused = Refused { code: ErrorCode::EVICTED, message: "lease held for 2 s".into() };
    assert_eq!(pair.subscriber.take_events(), [SubscriberEvent::Closed(Closed::Refused(refused))]);
}

#[test]
fn a_connection_that_ends_without_a_word_is_told_once() {
    let mut pair = Pair::ready(FEATURES);
    pair.publisher.session.handle_eof(pair.now);
    pair.publisher.session.handle_eof(pair.now);
    pair.settle();
    assert_eq!(pair.publisher.take_events(), [PublisherEvent::Closed(gone(Gone::Disconnected))]);
    assert_eq!(pair.subscriber.take_events(), [SubscriberEvent::Closed(gone(Gone::Disconnected))]);
}

#[test]
fn nothing_has_an_effect_after_the_end() {
    let mut subscriber = subscriber_in("Ready");
    subscriber.handle_eof(Instant::ZERO);
    assert_eq!(events(&mut subscriber).len(), 1);
    subscriber.ping(Instant::ZERO);
    subscriber.unsubscribe(Instant::ZERO);
    subscriber.reject(Instant::ZERO, ErrorCode::INTERNAL, "too late");
    feed(&mut subscriber, &[vector("ping"), vector("shutdown_normal")].concat(), &[7]);
    assert_eq!((events(&mut subscriber), sent(&mut subscriber)), (vec![], (vec![], vec![])));
}

#[test]
fn the_last_words_are_said_whatever_command_follows() {
    let mut subscriber = subscriber_in("Hello");
    subscriber.reject(Instant::ZERO, ErrorCode::INTERNAL, "out of memory");
    subscriber.unsubscribe(Instant::ZERO);
    let error = ErrorMessage { code: ErrorCode::INTERNAL, message: "out of memory".into() };
    assert_eq!(sent(&mut subscriber).0, encoded(|out| error.encode(out)));
    assert_eq!(events(&mut subscriber), [SubscriberEvent::Closed(Closed::Rejected(ErrorCode::INTERNAL))]);
}

#[test]
fn messages_behind_the_one_that_ends_a_session_are_not_looked_at() {
    let mut publisher = publisher_in("Active");
    let unknown = [0x77, 0, 0, 0, 0, 0, 0, 0];
    feed(
        &mut publisher,
        &[&unknown[..], &vector("unsubscribe"), &unknown, &vector("hello_req_nv")].concat(),
        &[],
    );
    let skipped = PublisherEvent::Unknown { message_type: MessageType(0x77), count: 1 };
    let closed = PublisherEvent::Closed(gone(Gone::Unsubscribed));
    assert_eq!(events(&mut publisher), [skipped, closed]);
}

#[test]
fn control_characters_in_the_words_of_a_peer_are_not_shown() {
    let refused = Refused { code: ErrorCode::IO, message: "a\u{1b}[31mb\nc".into() };
    assert_eq!(refused.to_string(), "refused with IO: a\u{FFFD}[31mb\u{FFFD}c");
}
