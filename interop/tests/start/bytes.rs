//! Our messages and those of `tokenspeed-wire`, byte for byte, in both directions.

use std::fs;
use std::path::Path;
use std::process::Command;

use bytes::Bytes;
use cuframes_barrier::message::{Init, Registration, Status};
use cuframes_interop::chance;
use fastrand::Rng;
use ts_wire::msgpack::Integer;
use ts_wire::{
    Dict, EngineCoreReadyResponse, HandshakeAddresses, HandshakeInitMessage, ReadyMessage, Value, Wire,
    decode_bytes, encode_frames,
};

fn theirs<T: Wire>(message: &T) -> Vec<u8> {
    encode_frames(message)[0].to_vec()
}

fn int(rng: &mut Rng) -> i64 {
    const EDGES: [i64; 24] = [
        0,
        1,
        -1,
        -32,
        -33,
        127,
        128,
        255,
        256,
        -128,
        -129,
        32_767,
        65_535,
        65_536,
        -32_768,
        -32_769,
        2_147_483_647,
        4_294_967_295,
        4_294_967_296,
        -2_147_483_648,
        -2_147_483_649,
        i64::MAX,
        i64::MAX - 1,
        i64::MIN,
    ];
    if rng.bool() { *rng.choice(&EDGES).unwrap() } else { rng.i64(..) }
}

fn float(rng: &mut Rng) -> f64 {
    const EDGES: [f64; 10] = [
        0.0,
        -0.0,
        1.5,
        f64::MAX,
        f64::MIN,
        f64::MIN_POSITIVE,
        5e-324,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::NAN,
    ];
    if rng.bool() { *rng.choice(&EDGES).unwrap() } else { f64::from_bits(rng.u64(..)) }
}

/// Around the borders of lengths.
fn len(rng: &mut Rng) -> usize {
    *rng.choice(&[0, 1, 2, 3, 4, 7, 8, 15, 16, 17, 31, 32, 33, 255, 256, 300]).unwrap()
}

fn text(rng: &mut Rng) -> String {
    let len = len(rng);
    (0..len).map(|_| if rng.u8(..8) == 0 { rng.char(..) } else { rng.alphanumeric() }).collect()
}

fn optional<T>(rng: &mut Rng, value: impl FnOnce(&mut Rng) -> T) -> Option<T> {
    rng.bool().then(|| value(rng))
}

fn blob(rng: &mut Rng) -> Bytes {
    let len = len(rng);
    std::iter::repeat_with(|| rng.u8(..)).take(len).collect()
}

fn value(rng: &mut Rng, depth: usize) -> Value {
    let few = |rng: &mut Rng| if rng.u8(..16) == 0 { rng.usize(15..18) } else { rng.usize(..4) };
    match rng.u8(..if depth == 0 { 8 } else { 10 }) {
        0 => Value::Nil,
        1 => Value::Bool(rng.bool()),
        2 => Value::Int(Integer::Signed(int(rng))),
        3 => Value::Int(Integer::Unsigned(if rng.bool() {
            u64::MAX - u64::from(rng.u8(..))
        } else {
            rng.u64(..)
        })),
        4 => Value::Float(float(rng)),
        5 => Value::Str(text(rng)),
        6 => Value::Bin(blob(rng)),
        7 => Value::Ext(rng.i8(..), blob(rng)),
        8 => Value::Array((0..few(rng)).map(|_| value(rng, depth - 1)).collect()),
        _ => Value::Map((0..few(rng)).map(|_| (value(rng, depth - 1), value(rng, depth - 1))).collect()),
    }
}

/// Keys of any type, some of them twice.
fn dict(rng: &mut Rng) -> Dict<Value, Value> {
    let mut pairs: Vec<_> = (0..rng.usize(..4)).map(|_| (value(rng, 2), value(rng, 4))).collect();
    if let Some(first) = pairs.first().cloned().filter(|_| rng.bool()) {
        pairs.push(first);
    }
    Dict(pairs)
}

fn status(rng: &mut Rng) -> ReadyMessage {
    ReadyMessage {
        status: optional(rng, text),
        local: optional(rng, Rng::bool),
        headless: optional(rng, Rng::bool),
        parallel_config_hash: optional(rng, text),
    }
}

