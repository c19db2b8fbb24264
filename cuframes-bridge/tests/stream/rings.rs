//! A publisher whose ring has other slots than that before it: only HELLO says that.

use std::time::Duration;

use cuframes_bridge::stream::{Announcement, Answer, ReceiverEvent, SenderConfig, SenderEvent};
use cuframes_core::RingSize;

use crate::world::{World, announcement, frame, published};

fn other_ring(strict: bool, slots: u64) -> Announcement {
    Announcement { ring_size: RingSize::new(slots).unwrap(), ..announcement(strict) }
}

/// The rings that the receiver was told of.
fn rings(world: &World) -> Vec<u64> {
    let ring = |event: &ReceiverEvent<_>| match event {
        ReceiverEvent::Announced { greeting, .. } => Some(greeting.ring_size.get().into()),
        _ => None,
    };
    world.received.iter().filter_map(ring).collect()
}

#[test]
fn another_ring_is_said_when_what_was_sent_before_is_answered_and_nothing_is_lost() {
    for strict in [true, false] {
        let mut config = SenderConfig::new("there");
        (config.strict, config.window) = (strict, 4);
        let mut world = World::new(config);
        world.run();
        world.is_busy = true;
        assert!(world.send(1, 8) && world.send(1, 9));
        world.run();
        world.sender.announce(other_ring(strict, 2));
        assert!(world.send(2, 1) && world.send(2, 2));
        world.run();
        assert_eq!(rings(&world), [4], "what is on its way is of the ring before");
        let (conn, info) = world.offered.take().unwrap();
        world.is_busy = false;
        world.take(conn, &info, false);
        world.pass(Duration::ZERO);
        assert_eq!(rings(&world), [4, 2]);
        let all = [(1, 8), (1, 9), (2, 1), (2, 2)].map(|(epoch, seq)| published(epoch, seq));
        assert_eq!(world.published, all);
        let stats = world.sender.stats();
        assert_eq!((stats.delivered, stats.given_up, stats.resent, stats.lost_connections), (4, 0, 0, 0));
        assert!(!world.sent.iter().any(|event| matches!(event, SenderEvent::Lost { .. })));
        // It was said, and is not said again.
        assert!(world.send(2, 3));
        world.run();
        assert_eq!(rings(&world), [4, 2]);
    }
}

#[test]
fn without_frames_there_is_nothing_to_say_and_what_was_asked_for_comes_first() {
    let mut world = World::strict(3);
    world.run();
    world.sender.announce(other_ring(true, 2));
    world.pass(Duration::from_secs(5));
    let (_, far) = world.link.unwrap();
    world.receiver.fetch(world.now, far, Some(7));
    world.run();
    assert!(world.send(2, 1));
    world.run();
    assert_eq!(rings(&world), [4]);
    let (info, bytes) = frame(1, 7);
    world.sender.answer(world.now, Some(7), Answer::Frame(info, bytes));
    world.run();
    assert_eq!(rings(&world), [4, 2]);
    assert_eq!(world.published, [published(1, 7), published(2, 1)]);
    // The one before again, without a frame in between: HELLO is still right.
    world.sender.announce(other_ring(true, 5));
    world.sender.announce(other_ring(true, 2));
    assert!(world.send(2, 2));
    world.run();
    assert_eq!(rings(&world), [4, 2]);
}
