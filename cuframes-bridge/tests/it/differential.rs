//! What a second encoder, in another language and written from the layouts alone, makes of the same messages.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

use cuframes_bridge::pair::PairHello;
use cuframes_bridge::wire::{Begin, Message, SnapshotId, Telemetry, Width, Work, WorkResult, token_hash};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};
use serde_json::{Value, json};

use crate::any::{message, pair_hello, word};
use crate::bytes::{encode, hex, unhex};

/// What it makes of these descriptions; `None`, which is said, where there is no Python.
#[expect(clippy::print_stderr, reason = "a skipped check says so")]
fn encoder(descriptions: &[Value]) -> Option<Vec<Vec<u8>>> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/encoder.py");
    let mut command = Command::new("python3");
    command.arg(script).stdin(Stdio::piped()).stdout(Stdio::piped());
    let Ok(mut child) = command.spawn() else {
        eprintln!("SKIPPED: comparison with a second encoder: there is no python3");
        return None;
    };
    let mut stdin = child.stdin.take().unwrap();
    let lines: String = descriptions.iter().map(|description| format!("{description}\n")).collect();
    // It writes while it reads.
    let writer = thread::spawn(move || stdin.write_all(lines.as_bytes()));
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "the second encoder failed");
    writer.join().unwrap().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text.lines().count(), descriptions.len());
    Some(text.lines().map(unhex).collect())
}

/// It makes of each description the bytes beside it.
fn is_the_same(cases: &[(Value, Vec<u8>)]) {
    let descriptions: Vec<Value> = cases.iter().map(|(description, _)| description.clone()).collect();
    let Some(found) = encoder(&descriptions) else { return };
    for ((description, ours), theirs) in cases.iter().zip(found) {
        assert_eq!(hex(ours), hex(&theirs), "{description}");
    }
}

/// So many values, the same in each run.
fn samples<T>(seed: u8, count: usize, strategy: impl Strategy<Value = T>) -> Vec<T> {
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[seed; 32]);
    let mut runner = TestRunner::new_with_rng(ProptestConfig::default(), rng);
    (0..count).map(|_| strategy.new_tree(&mut runner).unwrap().current()).collect()
}

fn id(kind: &str, id: &SnapshotId) -> Value {
    json!({
        "kind": kind, "model_id": id.model_id, "session": id.session, "request": id.request,
        "token_hash": id.token_hash, "token_count": id.token_count, "layer_start": id.layer_start,
        "layer_end": id.layer_end,
    })
}

fn begin(kind: &str, begin: &Begin) -> Value {
    let mut all = id(kind, &begin.id);
    for (name, value) in [
        ("payload_bytes", json!(begin.payload_bytes)),
        ("status", json!(begin.status)),
        ("tokens", json!(begin.tokens)),
        ("message", json!(begin.message)),
    ] {
        all[name] = value;
    }
    all
}

fn work(work: &Work) -> Value {
    let hops = work.route.hops.iter().map(|hop| {
        json!({
            "host": hop.host, "port": hop.port, "layer_start": hop.layer_start, "layer_end": hop.layer_end,
            "flags": hop.flags,
        })
    });
    json!({
        "kind": "work", "model_id": work.model_id, "session": work.session, "request": work.request,
        "prefix_hash": work.prefix_hash, "result_hash": work.result_hash, "pos0": work.pos0,
        "layer_start": work.layer_start, "layer_end": work.layer_end, "flags": work.flags.0,
        "activation_bits": work.activation_bits, "tokens": work.tokens, "activations": hex(&work.activations),
        "route_index": work.route.index, "hops": hops.collect::<Vec<_>>(),
    })
}

fn result(result: &WorkResult) -> Value {
    let record = |t: &Telemetry| {
        [
            t.layer_start,
            t.layer_end,
            t.route_index,
            t.pos0,
            t.n_tokens,
            t.eval_usec,
            t.downstream_wait_usec,
            t.forward_send_usec,
            t.input_bytes,
            t.output_bytes,
        ]
    };
    json!({
        "kind": "result", "request": result.request, "result_hash": result.result_hash,
        "status": result.status, "result_kind": result.kind.0, "payload_bits": result.payload_bits,
        "telemetry": result.telemetry.iter().map(record).collect::<Vec<_>>(), "payload": hex(&result.payload),
    })
}

