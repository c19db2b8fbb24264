//! Blocks that fail, and what waits for them.

use cuframes_dispatch::wire::{BlockId, Status, Version};
use cuframes_dispatch::{Cause, Outcome, TaskConfig, TaskError};

use crate::bytes::{CREATED, FAILED, acquire, done, failed, released, sent, shutdown};
use crate::world::{TIMEOUT, World, block, ended, id, orphaned, retried, success};

fn reported(reason: &str) -> Cause {
    Cause::Reported(reason.into())
}

#[test]
fn what_fails_goes_to_the_back_and_carries_that_it_failed() {
    let mut world = World::new(0..3);
    let (a, _) = world.call_for("t", 1);
    assert_eq!(world.say(a, &[failed("t", 0, "boom"), acquire("t")].concat()), sent("t", 1, CREATED));
    assert_eq!(world.say(a, &acquire("t").repeat(2)), [sent("t", 2, CREATED), sent("t", 0, FAILED)].concat());
    world.say(a, &done("t", 0));
    assert_eq!(world.news(), [retried("t", 0, reported("boom")), success("t", 0)]);
    assert_eq!(world.tally(), [0, 0, 2, 1, 0, 0, 1]);
}

#[test]
fn a_block_is_tried_once_and_then_as_often_as_its_task_says() {
    for max_retries in 0..4 {
        let mut world = World::empty(Version::W2);
        world.schedule(|scheduler| {
            let mut config = TaskConfig::new("t");
            config.max_retries = max_retries;
            scheduler.add_task(config).unwrap();
            scheduler.add_block(block("t", 0), &[]).unwrap();
            scheduler.close_task("t").unwrap();
        });
        let (a, mut answer) = world.call_for("t", 1);
        for attempt in 0..=max_retries {
            assert_eq!(answer, sent("t", 0, if attempt == 0 { CREATED } else { FAILED }));
            answer = world.say(a, &[failed("t", 0, "no"), acquire("t")].concat());
        }
        assert_eq!(answer, shutdown());
        let mut expected = vec![retried("t", 0, reported("no")); usize::try_from(max_retries).unwrap()];
        expected.push(ended("t", 0, Outcome::Failed, Some(reported("no"))));
        assert_eq!(world.news(), expected);
        assert_eq!(world.tally(), [0, 0, 0, 0, 1, 0, u64::from(max_retries)]);
    }
}

#[test]
fn failures_of_every_kind_count_together() {
    let mut world = World::new([0]);
    let (a, _) = world.call_for("t", 1);
    let (b, _) = world.call_for("t", 1);
    world.hang_up(a);
    assert_eq!(world.heard(b), sent("t", 0, FAILED));
    world.pass(TIMEOUT);
    let (c, block) = world.call_for("t", 1);
    assert_eq!(block, sent("t", 0, FAILED));
    // Without a reason, by the other message.
    world.say(c, &released("t", 0, FAILED));
    let end = ended("t", 0, Outcome::Failed, Some(reported("")));
    assert_eq!(world.news(), [retried("t", 0, Cause::Lost), retried("t", 0, Cause::Timeout), end]);
    assert_eq!((world.fault(b), world.fault(c)), (None, None));
}

#[test]
fn a_block_that_fails_for_good_orphans_all_that_waits_for_it_at_any_distance() {
    let mut world = World::empty(Version::W2);
    world.schedule(|scheduler| {
        let mut config = TaskConfig::new("t");
        config.max_retries = 0;
        scheduler.add_task(config).unwrap();
        scheduler.add_task(TaskConfig::new("u")).unwrap();
        let mut add =
            |task, number, others: &[BlockId]| scheduler.add_block(block(task, number), others).unwrap();
        add("t", 0, &[]);
        add("t", 1, &[]);
        add("t", 2, &[id("t", 0)]);
        add("u", 0, &[id("t", 2), id("t", 1)]);
        add("u", 1, &[id("u", 0), id("t", 0)]);
        add("u", 2, &[id("t", 1)]);
    });
    let (a, blocks) = world.call_for("t", 2);
    assert_eq!(blocks, [sent("t", 0, CREATED), sent("t", 1, CREATED)].concat());
    world.say(a, &failed("t", 0, "boom"));
    let mut news = world.news();
    assert_eq!(news.remove(0), ended("t", 0, Outcome::Failed, Some(reported("boom"))));
    news.sort_by_key(|event| format!("{event:?}"));
    assert_eq!(news, [orphaned("t", 2), orphaned("u", 0), orphaned("u", 1)]);
    // The others go on.
    world.say(a, &done("t", 1));
    let (_, block) = world.call_for("u", 1);
    assert_eq!(block, sent("u", 2, CREATED));
    assert_eq!(world.tally(), [0, 0, 0, 1, 1, 1, 0]);
    assert_eq!((world.counts("u").orphaned, world.counts("u").processing), (2, 1));
}

