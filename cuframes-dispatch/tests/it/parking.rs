//! Workers that ask when nothing is ready wait, and are answered as soon as there is an answer.

use cuframes_dispatch::{Cause, Outcome, ServerEvent, TaskConfig};

use crate::bytes::{CREATED, FAILED, acquire, disconnect, done, failed, sent, shutdown};
use crate::world::{TIMEOUT, World, ended, id, retried, success};

#[test]
fn a_release_that_makes_a_block_ready_answers_who_waits() {
    let mut world = World::open([0]);
    world.add("t", 1, &[0]);
    let (a, _) = world.call_for("t", 1);
    let (b, answer) = world.call_for("t", 1);
    assert_eq!((answer, world.tally()), (vec![], [1, 0, 1, 0, 0, 0, 0]));
    assert_eq!(world.say(a, &done("t", 0)), []);
    assert_eq!(world.heard(b), sent("t", 1, CREATED));
}

#[test]
fn who_waits_longest_is_answered_first_also_before_the_one_that_releases() {
    for pieces in 1..=2 {
        let mut world = World::open([0]);
        world.add("t", 1, &[0]);
        world.add("t", 2, &[0]);
        let (a, _) = world.call_for("t", 1);
        let (b, _) = world.call_for("t", 1);
        let (c, _) = world.call_for("t", 1);
        // In one piece or in two: the one that releases asks after the others.
        let answer = if pieces == 1 {
            world.say(a, &[done("t", 0), acquire("t")].concat())
        } else {
            world.say(a, &done("t", 0));
            world.say(a, &acquire("t"))
        };
        assert_eq!((world.heard(b), world.heard(c)), (sent("t", 1, CREATED), sent("t", 2, CREATED)));
        assert_eq!(answer, []);
    }
}

#[test]
fn a_failure_answers_who_waits_with_the_same_block() {
    let mut world = World::new([0]);
    let (a, _) = world.call_for("t", 1);
    let (b, _) = world.call_for("t", 1);
    world.say(a, &failed("t", 0, "no"));
    assert_eq!(world.heard(b), sent("t", 0, FAILED));
    assert_eq!(world.news(), [retried("t", 0, Cause::Reported("no".into()))]);
}

#[test]
fn what_happened_to_a_block_is_told_before_who_has_it_next() {
    for (kind, cause) in [Cause::Reported("no".into()), Cause::Lost, Cause::Timeout].into_iter().enumerate() {
        let mut world = World::new([0]);
        let (a, _) = world.call_for("t", 1);
        let (b, _) = world.call_for("t", 1);
        world.events.clear();
        match kind {
            0 => _ = world.say(a, &failed("t", 0, "no")),
            1 => world.hang_up(a),
            _ => world.pass(TIMEOUT),
        }
        world.events.retain(|event| !matches!(event, ServerEvent::Left { .. }));
        let sent = ServerEvent::Sent { conn: world.conn(b), worker_id: None, block_id: id("t", 0) };
        assert_eq!(world.events, [retried("t", 0, cause), sent]);
    }
}

#[test]
fn the_end_of_another_worker_answers_who_waits() {
    for polite in [false, true] {
        let mut world = World::new([0, 1]);
        let (a, _) = world.call_for("t", 2);
        let (b, _) = world.call_for("t", 2);
        if polite {
            world.say(a, &disconnect());
        } else {
            world.hang_up(a);
        }
        assert!(world.is_closed(a) && world.fault(a).is_none());
        assert_eq!(world.heard(b), [sent("t", 0, FAILED), sent("t", 1, FAILED)].concat());
        assert_eq!(world.news(), [retried("t", 0, Cause::Lost), retried("t", 1, Cause::Lost)]);
    }
}

#[test]
fn a_deadline_of_another_worker_answers_who_waits() {
    let mut world = World::new([0]);
    let (_, _) = world.call_for("t", 1);
    let (b, _) = world.call_for("t", 1);
    world.pass(TIMEOUT);
    assert_eq!(world.heard(b), sent("t", 0, FAILED));
}

#[test]
fn a_deadline_that_nobody_looked_at_counts_as_soon_as_anything_happens() {
    let mut world = World::new([0]);
    let (a, _) = world.call_for("t", 1);
    let (b, _) = world.call_for("t", 1);
    world.now = world.now + TIMEOUT;
    assert_eq!(world.say(a, &done("t", 0)), []);
    assert_eq!(world.heard(b), sent("t", 0, FAILED));
    assert_eq!((world.news(), world.fault(a)), (vec![retried("t", 0, Cause::Timeout)], None));
}

