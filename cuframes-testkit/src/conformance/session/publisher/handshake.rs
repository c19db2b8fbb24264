//! The handshake (§3.3 to §3.6, §4.2): what a publisher answers, and what it refuses.

use std::time::Duration;

use super::{Connected, Publisher, Timeouts, answer, hello, purposes, say_hello, subscribe};
use crate::conformance::session::Raw;
use crate::conformance::session::bytes::{
    Hello, INVALID_ARGUMENT, PROTOCOL, UNSUPPORTED, event_fd, hello_refused, message, patched, resized,
    subscribe_req, subscribe_resp,
};

/// The cases of this file, for one [`Publisher`].
#[doc(hidden)]
#[macro_export]
macro_rules! publisher_handshake_conformance {
    ($name:ident, $publisher:ident) => {
        $crate::conformance_tests!(
            $name,
            $crate::conformance::session::publisher::handshake,
            $publisher,
            [
                every_set_of_features_is_answered_with_those_that_both_know,
                another_version_is_refused_in_the_short_form_whatever_else_it_says,
                a_name_of_1_to_255_bytes_of_text_is_taken,
                any_other_name_is_an_invalid_argument,
                a_mode_a_device_and_reserved_bytes_are_not_judged,
                a_hello_of_another_length_is_malformed,
                a_request_of_another_length_is_malformed,
                another_version_in_the_request_is_refused_in_full_length,
                a_handshake_may_come_in_pieces_of_any_size,
                a_handshake_may_come_in_one_piece,
            ]
        );
    };
}

/// §3.4, §3.6, §3.7, D-26, D-32: every byte of the handshake, and every descriptor, for all sets of features; "in force is a
/// subset of what was asked". Without the features that the stream needs: `HELLO_RESP(UNSUPPORTED)`.
pub fn every_set_of_features_is_answered_with_those_that_both_know<P: Publisher>() {
    for asked in (0..128).chain([u32::MAX, 0x8000_0007]) {
        let publisher = P::new(Timeouts::default());
        let stream = publisher.stream();
        let mut raw = Raw::new(publisher.connect());
        raw.send(&Hello::rec(asked).message());
        let in_force = asked & stream.features;
        if in_force & publisher.required() != publisher.required() {
            raw.expect(&hello_refused(UNSUPPORTED));
            raw.expect_end();
            continue;
        }
        raw.expect(&stream.with(in_force).message());
        raw.send(&subscribe_req(1));
        raw.expect(&subscribe_resp(0, 1, 0));
        for purpose in purposes(in_force) {
            raw.expect_with(&event_fd(purpose), 1);
        }
        raw.expect_silence();
    }
}

/// §6.1, §7.4, D-3: "if it is not 1, the publisher answers `HELLO_RESP(PROTOCOL)` in the short form and closes; it should not
/// judge the rest of the payload".
pub fn another_version_is_refused_in_the_short_form_whatever_else_it_says<P: Publisher>() {
    let publisher = P::new(Timeouts::default());
    for version in [0, 2, 0x0100_0000, u32::MAX] {
        let like_ours = Hello { version, ..hello(&publisher) }.message();
        let shortest = message(1, &version.to_le_bytes());
        let longer = message(1, &[&version.to_le_bytes()[..], &[0xFF; 4092]].concat());
        for request in [like_ours, shortest, longer] {
            let mut raw = Raw::new(publisher.connect());
            raw.send(&request);
            raw.expect(&hello_refused(PROTOCOL));
            raw.expect_end();
        }
    }
}

/// D-16: "1 to 255 bytes of UTF-8 without control characters".
pub fn a_name_of_1_to_255_bytes_of_text_is_taken<P: Publisher>() {
    let publisher = P::new(Timeouts::default());
    for name in
        ["x".to_owned(), " ".into(), "~\u{A0}\u{AD}".into(), "x".repeat(255), "камера-\u{1F4F7}".into()]
    {
        let mut raw = Raw::new(publisher.connect());
        raw.send(&Hello { name: name.into_bytes(), ..hello(&publisher) }.message());
        raw.expect(&answer(&publisher));
    }
}

/// D-16: "anything else gets `ERROR(INVALID_ARGUMENT)` and a close".
pub fn any_other_name_is_an_invalid_argument<P: Publisher>() {
    let publisher = P::new(Timeouts::default());
    let control = (0..0x20).chain(0x7F..0xA0).map(|code| format!("a{}b", char::from(code)).into_bytes());
    let not_utf8 =
        [&b"\xFF"[..], b"a\xC3", b"\xC0\x80", b"\xED\xA0\x80", b"\xF4\x90\x80\x80"].map(<[u8]>::to_vec);
    for name in control.chain(not_utf8).chain([vec![], vec![b'x'; 256], vec![b'x'; 4000]]) {
        let mut raw = Raw::new(publisher.connect());
        raw.send(&Hello { name, ..hello(&publisher) }.message());
        raw.expect_error(INVALID_ARGUMENT, &["HELLO_REQ", "consumer_name"]);
    }
}

