//! Workers of ours at a server of ours.

use std::time::Duration;

use cuframes_dispatch::{Cause, Stop};

use crate::world::{TIMEOUT, World, id, retried, success};

#[test]
fn two_workers_share_the_blocks_and_go_home() {
    let mut world = World::new(0..4);
    let (a, b) = (world.join(1), world.join(1));
    assert_eq!((world.given(a), world.given(b)), (vec![0], vec![1]));
    world.done(b, 1);
    world.done(b, 2);
    world.done(a, 0);
    assert_eq!((world.given(a), world.given(b)), (vec![], vec![2, 3]));
    world.done(b, 3);
    for worker in [a, b] {
        assert_eq!(world.stop(worker), Some(&Stop::Shutdown));
        assert!(world.workers[worker].machine.is_finished());
    }
    assert_eq!(world.server.workers(), 0);
    assert_eq!(world.news(), [1, 2, 0, 3].map(|number| success("t", number)));
}

#[test]
fn what_a_killed_worker_had_is_done_by_the_other_that_waits() {
    let mut world = World::new(0..3);
    let (a, b) = (world.join(2), world.join(2));
    assert_eq!((world.given(a), world.given(b)), (vec![0, 1], vec![2]));
    world.done(b, 2);
    world.kill(a);
    assert_eq!(world.given(b), [0, 1]);
    world.done(b, 1);
    world.done(b, 0);
    assert_eq!(world.stop(b), Some(&Stop::Shutdown));
    let lost = [0, 1].map(|number| retried("t", number, Cause::Lost));
    assert_eq!(world.news(), [&[success("t", 2)], &lost[..], &[success("t", 1), success("t", 0)]].concat());
}

#[test]
fn who_leaves_leaves_its_blocks_to_others() {
    let mut world = World::new(0..2);
    let (a, b) = (world.join(1), world.join(1));
    world.workers[a].machine.leave(world.now);
    world.run();
    world.given(b);
    world.done(b, 1);
    assert_eq!(world.given(b), [0]);
    world.done(b, 0);
    assert_eq!((world.stop(a), world.stop(b)), (Some(&Stop::Left), Some(&Stop::Shutdown)));
}

#[test]
fn a_slow_worker_with_several_blocks_goes_on_after_its_time_was_up() {
    let mut world = World::new(0..2);
    let a = world.join(3);
    assert_eq!(world.given(a), [0, 1]);
    world.pass(TIMEOUT);
    assert_eq!(world.news(), [0, 1].map(|number| retried("t", number, Cause::Timeout)));
    // It is late with both. It is the only one, so it gets them again, but not before it has answered.
    assert_eq!((world.given(a), world.stop(a)), (vec![], None));
    world.done(a, 0);
    assert_eq!(world.given(a), [0]);
    world.done(a, 0);
    world.done(a, 1);
    assert_eq!(world.given(a), [1]);
    world.done(a, 1);
    assert_eq!(world.stop(a), Some(&Stop::Shutdown));
    assert_eq!(world.news(), [0, 1].map(|number| success("t", number)));
}

#[test]
fn a_server_that_shuts_down_sends_idle_workers_home_and_costs_busy_ones_their_blocks() {
    let mut world = World::open(0..2);
    let (a, b, c) = (world.join(2), world.join(1), world.join(3));
    world.shut_down();
    for idle in [b, c] {
        assert_eq!(world.stop(idle), Some(&Stop::Shutdown));
    }
    assert_eq!(world.stop(a), None);
    world.pass(Duration::from_secs(1));
    assert_eq!(world.stop(a), Some(&Stop::Closed { lost: 2 }));
    assert!(world.server.is_finished());
    // Whoever comes now is told at once.
    let late = world.join(1);
    assert_eq!(world.stop(late), Some(&Stop::Closed { lost: 0 }));
}

#[test]
fn a_worker_may_be_there_before_its_server() {
    let mut world = World::new([0]);
    world.is_listening = false;
    let a = world.join(1);
    world.pass(Duration::from_secs(29));
    assert_eq!(world.given(a), []);
    world.is_listening = true;
    world.run();
    assert_eq!(world.given(a), [0]);
    world.pass(Duration::from_secs(29));
    world.done(a, 0);
    assert_eq!(world.stop(a), Some(&Stop::Shutdown));
}

#[test]
fn blocks_that_are_added_while_workers_wait_go_out_at_once_through_pipes_of_any_width() {
    for width in [1, 7, usize::MAX] {
        let mut world = World::open([]);
        world.width = width;
        let (a, b) = (world.join(2), world.join(1));
        for number in 0..6 {
            world.add("t", number, &[]);
        }
        assert_eq!((world.given(a), world.given(b)), (vec![0, 1], vec![2]));
        world.done(b, 2);
        world.close("t");
        for (worker, number) in [(a, 1), (b, 3), (a, 0), (b, 5), (a, 4)] {
            world.done(worker, number);
        }
        assert_eq!((world.stop(a), world.stop(b)), (Some(&Stop::Shutdown), Some(&Stop::Shutdown)));
        assert_eq!(world.tally(), [0, 0, 0, 6, 0, 0, 0]);
    }
}

#[test]
fn a_failure_is_told_with_its_reason_and_tried_again() {
    let mut world = World::new([0]);
    let a = world.join(1);
    world.given(a);
    assert!(world.workers[a].machine.failed(world.now, &id("t", 0), "no such file"));
    world.run();
    assert_eq!(world.given(a), [0]);
    world.done(a, 0);
    let cause = Cause::Reported("no such file".into());
    assert_eq!(cause.to_string(), "it failed: no such file");
    assert_eq!(world.news(), [retried("t", 0, cause), success("t", 0)]);
}
