//! What a worker must not do, at our server and at theirs.

use std::path::Path;

use cuframes_dispatch::wire::{Block, BlockId, Message, Status};
use cuframes_dispatch::{Fit, Grid, ServerEvent, Stop, wire::Roi};
use serde_json::json;

use crate::ours::{Deed, Ending, Served, Working, config, ended, task};
use crate::raw::{Raw, encoded};
use crate::theirs::{Place, Theirs, counts, interpreter};

/// Something that a worker does.
struct Case {
    what: &'static str,
    /// The bytes that it sends, with a block of its own, and one of somebody else.
    bytes: fn(&Block, &Block) -> Vec<u8>,
    ours: End,
    theirs: End,
}

/// What comes of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    /// Its connection is closed; for ours, why.
    Closed(&'static str),
    /// Nothing: it can go on.
    Ignored,
    /// One or the other.
    Chance,
    /// The whole run has ended badly, or, where there is memory without end, its connection has.
    Crash,
}

use End::{Chance, Closed, Crash, Ignored};

fn released(block: &Block, status: Status) -> Vec<u8> {
    encoded(&Message::ReleaseBlock { block: Block { status, ..block.clone() } })
}

fn cases() -> Vec<Case> {
    let case = |what, ours, theirs, bytes| Case { what, bytes, ours, theirs };
    vec![
        case("a frame too long", Closed("a frame of 67108865 bytes"), Closed(""), |_, _| {
            [&[4, 0, 0, 1, 2][..], &[0; 100]].concat()
        }),
        case("a frame of no bytes", Closed("a frame of 0 bytes"), Closed(""), |_, _| vec![0; 4]),
        case("another version", Closed("it speaks version 1"), Closed(""), |_, _| {
            vec![0, 0, 0, 6, 1, 0, 1, b't', 1, 0]
        }),
        case(
            "the version before, which has no byte for it",
            Closed("it speaks version 0"),
            Closed(""),
            |_, _| vec![0, 0, 0, 3, 0, 1, b't'],
        ),
        case("a message that there is not", Closed("a message can't be read"), Closed(""), |_, _| {
            vec![0, 0, 0, 2, 2, 6]
        }),
        case("a message that is cut off", Closed("a message can't be read"), Closed(""), |_, _| {
            vec![0, 0, 0, 3, 2, 0, 200]
        }),
        case("text that is no UTF-8", Closed("a message can't be read"), Closed(""), |_, _| {
            vec![0, 0, 0, 5, 2, 0, 1, 0xff, 0]
        }),
        case("neither none nor some", Closed("a message can't be read"), Closed(""), |_, _| {
            vec![0, 0, 0, 5, 2, 0, 1, b't', 2]
        }),
        case("a number of another type", Closed("a message can't be read"), Closed(""), |_, _| {
            [&[0, 0, 0, 20, 2, 0, 1, b't', 1, 0xfe][..], &[0; 14]].concat()
        }),
        case("bytes after the message", Ignored, Ignored, |_, _| vec![0, 0, 0, 7, 2, 0, 1, b't', 0, 9, 9]),
        case("a number that is longer than it need be", Ignored, Ignored, |_, _| {
            vec![0, 0, 0, 8, 2, 0, 0xfb, 1, 0, b't', 1, 0]
        }),
        case("what only a server says", Closed("it sent what only a server sends"), Ignored, |_, _| {
            encoded(&Message::RequestShutdown)
        }),
        case("a block that is released twice", Closed("which it does not have"), Ignored, |block, _| {
            [released(block, Status::Success), released(block, Status::Success)].concat()
        }),
        case("a block of somebody else", Closed("which it does not have"), Ignored, |_, other| {
            released(other, Status::Success)
        }),
        case(
            "a block of somebody else that failed",
            Closed("which it does not have"),
            Ignored,
            |_, other| encoded(&Message::BlockFailed { block: other.clone(), error: "boom".into() }),
        ),
        case("a block that there is not", Closed("which it does not have"), Ignored, |block, _| {
            let block_id = BlockId::new("t", 1 << 40);
            released(&Block { block_id, ..block.clone() }, Status::Success)
        }),
        // Theirs sends a block even to who has said farewell, sometimes, and takes it back later.
        case("a word of farewell", Closed(""), Chance, |_, _| encoded(&Message::Disconnect)),
        case("a task that there is not", Closed("task \"u\", which there is not"), Crash, |_, _| {
            encoded(&Message::AcquireBlock { task_id: "u".into(), worker_id: None })
        }),
        case("a block that nobody has worked on", Closed("neither done nor failed"), Crash, |block, _| {
            released(block, Status::Created)
        }),
        case("a block that is being worked on", Closed("neither done nor failed"), Crash, |block, _| {
            released(block, Status::Processing)
        }),
        case("a length of 2^40 in 11 bytes", Closed("a message can't be read"), Crash, |_, _| {
            vec![0, 0, 0, 11, 2, 2, 0xfd, 0, 0, 0, 0, 0, 1, 0, 0]
        }),
    ]
}

