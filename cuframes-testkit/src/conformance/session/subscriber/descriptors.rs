//! Descriptors (§3.7, §3.11, D-22), and when a subscriber is ready (D-26).

use std::time::Duration;

use super::{ALL, Connected, End, PURPOSES, Subscriber};
use crate::conformance::session::bytes::{
    FD_PASSING, HOST_POOL, LEASE, PROTOCOL, PUBLISHER_WAKE_UP, REGION, SUBSCRIBE_RESP, WAKE_HINT, WAKE_UP,
    WITNESS, any, begun, event_fd, event_fd_of, message, patched, resized, shutdown, subscribe_req,
    subscribe_resp,
};
use crate::conformance::session::{JUNK, LONG, Party, Raw};

/// The cases of this file, for one [`Subscriber`].
#[doc(hidden)]
#[macro_export]
macro_rules! subscriber_descriptors_conformance {
    ($name:ident, $subscriber:ident) => {
        $crate::conformance_tests!(
            $name,
            $crate::conformance::session::subscriber::descriptors,
            $subscriber,
            [
                it_is_ready_with_the_last_descriptor_that_its_features_need,
                descriptors_may_come_in_any_order_and_before_the_bit,
                a_descriptor_may_come_before_its_message,
                a_message_without_its_descriptor_is_a_violation,
                a_descriptor_of_an_unknown_purpose_is_closed_and_no_harm,
                an_eventfd_has_neither_index_nor_count,
                an_event_fd_of_another_length_is_malformed,
                a_descriptor_that_is_not_in_force_is_a_violation_and_closed,
                after_shutdown_a_descriptor_is_closed_without_effect,
                no_descriptor_outlives_the_connection,
                what_came_for_attaching_is_closed_with_the_connection,
            ]
        );
    };
}

/// D-26: "a subscriber is ready when it has what its features need: the region and the pool with FD_PASSING, purposes 1 and 5
/// with WAKE_HINT". "Without any feature it is ready with SUBSCRIBE_RESP, and purpose 1 may follow at any time or never."
pub fn it_is_ready_with_the_last_descriptor_that_its_features_need<S: Subscriber>() {
    for features in (0..=ALL).filter(|features| features & S::NEEDED == S::NEEDED) {
        let (subscriber, mut raw) = asked_for_its_bit::<S>(features);
        raw.expect_silence();
        assert!(!subscriber.is_ready(), "without a bit");
        raw.send(&subscribe_resp(0, 1, 41));
        let mut needed = Vec::new();
        if features & FD_PASSING != 0 {
            needed.extend([REGION, HOST_POOL]);
        }
        if features & WAKE_HINT != 0 {
            needed.extend([PUBLISHER_WAKE_UP, WAKE_UP]);
        }
        for purpose in needed {
            raw.expect_silence();
            assert!(!subscriber.is_ready(), "before purpose {purpose} with features {features}");
            raw.send_with(&event_fd(purpose), &[purpose]);
        }
        raw.expect_silence();
        assert!(subscriber.is_ready(), "with features {features}");
        if features & WAKE_HINT == 0 {
            raw.send_with(&event_fd(WAKE_UP), &[WAKE_UP]);
            raw.expect_silence();
        }
        assert_eq!(subscriber.end(), None);
    }
}

/// D-26: "any order is accepted"; §4.3: EVENT_FD is legal from Subscribe on.
pub fn descriptors_may_come_in_any_order_and_before_the_bit<S: Subscriber>() {
    for order in orders() {
        for before in 0..=order.len() {
            let (subscriber, mut raw) = Connected::<S>::in_state("Subscribe", LONG);
            let (early, late) = order.split_at(before);
            early.iter().for_each(|purpose| raw.send_with(&event_fd(*purpose), &[*purpose]));
            raw.send(&subscribe_resp(0, 1, 41));
            late.iter().for_each(|purpose| raw.send_with(&event_fd(*purpose), &[*purpose]));
            raw.expect_silence();
            assert!(subscriber.is_ready(), "{order:?}, {before} of them before the bit");
        }
    }
}

