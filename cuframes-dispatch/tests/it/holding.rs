//! Blocks that workers have: how they get them, give them back, and keep them for too long.

use std::time::Duration;

use cuframes_dispatch::wire::Version;
use cuframes_dispatch::{Cause, PeerFault, ServerEvent, TaskConfig};

use crate::bytes::{CREATED, FAILED, acquire, disconnect, done, failed, sent, shutdown, text, vector, w2};
use crate::world::{TIMEOUT, World, block, id, retried, success};

#[test]
fn blocks_are_handed_out_in_the_order_in_which_they_were_added_each_to_one() {
    let mut world = World::new([3, 1, 2]);
    let (a, first) = world.call_for("t", 1);
    let (b, second) = world.call_for("t", 1);
    assert_eq!((first, second), (sent("t", 3, CREATED), sent("t", 1, CREATED)));
    assert_eq!(world.tally(), [0, 1, 2, 0, 0, 0, 0]);
    assert_eq!(world.say(b, &[done("t", 1), acquire("t")].concat()), sent("t", 2, CREATED));
    assert_eq!(world.say(a, &done("t", 3)), []);
    assert_eq!(world.news(), [success("t", 1), success("t", 3)]);
    assert_eq!(world.tally(), [0, 0, 1, 2, 0, 0, 0]);
}

#[test]
fn the_last_release_ends_the_task_and_who_asks_then_is_sent_home() {
    let mut world = World::new([0]);
    let (a, block) = world.call_for("t", 1);
    assert_eq!(block, sent("t", 0, CREATED));
    assert!(!world.server.scheduler().is_finished());
    assert_eq!(world.say(a, &[done("t", 0), acquire("t")].concat()), shutdown());
    assert!(world.server.scheduler().is_finished());
    // However often: it is a late one that did not hear.
    assert_eq!(world.say(a, &acquire("t")), shutdown());
    let (b, answer) = world.call_for("t", 1);
    assert_eq!(answer, shutdown());
    assert_eq!(world.server.workers(), 2);
    world.say(b, &disconnect());
    assert!(world.is_closed(b) && world.fault(b).is_none());
    assert_eq!(world.server.workers(), 1);
}

#[test]
fn the_server_tells_who_got_which_block() {
    let mut world = World::new([0, 1]);
    let (a, _) = world.call_for("t", 1);
    let b = world.call();
    world.say(b, &vector!("w2_acquire"));
    let sent = |world: &World, caller, worker_id, number| ServerEvent::Sent {
        conn: world.conn(caller),
        worker_id,
        block_id: id("t", number),
    };
    let expected = [
        ServerEvent::Joined { conn: world.conn(a) },
        sent(&world, a, None, 0),
        ServerEvent::Joined { conn: world.conn(b) },
        sent(&world, b, Some(3), 1),
    ];
    assert_eq!(world.events, expected);
    // Its number is known from then on.
    world.events.clear();
    world.say(b, &[failed("t", 1, "no"), acquire("t")].concat());
    let again = sent(&world, b, Some(3), 1);
    assert_eq!(world.events, [retried("t", 1, Cause::Reported("no".into())), again]);
}

#[test]
fn several_at_a_time_may_be_released_in_any_order() {
    let mut world = World::new(0..5);
    let (a, blocks) = world.call_for("t", 3);
    assert_eq!(blocks, [0, 1, 2].map(|number| sent("t", number, CREATED)).concat());
    world.say(a, &[done("t", 2), done("t", 0)].concat());
    assert_eq!(world.say(a, &acquire("t")), sent("t", 3, CREATED));
    world.say(a, &[done("t", 3), done("t", 1)].concat());
    assert_eq!(world.news(), [2, 0, 3, 1].map(|number| success("t", number)));
    assert_eq!(world.fault(a), None);
}

