//! How fast blocks that take no time are handed out, there and here. It prints, and expects nothing.

use std::path::Path;

use cuframes_dispatch::wire::Roi;
use cuframes_dispatch::{Context, Fit, Grid};
use serde_json::json;

use crate::ours::{Deed, Ending, Served, Working, config, task};
use crate::theirs::{Theirs, interpreter, worker};

const BLOCKS: i64 = 4000;

#[derive(Clone, Copy)]
enum Client {
    Theirs,
    Ours { depth: usize },
}

/// Blocks in a second.
async fn drains(python: &Path, client: Client, context: &Context) -> f64 {
    let (count, seconds) = match client {
        Client::Theirs => {
            let mut process = worker(python, context, &["--quiet"]);
            process.says("CONNECTED").await;
            process.tell("work").await;
            let done = process.says("DONE").await;
            process.end().await;
            let (count, seconds) = done.split_once(' ').unwrap();
            (count.parse().unwrap(), seconds.parse().unwrap())
        }
        Client::Ours { depth } => {
            let config = config(context.port().unwrap(), "t", context.worker_id().unwrap(), depth);
            let worked = Working::start(config, |_, _| Deed::Done).end().await;
            (i64::try_from(worked.blocks.len()).unwrap(), worked.seconds)
        }
    };
    assert_eq!(count, BLOCKS);
    f64::from(i32::try_from(count).unwrap()) / seconds
}

#[tokio::test]
async fn our_server_and_theirs_hand_out_blocks_so_fast() {
    let Some(python) = interpreter() else { return };
    let one = Roi::new(&[0], &[5]);
    let grid = Grid::new(Roi::new(&[0], &[5 * BLOCKS]), one.clone(), one, Fit::Valid).unwrap();
    let tasks = json!([{
        "task_id": "t", "total_roi": [[0], [5 * BLOCKS]], "read_roi": [[0], [5]], "write_roi": [[0], [5]],
        "read_write_conflict": false,
    }]);
    for (name, client) in [
        ("their worker", Client::Theirs),
        ("our worker", Client::Ours { depth: 1 }),
        ("our worker, 4 blocks at a time", Client::Ours { depth: 4 }),
    ] {
        let served = Served::start(Ending::Left, |scheduler| task(scheduler, "t", &grid));
        let ours = drains(python, client, &Context::new("127.0.0.1", served.port, "t", 0)).await;
        served.end().await;
        let server = Theirs::start(python, &tasks).await;
        let place = server.place().await;
        let theirs = drains(python, client, &place.context).await;
        drop(place);
        server.staffed(|_| async {}).await;
        eprintln!(
            "{name}: {ours:.0} blocks a second from our server, {theirs:.0} from theirs: {:.2} times",
            ours / theirs
        );
    }
}
