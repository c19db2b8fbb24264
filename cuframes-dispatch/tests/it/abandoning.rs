//! Blocks and tasks that are given up.

use cuframes_dispatch::wire::Version;
use cuframes_dispatch::{PeerFault, TaskConfig, TaskError};

use crate::bytes::{CREATED, FAILED, acquire, done, failed, sent, shutdown};
use crate::world::{TIMEOUT, World, block, id, orphaned, success};

#[test]
fn a_block_that_nobody_works_on_can_be_given_up_with_all_that_waits_for_it() {
    let mut world = World::open(0..2);
    world.add("t", 2, &[0]);
    world.add("t", 3, &[2, 1]);
    world.add("t", 4, &[1]);
    assert!(world.schedule(|scheduler| scheduler.abandon_block(&id("t", 0))));
    assert_eq!(world.news(), [0, 2, 3].map(|number| orphaned("t", number)));
    assert!(!world.schedule(|scheduler| scheduler.abandon_block(&id("t", 0))));
    let (a, blocks) = world.call_for("t", 2);
    assert_eq!(blocks, sent("t", 1, CREATED));
    assert_eq!(world.say(a, &done("t", 1)), sent("t", 4, CREATED));
    assert_eq!(world.tally(), [0, 0, 1, 1, 0, 3, 0]);
}

#[test]
fn a_block_that_somebody_works_on_is_not_given_up() {
    let mut world = World::open([0]);
    let (a, _) = world.call_for("t", 1);
    assert!(!world.schedule(|scheduler| scheduler.abandon_block(&id("t", 0))));
    // Between two attempts it can be.
    world.say(a, &failed("t", 0, "no"));
    assert!(world.schedule(|scheduler| scheduler.abandon_block(&id("t", 0))));
    for unknown in [id("t", 7), id("x", 0)] {
        assert!(!world.schedule(|scheduler| scheduler.abandon_block(&unknown)));
    }
    assert_eq!(world.tally(), [0, 0, 0, 0, 0, 1, 1]);
}

#[test]
fn giving_up_the_last_block_ends_the_task() {
    let mut world = World::open([0]);
    world.add("t", 1, &[0]);
    let (a, _) = world.call_for("t", 2);
    world.close("t");
    assert!(world.schedule(|scheduler| scheduler.abandon_block(&id("t", 1))));
    assert_eq!(world.heard(a), []);
    assert_eq!(world.say(a, &done("t", 0)), shutdown());
}

#[test]
fn a_task_is_given_up_also_where_somebody_works_on_it_whose_answer_is_no_fault() {
    for late in [done("t", 0), failed("t", 0, "no")] {
        let mut world = World::open(0..2);
        world.add("t", 2, &[0]);
        world.schedule(|scheduler| {
            scheduler.add_task(TaskConfig::new("u")).unwrap();
            scheduler.add_block(block("u", 0), &[id("t", 2)]).unwrap();
            scheduler.add_block(block("u", 1), &[]).unwrap();
        });
        let (a, _) = world.call_for("t", 1);
        world.schedule(|scheduler| scheduler.abandon_task("t")).unwrap();
        let mut news = world.news();
        news.sort_by_key(|event| format!("{event:?}"));
        assert_eq!(news, [orphaned("t", 0), orphaned("t", 1), orphaned("t", 2), orphaned("u", 0)]);
        // The answer is waited for, and nothing else.
        assert_eq!(world.server_timeout(), Some(world.now + TIMEOUT));
        assert_eq!(world.say(a, &[late.clone(), acquire("t")].concat()), shutdown());
        assert_eq!((world.fault(a), world.news(), world.server_timeout()), (None, vec![], None));
        world.say(a, &late);
        assert_eq!(world.fault(a), Some(PeerFault::Foreign(id("t", 0))));
        let closed = world.schedule(|scheduler| scheduler.add_block(block("t", 5), &[]));
        assert_eq!(closed, Err(TaskError::TaskClosed("t".into())));
        assert_eq!(world.tally(), [0, 0, 0, 0, 0, 3, 0]);
        let (_, block) = world.call_for("u", 1);
        assert_eq!(block, sent("u", 1, CREATED));
    }
}

#[test]
fn giving_up_a_task_sends_those_who_wait_home_and_can_be_repeated() {
    let mut world = World::open([0]);
    world.add("t", 1, &[0]);
    let (a, _) = world.call_for("t", 2);
    world.schedule(|scheduler| scheduler.abandon_task("t")).unwrap();
    assert_eq!(world.heard(a), shutdown());
    world.schedule(|scheduler| scheduler.abandon_task("t")).unwrap();
    assert_eq!(world.tally(), [0, 0, 0, 0, 0, 2, 0]);
    // Its worker goes, with a block that is none any more.
    world.hang_up(a);
    assert_eq!(world.tally(), [0, 0, 0, 0, 0, 2, 0]);
    assert!(world.server.scheduler().is_finished());
}

#[test]
fn an_answer_about_a_block_that_was_given_up_does_not_count_for_the_next_one_of_its_name() {
    let mut world = World::empty(Version::W2);
    world.schedule(|scheduler| {
        ["t", "u"].into_iter().for_each(|task| scheduler.add_task(TaskConfig::new(task)).unwrap());
        scheduler.add_block(block("u", 0), &[]).unwrap();
        scheduler.add_block(block("t", 0), &[id("u", 0)]).unwrap();
    });
    // It waits for the other one, is given up, and comes again without.
    assert!(world.schedule(|scheduler| scheduler.abandon_block(&id("t", 0))));
    world.schedule(|scheduler| scheduler.add_block(block("t", 0), &[])).unwrap();
    let (a, first) = world.call_for("t", 1);
    let (b, _) = world.call_for("u", 1);
    assert_eq!(first, sent("t", 0, CREATED));
    world.say(b, &done("u", 0));
    assert_eq!(world.tally(), [0, 0, 1, 0, 0, 1, 0]);
    // It takes too long; the next one of its name is done by another while the first is still worked on.
    world.pass(TIMEOUT);
    assert!(world.schedule(|scheduler| scheduler.abandon_block(&id("t", 0))));
    world.schedule(|scheduler| scheduler.add_block(block("t", 0), &[])).unwrap();
    assert_eq!(world.say(b, &acquire("t")), sent("t", 0, CREATED));
    world.news();
    world.say(a, &done("t", 0));
    assert_eq!((world.news(), world.fault(a)), (vec![], None));
    world.say(b, &failed("t", 0, "no"));
    assert_eq!(world.say(a, &acquire("t")), sent("t", 0, FAILED));
    world.say(a, &done("t", 0));
    assert_eq!(world.news().last(), Some(&success("t", 0)));
}
