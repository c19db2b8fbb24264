//! One frame on demand.

use std::time::Duration;

use cuframes_bridge::stream::{Answer, Fate, LinkFault, ReceiverEvent, SenderEvent};
use cuframes_bridge::wire::{Begin, Decoded, Decoder, FrameType, Limits, Message, SnapshotId};
use cuframes_core::streams::{ConnId, Machine};

use crate::world::{World, frame, published};

#[test]
fn a_frame_that_is_asked_for_comes_between_the_others() {
    let mut world = World::strict(3);
    world.run();
    let (_, far) = world.link.unwrap();
    world.receiver.fetch(world.now, far, Some(40));
    assert!(world.send(1, 41));
    world.run();
    assert!(world.sent.contains(&SenderEvent::Wanted { seq: Some(40) }));
    let (info, bytes) = frame(1, 40);
    world.sender.answer(world.now, Some(40), Answer::Frame(info, bytes));
    assert!(world.send(1, 42));
    world.run();
    let mut all = world.published.clone();
    all.sort_by_key(|frame| frame.seq);
    assert_eq!(all, [40, 41, 42].map(|seq| published(1, seq)));
    assert_eq!(world.fates().len(), 2, "what was asked for needs no answer");
    assert_eq!(world.sender.stats().answered, 1);
    // The next one may be asked for.
    world.receiver.fetch(world.now, far, None);
    world.run();
    assert_eq!(world.sent.last(), Some(&SenderEvent::Wanted { seq: None }));
}

#[test]
fn a_frame_that_is_not_there_is_told_with_the_reason() {
    let mut world = World::strict(3);
    world.run();
    let (_, far) = world.link.unwrap();
    world.receiver.fetch(world.now, far, Some(7));
    world.run();
    world.sender.answer(world.now, Some(7), Answer::No("it is gone".into()));
    world.run();
    let told = |event: &ReceiverEvent<_>| matches!(event, ReceiverEvent::NotFetched { why, .. } if why == "it is gone");
    assert!(world.received.iter().any(told), "{:?}", world.received);
    assert!(world.send(1, 8));
    world.run();
    assert_eq!(world.published, [published(1, 8)]);
}

#[test]
fn one_is_asked_for_at_a_time_and_not_for_ever() {
    let mut world = World::strict(3);
    world.run();
    let (_, far) = world.link.unwrap();
    world.receiver.fetch(world.now, far, Some(1));
    world.receiver.fetch(world.now, far, Some(2));
    world.run();
    let refusals = |world: &World| {
        world.received.iter().filter(|event| matches!(event, ReceiverEvent::NotFetched { .. })).count()
    };
    assert_eq!(refusals(&world), 1);
    assert_eq!(world.receiver.poll_timeout(), Some(world.now + Duration::from_secs(10)));
    world.pass(Duration::from_secs(10));
    assert_eq!(refusals(&world), 2);
}

#[test]
fn whoever_asks_for_the_newest_frame_learns_its_number() {
    let mut world = World::strict(3);
    world.run();
    let (_, far) = world.link.unwrap();
    for (asked, seq) in [(None, 40), (None, 41), (Some(7), 7)] {
        world.receiver.fetch(world.now, far, asked);
        world.run();
        let (info, bytes) = frame(1, seq);
        world.sender.answer(world.now, asked, Answer::Frame(info, bytes));
        world.run();
    }
    assert_eq!(world.published, [40, 41, 7].map(|seq| published(1, seq)));
    // Not another one than was asked for.
    world.receiver.fetch(world.now, far, Some(8));
    world.run();
    let (info, bytes) = frame(1, 9);
    world.sender.answer(world.now, Some(8), Answer::Frame(info, bytes));
    world.run();
    let lost = |event: &ReceiverEvent<_>| matches!(event, ReceiverEvent::Left { fault: Some(fault), .. } if fault.to_string().contains("it sent frame 9 where frame 8"));
    assert!(world.received.iter().any(lost), "{:?}", world.received);
    assert_eq!(refusals(&world), 1, "nobody is told that it does not come");
}

/// How many times it was told that a frame does not come.
fn refusals(world: &World) -> usize {
    world.received.iter().filter(|event| matches!(event, ReceiverEvent::NotFetched { .. })).count()
}

#[test]
fn while_its_sender_is_held_up_a_frame_is_not_late() {
    let mut world = World::strict(3);
    world.run();
    let (_, far) = world.link.unwrap();
    world.is_busy = true;
    assert!(world.send(1, 1));
    world.run();
    world.receiver.fetch(world.now, far, Some(40));
    world.pass(Duration::from_secs(50));
    assert_eq!((refusals(&world), world.sender.stats().lost_connections), (0, 0), "we do not read");
    let (conn, info) = world.offered.take().unwrap();
    world.is_busy = false;
    world.take(conn, &info, false);
    world.run();
    world.pass(Duration::from_secs(9));
    assert_eq!(refusals(&world), 0);
    world.pass(Duration::from_secs(1));
    assert_eq!(refusals(&world), 1);
}

#[test]
fn other_frames_may_come_before_it_but_not_any_number_of_them() {
    let mut world = World::strict(3);
    world.run();
    let (_, far) = world.link.unwrap();
    world.receiver.fetch(world.now, far, Some(400));
    world.run();
    for seq in 1..=64 {
        assert!(world.send(1, seq));
        world.pass(Duration::from_secs(5));
        assert_eq!(refusals(&world), 0, "after {seq}");
    }
    assert!(world.send(1, 65));
    world.run();
    world.pass(Duration::ZERO);
    assert_eq!(refusals(&world), 1, "its sender has forgotten it");
}

