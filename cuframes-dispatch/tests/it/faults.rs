//! Workers that break the protocol, by mistake or not: it costs their connection, and nobody else notices.

use allocation_counter::measure;
use cuframes_core::Instant;
use cuframes_core::streams::Machine as _;
use cuframes_dispatch::wire::{DecodeError, FrameError, Problem, Version};
use cuframes_dispatch::{PeerFault, Server, TaskConfig};

use crate::bytes::{
    CREATED, FAILED, PROCESSING, SUCCESS, acquire, disconnect, done, released, sent, shutdown, vector,
};
use crate::world::{World, block, id, success};

/// What these bytes cost somebody who has a block, while another one has one, too.
fn cost(bytes: &[u8]) -> Option<PeerFault> {
    let mut world = World::new(0..2);
    let (other, _) = world.call_for("t", 1);
    let (caller, _) = world.call_for("t", 1);
    let answer = world.say(caller, bytes);
    let fault = world.fault(caller);
    assert_eq!(world.is_closed(caller), fault.is_some());
    if fault.is_some() {
        // It is the last thing it hears of, and what it had goes on elsewhere.
        assert_eq!(answer, []);
        let (_, block) = world.call_for("t", 1);
        assert_eq!(block, sent("t", 1, FAILED));
    }
    world.say(other, &done("t", 0));
    assert!(!world.is_closed(other));
    assert!(world.news().contains(&success("t", 0)));
    fault
}

#[test]
fn a_release_says_done_or_failed() {
    for status in [CREATED, PROCESSING] {
        assert_eq!(cost(&released("t", 1, status)), Some(PeerFault::Status(id("t", 1))));
        // Whoever it belongs to.
        assert_eq!(cost(&released("t", 0, status)), Some(PeerFault::Status(id("t", 0))));
    }
    for status in [SUCCESS, FAILED] {
        assert_eq!(cost(&released("t", 1, status)), None);
    }
}

#[test]
fn nobody_can_ask_for_blocks_of_a_task_that_there_is_not() {
    assert_eq!(cost(&acquire("x")), Some(PeerFault::UnknownTask("x".into())));
    assert_eq!(cost(&acquire("")), Some(PeerFault::UnknownTask(String::new())));
}

#[test]
fn what_a_server_says_is_not_for_workers_to_say() {
    assert_eq!(cost(&shutdown()), Some(PeerFault::Role));
    assert_eq!(cost(&sent("t", 1, CREATED)), Some(PeerFault::Role));
}

#[test]
fn what_is_no_message_costs_the_connection() {
    let payload =
        |offset, problem| Some(PeerFault::Frame(FrameError::Payload(DecodeError { offset, problem })));
    assert_eq!(cost(&vector!("hostile_length")), payload(1, Problem::Truncated));
    assert_eq!(cost(&vector!("wrong_version")), Some(PeerFault::Frame(FrameError::Version(1))));
    assert_eq!(cost(&vector!("w1_acquire")), Some(PeerFault::Frame(FrameError::Version(1))));
    assert_eq!(cost(&[0, 0, 0, 0]), Some(PeerFault::Frame(FrameError::Length(0))));
    assert_eq!(cost(&[4, 0, 0, 1]), Some(PeerFault::Frame(FrameError::Length((64 << 20) + 1))));
    assert_eq!(cost(b"GET / HTTP/1.1\r\n\r\n"), Some(PeerFault::Frame(FrameError::Length(0x4745_5420))));
    // Half a frame costs nothing as long as it stands.
    assert_eq!(cost(&[4, 0, 0, 0, 2, 2]), None);
}

#[test]
fn what_comes_behind_a_fault_or_a_farewell_is_not_looked_at() {
    for last in [shutdown(), disconnect()] {
        let mut world = World::new([0, 1]);
        let (a, _) = world.call_for("t", 1);
        world.say(a, &[last, done("t", 0), acquire("t")].concat());
        assert!(world.is_closed(a));
        assert_eq!(world.tally(), [0, 2, 0, 0, 0, 0, 1]);
    }
}

#[test]
fn a_stream_that_ends_anywhere_is_no_fault() {
    for len in 0..acquire("t").len() {
        let mut world = World::new([0]);
        let (a, _) = world.call_for("t", 1);
        world.say(a, &acquire("t")[..len]);
        world.hang_up(a);
        assert_eq!((world.fault(a), world.tally()), (None, [0, 1, 0, 0, 0, 0, 1]));
    }
}

#[test]
fn the_256th_request_that_waits_is_the_last_one() {
    let mut world = World::open([]);
    let (a, _) = world.call_for("t", 256);
    let (b, _) = world.call_for("t", 1);
    assert_eq!(world.fault(a), None);
    // One that is answered makes room for another.
    world.add("t", 0, &[]);
    world.say(a, &acquire("t"));
    assert_eq!(world.fault(a), None);
    world.say(a, &acquire("t"));
    assert_eq!(world.fault(a), Some(PeerFault::Greedy));
    // It had block 0.
    assert_eq!(world.heard(b), sent("t", 0, FAILED));
}

