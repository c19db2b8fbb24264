//! Sessions that are saved and loaded: each on a connection of its own, in chunks.

use cuframes_bridge::layers::{
    ChunkFault, CoordinatorEvent, Fault, FinishError, Refusal, Snapshot, TaskId, WorkerEvent,
};
use cuframes_bridge::wire::{Begin, Chunk, Done, FrameType, Message, SnapshotId, WireError, token_hash};
use cuframes_core::streams::ConnId;

use crate::bytes::{Item, decode, encode, frame, vector};
use crate::layers_peers::{all, alone, coordinator_config, encoded, messages, said, work, worker_config};
use crate::layers_world::{Caller, Net, Who};

pub(crate) const FIRST: u64 = 1 << 63;

pub(crate) fn id(request: u64, tokens: &[u32]) -> SnapshotId {
    SnapshotId {
        model_id: 1,
        session: 7,
        request,
        token_hash: token_hash(tokens),
        token_count: u32::try_from(tokens.len()).unwrap(),
        layer_start: 0,
        layer_end: 42,
    }
}

fn load(request: u64, tokens: &[u32], payload_bytes: u64) -> Message {
    let id = id(request, tokens);
    Message::LoadBegin(Begin { id, payload_bytes, tokens: tokens.to_vec(), ..Begin::default() })
}

pub(crate) fn chunk(request: u64, data: &[u8]) -> Vec<u8> {
    let bytes = u32::try_from(data.len()).unwrap();
    [&encoded(&Message::Chunk(Chunk { request, bytes })), data].concat()
}

pub(crate) fn done(request: u64) -> Message {
    Message::Done(Done { request, ..Done::default() })
}

pub(crate) fn refused(request: u64, text: &str) -> Message {
    Message::Done(Done { request, status: 1, message: text.into() })
}

/// Everything up to the end of the data, and the end.
fn items(bytes: &[u8]) -> Vec<Item> {
    let (items, error) = decode(bytes, &[usize::MAX]);
    assert_eq!(error, None);
    items
}

/// Takes a session of a worker for all layers to these tokens.
fn advance(net: &mut Net, caller: Caller, tokens: &[u32]) {
    net.tell(caller, &said(all(7, 1, &[], tokens)));
    let task = net.task(0);
    net.compute(0, &task);
    net.heard(caller);
}

/// The only event of a worker: a session to load.
fn loaded(net: &mut Net) -> (TaskId, Vec<u32>, Vec<u8>) {
    match <[WorkerEvent; 1]>::try_from(net.worker_events(0)) {
        Ok([WorkerEvent::Load { task, tokens, payload, .. }]) => (task, tokens, payload),
        other => panic!("{other:?}"),
    }
}

fn saving(net: &mut Net) -> (TaskId, SnapshotId) {
    match net.worker_events(0)[..] {
        [WorkerEvent::Save { task, id }] => (task, id),
        ref other => panic!("{other:?}"),
    }
}

fn save(net: &mut Net, task: TaskId, tokens: &[u32], payload: &[u8]) -> Result<(), FinishError> {
    let snapshot = Snapshot { tokens: tokens.to_vec(), payload: payload.to_vec() };
    let result = net.workers[0].machine.saved(net.now, task, Ok(snapshot));
    net.run();
    result
}

fn finish_load(net: &mut Net, task: TaskId, result: Result<(), &str>) {
    net.workers[0].machine.loaded(net.now, task, result.map_err(Into::into)).unwrap();
    net.run();
}

/// A coordinator, and a worker that is written by hand, for the last layers; its control connection.
pub(crate) fn with_hand(
    change: impl FnOnce(&mut cuframes_bridge::layers::CoordinatorConfig),
) -> (Net, ConnId) {
    let mut net = Net::new();
    let mut config = coordinator_config();
    config.chunk_bytes = 4;
    change(&mut config);
    net.coordinator(config);
    net.listen("tcp://h:5", Who::Hand);
    let control = net.call(Who::Coordinator(0));
    net.tell(control, &Message::Hello(worker_config((21, 42), 5).hello()));
    net.events(0);
    let conn = net.conn(control);
    (net, conn)
}

