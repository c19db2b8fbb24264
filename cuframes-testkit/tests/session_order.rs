//! What a session tells its driver about messages that are not legal or not known, and which command is legal in which state
//! (§4, D-11). What a peer hears is in the conformance suite.

use cuframes_core::error::{ErrorCode, Problem, Violation};
use cuframes_core::session::{Closed, PublisherEvent, Session};
use cuframes_core::wire::FdPurpose;
use cuframes_core::wire::MessageType;
use cuframes_core::wire::control::EventFd;
use cuframes_core::wire::fault::ErrorMessage;
use cuframes_core::wire::framing::{HEADER_LEN, MAX_PAYLOAD};
use cuframes_core::{Gone, Instant, Misuse, Refused};
use cuframes_testkit::conformance::session::bytes::{ERROR, PING, PONG, TYPES, UNSUBSCRIBE, any};
use cuframes_testkit::pair::subscribed;
use cuframes_testkit::solo::{encoded, events, feed, publisher_in, sent, subscriber_in};
use cuframes_testkit::vectors::vector;

#[test]
fn a_peer_that_is_about_to_be_admitted_may_ping_and_unsubscribe_and_nothing_else() {
    for (message_type, name) in TYPES {
        let mut publisher = publisher_in("Admitting");
        feed(&mut publisher, &any(message_type), &[]);
        let unexpected = Problem::Unexpected { state: "Admitting" };
        let expected = match message_type {
            PING | PONG => None,
            UNSUBSCRIBE => Some(Closed::Gone(Gone::Unsubscribed)),
            ERROR => {
                Some(Closed::Refused(Refused { code: ErrorCode::PROTOCOL, message: "length 4097".into() }))
            }
            other => Some(Closed::Violation(Violation::new(MessageType(other), "message_type", unexpected))),
        };
        assert_eq!(events(&mut publisher).pop(), expected.map(PublisherEvent::Closed), "{name}");
    }
}

#[test]
fn a_violation_is_told_to_the_peer_by_message_and_field() {
    let mut publisher = publisher_in("Active");
    feed(&mut publisher, &vector("subscribe_req"), &[]);
    let message = "SUBSCRIBE_REQ message_type: not legal in state Active".into();
    let error = ErrorMessage { code: ErrorCode::PROTOCOL, message };
    assert!(!publisher.is_closed(), "the peer has to hear it");
    assert_eq!(sent(&mut publisher).0, encoded(|out| error.encode(out)));
    assert!(publisher.is_closed());
}

#[test]
fn unknown_messages_are_skipped_counted_and_reported() {
    let unknown = |message_type: u32, len: usize| {
        let mut message = message_type.to_le_bytes().to_vec();
        message.extend(u32::try_from(len).unwrap().to_le_bytes());
        message.resize(HEADER_LEN + len, 0xAA);
        message
    };
    let stream =
        [unknown(0x77, 0), unknown(0, MAX_PAYLOAD), vector("hello_req_nv"), unknown(0x77, 3)].concat();
    let mut publisher = publisher_in("Hello");
    feed(&mut publisher, &stream, &[]);
    let told = [(0x77, 1), (0, 2), (0x77, 3)];
    let told =
        told.map(|(number, count)| PublisherEvent::Unknown { message_type: MessageType(number), count });
    assert_eq!(events(&mut publisher), told);
    feed(&mut publisher, &vector("subscribe_req"), &[]);
    assert!(matches!(events(&mut publisher)[..], [PublisherEvent::Subscribe(_)]), "the handshake went on");
}

#[test]
fn a_command_in_the_wrong_state_is_misuse() {
    let wrong = |command, state| Err(Misuse::WrongState { command, state });
    for state in ["Hello", "Subscribe", "Active"] {
        assert_eq!(publisher_in(state).admit(Instant::ZERO, Ok(subscribed())), wrong("admit", state));
    }
    let wake_up = EventFd::single(FdPurpose::WAKE_UP);
    for state in ["Hello", "Subscribe", "Admitting"] {
        assert_eq!(publisher_in(state).offer_fd(wake_up, 7), wrong("offer_fd", state));
    }
    for state in ["Hello", "Subscribe", "Ready", "ShuttingDown"] {
        assert_eq!(subscriber_in(state).attached(Instant::ZERO), wrong("attached", state));
    }
    let refusal = publisher_in("Admitting").admit(Instant::ZERO, Err(ErrorCode::OK));
    assert!(matches!(refusal, Err(Misuse::Argument { .. })), "a refusal must not look like a success");
}

#[test]
fn no_command_is_misuse_because_of_what_the_peer_did_meanwhile() {
    let mut publisher = publisher_in("Admitting");
    feed(&mut publisher, &vector("unsubscribe"), &[]);
    assert_eq!(publisher.admit(Instant::ZERO, Ok(subscribed())), Ok(()));
    assert_eq!(publisher.offer_fd(EventFd::single(FdPurpose::WAKE_UP), 7), Ok(()));
    assert_eq!(sent(&mut publisher), (vec![], vec![]));
    let mut subscriber = subscriber_in("Attaching");
    subscriber.handle_eof(Instant::ZERO);
    assert_eq!(subscriber.attached(Instant::ZERO), Ok(()));
    assert_eq!(events(&mut subscriber).len(), 1, "only that it ended");
}