/// Does it on a connection of its own, while another one has a block. What comes of it, if the server lives.
async fn act(case: &Case, port: u16) -> Option<End> {
    let mut good = Raw::connect(port).await;
    let other = good.acquire("t").await;
    let mut bad = Raw::connect(port).await;
    let block = bad.acquire("t").await;
    bad.send(&(case.bytes)(&block, &other)).await;
    bad.say(&Message::AcquireBlock { task_id: "t".into(), worker_id: None }).await;
    let end = if bad.message().await.is_some() { Ignored } else { Closed("") };
    // The other one knows nothing of it.
    good.send(&released(&other, Status::Success)).await;
    good.say(&Message::AcquireBlock { task_id: "t".into(), worker_id: None }).await;
    good.message().await.map(|_| end)
}

#[tokio::test]
async fn what_costs_a_worker_its_connection_at_ours_costs_nobody_else_anything() {
    for case in cases() {
        let boxes = [Roi::new(&[0], &[500]), Roi::new(&[0], &[5]), Roi::new(&[0], &[5])];
        let [total, read, write] = boxes;
        let grid = Grid::new(total, read, write, Fit::Valid).unwrap();
        let served = Served::start(Ending::Left, |scheduler| task(scheduler, "t", &grid));
        // Without somebody else the server would be alone when those have left.
        let end = act(&case, served.port).await;
        assert_eq!(end, Some(if case.ours == Ignored { Ignored } else { Closed("") }), "{}", case.what);
        let worked = Working::start(config(served.port, "t", 0, 4), |_, _| Deed::Done).end().await;
        assert_eq!(worked.stop, Some(Stop::Shutdown));
        let (events, server) = served.end().await;
        let [succeeded, failed, orphaned, _] = ended(&server, "t");
        assert_eq!([succeeded, failed, orphaned], [100, 0, 0], "{}", case.what);
        let faults: Vec<_> = events
            .into_iter()
            .filter_map(|event| match event {
                ServerEvent::Left { fault, .. } => fault.map(|fault| fault.to_string()),
                _ => None,
            })
            .collect();
        match case.ours {
            Closed(why) if !why.is_empty() => {
                assert!(faults.len() == 1 && faults[0].contains(why), "{}: {faults:?}", case.what);
            }
            _ => assert!(faults.is_empty(), "{}: {faults:?}", case.what),
        }
    }
}

/// Their server, with 100 blocks.
async fn serve(python: &Path) -> Theirs {
    let one = json!([[0], [5]]);
    let task = json!({
        "task_id": "t", "total_roi": [[0], [500]], "read_roi": one, "write_roi": one,
        "read_write_conflict": false, "max_retries": 100, "max_worker_restarts": 1000,
    });
    Theirs::start(python, &json!([task])).await
}

#[tokio::test]
async fn the_same_costs_at_theirs_what_is_known_of_it() {
    let Some(python) = interpreter() else { return };
    let theirs = serve(python).await;
    let place = theirs.place().await;
    for case in cases().iter().filter(|case| case.theirs != Crash) {
        let end = act(case, place.port()).await;
        assert!(
            end.is_some() && (end == Some(case.theirs) || case.theirs == Chance),
            "{}: {end:?}",
            case.what
        );
    }
    // Its blocks that are lost come back later, when it has told those to leave who were there.
    let work = |place: Place| async move {
        Working::start(config(place.port(), "t", 0, 4), |_, _| Deed::Done).end().await;
    };
    tokio::spawn(work(place));
    let states = theirs.staffed(work).await;
    assert_eq!(counts(&states, "t"), [100, 0, 0]);
}

#[tokio::test]
async fn what_ends_a_run_at_theirs_is_known() {
    let Some(python) = interpreter() else { return };
    for case in cases().iter().filter(|case| case.theirs == Crash) {
        let theirs = serve(python).await;
        let place = theirs.place().await;
        let end = act(case, place.port()).await;
        drop(place);
        if end.is_none() {
            let (said, is_good) = theirs.ends().await;
            assert!(!is_good, "{}: {said:?}", case.what);
            eprintln!("theirs, {}: {said:?}", case.what);
        } else {
            // A system that has memory without end refuses nothing.
            assert!(case.what.contains("2^40"), "{}", case.what);
        }
    }
}
