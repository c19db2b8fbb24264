//! What both ends must do alike: framing (§3.1), ERROR (§3.9), PING and PONG (§3.10), descriptors (§3.11), limits (§3.12),
//! and which message is legal in which state (§4.3).

use std::time::Duration;

use super::bytes::{ERROR, PING, PONG, PROTOCOL, TIMEOUT, TYPES, any, error, message, patched, resized};
use super::{JUNK, LONG, Party, Raw, SHORT, Wire};

/// The cases of this file, for one [`Party`].
#[doc(hidden)]
#[macro_export]
macro_rules! common_conformance {
    ($name:ident, $party:ident) => {
        $crate::conformance_tests!(
            $name,
            $crate::conformance::session::common,
            $party,
            [
                a_payload_over_4096_bytes_is_refused_from_its_header,
                a_message_may_come_in_pieces_of_any_size,
                messages_may_come_in_one_piece,
                unknown_types_are_skipped_in_every_state,
                a_message_that_is_not_legal_is_refused_by_its_name,
                an_error_ends_the_connection_without_an_answer,
                a_malformed_error_is_a_violation,
                ping_is_answered_in_every_state,
                a_pong_that_nobody_asked_for_is_ignored,
                a_descriptor_that_no_message_claims_is_closed_and_a_violation,
                a_peer_that_does_not_answer_is_closed,
                ping_does_not_restart_a_deadline,
                a_peer_that_does_not_read_is_closed,
            ]
        );
    };
}

/// §3.1, D-11: "more than 4096 is a violation, for an unknown type too"; the payload need not be sent for that.
pub fn a_payload_over_4096_bytes_is_refused_from_its_header<P: Party>() {
    for state in P::STATES {
        for (message_type, name) in TYPES.into_iter().chain([(0x77, "119")]) {
            for len in [4097_u32, 0x0001_0000, u32::MAX] {
                let (_held, mut raw) = P::in_state(state, LONG);
                raw.send(&[message_type, len].map(u32::to_le_bytes).concat());
                raw.expect_error(PROTOCOL, &[name, "payload_length"]);
            }
        }
    }
}

/// §3.1: a stream has no borders but those of its messages.
pub fn a_message_may_come_in_pieces_of_any_size<P: Party>() {
    let question = message(PING, &numbered(60));
    for state in P::STATES {
        let (_held, mut raw) = P::in_state(state, LONG);
        for size in 1..=question.len() {
            for piece in question.chunks(size) {
                raw.send(piece);
                raw.pass(Duration::ZERO);
            }
            raw.expect(&message(PONG, &numbered(60)));
        }
    }
}

/// §3.1: messages follow each other without a gap.
pub fn messages_may_come_in_one_piece<P: Party>() {
    for state in P::STATES {
        let (_held, mut raw) = P::in_state(state, LONG);
        let questions: Vec<u8> = (0..64).flat_map(|n| message(PING, &numbered(n))).collect();
        raw.send(&questions);
        for n in 0..64 {
            raw.expect(&message(PONG, &numbered(n)));
        }
    }
}

/// D-11: "a message of a type that is not in §3.2 is skipped […]. It never closes the connection."
pub fn unknown_types_are_skipped_in_every_state<P: Party>() {
    for state in P::STATES {
        let (_held, mut raw) = P::in_state(state, LONG);
        for message_type in [0, 5, 0x0F, 0x11, 0x21, 0x77, 0xEF, 0xF2, 0xFF, 0x0100_0001, u32::MAX] {
            for len in [0, 1, 4096] {
                raw.send(&message(message_type, &numbered(len)));
            }
            raw.expect_silence();
        }
    }
}

/// §4.3, D-11: every type in every state; what the table does not have is a violation that names the type.
pub fn a_message_that_is_not_legal_is_refused_by_its_name<P: Party>() {
    for state in P::STATES {
        for (message_type, name) in TYPES {
            if [PING, PONG, ERROR].contains(&message_type) || P::is_legal(state, message_type) {
                continue;
            }
            let (_held, mut raw) = P::in_state(state, LONG);
            raw.send(&any(message_type));
            raw.expect_error(PROTOCOL, &[name, "message_type"]);
        }
    }
}

/// D-28, §3.9: "the publisher closes on any ERROR from a peer, and so does a subscriber".
pub fn an_error_ends_the_connection_without_an_answer<P: Party>() {
    for state in P::STATES {
        for code in [-1, PROTOCOL, -16, -17, i32::MIN, 0, 1] {
            for words in [String::new(), "\u{1b}[31mbroken\0\n".into(), "ы".repeat(2038)] {
                let (_held, mut raw) = P::in_state(state, LONG);
                raw.send(&error(code, &words));
                raw.expect_end();
            }
        }
    }
}

