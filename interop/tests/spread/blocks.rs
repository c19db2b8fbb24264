//! How a box is cut into blocks, and what they are called: there and here.

use std::collections::BTreeMap;

use cuframes_dispatch::wire::Roi;
use cuframes_dispatch::{Fit, Grid};
use cuframes_interop::chance;
use serde_json::{Value, json};

use crate::theirs::{interpreter, script};

type Boxes = BTreeMap<u64, (Roi, Roi)>;

fn theirs(answer: &str) -> Boxes {
    let roi = |value: &Value| {
        let [offset, shape] = [0, 1].map(|n| serde_json::from_value::<Vec<i64>>(value[n].clone()).unwrap());
        Roi { offset, shape }
    };
    let blocks: Vec<Value> = serde_json::from_str(answer).unwrap();
    let count = blocks.len();
    let boxes = blocks.iter().map(|block| (block[0].as_u64().unwrap(), (roi(&block[1]), roi(&block[2]))));
    let boxes: Boxes = boxes.collect();
    assert_eq!(boxes.len(), count, "each has a number of its own");
    boxes
}

#[tokio::test]
async fn boxes_are_cut_and_numbered_as_theirs_are() {
    let Some(python) = interpreter() else { return };
    let mut rng = chance();
    let mut daisy = script(python, "daisy_blocks.py", &[], &[]);
    let mut compared = 0;
    for _ in 0..600 {
        let axes = rng.usize(1..=4);
        let (mut total, mut read, mut write) = (Roi::default(), Roi::default(), Roi::default());
        for _ in 0..axes {
            let (before, after, len) = (rng.i64(0..4), rng.i64(0..4), rng.i64(1..8));
            let at = rng.i64(-9..9);
            write.offset.push(at);
            write.shape.push(len);
            read.offset.push(at - before);
            read.shape.push(before + len + after);
            total.offset.push(rng.i64(-20..20));
            // With less than what is only read theirs aborts.
            total.shape.push(before + after + rng.i64(1..30_i64));
        }
        let (name, fit) = *rng
            .choice(&[("valid", Fit::Valid), ("overhang", Fit::Overhang), ("shrink", Fit::Shrink)])
            .unwrap();
        let question = json!([
            name,
            [total.offset, total.shape],
            [read.offset, read.shape],
            [write.offset, write.shape]
        ]);
        daisy.tell(&question.to_string()).await;
        let answer = daisy.says("").await;
        let blocks = answer.strip_prefix("BLOCKS ").unwrap_or_else(|| panic!("{question}: {answer}"));
        let ours = Grid::new(total, read, write, fit).unwrap();
        let count = ours.len();
        let ours: Boxes = ours
            .blocks("t")
            .map(|block| (block.block_id.spatial_id, (block.read_roi, block.write_roi)))
            .collect();
        assert_eq!(u64::try_from(ours.len()).unwrap(), count, "{question}");
        assert_eq!(theirs(blocks), ours, "{question}");
        compared += usize::from(count > 1);
    }
    assert!(compared > 200, "{compared}");
    assert!(daisy.end().await.is_empty());
}
