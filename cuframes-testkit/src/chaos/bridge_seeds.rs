//! Where the fuzzing of the bridge starts.

use cuframes_bridge::wire::{
    Begin, Chunk, Done, FrameType, Header, Hello, Hop, Message, ResultKind, Route, SnapshotId, Telemetry,
    Width, Work, WorkFlags, WorkResult, token_hash,
};

type Seeds = Vec<(String, Vec<u8>)>;

fn messages() -> [(&'static str, Message); 12] {
    let tokens = vec![1, 300];
    let mut activations = Vec::new();
    Width::BF16.encode(&[1.0, -2.0, 0.5, 3.0], &mut activations);
    let hops = [("10.0.0.2", 0, 20, 0), ("host", 21, 42, Hop::LOGITS)];
    let hops = hops.map(|(host, layer_start, layer_end, flags)| Hop {
        host: host.into(),
        port: 41_001,
        layer_start,
        layer_end,
        flags,
    });
    let id = SnapshotId {
        model_id: 1,
        session: 2,
        request: 1 << 63,
        token_hash: token_hash(&tokens),
        token_count: 2,
        layer_start: 21,
        layer_end: 42,
    };
    let begin = Begin { id, payload_bytes: 5, tokens: tokens.clone(), ..Begin::default() };
    let work = Work {
        prefix_hash: token_hash(&[]),
        result_hash: token_hash(&tokens),
        layer_start: 21,
        layer_end: 42,
        flags: WorkFlags::INPUT.union(WorkFlags::LOGITS),
        activation_bits: 16,
        tokens,
        activations: activations.clone(),
        route: Route { index: 1, hops: hops.to_vec() },
        ..Work::default()
    };
    let telemetry = vec![Telemetry { n_tokens: 2, eval_usec: 1500, ..Telemetry::default() }; 2];
    let result = WorkResult { result_hash: work.result_hash, telemetry, ..WorkResult::default() };
    let hidden = WorkResult {
        kind: ResultKind::HIDDEN,
        payload_bits: 8,
        payload: (0..=u8::MAX).collect(),
        ..result.clone()
    };
    let hello = Hello { model_id: 1, listen_port: 41_001, model_name: "cam0 é".into(), ..Hello::default() };
    [
        ("hello", Message::Hello(hello)),
        ("error", Message::Error("model id mismatch".into())),
        ("work", Message::Work(Box::new(work))),
        ("result-ack", Message::Result(Box::new(result))),
        ("result-hidden", Message::Result(Box::new(hidden))),
        ("result-failed", Message::Result(Box::new(WorkResult::failed(3, "mismatch")))),
        ("save-request", Message::SaveRequest(id)),
        ("begin", Message::Begin(begin.clone())),
        ("begin-none", Message::Begin(Begin { id, status: 1, message: "none".into(), ..Begin::default() })),
        ("load-begin", Message::LoadBegin(begin)),
        ("chunk", Message::Chunk(Chunk { request: 1 << 63, bytes: 5 })),
        ("done", Message::Done(Done { request: 1 << 63, status: 1, message: "refused".into() })),
    ]
}

/// Each message, in pieces of five bytes; all of them; and faults.
pub(super) fn bridge_frame() -> Seeds {
    let encode = |message: &Message| {
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        if let Message::Chunk(_) = message {
            bytes.extend(b"hello");
        }
        bytes
    };
    let seed = |stream: &[u8]| [&[5], stream].concat();
    let messages = messages().map(|(name, message)| (name, encode(&message)));
    let all = messages.each_ref().map(|(_, bytes)| &bytes[..]).concat();
    let frame = |kind: u32, bytes: u32, payload: &[u8]| {
        [&Header { kind: FrameType(kind), bytes }.encode(), payload].concat()
    };
    let chunk = [&(1_u64 << 63).to_be_bytes()[..], &6_u32.to_be_bytes(), b"hello"].concat();
    let error_cut = frame(2, 4, b"caf\xc3");
    let faults = [
        ("magic", b"GET / HTTP/1.1\r\n".to_vec()),
        ("unknown", [frame(10, 7, b"payload"), error_cut.clone()].concat()),
        ("unknown-huge", frame(10, u32::MAX, b"payload")),
        ("work-huge", frame(3, 64 << 20, &[0; 80])),
        ("length", frame(1, 168, &[])),
        ("chunk-mismatch", frame(7, 17, &chunk)),
        ("chunk-large", frame(7, 12 + (8 << 20) + 1, &chunk)),
        ("error-cut", error_cut),
        ("error-nul", [frame(2, 3, b"no\0"), frame(8, 16, &[0; 16])].concat()),
        ("error-long", frame(2, 600, &[b'e'; 600])),
        ("work-empty", frame(3, 92, &[0; 92])),
    ];
    let mut seeds: Seeds = messages.iter().map(|(name, bytes)| ((*name).into(), seed(bytes))).collect();
    seeds.push(("all".into(), seed(&all)));
    seeds.extend(faults.map(|(name, bytes)| (name.into(), seed(&bytes))));
    seeds
}
