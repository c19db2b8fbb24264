//! A task that waits for another one, with workers of theirs for both.

use std::collections::BTreeSet;
use std::path::Path;

use cuframes_dispatch::wire::BlockId;
use cuframes_dispatch::{BlockEvent, Context, Outcome, Scheduler, ServerEvent, TaskConfig, TaskError};
use cuframes_interop::Process;

use crate::ours::{Ending, Served, ended, task, tiles};
use crate::theirs::{interpreter, worker};

/// `first`, and `then`, whose blocks each wait for those of `first` that write what they read.
fn two(scheduler: &mut Scheduler) -> Result<(), TaskError> {
    let grid = tiles(12);
    task(scheduler, "first", &grid)?;
    scheduler.add_task(TaskConfig::new("then"))?;
    for block in grid.blocks("then") {
        let needed = needed(&block.block_id);
        scheduler.add_block(block, &needed)?;
    }
    scheduler.close_task("then")
}

fn needed(id: &BlockId) -> Vec<BlockId> {
    let grid = tiles(12);
    let block = grid.blocks("then").find(|block| block.block_id == *id).unwrap();
    let needed = grid.blocks("first").filter(|other| other.write_roi.overlaps(&block.read_roi));
    needed.map(|other| other.block_id).collect()
}

async fn hire(python: &Path, served: &Served, task_id: &str, number: u64, arguments: &[&str]) -> Process {
    let context = Context::new("127.0.0.1", served.port, task_id, number);
    let mut process = worker(python, &context, &[&["--quiet"], arguments].concat());
    assert_eq!(process.says("CONNECTED").await, "True");
    process
}

/// How many blocks each did.
async fn dismiss(mut workers: Vec<Process>) -> Vec<usize> {
    for worker in &mut workers {
        worker.tell("work").await;
    }
    let mut done = Vec::new();
    for worker in workers.into_iter().map(|worker| tokio::spawn(worker.end())).collect::<Vec<_>>() {
        let said = worker.await.unwrap();
        let count = said[0].strip_prefix("DONE ").unwrap().split(' ').next().unwrap();
        done.push(count.parse().unwrap());
    }
    done
}

#[tokio::test]
async fn blocks_that_wait_for_others_go_to_workers_of_theirs_when_those_have_succeeded() {
    let Some(python) = interpreter() else { return };
    let served = Served::start(Ending::Left, two);
    let mut workers = Vec::new();
    // Those who can do nothing yet are there first.
    for (number, task_id) in ["then", "then", "first", "first"].into_iter().enumerate() {
        workers.push(hire(python, &served, task_id, u64::try_from(number).unwrap(), &[]).await);
    }
    assert_eq!(dismiss(workers).await.iter().sum::<usize>(), 600);
    let (events, server) = served.end().await;
    assert_eq!(ended(&server, "first"), [300, 0, 0, 0]);
    assert_eq!(ended(&server, "then"), [300, 0, 0, 0]);
    let mut done = BTreeSet::new();
    let mut waited = 0;
    for event in events {
        match event {
            ServerEvent::Block(BlockEvent::Ended { block_id, outcome: Outcome::Success, .. }) => {
                done.insert(block_id);
            }
            ServerEvent::Sent { block_id, .. } if block_id.task_id == "then" => {
                let needed = needed(&block_id);
                // With its margin it reaches into the tiles around it.
                assert!((4..=9).contains(&needed.len()), "{needed:?}");
                assert!(needed.iter().all(|needed| done.contains(needed)), "{block_id:?}");
                waited += 1;
            }
            _ => {}
        }
    }
    assert_eq!(waited, 300);
}

#[tokio::test]
async fn blocks_that_wait_for_one_that_fails_with_theirs_are_orphaned_and_their_workers_leave() {
    let Some(python) = interpreter() else { return };
    let served = Served::start(Ending::Left, two);
    let workers = vec![
        hire(python, &served, "then", 0, &[]).await,
        hire(python, &served, "first", 1, &["--by-id", "--plan", "raise,good,good,good,good,good,good"])
            .await,
    ];
    let grid = tiles(12);
    let bad: Vec<_> =
        grid.blocks("first").filter(|block| block.block_id.spatial_id.is_multiple_of(7)).collect();
    let orphan = |id: &BlockId| needed(id).iter().any(|needed| needed.spatial_id.is_multiple_of(7));
    let orphans = grid.blocks("then").filter(|block| orphan(&block.block_id)).count();
    let done = dismiss(workers).await;
    assert_eq!(done, [300 - orphans, 300 + 2 * bad.len()]);
    let (_, server) = served.end().await;
    let [bad, orphans] = [bad.len(), orphans].map(|count| u64::try_from(count).unwrap());
    assert_eq!(ended(&server, "first"), [300 - bad, bad, 0, 2 * bad]);
    assert_eq!(ended(&server, "then"), [300 - orphans, 0, orphans, 0]);
    assert!(bad > 0 && orphans > bad);
}
