//! How a publisher ends a connection, and takes its end (§1.2, §1.3, §3.8, §4.2, D-12, D-30, D-31).

use std::time::Duration;

use super::{Connected, Publisher, Timeouts, hello, purposes, subscribe};
use crate::conformance::session::bytes::{
    EVICTED, Hello, NO_ACK, PING, UNSUBSCRIBE, any, begun, event_fd, message, shutdown, subscribe_req,
    subscribe_resp,
};
use crate::conformance::session::{Party, Raw, SHORT};
use crate::layout;

/// The cases of this file, for one [`Publisher`].
#[doc(hidden)]
#[macro_export]
macro_rules! publisher_ends_conformance {
    ($name:ident, $publisher:ident) => {
        $crate::conformance_tests!(
            $name,
            $crate::conformance::session::publisher::ends,
            $publisher,
            [
                shutdown_is_said_in_every_state_with_its_reason,
                the_flag_in_the_region_is_set_before_shutdown_is_sent,
                handshake_messages_that_cross_shutdown_are_ignored,
                a_subscriber_may_take_its_time_after_shutdown_and_then_unsubscribe,
                who_does_not_leave_after_shutdown_is_closed_when_the_grace_period_is_over,
                who_keeps_the_writer_waiting_is_told_evicted,
                who_need_not_acknowledge_is_not_waited_for,
                a_connection_may_end_in_every_state_and_inside_a_message,
                what_comes_behind_unsubscribe_is_not_looked_at,
                trouble_with_one_peer_is_no_trouble_for_another,
            ]
        );
    };
}

/// §3.8, §4.2: "a publisher that stops sends SHUTDOWN in the earlier states as well".
pub fn shutdown_is_said_in_every_state_with_its_reason<P: Publisher>() {
    for state in ["Hello", "Subscribe", "Active"] {
        for reason in [0, 1, 2] {
            let (publisher, mut raw) = Connected::<P>::reach(state, Timeouts::default());
            raw.expect_silence();
            publisher.shut_down(reason);
            raw.expect(&shutdown(reason));
            raw.expect_silence();
        }
    }
}

/// §1.2: "1. stores 1 to `shutdown_flag`; 2. sends SHUTDOWN".
pub fn the_flag_in_the_region_is_set_before_shutdown_is_sent<P: Publisher>() {
    let (publisher, mut raw) = Connected::<P>::reach("Active", Timeouts::default());
    assert_eq!(publisher.word(layout::SHUTDOWN_FLAG), 0);
    publisher.shut_down(0);
    raw.expect(&shutdown(0));
    assert_eq!(publisher.word(layout::SHUTDOWN_FLAG), 1);
}

/// §4.2: "handshake messages that were under way when it did so are ignored".
pub fn handshake_messages_that_cross_shutdown_are_ignored<P: Publisher>() {
    for state in ["Hello", "Subscribe", "Active"] {
        let (publisher, mut raw) = Connected::<P>::reach(state, Timeouts::default());
        raw.expect_silence();
        publisher.shut_down(0);
        raw.send(&[hello(&publisher).message(), subscribe_req(1)].concat());
        raw.expect(&shutdown(0));
        raw.expect_silence();
        assert_eq!(publisher.word(layout::SUBSCRIBER_BITMAP), if state == "Active" { 2 } else { 0 });
    }
}

/// D-12, D-30: the publisher waits until every subscriber has closed; §4.3: UNSUBSCRIBE is legal in Draining.
pub fn a_subscriber_may_take_its_time_after_shutdown_and_then_unsubscribe<P: Publisher>() {
    let (publisher, mut raw) = Connected::<P>::reach("Draining", Timeouts::default());
    for _ in 0..5 {
        raw.pass(Duration::from_millis(10));
        raw.expect_silence();
    }
    assert_eq!(publisher.word(layout::SUBSCRIBER_BITMAP), 2, "its last frames are still waited for");
    raw.send(&any(UNSUBSCRIBE));
    raw.expect_end();
    assert_eq!(publisher.word(layout::SUBSCRIBER_BITMAP), 0);
}

/// D-12: "or a grace period has passed".
pub fn who_does_not_leave_after_shutdown_is_closed_when_the_grace_period_is_over<P: Publisher>() {
    for state in ["Hello", "Active"] {
        let timeouts = Timeouts { grace: SHORT, ..Timeouts::default() };
        let (publisher, mut raw) = Connected::<P>::reach(state, timeouts);
        raw.expect_silence();
        publisher.shut_down(2);
        raw.expect(&shutdown(2));
        raw.expect_end();
    }
}