/// §3.9: "an ERROR that is itself malformed closes the connection as any violation does".
pub fn a_malformed_error_is_a_violation<P: Party>() {
    let good = error(PROTOCOL, "length 4097");
    let len = good.len() - 8;
    for state in P::STATES {
        let cut = (0..len).map(|len| resized(&good, len));
        let longer = [len + 1, 4096].map(|len| resized(&good, len));
        let wrong_length = [10_u32, 12, u32::MAX].map(|len| patched(&good, 4, &len.to_le_bytes()));
        let not_utf8 = patched(&good, 8, &[0xFF]);
        for bad in cut.chain(longer).chain(wrong_length).chain([not_utf8]) {
            let (_held, mut raw) = P::in_state(state, LONG);
            raw.send(&bad);
            raw.expect_error(PROTOCOL, &["ERROR"]);
        }
    }
}

/// D-10: "PING is answered in every state"; "PONG echoes the payload of a PING up to 64 bytes. A longer PING gets an empty
/// PONG."
pub fn ping_is_answered_in_every_state<P: Party>() {
    for state in P::STATES {
        let (_held, mut raw) = P::in_state(state, LONG);
        for len in 0..=64 {
            raw.send(&message(PING, &numbered(len)));
            raw.expect(&message(PONG, &numbered(len)));
        }
        for len in [65, 1000, 4096] {
            raw.send(&message(PING, &numbered(len)));
            raw.expect(&message(PONG, &[]));
        }
    }
}

/// D-10: "a PONG that nobody asked for is ignored".
pub fn a_pong_that_nobody_asked_for_is_ignored<P: Party>() {
    for state in P::STATES {
        let (_held, mut raw) = P::in_state(state, LONG);
        for len in [0, 1, 64, 65, 4096] {
            raw.send(&message(PONG, &numbered(len)));
        }
        raw.expect_silence();
    }
}

/// D-22: "a descriptor that is left over when no partial message is buffered is a violation", and everything queued is
/// closed.
pub fn a_descriptor_that_no_message_claims_is_closed_and_a_violation<P: Party>() {
    for state in P::STATES {
        for (bytes, fds) in [(any(PING), 1), (any(PONG), 2), (message(0x77, b"later"), 1)] {
            let (held, mut raw) = P::in_state(state, LONG);
            raw.send_with(&bytes, &vec![JUNK; fds]);
            if bytes == any(PING) {
                raw.expect(&any(PONG));
            }
            raw.expect_error(PROTOCOL, &["EVENT_FD", "descriptor"]);
            assert_eq!(raw.junk_open(), 0, "in {state}");
            drop(held);
        }
    }
}

/// D-29: each step of the handshake has a deadline; "it may send `ERROR(TIMEOUT)` first".
pub fn a_peer_that_does_not_answer_is_closed<P: Party>() {
    for state in P::STEPS {
        let (_held, mut raw) = P::in_state(state, SHORT);
        expect_timeout(&mut raw);
    }
}

/// D-10: PING "does not restart a handshake deadline".
pub fn ping_does_not_restart_a_deadline<P: Party>() {
    for state in P::STEPS {
        let (_held, mut raw) = P::in_state(state, SHORT);
        // Enough for ten deadlines.
        let asked = (0..40).take_while(|_| {
            raw.pass(SHORT / 4);
            raw.try_send(&any(PING))
        });
        assert!(asked.count() < 40, "in {state}");
        let answer = raw.find(|answer| answer.bytes != any(PONG));
        assert!(answer.is_none_or(|answer| is_timeout(&answer.bytes)), "in {state}");
    }
}

/// D-29: what is queued for a peer that does not read is bounded, "then closed".
pub fn a_peer_that_does_not_read_is_closed<P: Party>() {
    let questions = message(PING, &numbered(64)).repeat(100);
    for state in P::STATES {
        let (_held, mut raw) = P::in_state(state, LONG);
        // A socket holds some hundred thousand bytes in each direction.
        let sent = (0..10_000).take_while(|_| raw.try_send(&questions)).count();
        assert!((64 * 1024 / questions.len()..10_000).contains(&sent), "{sent} times {}", questions.len());
    }
}

/// The connection must be over, perhaps after ERROR(TIMEOUT).
pub(super) fn expect_timeout<W: Wire>(raw: &mut Raw<W>) {
    if let Some(answer) = raw.next() {
        assert!(is_timeout(&answer.bytes), "{answer:?}");
        raw.expect_end();
    }
}

fn is_timeout(bytes: &[u8]) -> bool {
    bytes.starts_with(&ERROR.to_le_bytes()) && bytes.get(8..12) == Some(&TIMEOUT.to_le_bytes()[..])
}

/// So many bytes that differ.
fn numbered(len: usize) -> Vec<u8> {
    (0..=u8::MAX).cycle().take(len).collect()
}
