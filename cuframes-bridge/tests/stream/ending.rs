//! The end of a sender.

use std::time::Duration;

use cuframes_bridge::stream::SenderEvent;
use cuframes_core::streams::Machine;

use crate::world::World;

#[test]
fn who_can_wait_no_longer_says_so_and_hears_which_frames_are_given_up() {
    let mut world = World::strict(3);
    world.run();
    world.is_busy = true;
    assert!(world.send(1, 1) && world.send(1, 2));
    world.run();
    world.sender.finish(world.now, Duration::from_secs(600));
    assert!(!world.send(1, 3), "it takes no more");
    world.pass(Duration::from_secs(1));
    // Longer than before is not meant.
    world.sender.finish(world.now, Duration::from_secs(900));
    let due = world.sender.poll_timeout().unwrap();
    assert!(due <= world.now + Duration::from_secs(599));
    world.sender.finish(world.now, Duration::ZERO);
    assert_eq!(world.sender.poll_timeout(), Some(world.now));
    world.pass(Duration::ZERO);
    assert!(world.sender.is_finished());
    assert_eq!((world.sender.stats().given_up, world.sender.stats().delivered), (2, 0));
    let given_up = world.sent.iter().filter_map(|event| match event {
        SenderEvent::GivenUp { seq } => Some(*seq),
        _ => None,
    });
    assert_eq!(given_up.collect::<Vec<_>>(), [1, 2]);
}