pub(crate) fn ask(net: &mut Net, worker: ConnId, tokens: &[u32]) -> u64 {
    let count = u32::try_from(tokens.len()).unwrap();
    let machine = &mut net.coordinators[0].machine;
    let number = machine.save(net.now, worker, 7, token_hash(tokens), count).unwrap();
    net.run();
    number
}

pub(crate) fn give(net: &mut Net, worker: ConnId, tokens: &[u32], payload: &[u8]) -> u64 {
    let machine = &mut net.coordinators[0].machine;
    let number = machine.load(net.now, worker, 7, tokens.to_vec(), payload.to_vec()).unwrap();
    net.run();
    number
}

#[test]
fn a_session_is_saved_by_one_worker_and_loaded_by_another() {
    let mut net = Net::new();
    let mut config = coordinator_config();
    config.chunk_bytes = 7;
    net.coordinator(config);
    for port in [1, 2] {
        let mut config = worker_config((0, 42), port);
        config.chunk_bytes = 10;
        if port == 2 {
            config.has_output = false;
        }
        net.worker(config);
    }
    net.worker_events(0);
    let workers: Vec<ConnId> =
        net.coordinators[0].machine.registry().workers().iter().map(|member| member.conn).collect();
    net.events(0);
    let caller = net.call(Who::Worker(0));
    net.worker_events(0);
    advance(&mut net, caller, &[1, 2]);

    assert_eq!(ask(&mut net, workers[0], &[1, 2]), FIRST);
    net.workers[0].events.retain(|event| !matches!(event, WorkerEvent::Opened { .. }));
    let (task, id) = saving(&mut net);
    assert_eq!((id.session, id.token_count, id.layer_end), (7, 2, 42));
    let payload: Vec<u8> = (0..25).collect();
    assert_eq!(save(&mut net, task, &[1, 2], &payload), Ok(()));
    let saved = CoordinatorEvent::Saved { request: FIRST, tokens: vec![1, 2], payload: payload.clone() };
    assert_eq!(net.events(0), [saved]);

    assert_eq!(give(&mut net, workers[1], &[1, 2], &payload), FIRST + 1);
    net.workers[1].events.retain(|event| matches!(event, WorkerEvent::Load { .. }));
    let [WorkerEvent::Load { task, id, tokens, payload: found }] = &net.worker_events(1)[..] else {
        panic!("it is loaded")
    };
    assert_eq!((id.session, &tokens[..], found), (7, &[1, 2][..], &payload));
    assert!(net.events(0).is_empty());
    net.workers[1].machine.loaded(net.now, *task, Ok(())).unwrap();
    net.run();
    assert_eq!(net.events(0), [CoordinatorEvent::Loaded { request: FIRST + 1 }]);

    // It goes on there.
    let caller = net.call(Who::Worker(1));
    net.worker_events(1);
    let mut next = all(7, 1, &[1, 2], &[3]);
    next.flags = cuframes_bridge::wire::WorkFlags::default();
    net.tell(caller, &said(next));
    assert!(!net.task(1).is_new);
}

