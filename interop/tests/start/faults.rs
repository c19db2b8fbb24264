//! What can go wrong, at the original's frontend and at ours: the same is fatal, and ours says who did what where.

use std::slice;

use cuframes_barrier::message::Status;

use crate::cases::{
    Step, at_input, case, check, greet, hello, id, joins, new, ready, register, registers, registration, say,
    word,
};

#[tokio::test]
async fn words_in_the_wrong_order_are_as_fatal_as_in_the_original() {
    let twice = [ready(0), say(0, &[&word("READY")])].concat();
    check(vec![
        new(
            case(
                "a second HELLO",
                1,
                &[
                    greet(0),
                    say(0, &[&word("HELLO")]),
                    vec![Step::Init(0)],
                    say(0, &[&word("READY")]),
                    register(0, 1),
                ],
                "engine 0 sent HELLO twice",
                "at READY: participant 0 said HELLO twice",
            ),
            "",
        ),
        new(
            case(
                "a second HELLO on another connection, while the first lives",
                1,
                &[greet(0), joins(0, 1)],
                "engine 0 sent HELLO twice",
                "at READY: participant 0 said HELLO twice",
            ),
            "",
        ),
        new(
            case(
                "HELLO after READY",
                2,
                &[twice[..4].to_vec(), say(0, &[&word("HELLO")]), vec![Step::Init(0)], joins(1, 2)],
                "engine 0 sent HELLO twice",
                "at READY: participant 0 said HELLO twice",
            ),
            "no READY within {after} from 0 (said HELLO)",
        ),
        case(
            "READY before HELLO",
            2,
            &[vec![Step::Connect(1, id(1))], say(1, &[&word("READY")])],
            "engine 1 sent READY out of order",
            "at READY: participant 1 said READY before HELLO",
        ),
        case(
            "a second READY while another is missing",
            2,
            slice::from_ref(&twice),
            "engine 0 sent READY out of order",
            "at READY: participant 0 said READY twice",
        ),
        case("a second READY when nobody is missing", 1, &[twice, register(0, 1)], "", ""),
        case(
            "READY on another connection than HELLO",
            1,
            &[greet(0), vec![Step::Connect(1, id(0))], say(1, &[&word("READY")]), register(0, 1)],
            "",
            "",
        ),
    ])
    .await;
}

#[tokio::test]
async fn routing_ids_that_are_no_index_are_as_fatal_as_in_the_original() {
    let at_ready = |what, id: &[u8], original, ours| {
        case(what, 2, &[vec![Step::Connect(0, id.to_vec())], say(0, &[&word("HELLO")])], original, ours)
    };
    let later = |what, id: &[u8], original, ours| {
        case(what, 1, &[at_input(0, id), registers(0, &[&registration(0, 1)])], original, ours)
    };
    check(vec![
        at_ready(
            "one byte",
            &[0],
            "peer identity [00] is not a two-byte",
            "at READY: the routing id \"\\x00\" of a participant is not an index in two bytes",
        ),
        at_ready(
            "three bytes",
            &[1, 0, 0],
            "is not a two-byte",
            "at READY: the routing id \"\\x01\\x00\\x00\" of a participant is not an index in two bytes",
        ),
        at_ready(
            "sixteen bytes",
            b"0123456789abcdef",
            "is not a two-byte",
            "at READY: the routing id \"0123456789abcdef\" of a participant is not an index in two bytes",
        ),
        at_ready(
            "no routing id",
            &[],
            "is not a two-byte",
            "at READY: a participant has no routing id, which must be its index in two bytes",
        ),
        at_ready(
            "somebody who is not expected",
            &[2, 1],
            "unexpected engine 258",
            "at READY: participant 258 is not expected",
        ),
        later(
            "one byte, at registration",
            &[0],
            "is not a two-byte",
            "at registration: the routing id \"\\x00\" of a participant is not an index in two bytes",
        ),
        later(
            "no routing id, at registration",
            &[],
            "is not a two-byte",
            "at registration: a participant has no routing id",
        ),
        later(
            "somebody who is not expected, at registration",
            &[1, 0],
            "unexpected engine 1",
            "at registration: participant 1 is not expected",
        ),
    ])
    .await;
}