#[test]
fn whoever_has_asked_hears_that_the_connection_is_lost_and_only_if_nothing_has_come() {
    for has_come in [false, true] {
        let mut world = World::strict(3);
        world.run();
        let (_, far) = world.link.unwrap();
        world.receiver.fetch(world.now, far, Some(40));
        world.run();
        if has_come {
            let (info, bytes) = frame(1, 40);
            world.sender.answer(world.now, Some(40), Answer::Frame(info, bytes));
            while world.published.is_empty() {
                assert!(world.step());
            }
        }
        world.cut();
        assert_eq!(refusals(&world), usize::from(!has_come));
        assert!(matches!(world.received.last(), Some(ReceiverEvent::Left { .. })));
        // What was asked for on a connection is not answered on the next one.
        world.pass(Duration::from_secs(1));
        let (info, bytes) = frame(1, 40);
        world.sender.answer(world.now, Some(40), Answer::Frame(info, bytes));
        world.run();
        assert_eq!(world.sender.stats().lost_connections, 1);
    }
}

/// A connection on which frame 40 was asked for, and how its answer begins, which is on its way.
fn asked(world: &mut World) -> (ConnId, Begin) {
    world.run();
    let (near, far) = world.link.unwrap();
    world.receiver.fetch(world.now, far, Some(40));
    world.run();
    let (info, bytes) = frame(1, 40);
    world.sender.answer(world.now, Some(40), Answer::Frame(info, bytes));
    let bytes = world.sender.poll_transmit(near).unwrap();
    match Decoder::new(Limits::default()).next(&mut &bytes[..]).unwrap() {
        Some(Decoded::Message(Message::Begin(begin))) => (far, begin),
        other => panic!("{other:?}"),
    }
}

fn say(world: &mut World, far: ConnId, message: &Message) {
    let mut bytes = Vec::new();
    message.encode(&mut bytes);
    world.receiver.handle_bytes(world.now, far, &bytes);
    world.run();
}

#[test]
fn a_frame_that_is_asked_for_comes_once() {
    let mut world = World::strict(3);
    let (far, begin) = asked(&mut world);
    // Its last word is still on the way.
    world.cuts = vec![1];
    while world.published.is_empty() {
        assert!(world.step());
    }
    say(&mut world, far, &Message::Begin(begin));
    let fault = Some(LinkFault::Unexpected(FrameType::SNAPSHOT_BEGIN));
    assert!(matches!(world.received.last(), Some(ReceiverEvent::Left { fault: left, .. }) if *left == fault));
    assert_eq!((world.published.len(), refusals(&world)), (1, 0));
}

#[test]
fn a_frame_that_comes_in_the_middle_of_another_one_is_not_fetched() {
    let mut world = World::strict(3);
    let (far, begin) = asked(&mut world);
    let id = SnapshotId { request: 40, ..begin.id };
    say(&mut world, far, &Message::LoadBegin(Begin { id, ..begin.clone() }));
    say(&mut world, far, &Message::Begin(begin));
    assert!(matches!(world.received.last(), Some(ReceiverEvent::Left { fault: Some(_), .. })));
    assert_eq!(refusals(&world), 1);
}

#[test]
fn a_reason_of_any_length_can_be_told() {
    let mut world = World::strict(3);
    world.run();
    let (_, far) = world.link.unwrap();
    world.receiver.fetch(world.now, far, Some(7));
    world.run();
    world.sender.answer(world.now, Some(7), Answer::No("x".repeat(5000)));
    world.run();
    let told = |event: &ReceiverEvent<_>| matches!(event, ReceiverEvent::NotFetched { why, .. } if *why == "x".repeat(4096));
    assert!(world.received.iter().any(told));

    world.is_busy = true;
    assert!(world.send(1, 8));
    world.run();
    world.receiver.skip(world.now, far, Fate::Skipped("y".repeat(5000)));
    world.run();
    assert_eq!(world.fates(), [(8, Fate::Skipped("y".repeat(4096)))]);
    assert_eq!(world.sender.stats().lost_connections, 0);
}

#[test]
fn requests_are_answered_one_after_the_other_and_only_so_many_wait() {
    let mut world = World::strict(3);
    world.run();
    let (near, _) = world.link.unwrap();
    let ask = |world: &mut World, seq: u64| {
        let mut bytes = Vec::new();
        let request = 1 << 63 | seq;
        Message::SaveRequest(SnapshotId { request, ..SnapshotId::default() }).encode(&mut bytes);
        world.sender.handle_bytes(world.now, near, &bytes);
    };
    let wanted = |world: &mut World| {
        let mut wanted = Vec::new();
        while let Some(event) = world.sender.poll_event() {
            if let SenderEvent::Wanted { seq } = event {
                wanted.push(seq.unwrap());
            }
        }
        wanted
    };
    (1..=17).for_each(|seq| ask(&mut world, seq));
    assert_eq!(wanted(&mut world), [1], "of one of them a frame is to be kept");
    let (info, bytes) = frame(1, 1);
    world.sender.answer(world.now, Some(1), Answer::Frame(info, bytes));
    assert_eq!(wanted(&mut world), [], "it is being sent");
    while let Some(n) = world.sender.poll_transmit(near).map(<[u8]>::len) {
        world.sender.transmitted(near, n);
    }
    assert_eq!(wanted(&mut world), [2]);
    world.sender.answer(world.now, Some(2), Answer::No("it is gone".into()));
    assert_eq!(wanted(&mut world), [3]);
    // One is told, 14 wait.
    (18..=19).for_each(|seq| ask(&mut world, seq));
    assert!(world.sender.is_connected());
    ask(&mut world, 20);
    let fault = Some(LinkFault::Unexpected(FrameType::SAVE_REQUEST));
    assert_eq!(world.sender.poll_event(), Some(SenderEvent::Lost { fault }));
}
