//! What holds for any bytes in any pieces, and any order of steps.

use std::time::Duration;

use allocation_counter::measure;
use cuframes_barrier::message::{Addresses, Init, Registration, Status};
use cuframes_barrier::msgpack::{Dict, Value};
use cuframes_barrier::{Frontend, FrontendConfig, FrontendEvent, Participant, ParticipantConfig};
use cuframes_core::Instant;
use cuframes_core::streams::{Action, ConnId, Machine};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::FileFailurePersistence;

use crate::bytes::{
    HANDSHAKE, MORE, dealer, frame, greeting, hello, init, notice, opening, ready, registration,
};
use crate::world::{TIMEOUT, World, config};

/// A case that fails is written beside this file, and belongs into the repository.
fn cases(cases: u32) -> ProptestConfig {
    let persistence = FileFailurePersistence::WithSource("regressions");
    ProptestConfig { cases, failure_persistence: Some(Box::new(persistence)), ..ProptestConfig::default() }
}

/// A value, nested a few times.
fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Nil),
        any::<bool>().prop_map(Value::Bool),
        any::<i64>().prop_map(Value::Int),
        (-200..200_i64).prop_map(Value::Int),
        (1_u64 << 63..).prop_map(Value::Uint),
        any::<f64>().prop_map(Value::Float),
        ".{0,40}".prop_map(Value::Str),
        vec(any::<u8>(), 0..300).prop_map(Value::Bin),
        (any::<i8>(), vec(any::<u8>(), 0..20)).prop_map(|(kind, data)| Value::Ext(kind, data)),
    ];
    leaf.prop_recursive(4, 40, 20, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..20).prop_map(Value::Array),
            vec((inner.clone(), inner), 0..20).prop_map(Value::Map),
        ]
    })
}

fn dict() -> impl Strategy<Value = Dict> {
    vec((".{0,20}", value()), 0..20).prop_map(|pairs| {
        let mut dict = Dict::new();
        pairs.into_iter().for_each(|(key, value)| dict.push(&key, value));
        dict
    })
}

fn word() -> impl Strategy<Value = String> {
    prop_oneof![3 => ".{0,60}", 1 => Just("w".repeat(70_000))]
}

fn status() -> impl Strategy<Value = Status> {
    (option::of(word()), any::<Option<bool>>(), any::<Option<bool>>(), option::of(word())).prop_map(
        |(status, local, headless, parallel_config_hash)| Status {
            status,
            local,
            headless,
            parallel_config_hash,
        },
    )
}

fn any_init() -> impl Strategy<Value = Init> {
    let list = || vec(word(), 0..20);
    let addresses =
        (list(), list(), vec(option::of(word()), 3)).prop_map(|(inputs, outputs, others)| Addresses {
            inputs,
            outputs,
            coordinator_input: others[0].clone(),
            coordinator_output: others[1].clone(),
            frontend_stats_publish_address: others[2].clone(),
        });
    (addresses, dict()).prop_map(|(addresses, parallel_config)| {
        let mut init = Init::default();
        (init.addresses, init.parallel_config) = (addresses, parallel_config);
        init
    })
}

fn any_registration() -> impl Strategy<Value = Registration> {
    let texts = (option::of(word()), word(), option::of(word()), word(), word());
    let last = (any::<Option<i64>>(), any::<Option<f64>>(), option::of(dict()));
    (vec(any::<i64>(), 11), texts, last).prop_map(|(numbers, texts, last)| Registration {
        max_model_len: numbers[0],
        num_gpu_blocks: numbers[1],
        prefix_granularity: numbers[2],
        dp_stats_address: texts.0,
        dtype: texts.1,
        multimodal_encoder_dtype: texts.2,
        vllm_version: texts.3,
        world_size: numbers[3],
        data_parallel_size: numbers[4],
        tensor_parallel_size: numbers[5],
        pipeline_parallel_size: numbers[6],
        decode_context_parallel_size: numbers[7],
        data_parallel_rank: numbers[8],
        max_num_seqs: numbers[9],
        max_num_batched_tokens: numbers[10],
        instance_id: texts.4,
        kv_cache_size_tokens: last.0,
        kv_cache_max_concurrency: last.1,
        kv_events_config: last.2,
    })
}

