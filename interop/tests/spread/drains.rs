//! Their workers at our server, and our workers at theirs: each block ends once, as it should.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex};

use cuframes_dispatch::wire::{Block, BlockId};
use cuframes_dispatch::{BlockEvent, Cause, Context, Outcome, ServerEvent, Stop};
use cuframes_interop::{Process, chance, within};
use serde_json::json;

use crate::ours::{Deed, Ending, Served, Worked, Working, config, ended, outcomes, task, tiles};
use crate::theirs::{Theirs, counts, described, interpreter, worker};

/// Blocks in each test: 40 frames.
const BLOCKS: usize = 1000;

fn all(task_id: &str) -> BTreeMap<u64, Block> {
    let grid = tiles(40);
    let blocks: BTreeMap<_, _> =
        grid.blocks(task_id).map(|block| (block.block_id.spatial_id, block)).collect();
    assert_eq!(blocks.len(), BLOCKS);
    blocks
}

fn serve(ending: Ending) -> Served {
    Served::start(ending, |scheduler| task(scheduler, "a task: 100 % = all", &tiles(40)))
}

/// A worker of theirs that has connected.
async fn hire(python: &Path, served: &Served, number: u64, arguments: &[&str]) -> Process {
    let context = Context::new("127.0.0.1", served.port, "a task: 100 % = all", number);
    let mut process = worker(python, &context, arguments);
    assert_eq!(process.says("CONNECTED").await, "True");
    process
}

/// Lets them work to the end: the number and the deed of each block that they had, as they were told.
async fn dismiss(mut workers: Vec<Process>) -> Vec<(u64, String)> {
    for worker in &mut workers {
        worker.tell("work").await;
    }
    let blocks = all("a task: 100 % = all");
    let mut told = Vec::new();
    // Who is not listened to works no further.
    for worker in workers.into_iter().map(|worker| tokio::spawn(worker.end())).collect::<Vec<_>>() {
        let said = worker.await.unwrap();
        let (done, said) = said.split_last().unwrap();
        assert!(done.starts_with(&format!("DONE {} ", said.len())), "{done}");
        for line in said {
            told.push(block(&blocks, line.strip_prefix("BLOCK ").unwrap()));
        }
    }
    told
}

/// The number and the deed of a block. It must have arrived as it was sent.
fn block(blocks: &BTreeMap<u64, Block>, line: &str) -> (u64, String) {
    let (told, deed) = line.rsplit_once(' ').unwrap();
    let number =
        told.strip_prefix("a task: 100 % = all ").unwrap().split(' ').next().unwrap().parse().unwrap();
    assert_eq!(told, described(&blocks[&number]));
    (number, deed.into())
}

#[tokio::test]
async fn one_two_and_eight_workers_of_theirs_do_each_of_1000_blocks_once() {
    let Some(python) = interpreter() else { return };
    for (count, ending) in
        [(1, Ending::Left), (2, Ending::Left), (8, Ending::Left), (2, Ending::AtOnce), (8, Ending::AtOnce)]
    {
        let served = serve(ending);
        let mut workers = Vec::new();
        for number in 0..count {
            workers.push(hire(python, &served, number, &[]).await);
        }
        let told = dismiss(workers).await;
        let (events, server) = served.end().await;
        assert_eq!(told.len(), BLOCKS);
        assert_eq!(told.iter().map(|(number, _)| *number).collect::<BTreeSet<_>>().len(), BLOCKS);
        let (ends, retried) = outcomes(&events);
        assert_eq!((ends.len(), retried), (BLOCKS, 0));
        assert!(ends.values().all(|outcome| *outcome == Outcome::Success));
        assert_eq!(ended(&server, "a task: 100 % = all"), [1000, 0, 0, 0]);
        // Who said which number got what.
        let numbers: BTreeSet<_> = events
            .iter()
            .filter_map(|event| match event {
                ServerEvent::Sent { worker_id, .. } => Some(worker_id.unwrap()),
                _ => None,
            })
            .collect();
        assert!(numbers.iter().all(|number| *number < count) && !numbers.is_empty());
        let faults = events.iter().filter(|event| matches!(event, ServerEvent::Left { fault: Some(_), .. }));
        assert_eq!(faults.count(), 0);
    }
}