#[test]
fn who_asks_without_reading_is_closed_when_a_megabyte_waits_for_it() {
    let mut world = World::new([]);
    let (b, _) = world.call_for("t", 1);
    let a = world.call();
    world.plug(a);
    let some = acquire("t").repeat(10_000);
    let info = measure(|| {
        let mut sent = 0;
        while world.fault(a).is_none() {
            world.say(a, &some);
            sent += 10_000;
            // An answer has six bytes.
            assert!(sent <= (1 << 20) / 6 + 10_000);
        }
        assert!(sent >= (1 << 20) / 6, "{sent}");
    });
    assert!(info.bytes_max < 4 << 20, "{} bytes", info.bytes_max);
    assert_eq!(world.fault(a), Some(PeerFault::Greedy));
    assert_eq!(world.say(b, &acquire("t")), shutdown());
}

#[test]
fn who_reads_slowly_but_always_some_takes_no_memory() {
    let now = Instant::ZERO;
    let mut server = Server::new(Version::W2);
    server.schedule(now, |scheduler| {
        scheduler.add_task(TaskConfig::new("t")).unwrap();
        scheduler.close_task("t").unwrap();
    });
    let conn = server.handle_accepted(now, 0).unwrap();
    let request = acquire("t");
    let info = measure(|| {
        for _ in 0..100_000 {
            server.handle_bytes(now, conn, &request);
            while server.poll_action().is_some() || server.poll_event().is_some() {}
            // Always the last answer is left.
            let waiting = server.poll_transmit(conn).unwrap().len();
            server.transmitted(conn, waiting.saturating_sub(shutdown().len()));
        }
    });
    assert_eq!(server.poll_transmit(conn), Some(&shutdown()[..]));
    assert!(info.bytes_max < 4096, "{} bytes", info.bytes_max);
}

#[test]
fn incomplete_frames_of_all_workers_together_have_a_limit() {
    let mut world = World::new([0]);
    let (b, _) = world.call_for("t", 1);
    let start = [4, 0, 0, 0, 2, 5];
    let piece = vec![7; 1 << 20];
    let callers = [(); 3].map(|()| world.call());
    for caller in callers {
        world.say(caller, &start);
    }
    // Three times 42 MiB are not too much, and 43 are.
    for _ in 0..42 {
        callers.iter().for_each(|caller| assert_eq!(world.say(*caller, &piece), []));
    }
    assert!(callers.iter().all(|caller| !world.is_closed(*caller)));
    callers.iter().for_each(|caller| assert_eq!(world.say(*caller, &piece), []));
    // Who sent the byte too many goes; that makes room for the others, and who has little is not asked.
    let faults = callers.map(|caller| world.fault(caller));
    assert_eq!(faults, [None, Some(PeerFault::Dribble), None]);
    world.say(b, &done("t", 0));
    assert_eq!(world.tally(), [0, 0, 0, 1, 0, 0, 0]);
}

#[test]
fn strangers_that_only_connect_keep_nobody_from_working() {
    let mut world = World::new([0]);
    for _ in 0..2000 {
        world.server.handle_accepted(world.now, 0).unwrap();
    }
    let (a, block) = world.call_for("t", 1);
    assert_eq!(block, sent("t", 0, CREATED));
    assert_eq!(world.say(a, &[done("t", 0), acquire("t")].concat()), shutdown());
}

#[test]
fn inputs_for_connections_that_are_gone_have_no_effect() {
    let mut world = World::open([0]);
    let (a, _) = world.call_for("t", 1);
    let conn = world.conn(a);
    world.hang_up(a);
    world.events.clear();
    let before = world.tally();
    world.server.handle_bytes(world.now, conn, &[acquire("t"), done("t", 0)].concat());
    world.server.handle_eof(world.now, conn);
    world.server.handle_connected(world.now, conn);
    world.server.transmitted(conn, 100);
    world.run();
    assert_eq!((world.tally(), &world.events[..], world.server.poll_transmit(conn)), (before, &[][..], None));
}

#[test]
fn faults_say_what_it_did() {
    let block = || block("t", 3).block_id;
    for (fault, text) in [
        (PeerFault::Frame(FrameError::Version(1)), "it speaks version 1 of the protocol"),
        (PeerFault::UnknownTask("x".into()), "it asked for blocks of task \"x\", which there is not"),
        (PeerFault::Status(block()), "it released block 3 of task \"t\" as neither done nor failed"),
        (PeerFault::Foreign(block()), "it released block 3 of task \"t\", which it does not have"),
        (PeerFault::Role, "it sent what only a server sends"),
        (PeerFault::Greedy, "it asked for too many blocks at a time, or does not read"),
        (PeerFault::Dribble, "too many bytes of incomplete messages are kept"),
    ] {
        assert_eq!(fault.to_string(), text);
    }
}