proptest! {
    #![proptest_config(cases(256))]

    #[test]
    fn messages_come_out_as_they_went_in(status in status(), init in any_init(), registration in any_registration()) {
        prop_assert_eq!(Status::decode(&status.encode()), Ok(status));
        prop_assert_eq!(Init::decode(&init.encode()), Ok(init));
        prop_assert_eq!(Registration::decode(&registration.encode()), Ok(registration));
    }

    #[test]
    fn a_message_that_is_cut_or_continued_is_refused(registration in any_registration(), at: Index, byte: u8) {
        let mut bytes = registration.encode();
        prop_assert!(Registration::decode(&bytes[..at.index(bytes.len())]).is_err());
        bytes.push(byte);
        prop_assert!(Registration::decode(&bytes).is_err());
    }

    #[test]
    fn any_bytes_are_a_message_or_an_error(bytes in vec(any::<u8>(), 0..200), registration in any_registration(), changes in vec((any::<Index>(), any::<u8>()), 1..4)) {
        let mut changed = registration.encode();
        changes.iter().for_each(|(at, byte)| *at.get_mut(&mut changed) = *byte);
        for bytes in [&bytes, &changed] {
            let results = (Status::decode(bytes), Init::decode(bytes), Registration::decode(bytes));
            if let (_, _, Err(error)) = results {
                prop_assert!(error.offset <= bytes.len());
            }
        }
    }
}

/// Words that one side may say after its opening, right ones and wrong ones.
fn words(index: u16, rank: u8) -> impl Strategy<Value = Vec<u8>> {
    let rank = rank.into()..u16::from(rank) + 1;
    prop_oneof![
        6 => Just(hello()),
        6 => Just(ready()),
        6 => rank.prop_map(|rank| registration(u8::try_from(rank).unwrap(), 2)),
        2 => Just(init(true)),
        2 => Just(notice("KNOWS", None)),
        1 => Just(notice("GO", None)),
        1 => Just(notice("CANCEL", Some("why"))),
        1 => Just(frame(4, b"\x04PING\x00\x00ctx")),
        1 => Just(frame(MORE, b"half")),
        1 => Just(dealer(index)),
        1 => vec(any::<u8>(), 0..20),
    ]
}

/// The whole stream of a peer: usually one that begins well.
fn stream(index: u16) -> impl Strategy<Value = Vec<u8>> {
    let opening = prop_oneof![
        8 => Just(dealer(index)),
        1 => Just(opening("PUSH", None)),
        1 => Just(opening("ROUTER", None)),
        1 => Just(greeting()),
    ];
    let rank = u8::try_from(index).unwrap();
    (opening, vec(words(index, rank), 0..6)).prop_map(|(opening, words)| [opening, words.concat()].concat())
}

fn with(count: u16, restarts: bool, notices: bool) -> FrontendConfig {
    let mut config = config(count);
    (config.restarts, config.notices) = (restarts, notices);
    config
}

/// What a machine tells, and what it sends on each connection until it closes it.
#[derive(Debug)]
struct Told<E> {
    events: Vec<E>,
    sent: Vec<(Vec<u8>, bool)>,
}

impl<E: PartialEq> Told<E> {
    /// Whether the two are the same, but for what was sent on a connection before a fault that came earlier or later.
    fn is_like(&self, other: &Self) -> bool {
        let mut sent = self.sent.iter().zip(&other.sent);
        self.events == other.events
            && sent.all(|((one, is_closed), (two, other_is))| {
                is_closed == other_is
                    && (one == two || *is_closed && (one.starts_with(two) || two.starts_with(one)))
            })
    }
}

/// Gives streams to a machine, one after the other, each in pieces of these lengths.
fn feed<M: Machine>(machine: &mut M, streams: &[(ConnId, &[u8])], pieces: &[usize]) -> Told<M::Event> {
    let mut sent = vec![(Vec::new(), false); streams.len()];
    let mut events = Vec::new();
    let mut pieces = pieces.iter().cycle();
    for (conn, stream) in streams {
        let mut rest = *stream;
        while !rest.is_empty() {
            let (piece, after) = rest.split_at(rest.len().min(*pieces.next().unwrap()));
            machine.handle_bytes(Instant::ZERO, *conn, piece);
            rest = after;
            for ((sent, _), (conn, _)) in sent.iter_mut().zip(streams) {
                while let Some(bytes) = machine.poll_transmit(*conn) {
                    let n = bytes.len().min(*pieces.next().unwrap());
                    sent.extend(&bytes[..n]);
                    machine.transmitted(*conn, n);
                }
            }
            while let Some(action) = machine.poll_action() {
                let is_its = |(conn, _): &(ConnId, &[u8])| action == Action::Close(*conn);
                if let Some(at) = streams.iter().position(is_its) {
                    sent[at].1 = true;
                }
            }
            events.extend(std::iter::from_fn(|| machine.poll_event()));
        }
    }
    Told { events, sent }
}

