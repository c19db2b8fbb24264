//! Any messages that can be sent.

use cuframes_bridge::pair::PairHello;
use cuframes_bridge::wire::{
    Begin, Chunk, Done, Hello, Hop, Message, ResultKind, Route, SnapshotId, Telemetry, Work, WorkFlags,
    WorkResult,
};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;

/// A case that fails is written beside this file, and belongs into the repository.
pub(crate) fn cases(cases: u32) -> ProptestConfig {
    let persistence = FileFailurePersistence::WithSource("regressions");
    ProptestConfig { cases, failure_persistence: Some(Box::new(persistence)), ..ProptestConfig::default() }
}

/// A number that is often one of the first, and may be any.
pub(crate) fn word() -> impl Strategy<Value = u32> {
    prop_oneof![3 => 0..8_u32, 1 => any::<u32>()]
}

fn long() -> impl Strategy<Value = u64> {
    prop_oneof![1 => 0..8_u64, 3 => any::<u64>()]
}

/// At most `most` bytes without NUL, of characters of one to four bytes.
fn text(most: usize) -> impl Strategy<Value = String> {
    let character = any::<char>().prop_map(|c| if c == '\0' { '?' } else { c });
    prop_oneof![
        9 => vec(character, 0..=most.min(80) / 4).prop_map(String::from_iter),
        1 => Just("n".repeat(most)),
    ]
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![9 => vec(any::<u8>(), 0..40), 1 => vec(any::<u8>(), 0..2000)]
}

fn tokens() -> impl Strategy<Value = Vec<u32>> {
    vec(word(), 0..12)
}

fn hello() -> impl Strategy<Value = Hello> {
    ([(); 9].map(|()| word()), text(127)).prop_map(|(words, model_name)| {
        let [
            model_id,
            quant_bits,
            layer_start,
            layer_end,
            has_output,
            has_hidden,
            ctx_size,
            n_layers,
            listen_port,
        ] = words;
        Hello {
            model_id,
            quant_bits,
            layer_start,
            layer_end,
            has_output,
            has_hidden,
            ctx_size,
            n_layers,
            listen_port,
            model_name,
        }
    })
}

fn hop() -> impl Strategy<Value = Hop> {
    let host = text(1024).prop_map(|host| if host.is_empty() { "h".into() } else { host });
    (host, [(); 4].map(|()| word())).prop_map(|(host, [port, layer_start, layer_end, flags])| Hop {
        host,
        port,
        layer_start,
        layer_end,
        flags,
    })
}

fn work() -> impl Strategy<Value = Work> {
    let numbers = ([(); 6].map(|()| word()), [(); 4].map(|()| long()));
    let route = (word(), vec(hop(), 0..4)).prop_map(|(index, hops)| Route { index, hops });
    (numbers, tokens(), bytes(), route).prop_map(|((words, longs), tokens, activations, route)| {
        let [model_id, pos0, layer_start, layer_end, flags, activation_bits] = words;
        let [session, request, prefix_hash, result_hash] = longs;
        Work {
            model_id,
            session,
            request,
            prefix_hash,
            result_hash,
            pos0,
            layer_start,
            layer_end,
            flags: WorkFlags(flags),
            activation_bits,
            tokens,
            activations,
            route,
        }
    })
}

fn telemetry() -> impl Strategy<Value = Telemetry> {
    [(); 10].map(|()| word()).prop_map(|words| {
        let [layer_start, layer_end, route_index, pos0, n_tokens, rest @ ..] = words;
        let [eval_usec, downstream_wait_usec, forward_send_usec, input_bytes, output_bytes] = rest;
        Telemetry {
            layer_start,
            layer_end,
            route_index,
            pos0,
            n_tokens,
            eval_usec,
            downstream_wait_usec,
            forward_send_usec,
            input_bytes,
            output_bytes,
        }
    })
}

fn result() -> impl Strategy<Value = WorkResult> {
    let numbers = (long(), long(), word(), word(), word());
    (numbers, vec(telemetry(), 0..4), bytes()).prop_map(|(numbers, telemetry, payload)| {
        let (request, result_hash, status, kind, payload_bits) = numbers;
        WorkResult { request, result_hash, status, kind: ResultKind(kind), payload_bits, telemetry, payload }
    })
}

fn id() -> impl Strategy<Value = SnapshotId> {
    ([(); 4].map(|()| word()), [(); 3].map(|()| long())).prop_map(|(words, longs)| {
        let [model_id, token_count, layer_start, layer_end] = words;
        let [session, request, token_hash] = longs;
        SnapshotId { model_id, session, request, token_hash, token_count, layer_start, layer_end }
    })
}

fn begin() -> impl Strategy<Value = Begin> {
    (id(), long(), word(), tokens(), text(1000)).prop_map(
        |(mut id, payload_bytes, status, tokens, message)| {
            if !tokens.is_empty() || status == 0 {
                id.token_count = u32::try_from(tokens.len()).unwrap();
            }
            Begin { id, payload_bytes, status, tokens, message }
        },
    )
}

fn load() -> impl Strategy<Value = Begin> {
    begin().prop_map(|mut begin| {
        begin.id.token_count = u32::try_from(begin.tokens.len()).unwrap();
        Begin { status: 0, message: String::new(), ..begin }
    })
}

/// Any message that can be sent and is the same when it arrives.
pub(crate) fn message() -> impl Strategy<Value = Message> {
    prop_oneof![
        hello().prop_map(Message::Hello),
        text(511).prop_map(Message::Error),
        work().prop_map(|work| Message::Work(Box::new(work))),
        result().prop_map(|result| Message::Result(Box::new(result))),
        id().prop_map(Message::SaveRequest),
        begin().prop_map(Message::Begin),
        (long(), 0..300_u32).prop_map(|(request, bytes)| Message::Chunk(Chunk { request, bytes })),
        (long(), word(), text(1000)).prop_map(|(request, status, message)| Message::Done(Done {
            request,
            status,
            message
        })),
        load().prop_map(Message::LoadBegin),
    ]
}

pub(crate) fn pair_hello() -> impl Strategy<Value = PairHello> {
    ([(); 13].map(|()| word()), long(), [(); 3].map(|()| long())).prop_map(|(words, gguf_bytes, mask)| {
        let [version, role, rdma_ok, model_id, n_layer, n_embd, n_vocab, rest @ ..] = words;
        let [quant_bits, ctx_size, gate_slot_start, gate_slot_step, gates_per_token, pad] = rest;
        PairHello {
            version,
            role,
            rdma_ok,
            gguf_bytes,
            model_id,
            n_layer,
            n_embd,
            n_vocab,
            quant_bits,
            ctx_size,
            gate_slot_start,
            gate_slot_step,
            gates_per_token,
            pad,
            mask,
        }
    })
}