#[test]
fn a_release_of_what_somebody_else_has_costs_the_connection_and_nothing_else() {
    let mut world = World::new(0..2);
    let (a, _) = world.call_for("t", 1);
    let (b, _) = world.call_for("t", 1);
    world.say(b, &done("t", 0));
    assert_eq!(world.fault(b), Some(PeerFault::Foreign(id("t", 0))));
    assert_eq!(world.tally(), [0, 1, 1, 0, 0, 0, 1]);
    assert_eq!(world.say(a, &[done("t", 0), acquire("t")].concat()), sent("t", 1, FAILED));
    world.say(a, &done("t", 1));
    assert_eq!(world.news(), [retried("t", 1, Cause::Lost), success("t", 0), success("t", 1)]);
}

#[test]
fn a_second_release_of_the_same_costs_the_connection_but_the_first_counts() {
    for second in [done("t", 0), failed("t", 0, "no")] {
        let mut world = World::new(0..2);
        let (a, _) = world.call_for("t", 1);
        world.say(a, &[done("t", 0), second].concat());
        assert_eq!(world.fault(a), Some(PeerFault::Foreign(id("t", 0))));
        assert_eq!(world.news(), [success("t", 0)]);
        assert_eq!(world.tally(), [0, 1, 0, 1, 0, 0, 0]);
    }
}

#[test]
fn releases_of_blocks_that_there_are_not_cost_the_connection() {
    for (task, number) in [("t", 9), ("u", 0)] {
        let mut world = World::new([0]);
        let (a, _) = world.call_for("t", 1);
        world.say(a, &done(task, number));
        assert_eq!(world.fault(a), Some(PeerFault::Foreign(id(task, number))));
        let (_, block) = world.call_for("t", 1);
        assert_eq!(block, sent("t", 0, FAILED));
    }
}

#[test]
fn who_takes_too_long_loses_the_block_and_its_late_answer_is_no_fault() {
    for late in [done("t", 0), failed("t", 0, "no")] {
        let mut world = World::new([0]);
        let (a, _) = world.call_for("t", 1);
        let deadline = world.now + TIMEOUT;
        assert_eq!(world.server_timeout(), Some(deadline));
        world.pass(TIMEOUT - Duration::from_nanos(1));
        assert_eq!((world.tally(), world.news()), ([0, 0, 1, 0, 0, 0, 0], vec![]));
        world.pass(Duration::from_nanos(1));
        assert_eq!(world.news(), [retried("t", 0, Cause::Timeout)]);
        let answer = world.now + TIMEOUT;
        assert_eq!((world.tally(), world.server_timeout()), ([0, 1, 0, 0, 0, 0, 1], Some(answer)));
        let (b, block) = world.call_for("t", 1);
        assert_eq!(block, sent("t", 0, FAILED));
        world.say(a, &late);
        assert_eq!((world.fault(a), world.news()), (None, vec![]));
        // Once.
        world.say(a, &late);
        assert_eq!(world.fault(a), Some(PeerFault::Foreign(id("t", 0))));
        world.say(b, &done("t", 0));
        assert_eq!(world.news(), [success("t", 0)]);
    }
}

#[test]
fn a_late_answer_is_no_fault_either_when_the_block_has_ended_elsewhere() {
    let mut world = World::new([0]);
    let (a, _) = world.call_for("t", 1);
    world.pass(TIMEOUT);
    let (b, _) = world.call_for("t", 1);
    world.say(b, &done("t", 0));
    assert_eq!(world.say(a, &[done("t", 0), acquire("t")].concat()), shutdown());
    assert_eq!(world.fault(a), None);
    assert_eq!(world.news(), [retried("t", 0, Cause::Timeout), success("t", 0)]);
}

#[test]
fn who_answers_late_may_have_the_block_again() {
    let mut world = World::new([0]);
    let (a, _) = world.call_for("t", 1);
    world.pass(TIMEOUT);
    assert_eq!(world.say(a, &[done("t", 0), acquire("t")].concat()), sent("t", 0, FAILED));
    world.say(a, &done("t", 0));
    assert_eq!((world.tally(), world.fault(a)), ([0, 0, 0, 1, 0, 0, 1], None));
}