/// D-22: "Linux may deliver a descriptor early, together with bytes that were sent before its message".
pub fn a_descriptor_may_come_before_its_message<S: Subscriber>() {
    for inside in [1, 7, 8, 23] {
        let (subscriber, mut raw) = Connected::<S>::in_state("Subscribe", LONG);
        let mut early = subscribe_resp(0, 1, 41);
        let (first, others) = PURPOSES.split_first().unwrap();
        let message = event_fd(*first);
        let (begun, rest) = message.split_at(inside);
        early.extend(begun);
        raw.send_with(&early, &[*first]);
        raw.pass(Duration::ZERO);
        raw.send(rest);
        // All others in one piece, with all their descriptors in front.
        raw.send_with(&others.iter().flat_map(|purpose| event_fd(*purpose)).collect::<Vec<_>>(), others);
        raw.expect_silence();
        assert!(subscriber.is_ready(), "{inside}");
    }
}

/// D-22: "EVENT_FD that finds the queue empty is a violation".
pub fn a_message_without_its_descriptor_is_a_violation<S: Subscriber>() {
    for state in ["Subscribe", "Attaching", "Ready", "ShuttingDown"] {
        for purpose in [WAKE_UP, REGION, 99] {
            let (_subscriber, mut raw) = Connected::<S>::in_state(state, LONG);
            raw.send(&event_fd(purpose));
            raw.expect_error(PROTOCOL, &["EVENT_FD", "descriptor"]);
        }
    }
}

/// §3.7: "a descriptor of an unknown purpose is closed and reported like an unknown message".
pub fn a_descriptor_of_an_unknown_purpose_is_closed_and_no_harm<S: Subscriber>() {
    for state in ["Subscribe", "Attaching", "Ready", "ShuttingDown"] {
        let (subscriber, mut raw) = Connected::<S>::in_state(state, LONG);
        for purpose in [0, 7, 99, u32::MAX] {
            raw.send_with(&event_fd_of(purpose, 7, 3), &[JUNK]);
        }
        raw.expect_silence();
        assert_eq!(raw.junk_open(), 0, "{state}");
        assert_eq!(subscriber.end().is_some(), state == "ShuttingDown");
    }
}

/// §3.7: "an eventfd has no index and no count: both fields are 0 and ignored on receipt"; so are the reserved bytes.
pub fn an_eventfd_has_neither_index_nor_count<S: Subscriber>() {
    let (subscriber, mut raw) = Connected::<S>::in_state("Attaching", LONG);
    for purpose in PURPOSES {
        let is_eventfd = [WAKE_UP, PUBLISHER_WAKE_UP].contains(&purpose);
        let message = if is_eventfd { event_fd_of(purpose, u32::MAX, 3) } else { event_fd(purpose) };
        raw.send_with(&patched(&message, 12, &[0xFF; 4]), &[purpose]);
    }
    raw.expect_silence();
    assert!(subscriber.is_ready());
}

/// §7.3: EVENT_FD has 16 bytes.
pub fn an_event_fd_of_another_length_is_malformed<S: Subscriber>() {
    let ends = [(4, "fd_purpose"), (8, "index"), (12, "count"), (16, "reserved"), (usize::MAX, "payload")];
    for len in (0..24).filter(|len| *len != 16) {
        let (_subscriber, mut raw) = Connected::<S>::in_state("Attaching", LONG);
        raw.send_with(&resized(&event_fd(WAKE_UP), len), &[JUNK]);
        let field = ends.iter().find(|(end, _)| len < *end).unwrap().1;
        raw.expect_error(PROTOCOL, &["EVENT_FD", field]);
        assert_eq!(raw.junk_open(), 0, "{len} bytes");
    }
}