fn describe(message: &Message) -> Value {
    match message {
        Message::Hello(hello) => json!({
            "kind": "hello", "model_id": hello.model_id, "quant_bits": hello.quant_bits,
            "layer_start": hello.layer_start, "layer_end": hello.layer_end, "has_output": hello.has_output,
            "has_hidden": hello.has_hidden, "ctx_size": hello.ctx_size, "n_layers": hello.n_layers,
            "listen_port": hello.listen_port, "model_name": hello.model_name,
        }),
        Message::Error(text) => json!({"kind": "error", "text": text}),
        Message::Work(all) => work(all),
        Message::Result(all) => result(all),
        Message::SaveRequest(all) => id("save_request", all),
        Message::Begin(all) => begin("begin", all),
        Message::Chunk(chunk) => json!({"kind": "chunk", "request": chunk.request, "bytes": chunk.bytes}),
        Message::Done(done) => json!({
            "kind": "done", "request": done.request, "status": done.status, "message": done.message,
        }),
        Message::LoadBegin(all) => begin("load_begin", all),
        other => panic!("{other:?}"),
    }
}

fn pair(hello: &PairHello) -> Value {
    json!({
        "kind": "pair", "version": hello.version, "role": hello.role, "rdma_ok": hello.rdma_ok,
        "gguf_bytes": hello.gguf_bytes, "model_id": hello.model_id, "n_layer": hello.n_layer,
        "n_embd": hello.n_embd, "n_vocab": hello.n_vocab, "quant_bits": hello.quant_bits,
        "ctx_size": hello.ctx_size, "gate_slot_start": hello.gate_slot_start,
        "gate_slot_step": hello.gate_slot_step, "gates_per_token": hello.gates_per_token, "pad": hello.pad,
        "mask": hello.mask,
    })
}

#[test]
fn messages_are_written_the_same() {
    let messages = samples(1, 600, message());
    for kind in 1..=9 {
        let count = messages.iter().filter(|message| message.kind().0 == kind).count();
        assert!(count > 30, "only {count} messages of type {kind}");
    }
    let cases: Vec<_> = messages.iter().map(|message| (describe(message), encode(message))).collect();
    is_the_same(&cases);
}

#[test]
fn hellos_of_pairs_are_written_the_same() {
    let hellos = samples(2, 100, pair_hello());
    is_the_same(&hellos.iter().map(|hello| (pair(hello), hello.encode().to_vec())).collect::<Vec<_>>());
}

#[test]
fn tokens_have_the_same_hash() {
    let cases = samples(3, 100, vec(word(), 0..50)).into_iter().map(|tokens| {
        let hash = token_hash(&tokens).to_be_bytes();
        (json!({"kind": "token_hash", "tokens": tokens}), hash.to_vec())
    });
    is_the_same(&cases.collect::<Vec<_>>());
}

#[test]
fn activations_become_the_same() {
    // Any bits; what eight bits are made for; and what lies around each border of both widths.
    let small = (100..140_u32, any::<u32>()).prop_map(|(exponent, bits)| exponent << 23 | bits & 0x807f_ffff);
    let mut values = samples(4, 2000, prop_oneof![any::<u32>(), small]);
    for upper in 0..0x8000_u32 {
        for lower in [0, 1, 0x7fff, 0x8000, 0x8001, 0xffff] {
            // Every bit of the upper half for the exponents that eight bits have, a few for the others.
            if (0x3a00..0x4400).contains(&upper) || upper % 64 == 63 {
                values.push(upper << 16 | lower);
            }
        }
    }
    let floats: Vec<f32> = values.iter().copied().map(f32::from_bits).collect();
    let converted = |width: Width| {
        let mut bytes = Vec::new();
        width.encode(&floats, &mut bytes);
        bytes
    };
    is_the_same(&[
        (json!({"kind": "bf16", "values": values}), converted(Width::BF16)),
        (json!({"kind": "f8", "values": values}), converted(Width::F8)),
    ]);
}

#[test]
fn eight_bits_are_read_the_same() {
    let codes: Vec<u8> = (0..=u8::MAX).collect();
    let values = Width::F8.decode(&codes).into_iter().flat_map(f32::to_le_bytes).collect();
    is_the_same(&[(json!({"kind": "from_f8", "bytes": hex(&codes)}), values)]);
}