#[test]
fn who_still_owes_an_answer_about_a_block_does_not_get_it_again() {
    // With several at a time it would have it twice, and nobody could say which of the two its answer is about.
    let mut world = World::new(0..2);
    let (a, blocks) = world.call_for("t", 1);
    assert_eq!(blocks, sent("t", 0, CREATED));
    world.pass(TIMEOUT);
    assert_eq!(world.say(a, &acquire("t").repeat(2)), sent("t", 1, CREATED));
    assert_eq!(world.tally(), [0, 1, 1, 0, 0, 0, 1]);
    // When it has answered, it does: it is the only one.
    assert_eq!(world.say(a, &done("t", 0)), sent("t", 0, FAILED));
    world.say(a, &[done("t", 1), done("t", 0)].concat());
    assert_eq!((world.tally(), world.fault(a)), ([0, 0, 0, 2, 0, 0, 1], None));
}

#[test]
fn who_does_not_answer_about_a_block_for_as_long_again_loses_its_connection_and_can_come_back() {
    let mut world = World::open(0..1);
    // It works on others meanwhile, but the block is stuck, and there is nobody else.
    let (a, _) = world.call_for("t", 1);
    world.pass(TIMEOUT);
    world.add("t", 1, &[]);
    assert_eq!(world.say(a, &acquire("t")), sent("t", 1, CREATED));
    assert_eq!(world.say(a, &[done("t", 1), acquire("t")].concat()), []);
    world.pass(TIMEOUT - Duration::from_nanos(1));
    assert_eq!((world.is_closed(a), world.tally()), (false, [0, 1, 0, 1, 0, 0, 1]));
    world.pass(Duration::from_nanos(1));
    assert_eq!(world.fault(a), Some(PeerFault::Silent(id("t", 0))));
    assert_eq!((world.server_timeout(), world.server.workers()), (None, 0));
    let (b, block) = world.call_for("t", 1);
    assert_eq!(block, sent("t", 0, FAILED));
    world.say(b, &done("t", 0));
    assert_eq!(world.tally(), [0, 0, 0, 2, 0, 0, 1]);
}

#[test]
fn what_else_is_out_where_an_answer_never_comes_goes_to_others_at_once() {
    let mut world = World::open(0..1);
    let (a, _) = world.call_for("t", 1);
    world.pass(TIMEOUT);
    let (b, _) = world.call_for("t", 1);
    world.say(b, &done("t", 0));
    world.pass(TIMEOUT - Duration::from_secs(1));
    world.add("t", 1, &[]);
    assert_eq!(world.say(a, &acquire("t")), sent("t", 1, CREATED));
    assert_eq!(world.say(b, &acquire("t")), []);
    world.news();
    world.pass(Duration::from_secs(1));
    assert_eq!((world.heard(b), world.news()), (sent("t", 1, FAILED), vec![retried("t", 1, Cause::Lost)]));
}

#[test]
fn late_answers_are_no_fault_however_many_there_are() {
    let mut world = World::empty(Version::W2);
    let a = world.call();
    let tasks: Vec<String> = (0..120).map(|task| format!("t{task}")).collect();
    for task in &tasks {
        world.schedule(|scheduler| {
            scheduler.add_task(TaskConfig::new(task)).unwrap();
            (0..10).for_each(|number| scheduler.add_block(block(task, number), &[]).unwrap());
        });
        world.say(a, &acquire(task).repeat(10));
        world.schedule(|scheduler| scheduler.abandon_task(task)).unwrap();
    }
    for task in &tasks {
        (0..10).for_each(|number| _ = world.say(a, &done(task, number)));
    }
    assert_eq!((world.fault(a), world.is_closed(a)), (None, false));
    world.say(a, &done("t0", 0));
    assert_eq!(world.fault(a), Some(PeerFault::Foreign(id("t0", 0))));
}

#[test]
fn what_one_still_owes_an_answer_about_goes_to_others_and_keeps_its_place_for_them() {
    let mut world = World::open(0..1);
    let (a, _) = world.call_for("t", 1);
    world.pass(TIMEOUT);
    world.add("t", 1, &[]);
    assert_eq!(world.say(a, &acquire("t")), sent("t", 1, CREATED));
    assert_eq!(world.say(a, &acquire("t")), []);
    let (b, block) = world.call_for("t", 1);
    assert_eq!(block, sent("t", 0, FAILED));
    world.say(b, &done("t", 0));
    world.say(a, &[done("t", 0), done("t", 1)].concat());
    assert_eq!((world.tally(), world.fault(a)), ([0, 0, 0, 2, 0, 0, 1], None));
}

