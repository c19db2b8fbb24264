//! The handshake (§3.3 to §3.6, §4.1): what a subscriber says, accepts and refuses.

use super::{ALL, Connected, End, Subscriber};
use crate::conformance::session::bytes::{
    FORMAT, HELLO_RESP, Hello, PROTOCOL, SUBSCRIBE_RESP, Stream, TOO_MANY, UNSUPPORTED, any, error, message,
    patched, resized, subscribe_req, subscribe_resp, subscribe_resp_short,
};
use crate::conformance::session::{LONG, Party, Raw};

/// The cases of this file, for one [`Subscriber`].
#[doc(hidden)]
#[macro_export]
macro_rules! subscriber_handshake_conformance {
    ($name:ident, $subscriber:ident) => {
        $crate::conformance_tests!(
            $name,
            $crate::conformance::session::subscriber::handshake,
            $subscriber,
            [
                it_says_hello_first_and_asks_for_its_bit_next,
                reserved_bytes_are_not_judged,
                a_refusal_may_be_as_short_as_its_code,
                an_error_is_accepted_in_place_of_an_answer,
                a_result_that_is_positive_is_malformed,
                a_stream_of_another_version_is_refused,
                features_that_were_not_asked_for_are_a_violation,
                a_ring_of_no_slot_or_more_than_16_is_refused,
                a_geometry_that_does_not_hold_together_is_refused_by_its_field,
                a_format_that_is_not_known_is_an_error_of_its_own,
                an_answer_to_hello_of_another_length_is_malformed,
                an_answer_to_the_request_of_another_length_is_malformed,
                a_bit_of_0_or_more_than_31_is_refused,
                an_initial_seq_of_four_bytes_is_accepted,
            ]
        );
    };
}

/// §3.3, §3.5, §4.1: HELLO_REQ without being asked, SUBSCRIBE_REQ after HELLO_RESP and not before; every byte of both, for
/// each set of features, and with none exactly v1.
pub fn it_says_hello_first_and_asks_for_its_bit_next<S: Subscriber>() {
    for features in 0..=ALL {
        let (subscriber, wire) = S::new(features, LONG);
        let mut raw = Raw::new(wire);
        raw.expect(&Hello { version: 1, features, ..subscriber.hello() }.message());
        raw.expect_silence();
        raw.send(&subscriber.stream().message());
        raw.expect(&subscribe_req(1));
        raw.expect_silence();
    }
}

/// §6.3: "reserved bytes are […] ignored by readers".
pub fn reserved_bytes_are_not_judged<S: Subscriber>() {
    let (subscriber, mut raw) = Connected::<S>::in_state("Hello", LONG);
    let mut answer = subscriber.stream().message();
    let reserved = answer.len() - 8 - 8;
    answer = patched(&answer, reserved, &[0xFF; 8]);
    // Also those of the meta (§2.1).
    raw.send(&patched(&answer, 16 + 0x20, &[0xFF; 32]));
    raw.expect(&subscribe_req(1));
    raw.send(&patched(&subscribe_resp(0, 1, 41), 16, &[0xFF; 12]));
    raw.expect_silence();
    assert_eq!(subscriber.end(), None);
}

/// §3.4, §3.6, D-27: "a failure may have any length from 4 bytes on. What follows `result` need not be looked at." "An
/// unknown negative code is a failure like any other" (§A.1).
pub fn a_refusal_may_be_as_short_as_its_code<S: Subscriber>() {
    for (state, message_type) in [("Hello", HELLO_RESP), ("Subscribe", SUBSCRIBE_RESP)] {
        for code in [PROTOCOL, TOO_MANY, UNSUPPORTED, -1, -17, i32::MIN] {
            for len in [4, 5, 16, 24, 28, 4096] {
                let (subscriber, mut raw) = Connected::<S>::in_state(state, LONG);
                let payload = [&code.to_le_bytes()[..], &vec![0xFF; len - 4]].concat();
                raw.send(&message(message_type, &payload));
                raw.expect_end();
                assert_eq!(subscriber.end(), Some(End::Refused(code)), "{len} bytes in {state}");
            }
        }
    }
}