#[test]
fn blocks_that_are_added_answer_who_waits() {
    let mut world = World::open([]);
    let (a, answer) = world.call_for("t", 2);
    let (b, _) = world.call_for("t", 1);
    assert_eq!(answer, []);
    for number in 0..4 {
        world.add("t", number, &[]);
    }
    assert_eq!(world.heard(a), [sent("t", 0, CREATED), sent("t", 1, CREATED)].concat());
    assert_eq!(world.heard(b), sent("t", 2, CREATED));
    assert_eq!(world.tally(), [0, 1, 3, 0, 0, 0, 0]);
}

#[test]
fn the_end_of_the_task_answers_who_waits() {
    let mut world = World::new([0]);
    let (a, _) = world.call_for("t", 1);
    let (b, answer) = world.call_for("t", 1);
    // In the original it would be sent home already, and nobody was there if the other one failed.
    assert_eq!(answer, []);
    assert_eq!(world.say(a, &done("t", 0)), []);
    assert_eq!(world.heard(b), shutdown());
    let (_, answer) = world.call_for("t", 3);
    assert_eq!(answer, shutdown().repeat(3));
}

#[test]
fn closing_a_task_without_blocks_ends_it() {
    let mut world = World::open([]);
    let (a, _) = world.call_for("t", 1);
    world.close("t");
    assert_eq!(world.heard(a), shutdown());
    assert!(world.server.scheduler().is_finished());
    assert_eq!(world.tally(), [0; 7]);
}

#[test]
fn the_failure_for_good_of_the_last_block_ends_the_task() {
    let mut world = World::new([0]);
    let (a, _) = world.call_for("t", 1);
    let (b, _) = world.call_for("t", 1);
    assert_eq!(world.say(a, &[failed("t", 0, "1"), acquire("t")].concat()), []);
    assert_eq!(world.heard(b), sent("t", 0, FAILED));
    world.say(b, &failed("t", 0, "2"));
    assert_eq!(world.heard(a), sent("t", 0, FAILED));
    world.say(b, &acquire("t"));
    world.say(a, &failed("t", 0, "3"));
    assert_eq!(world.heard(b), shutdown());
    let cause = |text: &str| Cause::Reported(text.into());
    let end = ended("t", 0, Outcome::Failed, Some(cause("3")));
    assert_eq!(world.news(), [retried("t", 0, cause("1")), retried("t", 0, cause("2")), end]);
}

#[test]
fn tasks_do_not_answer_for_each_other() {
    let mut world = World::open([]);
    world.schedule(|scheduler| scheduler.add_task(TaskConfig::new("u"))).unwrap();
    let (a, _) = world.call_for("t", 1);
    let (b, _) = world.call_for("u", 1);
    world.add("u", 0, &[]);
    assert_eq!((world.heard(a), world.heard(b)), (vec![], sent("u", 0, CREATED)));
    world.close("t");
    assert_eq!((world.heard(a), world.heard(b)), (shutdown(), vec![]));
    assert!(!world.server.scheduler().is_finished());
}

#[test]
fn who_has_left_is_not_given_a_block() {
    let mut world = World::open([]);
    let (a, _) = world.call_for("t", 2);
    let (b, _) = world.call_for("t", 1);
    world.hang_up(a);
    world.add("t", 0, &[]);
    assert_eq!(world.heard(b), sent("t", 0, CREATED));
    assert_eq!(world.tally(), [0, 0, 1, 0, 0, 0, 0]);
    assert_eq!(world.server.workers(), 1);
}

#[test]
fn a_release_of_one_task_makes_blocks_of_another_ready() {
    let mut world = World::open([0]);
    world.schedule(|scheduler| {
        scheduler.add_task(TaskConfig::new("u")).unwrap();
        scheduler.add_block(crate::world::block("u", 0), &[id("t", 0)]).unwrap();
        scheduler.close_task("u").unwrap();
    });
    let (a, _) = world.call_for("t", 1);
    let (b, answer) = world.call_for("u", 1);
    assert_eq!(answer, []);
    world.say(a, &done("t", 0));
    assert_eq!(world.heard(b), sent("u", 0, CREATED));
    assert_eq!(world.say(b, &[done("u", 0), acquire("u")].concat()), shutdown());
    assert_eq!(world.news(), [success("t", 0), success("u", 0)]);
}

#[test]
fn who_owes_an_answer_about_what_is_ready_does_not_stand_in_the_way_of_who_waits_behind_it() {
    let mut world = World::new([0]);
    let (a, _) = world.call_for("t", 1);
    assert_eq!(world.say(a, &acquire("t").repeat(2)), []);
    let (b, _) = world.call_for("t", 1);
    let (c, _) = world.call_for("t", 1);
    world.pass(TIMEOUT);
    assert_eq!((world.heard(a), world.heard(b)), (vec![], sent("t", 0, FAILED)));
    // It answers, and is the first of those who wait again.
    world.say(a, &done("t", 0));
    world.say(b, &failed("t", 0, "no"));
    assert_eq!((world.heard(a), world.heard(c)), (sent("t", 0, FAILED), vec![]));
}
