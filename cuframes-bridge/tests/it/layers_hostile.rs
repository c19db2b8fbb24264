//! Peers that send without end, do not read, or lie about lengths: it costs their own connection, and bounded memory.

use std::time::Duration;

use allocation_counter::measure;
use cuframes_bridge::layers::{CoordinatorEvent, Fault, Outcome, WorkerEvent};
use cuframes_bridge::wire::{Begin, FrameType, Message, SnapshotId, WireError, token_hash};
use cuframes_core::streams::Machine as _;

use crate::bytes::{frame, whole};
use crate::layers_peers::{all, alone, coordinator_config, encoded, messages, said, worker_config};
use crate::layers_world::{Net, Who};

/// The worker still does what it is asked for by somebody else.
fn is_well(net: &mut Net) {
    let caller = net.call(Who::Worker(0));
    net.worker_events(0);
    net.tell(caller, &said(all(99, 5, &[], &[1])));
    let task = net.task(0);
    net.compute(0, &task);
    assert_eq!(messages(&net.heard(caller)).len(), 1);
    net.hang_up(caller);
    net.worker_events(0);
}

#[test]
fn four_gigabytes_that_are_announced_end_the_connection_before_anything_is_kept() {
    for kind in
        [FrameType::WORK, FrameType::RESULT, FrameType::LOAD_BEGIN, FrameType::CHUNK, FrameType::ERROR]
    {
        let (mut net, caller) = alone(|_| {});
        let bytes = frame(kind, u32::MAX, &[]);
        let info = measure(|| _ = net.say(caller, &bytes));
        assert!(info.bytes_max < 10_000, "{kind}: {} bytes", info.bytes_max);
        let fault = net.closed(0, caller);
        assert!(matches!(fault, Some(Fault::Frame(WireError::Length { bytes: u32::MAX, .. }))), "{fault:?}");
        is_well(&mut net);
    }
    // Of an unknown type it is drained, as long as it comes, and not kept.
    let (mut net, caller) = alone(|_| {});
    net.say(caller, &frame(FrameType(50), u32::MAX, &[]));
    let piece = vec![0; 1 << 20];
    let info = measure(|| (0..20).for_each(|_| _ = net.say(caller, &piece)));
    assert!(info.bytes_max < 6 << 20 && !net.is_closed(caller), "{} bytes", info.bytes_max);
    is_well(&mut net);
}

#[test]
fn a_snapshot_that_is_only_announced_keeps_nothing() {
    let (mut net, caller) = alone(|_| {});
    let id = SnapshotId {
        model_id: 1,
        session: 7,
        request: 3,
        token_hash: token_hash(&[1]),
        token_count: 1,
        layer_start: 0,
        layer_end: 42,
    };
    let begin = Message::LoadBegin(Begin { id, payload_bytes: 1 << 30, tokens: vec![1], ..Begin::default() });
    let info = measure(|| {
        net.say(caller, &encoded(&begin));
        net.say(caller, &frame(FrameType::CHUNK, 12 + (8 << 20), &[0x80, 0, 0, 0, 0, 0]));
    });
    assert!(info.bytes_max < 20_000 && !net.is_closed(caller), "{} bytes", info.bytes_max);
    is_well(&mut net);
}

#[test]
fn a_flood_of_requests_is_not_read_further_than_so_many() {
    let (mut net, caller) = alone(|_| {});
    let one = encoded(&said(all(7, 1, &[], &[1; 50])));
    net.width = 1 << 16;
    let flood = one.repeat(10_000);
    let info = measure(|| _ = net.say(caller, &flood));
    // What is left is in the pipe: two copies of the flood, and a little.
    assert!(info.bytes_max < u64::try_from(flood.len()).unwrap() * 2 + (1 << 19), "{} bytes", info.bytes_max);
    let conn = net.conn(caller);
    assert!(!net.workers[0].machine.is_hungry(conn) && !net.is_closed(caller));
    assert_eq!(net.tasks(0).len(), 1);
    is_well(&mut net);
}