fn init(rng: &mut Rng) -> HandshakeInitMessage {
    let texts = |rng: &mut Rng| (0..rng.usize(..18)).map(|_| text(rng)).collect();
    HandshakeInitMessage {
        addresses: HandshakeAddresses {
            inputs: texts(rng),
            outputs: texts(rng),
            coordinator_input: optional(rng, text),
            coordinator_output: optional(rng, text),
            frontend_stats_publish_address: optional(rng, text),
        },
        parallel_config: dict(rng),
    }
}

fn registration(rng: &mut Rng) -> EngineCoreReadyResponse {
    EngineCoreReadyResponse {
        max_model_len: int(rng),
        num_gpu_blocks: int(rng),
        prefix_granularity: int(rng),
        dp_stats_address: optional(rng, text),
        dtype: text(rng),
        multimodal_encoder_dtype: optional(rng, text),
        vllm_version: text(rng),
        world_size: int(rng),
        data_parallel_size: int(rng),
        tensor_parallel_size: int(rng),
        pipeline_parallel_size: int(rng),
        decode_context_parallel_size: int(rng),
        data_parallel_rank: int(rng),
        max_num_seqs: int(rng),
        max_num_batched_tokens: int(rng),
        instance_id: text(rng),
        kv_cache_size_tokens: optional(rng, int),
        kv_cache_max_concurrency: optional(rng, float),
        kv_events_config: optional(rng, dict),
    }
}

/// The same bytes in both, and the same again when each has read what the other wrote.
macro_rules! same {
    ($rng:expr, $make:ident, $ours:ty, $theirs:ty, { $($field:ident),* }) => {{
        let original: $theirs = $make($rng);
        let bytes = theirs(&original);
        let read = <$ours>::decode(&bytes).unwrap_or_else(|error| panic!("{original:?}: {error}"));
        $(assert_eq!(read.$field, original.$field, "{original:?}");)*
        assert_eq!(read.encode(), bytes, "{original:?}");
        let again: $theirs = decode_bytes(&read.encode()).unwrap();
        assert_eq!(theirs(&again), bytes, "{original:?}");
    }};
}

#[test]
fn any_message_has_the_same_bytes_in_both() {
    let mut rng = chance();
    for _ in 0..2000 {
        same!(&mut rng, status, Status, ReadyMessage, { status, local, headless, parallel_config_hash });
        same!(&mut rng, init, Init, HandshakeInitMessage, {});
        same!(&mut rng, registration, Registration, EngineCoreReadyResponse, {
            max_model_len, num_gpu_blocks, prefix_granularity, dp_stats_address, dtype, multimodal_encoder_dtype,
            vllm_version, world_size, data_parallel_size, tensor_parallel_size, pipeline_parallel_size,
            decode_context_parallel_size, data_parallel_rank, max_num_seqs, max_num_batched_tokens, instance_id,
            kv_cache_size_tokens
        });
    }
}

#[test]
fn what_nobody_has_set_is_the_same_in_both() {
    assert_eq!(Registration::default().encode(), theirs(&EngineCoreReadyResponse::default()));
    assert_eq!(Status::default().encode(), theirs(&ReadyMessage::default()));
    for empty in [&b"\x80"[..], b"\xde\x00\x00", b"\xdf\x00\x00\x00\x00"] {
        let read: EngineCoreReadyResponse = decode_bytes(empty).unwrap();
        assert_eq!(Registration::decode(empty).unwrap().encode(), theirs(&read));
        assert!(Init::decode(empty).is_err() && decode_bytes::<HandshakeInitMessage>(empty).is_err());
    }
}

