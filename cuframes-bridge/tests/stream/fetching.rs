//! One frame on demand.

use std::time::Duration;

use cuframes_bridge::stream::{Answer, ReceiverEvent, SenderEvent};
use cuframes_core::streams::Machine;

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
    world.receiver.fetch(world.now, far, Some(41));
    world.run();
    assert_eq!(world.sent.last(), Some(&SenderEvent::Wanted { seq: Some(41) }));
}

#[test]
fn who_asks_for_the_newest_gets_it_with_its_number() {
    let mut world = World::strict(3);
    world.run();
    let (_, far) = world.link.unwrap();
    for seq in [43, 44] {
        world.receiver.fetch(world.now, far, None);
        world.run();
        assert_eq!(world.sent.last(), Some(&SenderEvent::Wanted { seq: None }));
        let (info, bytes) = frame(1, seq);
        world.sender.answer(world.now, None, Answer::Frame(info, bytes));
        world.run();
    }
    assert_eq!(world.published, [43, 44].map(|seq| published(1, seq)));
    world.receiver.fetch(world.now, far, None);
    world.run();
    world.sender.answer(world.now, None, Answer::No("there is none".into()));
    world.run();
    assert!(matches!(world.received.last(), Some(ReceiverEvent::NotFetched { .. })), "{:?}", world.received);
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