/// D-31: who makes the writer wait for too long is "told `ERROR(EVICTED)`, and the connection is closed"; its bit stops
/// counting. Who acknowledges, or joined after the frame, is not in the way.
pub fn who_keeps_the_writer_waiting_is_told_evicted<P: Publisher>() {
    let timeouts = Timeouts { consumer_ack: SHORT, ..Timeouts::default() };
    let (publisher, mut raw) = Connected::<P>::reach("Active", timeouts);
    (0..8).for_each(|_| publisher.publish());
    raw.expect_silence();
    let mut late = Raw::new(publisher.connect());
    assert_eq!(subscribe(&publisher, &mut late), (2, 8));
    publisher.publish();
    raw.expect_error(EVICTED, &[]);
    assert_eq!(publisher.word(layout::GLOBAL_SEQ), 9);
    assert_eq!(publisher.word(layout::SUBSCRIBER_BITMAP), 1 << 2);
    assert_eq!(publisher.word(layout::subscriber(1)), 3, "draining (D-26)");
    late.expect_silence();
}

/// §5.10: with NO_ACK in force "no frame is required"; "of the next holder of the bit frames are required again".
pub fn who_need_not_acknowledge_is_not_waited_for<P: Publisher>() {
    let publisher = P::new(Timeouts { consumer_ack: SHORT, ..Timeouts::default() });
    let stream = publisher.stream();
    assert_ne!(stream.features & NO_ACK, 0, "it does not honour NO_ACK");
    // No hint, so that it need not be woken for each frame.
    let in_force = publisher.required() | NO_ACK;
    let mut raw = Raw::new(publisher.connect());
    raw.send(&Hello::rec(in_force).message());
    raw.expect(&stream.with(in_force).message());
    raw.send(&subscribe_req(1));
    raw.expect(&subscribe_resp(0, 1, 0));
    for purpose in purposes(in_force) {
        raw.expect_with(&event_fd(purpose), 1);
    }
    (0..20).for_each(|_| publisher.publish());
    raw.expect_silence();
    assert_eq!(publisher.word(layout::GLOBAL_SEQ), 20);
    raw.send(&any(UNSUBSCRIBE));
    raw.expect_end();
    let mut next = Raw::new(publisher.connect());
    assert_eq!(subscribe(&publisher, &mut next), (1, 20));
    (0..9).for_each(|_| publisher.publish());
    next.expect_error(EVICTED, &[]);
}

/// §4.2: "in every state the end of the connection […] leads to the end, and the bit is released".
pub fn a_connection_may_end_in_every_state_and_inside_a_message<P: Publisher>() {
    for state in Connected::<P>::STATES {
        for last_words in [vec![], begun(&message(PING, b"half"), 11), begun(&any(UNSUBSCRIBE), 3)] {
            let (publisher, mut raw) = Connected::<P>::reach(state, Timeouts::default());
            let mut other = Raw::new(publisher.connect());
            raw.send(&last_words);
            drop(raw);
            if *state != "Draining" {
                let (bit, _) = subscribe(&publisher, &mut other);
                assert_eq!(bit, if *state == "Active" { 2 } else { 1 });
            }
            // By now it has been noticed.
            other.pass(Duration::from_millis(1));
            let bitmap = publisher.word(layout::SUBSCRIBER_BITMAP);
            let expected = match *state {
                "Draining" => 0,
                "Active" => 1 << 2,
                _ => 1 << 1,
            };
            assert_eq!(bitmap, expected, "{state}, {last_words:?}");
        }
    }
}

/// §4.3: in Closing "everything is ignored".
pub fn what_comes_behind_unsubscribe_is_not_looked_at<P: Publisher>() {
    let (publisher, mut raw) = Connected::<P>::reach("Active", Timeouts::default());
    raw.send(&[any(UNSUBSCRIBE), any(PING), hello(&publisher).message(), vec![0xFF; 8]].concat());
    raw.expect_end();
    assert_eq!(subscribe(&publisher, &mut Raw::new(publisher.connect())).0, 1, "the bit was given back");
}

/// §4.2 is "for each connection".
pub fn trouble_with_one_peer_is_no_trouble_for_another<P: Publisher>() {
    let (publisher, mut good) = Connected::<P>::reach("Active", Timeouts::default());
    for bad in [vec![0xFF; 8], any(PING).repeat(20_000), hello(&publisher).message().repeat(2), vec![1]] {
        let mut raw = Raw::new(publisher.connect());
        raw.send(&bad);
        good.expect_silence();
        publisher.publish();
        drop(raw);
        good.expect_silence();
    }
}