#[tokio::test]
async fn the_block_of_one_of_eight_of_theirs_that_is_killed_is_done_by_another() {
    let Some(python) = interpreter() else { return };
    let mut served = serve(Ending::Left);
    let mut victim = hire(python, &served, 0, &["--plan", "good,good,hold"]).await;
    victim.tell("work").await;
    for deed in ["good", "good"] {
        assert!(victim.says("BLOCK").await.ends_with(deed));
    }
    let (held, _) = block(&all("a task: 100 % = all"), &victim.says("BLOCK").await);
    let mut workers = Vec::new();
    for number in 1..8 {
        workers.push(hire(python, &served, number, &[]).await);
    }
    let told = tokio::spawn(dismiss(workers));
    let mut events = Vec::new();
    while outcomes(&events).0.len() < 500 {
        events.push(served.event().await);
    }
    victim.kill().await;

    let told = told.await.unwrap();
    let (rest, server) = served.end().await;
    events.extend(rest);
    assert_eq!(told.len(), BLOCKS - 2);
    assert!(told.iter().any(|(number, _)| *number == held));
    assert_eq!(ended(&server, "a task: 100 % = all"), [1000, 0, 0, 1]);
    assert_eq!(outcomes(&events).0.len(), BLOCKS);
    let block_id = BlockId::new("a task: 100 % = all", held);
    let lost = ServerEvent::Block(BlockEvent::Retried { block_id, cause: Cause::Lost });
    assert_eq!(events.iter().filter(|event| **event == lost).count(), 1);
}

#[tokio::test]
async fn blocks_that_fail_with_theirs_are_tried_three_times() {
    let Some(python) = interpreter() else { return };
    let bad = |number: &u64| number.is_multiple_of(3);
    let expected = all("a task: 100 % = all").keys().filter(|number| bad(number)).count();
    for count in [1, 2] {
        let served = serve(Ending::Left);
        let mut workers = Vec::new();
        for number in 0..count {
            let plan = "failed,good,good,raise,good,good";
            workers.push(hire(python, &served, number, &["--by-id", "--plan", plan]).await);
        }
        let told = dismiss(workers).await;
        let (events, server) = served.end().await;
        assert_eq!(told.len(), BLOCKS + 2 * expected);
        let (ends, retried) = outcomes(&events);
        assert_eq!((ends.len(), retried), (BLOCKS, 2 * expected));
        for ((_, number), outcome) in &ends {
            assert_eq!(*outcome, if bad(number) { Outcome::Failed } else { Outcome::Success });
        }
        let [failed, all, retried] = [expected, BLOCKS, 2 * expected].map(|n| u64::try_from(n).unwrap());
        assert_eq!(ended(&server, "a task: 100 % = all"), [all - failed, failed, 0, retried]);
        // What it said of them comes with them.
        let reasons = events.iter().filter_map(|event| match event {
            ServerEvent::Block(BlockEvent::Ended { cause: Some(Cause::Reported(reason)), .. }) => {
                Some(reason)
            }
            _ => None,
        });
        let (raised, plain): (Vec<_>, Vec<_>) =
            reasons.partition(|reason| reason.contains("RuntimeError: raised"));
        assert_eq!(raised.len() + plain.len(), expected);
        assert!(raised.len().min(plain.len()) > 100 && plain.iter().all(|reason| reason.is_empty()));
    }
}

#[tokio::test]
async fn every_failure_of_one_of_theirs_that_fails_each_third_time_counts_once() {
    let Some(python) = interpreter() else { return };
    let served = serve(Ending::Left);
    let bad = hire(python, &served, 0, &["--plan", "good,good,raise,good,good,failed"]).await;
    let good = hire(python, &served, 1, &[]).await;
    let told = dismiss(vec![bad, good]).await;
    let (events, server) = served.end().await;
    let failures = told.iter().filter(|(_, deed)| deed != "good").count();
    let [succeeded, failed, orphaned, retried] = ended(&server, "a task: 100 % = all");
    assert_eq!((succeeded + failed, orphaned), (1000, 0));
    assert_eq!(retried + failed, u64::try_from(failures).unwrap());
    assert!(failures > 0);
    assert_eq!(outcomes(&events).0.len(), BLOCKS);
}