/// D-3: "a subscriber accepts that, and also `ERROR(PROTOCOL)`".
pub fn an_error_is_accepted_in_place_of_an_answer<S: Subscriber>() {
    for state in Connected::<S>::STATES {
        let (subscriber, mut raw) = Connected::<S>::in_state(state, LONG);
        raw.send(&error(PROTOCOL, "HELLO_REQ proto_version"));
        raw.expect_end();
        let expected = if *state == "ShuttingDown" { End::Shutdown(0) } else { End::Refused(PROTOCOL) };
        assert_eq!(subscriber.end(), Some(expected), "{state}");
    }
}

/// §3.4: "a positive `result` is malformed".
pub fn a_result_that_is_positive_is_malformed<S: Subscriber>() {
    for result in [1, 4, i32::MAX] {
        let (subscriber, mut raw) = Connected::<S>::in_state("Hello", LONG);
        raw.send(&patched(&subscriber.stream().message(), 0, &result.to_le_bytes()));
        refused(&subscriber, raw, PROTOCOL, &["HELLO_RESP", "result"]);
        let (subscriber, mut raw) = Connected::<S>::in_state("Subscribe", LONG);
        raw.send(&subscribe_resp(result, 1, 41));
        refused(&subscriber, raw, PROTOCOL, &["SUBSCRIBE_RESP", "result"]);
    }
}

/// §3.4: "a success whose `proto_version_actual` is not 1 must be refused".
pub fn a_stream_of_another_version_is_refused<S: Subscriber>() {
    for version in [0, 2, u32::MAX] {
        let (subscriber, mut raw) = Connected::<S>::in_state("Hello", LONG);
        raw.send(&Stream { version, ..subscriber.stream() }.message());
        refused(&subscriber, raw, PROTOCOL, &["HELLO_RESP", "proto_version_actual"]);
    }
}

/// D-32: "features in force that were not asked for are a violation".
pub fn features_that_were_not_asked_for_are_a_violation<S: Subscriber>() {
    for asked in 0..=ALL {
        for more in (0..32).map(|bit| 1 << bit).filter(|bit| asked & bit == 0) {
            let (subscriber, wire) = S::new(asked, LONG);
            let mut raw = Raw::new(wire);
            raw.expect(&subscriber.hello().message());
            raw.send(&subscriber.stream().with(asked | more).message());
            refused(&subscriber, raw, PROTOCOL, &["HELLO_RESP", "features"]);
        }
    }
}

/// §2: a ring has 1 to 16 slots.
pub fn a_ring_of_no_slot_or_more_than_16_is_refused<S: Subscriber>() {
    for ring_size in [0, 17, 0x0100_0001, u32::MAX] {
        let (subscriber, mut raw) = Connected::<S>::in_state("Hello", LONG);
        raw.send(&Stream { ring_size, ..subscriber.stream() }.message());
        refused(&subscriber, raw, PROTOCOL, &["HELLO_RESP", "ring_size"]);
    }
}

/// §2.1: "width and height are not 0 […], no pitch is smaller than its row, no product overflows, and `frame_size_bytes` is
/// not smaller than the planes need".
pub fn a_geometry_that_does_not_hold_together_is_refused_by_its_field<S: Subscriber>() {
    // The stream is NV12, of two planes.
    const META: usize = 16;
    let word = |value: u32| value.to_le_bytes().to_vec();
    let cases = [
        (0x04, word(0), "width"),
        (0x08, word(0), "height"),
        (0x04, word(u32::MAX), "pitch_y"),
        (0x0C, word(1), "pitch_y"),
        (0x10, word(1), "pitch_uv"),
        (0x10, word(0), "pitch_uv"),
        (0x18, vec![0; 8], "frame_size_bytes"),
        (0x18, 1_u64.to_le_bytes().to_vec(), "frame_size_bytes"),
        (0x08, word(u32::MAX), "frame_size_bytes"),
        // BYTES has one row.
        (0x00, word(13), "height"),
    ];
    for (at, bytes, field) in cases {
        let (subscriber, mut raw) = Connected::<S>::in_state("Hello", LONG);
        raw.send(&patched(&subscriber.stream().message(), META + at, &bytes));
        refused(&subscriber, raw, PROTOCOL, &["HELLO_RESP", field]);
    }
}

