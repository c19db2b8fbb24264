//! How messages are read (§3.2 of the handshake): what is forgiven, and what is not.

use allocation_counter::measure;
use cuframes_barrier::message::{Init, Registration, Status};
use cuframes_barrier::msgpack::{DecodeError, Dict, Problem, Value};

use crate::bytes::{map, text, vector};

fn problem<T>(result: Result<T, DecodeError>) -> Option<Problem> {
    result.err().map(|error| error.problem)
}

/// One value of each kind and form, nested ones included.
fn values() -> Vec<Vec<u8>> {
    let sized = |head: &[u8], len: usize| [head, &vec![0x61; len]].concat();
    vec![
        vec![0x7f],
        vec![0xe0],
        vec![0xc0],
        vec![0xc2],
        vec![0xc3],
        sized(&[0xca], 4),
        sized(&[0xcb], 8),
        sized(&[0xcc], 1),
        sized(&[0xcd], 2),
        sized(&[0xce], 4),
        sized(&[0xcf], 8),
        sized(&[0xd0], 1),
        sized(&[0xd1], 2),
        sized(&[0xd2], 4),
        sized(&[0xd3], 8),
        sized(&[0xa2], 2),
        sized(&[0xd9, 3], 3),
        sized(&[0xda, 0, 3], 3),
        sized(&[0xdb, 0, 0, 0, 3], 3),
        sized(&[0xc4, 3], 3),
        sized(&[0xc5, 0, 3], 3),
        sized(&[0xc6, 0, 0, 0, 3], 3),
        sized(&[0xd4], 2),
        sized(&[0xd5], 3),
        sized(&[0xd6], 5),
        sized(&[0xd7], 9),
        sized(&[0xd8], 17),
        sized(&[0xc7, 3], 4),
        sized(&[0xc8, 0, 3], 4),
        sized(&[0xc9, 0, 0, 0, 3], 4),
        vec![0x90],
        vec![0x92, 0x91, 0xc0, 0x81, 1, 0x80],
        vec![0xdc, 0, 2, 1, 2],
        vec![0xdd, 0, 0, 0, 1, 0xa0],
        vec![0x81, 0x91, 1, 0x92, 0xc3, 7],
        vec![0xde, 0, 1, 1, 0xa1, 0x61],
        vec![0xdf, 0, 0, 0, 1, 1, 2],
    ]
}

#[test]
fn unknown_keys_are_skipped_whatever_they_hold() {
    for value in values() {
        let message = map(&[("x", &value), ("status", &text("HELLO")), ("y", &value)]);
        assert_eq!(Status::decode(&message).unwrap().status.as_deref(), Some("HELLO"), "{value:02x?}");
        for len in 0..message.len() {
            assert!(Status::decode(&message[..len]).is_err(), "{value:02x?} cut at {len}");
        }
    }
    assert_eq!(problem(Status::decode(&map(&[("x", &[0xc1])]))), Some(Problem::Reserved));
}

#[test]
fn a_key_that_is_missing_has_its_default() {
    assert_eq!(Status::decode(&[0x80]), Ok(Status::default()));
    assert_eq!(Registration::decode(&[0x80]), Ok(Registration::default()));
    let defaults = Registration::default();
    assert_eq!((defaults.dtype.as_str(), defaults.world_size, defaults.max_num_seqs), ("bfloat16", 1, 0));
    assert_eq!(defaults.kv_cache_max_concurrency, None);
    let addresses = Init::decode(&map(&[("addresses", &[0x80])])).unwrap();
    assert_eq!(addresses, Init::default());
}

#[test]
fn an_init_needs_its_addresses() {
    let error = Init::decode(&map(&[("parallel_config", &[0x80])])).unwrap_err();
    assert_eq!((error.field, error.problem), (Some("addresses"), Problem::Missing));
    let nil = Init::decode(&map(&[("addresses", &[0xc0])])).unwrap_err();
    assert_eq!((nil.field, nil.problem), (Some("addresses"), Problem::Type { expected: "map" }));
}

#[test]
fn of_a_repeated_key_the_last_value_counts() {
    let status = Status::decode(&map(&[("status", &text("HELLO")), ("status", &text("READY"))])).unwrap();
    assert_eq!(status.status.as_deref(), Some("READY"));
    let status = Status::decode(&map(&[("status", &text("HELLO")), ("status", &[0xc0])])).unwrap();
    assert_eq!(status.status, None);
    // Each of them must have the right type.
    assert!(Status::decode(&map(&[("status", &[1]), ("status", &text("READY"))])).is_err());
}

