//! Strategies for property tests: messages of all types by hand, what may go wrong with them, and how the tests run.

use cuframes_core::{Format, FrameMeta};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use proptest::test_runner::FileFailurePersistence;

use crate::conformance::session::bytes::{
    EVENT_FD, Hello, PING, PONG, Stream, TYPES, UNSUBSCRIBE, any as any_of_type, error, event_fd_of,
    hello_refused, message, resized, shutdown, subscribe_req, subscribe_resp, subscribe_resp_short,
};

/// How a property test runs: so many cases, or as many as `PROPTEST_CASES` says. A case that fails is written to a file beside
/// the test, named as it with the extension `regressions`; it belongs into the repository, and is tried first from then on.
#[must_use]
pub fn config(cases: u32) -> ProptestConfig {
    let failure_persistence = FileFailurePersistence::WithSource("regressions");
    ProptestConfig {
        cases,
        failure_persistence: Some(Box::new(failure_persistence)),
        ..ProptestConfig::default()
    }
}

/// A number that is often one of the first, and may be any.
pub fn number() -> impl Strategy<Value = u32> {
    prop_oneof![3 => 0..8_u32, 1 => any::<u32>()]
}

/// Text of at most `most` bytes, of characters of one to four bytes, also such that can't be shown.
pub fn text(most: usize) -> impl Strategy<Value = String> {
    vec(prop_oneof![4 => any::<char>(), 1 => select(vec!['\0', '\u{1b}', 'é', '\u{1F4F7}'])], 0..=most / 4)
        .prop_map(String::from_iter)
}

/// Bytes of no meaning.
pub fn payload(most: usize) -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![9 => vec(any::<u8>(), 0..=most.min(100)), 1 => vec(any::<u8>(), 0..=most)]
}

/// A name that is allowed (D-16).
pub fn name() -> impl Strategy<Value = String> {
    let character = any::<char>().prop_map(|c| if c.is_control() { '?' } else { c });
    vec(character, 1..=63).prop_map(String::from_iter)
}

/// HELLO_REQ of version 1 with any device, mode and features.
pub fn hello() -> impl Strategy<Value = Hello> {
    (name(), any::<i32>(), number(), number()).prop_map(|(name, device, mode, features)| Hello {
        version: 1,
        name: name.into_bytes(),
        device,
        mode,
        features,
    })
}

/// A geometry that holds together (§2.1), of any format.
pub fn meta() -> impl Strategy<Value = FrameMeta> {
    let sizes = (1..5000_u32, 1..5000_u32, 0..100_u32, 0..100_u32, any::<u32>(), 0..1000_u64);
    (select(Format::ALL.to_vec()), sizes).prop_map(
        |(format, (width, height, more_y, more_uv, bits, more))| {
            let height = if format == Format::BYTES { 1 } else { height };
            let meta = FrameMeta::new(format, width, height).unwrap();
            let (pitch_y, pitch_uv) = (meta.pitch_y + more_y, meta.pitch_uv + more_uv);
            let meta = FrameMeta { pitch_y, pitch_uv, bits_per_pixel: bits, ..meta };
            let end = |last: cuframes_core::wire::meta::Plane| {
                last.offset + u64::from(last.pitch) * u64::from(last.rows)
            };
            FrameMeta { frame_size_bytes: meta.planes().last().map_or(0, end) + more, ..meta }
        },
    )
}

/// HELLO_RESP of version 1 with any stream that a subscriber accepts, if it asked for the features.
pub fn stream() -> impl Strategy<Value = Stream> {
    (1..=16_u32, number(), meta(), text(200), number()).prop_map(
        |(ring_size, ownership, meta, shm_path, features)| Stream {
            version: 1,
            ring_size,
            ownership,
            meta: meta.to_bytes(),
            shm_path,
            features,
        },
    )
}

/// A code that refuses.
pub fn negative() -> impl Strategy<Value = i32> {
    prop_oneof![-17..0_i32, i32::MIN..0]
}

/// A message of any type that is well-formed, though maybe not legal.
pub fn well_formed() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        hello().prop_map(|hello| hello.message()),
        stream().prop_map(|stream| stream.message()),
        negative().prop_map(hello_refused),
        number().prop_map(subscribe_req),
        (1..=31_u32, any::<u64>()).prop_map(|(bit, seq)| subscribe_resp(0, bit, seq)),
        (1..=31_u32, any::<u32>()).prop_map(|(bit, seq)| subscribe_resp_short(bit, seq)),
        negative().prop_map(|code| subscribe_resp(code, 0, 0)),
        payload(4096).prop_map(|payload| message(UNSUBSCRIBE, &payload)),
        (number(), number(), number()).prop_map(|(purpose, index, count)| event_fd_of(purpose, index, count)),
        number().prop_map(shutdown),
        payload(4096).prop_map(|payload| message(PING, &payload)),
        payload(4096).prop_map(|payload| message(PONG, &payload)),
        (any::<i32>(), text(300)).prop_map(|(code, text)| error(code, &text)),
        (any::<u32>(), payload(4096)).prop_map(|(message_type, payload)| message(message_type, &payload)),
        select(TYPES.to_vec()).prop_map(|(message_type, _)| any_of_type(message_type)),
    ]
}

/// A message of any type, in which something may be wrong: another length, another byte.
pub fn maybe_malformed() -> impl Strategy<Value = Vec<u8>> {
    let wrong_byte = (well_formed(), any::<Index>(), any::<u8>()).prop_map(|(mut message, at, value)| {
        *at.get_mut(&mut message) = value;
        message
    });
    let wrong_length = (well_formed(), 0..120_usize).prop_map(|(message, len)| resized(&message, len));
    prop_oneof![4 => well_formed(), 1 => wrong_byte, 1 => wrong_length]
}

/// How many descriptors a message comes with: one for an EVENT_FD and none for others, as a rule.
pub fn descriptors(message: &[u8]) -> impl Strategy<Value = usize> + use<> {
    let usual = usize::from(message.starts_with(&EVENT_FD.to_le_bytes()));
    prop_oneof![9 => Just(usual), 1 => 0..=2_usize]
}