#[test]
fn a_block_waits_until_all_that_it_waits_for_have_succeeded() {
    let mut world = World::open(0..3);
    // The same one twice counts once.
    world.add("t", 3, &[0, 1, 0]);
    world.add("t", 4, &[3, 2]);
    let (a, _) = world.call_for("t", 3);
    let (b, _) = world.call_for("t", 1);
    world.say(a, &[done("t", 1), failed("t", 0, "no"), done("t", 2)].concat());
    assert_eq!(world.heard(b), sent("t", 0, FAILED));
    assert_eq!(world.say(b, &[done("t", 0), acquire("t")].concat()), sent("t", 3, CREATED));
    assert_eq!(world.tally(), [1, 0, 1, 3, 0, 0, 1]);
    assert_eq!(world.say(b, &[done("t", 3), acquire("t")].concat()), sent("t", 4, CREATED));
}

#[test]
fn calls_that_make_no_sense_are_refused_and_change_nothing() {
    let mut world = World::open([0, 1]);
    let before = world.tally();
    world.schedule(|scheduler| {
        let unknown = TaskError::UnknownTask("x".into());
        assert_eq!(scheduler.add_task(TaskConfig::new("t")), Err(TaskError::TaskExists("t".into())));
        assert_eq!(scheduler.add_block(block("x", 0), &[]), Err(unknown.clone()));
        assert_eq!(scheduler.close_task("x"), Err(unknown.clone()));
        assert_eq!(scheduler.abandon_task("x"), Err(unknown.clone()));
        assert_eq!(scheduler.counts("x"), Err(unknown.clone()));
        assert_eq!(scheduler.add_block(block("t", 0), &[]), Err(TaskError::BlockExists(id("t", 0))));
        let waiting = scheduler.add_block(block("t", 2), &[id("t", 0), id("t", 9)]);
        assert_eq!(waiting, Err(TaskError::UnknownBlock(id("t", 9))));
        assert_eq!(scheduler.add_block(block("t", 2), &[id("x", 0)]), Err(unknown));
        // Not even for itself.
        assert_eq!(
            scheduler.add_block(block("t", 2), &[id("t", 2)]),
            Err(TaskError::UnknownBlock(id("t", 2)))
        );
        scheduler.close_task("t").unwrap();
        assert_eq!(scheduler.add_block(block("t", 2), &[]), Err(TaskError::TaskClosed("t".into())));
    });
    assert_eq!(world.tally(), before);
    let (a, _) = world.call_for("t", 1);
    // The refused one is not waited for by what it named.
    world.say(a, &done("t", 0));
    assert_eq!(world.tally(), [0, 1, 0, 1, 0, 0, 0]);
}

#[test]
fn a_block_that_has_ended_may_come_again_and_is_another_one() {
    let mut world = World::open([0]);
    let (a, _) = world.call_for("t", 1);
    world.say(a, &[failed("t", 0, "no"), acquire("t"), done("t", 0)].concat());
    let mut again = block("t", 0);
    again.status = Status::Failed;
    world.schedule(|scheduler| scheduler.add_block(again, &[])).unwrap();
    // It has not failed yet.
    assert_eq!(world.say(a, &acquire("t")), sent("t", 0, CREATED));
    for _ in 0..2 {
        world.say(a, &[failed("t", 0, "no"), acquire("t")].concat());
    }
    world.say(a, &done("t", 0));
    assert_eq!(world.tally(), [0, 0, 0, 2, 0, 0, 3]);
}
