//! A stream of blocks that goes on for days takes no more memory than what has not ended.

use std::time::Duration;

use allocation_counter::measure;
use cuframes_core::Instant;
use cuframes_core::streams::{ConnId, Machine as _};
use cuframes_dispatch::wire::{Block, BlockId, Version};
use cuframes_dispatch::{Acquired, Cause, Scheduler, Server, TaskConfig};

use crate::bytes::{acquire, done};

const BLOCKS: u64 = 50_000;

fn scheduler() -> Scheduler {
    let mut scheduler = Scheduler::default();
    let mut config = TaskConfig::new("t");
    config.max_retries = 0;
    scheduler.add_task(config).unwrap();
    scheduler
}

fn block(number: u64) -> Block {
    Block { block_id: BlockId::new("t", number), ..Block::default() }
}

fn add(scheduler: &mut Scheduler, number: u64, others: &[u64]) {
    let others: Vec<BlockId> = others.iter().map(|other| BlockId::new("t", *other)).collect();
    scheduler.add_block(block(number), &others).unwrap();
}

/// Gets one, and its number.
fn take(scheduler: &mut Scheduler, now: Instant, holder: ConnId) -> BlockId {
    match scheduler.acquire(now, holder, "t") {
        Ok(Acquired::Block(block, _)) => block.block_id,
        other => panic!("{other:?}"),
    }
}

fn bounded(most: u64, mut step: impl FnMut(u64)) {
    let info = measure(|| (1..=BLOCKS).for_each(&mut step));
    assert!(info.bytes_max < most, "{} bytes", info.bytes_max);
}

#[test]
fn blocks_that_are_done_are_forgotten_with_what_they_waited_for() {
    let mut scheduler = scheduler();
    let holder = ConnId::new(0);
    add(&mut scheduler, 0, &[]);
    bounded(8 << 10, |number| {
        add(&mut scheduler, number, &[number - 1]);
        let id = take(&mut scheduler, Instant::ZERO, holder);
        assert_eq!(id.spatial_id, number - 1);
        scheduler.release(holder, &id, None);
        while scheduler.poll_event().is_some() {}
    });
    assert_eq!(scheduler.counts("t").unwrap().succeeded, BLOCKS);
}

#[test]
fn blocks_that_are_given_up_are_forgotten_by_what_they_waited_for() {
    let mut scheduler = scheduler();
    // That one is never done.
    add(&mut scheduler, 0, &[]);
    bounded(8 << 10, |number| {
        add(&mut scheduler, number, &[0]);
        assert!(scheduler.abandon_block(&BlockId::new("t", number)));
        while scheduler.poll_event().is_some() {}
    });
    assert_eq!(scheduler.counts("t").unwrap().orphaned, BLOCKS);
}

#[test]
fn blocks_of_those_who_are_gone_or_say_that_they_failed_are_forgotten() {
    let mut scheduler = scheduler();
    bounded(8 << 10, |number| {
        add(&mut scheduler, number, &[]);
        let holder = ConnId::new(number);
        let id = take(&mut scheduler, Instant::ZERO, holder);
        if number % 2 == 0 {
            scheduler.release(holder, &id, Some(Cause::Lost));
        }
        scheduler.holder_gone(holder);
        while scheduler.poll_event().is_some() {}
    });
    assert_eq!((scheduler.counts("t").unwrap().failed, scheduler.poll_timeout()), (BLOCKS, None));
}

#[test]
fn what_a_worker_never_answers_about_is_forgotten_in_time() {
    let mut scheduler = scheduler();
    let mut now = Instant::ZERO;
    bounded(8 << 10, |number| {
        add(&mut scheduler, number, &[]);
        take(&mut scheduler, now, ConnId::new(0));
        now = now + Duration::from_secs(600);
        scheduler.handle_timeout(now);
        while scheduler.poll_event().is_some() {}
    });
    assert_eq!(scheduler.counts("t").unwrap().failed, BLOCKS);
}

#[test]
fn workers_that_come_and_go_are_forgotten() {
    let mut server = Server::new(Version::W2);
    let now = Instant::ZERO;
    server.schedule(now, |scheduler| scheduler.add_task(TaskConfig::new("t"))).unwrap();
    let drain =
        |server: &mut Server| while server.poll_action().is_some() || server.poll_event().is_some() {};
    bounded(64 << 10, |number| {
        let conns = [(); 2].map(|()| server.handle_accepted(now, 0).unwrap());
        for conn in conns {
            server.handle_bytes(now, conn, &acquire("t").repeat(2));
        }
        server.schedule(now, |scheduler| scheduler.add_block(crate::world::block("t", 1), &[])).unwrap();
        server.handle_bytes(now, conns[0], &done("t", 1));
        if number % 2 == 0 {
            server.handle_bytes(now, conns[0], b"noise");
        }
        conns.into_iter().for_each(|conn| server.handle_eof(now, conn));
        drain(&mut server);
    });
    assert_eq!(server.workers(), 0);
}