proptest! {
    #![proptest_config(cases(512))]

    #[test]
    fn a_frontend_tells_and_sends_the_same_however_the_streams_are_cut(
        restarts: bool,
        notices: bool,
        streams in vec((0..2_usize, (0..2_u16).prop_flat_map(stream)), 1..6),
        pieces in vec(1..90_usize, 1..10),
    ) {
        let run = |pieces: &[usize]| {
            let mut frontend = Frontend::new(Instant::ZERO, with(2, restarts, notices)).unwrap();
            let streams: Vec<_> = streams
                .iter()
                .map(|(socket, stream)| (frontend.handle_accepted(Instant::ZERO, *socket).unwrap(), &stream[..]))
                .collect();
            feed(&mut frontend, &streams, pieces)
        };
        let whole = run(&[usize::MAX]);
        for pieces in [&pieces[..], &[1]] {
            let cut = run(pieces);
            prop_assert!(cut.is_like(&whole), "{cut:?}\n{whole:?}");
        }
    }

    #[test]
    fn a_participant_tells_and_sends_the_same_however_the_stream_is_cut(
        words in vec(words(0, 0), 0..6),
        marked: bool,
        pieces in vec(1..90_usize, 1..10),
    ) {
        let stream = [opening("ROUTER", None), init(marked), words.concat()].concat();
        let run = |pieces: &[usize]| {
            let mut participant =
                Participant::new(Instant::ZERO, ParticipantConfig::new(0, HANDSHAKE, TIMEOUT));
            let Some(Action::Connect { conn, .. }) = participant.poll_action() else { panic!("no attempt") };
            participant.handle_connected(Instant::ZERO, conn);
            feed(&mut participant, &[(conn, &stream)], pieces)
        };
        let (cut, whole) = (run(&pieces), run(&[usize::MAX]));
        prop_assert!(cut.is_like(&whole), "{cut:?}\n{whole:?}");
    }

    #[test]
    fn any_interleaving_of_participants_ends_with_everybody_there_once(
        notices: bool,
        restarts: bool,
        width in prop_oneof![1..20_usize, Just(usize::MAX)],
        count in 1..6_u16,
        steps in vec(any::<Index>(), 60),
    ) {
        // Each participant: say HELLO, say READY, register. By hand, so that they mix freely.
        let mut world = World::new(with(count, restarts, notices));
        world.width = width;
        let mut callers = vec![(0, None); usize::from(count)];
        for step in steps {
            let open: Vec<usize> = (0..callers.len()).filter(|who| callers[*who].0 < 3).collect();
            if open.is_empty() {
                break;
            }
            let who = *step.get(&open);
            let index = u16::try_from(who).unwrap();
            let rank = u8::try_from(who).unwrap();
            let (done, handshake) = &mut callers[who];
            *done += 1;
            match (*done, *handshake) {
                (1, _) => {
                    let words = [dealer(index), hello()].concat();
                    *handshake = Some(world.call(cuframes_barrier::Socket::Handshake, &words));
                }
                (2, Some(caller)) => world.say(caller, &ready()),
                _ => {
                    let count = u8::try_from(count).unwrap();
                    let words = [dealer(index), registration(rank, count)].concat();
                    world.call(cuframes_barrier::Socket::Input, &words);
                }
            }
        }
        prop_assert_eq!(world.indices(), (0..count).collect::<Vec<_>>());
        let ends = world.events.iter().filter(|event| {
            matches!(event, FrontendEvent::Started(_) | FrontendEvent::Failed(_))
        });
        prop_assert_eq!(ends.count(), 1);
    }

    #[test]
    fn our_participants_get_in_in_any_order_through_pipes_of_any_width(
        notices: bool,
        width in 1..200_usize,
        order in Just((0..5_u16).collect::<Vec<_>>()).prop_shuffle(),
        together in vec(any::<bool>(), 5),
    ) {
        let mut world = World::new(with(5, false, notices));
        world.width = width;
        for (index, together) in order.into_iter().zip(together) {
            world.join(index, index, 5);
            if !together {
                world.run();
            }
        }
        world.run();
        prop_assert_eq!(world.indices(), (0..5).collect::<Vec<_>>());
        prop_assert!((0..5).all(|participant| world.is_in(participant) == Some(notices)));
    }
}