#[tokio::test]
async fn messages_of_another_form_are_as_fatal_as_in_the_original() {
    let connect = || vec![Step::Connect(1, id(1))];
    let status = |status: Option<&str>| Status { status: status.map(Into::into), ..Status::new("") }.encode();
    let said =
        |what, frames: &[&[u8]], original, ours| case(what, 2, &[connect(), say(1, frames)], original, ours);
    let later = |what, frames: &[&[u8]], original, ours| {
        case(what, 1, &[at_input(0, &id(0)), registers(0, frames)], original, ours)
    };
    let (hello, right) = (word("HELLO"), registration(0, 1));
    let after = |bytes: &[u8]| [bytes, &[0xc0][..]].concat();
    check(vec![
        said(
            "two frames",
            &[&hello, &hello],
            "got 3 frames",
            "at READY: a message of 2 frames, not one, from routing id \"\\x01\\x00\"",
        ),
        said(
            "an empty delimiter",
            &[b"", &hello],
            "got 3 frames",
            "at READY: a message of 2 frames, not one, from routing id \"\\x01\\x00\"",
        ),
        said(
            "another word",
            &[&status(Some("hello"))],
            "engine 1 sent unknown status Some(\"hello\")",
            "at READY: participant 1 said \"hello\", not HELLO or READY",
        ),
        said(
            "no word",
            &[&status(None)],
            "engine 1 sent unknown status None",
            "at READY: participant 1 said neither HELLO nor READY",
        ),
        said(
            "an empty map",
            &[&[0x80]],
            "engine 1 sent unknown status None",
            "at READY: participant 1 said neither HELLO nor READY",
        ),
        said(
            "the frontend's own words",
            &[&status(Some("CANCEL"))],
            "engine 1 sent unknown status Some(\"CANCEL\")",
            "at READY: participant 1 said \"CANCEL\", not HELLO or READY",
        ),
        said(
            "an empty message",
            &[b""],
            "truncated",
            "at READY: the message of participant 1 can't be read: it ends too early (byte 0)",
        ),
        said(
            "a message that is cut off",
            &[&hello[..20]],
            "truncated",
            "at READY: the message of participant 1 can't be read: it ends too early",
        ),
        said(
            "bytes after the message",
            &[&after(&hello)],
            "1 trailing bytes",
            "at READY: the message of participant 1 can't be read: bytes follow after its end",
        ),
        said(
            "an array",
            &[&[0x90]],
            "expected map",
            "at READY: the message of participant 1 can't be read: it has not the type map",
        ),
        said(
            "a field of another type",
            &[b"\x81\xa5local\xa3yes"],
            "field `local`: expected bool",
            "at READY: the message of participant 1 can't be read: it has not the type bool (field local, byte 7)",
        ),
        later(
            "two frames, at registration",
            &[&right, b""],
            "got 3 frames",
            "at registration: a message of 2 frames, not one, from routing id \"\\x00\\x00\"",
        ),
        later(
            "an empty delimiter, at registration",
            &[b"", &right],
            "got 3 frames",
            "at registration: a message of 2 frames, not one, from routing id \"\\x00\\x00\"",
        ),
        later(
            "a reserved byte, at registration",
            &[&[0xc1]],
            "wire: ",
            "at registration: the message of participant 0 can't be read: the byte c1 begins no value",
        ),
        later(
            "bytes after the message, at registration",
            &[&after(&right)],
            "1 trailing bytes",
            "at registration: the message of participant 0 can't be read: bytes follow after its end",
        ),
        later(
            "a number that is too large, at registration",
            &[b"\x81\xaaworld_size\xcf\xff\xff\xff\xff\xff\xff\xff\xff"],
            "field `world_size`: integer",
            "at registration: the message of participant 0 can't be read: an integer is too large or too small \
             (field world_size, byte 12)",
        ),
    ])
    .await;
}