/// D-28: "a subscriber that cannot use the format sends `ERROR(FORMAT)` and closes".
pub fn a_format_that_is_not_known_is_an_error_of_its_own<S: Subscriber>() {
    for format in [0_u32, 14, u32::MAX] {
        let (subscriber, mut raw) = Connected::<S>::in_state("Hello", LONG);
        raw.send(&patched(&subscriber.stream().message(), 16, &format.to_le_bytes()));
        refused(&subscriber, raw, FORMAT, &["format"]);
    }
}

/// §7.3: a HELLO_RESP "cut after each byte, with a byte appended, with each length field off by one".
pub fn an_answer_to_hello_of_another_length_is_malformed<S: Subscriber>() {
    let new = || Connected::<S>::in_state("Hello", LONG);
    let good = new().0.stream().message();
    let (len, path) = (good.len() - 8, good.len() - 8 - 96);
    let path_len = |path: usize| patched(&good, 80, &u32::try_from(path).unwrap().to_le_bytes());
    let ends = [
        (4, "result"),
        (8, "proto_version_actual"),
        (12, "ring_size"),
        (16, "ownership_mode"),
        (80, "frame_meta"),
        (84, "shm_path_len"),
        (84 + path, "shm_path"),
        (88 + path, "features"),
        (96 + path, "reserved"),
    ];
    let cut = (0..len).map(|len| (resized(&good, len), ends.iter().find(|(end, _)| len < *end).unwrap().1));
    let longer = [(resized(&good, len + 1), "payload"), (resized(&good, 4096), "payload")];
    let wrong =
        [(path_len(path - 1), "payload"), (path_len(path + 1), "reserved"), (path_len(5000), "shm_path")];
    let not_utf8 = [(patched(&good, 84, &[0xFF]), "shm_path")];
    for (bad, field) in cut.chain(longer).chain(wrong).chain(not_utf8) {
        let (subscriber, mut raw) = new();
        raw.send(&bad);
        refused(&subscriber, raw, PROTOCOL, &["HELLO_RESP", field]);
    }
}

/// §7.3, D-2: the same for SUBSCRIBE_RESP, which may have 28 bytes or 24.
pub fn an_answer_to_the_request_of_another_length_is_malformed<S: Subscriber>() {
    let good = subscribe_resp(0, 1, 41);
    for len in (0..64).chain([4096]).filter(|len| ![24, 28].contains(len)) {
        let (subscriber, mut raw) = Connected::<S>::in_state("Subscribe", LONG);
        raw.send(&resized(&good, len));
        refused(&subscriber, raw, PROTOCOL, &["SUBSCRIBE_RESP"]);
    }
}

/// §2.3, §3.6: bits are 1 to 31.
pub fn a_bit_of_0_or_more_than_31_is_refused<S: Subscriber>() {
    for bit in [0, 32, 33, 0x0100_0001, u32::MAX] {
        for answer in [subscribe_resp(0, bit, 41), subscribe_resp_short(bit, 41)] {
            let (subscriber, mut raw) = Connected::<S>::in_state("Subscribe", LONG);
            raw.send(&answer);
            refused(&subscriber, raw, PROTOCOL, &["SUBSCRIBE_RESP", "assigned_bit"]);
        }
    }
}

/// D-2: "on receipt accept a payload of 28 bytes, and one of 24 bytes".
pub fn an_initial_seq_of_four_bytes_is_accepted<S: Subscriber>() {
    for answer in
        [subscribe_resp_short(31, 41), subscribe_resp_short(1, 0), subscribe_resp(0, 31, u64::MAX >> 1)]
    {
        let (subscriber, mut raw) = Connected::<S>::in_state("Subscribe", LONG);
        raw.send(&answer);
        // In the next state the same message is not legal any more.
        raw.expect_silence();
        raw.send(&any(SUBSCRIBE_RESP));
        refused(&subscriber, raw, PROTOCOL, &["SUBSCRIBE_RESP", "message_type"]);
    }
}

/// Both sides must hear of it: the publisher with an ERROR, the application that it was a violation.
fn refused<S: Subscriber>(subscriber: &S, mut raw: Raw<S::Wire>, code: i32, words: &[&str]) {
    raw.expect_error(code, words);
    assert_eq!(subscriber.end(), Some(End::Violation), "{words:?}");
}