/// Makes some bytes others, fewer or more.
fn spoil(rng: &mut Rng, bytes: &mut Vec<u8>) {
    const MARKERS: [u8; 18] = [
        0x80, 0x81, 0x90, 0xa0, 0xc0, 0xc1, 0xc2, 0xc4, 0xc7, 0xca, 0xcb, 0xcf, 0xd0, 0xd4, 0xd9, 0xdc, 0xde,
        0xff,
    ];
    for _ in 0..rng.usize(1..3) {
        let at = rng.usize(..bytes.len().max(1));
        let byte = if rng.bool() { *rng.choice(&MARKERS).unwrap() } else { rng.u8(..0x80) };
        match rng.u8(..8) {
            0 => bytes.truncate(at),
            1 => bytes.insert(at.min(bytes.len()), byte),
            2 if at < bytes.len() => drop(bytes.remove(at)),
            _ => bytes.iter_mut().skip(at).take(1).for_each(|old| *old = byte),
        }
    }
}

#[test]
fn bytes_that_were_spoiled_are_read_by_both_or_by_none() {
    /// What both make of it; whether it was a message.
    fn read<T: Wire>(bytes: &[u8], ours: &Result<Vec<u8>, String>) -> bool {
        let original =
            decode_bytes::<T>(bytes).map(|message| theirs(&message)).map_err(|error| error.to_string());
        assert_eq!(original.is_ok(), ours.is_ok(), "{bytes:02x?}: theirs {original:?}, ours {ours:?}");
        assert_eq!(original.ok(), ours.clone().ok(), "{bytes:02x?}");
        ours.is_ok()
    }
    let mut rng = chance();
    let mut good = 0;
    for _ in 0..5000 {
        let mut bytes = theirs(&status(&mut rng));
        spoil(&mut rng, &mut bytes);
        let ours = Status::decode(&bytes).map(|message| message.encode()).map_err(|error| error.to_string());
        good += usize::from(read::<ReadyMessage>(&bytes, &ours));

        let mut bytes = theirs(&init(&mut rng));
        spoil(&mut rng, &mut bytes);
        let ours = Init::decode(&bytes).map(|message| message.encode()).map_err(|error| error.to_string());
        good += usize::from(read::<HandshakeInitMessage>(&bytes, &ours));

        let mut bytes = theirs(&registration(&mut rng));
        spoil(&mut rng, &mut bytes);
        let ours =
            Registration::decode(&bytes).map(|message| message.encode()).map_err(|error| error.to_string());
        good += usize::from(read::<EngineCoreReadyResponse>(&bytes, &ours));
    }
    assert!((1000..14_000).contains(&good), "{good} of 15000 were messages: that compares nothing");
}

/// A fixture of `tokenspeed-wire`, which its authors have written with msgspec: from where cargo keeps its source.
fn fixture(name: &str) -> Vec<u8> {
    let mut metadata = Command::new(env!("CARGO"));
    metadata.args(["metadata", "--format-version=1", "--offline", "--manifest-path"]);
    let metadata = metadata.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")).output().unwrap();
    let metadata = String::from_utf8(metadata.stdout).unwrap();
    let paths = metadata.split("\"manifest_path\":\"").filter_map(|rest| rest.split('"').next());
    let manifest = paths.map(Path::new).find(|path| path.to_str().unwrap().contains("/tokenspeed-wire-"));
    let file = manifest.unwrap().with_file_name("tests/fixtures").join(name);
    let digits = fs::read_to_string(&file).unwrap_or_else(|error| panic!("{file:?}: {error}"));
    let pairs = digits.trim_end().as_bytes().chunks(2);
    pairs.map(|pair| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

#[test]
fn the_fixtures_of_the_original_are_read_and_written_again() {
    let bytes = fixture("handshake_hello.hex");
    let read = Status::decode(&bytes).unwrap();
    assert_eq!((read.status.as_deref(), read.headless), (Some("HELLO"), Some(false)));
    assert_eq!(read.encode(), bytes);

    let bytes = fixture("handshake_init.hex");
    let read = Init::decode(&bytes).unwrap();
    assert_eq!(read.addresses.inputs, ["tcp://127.0.0.1:21000"]);
    assert_eq!(read.parallel_config.get("data_parallel_size").unwrap().as_int(), Some(2));
    assert_eq!(read.encode(), bytes);

    let bytes = fixture("handshake_ready_response.hex");
    let read = Registration::decode(&bytes).unwrap();
    assert_eq!((read.data_parallel_rank, read.kv_cache_max_concurrency), (1, Some(24.1)));
    assert_eq!(read.encode(), bytes);
}