#[test]
fn who_does_not_read_answers_is_not_read_any_more_and_closed_after_a_minute() {
    let (mut net, caller) = alone(|_| {});
    net.plug(caller, true);
    let mut wrong = all(7, 1, &[], &[1]);
    wrong.model_id = 2;
    let some = encoded(&said(wrong)).repeat(1000);
    let conn = net.conn(caller);
    // Plugged in one direction: it sends, and does not read.
    let mut sent = 0;
    let info = measure(|| {
        while net.workers[0].machine.is_hungry(conn) {
            let now = net.now;
            net.workers[0].machine.handle_bytes(now, conn, &some);
            sent += 1000;
            assert!(sent < 100_000);
        }
    });
    assert!(sent > 5_000 && info.bytes_max < 4 << 20, "{sent}: {} bytes", info.bytes_max);
    net.pass(Duration::from_secs(59));
    assert!(!net.is_closed(caller));
    net.pass(Duration::from_secs(1));
    assert_eq!(net.closed(0, caller), Some(Fault::Send));
    is_well(&mut net);
}

#[test]
fn who_reads_again_is_served_again() {
    let (mut net, caller) = alone(|_| {});
    net.width = 1 << 16;
    let conn = net.conn(caller);
    net.plug(caller, true);
    net.say(caller, &encoded(&said(all(7, 1, &[], &[1]))));
    let task = net.task(0);
    net.finish(0, task.id, Outcome::Logits(vec![1; 2 << 20]));
    assert!(!net.workers[0].machine.is_hungry(conn));
    net.say(caller, &encoded(&said(all(8, 2, &[], &[1]))));
    assert!(net.tasks(0).is_empty());
    net.plug(caller, false);
    assert!(net.workers[0].machine.is_hungry(conn));
    let task = net.task(0);
    net.compute(0, &task);
    assert_eq!(messages(&net.heard(caller)).len(), 2);
}

#[test]
fn incomplete_frames_of_all_connections_together_have_a_bound() {
    let (mut net, a) = alone(|config| config.buffered_bytes = 3 << 20);
    let b = net.call(Who::Worker(0));
    net.worker_events(0);
    let start = frame(FrameType::WORK, 60 << 20, &vec![0; 1 << 20]);
    for caller in [a, b] {
        net.say(caller, &start);
    }
    net.say(a, &vec![0; (1 << 20) - 100]);
    assert!(!net.is_closed(a) && !net.is_closed(b));
    net.say(b, &[0; 200]);
    assert_eq!((net.closed(0, a), net.closed(0, b)), (None, Some(Fault::Dribble)));
    net.worker_events(0);
    is_well(&mut net);
}

#[test]
fn connections_have_a_bound_and_one_that_ends_makes_room() {
    let (mut net, first) = alone(|config| config.max_connections = 3);
    let others = [net.call(Who::Worker(0)), net.call(Who::Worker(0))];
    // They have asked for something, so they stay.
    for (session, caller) in (1..).zip([first, others[0], others[1]]) {
        net.tell(caller, &said(all(session, 1, &[], &[1])));
    }
    assert_eq!(net.try_call(Who::Worker(0)), None);
    // One that does not take its last words counts until it has had its time.
    net.plug(first, true);
    let conn = net.conn(first);
    let (now, unknown) = (net.now, whole(FrameType(50), b""));
    net.workers[0].machine.handle_bytes(now, conn, &unknown);
    net.run();
    assert_eq!(net.try_call(Who::Worker(0)), None);
    net.pass(Duration::from_secs(5));
    assert!(net.is_closed(first));
    let next = net.call(Who::Worker(0));
    for caller in others {
        net.hang_up(caller);
    }
    assert!(!net.is_closed(next));
}