#[test]
fn a_worker_saves_and_loads_in_the_bytes_of_the_original() {
    let session = 0x1122_3344_5566_7788;
    let (mut net, caller) = alone(|config| *config = worker_config((21, 42), 1));
    let start = work((21, 42), session, 1, &[], &[1, 300]);
    net.tell(caller, &said(start));
    let task = net.task(0);
    net.compute(0, &task);
    net.heard(caller);
    assert!(net.say(caller, &vector!("save_request")).is_empty());
    let (task, id) = saving(&mut net);
    assert_eq!(encode(&Message::SaveRequest(id)), vector!("save_request"));
    assert_eq!(save(&mut net, task, &[1, 300], b"hello"), Ok(()));
    assert_eq!(net.heard(caller), [vector!("begin"), vector!("chunk"), vector!("done")].concat());

    let request = FIRST + 1;
    assert!(net.say(caller, &[vector!("load_begin"), chunk(request, b"hello")].concat()).is_empty());
    let (task, tokens, payload) = loaded(&mut net);
    assert_eq!((&tokens[..], &payload[..]), (&[1, 300][..], &b"hello"[..]));
    finish_load(&mut net, task, Ok(()));
    assert_eq!(messages(&net.heard(caller)), [done(request)]);

    // The coordinator's.
    let (mut net, worker) = with_hand(|_| {});
    let machine = &mut net.coordinators[0].machine;
    machine.save(net.now, worker, session, token_hash(&[1, 300]), 2).unwrap();
    net.run();
    let data = net.called("tcp://h:5");
    assert_eq!(net.heard(data), vector!("save_request"));
    net.coordinators[0].machine.load(net.now, worker, session, vec![1, 300], b"hello".to_vec()).unwrap();
    net.run();
    let data = net.called("tcp://h:5");
    let all = [vector!("load_begin"), chunk(request, b"hell"), chunk(request, b"o")].concat();
    assert_eq!(net.heard(data), all);
}

