//! A coordinator that saves and loads sessions, and workers that do not do it as they should.

use std::time::Duration;

use cuframes_bridge::layers::{ChunkFault, CoordinatorEvent, Failure, Fault, SubmitError};
use cuframes_bridge::wire::{Begin, FrameType, Message, SnapshotId, WireError};

use crate::layers_peers::encoded;
use crate::layers_snapshots::{FIRST, ask, chunk, done, give, id, refused, with_hand};
use crate::layers_world::Who;

fn failed(request: u64, fault: Fault) -> CoordinatorEvent {
    CoordinatorEvent::Failed { request, failure: Failure::Transport(fault) }
}

fn remote(request: u64, text: &str) -> CoordinatorEvent {
    CoordinatorEvent::Failed { request, failure: Failure::Remote(text.into()) }
}

#[test]
fn a_worker_that_has_no_snapshot_or_can_not_load_one_says_so() {
    let (mut net, worker) = with_hand(|_| {});
    let tokens = [1, 2];
    let number = ask(&mut net, worker, &tokens);
    let data = net.called("tcp://h:5");
    let id = SnapshotId { request: number, layer_start: 21, ..id(0, &tokens) };
    let none = Begin { id, status: 1, message: "no such session".into(), ..Begin::default() };
    net.tell(data, &Message::Begin(none));
    assert_eq!(net.events(0), [remote(number, "no such session")]);
    assert!(net.is_closed(data));

    // In the middle of it, too.
    let number = ask(&mut net, worker, &tokens);
    let data = net.called("tcp://h:5");
    let id = SnapshotId { request: number, ..id };
    let begin = Begin { id, payload_bytes: 5, tokens: tokens.to_vec(), ..Begin::default() };
    net.tell(data, &Message::Begin(begin));
    net.tell(data, &refused(number, "disk failed"));
    assert_eq!(net.events(0), [remote(number, "disk failed")]);

    let number = give(&mut net, worker, &tokens, b"hello");
    let data = net.called("tcp://h:5");
    net.heard(data);
    net.tell(data, &refused(number, "another version"));
    assert_eq!(net.events(0), [remote(number, "another version")]);
    assert!(net.is_closed(data));
}

#[test]
fn a_snapshot_that_does_not_fit_what_was_asked_fails_and_costs_no_worker() {
    let tokens = [1, 2];
    let begin = |number: u64, change: fn(&mut Begin)| {
        let id = SnapshotId { request: number, layer_start: 21, ..id(0, &tokens) };
        let mut begin = Begin { id, payload_bytes: 5, tokens: tokens.to_vec(), ..Begin::default() };
        change(&mut begin);
        encoded(&Message::Begin(begin))
    };
    let right = |number| begin(number, |_| {});
    let n = FIRST;
    let order = |got| Fault::Order { got, expected: Some(n) };
    for (bytes, fault) in [
        (begin(n + 1, |_| {}), order(n + 1)),
        (begin(n, |begin| begin.id.session = 8), order(n)),
        (begin(n, |begin| begin.tokens = vec![1, 3]), Fault::Hash { request: n }),
        (begin(n, |begin| begin.tokens = vec![1]), Fault::Hash { request: n }),
        (
            begin(n, |begin| begin.payload_bytes = 101),
            Fault::Frame(WireError::Field {
                kind: FrameType::SNAPSHOT_BEGIN,
                field: "payload_bytes",
                value: 101,
            }),
        ),
        (encoded(&done(n)), Fault::Unexpected(FrameType::DONE)),
        (chunk(n, b"x"), Fault::Unexpected(FrameType::CHUNK)),
        ([right(n), right(n)].concat(), Fault::Unexpected(FrameType::SNAPSHOT_BEGIN)),
        ([right(n), encoded(&done(n))].concat(), Fault::Chunk(ChunkFault::Missing { left: 5 })),
        ([right(n), chunk(n, b"hello"), encoded(&done(1))].concat(), order(1)),
        ([right(n), chunk(n, b"hello!")].concat(), Fault::Chunk(ChunkFault::Bytes { got: 6, left: 5 })),
        ([right(n), chunk(1, b"hello")].concat(), Fault::Chunk(ChunkFault::Request { got: 1, expected: n })),
        (encoded(&Message::Error("no".into())), Fault::Remote("no".into())),
    ] {
        let (mut net, worker) = with_hand(|config| config.snapshot_bytes = 100);
        assert_eq!(ask(&mut net, worker, &tokens), n);
        let data = net.called("tcp://h:5");
        net.say(data, &bytes);
        assert_eq!(net.events(0), [failed(n, fault)]);
        assert!(net.is_closed(data));
        assert_eq!(net.coordinators[0].machine.registry().workers().len(), 1);
    }
    // One that is said to be loaded before it is there.
    let (mut net, worker) = with_hand(|_| {});
    net.listen_deaf("tcp://h:5");
    let number = give(&mut net, worker, &[1], &[0; 100]);
    let data = net.called("tcp://h:5");
    net.tell(data, &done(number));
    assert_eq!(net.events(0), [failed(number, Fault::Chunk(ChunkFault::Missing { left: 100 }))]);
}

#[test]
fn a_snapshot_ends_with_its_worker_or_its_connection() {
    let (mut net, worker) = with_hand(|config| config.max_snapshots = 2);
    let first = ask(&mut net, worker, &[1]);
    let data = net.called("tcp://h:5");
    net.hang_up(data);
    assert_eq!(net.events(0), [failed(first, Fault::Ended)]);
    net.unlisten("tcp://h:5");
    let second = ask(&mut net, worker, &[1]);
    net.pass(Duration::from_secs(5));
    assert_eq!(net.events(0), [failed(second, Fault::Unreachable)]);
    net.listen("tcp://h:5", Who::Hand);
    let third = ask(&mut net, worker, &[1]);
    let fourth = give(&mut net, worker, &[1], b"x");
    let machine = &mut net.coordinators[0].machine;
    assert_eq!(machine.save(net.now, worker, 7, 0, 0), Err(SubmitError::Full));
    assert_eq!((second, third, fourth), (FIRST + 1, FIRST + 2, FIRST + 3));
    assert!(machine.forget(net.now, worker));
    net.run();
    let gone = CoordinatorEvent::Left { conn: worker, fault: Fault::Forgotten };
    assert_eq!(net.events(0), [gone, failed(third, Fault::Gone), failed(fourth, Fault::Gone)]);
    let machine = &mut net.coordinators[0].machine;
    assert_eq!(machine.save(net.now, worker, 7, 0, 0), Err(SubmitError::NoWorker));
    assert_eq!(machine.load(net.now, worker, 7, Vec::new(), Vec::new()), Err(SubmitError::NoWorker));
}
