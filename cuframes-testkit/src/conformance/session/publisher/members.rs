//! Who is subscribed (§2.3, §3.6, D-5, D-9, D-16, D-19, D-26, D-27): bits, and what the region says about them.

use super::{Connected, Hello, Publisher, Timeouts, hello, subscribe};
use crate::conformance::session::Raw;
use crate::conformance::session::bytes::{
    LEASE, TOO_MANY, UNSUBSCRIBE, any, message, subscribe_req, subscribe_resp,
};
use crate::layout::{self, subscriber};

/// The cases of this file, for one [`Publisher`].
#[doc(hidden)]
#[macro_export]
macro_rules! publisher_members_conformance {
    ($name:ident, $publisher:ident) => {
        $crate::conformance_tests!(
            $name,
            $crate::conformance::session::publisher::members,
            $publisher,
            [
                thirty_one_get_a_bit_and_the_next_is_told_too_many,
                initial_seq_is_the_newest_frame,
                a_subscriber_is_in_the_region_before_it_hears_of_its_bit,
                a_name_is_in_the_region_as_ascii_cut_to_31_characters,
                names_need_not_be_unique,
                only_who_has_lease_in_force_has_a_term,
                a_bit_that_was_given_back_is_free_at_once,
                a_bit_whose_subscriber_vanished_is_not_given_to_the_next,
                who_never_subscribes_takes_no_bit,
            ]
        );
    };
}

/// §2.3, D-27: "at most 31 subscribers"; "`TOO_MANY` if no bit is free. The publisher sends 28 bytes and closes."
pub fn thirty_one_get_a_bit_and_the_next_is_told_too_many<P: Publisher>() {
    let publisher = P::new(Timeouts::default());
    let mut members: Vec<_> = (0..31).map(|_| Raw::new(publisher.connect())).collect();
    let mut bits: Vec<u32> = members.iter_mut().map(|raw| subscribe(&publisher, raw).0).collect();
    bits.sort_unstable();
    assert_eq!(bits, (1..=31).collect::<Vec<_>>());
    assert_eq!(publisher.word(layout::SUBSCRIBER_BITMAP), 0xFFFF_FFFE, "bit 0 is never assigned");
    for _ in 0..2 {
        let mut raw = Raw::new(publisher.connect());
        super::say_hello(&publisher, &mut raw);
        raw.send(&subscribe_req(1));
        raw.expect(&subscribe_resp(TOO_MANY, 0, 0));
        raw.expect_end();
    }
    // Nobody had to go for that, and a place that is given back is one.
    members.iter_mut().for_each(Raw::expect_silence);
    leave(members.pop().unwrap());
    subscribe(&publisher, &mut Raw::new(publisher.connect()));
}

/// §3.6: "`global_seq` when the subscriber joined".
pub fn initial_seq_is_the_newest_frame<P: Publisher>() {
    let publisher = P::new(Timeouts::default());
    for published in 0..4 {
        assert_eq!(subscribe(&publisher, &mut Raw::new(publisher.connect())).1, published);
        assert_eq!(publisher.word(layout::GLOBAL_SEQ), published);
        publisher.publish();
    }
}

/// D-26: "`state` is […] 2 before SUBSCRIBE_RESP is sent"; D-5: "before it sends SUBSCRIBE_RESP, it stores `initial_seq` to
/// `last_seen_seq`"; D-9: the process is that of the socket's peer.
pub fn a_subscriber_is_in_the_region_before_it_hears_of_its_bit<P: Publisher>() {
    let publisher = P::new(Timeouts::default());
    (0..3).for_each(|_| publisher.publish());
    let mut raw = Raw::new(publisher.connect());
    let (bit, initial_seq) = subscribe(&publisher, &mut raw);
    let words = [STATE, CONSUMER_PID, LAST_SEEN_SEQ, LAST_ACK_NS, NAME, WAKE_MODE, PARKED];
    let rec = u64::from_le_bytes(*b"rec\0\0\0\0\0");
    let expected = [ACTIVE, publisher.peer_pid(), initial_seq, 0, rec, 0, 0];
    assert_eq!(words.map(|at| publisher.word(seat(bit) + at)), expected);
    assert_eq!(publisher.word(layout::SUBSCRIBER_BITMAP), 1 << bit);
}

/// D-16: "each other character becomes `?`, and the name is cut to 31 characters".
pub fn a_name_is_in_the_region_as_ascii_cut_to_31_characters<P: Publisher>() {
    let publisher = P::new(Timeouts::default());
    let cases = [
        ("камера-1".to_owned(), "??????-1".to_owned()),
        ("x".repeat(255), "x".repeat(31)),
        ("ы".repeat(31) + "y", "?".repeat(31)),
        ("~".into(), "~".into()),
    ];
    for (name, shown) in cases {
        let mut raw = Raw::new(publisher.connect());
        let bit = admitted(&publisher, &mut raw, &Hello { name: name.into_bytes(), ..hello(&publisher) });
        let words = [NAME, NAME + 8, NAME + 16, NAME + 24].map(|at| publisher.word(seat(bit) + at));
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let mut expected = shown.into_bytes();
        expected.resize(32, 0);
        assert_eq!(bytes, expected);
    }
}