#[test]
fn each_task_has_a_time_of_its_own_and_one_may_have_none() {
    let mut world = World::empty(Version::W2);
    world.schedule(|scheduler| {
        for (task, timeout) in [("u", Some(Duration::from_millis(1500))), ("v", None)] {
            let mut config = TaskConfig::new(task);
            config.timeout = timeout;
            scheduler.add_task(config).unwrap();
            scheduler.add_block(block(task, 0), &[]).unwrap();
        }
    });
    let with = |task, timeout: &[u8]| w2(&[&[1], &crate::bytes::block(task, 0, 0), &[0], timeout]);
    let (_, block) = world.call_for("v", 1);
    assert_eq!(block, with("v", &[0]));
    assert_eq!(world.server_timeout(), None);
    let (_, block) = world.call_for("u", 1);
    assert_eq!(block, with("u", &[&[1], &1.5_f64.to_le_bytes()[..]].concat()));
    let lost = world.now + Duration::from_millis(1500);
    assert_eq!(world.server_timeout(), Some(lost));
    world.pass(Duration::from_secs(1 << 30));
    assert_eq!(world.news(), [retried("u", 0, Cause::Timeout)]);
}

#[test]
fn a_worker_of_a_task_may_take_blocks_of_another() {
    let mut world = World::open(0..1);
    world.schedule(|scheduler| {
        scheduler.add_task(TaskConfig::new("u")).unwrap();
        scheduler.add_block(block("u", 0), &[]).unwrap();
    });
    let (a, first) = world.call_for("u", 1);
    assert_eq!((first, world.say(a, &acquire("t"))), (sent("u", 0, CREATED), sent("t", 0, CREATED)));
    world.say(a, &[done("u", 0), done("t", 0)].concat());
    assert_eq!(world.news(), [success("u", 0), success("t", 0)]);
    assert_eq!(world.fault(a), None);
}

#[test]
fn the_older_version_is_spoken_with_neither_numbers_nor_times_nor_measurements() {
    let mut world = World::empty(Version::W0);
    world.schedule(|scheduler| {
        scheduler.add_task(TaskConfig::new("t")).unwrap();
        (0..3).for_each(|number| scheduler.add_block(block("t", number), &[]).unwrap());
        scheduler.close_task("t").unwrap();
    });
    let frame = |payload: &[&[u8]]| crate::bytes::frame(&payload.concat());
    let acquire = frame(&[&[0], &text("t")]);
    let block = crate::bytes::block;
    let a = world.call();
    assert_eq!(world.say(a, &acquire), frame(&[&[1], &block("t", 0, 0)]));
    assert_eq!(
        world.say(a, &[frame(&[&[2], &block("t", 0, 2)]), acquire.clone()].concat()),
        frame(&[&[1], &block("t", 1, 0)])
    );
    world.say(a, &frame(&[&[3], &block("t", 1, 3), &text("no")]));
    assert_eq!(world.news(), [success("t", 0), retried("t", 1, Cause::Reported("no".into()))]);
    assert_eq!(
        world.say(a, &acquire.repeat(2)),
        [frame(&[&[1], &block("t", 2, 0)]), frame(&[&[1], &block("t", 1, 3)])].concat()
    );
    world.say(a, &[frame(&[&[2], &block("t", 1, 2)]), frame(&[&[2], &block("t", 2, 2)])].concat());
    assert_eq!(world.say(a, &acquire), vector!("w0_shutdown"));
    world.say(a, &vector!("w0_disconnect"));
    assert!(world.is_closed(a) && world.fault(a).is_none());
    // Who speaks the other version is not understood.
    let b = world.call();
    world.say(b, &crate::bytes::acquire("t"));
    assert!(matches!(world.fault(b), Some(PeerFault::Frame(_))));
}