/// D-16: "an unknown `mode` is accepted"; §6.3: "reserved bytes are […] ignored by readers".
pub fn a_mode_a_device_and_reserved_bytes_are_not_judged<P: Publisher>() {
    let publisher = P::new(Timeouts::default());
    let reserved = hello(&publisher).message().len() - 8 - 8;
    for (mode, device) in [(0, -1), (1, i32::MAX), (2, i32::MIN), (u32::MAX, 0)] {
        let request = Hello { mode, device, ..hello(&publisher) }.message();
        let mut raw = Raw::new(publisher.connect());
        raw.send(&patched(&request, reserved, &[0xFF; 8]));
        raw.expect(&answer(&publisher));
        raw.send(&patched(&subscribe_req(1), 4, &[0xFF; 12]));
        assert!(
            raw.next().is_some_and(|answer| answer.bytes.starts_with(&[4, 0, 0, 0, 28, 0, 0, 0, 0, 0, 0, 0]))
        );
    }
}

/// §7.3: a HELLO_REQ "cut after each byte, with a byte appended, with each length field off by one" names itself and the
/// field where it ends.
pub fn a_hello_of_another_length_is_malformed<P: Publisher>() {
    let publisher = P::new(Timeouts::default());
    let good = hello(&publisher).message();
    let fields = [
        (4, "proto_version"),
        (8, "consumer_name_len"),
        (11, "consumer_name"),
        (15, "cuda_device"),
        (19, "mode"),
        (23, "features"),
        (31, "reserved"),
    ];
    assert_eq!(good.len(), 8 + 31);
    let cut = fields_cut(&good, &fields);
    let longer = [(resized(&good, 32), "payload"), (resized(&good, 4096), "payload")];
    let shorter_name = (patched(&good, 4, &[2]), "payload");
    let letters = Hello { device: i32::from_le_bytes(*b"ords"), ..hello(&publisher) }.message();
    let longer_name = (patched(&letters, 4, &[4]), "reserved");
    for (bad, field) in cut.into_iter().chain(longer).chain([shorter_name, longer_name]) {
        let mut raw = Raw::new(publisher.connect());
        raw.send(&bad);
        raw.expect_error(PROTOCOL, &["HELLO_REQ", field]);
    }
}

/// §7.3: the same for SUBSCRIBE_REQ.
pub fn a_request_of_another_length_is_malformed<P: Publisher>() {
    let publisher = P::new(Timeouts::default());
    let good = subscribe_req(1);
    let cut = fields_cut(&good, &[(4, "proto_version"), (16, "reserved")]);
    for (bad, field) in
        cut.into_iter().chain([(resized(&good, 17), "payload"), (resized(&good, 4096), "payload")])
    {
        let mut raw = Raw::new(publisher.connect());
        say_hello(&publisher, &mut raw);
        raw.send(&bad);
        raw.expect_error(PROTOCOL, &["SUBSCRIBE_REQ", field]);
    }
}

/// D-27: "`PROTOCOL` for a wrong `proto_version` in SUBSCRIBE_REQ […]. The publisher sends 28 bytes and closes."
pub fn another_version_in_the_request_is_refused_in_full_length<P: Publisher>() {
    for version in [0, 2, u32::MAX] {
        let (_publisher, mut raw) = Connected::<P>::reach("Subscribe", Timeouts::default());
        raw.send(&subscribe_req(version));
        raw.expect(&subscribe_resp(PROTOCOL, 0, 0));
        raw.expect_end();
    }
}

/// §3.1: a handshake in pieces is the same handshake.
pub fn a_handshake_may_come_in_pieces_of_any_size<P: Publisher>() {
    let publisher = P::new(Timeouts::default());
    let requests = [hello(&publisher).message(), subscribe_req(1)].concat();
    for (size, bit) in (1..=30).zip(1..) {
        let mut raw = Raw::new(publisher.connect());
        for piece in requests.chunks(size) {
            raw.send(piece);
            raw.pass(Duration::ZERO);
        }
        raw.expect(&answer(&publisher));
        raw.expect(&subscribe_resp(0, bit, 0));
        purposes(publisher.stream().features)
            .into_iter()
            .for_each(|purpose| raw.expect_with(&event_fd(purpose), 1));
        // Its bit is not given to anybody else meanwhile: it is still connected, or it vanished (D-19).
        raw.expect_silence();
    }
}

/// §3.1: a subscriber need not wait for HELLO_RESP before it sends SUBSCRIBE_REQ.
pub fn a_handshake_may_come_in_one_piece<P: Publisher>() {
    let publisher = P::new(Timeouts::default());
    let mut raw = Raw::new(publisher.connect());
    raw.send(&[hello(&publisher).message(), subscribe_req(1)].concat());
    raw.expect(&answer(&publisher));
    raw.expect(&subscribe_resp(0, 1, 0));
    drop(raw);
    assert_eq!(subscribe(&publisher, &mut Raw::new(publisher.connect())).1, 0);
}

/// A message cut after each byte of its payload, and the field that is not whole then. Fields are given by their ends.
fn fields_cut<'a>(good: &[u8], fields: &[(usize, &'a str)]) -> Vec<(Vec<u8>, &'a str)> {
    let field_at = |len| fields.iter().find(|(end, _)| len < *end).unwrap().1;
    (0..good.len() - 8).map(|len| (resized(good, len), field_at(len))).collect()
}