#[test]
fn who_asks_for_nothing_makes_room_for_others_the_oldest_first() {
    let (mut net, first) = alone(|config| config.max_connections = 3);
    let others = [net.call(Who::Worker(0)), net.call(Who::Worker(0))];
    net.tell(others[0], &said(all(1, 1, &[], &[1])));
    let task = net.worker_events(0).into_iter().find_map(|event| match event {
        WorkerEvent::Work(task) => Some(*task),
        _ => None,
    });
    net.compute(0, &task.unwrap());
    // Who was answered stays, too.
    let late = net.call(Who::Worker(0));
    assert_eq!(net.closed(0, first), Some(Fault::Surplus));
    net.tell(late, &said(all(2, 1, &[], &[1])));
    is_well(&mut net);
    assert_eq!(net.closed(0, others[0]), None);
    assert!(net.is_closed(others[1]) && !net.is_closed(others[0]) && !net.is_closed(late));
}

#[test]
fn tasks_that_nobody_waits_for_have_a_bound_too() {
    let (mut net, caller) = alone(|config| config.max_tasks = 3);
    net.hang_up(caller);
    net.worker_events(0);
    let mut tasks = Vec::new();
    for session in 1..=5 {
        let caller = net.call(Who::Worker(0));
        net.tell(caller, &said(all(session, session, &[], &[1])));
        net.hang_up(caller);
        tasks.extend(net.worker_events(0).into_iter().filter_map(|event| match event {
            WorkerEvent::Work(task) => Some(task),
            _ => None,
        }));
    }
    assert_eq!(tasks.len(), 3);
    let caller = net.call(Who::Worker(0));
    net.worker_events(0);
    net.tell(caller, &said(all(9, 9, &[], &[1])));
    assert!(net.worker_events(0).is_empty());
    net.finish(0, tasks[0].id, Outcome::Failed("nobody waits".into()));
    assert_eq!(net.task(0).request, 9);
}

#[test]
fn many_sessions_take_no_more_room_than_a_few() {
    let (mut net, caller) = alone(|config| config.max_sessions = 4);
    for session in 0..200 {
        net.tell(caller, &said(all(session, session, &[], &[1])));
        net.workers[0].events.retain(|event| !matches!(event, WorkerEvent::Freed { .. }));
        let task = net.task(0);
        net.compute(0, &task);
    }
    assert_eq!(net.workers[0].machine.sessions(), 4);
}

#[test]
fn whoever_only_connects_to_a_coordinator_has_no_room_for_more_than_a_hello() {
    let mut net = Net::new();
    net.coordinator(coordinator_config());
    for kind in [FrameType::WORK, FrameType::RESULT, FrameType::SNAPSHOT_BEGIN, FrameType::HELLO] {
        let caller = net.call(Who::Coordinator(0));
        let bytes = frame(kind, 60 << 20, &[0; 100]);
        let info = measure(|| _ = net.say(caller, &bytes));
        assert!(net.is_closed(caller) && info.bytes_max < 10_000, "{kind}: {} bytes", info.bytes_max);
    }
    net.worker(worker_config((0, 42), 1));
    let joined = |event: &CoordinatorEvent| matches!(event, CoordinatorEvent::Joined { .. });
    assert_eq!(net.events(0).iter().filter(|event| joined(event)).count(), 1);
}

#[test]
fn inputs_for_connections_that_are_gone_have_no_effect() {
    let (mut net, caller) = alone(|_| {});
    let conn = net.conn(caller);
    net.hang_up(caller);
    net.worker_events(0);
    let now = net.now;
    let machine = &mut net.workers[0].machine;
    machine.handle_bytes(now, conn, &encoded(&said(all(7, 1, &[], &[1]))));
    machine.handle_eof(now, conn);
    machine.handle_connected(now, conn);
    machine.transmitted(conn, 100);
    assert!(
        machine.is_hungry(conn) && machine.poll_event().is_none() && machine.poll_transmit(conn).is_none()
    );

    net.coordinator(coordinator_config());
    let caller = net.call(Who::Coordinator(0));
    let conn = net.conn(caller);
    net.hang_up(caller);
    net.events(0);
    let machine = &mut net.coordinators[0].machine;
    machine.handle_bytes(now, conn, &encoded(&Message::Hello(worker_config((0, 42), 1).hello())));
    machine.handle_eof(now, conn);
    machine.handle_connected(now, conn);
    machine.transmitted(conn, 100);
    assert!(machine.poll_event().is_none() && machine.poll_transmit(conn).is_none());
}
