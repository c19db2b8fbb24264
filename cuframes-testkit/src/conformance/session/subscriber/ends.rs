//! How a subscriber leaves, and takes the end of its publisher (§1.2, §1.3, §3.8, §3.10, §4.1, D-10, D-30).

use super::{Connected, End, PURPOSES, Subscriber};
use crate::conformance::session::bytes::{
    PING, PROTOCOL, SHUTDOWN, UNSUBSCRIBE, any, begun, event_fd, message, patched, resized, shutdown,
};
use crate::conformance::session::{LONG, Party, SHORT};

/// The cases of this file, for one [`Subscriber`].
#[doc(hidden)]
#[macro_export]
macro_rules! subscriber_ends_conformance {
    ($name:ident, $subscriber:ident) => {
        $crate::conformance_tests!(
            $name,
            $crate::conformance::session::subscriber::ends,
            $subscriber,
            [
                it_says_unsubscribe_once_it_has_asked_for_a_bit,
                shutdown_before_the_bit_ends_it_without_a_word,
                shutdown_while_it_attaches_lets_it_go_on,
                shutdown_while_it_reads_is_told_and_then_it_unsubscribes,
                a_reason_that_is_not_known_is_a_reason,
                a_shutdown_of_another_length_is_malformed,
                the_end_of_the_connection_is_told_in_every_state,
                a_publisher_that_does_not_answer_is_told,
            ]
        );
    };
}

/// D-10: "our subscriber sends it after the last frame was released and the region unmapped"; in Hello there is nothing to
/// take back, and it would be no legal message (§4.3).
pub fn it_says_unsubscribe_once_it_has_asked_for_a_bit<S: Subscriber>() {
    for state in Connected::<S>::STATES {
        let (subscriber, mut raw) = Connected::<S>::in_state(state, LONG);
        subscriber.leave();
        if *state != "Hello" {
            raw.expect(&any(UNSUBSCRIBE));
        }
        raw.expect_end();
        assert_eq!(subscriber.end(), Some(End::Unsubscribed), "{state}");
    }
}

/// §4.1: "SHUTDOWN before SUBSCRIBE_RESP" leads to Closing.
pub fn shutdown_before_the_bit_ends_it_without_a_word<S: Subscriber>() {
    for state in ["Hello", "Subscribe"] {
        let (subscriber, mut raw) = Connected::<S>::in_state(state, LONG);
        raw.send(&shutdown(2));
        raw.expect_end();
        assert_eq!(subscriber.end(), Some(End::Shutdown(2)), "{state}");
    }
}

/// D-30: "one that receives SHUTDOWN while it attaches goes on attaching, with the descriptors that came before".
pub fn shutdown_while_it_attaches_lets_it_go_on<S: Subscriber>() {
    // In one read, so that it has no time to attach before.
    let descriptors: Vec<u8> = PURPOSES.iter().flat_map(|purpose| event_fd(*purpose)).collect();
    for reason in [0, 2] {
        let (subscriber, mut raw) = Connected::<S>::in_state("Attaching", LONG);
        raw.send_with(&[&descriptors[..], &shutdown(reason)].concat(), &PURPOSES);
        raw.expect_silence();
        assert!(subscriber.is_ready());
        assert_eq!(subscriber.end(), Some(End::Shutdown(reason)));
        subscriber.leave();
        raw.expect(&any(UNSUBSCRIBE));
        raw.expect_end();
    }
}

/// D-12, D-30: it may finish what is published, then says UNSUBSCRIBE.
pub fn shutdown_while_it_reads_is_told_and_then_it_unsubscribes<S: Subscriber>() {
    for reason in [0, 1, 2] {
        let (subscriber, mut raw) = Connected::<S>::in_state("Ready", LONG);
        raw.send(&shutdown(reason));
        raw.expect_silence();
        assert_eq!(subscriber.end(), Some(End::Shutdown(reason)));
        subscriber.leave();
        raw.expect(&any(UNSUBSCRIBE));
        raw.expect_end();
    }
}

/// §6.3: numbers that a receiver does not know must not be misread; reserved bytes are ignored.
pub fn a_reason_that_is_not_known_is_a_reason<S: Subscriber>() {
    for reason in [3, 99, u32::MAX] {
        let (subscriber, mut raw) = Connected::<S>::in_state("Ready", LONG);
        raw.send(&patched(&shutdown(reason), 4, &[0xFF; 12]));
        raw.expect_silence();
        assert_eq!(subscriber.end(), Some(End::Shutdown(reason)));
    }
}

/// §7.3: SHUTDOWN has 16 bytes.
pub fn a_shutdown_of_another_length_is_malformed<S: Subscriber>() {
    assert_eq!(any(SHUTDOWN).len(), 8 + 16);
    for state in ["Hello", "Subscribe", "Attaching", "Ready"] {
        for len in (0..24).chain([4096]).filter(|len| *len != 16) {
            let (subscriber, mut raw) = Connected::<S>::in_state(state, LONG);
            raw.send(&resized(&any(SHUTDOWN), len));
            let field = match len {
                0..4 => "reason",
                4..16 => "reserved",
                _ => "payload",
            };
            raw.expect_error(PROTOCOL, &["SHUTDOWN", field]);
            assert_eq!(subscriber.end(), Some(End::Violation));
        }
    }
}

/// §1.3, §4.1: "in every state the end of the connection leads to the end", also inside a message. After SHUTDOWN its reason
/// stays.
pub fn the_end_of_the_connection_is_told_in_every_state<S: Subscriber>() {
    for state in Connected::<S>::STATES {
        for last_words in [vec![], begun(&message(PING, b"half"), 11), begun(&any(SHUTDOWN), 3)] {
            let (subscriber, mut raw) = Connected::<S>::in_state(state, LONG);
            raw.send(&last_words);
            drop(raw);
            let expected = if *state == "ShuttingDown" { End::Shutdown(0) } else { End::Disconnected };
            assert_eq!(subscriber.end(), Some(expected), "{state}, {last_words:?}");
        }
    }
}

/// D-29: the application hears why.
pub fn a_publisher_that_does_not_answer_is_told<S: Subscriber>() {
    for state in Connected::<S>::STEPS {
        let (subscriber, mut raw) = Connected::<S>::in_state(state, SHORT);
        crate::conformance::session::common::expect_timeout(&mut raw);
        assert_eq!(subscriber.end(), Some(End::Timeout), "{state}");
    }
}