#[test]
fn keys_are_strings_messages_are_maps_and_nothing_follows() {
    let str = Some(Problem::Type { expected: "str" });
    assert_eq!(problem(Status::decode(&[0x81, 1, 1])), str);
    assert_eq!(problem(Status::decode(&[0x81, 0xc4, 1, 0x61, 1])), str);
    assert_eq!(problem(Status::decode(&[0x81, 0xa1, 0xff, 1])), Some(Problem::NotUtf8));
    let map = Some(Problem::Type { expected: "map" });
    assert_eq!(problem(Status::decode(&[0x94, 0xc0, 0xc0, 0xc0, 0xc0])), map);
    assert_eq!(problem(Status::decode(&[0xc0])), map);
    assert_eq!(problem(Status::decode(&[])), Some(Problem::Truncated));
    let mut trailing = vector!("hello");
    trailing.push(0xc0);
    let error = Status::decode(&trailing).unwrap_err();
    assert_eq!((error.problem, error.offset), (Problem::Trailing, 53));
}

#[test]
fn a_field_of_another_type_is_named() {
    let error = Status::decode(&map(&[("local", &[1])])).unwrap_err();
    assert_eq!((error.field, error.offset), (Some("local"), 7));
    assert_eq!(error.to_string(), "it has not the type bool (field local, byte 7)");
    for (field, value) in
        [("status", &[0xc4, 0][..]), ("headless", &[0xa0]), ("parallel_config_hash", &[0x90])]
    {
        assert_eq!(Status::decode(&map(&[(field, value)])).unwrap_err().field, Some(field));
    }
    for (field, value) in [
        ("world_size", &[0xc0][..]),
        ("world_size", &[0xcb, 0x3f, 0xf0, 0, 0, 0, 0, 0, 0]),
        ("dtype", &[0xc0]),
        ("dtype", &[0xa1, 0xff]),
        ("kv_cache_max_concurrency", &[0xa1, 0x31]),
        ("kv_events_config", &[0x90]),
        ("kv_cache_size_tokens", &[0xc3]),
    ] {
        assert_eq!(Registration::decode(&map(&[(field, value)])).unwrap_err().field, Some(field));
    }
    let inputs = map(&[("inputs", &[0x91, 0xc0])]);
    assert_eq!(Init::decode(&map(&[("addresses", &inputs)])).unwrap_err().field, Some("inputs"));
}

#[test]
fn integers_of_every_form_are_taken_within_64_bits() {
    let read = |bytes: &[u8]| {
        Registration::decode(&map(&[("max_model_len", bytes)])).map(|message| message.max_model_len)
    };
    for (bytes, value) in [
        (&[0xcc, 5][..], 5),
        (&[0xcd, 0, 5], 5),
        (&[0xce, 0, 0, 0, 5], 5),
        (&[0xcf, 0, 0, 0, 0, 0, 0, 0, 5], 5),
        (&[0xd0, 5], 5),
        (&[0xd0, 0xff], -1),
        (&[0xd1, 0xff, 0xff], -1),
        (&[0xd2, 0xff, 0xff, 0xff, 0xff], -1),
        (&[0xd3, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff], -1),
        (&[0xff], -1),
        (&[0xcf, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff], i64::MAX),
        (&[0xd3, 0x80, 0, 0, 0, 0, 0, 0, 0], i64::MIN),
    ] {
        assert_eq!(read(bytes), Ok(value));
    }
    assert_eq!(problem(read(&[0xcf, 0x80, 0, 0, 0, 0, 0, 0, 0])), Some(Problem::Range));
}

#[test]
fn a_float_may_be_an_integer_or_a_short_one() {
    let read = |bytes: &[u8]| {
        let message = Registration::decode(&map(&[("kv_cache_max_concurrency", bytes)]));
        message.unwrap().kv_cache_max_concurrency
    };
    assert_eq!(read(&[0xca, 0x3f, 0x80, 0, 0]), Some(1.0));
    assert_eq!(read(&[0xcb, 0x3f, 0xf8, 0, 0, 0, 0, 0, 0]), Some(1.5));
    assert_eq!(read(&[3]), Some(3.0));
    assert_eq!(read(&[0xfd]), Some(-3.0));
    assert_eq!(read(&[0xcf, 0xff, 0, 0, 0, 0, 0, 0, 0]), Some(18_374_686_479_671_623_680.0));
    assert_eq!(read(&[0xc0]), None);
}

