//! A server that is shut down.

use std::time::Duration;

use cuframes_core::streams::Machine as _;
use cuframes_dispatch::ServerEvent;

use crate::bytes::{acquire, disconnect, done, shutdown};
use crate::world::World;

#[test]
fn shutting_down_sends_those_who_wait_home_at_once_and_the_others_when_they_ask() {
    let mut world = World::open([0]);
    let (a, _) = world.call_for("t", 1);
    let (b, _) = world.call_for("t", 2);
    let c = world.call();
    world.events.clear();
    world.shut_down();
    assert_eq!(world.heard(b), shutdown().repeat(2));
    assert_eq!((world.heard(a), world.heard(c)), (vec![], vec![]));
    assert_eq!(world.server.workers(), 0);
    // Each has left, once, and nobody has a block any more.
    for caller in [a, b, c] {
        let left = ServerEvent::Left { conn: world.conn(caller), fault: None };
        assert_eq!(world.events.iter().filter(|event| **event == left).count(), 1);
    }
    assert_eq!(world.tally(), [0, 1, 0, 0, 0, 0, 1]);
    // One who was at work says what became of it, asks, and goes; so does one who comes late.
    assert_eq!(world.say(a, &[done("t", 0), acquire("t")].concat()), shutdown());
    assert_eq!(world.say(c, &acquire("another task")), shutdown());
    assert!(!world.server.is_finished());
    for caller in [a, c] {
        assert_eq!(world.say(caller, &disconnect()), []);
        assert!(world.is_closed(caller));
    }
    world.hang_up(b);
    assert!(world.server.is_finished());
    assert_eq!((world.tally(), world.server_timeout()), ([0, 1, 0, 0, 0, 0, 1], None));
    world.shut_down();
    assert_eq!(world.server.scheduler().counts("t").unwrap().total, 1);
}

#[test]
fn shutting_down_waits_a_second_for_those_who_stay() {
    for reads in [false, true] {
        let mut world = World::open([]);
        let (a, _) = world.call_for("t", 1);
        world.plug(a);
        world.shut_down();
        assert!(!world.is_closed(a) && !world.server.is_finished());
        let until = world.now + Duration::from_secs(1);
        assert_eq!(world.server_timeout(), Some(until));
        // Nobody gets anything any more.
        world.add("t", 0, &[]);
        assert_eq!(world.say(a, &acquire("t")), []);
        assert_eq!(world.tally(), [0, 1, 0, 0, 0, 0, 0]);
        if reads {
            world.unplug(a);
            assert_eq!(world.heard(a), shutdown().repeat(2));
        }
        world.pass(Duration::from_secs(1));
        assert!(world.is_closed(a) && world.server.is_finished());
        assert_eq!(world.server_timeout(), None);
        assert_eq!(world.fault(a), None);
    }
}

#[test]
fn who_hangs_up_while_the_server_shuts_down_leaves_once() {
    let mut world = World::open([]);
    let (a, _) = world.call_for("t", 1);
    world.plug(a);
    world.shut_down();
    world.hang_up(a);
    assert!(world.server.is_finished());
    assert_eq!(world.fault(a), None);
}

#[test]
fn nobody_is_let_in_after_the_end() {
    let mut world = World::open([]);
    world.shut_down();
    assert_eq!(world.server.handle_accepted(world.now, 0), None);
}
