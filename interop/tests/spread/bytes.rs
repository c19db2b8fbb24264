//! Their messages and ours, byte for byte.

use cuframes_dispatch::Context;
use cuframes_dispatch::wire::{Block, BlockId, Message, Roi, Stats, Status};
use cuframes_interop::{chance, within};
use fastrand::Rng;
use serde_json::json;
use tokio::net::TcpListener;

use crate::raw::{Raw, encoded};
use crate::theirs::{Theirs, described, interpreter, worker};

/// Around the borders of the forms that numbers have; what is added to them must not overflow.
fn int(rng: &mut Rng) -> i64 {
    const EDGES: [i64; 16] = [
        0,
        124,
        125,
        126,
        250,
        251,
        32_767,
        32_768,
        65_535,
        65_536,
        2_147_483_647,
        2_147_483_648,
        4_294_967_295,
        4_294_967_296,
        1 << 61,
        (1 << 62) - 1,
    ];
    let value = if rng.bool() { *rng.choice(&EDGES).unwrap() } else { rng.i64(0..1 << 62) };
    if rng.bool() { value } else { -value }
}

fn block(rng: &mut Rng, task_id: &str, spatial_id: u64) -> Block {
    let axes = rng.usize(1..=6);
    let mut roi = || Roi {
        offset: (0..axes).map(|_| int(rng)).collect(),
        shape: (0..axes).map(|_| int(rng).abs()).collect(),
    };
    let (read_roi, write_roi) = (roi(), roi());
    let status = *rng.choice(&[Status::Created, Status::Failed]).unwrap();
    Block { read_roi, write_roi, block_id: BlockId::new(task_id, spatial_id), status, stats: None }
}

#[tokio::test]
async fn what_a_worker_of_theirs_sends_has_our_bytes() {
    let Some(python) = interpreter() else { return };
    let mut rng = chance();
    // What each makes of its blocks, and how it says so.
    let plan = ["good", "failed", "raise", "say:boom", "say:", "say:überlauf \u{1f600}"];
    for (task_id, worker_id, is_measured) in [
        ("t", 3, false),
        ("a task: 100 % = all", 250, true),
        ("überlauf \u{1f600}", 251, false),
        (&"long".repeat(100), u64::from(u32::MAX) + 1, true),
        ("t", u64::MAX, false),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let context = Context::new("127.0.0.1", port, task_id, worker_id).to_string();
        // One that is below zero is none.
        let context = context.replace(&u64::MAX.to_string(), "-1");
        let tracking = format!("resource_tracking={}", u8::from(is_measured));
        let context = Context::parse(&context.replace("resource_tracking=0", &tracking)).unwrap();
        let mut process = worker(python, &context, &["--plan", &plan.join(",")]);
        let mut raw = Raw(within("the worker", listener.accept()).await.unwrap().0);
        assert_eq!(process.says("CONNECTED").await, "True");
        process.tell("work").await;
        let worker_id = Some(worker_id).filter(|id| *id < u64::MAX);
        let acquire = encoded(&Message::AcquireBlock { task_id: task_id.into(), worker_id });
        for (n, deed) in plan.iter().cycle().take(24).enumerate() {
            assert_eq!(raw.frame().await.unwrap(), acquire);
            let number = *rng.choice(&[7, 250, 251, 65_535, 65_536, 4_294_967_296, u64::MAX - 1]).unwrap();
            let sent = block(&mut rng, task_id, number);
            let timeout_secs = *rng.choice(&[None, Some(600.0), Some(1e6)]).unwrap();
            raw.say(&Message::SendBlock { block: sent.clone(), timeout_secs }).await;
            assert_eq!(process.says("BLOCK").await, format!("{} {deed}", described(&sent)), "block {n}");

            let answer = raw.message().await.unwrap();
            let (Message::ReleaseBlock { block } | Message::BlockFailed { block, .. }) = &answer else {
                panic!("it said {answer:?}");
            };
            // What was measured can't be known, but comes back to the same bytes.
            let stats = block.stats;
            let expected = |status| Block { status, stats, ..sent.clone() };
            let expected = match deed.strip_prefix("say:") {
                None if *deed == "good" => Message::ReleaseBlock { block: expected(Status::Success) },
                None if *deed == "failed" => Message::ReleaseBlock { block: expected(Status::Failed) },
                None => {
                    let Message::BlockFailed { error, .. } = &answer else { panic!("it said {answer:?}") };
                    assert!(
                        error.starts_with("Traceback") && error.ends_with("RuntimeError: raised\n"),
                        "{error}"
                    );
                    Message::BlockFailed { block: expected(Status::Failed), error: error.clone() }
                }
                Some(error) => {
                    // Then its own bookkeeping says once more what it thinks of the block.
                    let again = raw.message().await.unwrap();
                    assert!(matches!(again, Message::ReleaseBlock { .. }), "{again:?}");
                    Message::BlockFailed { block: expected(Status::Failed), error: error.into() }
                }
            };
            assert_eq!(encoded(&answer), encoded(&expected), "{deed}: {answer:?}");
            assert!(is_measured || stats.is_none(), "{stats:?}");
            if is_measured && *deed == "good" {
                let Some(Stats { wall_seconds, gpu_util_pct, .. }) = stats else {
                    panic!("it was to measure")
                };
                assert!(wall_seconds > 0.0 && gpu_util_pct.is_nan());
            }
        }
        assert_eq!(raw.frame().await.unwrap(), acquire);
        raw.say(&Message::RequestShutdown).await;
        // It goes without a word.
        assert_eq!(raw.frame().await, None);
        assert!(process.end().await.concat().starts_with("DONE 24 "));
    }
}