#[test]
fn short_forms_end_at_31_bytes_and_15_entries() {
    let hash = |len: usize| Status { parallel_config_hash: Some("h".repeat(len)), ..Status::default() };
    let tail = |bytes: &[u8], len: usize| bytes[bytes.len() - len..].to_vec();
    assert_eq!(tail(&hash(31).encode(), 32)[0], 0xbf);
    assert_eq!(tail(&hash(32).encode(), 34)[..2], [0xd9, 32]);
    let init = |len: usize| {
        let mut init = Init::default();
        (0..len).for_each(|n| init.parallel_config.push(&format!("{n:02}"), 0));
        (0..len).for_each(|n| init.addresses.inputs.push(format!("{n:02}")));
        assert_eq!(Init::decode(&init.encode()), Ok(init.clone()));
        init.encode()
    };
    assert_eq!(tail(&init(15), 15 * 4 + 1)[0], 0x8f);
    assert_eq!(tail(&init(16), 16 * 4 + 3)[..3], [0xde, 0, 16]);
    let contains = |bytes: &[u8], part: &[u8]| bytes.windows(part.len()).any(|window| window == part);
    assert!(contains(&init(15), b"inputs\x9f"));
    assert!(contains(&init(16), b"inputs\xdc\x00\x10"));
}

#[test]
fn values_are_nested_32_deep_at_most() {
    let nested = |depth: usize| map(&[("kv_events_config", &[vec![0x81, 1], nest(depth)].concat())]);
    let dict = Registration::decode(&nested(32)).unwrap().kv_events_config.unwrap();
    assert_eq!(dict.pairs().len(), 1);
    assert_eq!(problem(Registration::decode(&nested(33))), Some(Problem::TooDeep));
    assert_eq!(problem(Registration::decode(&nested(4000))), Some(Problem::TooDeep));
    // What is skipped takes no stack.
    let skipped = |depth: usize| map(&[("x", &nest(depth)[..])]);
    assert!(Registration::decode(&skipped(4000)).is_ok());
    assert_eq!(problem(Registration::decode(&skipped(1 << 19))), Some(Problem::TooMany));
}

/// Arrays in arrays, and nil in the innermost.
fn nest(depth: usize) -> Vec<u8> {
    [vec![0x91; depth], vec![0xc0]].concat()
}

#[test]
fn a_message_has_4096_values_at_most() {
    // The map, a key, an array, and its elements.
    let array = |len: u16| [&[0xdc][..], &len.to_be_bytes(), &vec![1; len.into()]].concat();
    assert!(Status::decode(&map(&[("x", &array(4093))])).is_ok());
    assert_eq!(problem(Status::decode(&map(&[("x", &array(4094))]))), Some(Problem::TooMany));
}

#[test]
fn lengths_that_are_only_announced_take_no_memory() {
    for marker in [0xc6, 0xc9, 0xdb, 0xdd, 0xdf] {
        let value = [marker, 0xff, 0xff, 0xff, 0xff, 1];
        for field in ["x", "kv_events_config", "dtype", "max_model_len"] {
            let message = map(&[(field, &value)]);
            let info = measure(|| assert!(Registration::decode(&message).is_err()));
            assert!(info.bytes_max < 4096, "{field}: {} bytes", info.bytes_max);
        }
        let inner = map(&[("inputs", &value), ("outputs", &[0x90])]);
        let message = map(&[("addresses", &inner), ("parallel_config", &[0x80])]);
        let info = measure(|| assert!(Init::decode(&message).is_err()));
        assert!(info.bytes_max < 4096, "{} bytes", info.bytes_max);
        // It is refused where it is announced, before the first element is looked at.
        let error = Status::decode(&map(&[("x", &value)])).unwrap_err();
        assert_eq!((error.problem, error.offset), (Problem::Truncated, 3));
    }
    // As many elements as there are bytes, none of them a string.
    let len = u16::MAX;
    let array = [&[0xdc][..], &len.to_be_bytes(), &vec![1; len.into()]].concat();
    let message = map(&[("addresses", &map(&[("inputs", &array)]))]);
    let info = measure(|| assert!(Init::decode(&message).is_err()));
    assert!(info.bytes_max < 4096, "{} bytes", info.bytes_max);
}

#[test]
fn a_dict_holds_anything_in_its_order() {
    for value in values() {
        let dict = [&[0x82][..], &text("key"), &value, &value, &[1]].concat();
        let message = Registration::decode(&map(&[("kv_events_config", &dict)])).unwrap();
        let again = Registration::decode(&message.encode()).unwrap();
        let dict = message.kv_events_config.unwrap();
        let again = again.kv_events_config.unwrap();
        // Two of the floats are not equal to anything.
        assert_eq!(format!("{again:?}"), format!("{dict:?}"));
        assert_eq!(dict.pairs()[0].0, "key".into());
        assert_eq!(dict.pairs()[1].1, 1.into());
        assert_eq!(dict.get("key"), Some(&dict.pairs()[0].1));
        assert_eq!(dict.pairs()[0].1, dict.pairs()[1].0);
    }
    let mut dict = Dict::new();
    dict.push("a", 1);
    dict.push("a", "last");
    assert_eq!(dict.get("a").and_then(Value::as_str), Some("last"));
    assert_eq!(dict.get("a").and_then(Value::as_int), None);
    assert_eq!(dict.get("b"), None);
}