/// Our workers at their server, until it has ended: the counts, and what the workers did.
async fn drain(
    python: &Path,
    workers: usize,
    depth: usize,
    deed: impl Fn(usize, usize, &Block) -> Deed + Clone + Send + 'static,
) -> ([u64; 3], Vec<Worked>) {
    let tasks = json!([{
        "task_id": "t", "total_roi": [[-7, -3, -3], [40, 326, 326]], "read_roi": [[0, -3, -3], [1, 70, 70]],
        "write_roi": [[0, 0, 0], [1, 64, 64]], "fit": "valid", "read_write_conflict": false,
        "max_workers": workers, "max_worker_restarts": 1000, "timeout": 1e18,
    }]);
    let theirs = Theirs::start(python, &tasks).await;
    let done = Arc::new(Mutex::new(Vec::new()));
    let mut number = 0;
    let all_done = done.clone();
    let states = theirs.staffed(move |place| {
        let (done, deed, which) = (all_done.clone(), deed.clone(), number);
        number += 1;
        async move {
            let context = &place.context;
            assert_eq!((context.hostname(), context.task_id()), (Ok("127.0.0.1"), Ok("t")));
            let config = config(place.port(), "t", context.worker_id().unwrap(), depth);
            let worked = Working::start(config, move |n, block| deed(which, n, block)).end().await;
            done.lock().unwrap().push(worked);
        }
    });
    let states = states.await;
    let workers = std::mem::take(&mut *within("the workers", async { done.lock() }).await.unwrap());
    (counts(&states, "t"), workers)
}

/// The blocks that were worked on, all of which must be as they are cut here, and marked as being worked on.
fn worked(workers: &[Worked]) -> Vec<u64> {
    let blocks = all("t");
    let had = workers.iter().flat_map(|worker| &worker.blocks);
    had.map(|block| {
        let number = block.block_id.spatial_id;
        assert_eq!(described(block), described(&blocks[&number]));
        number
    })
    .collect()
}

/// Whether it heard that all is done, or, if it was late, that the server is gone.
fn is_good(worker: &Worked) -> bool {
    matches!(worker.stop, Some(Stop::Shutdown | Stop::Closed { lost: 0 } | Stop::Unreachable))
}

#[tokio::test]
async fn one_two_and_eight_workers_of_ours_do_each_block_of_their_server_once() {
    let Some(python) = interpreter() else { return };
    for (workers, depth) in [(1, 1), (1, 4), (2, 4), (8, 1)] {
        let (counts, done) = drain(python, workers, depth, |_, _, _| Deed::Done).await;
        assert_eq!(counts, [1000, 0, 0], "{workers} workers, depth {depth}");
        assert!(done.iter().all(is_good), "{:?}", done.iter().map(|worker| &worker.stop).collect::<Vec<_>>());
        let numbers = worked(&done);
        assert_eq!((numbers.len(), numbers.iter().collect::<BTreeSet<_>>().len()), (BLOCKS, BLOCKS));
    }
}

#[tokio::test]
async fn blocks_that_fail_with_ours_are_tried_by_their_server_as_by_ours() {
    let Some(python) = interpreter() else { return };
    let expected = all("t").keys().filter(|number| number.is_multiple_of(3)).count();
    for (workers, depth) in [(1, 1), (1, 4), (2, 4)] {
        let deed = |_, _, block: &Block| match block.block_id.spatial_id % 3 {
            0 => Deed::Failed("as expected"),
            _ => Deed::Done,
        };
        let (counts, done) = drain(python, workers, depth, deed).await;
        let failed = u64::try_from(expected).unwrap();
        assert_eq!(counts, [1000 - failed, failed, 0], "{workers} workers, depth {depth}");
        assert!(done.iter().all(is_good));
        // Attempts of theirs: the first, and two more.
        assert_eq!(worked(&done).len(), BLOCKS + 2 * expected);
    }
}

#[tokio::test]
async fn what_one_of_ours_had_that_vanished_from_their_server_is_done_by_others() {
    let Some(python) = interpreter() else { return };
    let mut rng = chance();
    for depth in [1, 4] {
        let after = rng.usize(..100);
        let deed =
            move |which, n, _: &Block| if which == 0 && n == after { Deed::Vanish } else { Deed::Done };
        let (counts, done) = drain(python, 2, depth, deed).await;
        assert_eq!(counts, [1000, 0, 0], "depth {depth}, after {after}");
        let numbers = worked(&done);
        assert_eq!(numbers.iter().collect::<BTreeSet<_>>().len(), BLOCKS);
        assert!(done.iter().any(|worker| worker.stop.is_none()));
    }
}