#[tokio::test]
async fn what_their_server_sends_has_our_bytes() {
    let Some(python) = interpreter() else { return };
    let tasks = [
        ("t", vec![[0_i64, 3]], json!(600.0)),
        ("a task: 100 % = all", vec![[-70_000, 300], [5_000_000_000, 1]], json!(null)),
        ("überlauf \u{1f600}", vec![[-1, 1], [125, 1], [250, 70_000], [1, 2]], json!(1e18)),
    ];
    for (task_id, axes, timeout) in tasks {
        let one = json!([axes.iter().map(|axis| axis[0]).collect::<Vec<_>>(), vec![1; axes.len()]]);
        let total = json!([
            axes.iter().map(|axis| axis[0]).collect::<Vec<_>>(),
            axes.iter().map(|axis| axis[1].min(3)).collect::<Vec<_>>()
        ]);
        let task = json!({
            "task_id": task_id, "total_roi": total, "read_roi": one, "write_roi": one,
            "read_write_conflict": false, "max_retries": 1, "timeout": timeout,
        });
        let blocks: i64 = axes.iter().map(|axis| axis[1].min(3)).product();
        let theirs = Theirs::start(python, &json!([task])).await;
        let place = theirs.place().await;
        assert_eq!(place.context.task_id(), Ok(task_id));
        let mut raw = Raw::connect(place.port()).await;
        let acquire = |worker_id| Message::AcquireBlock { task_id: task_id.into(), worker_id };
        let worker_id = place.context.worker_id().unwrap();
        // The first one fails, and comes again at last.
        for n in 0..=blocks {
            raw.say(&acquire(Some(worker_id))).await;
            let sent = raw.message().await.unwrap();
            let Message::SendBlock { mut block, timeout_secs } = sent else { panic!("it said {sent:?}") };
            assert_eq!(block.block_id.task_id, task_id);
            assert_eq!(timeout_secs, timeout.as_f64().or(Some(600.0)));
            assert_eq!(block.status, if n == blocks { Status::Failed } else { Status::Created });
            block.status = if n == 0 { Status::Failed } else { Status::Success };
            if n == blocks {
                // As long as it has one, the run has not ended.
                raw.say(&acquire(None)).await;
                assert_eq!(raw.frame().await.unwrap(), encoded(&Message::RequestShutdown));
            }
            raw.say(&Message::ReleaseBlock { block }).await;
        }
        drop(place);
        // It ends though the worker stays.
        let (said, is_good) = theirs.ends().await;
        assert!(is_good && said.concat().contains(&format!("\"completed_count\": {blocks}")), "{said:?}");
    }
}
