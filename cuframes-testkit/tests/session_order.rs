//! Which message is legal in which state, and which command (§4, D-11).

use cuframes_core::error::{ErrorCode, Problem, Violation};
use cuframes_core::session::{Closed, PublisherEvent, Session, SubscriberEvent};
use cuframes_core::wire::FdPurpose;
use cuframes_core::wire::MessageType;
use cuframes_core::wire::control::EventFd;
use cuframes_core::wire::fault::ErrorMessage;
use cuframes_core::wire::framing::{HEADER_LEN, MAX_PAYLOAD};
use cuframes_core::{Instant, Misuse};
use cuframes_testkit::pair::subscribed;
use cuframes_testkit::solo::{
    PUBLISHER_STATES, SUBSCRIBER_STATES, encoded, events, feed, publisher_in, sent, subscriber_in,
};
use cuframes_testkit::vectors::vector;

/// Every message but those that are legal everywhere: PING, PONG and ERROR.
const MESSAGES: [(MessageType, &str); 7] = [
    (MessageType::HELLO_REQ, "hello_req_features"),
    (MessageType::HELLO_RESP, "hello_resp_features"),
    (MessageType::SUBSCRIBE_REQ, "subscribe_req"),
    (MessageType::SUBSCRIBE_RESP, "subscribe_resp"),
    (MessageType::UNSUBSCRIBE, "unsubscribe"),
    (MessageType::EVENT_FD, "event_fd_wake"),
    (MessageType::SHUTDOWN, "shutdown_normal"),
];

fn unexpected(message_type: MessageType, state: &'static str) -> Closed {
    Closed::Violation(Violation::new(message_type, "message_type", Problem::Unexpected { state }))
}

/// A descriptor where the message needs one.
fn fds(message_type: MessageType) -> &'static [u32] {
    if message_type == MessageType::EVENT_FD { &[7] } else { &[] }
}

#[test]
fn a_publisher_takes_each_message_in_its_own_state_only() {
    for (state, _) in PUBLISHER_STATES {
        for (message_type, name) in MESSAGES {
            let mut publisher = publisher_in(state);
            feed(&mut publisher, &vector(name), fds(message_type));
            let legal = match message_type {
                MessageType::HELLO_REQ => ["Hello", "Draining"].contains(&state),
                MessageType::SUBSCRIBE_REQ => ["Subscribe", "Draining"].contains(&state),
                MessageType::UNSUBSCRIBE => ["Admitting", "Active", "Draining"].contains(&state),
                _ => false,
            };
            let closed =
                events(&mut publisher).pop() == Some(PublisherEvent::Closed(unexpected(message_type, state)));
            assert_eq!(closed, !legal, "{message_type} in {state}");
        }
    }
}

#[test]
fn a_subscriber_takes_each_message_in_its_own_state_only() {
    for (state, _) in SUBSCRIBER_STATES {
        for (message_type, name) in MESSAGES {
            let mut subscriber = subscriber_in(state);
            feed(&mut subscriber, &vector(name), fds(message_type));
            let legal = match message_type {
                MessageType::HELLO_RESP => state == "Hello",
                MessageType::SUBSCRIBE_RESP => state == "Subscribe",
                MessageType::EVENT_FD => state != "Hello",
                MessageType::SHUTDOWN => true,
                _ => false,
            };
            let closed = events(&mut subscriber).pop()
                == Some(SubscriberEvent::Closed(unexpected(message_type, state)));
            assert_eq!(closed, !legal, "{message_type} in {state}");
        }
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
fn an_oversized_message_is_refused_from_its_header() {
    let mut publisher = publisher_in("Hello");
    feed(&mut publisher, &vector("oversize"), &[]);
    let [PublisherEvent::Closed(Closed::Violation(violation))] = events(&mut publisher)[..] else {
        panic!("accepted")
    };
    assert_eq!(violation.field, "payload_length");
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
