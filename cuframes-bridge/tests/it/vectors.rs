//! The golden bytes of `vectors/`: each reads as this, and this is written so.

use cuframes_bridge::pair::PairHello;
use cuframes_bridge::wire::{
    Begin, Chunk, Done, EMPTY_HASH, Hello, Hop, Message, ResultKind, Route, SnapshotId, Telemetry, Width,
    Work, WorkFlags, WorkResult, extend_hash, token_hash,
};

use crate::bytes::{Item, decode, encode, vector};

const SESSION: u64 = 0x1122_3344_5566_7788;
const HASH: u64 = 0xb217_50ce_ed54_4b19;

/// It reads as this, in any pieces, and this is written so.
fn is(vector: &[u8], message: &Message) {
    assert_eq!(encode(message), vector);
    for pieces in [1, 3, usize::MAX] {
        assert_eq!(decode(vector, &[pieces]), (vec![Item::Message(message.clone())], None));
    }
}

const fn id(request: u64) -> SnapshotId {
    SnapshotId {
        model_id: 1,
        session: SESSION,
        request,
        token_hash: HASH,
        token_count: 2,
        layer_start: 21,
        layer_end: 42,
    }
}

#[test]
fn a_worker_says_who_it_is() {
    let hello = Hello {
        model_id: 1,
        quant_bits: 4,
        layer_start: 21,
        layer_end: 42,
        has_output: 1,
        has_hidden: 1,
        ctx_size: 32_768,
        n_layers: 43,
        listen_port: 41_001,
        model_name: "deepseek4-flash".into(),
    };
    is(&vector!("hello"), &Message::Hello(hello));
}

#[test]
fn a_request_has_tokens_activations_and_a_route() {
    let hop =
        Hop { host: "10.0.0.2".into(), port: 41_001, layer_start: 21, layer_end: 42, flags: Hop::LOGITS };
    let mut activations = Vec::new();
    Width::F32.encode(&[1.0, -2.0, 0.5, 3.0], &mut activations);
    let work = Work {
        model_id: 1,
        session: SESSION,
        request: 1,
        prefix_hash: EMPTY_HASH,
        result_hash: HASH,
        pos0: 0,
        layer_start: 21,
        layer_end: 42,
        flags: WorkFlags::INPUT.union(WorkFlags::LOGITS).union(WorkFlags::RESET),
        activation_bits: 32,
        tokens: vec![1, 300],
        activations,
        route: Route { index: 0, hops: vec![hop] },
    };
    assert_eq!(work.check(), Ok(()));
    is(&vector!("work"), &Message::Work(Box::new(work)));
}

#[test]
fn results_are_acknowledgements_hidden_states_and_errors() {
    let record = Telemetry {
        layer_start: 21,
        layer_end: 42,
        n_tokens: 2,
        eval_usec: 1500,
        input_bytes: 24,
        ..Telemetry::default()
    };
    let ack = WorkResult { request: 1, result_hash: HASH, telemetry: vec![record], ..WorkResult::default() };
    let record = Telemetry {
        layer_end: 20,
        pos0: 5,
        n_tokens: 1,
        eval_usec: 900,
        input_bytes: 4,
        output_bytes: 8,
        ..Telemetry::default()
    };
    let mut payload = Vec::new();
    Width::BF16.encode(&[1.0, -2.0, 0.5, 3.0], &mut payload);
    let hidden = WorkResult {
        request: 1 << 32 | 2,
        result_hash: HASH,
        status: 0,
        kind: ResultKind::HIDDEN,
        payload_bits: 16,
        telemetry: vec![record],
        payload,
    };
    let failed = WorkResult::failed(3, "worker KV prefix hash mismatch");
    assert_eq!(failed.error().as_deref(), Some("worker KV prefix hash mismatch"));
    assert_eq!((ack.error(), hidden.error()), (None, None));
    for (bytes, result) in
        [(vector!("result_ack"), ack), (vector!("result_hidden"), hidden), (vector!("result_error"), failed)]
    {
        assert_eq!(result.check(), Ok(()));
        is(&bytes, &Message::Result(Box::new(result)));
    }
}

#[test]
fn a_snapshot_is_asked_for_begins_and_ends() {
    is(&vector!("save_request"), &Message::SaveRequest(id(1 << 63)));
    let begin = Begin { id: id(1 << 63), payload_bytes: 5, tokens: vec![1, 300], ..Begin::default() };
    is(&vector!("begin"), &Message::Begin(begin));
    let none = Begin { id: id(1 << 63), status: 1, message: "no such session".into(), ..Begin::default() };
    is(&vector!("begin_error"), &Message::Begin(none));
    let load = Begin { id: id(1 << 63 | 1), payload_bytes: 5, tokens: vec![1, 300], ..Begin::default() };
    is(&vector!("load_begin"), &Message::LoadBegin(load));
    is(&vector!("done"), &Message::Done(Done { request: 1 << 63, ..Done::default() }));
    let failed = Done { request: 1 << 63, status: 1, message: "refused".into() };
    is(&vector!("done_error"), &Message::Done(failed));
}

#[test]
fn data_follow_a_chunk() {
    let chunk = Message::Chunk(Chunk { request: 1 << 63, bytes: 5 });
    assert_eq!([encode(&chunk), b"hello".to_vec()].concat(), vector!("chunk"));
    for pieces in [1, 3, 26, usize::MAX] {
        let items = vec![Item::Message(chunk.clone()), Item::Data(b"hello".to_vec())];
        assert_eq!(decode(&vector!("chunk"), &[pieces]), (items, None));
    }
}

#[test]
fn an_error_is_its_text() {
    is(&vector!("error"), &Message::Error("model id mismatch: worker=2 coordinator=1".into()));
}

#[test]
fn the_hello_of_a_pair_is_little_endian() {
    let hello = PairHello {
        version: 10,
        role: PairHello::LEADER,
        rdma_ok: 0,
        gguf_bytes: 123_456_789,
        model_id: 1,
        n_layer: 43,
        n_embd: 4096,
        n_vocab: 129_280,
        quant_bits: 4,
        ctx_size: 32_768,
        ..PairHello::default()
    };
    let vector = vector!("pair_hello");
    assert_eq!(hello.encode()[..], vector);
    assert_eq!(PairHello::decode(&vector.try_into().unwrap()), Ok(hello));
}

#[test]
fn hashes_of_tokens_start_elsewhere_than_those_of_a_library() {
    assert_eq!(EMPTY_HASH, 1_469_598_103_934_665_603);
    assert_eq!(token_hash(&[]), 0x1465_0fb0_739d_0383);
    assert_eq!(token_hash(&[0]), 0x3154_46a0_86a2_3133);
    assert_eq!(token_hash(&[1, 300]), HASH);
    assert_eq!(extend_hash(token_hash(&[1]), &[300]), HASH);
}