/// What is done to a machine.
#[derive(Clone, Debug)]
enum Step {
    Accept(usize),
    Bytes(Index, Vec<u8>),
    Eof(Index),
    Wait(u16),
    Send(Index, usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0..4_usize).prop_map(Step::Accept),
        6 => (any::<Index>(), stream(0)).prop_map(|(at, bytes)| Step::Bytes(at, bytes)),
        4 => (any::<Index>(), words(1, 1)).prop_map(|(at, bytes)| Step::Bytes(at, bytes)),
        1 => any::<Index>().prop_map(Step::Eof),
        1 => (0..20_000_u16).prop_map(Step::Wait),
        2 => (any::<Index>(), 0..300_usize).prop_map(|(at, n)| Step::Send(at, n)),
    ]
}

/// Does what is asked for, and checks what always holds.
fn noise<M: Machine>(machine: &mut M, mut conns: Vec<ConnId>, steps: &[Step]) -> Result<(), TestCaseError> {
    let mut now = Instant::ZERO;
    for step in steps {
        let conn = |at: &Index, conns: &[ConnId]| conns.get(at.index(conns.len().max(1))).copied();
        match step {
            Step::Accept(listener) => conns.extend(machine.handle_accepted(now, *listener)),
            Step::Bytes(at, bytes) => {
                if let Some(conn) = conn(at, &conns) {
                    machine.handle_bytes(now, conn, bytes);
                }
            }
            Step::Eof(at) => {
                if let Some(conn) = conn(at, &conns) {
                    machine.handle_eof(now, conn);
                    prop_assert_eq!(machine.poll_transmit(conn), None);
                }
            }
            Step::Wait(millis) => now = now + Duration::from_millis((*millis).into()),
            Step::Send(at, n) => {
                if let Some(conn) = conn(at, &conns) {
                    let n = machine.poll_transmit(conn).map_or(0, |bytes| bytes.len().min(*n));
                    machine.transmitted(conn, n);
                }
            }
        }
        while let Some(action) = machine.poll_action() {
            match action {
                Action::Connect { conn, .. } => {
                    machine.handle_connected(now, conn);
                    conns.push(conn);
                }
                Action::Close(conn) => prop_assert_eq!(machine.poll_transmit(conn), None),
                _ => {}
            }
        }
        machine.handle_timeout(now);
        // A loop that sleeps until then does not turn for nothing.
        prop_assert!(machine.poll_timeout().is_none_or(|at| at > now));
    }
    while machine.poll_event().is_some() {}
    Ok(())
}

proptest! {
    #![proptest_config(cases(256))]

    #[test]
    fn a_frontend_bears_any_noise_within_a_constant(
        restarts: bool,
        notices: bool,
        steps in vec(step(), 0..200),
    ) {
        let mut frontend = Frontend::new(Instant::ZERO, with(2, restarts, notices)).unwrap();
        let mut result = Ok(());
        let info = measure(|| result = noise(&mut frontend, Vec::new(), &steps));
        result?;
        prop_assert!(info.bytes_max < 256 << 10, "{} bytes", info.bytes_max);
    }

    #[test]
    fn a_participant_bears_any_noise_within_a_constant(
        well_begun: bool,
        marked: bool,
        is_ready: bool,
        steps in vec(step(), 0..100),
    ) {
        let mut participant = Participant::new(Instant::ZERO, ParticipantConfig::new(0, HANDSHAKE, TIMEOUT));
        let mut result = Ok(());
        let info = measure(|| {
            let mut conns = Vec::new();
            if let (true, Some(Action::Connect { conn, .. })) = (well_begun, participant.poll_action()) {
                participant.handle_connected(Instant::ZERO, conn);
                let stream = [opening("ROUTER", None), init(marked)].concat();
                participant.handle_bytes(Instant::ZERO, conn, &stream);
                if is_ready {
                    participant.ready(Instant::ZERO, Registration::new(0, 1));
                }
                conns.push(conn);
            }
            result = noise(&mut participant, conns, &steps);
        });
        result?;
        prop_assert!(info.bytes_max < 128 << 10, "{} bytes", info.bytes_max);
    }
}