#[tokio::test]
async fn registrations_that_do_not_fit_are_as_fatal_as_in_the_original() {
    let other = |what, rank, size, original, ours| {
        case(
            what,
            2,
            &[joins(1, 2), at_input(0, &id(0)), registers(0, &[&registration(rank, size)])],
            original,
            ours,
        )
    };
    let twice = |second: &[u8]| [joins(0, 2), registers(0, &[second])].concat();
    check(vec![
        other(
            "another rank",
            1,
            2,
            "engine 0 reports DP rank 1 of 2, expected rank 0 of 2",
            "at registration: participant 0 says that it is rank 1 of 2, but it is rank 0 of 2",
        ),
        other(
            "another size",
            0,
            3,
            "engine 0 reports DP rank 0 of 3, expected rank 0 of 2",
            "at registration: participant 0 says that it is rank 0 of 3, but it is rank 0 of 2",
        ),
        case(
            "a second registration while another is missing",
            2,
            &[twice(&registration(0, 2)), ready(1)],
            "engine 0 registered twice",
            "at registration: participant 0 registered twice",
        ),
        case(
            "a second registration, from another rank",
            2,
            &[twice(&registration(1, 2)), ready(1)],
            "engine 0 reports DP rank 1 of 2",
            "at registration: participant 0 says that it is rank 1 of 2, but it is rank 0 of 2",
        ),
        case(
            "a registration with a fault, which is looked at when all are ready",
            2,
            &[at_input(0, &id(0)), registers(0, &[&registration(0, 1)]), ready(1)],
            "engine 0 reports DP rank 0 of 1, expected rank 0 of 2",
            "at registration: participant 0 says that it is rank 0 of 1, but it is rank 0 of 2",
        ),
        case(
            "a second registration when nobody is missing",
            1,
            &[joins(0, 1), registers(0, &[&registration(0, 1)])],
            "",
            "",
        ),
    ])
    .await;
}

#[tokio::test]
async fn a_deadline_names_the_stage_and_who_is_missing_as_in_the_original() {
    check(vec![
        case(
            "nobody comes",
            2,
            &[],
            "handshake timed out after {after} waiting for READY from engines [0, 1]",
            "no READY within {after} from 0 (nothing heard), 1 (nothing heard)",
        ),
        case(
            "one does not come, one says only HELLO, one is ready",
            3,
            &[greet(1), ready(2)],
            "handshake timed out after {after} waiting for READY from engines [0, 1]",
            "no READY within {after} from 0 (nothing heard), 1 (said HELLO)",
        ),
        case(
            "one has registered, but another one has not said READY",
            2,
            &[joins(0, 2), greet(1)],
            "handshake timed out after {after} waiting for READY from engines [1]",
            "no READY within {after} from 1 (said HELLO)",
        ),
        case(
            "two do not register",
            3,
            &[ready(0), ready(1), joins(2, 3)],
            "handshake timed out after {after} waiting for registration from engines [0, 1]",
            "no registration within {after} from 0 (said READY), 1 (said READY)",
        ),
        new(
            case(
                "one dies after HELLO",
                2,
                &[greet(0), vec![Step::Leave(0)], joins(1, 2)],
                "handshake timed out after {after} waiting for READY from engines [0]",
                "no READY within {after} from 0 (said HELLO)",
            ),
            "no READY within {after} from 0 (connection lost)",
        ),
        new(
            case(
                "one dies after READY",
                2,
                &[ready(0), vec![Step::Leave(0)], joins(1, 2)],
                "handshake timed out after {after} waiting for registration from engines [0]",
                "no registration within {after} from 0 (said READY)",
            ),
            "no registration within {after} from 0 (connection lost)",
        ),
    ])
    .await;
}

#[tokio::test]
async fn who_dies_and_comes_again_kills_the_start_as_in_the_original_unless_restarts_are_let() {
    let twice = ("engine 0 sent HELLO twice", "at READY: participant 0 said HELLO twice");
    let again = |what, before: Vec<Step>, count| {
        let steps = [before, vec![Step::Leave(0)], joins(0, count), joins(1, count)];
        new(case(what, count, &steps, twice.0, twice.1), "")
    };
    check(vec![
        again("after HELLO", hello(0), 2),
        again("after INIT", greet(0), 2),
        again("after READY", ready(0), 2),
        again("after it has registered", joins(0, 2), 2),
    ])
    .await;
}