/// §3.7: purposes 2 and 3 come with FD_PASSING, 4 with CUDA_VMM, 5 with WAKE_HINT, 6 with WITNESS; D-32: nothing else is in
/// force.
pub fn a_descriptor_that_is_not_in_force_is_a_violation_and_closed<S: Subscriber>() {
    let cases = [
        (LEASE, REGION),
        (LEASE | WAKE_HINT, HOST_POOL),
        (ALL, 4),
        (FD_PASSING | LEASE, PUBLISHER_WAKE_UP),
        (ALL, WITNESS),
    ];
    for (features, purpose) in cases {
        let (subscriber, mut raw) = asked_for_its_bit::<S>(features);
        raw.send_with(&event_fd(purpose), &[JUNK]);
        raw.expect_error(PROTOCOL, &["EVENT_FD", "fd_purpose"]);
        assert_eq!((raw.junk_open(), subscriber.end()), (0, Some(End::Violation)));
    }
}

/// §4.3: in ShuttingDown EVENT_FD and SHUTDOWN are "both without effect, the descriptor is closed".
pub fn after_shutdown_a_descriptor_is_closed_without_effect<S: Subscriber>() {
    let (subscriber, mut raw) = Connected::<S>::in_state("ShuttingDown", LONG);
    for purpose in [WAKE_UP, REGION, 4, 99] {
        raw.send_with(&event_fd(purpose), &[JUNK]);
    }
    raw.send(&shutdown(2));
    raw.expect_silence();
    assert_eq!((raw.junk_open(), subscriber.end()), (0, Some(End::Shutdown(0))));
}

/// D-22: a violation closes "all queued descriptors", §4.3: in Closing "descriptors are closed".
pub fn no_descriptor_outlives_the_connection<S: Subscriber>() {
    for state in Connected::<S>::STATES {
        let (_subscriber, mut raw) = Connected::<S>::in_state(state, LONG);
        raw.send_with(&begun(&event_fd(WAKE_UP), 5), &[JUNK; 3]);
        raw.pass(Duration::ZERO);
        assert_eq!(raw.junk_open(), 3, "they may belong to what follows");
        // The rest of the message makes it far too long.
        raw.send_with(&[0xFF; 19], &[JUNK]);
        raw.expect_error(PROTOCOL, &["EVENT_FD", "payload_length"]);
        raw.send_with(&message(0x77, b""), &[JUNK]);
        assert_eq!(raw.junk_open(), 0, "{state}");
    }
}

/// §1.3: what came for a stream that is gone is closed, attached or not.
pub fn what_came_for_attaching_is_closed_with_the_connection<S: Subscriber>() {
    let (subscriber, mut raw) = Connected::<S>::in_state("Attaching", LONG);
    PURPOSES.iter().skip(1).for_each(|purpose| raw.send_with(&event_fd(*purpose), &[JUNK]));
    raw.expect_silence();
    assert!(raw.junk_open() == 3 && !subscriber.is_ready());
    raw.send(&any(SUBSCRIBE_RESP));
    raw.expect_error(PROTOCOL, &["SUBSCRIBE_RESP"]);
    assert_eq!(raw.junk_open(), 0);
}

/// A subscriber in Subscribe that asked for these features, all of which are in force.
fn asked_for_its_bit<S: Subscriber>(features: u32) -> (S, Raw<S::Wire>) {
    let (subscriber, wire) = S::new(features, LONG);
    let mut raw = Raw::new(wire);
    raw.expect(&subscriber.hello().message());
    raw.send(&subscriber.stream().message());
    raw.expect(&subscribe_req(1));
    (subscriber, raw)
}

/// All orders of the descriptors.
fn orders() -> Vec<[u32; 4]> {
    let [a, b, c, d] = PURPOSES;
    let threes = [[b, c, d], [b, d, c], [c, b, d], [c, d, b], [d, b, c], [d, c, b]];
    threes
        .into_iter()
        .flat_map(|[x, y, z]| [[a, x, y, z], [x, a, y, z], [x, y, a, z], [x, y, z, a]])
        .collect()
}