#[test]
fn a_payload_goes_out_in_chunks_as_it_is_taken() {
    for (len, size, chunks) in [(0, 4, 0), (1, 4, 1), (8, 4, 2), (9, 4, 3), (9, 1 << 30, 1)] {
        let (mut net, caller) = alone(|config| config.chunk_bytes = size);
        advance(&mut net, caller, &[1]);
        net.width = 5;
        net.tell(caller, &Message::SaveRequest(id(3, &[1])));
        let (task, _) = saving(&mut net);
        let payload: Vec<u8> = (0..len).collect();
        save(&mut net, task, &[1], &payload).unwrap();
        let items = items(&net.heard(caller));
        let mut found = Vec::new();
        let mut count = 0;
        for item in &items[1..items.len() - 1] {
            match item {
                Item::Message(Message::Chunk(_)) => count += 1,
                Item::Data(data) => found.extend(data),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!((found, count), (payload, chunks));
        assert_eq!(items.last(), Some(&Item::Message(done(3))));
    }
}

#[test]
fn a_snapshot_waits_for_what_was_asked_before_and_what_comes_behind_it_waits_too() {
    let (mut net, caller) = alone(|config| config.prefetch = 8);
    net.tell(caller, &said(all(7, 1, &[], &[1])));
    let first = net.task(0);
    net.tell(caller, &Message::SaveRequest(id(2, &[1])));
    net.tell(caller, &said(all(8, 3, &[], &[1])));
    assert!(net.worker_events(0).is_empty());
    net.compute(0, &first);
    let (task, _) = saving(&mut net);
    net.heard(caller);
    save(&mut net, task, &[1], b"x").unwrap();
    let items = items(&net.heard(caller));
    assert_eq!(items.last(), Some(&Item::Message(done(2))));
    assert_eq!(net.task(0).request, 3);
}

#[test]
fn a_snapshot_that_can_not_be_is_refused_and_the_connection_goes_on() {
    let refuse = |tokens: &[u32], change: fn(&mut SnapshotId)| {
        let (mut net, caller) = alone(|_| {});
        advance(&mut net, caller, &[1, 2]);
        let mut wanted = id(3, tokens);
        change(&mut wanted);
        let heard = net.tell(caller, &Message::SaveRequest(wanted));
        let [Message::Begin(begin)] = &heard[..] else { panic!("{heard:?}") };
        assert_eq!((begin.id, begin.status, begin.payload_bytes, &begin.tokens[..]), (wanted, 1, 0, &[][..]));
        assert!(!net.is_closed(caller));
        begin.message.clone()
    };
    assert_eq!(refuse(&[1, 2], |id| id.model_id = 2), "model 2 is not that of this worker");
    assert_eq!(refuse(&[1, 2], |id| id.layer_start = 1), "layers 1..42 are not those of this worker");
    assert_eq!(refuse(&[1, 2], |id| id.token_count = 101), "101 tokens do not fit into a context of 100");
    assert_eq!(refuse(&[1, 3], |_| {}), "worker KV prefix hash mismatch");
    assert_eq!(refuse(&[1, 2], |id| id.session = 8), "worker KV prefix hash mismatch");

    // The owner may fail, too.
    let (mut net, caller) = alone(|_| {});
    advance(&mut net, caller, &[1, 2]);
    net.tell(caller, &Message::SaveRequest(id(3, &[1, 2])));
    let (task, _) = saving(&mut net);
    assert_eq!(save(&mut net, task, &[1, 3], b"x"), Err(FinishError::Tokens));
    assert_eq!(save(&mut net, task, &[1, 2, 3], b"x"), Err(FinishError::Tokens));
    net.workers[0].machine.saved(net.now, task, Err("disk full".into())).unwrap();
    net.run();
    let heard = messages(&net.heard(caller));
    assert!(matches!(&heard[..], [Message::Begin(begin)] if begin.message == "disk full"), "{heard:?}");
    assert_eq!(save(&mut net, task, &[1, 2], b"x"), Err(FinishError::Unknown(task)));
}

#[test]
fn what_is_loaded_is_where_the_session_stands() {
    let (mut net, caller) = alone(|_| {});
    let bytes = [encoded(&load(3, &[1, 2], 5)), chunk(3, b"he"), chunk(3, b""), chunk(3, b"llo")].concat();
    // In pieces of one byte, too.
    bytes.iter().for_each(|byte| _ = net.say(caller, &[*byte]));
    let (task, tokens, payload) = loaded(&mut net);
    assert_eq!((&tokens[..], &payload[..]), (&[1, 2][..], &b"hello"[..]));
    finish_load(&mut net, task, Ok(()));
    assert_eq!(messages(&net.heard(caller)), [done(3)]);
    net.tell(caller, &said(all(7, 4, &[1, 2], &[3])));
    let task = net.task(0);
    assert!(!task.is_new);
    net.compute(0, &task);
    net.heard(caller);
    // One that could not be loaded is no session.
    net.say(caller, &encoded(&load(5, &[9], 0)));
    let (task, tokens, payload) = loaded(&mut net);
    assert_eq!((&tokens[..], payload.len()), (&[9][..], 0));
    finish_load(&mut net, task, Err("it is of another version"));
    assert_eq!(messages(&net.heard(caller)), [refused(5, "it is of another version")]);
    assert_eq!(net.workers[0].machine.sessions(), 0);
}

#[test]
fn a_snapshot_to_load_that_is_wrong_is_refused() {
    let wrong = |payload_bytes: u64, change: fn(&mut Begin)| {
        let (mut net, caller) = alone(|config| config.snapshot_bytes = 100);
        let Message::LoadBegin(mut begin) = load(3, &[1, 2], payload_bytes) else { panic!("it is one") };
        change(&mut begin);
        let heard = net.tell(caller, &Message::LoadBegin(begin));
        let [Message::Done(Done { request: 3, status: 1, message })] = &heard[..] else {
            panic!("{heard:?}")
        };
        assert!(net.workers[0].events.iter().all(|event| !matches!(event, WorkerEvent::Load { .. })));
        // It is closed if chunks are under way.
        let fault = net.closed(0, caller);
        assert_eq!((net.is_closed(caller), fault.is_some()), (payload_bytes > 0, payload_bytes > 0));
        (message.clone(), fault)
    };
    type Change = fn(&mut Begin);
    let changes: [(Change, &str); 5] = [
        (|begin| begin.id.model_id = 2, "model 2 is not that of this worker"),
        (|begin| begin.id.layer_end = 41, "layers 0..41 are not those of this worker"),
        (|begin| begin.tokens = vec![0; 101], "101 tokens do not fit into a context of 100"),
        (|begin| begin.tokens[1] = 1000, "token 1000 is not in the vocabulary"),
        (|begin| begin.id.token_hash = 5, "the tokens have another hash than 0x0000000000000005"),
    ];
    for (change, text) in changes {
        assert_eq!(wrong(0, change).0, text);
        assert_eq!(wrong(5, change).0, text);
    }
    let (text, fault) = wrong(101, |_| {});
    assert_eq!(text, "a snapshot of 101 bytes is too large");
    assert_eq!(fault, Some(Fault::Refused(Refusal::SnapshotBytes(101))));
    // What can't be read at all may have chunks behind it.
    let (mut net, caller) = alone(|_| {});
    let mut bytes = encoded(&load(3, &[1, 2], 5));
    bytes[12 + 31] = 9;
    let heard = messages(&net.say(caller, &bytes));
    assert_eq!(heard, [refused(3, "SNAPSHOT_LOAD_BEGIN token_bytes: 0x8 is not allowed")]);
    assert!(matches!(net.closed(0, caller), Some(Fault::Frame(WireError::Field { .. }))));
}

#[test]
fn a_chunk_that_is_not_the_next_one_ends_the_connection() {
    let missing = |left| ChunkFault::Missing { left };
    for (bytes, text, fault) in [
        (chunk(4, b"x"), "a chunk of request 4, not of 3", ChunkFault::Request { got: 4, expected: 3 }),
        (
            chunk(3, b"four"),
            "a chunk of 4 bytes, of which only 3 are to come",
            ChunkFault::Bytes { got: 4, left: 3 },
        ),
        (encoded(&said(all(7, 4, &[], &[1]))), "3 bytes of the snapshot are missing", missing(3)),
        (encoded(&load(5, &[1], 5)), "3 bytes of the snapshot are missing", missing(3)),
        (encoded(&done(3)), "3 bytes of the snapshot are missing", missing(3)),
    ] {
        let (mut net, caller) = alone(|_| {});
        net.say(caller, &[encoded(&load(3, &[1], 5)), chunk(3, b"he")].concat());
        assert_eq!(messages(&net.say(caller, &bytes)), [refused(3, text)]);
        assert_eq!(net.closed(0, caller), Some(Fault::Chunk(fault)));
        assert!(net.is_closed(caller));
    }
    // A length that does not fit its frame, or no chunk: the stream can't be cut any more.
    for bytes in [
        frame(FrameType::CHUNK, 13, &[0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 2]),
        frame(FrameType::CHUNK, u32::MAX, &[]),
        frame(FrameType::CHUNK, 11, &[]),
    ] {
        let (mut net, caller) = alone(|_| {});
        net.say(caller, &encoded(&load(3, &[1], 5)));
        assert!(net.say(caller, &bytes).is_empty());
        assert!(matches!(net.closed(0, caller), Some(Fault::Frame(_))));
    }
    // One more than announced is in no snapshot.
    let (mut net, caller) = alone(|_| {});
    net.say(caller, &[encoded(&load(3, &[1], 2)), chunk(3, b"he")].concat());
    loaded(&mut net);
    let heard = messages(&net.say(caller, &chunk(3, b"x")));
    assert_eq!(heard, [Message::Error("unexpected frame SNAPSHOT_CHUNK".into())]);
}

#[test]
fn snapshots_that_are_loaded_at_a_time_have_a_bound_together() {
    let (mut net, a) = alone(|config| config.snapshot_bytes = 100);
    let b = net.call(Who::Worker(0));
    let begin = |net: &mut Net, caller, request| net.say(caller, &encoded(&load(request, &[1], 80)));
    begin(&mut net, a, 3);
    begin(&mut net, b, 4);
    // Only what came counts.
    net.say(a, &chunk(3, &[0; 60]));
    assert!(net.say(b, &chunk(4, &[0; 40])).is_empty());
    assert_eq!(
        messages(&net.say(b, &chunk(4, &[0; 1]))),
        [refused(4, "a snapshot of 80 bytes is too large")]
    );
    assert_eq!(net.closed(0, b), Some(Fault::Refused(Refusal::SnapshotBytes(80))));
    net.worker_events(0);
    net.say(a, &chunk(3, &[0; 20]));
    assert_eq!(loaded(&mut net).2.len(), 80);
}