/// D-16: "names need not be unique".
pub fn names_need_not_be_unique<P: Publisher>() {
    let publisher = P::new(Timeouts::default());
    let (mut first, mut second) = (Raw::new(publisher.connect()), Raw::new(publisher.connect()));
    assert_ne!(subscribe(&publisher, &mut first).0, subscribe(&publisher, &mut second).0);
    first.expect_silence();
    second.expect_silence();
}

/// §2.3: `term` is "with LEASE in force how often the bit was assigned, 1 for the first time; else reserved", and so 0.
pub fn only_who_has_lease_in_force_has_a_term<P: Publisher>() {
    let publisher = P::new(Timeouts::default());
    let all = hello(&publisher);
    for (number, features) in (1..).zip([all.features, all.features & !LEASE, all.features]) {
        let mut raw = Raw::new(publisher.connect());
        let bit = admitted(&publisher, &mut raw, &Hello { features, ..all.clone() });
        assert_eq!(bit, 1, "it is free again each time");
        let expected = if features & LEASE == 0 { 0 } else { number };
        assert_eq!(publisher.word(seat(bit) + TERM), expected, "assignment {number}");
        leave(raw);
    }
}

/// D-10, D-19: "a bit that was given back with UNSUBSCRIBE is free at once", and its subscriber slot is zero (§2.3). A
/// payload of UNSUBSCRIBE is ignored.
pub fn a_bit_that_was_given_back_is_free_at_once<P: Publisher>() {
    let publisher = P::new(Timeouts::default());
    for payload in [&[][..], b"x", &[0xFF; 4096]] {
        let mut raw = Raw::new(publisher.connect());
        assert_eq!(subscribe(&publisher, &mut raw).0, 1);
        raw.send(&message(UNSUBSCRIBE, payload));
        raw.expect_end();
        let words: Vec<u64> = (0..128).step_by(8).map(|at| publisher.word(seat(1) + at)).collect();
        assert_eq!(words, [0; 16]);
        assert_eq!(publisher.word(layout::SUBSCRIBER_BITMAP), 0);
    }
}

/// D-19: a subscriber that left without UNSUBSCRIBE "may still write to the region. Its bit must not be assigned again until
/// its process is gone, or 10 s have passed." D-26: its `state` is 3 meanwhile.
pub fn a_bit_whose_subscriber_vanished_is_not_given_to_the_next<P: Publisher>() {
    let (publisher, raw) = Connected::<P>::reach("Active", Timeouts::default());
    drop(raw);
    let mut next = Raw::new(publisher.connect());
    assert_eq!(subscribe(&publisher, &mut next).0, 2);
    assert_eq!(publisher.word(seat(1) + STATE), DRAINING);
    assert_eq!(publisher.word(layout::SUBSCRIBER_BITMAP), 1 << 2, "nobody waits for it any more (§1.3)");
    next.expect_silence();
}

/// §4.2: a bit is assigned when SUBSCRIBE_REQ comes, and not before.
pub fn who_never_subscribes_takes_no_bit<P: Publisher>() {
    let (publisher, mut raw) = Connected::<P>::reach("Subscribe", Timeouts::default());
    assert_eq!(publisher.word(layout::SUBSCRIBER_BITMAP), 0);
    assert_eq!(subscribe(&publisher, &mut Raw::new(publisher.connect())).0, 1);
    raw.expect_silence();
}

/// Subscribes with another HELLO_REQ; the bit.
fn admitted<P: Publisher>(publisher: &P, raw: &mut Raw<P::Wire>, hello: &Hello) -> u32 {
    raw.send(&hello.message());
    raw.expect(&publisher.stream().with(hello.features).message());
    raw.send(&subscribe_req(1));
    let answer = raw.next().unwrap();
    for _ in super::purposes(hello.features) {
        raw.next().unwrap();
    }
    u32::from_le_bytes(*answer.payload().get(4..).and_then(<[u8]>::first_chunk).unwrap())
}

fn leave<W: crate::conformance::session::Wire>(mut raw: Raw<W>) {
    raw.send(&any(UNSUBSCRIBE));
    raw.expect_end();
}

/// Where the subscriber slot of a bit begins.
fn seat(bit: u32) -> usize {
    subscriber(usize::try_from(bit).unwrap())
}

// Offsets in a subscriber slot (§2.3).
const STATE: usize = 0x00;
const CONSUMER_PID: usize = 0x08;
const LAST_SEEN_SEQ: usize = 0x10;
const LAST_ACK_NS: usize = 0x18;
const NAME: usize = 0x20;
const WAKE_MODE: usize = 0x40;
const PARKED: usize = 0x48;
const TERM: usize = 0x50;

// Values of `state`.
const ACTIVE: u64 = 2;
const DRAINING: u64 = 3;
